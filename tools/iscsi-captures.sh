#!/bin/bash
# Captures iSCSI sessions between independent programs and ours, packet by packet, as dumpcap sees them on the loopback
# interface of a new network namespace. The captures are used to compare the iSCSI dissector with tshark; those in
# testdata/ were made this way.
#
#   iscsi-captures.sh --list               names of the sessions
#   iscsi-captures.sh --missing NAME       what NAME needs and this machine lacks; nothing if it can be captured
#   iscsi-captures.sh [--small] NAME FILE  capture session NAME into FILE (pcapng); --small: a few dozen commands
#
# NAME is TARGET-INITIATOR; TARGET is tgt, lio (the kernel's) or brunt, INITIATOR is libiscsi, qemu, brunt or kernel.
# Also brunt-connections (several per session), brunt-tasks (the kernel's initiator, with resets) and brunt-aborts
# (libiscsi's and the kernel's, with aborted commands). BRUNT is the program (default: target/debug/brunt). The
# kernel's target and initiator are those of kernel-initiator.sh. Needs no root where user namespaces are allowed.
# Packets are as long as an MTU of 1500 allows, so that most PDUs span several.
set -euo pipefail
[ "${1:-}" != --prepare ] || exit 0
TOOLS=$(cd "$(dirname "$0")" && pwd)
SESSIONS="tgt-libiscsi tgt-qemu tgt-brunt tgt-kernel lio-libiscsi lio-qemu lio-brunt lio-kernel"
SESSIONS+=" brunt-libiscsi brunt-qemu brunt-brunt brunt-kernel brunt-connections brunt-tasks brunt-aborts"
export PATH=$PATH:/usr/sbin:/sbin
NAME=iqn.2026-11.io.brunt:captured

missing() {
  local program
  for program in unshare:util-linux taskset:util-linux ip:iproute2 dumpcap:wireshark-common $(programs "$1"); do
    command -v "${program%:*}" >/dev/null || echo "the Debian package ${program#*:} (${program%:*})"
  done
  case $1 in
    lio-* | *-kernel | *-tasks | *-aborts) "$TOOLS/kernel-initiator.sh" --ready || echo "a prepared guest (tools/kernel-initiator.sh --prepare)" ;;&
    lio-*) "$TOOLS/kernel-initiator.sh" --lio >/dev/null || echo "a guest prepared with LIO (tools/kernel-initiator.sh --prepare)" ;;&
    *-qemu) qemu-img --help | grep -q iscsi || echo "the Debian package qemu-block-extra (iscsi in QEMU)" ;;
  esac
  unshare "${NAMESPACES[@]}" true 2>/dev/null || echo "network namespaces (root, or user namespaces that are allowed)"
}

programs() {
  case $1 in tgt-*) echo tgtd:tgt tgtadm:tgt ;; esac
  case $1 in
    *-libiscsi | *-aborts) echo iscsi-test-cu:libiscsi-bin iscsi-ls:libiscsi-bin ;;&
    *-qemu) echo qemu-io:qemu-utils qemu-img:qemu-utils ;;
    lio-* | *-kernel | *-tasks | *-aborts) echo qemu-system-x86_64:qemu-system-x86 cpio:cpio ;;&
    *-tasks) echo sg_reset:sg3-utils ;;
  esac
}

# For root, a user namespace would only remove privileges.
if [ "$(id -u)" = 0 ]; then NAMESPACES=(-n); else NAMESPACES=(-r -n); fi

