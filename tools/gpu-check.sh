#!/usr/bin/env bash
# Everything that must hold on a GPU, with a program that was built elsewhere: gpu-check.sh BINARY --out DIR [FLAG..]; the
# flags are those of `BINARY gpu-check --help`. Needs a driver, and compute-sanitizer unless --skip-sanitizer is given.
set -euo pipefail
binary=$(realpath -- "${1:?names the program: tools/gpu-check.sh BINARY --out DIR}")
shift
args=()
while [ $# -gt 0 ]; do
    # The caller's folders, before this goes to the root, where the models are.
    case $1 in
    --out | --compare) args+=("$1" "$(realpath -m -- "${2:?$1 needs a path}")") && shift 2 ;;
    *) args+=("$1") && shift ;;
    esac
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "$binary" gpu-check "${args[@]}"
