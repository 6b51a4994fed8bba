#!/usr/bin/env bash
# The long forms of the tests: many random examples, and the faults over and over. Arguments: how many
# rounds (default 5). A failing example prints what reproduces it.
#   soak.sh nemesis [--mode MODE] [--seconds N] [--seed S] [--only KIND]... [--store s3] [--replay FILE]
# is one run of the nemesis, over real brokers, executors and tables.
#   soak.sh platforms [ARGUMENTS]
# runs what needs more than the ordinary test run has: an S3 server, a KDC, cluster managers, other
# versions. ci/platforms.sh installs it. Arguments go to pytest.
set -euo pipefail
if [[ "${1:-}" == --help ]]; then
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"
  exit
fi
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
"$root/ci/setup.sh"
cd "$root"
if [[ "${1:-}" == nemesis ]]; then
  shift
  python=.venv/bin/python
  if [[ " $* " == *" s3 "* ]]; then
    ci/platforms.sh
    python=.venv-platforms/bin/python
  fi
  PYTHONPATH="$root/tests" exec "$python" -P -m nemesis "$@"
fi
if [[ "${1:-}" == platforms ]]; then
  shift
  ci/platforms.sh
  KEYRANGE_TEST_FORM=platforms exec .venv-platforms/bin/python -P -m pytest -p no:cacheprovider \
    --timeout 1800 "${@:-tests/platforms}"
fi
export KEYRANGE_TEST_FORM=long
for ((round = 1; round <= ${1:-5}; round++)); do
  printf '==> round %d of %d\n' "$round" "${1:-5}" >&2
  .venv/bin/python -P -m pytest --timeout 3600 tests/property tests/integration tests/bench \
    tests/parity tests/unit/ranges/sharing/test_shared_reader_simulated.py
done
