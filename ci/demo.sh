#!/usr/bin/env bash
# The main job on real input: 336,776 flights through a real Kafka broker into a Delta table.
# Makes its own environment first (ci/setup.sh) and cleans up what it started, also on Ctrl-C.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
"$root/ci/setup.sh"
exec "$root/.venv/bin/python" -P "$root/ci/demo.py" "$@"
