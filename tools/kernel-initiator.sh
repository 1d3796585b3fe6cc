#!/bin/bash
# Boots an unmodified Debian kernel with open-iscsi and nfs-kernel-server in QEMU and runs a script there: Linux's initiator,
# and its NFS server and client, as test subjects. No root. Emulated, because a /dev/kvm that can be opened can't
# always run a kernel (nested hosts); BRUNT_GUEST_KVM=1 uses KVM.
#
#   kernel-initiator.sh --prepare          fetch kernel and programs, build the initramfs (network), boot it and save it booted
#   kernel-initiator.sh --ready            exit 0 when prepared
#   kernel-initiator.sh --lio              modules of the kernel's own target, as FILEs for a script that loads them in
#                                          this order; exit 1 when not prepared
#   kernel-initiator.sh --netem            the same for the kernel's network emulator
#   kernel-initiator.sh SCRIPT [FILE...]   run SCRIPT under sh in the guest; FILEs are copied to /
#
# Standard output and exit status are the script's (124 after BRUNT_GUEST_SECONDS, 125 if the guest never reported).
# In the guest, 10.0.2.2 is the host's loopback; ports in BRUNT_GUEST_PORTS are forwarded from there into the guest.
# Host packages: qemu-system-x86 seabios cpio e2fsprogs kmod busybox-static xz-utils
# dmsetup sg3-utils rpcbind.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/lib/guest-kernel.sh
DIR=$(realpath -m "${BRUNT_TOOLS:-${CARGO_TARGET_DIR:-target}/tools}/kernel-initiator")
MODULES="virtio_pci virtio_net virtio_rng sd_mod iscsi_tcp ext4 crc32c_generic crc32c_intel"
# For multipath; loaded by scripts.
MODULES+=" dm_multipath dm_service_time scsi_dh_alua sg"
# For NFS, with a disk in memory to export. Loaded before the guest is saved, because emulation takes ten seconds to load them.
MODULES+=" brd nfsd nfsv3 nfsv4"
# For the kernel's target (LIO); not in the image.
LIO_MODULES="configfs target_core_mod target_core_file iscsi_target_mod"
# For the kernel's network emulator; not in the image either.
NETEM_MODULES="sch_netem"

prepare() {
  mkdir -p "$DIR"
  local kernel version root tree lib
  work=$(mktemp -d "$DIR/build.XXXXXX"); trap 'rm -rf "$work"' EXIT
  root=$work/root tree=$work/tree
  mkdir -p "$root"/{bin,sbin,lib64,lib/x86_64-linux-gnu,proc,sys,dev,run,tmp,mnt,etc/iscsi,var/lib}
  unpack_kernel "$work" "$DIR/vmlinux.new" open-iscsi libopeniscsiusr libisns0 nfs-kernel-server
  # shellcheck disable=SC2086
  install_modules "$work" "$root" $MODULES

  local folder modules number file
  for folder in lio netem; do
    modules=$LIO_MODULES; [ $folder = lio ] || modules=$NETEM_MODULES
    rm -rf "$DIR/$folder" "$work/$folder"; mkdir "$work/$folder"
    number=10
    # shellcheck disable=SC2086
    for file in $(module_files "$work" $modules); do
      cp "$file" "$work/$folder/$((number++))-${file##*/}"
    done
    mv "$work/$folder" "$DIR/$folder"
  done

  for program in "$tree"/sbin/{iscsiadm,iscsid} /bin/kmod /sbin/{mkfs.ext4,e2fsck,dmsetup} /usr/bin/sg_rtpg \
    "$tree"/usr/sbin/{rpc.mountd,exportfs} /sbin/rpcbind /usr/bin/flock; do
    cp -L "$program" "$root/sbin/"
    LD_LIBRARY_PATH=$tree/usr/lib/x86_64-linux-gnu:$tree/lib/x86_64-linux-gnu ldd "$program" |
      grep -o '/[^ ]*' | while read -r lib; do
        case $lib in
          *ld-linux*) cp -nL "$lib" "$root/lib64/" ;;
          *) cp -nL "$lib" "$root/lib/x86_64-linux-gnu/" ;;
        esac
      done
  done
  ln -s kmod "$root/sbin/modprobe"
  install_busybox "$root"
  cp "$tree/etc/iscsi/iscsid.conf" "$root/etc/iscsi/"
  echo "InitiatorName=iqn.2026-11.io.brunt:kernel" >"$root/etc/iscsi/initiatorname.iscsi"
  echo 'root:x:0:0::/:/bin/sh' >"$root/etc/passwd"
  echo '127.0.0.1 localhost' >"$root/etc/hosts"
  cat >"$root/init" <<'INIT'
