#!/usr/bin/env bash
# Cross-builds the whole workspace for aarch64 and runs the engine's tests under emulation. Needs x86-64 Debian 12 and
# rustup's cargo; `install` as the only argument brings the rest and stops, which root may do beforehand.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# rustup's toolchain fetches no other target's standard library here; Debian's compiler has it as a package, of one version.
packages=(rustc-web libstd-rust-web-dev libstd-rust-web-dev:arm64 gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)
rustc=/usr/bin/rustc
target=aarch64-unknown-linux-gnu

installed() {
    dpkg-query --show --showformat='${Status}\n' "${packages[@]}" 2>/dev/null | grep -c '^install ok installed$' |
        grep -qx "${#packages[@]}"
}

install() {
    if [ "$(id -u)" != 0 ]; then
        echo "tools/aarch64-check.sh: packages are missing; run it once as root with the argument \`install\`" >&2
        exit 1
    fi
    dpkg --add-architecture arm64
    # A package source that does not answer is apt's warning; a package that cannot be had is the next line's error.
    apt-get -qq update || true
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends "${packages[@]}"
}

installed || install
[ "${1-}" != install ] || exit 0

export RUSTC=$rustc CARGO_INCREMENTAL=0
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64-static
# The laws are tested with all cases natively; here it is the architecture that is new.
export PROPTEST_CASES=32

# Built, and run natively only: what needs no instruction of its own and takes long to compile or to run here.
native=" corpus it memory "
engine=(--lib)
for file in engine/*/tests/*.rs engine/*/tests/*/main.rs; do
    name=$(basename "${file%/main.rs}" .rs)
    [[ $native == *" $name "* ]] || engine+=(--test "$name")
done
# One choice of packages throughout, and tests in every choice of targets: features resolve alike, nothing is built twice.
options=(--quiet --locked --profile emulated --target "$target" --workspace)

"$rustc" --version
qemu-aarch64-static --version | head -n 1
cargo build "${options[@]}" --bins "${engine[@]}" --test oracle
# Left out: files of the published size, which are more than the emulator has address space for; statistics; long answers
# of a toy model, in which the tokenizer's time goes.
cargo test "${options[@]}" "${engine[@]}" -- --skip published:: --skip follow_the_distribution --skip an_answer_is_its \
    --skip a_full_context_ends --skip text_does_not_depend --skip a_receiver_that_breaks --skip a_stop_id_is_the_last
# The whole engine: text and logits, in f32 within the oracle's bound, in int8 with the bits of x86-64.
cargo test "${options[@]}" --test oracle -- greedy_tokens int8_text
# A processor without the dot-product instructions.
CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -cpu cortex-a53" cargo test "${options[@]}" \
    --lib -- dot:: math::
