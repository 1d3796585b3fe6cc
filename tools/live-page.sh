#!/bin/bash
# Checks that the live page's committed files match their source, and are small: tests and builds web/ in a copy, and compares.
#
#   tools/live-page.sh --prepare   installs what the build needs (Node from Debian, packages of web/package-lock.json)
#   tools/live-page.sh             tests, builds and compares
set -euo pipefail
cd "$(dirname "$0")/.."
REPOSITORY=$PWD
BYTES_MAX=150000
EDITOR_BYTES_MAX=180000
WORK=$(realpath -m "${BRUNT_TOOLS:-${CARGO_TARGET_DIR:-target}/tools}/live-page")

if [ "${1:-}" = --prepare ]; then
  if ! command -v npm >/dev/null; then
    SUDO=; [ "$(id -u)" = 0 ] || SUDO=sudo
    $SUDO apt-get install -y -qq --no-install-recommends nodejs npm >/dev/null
  fi
  rm -rf "$WORK"; mkdir -p "$WORK"
  cp -r web "$WORK/web"; rm -rf "$WORK/web/node_modules"
  (cd "$WORK/web" && npm ci --silent --no-audit --no-fund)
  exit
fi

[ -d "$WORK/web/node_modules" ] || { echo "first: tools/live-page.sh --prepare"; exit 2; }
for file in web/* ; do [ "$(basename "$file")" = node_modules ] || cp -r "$file" "$WORK/web/"; done
cd "$WORK/web"
npm run --silent check
BRUNT_EXAMPLES="$REPOSITORY/examples" npm run --silent test
npm run --silent build
cd - >/dev/null
diff -rq "$WORK/crates/brunt-web/assets" crates/brunt-web/assets || {
  echo "crates/brunt-web/assets is not what web/ makes: cd web && npm ci && npm run build, and commit it"; exit 1; }
# The editor (compose.js) is loaded when it is opened, so it is counted separately.
editor=$(gzip -9c crates/brunt-web/assets/compose.js | wc -c)
bytes=$(cat crates/brunt-web/assets/{index.html,app.js,app.css} | gzip -9c | wc -c)
[ "$bytes" -le "$BYTES_MAX" ] || { echo "the page has $bytes bytes compressed, more than $BYTES_MAX"; exit 1; }
[ "$editor" -le "$EDITOR_BYTES_MAX" ] || { echo "the editor has $editor bytes compressed, more than $EDITOR_BYTES_MAX"; exit 1; }
echo "the live page is what web/ makes: $bytes bytes compressed, and $editor of the editor"
