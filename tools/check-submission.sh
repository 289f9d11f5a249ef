#!/usr/bin/env bash
# The static review of a submission: --archive FILE, --base COMMIT, or --mode whole-surface.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec cargo run --quiet --release --locked --package benchd -- check-submission "$@"
