#!/bin/bash
# Builds Brunt's packages for x86-64 and tries each in a bare root: a static binary, a .deb, a container image.
#
#   packages.sh --prepare                       a bare root of Debian (debootstrap; network), kept as a tar archive
#   packages.sh --ready                         exit 0 when prepared
#   packages.sh build [--profile NAME] [OUT]    build them into OUT (default: target/packages, profile release)
#   packages.sh static [--profile NAME]         only compile the static program, for a later build
#   packages.sh try [OUT]                       try the packages in OUT; needs root and --prepare
#   packages.sh deb PROGRAM [OUT]               only the .deb, of an existing program, tried where it is unpacked
#
# Needs dpkg-dev and python3; trying needs debootstrap, skopeo, umoci, podman, runc, uidmap and lintian. lib/oci.py writes the
# image as an OCI archive, without root and without a daemon. Dates are those of the last commit, so that the same commit
# gives the same packages.
set -euo pipefail
cd "$(dirname "$0")/.."
TARGET=${CARGO_TARGET_DIR:-target}
DIR=$(realpath -m "${BRUNT_TOOLS:-$TARGET/tools}/packages")
TRIPLE=x86_64-unknown-linux-gnu
SUITE=bookworm
ROOT_TAR=$DIR/root-$SUITE.tar
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
MAINTAINER="${DEBFULLNAME:-$(git log -1 --format=%an)} <${DEBEMAIL:-$(git log -1 --format=%ae)}>"
export SOURCE_DATE_EPOCH
umask 022
. tools/lib/flags.sh

ready() { [ -e "$ROOT_TAR" ]; }

