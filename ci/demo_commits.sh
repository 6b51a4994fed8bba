#!/usr/bin/env bash
# Individual commits on real input: flights through a function that fails for some of them, in a job
# that is killed twice. Makes its own environment first (ci/setup.sh) and cleans up what it started.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
"$root/ci/setup.sh"
export PYTHONPATH="$root/ci:$root/jobs"
exec "$root/.venv/bin/python" -P "$root/ci/demo_commits.py" "$@"
