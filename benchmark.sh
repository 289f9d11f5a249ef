#!/usr/bin/env bash
# One measured run; `./benchmark.sh --help` lists its modes. docs/benchmark.md is the participant's page.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
exec cargo run --quiet --release --locked --package benchd -- benchmark "$@"