#!/bin/sh
export PATH=/sbin:/bin HOME=/
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
mkdir -p /run/lock/iscsi
for module in virtio_pci virtio_net virtio_rng sd_mod iscsi_tcp ext4 crc32c_intel nfsd nfsv3 nfsv4; do modprobe $module; done
ip link set lo up; ip addr add 10.0.2.15/24 dev eth0; ip link set eth0 up
stty -F /dev/ttyS1 raw -echo
sh /guest-script </dev/null >/dev/ttyS1 2>&1
printf '\nguest-exit %d\n' $? >/dev/ttyS1; sleep .2
echo o >/proc/sysrq-trigger; sleep 30
INIT
  chmod +x "$root/init"
  (cd "$root" && find . | cpio -o -H newc -R 0:0 --quiet) >"$DIR/initrd.new"
  mv "$DIR/vmlinux.new" "$DIR/vmlinux"; mv "$DIR/initrd.new" "$DIR/initrd"
  echo "$MODULES" >"$DIR/modules"
  rm -rf "$work"
  echo "prepared $kernel: vmlinux $(du -m "$DIR/vmlinux" | cut -f1) MiB, initrd $(du -m "$DIR/initrd" | cut -f1) MiB"
}

# An image with other modules is outdated.
ready() { [ -s "$DIR/vmlinux" ] && [ -s "$DIR/initrd" ] && [ "$(cat "$DIR/modules" 2>&1)" = "$MODULES" ]; }