# The mirror is the one used for this machine's own packages.
prepare() {
  local mirror work
  command -v debootstrap >/dev/null || { echo "packages.sh: needs the Debian package debootstrap" >&2; exit 1; }
  mirror=$(apt-get indextargets --format '$(SITE)' "Created-By: Packages" | head -1)
  mkdir -p "$DIR"; work=$(mktemp -d "$DIR/root.XXXXXX")
  debootstrap --variant=minbase "$SUITE" "$work" "$mirror" >"$DIR/debootstrap.log" 2>&1 ||
    { tail -20 "$DIR/debootstrap.log"; rm -rf "$work"; exit 1; }
  rm -rf "$work"/var/cache/apt/archives/*.deb "$work"/var/lib/apt/lists/*
  tar --numeric-owner -cf "$ROOT_TAR.new" -C "$work" .
  mv "$ROOT_TAR.new" "$ROOT_TAR"; rm -rf "$work"
}

# tarball FILE FOLDER NAME...: writes the same bytes for the same contents.
tarball() {
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$2" -cf - "${@:3}" |
    gzip -9n >"$1"
}

# documents FOLDER: copies what every package contains in addition to the program.
documents() {
  mkdir -p "$1/docs"
  cp README.md ARCHITECTURE.md "$1/"
  cp docs/*.md docs/*.svg docs/*.json "$1/docs/"
  cp -r examples "$1/"
  rm -rf "$1"/examples/*.results
  find "$1" -type f -exec chmod 644 {} +
}

# The static program has a separate target folder: its build doesn't wait for others, such as tests that call cargo.
STATIC=$TARGET/static

# profile_of [--profile NAME]: sets `profile` and the folder that cargo gives it, `folder`.
profile_of() {
  profile=release
  [ "${1:-}" != --profile ] || profile=$2
  folder=$([ "$profile" = dev ] && echo debug || echo "$profile")
}

static() {
  local profile folder
  profile_of "$@"
  # With --target, these flags don't apply to build scripts and procedural macros, which need shared libraries.
  RUSTFLAGS="$(portable_flags) -C target-feature=+crt-static" "${CARGO:-cargo}" build --quiet --locked --profile "$profile" \
    --target "$TRIPLE" --target-dir "$STATIC" -p brunt
}

build() {
  local profile folder dynamic static
  profile_of "$@"
  if [ "${1:-}" = --profile ]; then shift 2; fi
  OUT=$(realpath -m "${1:-$TARGET/packages}")
  rm -rf "$OUT"; mkdir -p "$OUT"
  "${CARGO:-cargo}" fetch --quiet --locked
  RUSTFLAGS=$(portable_flags) "${CARGO:-cargo}" build --quiet --locked --profile "$profile" -p brunt
  static --profile "$profile"
  dynamic=$TARGET/$folder/brunt static=$STATIC/$TRIPLE/$folder/brunt
  work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
  # Of the debugging information, keep only function names, for backtraces.
  strip --strip-debug -o "$work/dynamic" "$dynamic"
  strip --strip-debug -o "$work/static" "$static"
  names_no_path "$work/dynamic" "$work/static"
  python3 tools/lib/third-party.py "$TRIPLE" >"$work/third-party"
  build_tarball
  build_deb
  python3 tools/lib/oci.py "$work/static" "$work/third-party" "$VERSION" "$OUT/brunt-$VERSION-oci.tar"
  (cd "$OUT" && sha256sum -- * >SHA256SUMS)
  ls -l "$OUT"
}

# deb PROGRAM [OUT]: unlike `try`, uses this machine's libraries and needs no root.
deb() {
  local tree XZ_LEVEL=0 # a minute less than the usual level
  OUT=$(realpath -m "${2:-$TARGET/packages}")
  rm -rf "$OUT"; mkdir -p "$OUT"
  work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
  strip --strip-debug -o "$work/dynamic" "$1"
  python3 tools/lib/third-party.py "$TRIPLE" >"$work/third-party"
  build_deb
  without_complaint "$OUT/brunt_${VERSION}_amd64.deb"
  tree=$work/unpacked; dpkg-deb --extract "$OUT/brunt_${VERSION}_amd64.deb" "$tree"
  [ "$("$tree/usr/bin/brunt" --version)" = "brunt $VERSION" ]
  short_experiment >"$work/quick.toml"
  "$tree/usr/bin/brunt" run "$work/quick.toml" --out "$work/results" >"$work/deb.out" 2>&1; ran "$work/deb.out"
  zcat "$tree/usr/share/man/man1/brunt-run.1.gz" | grep -q '^\.TH'
  echo "deb: its program, pages and completions are there; lintian finds no error"
}

# names_no_path PROGRAM...: checks that a program doesn't contain the paths of its build.
names_no_path() {
  local place
  for place in "${CARGO_HOME:-$HOME/.cargo}" "$PWD" "$(realpath "$TARGET")"; do
    ! grep -aFq "$place/" "$@" || { echo "packages.sh: $place is named in the program" >&2; exit 1; }
  done
}

build_tarball() {
  local name=brunt-$VERSION-x86_64-linux-static
  local tree=$work/$name
  documents "$tree"
  install -m 755 "$work/static" "$tree/brunt"
  install -m 644 LICENSE-APACHE LICENSE-MIT "$tree/"
  install -m 644 "$work/third-party" "$tree/THIRD-PARTY"
  tarball "$OUT/$name.tar.gz" "$work" "$name"
}

build_deb() {
  local tree=$work/deb depends shell page
  local doc=$tree/usr/share/doc/brunt
  install -D -m 755 "$work/dynamic" "$tree/usr/bin/brunt"
  strip --strip-unneeded --remove-section=.comment --remove-section=.note "$tree/usr/bin/brunt"
  "$tree/usr/bin/brunt" man "$tree/usr/share/man/man1"
  for page in "$tree"/usr/share/man/man1/*; do gzip -9n "$page"; done
  for shell in bash:bash-completion/completions/brunt zsh:zsh/vendor-completions/_brunt \
    fish:fish/vendor_completions.d/brunt.fish; do
    mkdir -p "$(dirname "$tree/usr/share/${shell#*:}")"
    "$tree/usr/bin/brunt" completions "${shell%%:*}" >"$tree/usr/share/${shell#*:}"
  done
  documents "$doc"
  {
    cat <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: brunt
Comment: The program is linked statically with Rust crates under licences of their own. deny.toml allows these and no
 others: $(sed -n '/^allow = \[/,/^\]/s/^ *"\(.*\)",$/\1/p' deny.toml | paste -sd, | sed 's/,/, /g').
 Their names, authors and texts are in /usr/share/doc/brunt/third-party.gz.

Files: *
Copyright: The Brunt authors
License: Apache-2.0 or Expat

License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.

License: Expat
$(sed '1,2d; s/^$/./; s/^/ /' LICENSE-MIT)
END
  } >"$doc/copyright"
  gzip -9nc "$work/third-party" >"$doc/third-party.gz"
  {
    echo "brunt ($VERSION) unstable; urgency=medium"; echo
    echo "  * Built from $(git rev-parse --short=12 HEAD)."; echo
    echo " -- $MAINTAINER  $(date -uRd "@$SOURCE_DATE_EPOCH")"
  } | gzip -9n >"$doc/changelog.gz"
  mkdir -p "$work/source/debian" "$tree/DEBIAN"
  printf 'Source: brunt\n\nPackage: brunt\nArchitecture: amd64\n' >"$work/source/debian/control"
  depends=$(cd "$work/source" && dpkg-shlibdeps -O -e"$tree/usr/bin/brunt" | sed -n 's/^shlibs:Depends=//p')
  cat >"$tree/DEBIAN/control" <<END
Package: brunt
Version: $VERSION
Architecture: amd64
Maintainer: $MAINTAINER
Installed-Size: $(du -sk --exclude=DEBIAN "$tree" | cut -f1)
Depends: $depends
Section: utils
Priority: optional
Description: storage performance evaluation under load and faults
 Brunt puts load on block devices, below every cache, and on mounted file
 systems, and injects faults into the network, the storage and the controller
 while it measures. It replays block traces, captures NFS and iSCSI from the
 network, and serves LUNs over iSCSI. Its results carry confidence intervals.
END
  (cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
  dpkg-deb --root-owner-group -Zxz "-z${XZ_LEVEL:-6}" --build "$tree" "$OUT/brunt_${VERSION}_amd64.deb" >/dev/null
}

# in_root ROOT COMMAND...: runs a command with /proc and /dev, and nothing else of this machine.
in_root() {
  unshare --mount --pid --fork -- bash -ec '
    root=$1; shift
    mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"
    exec chroot ${ROOT_USER:+--userspec=$ROOT_USER} "$root" "$@"' in_root "$@"
}

# The first experiment of README.md, shortened: the same points, in runs of 1,000 requests.
short_experiment() {
  sed -e 's/^repetitions = .*/repetitions = 1/' -e 's/^stop = .*/stop = { requests = 1000 }/' examples/quick.toml
}

