#!/usr/bin/env bash
# The whole test suite: checks, unit, property, and against a real broker, Spark and Delta.
# Arguments go to pytest. Makes its own environment first (ci/setup.sh).
# Files are spread over processes, each with a broker and a Spark session of its own, in the order
# of conftest.py; most of the time of one is spent waiting. KEYRANGE_TEST_PROCESSES says how many.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
"$root/ci/setup.sh"
"$root/ci/browser.sh"
cd "$root"
"$root/ci/check.sh"
printf '==> tests\n' >&2
# -P keeps the working directory off the path: what is tested is the installed wheel.
exec "$root/.venv/bin/python" -P -m pytest \
  -n "${KEYRANGE_TEST_PROCESSES:-3}" --dist loadfile --no-loadscope-reorder "$@"
