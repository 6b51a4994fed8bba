#!/usr/bin/env bash
# The packages as users get them: built twice and compared, the wheel installed into an environment of
# its own, the command line run there, and the time that `import keyrange` takes. It installs what the
# wheel requires, so it takes a minute or two; the tests look at the packages without installing them.
#   packaging.sh [DIRECTORY]   DIRECTORY receives the packages, once all of this has gone well
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
"$root/ci/setup.sh"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
into="${1:-}"
[[ -z "$into" || "$into" == /* ]] || into="$PWD/$into"
cd "$root"
step() {
  printf '==> %s\n' "$1" >&2
}
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct 2>/dev/null || echo 1750000000)"
export SOURCE_DATE_EPOCH
step "building wheel and sdist twice"
for number in 1 2; do
  .venv/bin/python -m build --no-isolation --outdir "$work/$number" >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
  }
done
diff -r "$work/1" "$work/2"
step "installing the wheel, with the extras of README's line for the command line"
.venv/bin/python -m venv "$work/venv"
wheel="$(echo "$work"/1/keyrange-*.whl)"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel[commits,report]"
cd "$work"
step "running the command line"
venv/bin/keyrange --version
venv/bin/keyrange --help >/dev/null
venv/bin/keyrange errors COMMITS_FENCED >/dev/null
venv/bin/keyrange options --output json >/dev/null
step "import keyrange, without pyspark"
venv/bin/python "$root/ci/import_time.py"
if [[ -n "$into" ]]; then
  mkdir -p "$into"
  cp "$work"/1/* "$into"
fi