# ran OUTPUT: checks that the three points of the experiment have figures.
ran() {
  [ "$(grep -cE 'queue_depth=(1|4|16): [1-9][0-9]* requests/s' "$1")" = 3 ] || { cat "$1"; echo "not three points"; exit 1; }
}

try() {
  local started=$SECONDS
  OUT=$(realpath -m "${1:-$TARGET/packages}")
  ready || { echo "packages.sh: run packages.sh --prepare first" >&2; exit 1; }
  work=$(mktemp -d); trap 'rm -rf --one-file-system "$work"' EXIT
  (cd "$OUT" && sha256sum --quiet -c SHA256SUMS)
  try_static; try_deb; try_image
  echo "each package works in a bare root ($((SECONDS - started)) s)"
}

# In a root without any library.
try_static() {
  local root=$work/static
  mkdir -p "$root"/{proc,dev,tmp,etc}
  tar -xzf "$OUT/brunt-$VERSION-x86_64-linux-static.tar.gz" -C "$root" --strip-components=1
  [ -z "$(find "$root" -name '*.so*')" ]
  ! readelf -l "$root/brunt" | grep -q INTERP || { echo "the static binary has an interpreter"; exit 1; }
  [ "$(in_root "$root" /brunt --version)" = "brunt $VERSION" ]
  short_experiment >"$root/quick.toml"
  in_root "$root" /brunt run /quick.toml --out /tmp/results >"$work/static.out" 2>&1; ran "$work/static.out"
  [ -s "$root/tmp/results/report.html" ]
  # Names are resolved without a library: through /etc/hosts (and through DNS, which has no server here).
  echo "127.0.0.1 storage.example" >"$root/etc/hosts"
  in_root "$root" /brunt io read iscsi://storage.example:1/iqn.x:y/0 >"$work/name.out" 2>&1 && exit 1
  grep -qi 'refused' "$work/name.out" || { cat "$work/name.out"; echo "a name was not found"; exit 1; }
  # The program reports what it can't do here.
  in_root "$root" /brunt doctor >"$work/doctor.out" 2>&1 || :
  grep -q 'shared librar' "$work/doctor.out" || { cat "$work/doctor.out"; echo "doctor does not say what is missing"; exit 1; }
  in_root "$root" /brunt lake pull s3://lake/x /x >"$work/s3.out" 2>&1 && exit 1
  grep -q -- '--features s3' "$work/s3.out" || { cat "$work/s3.out"; echo "it does not say which feature it lacks"; exit 1; }
  echo "static binary: works in a root without libraries"
}

