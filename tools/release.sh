#!/bin/bash
# Builds the files of a release in target/release-VERSION: static tarball, .deb, image, release notes and checksums.
# docs/release.md has the steps before and after.
#
#   release.sh --prepare    nothing: tools/packages.sh prepares the downloads
#   release.sh check        reports what isn't ready for a release of this commit; builds nothing
#   release.sh build        checks, builds and tries the packages; needs tools/packages.sh --prepare, and sudo for trying them
set -euo pipefail
cd "$(dirname "$0")/.."
TARGET=${CARGO_TARGET_DIR:-target}
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)

# This version's section of the changelog, without its heading.
notes() { awk -v heading="## $VERSION " 'index($0, "## ") == 1 { on = index($0, heading) == 1; next } on' CHANGELOG.md; }

check() {
  local problems=() stale
  [ -z "$(git status --porcelain)" ] || problems+=("the working tree has changes: commit or remove them")
  grep -qE "^## ${VERSION//./\\.} \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$" CHANGELOG.md ||
    problems+=("CHANGELOG.md has no '## $VERSION (YEAR-MONTH-DAY)'")
  grep -qx "version = \"$VERSION\"" python/pyproject.toml || problems+=("python/pyproject.toml has another version than Cargo.toml")
  [ "$(git describe --exact-match --tags 2>/dev/null || :)" = "v$VERSION" ] ||
    problems+=("this commit isn't tagged: git tag -s v$VERSION")
  stale=$(python3 .ci/covered.py changed | cut -d' ' -f1 | sort -u | paste -sd' ')
  [ -z "$stale" ] || problems+=("not checked in full as they are now: $stale; run .ci/run --all and commit .ci/passed")
  [ ${#problems[@]} = 0 ] || { printf 'release.sh: %s\n' "${problems[@]}" >&2; return 1; }
  echo "$VERSION is ready to be built"
}

build() {
  local out=$TARGET/release-$VERSION
  check
  bash tools/packages.sh build "$out"
  bash tools/packages.sh try "$out"
  notes >"$out/NOTES.md"
  (cd "$out" && rm SHA256SUMS && sha256sum -- * >SHA256SUMS && sha256sum --quiet -c SHA256SUMS)
  echo "upload what is in $out"
}

case ${1:-} in
  --prepare) ;;
  check) check ;;
  build) build ;;
  *) sed -n '2,7p' "$0"; exit 2 ;;
esac
