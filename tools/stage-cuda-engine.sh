#!/usr/bin/env bash
# Copies the built cuda-engine to where a run takes its worker from.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec cargo run --quiet --release --locked --package benchd -- stage-engine "$@"