# Starts a target on port 3260 whose LUN $LUN has 16 MiB and supports UNMAP.
start_tgt() {
  export TGT_IPC_SOCKET=$WORK/tgtd
  truncate -s 16M "$WORK/disk"
  tgtd -f --iscsi portal=127.0.0.1:3260 >"$WORK/target.log" 2>&1 & STARTED+=($!)
  local admin="tgtadm --lld iscsi"
  until $admin --op show --mode target >/dev/null 2>&1; do kill -0 $! || { cat "$WORK/target.log"; exit 1; }; sleep .1; done
  $admin --op new --mode target --tid 1 -T $NAME
  $admin --op new --mode logicalunit --tid 1 --lun 1 -b "$WORK/disk"
  $admin --op update --mode logicalunit --tid 1 --lun 1 --params thin_provisioning=1
  $admin --op bind --mode target --tid 1 -I ALL
  LUN=1
}
# The kernel's target, in a guest that ends when port 3261 is connected to.
start_lio() {
  cat >"$WORK/lio" <<GUEST
for module in /*.ko; do insmod \$module 2>/dev/null; done
set -e
mount -t configfs configfs /sys/kernel/config
cd /sys/kernel/config/target
truncate -s 16M /tmp/disk
mkdir -p core/fileio_0/disk
echo fd_dev_name=/tmp/disk,fd_dev_size=16777216 >core/fileio_0/disk/control
echo 1 >core/fileio_0/disk/enable
for unmap in tpu tpws; do echo 1 >core/fileio_0/disk/attrib/emulate_\$unmap; done
# The kernel's initiator unmaps with WRITE SAME, and a whole disk at once.
echo 65535 >core/fileio_0/disk/attrib/max_write_same_len
mkdir iscsi; mkdir iscsi/$NAME; mkdir iscsi/$NAME/tpgt_1
cd iscsi/$NAME/tpgt_1
mkdir lun/lun_0 np/0.0.0.0:3260
ln -s /sys/kernel/config/target/core/fileio_0/disk lun/lun_0/port
for value in authentication=0 generate_node_acls=1 cache_dynamic_acls=1 demo_mode_write_protect=0; do
  echo \${value#*=} >attrib/\${value%=*}
done
echo 1 >enable
echo ready
nc -l -p 3261 >/dev/null
GUEST
  : >"$WORK/target.log"
  BRUNT_GUEST_PORTS="3260 3261" "$TOOLS/kernel-initiator.sh" "$WORK/lio" $("$TOOLS/kernel-initiator.sh" --lio) >"$WORK/target.log" 2>&1 &
  until grep -q ^ready "$WORK/target.log"; do kill -0 $! || { cat "$WORK/target.log"; exit 1; }; sleep .5; done
  LUN=0
}
start_brunt() {
  rm -f "$WORK/says"; mkfifo "$WORK/says"
  "$BRUNT" target --name $NAME --portal 127.0.0.1:3260 --lun "$DEVICE" >"$WORK/says" 2>"$WORK/target.log" & STARTED+=($!)
  exec 3<"$WORK/says"
  read -r _ <&3 || { cat "$WORK/target.log"; exit 1; }
  LUN=0
}

# The load of each initiator. libiscsi: tests of reads, COMPARE AND WRITE, UNMAP, WRITE SAME, residuals and task
# management, with and without errors; a target may fail some of them.
run_libiscsi() {
  local tests="Read10.Simple CompareAndWrite.Miscompare Unmap.ZeroBlocks WriteSame10.InvalidDataOutSize
    iSCSIResiduals.Read10Residuals iSCSIResiduals.Write10Residuals iSCSITMF.AbortTaskSimpleAsync"
  [ -z "$SMALL" ] || tests="CompareAndWrite.InvalidDataOutSize iSCSIResiduals.Read10Invalid iSCSITMF.AbortTaskSimpleAsync"
  local test
  iscsi-ls -s "iscsi://$PORTAL" >"$WORK/log" 2>&1
  for test in $tests; do
    timeout 300 iscsi-test-cu -d -n -t "ALL.$test" "iscsi://$PORTAL/$NAME/$LUN" >"$WORK/log" 2>&1 || true
  done
}
# Header digests with tgt; none with the other targets, to which libiscsi offers both.
run_qemu() {
  local digest=none; [ "$TARGET" = tgt ] && digest=crc32c
  local image="driver=iscsi,transport=tcp,portal=$PORTAL,target=$NAME,lun=$LUN,header-digest=$digest"
  local -a commands=(-c "write -P 1 0 64k" -c "read -P 1 0 64k" -c "write -P 2 1M 4k" -c "discard 1M 64k" -c "flush")
  [ -n "$SMALL" ] || commands+=(-c "aio_write -P 3 4M 3M" -c "aio_read 0 1M" -c "aio_flush" -c "write -z 8M 512k"
    -c "write -P 4 512 512" -c "read -P 4 512 512" -c "write -f 12M 256k")
  qemu-io "${commands[@]}" --image-opts "$image" >"$WORK/log" 2>&1
  [ -n "$SMALL" ] || qemu-img bench -c 2000 -d 32 -s 4096 --image-opts "$image" >"$WORK/log" 2>&1
}
# Two parallel connections, each a session; both kinds of digests, and only solicited data. LIO sends headers and data
# separately; tshark 4.0 loses track of that if digests follow, so LIO gets none.
run_brunt() {
  local url="iscsi://$PORTAL/$NAME/$LUN" count=200 digests="header_digest=crc32c&data_digest=crc32c&"
  [ "$TARGET" != lio ] || digests=
  if [ "$TARGET" = tgt ]; then
    local way; for way in HeaderDigest DataDigest; do
      tgtadm --lld iscsi --op update --mode target --tid 1 --name $way --value CRC32C
    done
  fi
  [ -z "$SMALL" ] || count=10
  io() { "$BRUNT" io "$@" >"$WORK/log" 2>&1; }
  io write "$url?${digests}initial_r2t=yes&immediate_data=no&sessions=2" \
    --bs 64k --depth 4 --count $((count / 5)) --pattern ones
  io read "$url?${digests}sessions=2" --bs 4k --depth 16 --random --count $count
  [ "$TARGET" = brunt ] || return 0
  io write "$url?data_digest=crc32c" --bs 9k --depth 8 --count $((count / 10)) --pattern ones
  io read "$url?header_digest=crc32c" --bs 12k --depth 8 --count $((count / 10))
}
# The kernel's initiator: digests with ours; no digests and only solicited data with others.
run_kernel() {
  local keys="node.conn[0].iscsi.HeaderDigest=CRC32C node.conn[0].iscsi.DataDigest=CRC32C"
  [ "$TARGET" = brunt ] || keys="node.session.iscsi.InitialR2T=Yes node.session.iscsi.ImmediateData=No"
  cat >"$WORK/guest" <<GUEST
set -e
iscsid
session() { iscsiadm -m node -T $NAME -p 10.0.2.2:3260 "\$@"; }
session -o new >/dev/null
for key in $keys; do session -o update -n "\${key%=*}" -v "\${key#*=}"; done
session --login
for i in \$(seq 1200); do [ -b /dev/sda ] && break; sleep .1; done
if [ -z "$SMALL" ]; then
  mkfs.ext4 -q -F -E discard /dev/sda
  mount /dev/sda /mnt; dd if=/dev/zero of=/mnt/file bs=64k count=100; sync; rm /mnt/file; umount /mnt
  dd if=/dev/sda of=/dev/null bs=256k count=32 iflag=direct
else
  dd if=/dev/zero of=/dev/sda bs=64k count=2 oflag=direct; dd if=/dev/sda of=/dev/null bs=4k count=2 iflag=direct
fi 2>/dev/null
blkdiscard -o 1048576 -l 65536 /dev/sda
session --logout
GUEST
  "$TOOLS/kernel-initiator.sh" "$WORK/guest" >"$WORK/log" 2>&1
}

# Several connections per session, which libiscsi, the kernel and tgt do not support: commands alternate between them, and
# data follows its command.
run_connections() {
  local url="iscsi://$PORTAL/$NAME/$LUN?connections" count=160
  [ -z "$SMALL" ] || count=12
  io() { "$BRUNT" io "$@" >"$WORK/log" 2>&1; }
  io write "$url=2&initial_r2t=yes&immediate_data=no" --bs 64k --depth 4 --count $((count / 4)) --pattern ones
  io read "$url=3" --bs 16k --depth 8 --random --count $count
}

# Resets of an idle unit, then of a unit and of a target with an outstanding READ.
run_tasks() {
  cat >"$WORK/guest" <<GUEST
iscsid
session() { iscsiadm -m node -T $NAME -p 10.0.2.2:3260 "\$@"; }
session -o new >/dev/null && session --login || exit 1
for i in \$(seq 1200); do [ -b /dev/sda ] && break; sleep .1; done
read_at() { dd if=/dev/sda of=/dev/null bs=4k count=1 skip=\$1 iflag=direct 2>/dev/null; }
read_at 8
for what in -d -t; do /sg_reset \$what /dev/sda || exit 1; done
for what in -d -t; do
  read_at 1024 & sleep 1; /sg_reset \$what /dev/sda || exit 1; wait
done
session --logout
GUEST
  "$TOOLS/kernel-initiator.sh" "$WORK/guest" "$(command -v sg_reset)" >"$WORK/log" 2>&1
}

# Commands that take longer than their timeout: libiscsi's test suite aborts a WRITE, the kernel a READ and a WRITE.
# The suite gives up after 6 s without a response. The kernel, which checks every 5 s, gets a separate, even slower
# target.
run_aborts() {
  timeout 300 iscsi-test-cu -d -n -t ALL.iSCSITMF.AbortTaskSimpleAsync "iscsi://$PORTAL/$NAME/$LUN" >"$WORK/log" 2>&1 || true
  kill -KILL "${STARTED[0]}"; wait "${STARTED[0]}" || true
  DEVICE="memory:16MiB?delay=const:8s" start_brunt
  cat >"$WORK/guest" <<GUEST
iscsid
session() { iscsiadm -m node -T $NAME -p 10.0.2.2:3260 "\$@"; }
session -o new >/dev/null
# As long as it pings a target, the kernel doesn't abort anything.
for ping in interval timeout; do session -o update -n "node.conn[0].timeo.noop_out_\$ping" -v 0; done
session --login || exit 1
for i in \$(seq 1200); do [ -b /dev/sda ] && break; sleep .1; done
echo 1 >/sys/block/sda/device/timeout
for retries in /sys/class/scsi_disk/*/max_retries; do echo 0 >\$retries; done
dd if=/dev/sda of=/dev/null bs=4k count=1 skip=256 iflag=direct 2>/dev/null & read=\$!
dd if=/dev/zero of=/dev/sda bs=4k count=1 seek=512 oflag=direct 2>/dev/null & write=\$!
wait \$read && echo "the READ was not aborted" && exit 1
wait \$write && echo "the WRITE was not aborted" && exit 1
session --logout
GUEST
  "$TOOLS/kernel-initiator.sh" "$WORK/guest" >"$WORK/log" 2>&1
}

