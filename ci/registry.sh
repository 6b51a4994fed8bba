#!/usr/bin/env bash
# Fetch Apicurio's schema registry, which tests/platforms starts: 110 MB, with Maven. It goes into
# ~/.cache/keyrange/apicurio; what is in place already is left alone.
# 3.0 is the last one that runs on Java 17.
set -euo pipefail
into="${XDG_CACHE_HOME:-$HOME/.cache}/keyrange/apicurio"
version=3.0.9

[[ "$(cat "$into/.made" 2>/dev/null)" != "$version" ]] || exit 0
command -v mvn >/dev/null || { printf 'ci/registry.sh: there is no mvn\n' >&2; exit 1; }

rm -rf "$into"
mkdir -p "$into"
printf '==> fetching Apicurio %s ...\n' "$version" >&2
mvn -q -B dependency:copy -DoutputDirectory="$into" \
  -Dartifact="io.apicurio:apicurio-registry-app:$version:tar.gz:all"
tar -xzf "$into/apicurio-registry-app-$version-all.tar.gz" -C "$into"
rm "$into/apicurio-registry-app-$version-all.tar.gz"
printf '%s\n' "$version" >"$into/.made"
