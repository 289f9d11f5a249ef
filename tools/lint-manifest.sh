#!/usr/bin/env bash
# Is benchmark.json right about this tree and its fixture? One FAIL line for each defect.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec cargo run --quiet --release --locked --package benchd -- lint-manifest "$@"
