#!/usr/bin/env bash
# What mtp-head.manifest.json declares: speculative, draft-len, describe or validate.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec cargo run --quiet --release --locked --package benchd -- spec-declaration "$@"