# without_complaint FILE.deb
without_complaint() {
  lintian --fail-on error --suppress-tags no-manual-page,initial-upload-closes-no-bugs,bogus-mail-host "$1" ||
    { echo "lintian complains"; exit 1; }
}

try_deb() {
  local root=$work/deb deb=brunt_${VERSION}_amd64.deb
  without_complaint "$OUT/$deb"
  mkdir "$root"; tar -xf "$ROOT_TAR" -C "$root"
  cp "$OUT/$deb" "$root/tmp/"
  in_root "$root" dpkg -i "/tmp/$deb" >"$work/dpkg.out" 2>&1 || { cat "$work/dpkg.out"; exit 1; }
  [ "$(in_root "$root" brunt --version)" = "brunt $VERSION" ]
  short_experiment >"$root/tmp/quick.toml"
  in_root "$root" brunt run /tmp/quick.toml --out /tmp/results >"$work/deb.out" 2>&1; ran "$work/deb.out"
  in_root "$root" brunt run /usr/share/doc/brunt/examples/quick.toml --check >/dev/null
  # Every command has its manual page.
  in_root "$root" bash -ec '
    for page in brunt brunt-run brunt-target brunt-capture brunt-lake-add; do
      zcat "/usr/share/man/man1/$page.1.gz" | grep -q "^\.TH"
    done
    source /usr/share/bash-completion/completions/brunt
    complete -p brunt | grep -q _brunt
    COMP_WORDS=(brunt ru) COMP_CWORD=1 COMPREPLY=(); _brunt brunt ru brunt; [[ " ${COMPREPLY[*]} " = *" run "* ]]
    grep -q "^#compdef brunt" /usr/share/zsh/vendor-completions/_brunt
    grep -q "complete -c brunt" /usr/share/fish/vendor_completions.d/brunt.fish' ||
    { echo "pages or completions are missing"; exit 1; }
  in_root "$root" dpkg -r brunt >/dev/null
  [ ! -e "$root/usr/bin/brunt" ] && [ ! -e "$root/usr/share/doc/brunt" ]
  echo "deb: installs, works and goes away in bare Debian $SUITE; lintian finds no error"
}

