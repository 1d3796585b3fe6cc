#!/bin/bash
# Tests real distributed stores, each set up by its recipe on lab hosts on this machine: runs the examples in which a
# store loses a daemon under a load that checks its data, and checks their summaries. `guests` checks that each of
# Bonnie's phases completes in guests whose disks are on GlusterFS.
#
#   stores.sh --prepare         nothing: the stores are the system's packages
#   stores.sh --ready           exit 0 when Ceph and GlusterFS can run here
#   stores.sh [STORE...]        run them: ceph, gluster, cephfs, moosefs, sheepdog, xtreemfs, ganesha, guests; default: ceph gluster
#
# On two cores with other work in parallel, Ceph takes 1:15 and 620 MiB of memory, GlusterFS 2:10 and 230 MiB; the stores write
# to TMPDIR, up to 3 GiB. Guests take 10 minutes and 1.2 GiB if they are emulated, and need tools/guest.sh --build first.
# Exit status 1 if a summary shows that something is wrong, 125 if a store can't run.
#
# Needs root. The examples list the Debian packages in their headers. BRUNT is the program [target/release/brunt]; KEEP a
# folder for the results.
set -euo pipefail
cd "$(dirname "$0")/.."

# What each store needs.
needs() {
  case $1 in
    ceph) echo ceph ceph-mon ceph-mgr ceph-osd rbd qemu-storage-daemon ;;
    gluster) echo gluster glusterd glusterfs glusterfsd qemu-storage-daemon ;;
    cephfs) echo ceph ceph-mon ceph-mgr ceph-osd ceph-mds ceph-fuse ;;
    ganesha) echo ganesha.nfsd rpcbind qemu-storage-daemon ;;
    moosefs) echo mfsmaster mfschunkserver mfsmount mfssetgoal ;;
    sheepdog) echo sheep dog ;;
    xtreemfs) echo java mkfs.xtreemfs mount.xtreemfs xtfsutil ;;
    guests) echo gluster glusterd glusterfs glusterfsd qemu-system-x86_64 mkfs.ext4 ;;
    *) echo "no store '$1': there are ceph, gluster, cephfs, moosefs, sheepdog, xtreemfs, ganesha and guests" >&2; return 2 ;;
  esac
}

missing() {
  local program
  [ "$(id -u)" = 0 ] || { echo root; return; }
  for program in $(needs "$1"); do command -v "$program" >/dev/null || { echo "$program"; return; }; done
  [ "$1" != xtreemfs ] || [ -n "${XTREEMFS_JARS:-}" ] || echo "XTREEMFS_JARS (docs/stores.md)"
}

case ${1:-} in
  --prepare) exit 0 ;;
  --ready) [ -z "$(missing ceph)$(missing gluster)" ]; exit ;;
  -*) sed -n '2,15p' "$0"; exit 2 ;;
esac

[ $# -gt 0 ] || set -- ceph gluster
for store; do
  needs "$store" >/dev/null
  lacking=$(missing "$store")
  [ -z "$lacking" ] || { echo "$store needs $lacking; see the head of $0" >&2; exit 125; }
done
BRUNT=$(realpath "${BRUNT:-target/release/brunt}")
[ -x "$BRUNT" ] || { echo "no program $BRUNT: build it, or set BRUNT" >&2; exit 125; }
out=${KEEP:-$(mktemp -d)}; mkdir -p "$out"
[ -n "${KEEP:-}" ] || trap 'rm -rf "$out"' EXIT

for store; do
  if [ "$store" = guests ]; then
    export BRUNT_GUEST=${BRUNT_GUEST:-$(realpath -m "${BRUNT_TOOLS:-${CARGO_TARGET_DIR:-target}/tools}/guest")}
    tools/guest.sh --ready || { echo "guests need a machine: run tools/guest.sh --build" >&2; exit 125; }
    echo "== guests, run by $(cat "$BRUNT_GUEST/accel"): examples/indexes-guests.toml, once"
    # Copy the whole folder, because the experiment includes other files in it.
    cp -r examples "$out/once"
    sed -i 's/^repetitions = .*/repetitions = 1/' "$out/once/indexes-guests.toml"
    python3 tools/lib/stores.py "$BRUNT" "$out/once/indexes-guests.toml" "$out/$store" without-faults
    rm -r "$out/once"
    continue
  fi
  echo "== $store: examples/$store-crash.toml"
  python3 tools/lib/stores.py "$BRUNT" "examples/$store-crash.toml" "$out/$store"
done
