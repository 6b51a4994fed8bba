#!/usr/bin/env bash
# The whole test suite: checks, unit, property, and against a real broker, Spark and Delta.
#   test.sh [ARGUMENTS]         arguments go to pytest
#   test.sh --fast [ARGUMENTS]  the everyday loop: checks, unit and property tests, in fewer examples
# Makes its own environment first (ci/setup.sh).
set -euo pipefail
if [[ "${1:-}" == --help ]]; then
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"
  exit
fi
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
"$root/ci/setup.sh" python
cd "$root"
bringing=(setup.sh)
spread=(--dist loadfile --no-loadscope-reorder)
processes=5
# Spark gives a Python process ten seconds to start, which nobody can change: on a machine that is
# busier than that a test runs once more. Nothing else does. Where no Spark runs the plug-in is to
# stay away: it asks its own process before each test, which took 40 s of the everyday loop's 135.
retrying=(--reruns 1 --only-rerun 'Python worker failed to connect back')
for each in architecture property unit; do retrying+=(--rerun-exclude-path "tests/$each"); done
if [[ "${1:-}" == --fast ]]; then
  shift
  export KEYRANGE_TEST_FORM=fast
  set -- tests/unit tests/property "$@"
  # Nothing is shared there that is dear to set up.
  spread=(--dist worksteal)
  processes=4
else
  bringing+=(browser.sh classes.sh)
fi
# Each process imports all tests, which are compiled once, whatever the surroundings say: 15 s of CPU
# a process against 7.
export PYTHONDONTWRITEBYTECODE=
# The network is waited for beside the checks, which need none of what it brings. The first run has
# its tests compiled then: of processes that begin together each would compile them all.
(
  for script in "${bringing[@]}"; do "$root/ci/$script"; done
  compiled=(tests/__pycache__/conftest.*-pytest-*.pyc)
  [[ -e "${compiled[0]}" ]] ||
    "$root/.venv/bin/python" -P -m pytest -p no:cacheprovider --collect-only -qq tests >/dev/null || true
) &
brought=$!
trap 'kill "$brought" 2>/dev/null || true' EXIT
"$root/ci/check.sh"
wait "$brought"

# Files are spread over processes, each with a broker and a Spark session of its own, in the order of
# conftest.py. KEYRANGE_TEST_PROCESSES says how many others: a test waits for half of its time, and five on two
# cores leave a twentieth of them idle.
# -P keeps the working directory off the path: what is tested is the installed wheel.
# A process that dies ends the run: after one that was replaced pytest-xdist was seen to wait for ever.
printf '==> tests\n' >&2
"$root/.venv/bin/python" -P -m pytest -p no:cacheprovider \
  -n "${KEYRANGE_TEST_PROCESSES:-$processes}" "${spread[@]}" --max-worker-restart 0 \
  -raR "${retrying[@]}" "$@"