try_image() {
  local image=$OUT/brunt-$VERSION-oci.tar
  [ "$(skopeo inspect --config "oci-archive:$image" | python3 -c '
import json, sys; print(json.load(sys.stdin)["config"]["User"])')" = 65532:65532 ]
  skopeo --insecure-policy copy --quiet "oci-archive:$image" "oci:$work/layout:brunt"
  umoci unpack --rootless --image "$work/layout:brunt" "$work/bundle" >"$work/umoci.out" 2>&1 ||
    { cat "$work/umoci.out"; exit 1; }
  local root=$work/bundle/rootfs
  mkdir -p "$root"/{proc,dev}; chmod 755 "$work" "$work/bundle" "$root"; chown 65532 "$root/work"
  short_experiment >"$root/work/quick.toml"
  ROOT_USER=65532:65532 in_root "$root" /usr/bin/brunt run /work/quick.toml >"$work/image.out" 2>&1; ran "$work/image.out"
  [ "$(stat -c %u "$root/work/quick.results/report.html")" = 65532 ]
  try_container "$image"
  try_rootless "$image"
  echo "image: skopeo and umoci read it, and podman runs it as user 65532, started by root and by a user without privileges"
}

# As users run it, but with its own storage and no network. With runc, because Debian's crun doesn't start if both versions of
# cgroups are mounted; with limits, because podman would otherwise raise them, which needs a privilege.
try_container() {
  local podman=(podman --runtime runc --root "$work/podman" --runroot "$work/podman.run" --tmpdir "$work/podman.tmp"
    --storage-driver vfs --cgroup-manager cgroupfs --events-backend none)
  "${podman[@]}" load --quiet --input "$1" >"$work/podman.out" 2>&1 || { cat "$work/podman.out"; exit 1; }
  mkdir "$work/results"; chown 65532 "$work/results"; short_experiment >"$work/results/quick.toml"
  "${podman[@]}" run --rm --network none --security-opt seccomp=unconfined --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 \
    --volume "$work/results:/work" "localhost/brunt:$VERSION" run quick.toml >"$work/podman.out" 2>&1 || :
  ran "$work/podman.out"
  [ "$(stat -c %u "$work/results/quick.results/report.html")" = 65532 ]
  umount "$work/podman/vfs" "$work/podman" 2>/dev/null || :
}

# Podman as an unprivileged user runs it. The user doesn't exist on this machine: only these commands see the files of /etc
# that define it and its range of subordinate ids. Its files belong to the image's user in its own namespace, and to an id of
# the range outside.
try_rootless() {
  local id=61234 first=300000 file
  mkdir -p "$work/rootless"/{home,run,results}
  for file in passwd group subuid subgid; do
    cat "/etc/$file" >"$work/rootless/$file" 2>/dev/null || : >"$work/rootless/$file"
  done
  echo "packer:x:$id:$id::$work/rootless/home:/bin/sh" >>"$work/rootless/passwd"
  echo "packer:x:$id:" >>"$work/rootless/group"
  echo "packer:$first:65536" | tee -a "$work/rootless/subuid" >>"$work/rootless/subgid"
  short_experiment >"$work/rootless/results/quick.toml"
  cp "$1" "$work/rootless/image.tar"
  chmod 755 "$work" "$work/rootless"; chmod 700 "$work/rootless/run"; chmod 644 "$work/rootless/image.tar"
  chown -R "$id:$id" "$work/rootless"/{home,run,results}
  unshare --mount -- bash -ec '
    cd "$1"
    # Mounts need a file to cover.
    for file in passwd group subuid subgid; do
      [ -e "/etc/$file" ] || : >"/etc/$file"
      mount --bind "$1/$file" "/etc/$file"
    done
    exec setpriv --reuid "$2" --regid "$2" --clear-groups env -i HOME="$1/home" XDG_RUNTIME_DIR="$1/run" \
      PATH=/usr/sbin:/usr/bin:/sbin:/bin bash -ec "
        podman=(podman --runtime runc --storage-driver vfs --cgroup-manager cgroupfs --events-backend none)
        \"\${podman[@]}\" load --quiet --input image.tar
        \"\${podman[@]}\" run --rm --network none --security-opt seccomp=unconfined --volume $1/results:/work:U \
          localhost/brunt:$3 run quick.toml"' try_rootless "$work/rootless" "$id" "$VERSION" \
    >"$work/rootless.out" 2>&1 || { cat "$work/rootless.out"; echo "podman without root does not run it"; exit 1; }
  ran "$work/rootless.out"
  # User 65532 of the container is the 65,532nd id of the range, because the first id is the container's user 1.
  [ "$(stat -c %u "$work/rootless/results/quick.results/report.html")" = $((first + 65531)) ] ||
    { stat "$work/rootless/results/quick.results/report.html"; echo "another user wrote the results"; exit 1; }
}

# as_root ARGUMENT...: restarts this script as root if needed (debootstrap, chroot).
as_root() { [ "$(id -u)" = 0 ] || exec sudo -E bash tools/packages.sh "$@"; }

case ${1:-} in
  --prepare) ready || { as_root "$@"; prepare; } ;;
  --ready) ready ;;
  static) shift; static "$@" ;;
  build) shift; build "$@" ;;
  deb) shift; deb "$@" ;;
  try) as_root "$@"; shift; try "$@" ;;
  *) sed -n '2,10p' "$0"; exit 2 ;;
esac
