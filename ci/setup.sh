#!/usr/bin/env bash
# Make everything that the other scripts in ci/ need: .venv with the pinned tools and the built
# wheel, and the jars of a broker and of Delta; `setup.sh python` makes .venv alone. To be run or
# sourced, from any directory; what is in place already is left alone. CI_PYTHON names another Python
# than the newest one found.
set -euo pipefail

_setup_root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
_setup_venv="$_setup_root/.venv"

_setup_fail() {
  printf 'ci/setup.sh: %s\n' "$1" >&2
  exit 1
}

# Run a step with a line before and after it, and one every 10 seconds in between, or on a terminal
# one that changes every second; its own output is shown only when it fails. _setup_so_far, where a caller sets it, says from the log how far it is.
_setup_step() {
  local title="$1" started=$SECONDS log code=0 ticker
  shift
  log="$(mktemp)"
  printf '==> %s ...\n' "$title" >&2
  # The step itself stays in the foreground, where Ctrl-C reaches it.
  _setup_tick "$title" "$log" $$ &
  ticker=$!
  "$@" >"$log" 2>&1 || code=$?
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  [[ ! -t 2 ]] || printf '\r\033[K' >&2
  if ((code != 0)); then
    cat "$log" >&2
    rm -f "$log"
    _setup_fail "could not finish: $title"
  fi
  rm -f "$log"
  printf '==> %s: done in %d s\n' "$title" $((SECONDS - started)) >&2
}

# Ends with the script that it ticks for, however that ends.
_setup_tick() {
  local title="$1" log="$2" parent="$3" started=$SECONDS next=10
  while sleep 1 && kill -0 "$parent" 2>/dev/null; do
    if [[ -t 2 ]]; then
      printf '\r\033[K==> %s: %d s%s' "$title" $((SECONDS - started)) \
        "$(${_setup_so_far:-true} "$log")" >&2
    elif ((SECONDS - started >= next)); then
      printf '==> %s: %d s%s\n' "$title" "$next" "$(${_setup_so_far:-true} "$log")" >&2
      next=$((next + 10))
    fi
  done
}

# How far pip is: it finds and downloads everything first, and unpacks it then.
_setup_pip_so_far() {
  local log="$1" all count verb=found
  all="$(grep -c '==' "$_setup_root/ci/requirements.txt")"
  count="$(grep -c '^Collecting ' "$log" || true)"
  if grep -q '^Installing collected packages' "$log"; then
    verb=installed
    count="$(find "$_setup_venv"/lib/python*/site-packages -maxdepth 1 -name '*.dist-info' | wc -l)"
  fi
  printf ', %d of %d packages %s' "$count" "$all" "$verb"
  [[ ! -t 2 ]] || _setup_bar "$count" "$all"
}

# How much of a whole is done, as a bar.
_setup_bar() {
  local width=24 filled bar
  filled=$(($2 > 0 ? width * $1 / $2 : 0))
  printf -v bar '%*s' "$((filled < width ? filled : width))" ''
  printf -v bar '%-*s' "$width" "${bar// /#}"
  printf ' [%s]' "${bar// /.}"
}

_setup_find_python() {
  local candidate check='import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))'
  for candidate in ${CI_PYTHON:-} python3.13 python3.12 python3.11 python3; do
    # Run, not only found: shims of version managers are on PATH for versions that are not there.
    # Debian has the module venv without ensurepip, which it cannot do without.
    if "$candidate" -c "$check" 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  _setup_fail "no Python 3.11 or newer with the modules venv and ensurepip was found (tried \
python3.13, python3.12, python3.11 and python3). Install one, on Debian for example python3 and \
python3-venv, or name one in CI_PYTHON."
}

_setup_check_java() {
  local java=java version
  if [[ -n "${JAVA_HOME:-}" ]]; then
    java="$JAVA_HOME/bin/java"
  fi
  if ! version="$("$java" -version 2>&1)"; then
    _setup_fail "Java was not found or does not run ($java). Spark and the test broker need Java \
17 or newer: install it, on Debian for example openjdk-17-jre-headless, or set JAVA_HOME."
  fi
  version="$(sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' <<<"$version" | head -n 1)"
  if ((${version:-0} < 17)); then
    _setup_fail "Java is version ${version:-unknown} ($java), which is too old. Spark and the test \
broker need Java 17 or newer: install it, or set JAVA_HOME to one."
  fi
}

_setup_hash() {
  # Names and contents of files, in one order on every machine.
  (cd "$_setup_root" && find "$@" -type f -not -name '*.pyc' -print0 | LC_ALL=C sort -z |
    xargs -0 sha256sum | sha256sum | cut -d ' ' -f 1)
}

_setup_requirements() {
  local stamp="$_setup_venv/.requirements" wanted
  wanted="$(_setup_hash ci/requirements.txt)"
  if [[ -x "$_setup_venv/bin/python" && "$(cat "$stamp" 2>/dev/null)" == "$wanted" ]]; then
    return
  fi
  local python
  python="$(_setup_find_python)"
  # Afresh: what an older requirements file brought must not stay.
  _setup_step "making .venv with $("$python" --version)" "$python" -m venv --clear "$_setup_venv"
  _setup_so_far=_setup_pip_so_far
  _setup_step "installing ci/requirements.txt" "$_setup_venv/bin/python" -m pip install --no-compile \
    --disable-pip-version-check --require-hashes -r "$_setup_root/ci/requirements.txt"
  _setup_so_far=
  # pip would do it by one process. Some packages have files that are no Python of this version.
  _setup_step "compiling what is installed" bash -c '"$0" -m compileall -q -j 0 "$1" || true' \
    "$_setup_venv/bin/python" "$_setup_venv/lib"
  printf '%s\n' "$wanted" >"$stamp"
}

_setup_build_wheel() {
  local into="$1"
  (cd "$_setup_root" && "$_setup_venv/bin/python" -m build --wheel --no-isolation --outdir "$into") &&
    "$_setup_venv/bin/python" -m pip install --disable-pip-version-check --no-deps \
      --force-reinstall "$into"/keyrange-*.whl
}

_setup_wheel() {
  local stamp="$_setup_venv/.wheel" wanted into
  wanted="$(_setup_hash connector pyproject.toml)"
  if [[ "$(cat "$stamp" 2>/dev/null)" == "$wanted" ]]; then
    return
  fi
  into="$(mktemp -d)"
  _setup_step "building and installing the wheel" _setup_build_wheel "$into"
  rm -rf "$into"
  printf '%s\n' "$wanted" >"$stamp"
}

_setup_jars() {
  # From the root directory with -P, so that the installed wheel is what is imported. Its progress
  # is shown as it comes: bringing jars takes up to a minute the first time.
  (cd / && "$_setup_venv/bin/python" -P - >&2 <<'PYTHON'
import sys

from keyrange.embedded import jars
from keyrange.errors import KeyrangeError

try:
    for jar_set in (jars.kafka(), jars.delta()):
        jars.resolve(jar_set, lambda line: print(f"==> {line}", flush=True))
except KeyrangeError as failure:
    sys.exit(f"ci/setup.sh: {failure}")
PYTHON
  ) || exit 1
}

_setup_check_java
_setup_requirements
_setup_wheel
[[ "${1:-}" == python ]] || _setup_jars