case ${1:-} in
  --prepare) ready && [ -d "$DIR/lio" ] && [ -d "$DIR/netem" ] || prepare; set -- --save ;;
  --ready) ready; exit ;;
  --lio) [ -d "$DIR/lio" ] && printf '%s\n' "$DIR"/lio/*; exit ;;
  --netem) [ -d "$DIR/netem" ] && printf '%s\n' "$DIR"/netem/*; exit ;;
  "") sed -n '2,17p' "$0"; exit 2 ;;
esac
ready || { echo "run $0 --prepare first" >&2; exit 125; }

# With "rep movsb", emulation would copy bytes instead of words.
accel=(-accel tcg,thread=multi -cpu max,-erms,-fsrm)
if [ -n "${BRUNT_GUEST_KVM:-}" ]; then accel=(-accel kvm -cpu host); fi
# no_timer_check: on a busy machine the guest's timer is late when the kernel tests it, so the kernel would consider it broken.
machine=("${accel[@]}" -m 512 -smp 2 -nodefaults -display none -no-reboot -kernel "$DIR/vmlinux"
  -device virtio-net-pci,netdev=net,romfile= -device virtio-rng-pci
  -append "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off nokaslr cryptomgr.notests audit=0")

# The script of a guest that is saved once it has booted. When it runs again, it is given the time and fetches its files.
# Until its serial port has been loaded, the host's lines may be lost or cut.
WAIT='{
echo guest-ready
until [ "$word $end" = "go end" ]; do read -r word time end </dev/ttyS1; done
date -s "@$time" >/dev/null
cd /; nc 10.0.2.100 7 </dev/null | cpio -idu 2>/dev/null && [ -s run-script ] && echo guest-started && exec sh /run-script
}'
SAVED=$DIR/booted-$({ qemu-system-x86_64 --version; grep -m1 'model name' /proc/cpuinfo; printf '%s\n' "${machine[@]}" "$WAIT"
  stat -c '%s %Y' "$DIR/vmlinux" "$DIR/initrd"; } | cksum | tr ' ' -)

# Packs the files of FOLDER as further content of an initramfs.
pack() { (cd "$1" && find . | cpio -o -H newc -R 0:0 --quiet); }

# Boots a guest and saves it in $SAVED, unless there is one. Other runs that need it wait.
save() (
  exec 8>"$DIR/lock"; flock 8
  [ ! -s "$SAVED" ] || exit 0
  at=$run/save
  mkdir -p "$at/add"; mkfifo "$at/commands"
  printf '%s\n' "$WAIT" >"$at/add/guest-script"
  { cat "$DIR/initrd"; pack "$at/add"; } >"$at/initrd"
  (cd "$at" && exec timeout --foreground 900 qemu-system-x86_64 "${machine[@]}" -initrd initrd -netdev user,id=net \
    -monitor stdio -serial file:console -serial file:said <commands >monitor 2>&1) & id=$!
  exec 9>"$at/commands"
  # Also ends when the folder is gone, which means that the caller was killed.
  until grep -qs guest-ready "$at/said"; do [ -d "$at" ] && kill -0 "$id" 2>/dev/null || break; sleep .1; done
  printf '%s\n' 'migrate "exec:cat >saved"' 'info migrate' quit >&9; exec 9>&-
  wait "$id" || :
  if ! grep -q 'Migration status: completed' "$at/monitor" || [ ! -s "$at/saved" ]; then
    echo "a booted guest could not be saved:" >&2; tail -n 5 "$at/monitor" "$at/console" >&2; exit 1
  fi
  rm -f "$DIR"/booted-*; mv "$at/saved" "$SAVED"; rm -rf "$at"
)

run=$(mktemp -d "$DIR/run.XXXXXX"); trap 'end; rm -rf "$run"' EXIT
end() { [ ! -s "$run/id" ] || kill "$(cat "$run/id")" 2>/dev/null || :; }
if [ "$1" = --save ]; then save || echo "each run will boot its own guest" >&2; exit 0; fi
mkdir "$run/add"; script=$1; shift
for file; do cp -L "$file" "$run/add/"; done
net=user,id=net
for port in ${BRUNT_GUEST_PORTS:-}; do net+=",hostfwd=tcp:127.0.0.1:$port-:$port"; done

# guest NET [OPTION...]: runs QEMU and shows what the script prints.
guest() {
  status=0; : >"$run/out"
  (cd "$run" && echo "$BASHPID" >id && exec timeout --foreground "${BRUNT_GUEST_SECONDS:-300}" qemu-system-x86_64 \
    "${machine[@]}" -netdev "$1" "${@:2}" -chardev stdio,id=script,signal=off -serial file:console -serial chardev:script) |
    tee "$run/out" | sed -u '/^guest-exit /d; /^guest-started/d' || status=${PIPESTATUS[0]}
  rm -f "$run/id"
}
started() { grep -q '^guest-started' "$run/out"; }
# Tells a loaded guest to continue; ends it if it doesn't within a minute.
go_on() {
  for _ in {1..300}; do
    if started; then return; fi
    echo "go $(date +%s) end" 2>/dev/null || return
    sleep .2
  done
  started || end
}

# An emulated kernel takes longer to boot than most scripts run; a saved one is loaded in a second.
loaded=
if [ -z "${BRUNT_GUEST_KVM:-}" ] && save; then
  cp "$script" "$run/add/run-script"; pack "$run/add" >"$run/files"; : >"$run/out"
  guest "$net,guestfwd=tcp:10.0.2.100:7-cmd:cat files" -initrd "$DIR/initrd" -incoming "exec:cat '$SAVED'" < <(go_on)
  if started; then loaded=1; else
    echo "the saved guest didn't start (status $status); booting one" >&2; rm -f "$SAVED" "$run/add/run-script"
  fi
fi
if [ -z "$loaded" ]; then
  cp "$script" "$run/add/guest-script"; { cat "$DIR/initrd"; pack "$run/add"; } >"$run/initrd"
  guest "$net" -initrd "$run/initrd" </dev/null
fi
code=$(tr -d '\r' <"$run/out" | sed -n 's/^guest-exit //p' | tail -1)
[ -z "$code" ] || exit "$code"
echo "the guest reported no exit status; its console ends:" >&2; tail -30 "$run/console" >&2
[ "$status" = 124 ] && exit 124 || exit 125
