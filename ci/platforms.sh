#!/usr/bin/env bash
# Make what tests/platforms needs beside ci/setup.sh: .venv-platforms with the pinned packages and the
# wheel, and Debian's packages where apt-get is there and may install.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
source "$root/ci/setup.sh"
venv="$root/.venv-platforms"

# A key distribution centre, the library that gssapi is built against, and clocks that are wrong.
packages=(krb5-kdc krb5-admin-server krb5-user libkrb5-dev gcc libfaketime)
install_packages() {
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
}
if ! dpkg -s "${packages[@]}" >/dev/null 2>&1; then
  _setup_step "installing ${packages[*]}" install_packages
fi

make_environment() {
  "$(_setup_find_python)" -m venv --clear "$venv"
  "$venv/bin/python" -m pip install --disable-pip-version-check --require-hashes \
    -r "$root/ci/requirements-platforms.txt"
}
wanted="$(_setup_hash ci/requirements-platforms.txt)"
if [[ "$(cat "$venv/.requirements" 2>/dev/null)" != "$wanted" ]]; then
  _setup_step "making .venv-platforms" make_environment
  printf '%s\n' "$wanted" >"$venv/.requirements"
fi

install_wheel() {
  local into
  into="$(mktemp -d)"
  (cd "$root" && "$_setup_venv/bin/python" -m build --wheel --no-isolation --outdir "$into") &&
    "$venv/bin/python" -m pip install --disable-pip-version-check --no-deps --force-reinstall \
      "$into"/keyrange-*.whl
  rm -rf "$into"
}
wanted="$(_setup_hash connector pyproject.toml)"
if [[ "$(cat "$venv/.wheel" 2>/dev/null)" != "$wanted" ]]; then
  _setup_step "installing the wheel into .venv-platforms" install_wheel
  printf '%s\n' "$wanted" >"$venv/.wheel"
fi
