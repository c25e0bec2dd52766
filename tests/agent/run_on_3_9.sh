#!/bin/sh
# Every verb of the agent on a real Python 3.9: Debian bullseye with its own MariaDB and sysbench.
#
# The root is made once, from the mirror that this machine's apt uses, and kept in the user's
# cache. It runs in network, mount and process namespaces of its own: nothing is left behind.
# Where such a root cannot be made, the reason is printed and the exit code is 0.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON_BIN:-$here/../../.venv/bin/python}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/fleetmark
root=$cache/bullseye
packages=python3,sysbench,mariadb-server-core-10.5,mariadb-client-core-10.5,passwd

skip() {
  echo "SKIPPED: $1"
  exit 0
}

make_root() {
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' |
    grep -v security | sort -u | head -n 1)
  [ -n "$mirror" ] || skip "apt knows no Debian mirror"
  mkdir -p "$cache"
  rm -rf "$root.new"
  mmdebstrap --quiet --variant=apt --include="$packages" \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    bullseye "$root.new" "$mirror" >"$cache/bullseye.log" 2>&1 ||
    skip "the mirror gave no bullseye: $(grep -m 1 '^E:' "$cache/bullseye.log")"
  mv "$root.new" "$root"
}

[ "$(id -u)" = 0 ] || skip "not root: no namespaces"
for program in mmdebstrap unshare chroot ip apt-get; do
  command -v "$program" >/dev/null || skip "$program is not installed"
done
unshare --net --mount --pid --fork true 2>/dev/null || skip "no namespaces here"
[ -d "$root" ] || make_root

work=$(mktemp -d "${TMPDIR:-/tmp}/fm-39.XXXXXX")
trap 'rm -rf "$work"' EXIT
"$python" -c 'import sys; from pathlib import Path; from fleetmark.bundle import build
build(Path(sys.argv[1]))' "$work/fleetmark-agent.pyz"
cp "$here/smoke_3_9.py" "$work/"

# The root itself stays as it is: all that is written goes to the temporary directory.
export root work
mkdir "$work/upper" "$work/merged"
unshare --net --mount --pid --fork sh -eu -c '
  ip link set lo up
  mount -t tmpfs tmpfs "$work/upper"
  mkdir "$work/upper/changes" "$work/upper/workdir"
  mount -t overlay overlay -o \
    "lowerdir=$root,upperdir=$work/upper/changes,workdir=$work/upper/workdir" "$work/merged"
  mount -t proc proc "$work/merged/proc"
  mount --rbind /sys "$work/merged/sys"
  mount --rbind /dev "$work/merged/dev"
  mkdir -p "$work/merged/fleetmark"
  cp "$work/fleetmark-agent.pyz" "$work/smoke_3_9.py" "$work/merged/fleetmark/"
  chroot "$work/merged" useradd --system mysql
  exec chroot "$work/merged" /usr/bin/python3 /fleetmark/smoke_3_9.py /fleetmark/fleetmark-agent.pyz
'
