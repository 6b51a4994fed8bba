#!/usr/bin/env bash
# The packages as users get them: built twice and compared, wheel and sdist installed into environments
# of their own, the command line run there, each extra installed beside the wheel, the jobs begun with
# it, and the time that `import keyrange` takes. It installs what the wheel requires, so it takes some
# minutes; the tests look at the packages without installing them.
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
wheel="$(echo "$work"/1/keyrange-*.whl)"
sdist="$(echo "$work"/1/keyrange-*.tar.gz)"
cd "$work"
# An environment's pip where no compiler is, nor any other program: what would need one fails.
mkdir no-programs
install() {
  local environment="$1"
  shift
  PATH="$work/no-programs" CC=false CXX=false "$environment/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}
step "installing the sdist, and nothing beside it"
"$root/.venv/bin/python" -m venv plain
install plain "$sdist"
plain/bin/python -m pip check
plain/bin/keyrange --version
step "installing the wheel, with the extras of README's line for the command line"
"$root/.venv/bin/python" -m venv venv
install venv "$wheel[commits,report]"
venv/bin/python -m pip check
step "running the command line"
venv/bin/keyrange --version
[[ "$(venv/bin/python -P -m keyrange --version)" == "$(venv/bin/keyrange --version)" ]]
venv/bin/keyrange --help >/dev/null
venv/bin/keyrange errors COMMITS_FENCED >/dev/null
venv/bin/keyrange options --output json >/dev/null
step "import keyrange, without pyspark"
venv/bin/python "$root/ci/import_time.py"
site="$(plain/bin/python -c 'import site; print(site.getsitepackages()[0])')"
while read -r extra modules; do
  step "extra $extra: $modules"
  # What keyrange itself requires is there already, and is seen by a line of its own.
  "$root/.venv/bin/python" -m venv --without-pip "$extra"
  printf '%s\n' "$site" >"$(echo "$extra"/lib/python*/site-packages)/plain.pth"
  install "$extra" "$wheel[$extra]"
  "$extra/bin/python" -m pip check
  for module in $modules; do
    "$extra/bin/python" -c "import keyrange, $module"
  done
done <<'EXTRAS'
spark pyspark pandas pyspark_keyrange
delta delta
commits deltalake
report plotly
stores cryptography
msk botocore
prometheus prometheus_client
opentelemetry opentelemetry.metrics
protobuf grpc_tools.protoc google.protobuf.unknown_fields
EXTRAS
step "beginning each job with the wheel and extra spark"
for job in compact_commits ingest keyed_enrichment process; do
  spark/bin/python "$root/jobs/$job.py" --help >/dev/null
done
step "extra kerberos, which has no wheels for Linux: a compiler builds it against libkrb5-dev"
if krb5-config --libs gssapi >/dev/null 2>&1 && command -v cc >/dev/null; then
  plain/bin/python -m pip install --quiet --disable-pip-version-check "$wheel[kerberos]"
  plain/bin/python -c "import keyrange, gssapi"
else
  printf 'left out: compiler or libkrb5-dev is not installed\n' >&2
fi
if [[ -n "$into" ]]; then
  mkdir -p "$into"
  cp "$work"/1/* "$into"
fi
