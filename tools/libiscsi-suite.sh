#!/bin/bash
# The newer release of libiscsi's conformance suite (1.20: more iSCSI-level tests than the 1.19 of
# Debian 12), from Debian 13, run with Debian 13's own C library alongside this system's.
#
#   libiscsi-suite.sh --prepare    fetch and unpack (network)
#   libiscsi-suite.sh --ready      exit 0 when prepared
#   libiscsi-suite.sh ARGUMENTS    run it
set -euo pipefail
cd "$(dirname "$0")/.."
DIR=$(realpath -m "${BRUNT_TOOLS:-${CARGO_TARGET_DIR:-target}/tools}/libiscsi-suite")
LIB=$DIR/root/usr/lib/x86_64-linux-gnu
RELEASE=trixie
# The suite and everything it links against.
PACKAGES="libiscsi-bin libiscsi7 libcunit1 libibverbs1 librdmacm1t64 libnl-3-200 libnl-route-3-200
  libgcrypt20 libgpg-error0 libc6"

ready() { [ -x "$DIR/root/usr/bin/iscsi-test-cu" ]; }

prepare() {
  # The mirror of this system, with the other release's lists kept separate.
  local site apt=$DIR/apt
  site=$(apt-get indextargets --format '$(SITE)' 'Codename: bookworm' | grep -m1 -v security)
  rm -rf "$DIR"; mkdir -p "$apt"/{lists/partial,cache/archives/partial} "$DIR"/{debs,root.new}
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site $RELEASE main" >"$apt/sources.list"
  local options=(-o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root
    -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Acquire::Languages=none)
  apt-get "${options[@]}" update -qq
  (cd "$DIR/debs" && for package in $PACKAGES; do apt-get "${options[@]}" download -q "$package/$RELEASE"; done) \
    >"$DIR/log" 2>&1 || { cat "$DIR/log" >&2; exit 1; }
  for deb in "$DIR"/debs/*.deb; do dpkg -x "$deb" "$DIR/root.new"; done
  rm -rf "$DIR/debs" "$apt"; mv "$DIR/root.new" "$DIR/root"
}

case ${1:-} in
  --prepare) ready || prepare ;;
  --ready) ready ;;
  "") sed -n '2,7p' "$0"; exit 2 ;;
  *) exec "$LIB/ld-linux-x86-64.so.2" --library-path "$LIB" "$DIR/root/usr/bin/iscsi-test-cu" "$@" ;;
esac
