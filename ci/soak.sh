#!/usr/bin/env bash
# The long forms of the tests: many random examples, and the faults over and over. Arguments: how many
# rounds (default 5). A failing example prints what reproduces it.
#   soak.sh nemesis [--mode MODE] [--seconds N] [--seed S] [--only KIND]... [--replay FILE]
# is one run of the nemesis, over real brokers, executors and tables.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
"$root/ci/setup.sh"
cd "$root"
if [[ "${1:-}" == nemesis ]]; then
  shift
  PYTHONPATH="$root/tests" exec .venv/bin/python -P -m nemesis "$@"
fi
export KEYRANGE_TEST_FORM=long
for ((round = 1; round <= ${1:-5}; round++)); do
  printf '==> round %d of %d\n' "$round" "${1:-5}" >&2
  .venv/bin/python -P -m pytest --timeout 3600 tests/property tests/integration tests/bench \
    tests/parity tests/unit/ranges/sharing/test_shared_reader_simulated.py
done