# Runs in the namespace.
capture() {
  local session=$1 file=$2
  # tgtd doesn't exit on SIGTERM.
  WORK=$(mktemp -d) STARTED=() TARGET=${session%-*} PORTAL=127.0.0.1:3260
  trap 'kill -KILL "${STARTED[@]}" 2>/dev/null || true; echo 2>/dev/null >/dev/tcp/127.0.0.1/3261 || true
    wait 2>/dev/null; rm -rf "$WORK"' EXIT
  ip link set lo mtu 1500 gso_max_segs 1 up
  # Slow commands, which can be aborted.
  case $session in
    *-tasks) DEVICE="memory:16MiB?delay=const:3s" ;;
    *-aborts) DEVICE="memory:16MiB?delay=const:2s" ;;
    *) DEVICE=memory:16MiB,thin ;;
  esac
  "start_$TARGET"
  dumpcap -q -i lo -f "tcp port 3260" -B 64 -w "$file" 2>"$WORK/dumpcap" & local dumpcap=$!
  STARTED+=($dumpcap)
  until grep -qs ^File: "$WORK/dumpcap"; do kill -0 $dumpcap || { cat "$WORK/dumpcap"; exit 1; }; sleep .1; done
  "run_${session#*-}" || { cat "$WORK/log"; echo "${session#*-} failed"; exit 1; } >&2
  # Packets that dumpcap still holds reach the file in this time.
  local before=-1 now=0
  until [ "$before" = "$now" ]; do before=$now; sleep 1; now=$(stat -c %s "$file"); done
  kill -INT $dumpcap; wait $dumpcap || true
  grep -q 'dropped.*: [0-9]*/0 ' "$WORK/dumpcap" || { cat "$WORK/dumpcap"; exit 1; } >&2
}

SMALL=
[ "${1:-}" != --small ] || { SMALL=yes; shift; }
case ${1:-} in
  "") sed -n '2,14p' "$0"; exit 2 ;;
  --list) printf '%s\n' $SESSIONS; exit ;;
  --missing) missing "$2"; exit ;;
  --captured) BRUNT=$BRUNT SMALL=$4 capture "$2" "$3"; exit ;;
esac
case " $SESSIONS " in *" $1 "*) ;; *) echo "no session '$1'; there are: $SESSIONS" >&2; exit 2 ;; esac
export BRUNT=$(realpath "${BRUNT:-$TOOLS/../target/debug/brunt}")
# With two processors, segments of one connection can be out of order on the loopback interface.
cpu=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')
exec taskset -c "$cpu" unshare "${NAMESPACES[@]}" "$TOOLS/iscsi-captures.sh" --captured "$1" "$(realpath -m "$2")" "$SMALL"
