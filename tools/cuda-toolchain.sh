#!/usr/bin/env bash
# Brings the CUDA compiler that engine/cuda is built with into .cuda/ at the root: pinned wheels of NVIDIA's own, unpacked
# by pip; no driver, no root, about 400 MB. engine/cuda/build.rs looks there before it looks anywhere else. Does nothing
# when it is there already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

wheels=(
    nvidia-cuda-nvcc==13.0.88
    nvidia-cuda-crt==13.0.88
    nvidia-nvvm==13.0.88
    nvidia-cuda-runtime==13.0.96
    nvidia-cuda-cccl==13.0.85
)
folder=.cuda
stamp=$folder/wheels

if [ "$(cat "$stamp" 2>/dev/null)" = "${wheels[*]}" ]; then
    echo "tools/cuda-toolchain.sh: $folder holds ${wheels[*]}"
    exit 0
fi

python=$(command -v python3 || true)
if [ -z "$python" ] || ! "$python" -m pip --version >/dev/null 2>&1; then
    if [ "$(id -u)" != 0 ]; then
        echo "tools/cuda-toolchain.sh: needs python3 with pip (Debian: python3-pip); install it and run this again" >&2
        exit 1
    fi
    apt-get -qq update || true
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends python3 python3-pip
    python=$(command -v python3)
fi

echo "tools/cuda-toolchain.sh: unpacking ${wheels[*]} into $folder"
# Beside the folder first: an interrupted run leaves no half of a compiler behind.
rm -rf "$folder" "$folder.part"
"$python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --no-compile \
    --only-binary=:all: --target "$folder.part" "${wheels[@]}"
chmod +x "$folder.part"/nvidia/cu13/bin/* "$folder.part"/nvidia/cu13/nvvm/bin/*
printf '%s\n' "${wheels[*]}" >"$folder.part/wheels"
mv "$folder.part" "$folder"
"$folder/nvidia/cu13/bin/nvcc" --version | tail -n 2
