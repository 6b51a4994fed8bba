#!/usr/bin/env bash
# Build kube-apiserver and etcd, which tests/platforms starts, from the modules of ci/kubernetes: 5 minutes of two
# cores each. They go into ~/.cache/keyrange/kubernetes; what is in place already is left alone.
# Needs Go 1.24 or newer.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
into="${XDG_CACHE_HOME:-$HOME/.cache}/keyrange/kubernetes"
PATH="$PATH:/usr/local/go/bin"
version=v1.34.4

wanted="$(cat "$root/ci/kubernetes.sh" "$root/ci/kubernetes/go.mod" "$root/ci/kubernetes/go.sum" | sha256sum)"
[[ "$(cat "$into/.made" 2>/dev/null)" != "$wanted" ]] || exit 0
command -v go >/dev/null || { printf 'ci/kubernetes.sh: there is no go\n' >&2; exit 1; }

mkdir -p "$into"
cd "$root/ci/kubernetes"
build() {
  printf '==> building %s ...\n' "$1" >&2
  go build -mod=readonly -trimpath -ldflags "-s -w $3" -o "$into/$1" "$2"
}
about=k8s.io/component-base/version
build etcd go.etcd.io/etcd/server/v3 ""
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver \
  "-X $about.gitVersion=$version -X $about.gitMajor=1 -X $about.gitMinor=34"
printf '%s\n' "$wanted" >"$into/.made"
