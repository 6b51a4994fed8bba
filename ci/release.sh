#!/usr/bin/env bash
# Build what a release publishes, and check it: version, changelog, contents, metadata, an installation
# in an environment of its own. Nothing is published and no tag is set: CONTRIBUTING.md, "Release", says
# what comes before and after.
#   release.sh [DIRECTORY]   DIRECTORY receives wheel and sdist, and is empty or not there yet (dist/)
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
into="${1:-$root/dist}"
fail() {
  printf 'ci/release.sh: %s\n' "$1" >&2
  exit 1
}
if [[ -e "$into" && -n "$(ls -A "$into")" ]]; then
  fail "$into is not empty"
fi
# What is built is what the commit has, and the commit is what the tag will name.
if [[ -n "$(git -C "$root" status --porcelain)" ]]; then
  fail "there are changes that are not committed"
fi
"$root/ci/setup.sh"
python="$root/.venv/bin/python"
version="$("$python" "$root/ci/release.py" changelog)" || exit 1
if [[ -n "$(git -C "$root" tag --list "v$version")" ]]; then
  fail "there is a tag v$version already: pyproject.toml needs the next version"
fi
bash "$root/ci/packaging.sh" "$into"
printf '==> wheel and sdist of %s\n' "$version" >&2
"$python" "$root/ci/release.py" packages "$into"
