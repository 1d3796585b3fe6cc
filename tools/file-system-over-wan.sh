#!/bin/bash
# Reproduces Figures 12 and 13 of "A Performance Analysis of the iSCSI Protocol": sequential writes and reads of files
# on a file system that Linux's own initiator has on our target, with increasing network delay. Debian's kernel and
# open-iscsi run in QEMU on the lab's client; TCP crosses the lab's link. The processor is emulated and slow: the first
# figure of each column, without any delay, shows the effect.
#
#   file-system-over-wan.sh [DELAY...]     one-way delays, such as "5ms"; default: 0ms 5ms 20ms. No root needed.
#
# Variables: MEGABYTES (size of each file, default "16 64"), BRUNT (the program), and those of kernel-initiator.sh.
# Prints one line for each delay and file. Run tools/kernel-initiator.sh --prepare first.
set -euo pipefail
[ "${1:-}" != --prepare ] || exit 0
cd "$(dirname "$0")/.."
BRUNT=$(realpath "${BRUNT:-target/release/brunt}")
tools/kernel-initiator.sh --ready || { echo "run tools/kernel-initiator.sh --prepare first" >&2; exit 125; }

script=$(mktemp); trap 'rm -f "$script"' EXIT
# The guest's script. Reads begin with an empty page cache; a write ends when its data is on the disk.
cat >"$script.guest" <<'GUEST'
set -e
ip route add default via 10.0.2.2
iscsid
iscsiadm -m node -T "$NAME" -p "$PORTAL" -o new >/dev/null
iscsiadm -m node -T "$NAME" -p "$PORTAL" --login >/dev/null
for i in $(seq 300); do [ -b /dev/sda ] && break; sleep .1; done
mkfs.ext4 -q -F -E discard,lazy_itable_init=1,lazy_journal_init=1 /dev/sda
mount /dev/sda /mnt
now() { awk '{ printf "%d", $1 * 100 }' /proc/uptime; }
rate() { awk -v m="$1" -v t="$2" 'BEGIN { printf "%.2f", m * 1.048576 / (t / 100) }'; }
empty() { sync; echo 3 >/proc/sys/vm/drop_caches; }
for megabytes in $MEGABYTES; do
  empty; t=$(now); dd if=/dev/zero of=/mnt/file bs=8k count=$((megabytes * 128)) 2>/dev/null; handed=$(( $(now) - t ))
  sync; written=$(( $(now) - t ))
  empty; t=$(now); dd if=/mnt/file of=/dev/null bs=8k 2>/dev/null; read=$(( $(now) - t ))
  t=$(now); dd if=/mnt/file of=/dev/null bs=8k 2>/dev/null; again=$(( $(now) - t + 1 ))
  empty; t=$(now); dd if=/dev/sda of=/dev/null bs=8k count=$((megabytes * 128)) 2>/dev/null; raw=$(( $(now) - t ))
  t=$(now)
  i=0; while [ $i -lt 200 ]; do echo $i >/mnt/small$i; i=$((i + 1)); done; sync; small=$(( $(now) - t ))
  rm /mnt/small*
  echo "figure $DELAY $megabytes $(rate $megabytes $handed) $(rate $megabytes $written) $(rate $megabytes $read) \
$(rate $megabytes $again) $(rate $megabytes $raw) $(awk -v t=$small 'BEGIN { printf "%.0f", 200 / (t / 100) }')"
done
umount /mnt
iscsiadm -m node -T "$NAME" -p "$PORTAL" --logout >/dev/null
GUEST
trap 'rm -f "$script" "$script.guest"' EXIT

printf '%8s %6s %14s %14s %10s %12s %10s %12s\n' delay MB 'written MB/s' 'on disk MB/s' 'read MB/s' 'again MB/s' \
  'raw MB/s' 'small files/s'
for delay in "${@:-0ms 5ms 20ms}"; do
  for delay in $delay; do
    # Runs on the lab's client: puts the target's address into the guest's script.
    "$BRUNT" lab examples/iscsi-figure-12.toml --delay "$delay" -- bash -c '
      url=${BRUNT_TARGET_DISK#*://}; portal=${url%%/*}; url=${url#*/}
      { printf "NAME=%s PORTAL=%s DELAY=%s MEGABYTES=\"%s\"\n" "${url%%/*}" "$portal" "$2" "$3"; cat "$1.guest"; } >"$1"
      exec tools/kernel-initiator.sh "$1"' bash "$script" "$delay" "${MEGABYTES:-16 64}" |
      tr -d '\r' | awk '/^figure/ { printf "%8s %6s %14s %14s %10s %12s %10s %12s\n", $2, $3, $4, $5, $6, $7, $8, $9; next } { print > "/dev/stderr" }'
  done
done
