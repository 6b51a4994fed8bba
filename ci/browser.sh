#!/usr/bin/env bash
# Chromium for the tests of the report page. Where it is missing it is installed from Debian's
# packages if KEYRANGE_TEST_BROWSER=install says so: that changes the machine. Otherwise those tests
# are skipped, and say why: so they are where it cannot be installed.
set -euo pipefail
if [[ -x /usr/bin/chromium && -x /usr/bin/chromedriver ]] ||
  [[ "${KEYRANGE_TEST_BROWSER:-}" != install ]]; then
  exit 0
fi
printf '==> installing Chromium\n' >&2
if ! log="$(apt-get update -qq 2>&1 && DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends chromium chromium-driver 2>&1)"; then
  printf '%s\nci/browser.sh: Chromium cannot be installed; its tests will be skipped\n' "$log" >&2
fi
