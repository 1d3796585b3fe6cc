#!/bin/bash
# Builds the machine of examples/stores/guest.toml, to be booted by QEMU: an unmodified Debian kernel and an initramfs that
# formats and mounts its disks and runs Brunt's agent. No root.
#
#   guest.sh --prepare              nothing: no stage of CI uses guests
#   guest.sh --build [FOLDER]       fetch the kernel, build the initramfs (network), and find out whether KVM works here
#   guest.sh --ready [FOLDER]       exit 0 when built
#
# To run an experiment with guests, set BRUNT_GUEST to FOLDER. Default: BRUNT_GUEST, or target/tools/guest.
# The file accel in it says how guests run: kvm, or tcg (emulated) if /dev/kvm is missing or can't run this kernel.
# Host packages: qemu-system-x86 seabios cpio e2fsprogs kmod busybox-static xz-utils.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/lib/guest-kernel.sh
DIR=$(realpath -m "${2:-${BRUNT_GUEST:-${BRUNT_TOOLS:-${CARGO_TARGET_DIR:-target}/tools}/guest}}")
MODULES="virtio_pci virtio_blk virtio_console virtio_rng ext4 crc32c_generic crc32c_intel"
# Files with an older layout are rebuilt.
LAYOUT=1

build() {
  mkdir -p "$DIR"
  local kernel version root tree
  work=$(mktemp -d "$DIR/build.XXXXXX"); trap 'rm -rf "$work"' EXIT
  root=$work/root tree=$work/tree
  mkdir -p "$root"/{bin,sbin,proc,sys,dev,run,tmp,program,direct,cached,etc}
  unpack_kernel "$work" "$DIR/vmlinux.new"
  # shellcheck disable=SC2086
  install_modules "$work" "$root" $MODULES
  install_busybox "$root"
  # The image with the programs also has their libraries.
  ln -s /program/lib64 "$root/lib64"
  echo 'root:x:0:0::/:/bin/sh' >"$root/etc/passwd"
  cat >"$root/init" <<INIT
#!/bin/sh
export PATH=/program/bin:/bin LD_LIBRARY_PATH=/program/lib HOME=/ TMPDIR=/tmp
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
mount -t debugfs debugfs /sys/kernel/debug
for module in $MODULES; do modprobe \$module; done
INIT
  cat >>"$root/init" <<'INIT'
end() { echo "guest: $1"; echo o >/proc/sysrq-trigger; sleep 30; }
if grep -q brunt.try /proc/cmdline; then end "it boots"; fi
mount -t ext4 -o ro /dev/vda /program || end "no programs on /dev/vda"
# Leave nothing for the kernel to format later, in the middle of a measurement.
for disk in vdb:direct vdc:cached; do
  device=/dev/${disk%:*} folder=/${disk#*:}
  [ -b $device ] || continue
  mount -t ext4 $device $folder 2>/dev/null || {
    mkfs.ext4 -q -F -J size=4 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 $device && mount -t ext4 $device $folder
  } || end "cannot format and mount $device"
done
for port in /sys/class/virtio-ports/*; do
  [ "$(cat $port/name)" = agent ] && agent=${port##*/}
done
[ -n "$agent" ] || end "no serial port called agent"
echo "guest: ready, $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2-)"
# Start an agent for each conversation, when the other end has connected.
while true; do
  until grep -q 'host_connected: 1' /sys/kernel/debug/virtio-ports/$agent; do sleep .1; done
  brunt agent --stdio <>/dev/$agent >&0 2>/dev/console
  echo "guest: agent ended, $?"
  sleep .5
done
INIT
  chmod +x "$root/init"
  (cd "$root" && find . | cpio -o -H newc -R 0:0 --quiet | gzip -1) >"$DIR/initrd.new"
  mv "$DIR/vmlinux.new" "$DIR/vmlinux"; mv "$DIR/initrd.new" "$DIR/initrd"
  # A /dev/kvm that can be opened can't always run a kernel (nested hosts).
  if boots kvm; then echo kvm >"$DIR/accel"; else boots tcg || { echo "it boots neither by KVM nor emulated" >&2; exit 125; }
    echo tcg >"$DIR/accel"; fi
  echo $LAYOUT >"$DIR/layout"
  echo "built $kernel in $DIR, run by $(cat "$DIR/accel")"
}

boots() {
  local said
  said=$(timeout 60 qemu-system-x86_64 -accel "$1" -cpu max -m 192 -nodefaults -display none -no-reboot \
    -kernel "$DIR/vmlinux" -initrd "$DIR/initrd" -serial stdio \
    -append "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off brunt.try" </dev/null 2>&1) || true
  case $said in *"guest: it boots"*) return 0 ;; esac
  return 1
}

ready() { [ "$(cat "$DIR/layout" 2>&1)" = $LAYOUT ] && [ -s "$DIR/accel" ]; }

case ${1:-} in
  --prepare) ;;
  --build) ready || build ;;
  --ready) ready ;;
  *) sed -n '2,11p' "$0"; exit 2 ;;
esac
