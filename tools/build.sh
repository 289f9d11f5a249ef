#!/usr/bin/env bash
# Builds the engine and stages it; --cpu-check compiles and pairs all that needs no nvcc.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec cargo run --quiet --release --locked --package benchd -- build "$@"
