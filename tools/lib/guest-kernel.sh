# shellcheck shell=bash
# Debian's kernel for a guest in QEMU; sourced by scripts that boot a guest. $tree is the folder for unpacked packages.

# Unpacks the newest kernel and further packages into $tree, and its image into FILE. Sets $kernel and $version.
#   unpack_kernel WORK FILE [PACKAGE...]
unpack_kernel() {
  local work=$1 file=$2 deb image at
  shift 2
  mkdir -p "$work/debs"
  kernel=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
  version=${kernel#linux-image-}
  (cd "$work/debs" && apt-get download -q "$kernel" "$@") >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 125; }
  for deb in "$work"/debs/*.deb; do dpkg -x "$deb" "$tree"; done

  # Under emulation, an uncompressed vmlinux boots ten seconds faster: the payload is one xz stream.
  image=$tree/boot/vmlinuz-$version
  at=$(LC_ALL=C grep -aboP -m1 '\xfd7zXZ\x00' "$image" | head -1 | cut -d: -f1)
  tail -c +$((at + 1)) "$image" | xz -dc --single-stream >"$file" 2>/dev/null || [ -s "$file" ]

  ln -s /bin/kmod "$work/depmod"; ln -s /bin/kmod "$work/modprobe"
  "$work/depmod" -b "$tree" "$version"
}

# The files of modules and their dependencies, in loading order.
#   module_files WORK MODULE...
module_files() {
  local work=$1 module
  shift
  for module; do "$work/modprobe" -d "$tree" -S "$version" --show-depends "$module"; done |
    awk '$1 == "insmod" && !seen[$2]++ { print $2 }'
}

# Installs modules and their dependencies in the root of an initramfs.
#   install_modules WORK ROOT MODULE...
install_modules() {
  local work=$1 root=$2 file
  shift 2
  module_files "$work" "$@" | while read -r file; do install -D "$file" "$root/${file#"$tree/"}"; done
  cp "$tree/lib/modules/$version"/modules.{builtin,builtin.modinfo,order} "$root/lib/modules/$version/"
  "$work/depmod" -b "$root" "$version"
}

# Installs busybox, with links for its applets that the root doesn't have yet.
install_busybox() {
  local root=$1 applet
  cp "$(command -v busybox)" "$root/bin/busybox"
  for applet in $("$root/bin/busybox" --list); do
    [ -e "$root/sbin/$applet" ] || [ "$applet" = busybox ] || ln -sf busybox "$root/bin/$applet"
  done
}
