#!/usr/bin/env bash
# Fetch Azurite, which answers as Azure's blob storage does, for tests/platforms: 360 MB, with npm. It
# goes into ~/.cache/keyrange/azurite; what is in place already is left alone.
set -euo pipefail
into="${XDG_CACHE_HOME:-$HOME/.cache}/keyrange/azurite"
version=3.37.0

[[ "$(cat "$into/.made" 2>/dev/null)" != "$version" ]] || exit 0
command -v npm >/dev/null || { printf 'ci/azurite.sh: there is no npm\n' >&2; exit 1; }

rm -rf "$into"
mkdir -p "$into"
printf '==> fetching Azurite %s ...\n' "$version" >&2
npm install --prefix "$into" --ignore-scripts --no-audit --no-fund --loglevel=error \
  "azurite@$version" >/dev/null
printf '%s\n' "$version" >"$into/.made"
