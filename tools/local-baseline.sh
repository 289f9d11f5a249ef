#!/usr/bin/env bash
# One local reading of the current build on the public golden.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec cargo run --quiet --release --locked --package benchd -- local-baseline "$@"
