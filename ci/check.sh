#!/usr/bin/env bash
# What can be said of the code without running it: style, types, the direction of imports, the lock.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
"$root/ci/setup.sh" python
cd "$root"
bin="$root/.venv/bin"
step() {
  printf '==> %s\n' "$1" >&2
  shift
  "$@"
}
step "ruff check" "$bin/ruff" check --quiet .
step "ruff format" "$bin/ruff" format --quiet --check .
step "mypy --strict" "$bin/mypy" --no-error-summary
step "import-linter" "$bin/lint-imports" --no-cache >/dev/null || "$bin/lint-imports" --no-cache
for script in ci/*.sh; do step "bash -n $script" bash -n "$script"; done
