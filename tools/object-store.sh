#!/bin/bash
# Moves parts of traces to a real S3 server and back (docs/object-stores.md): `capture --to`, `lake push` and `lake
# pull` while connections are cut, servers stop answering and processes are killed; boto3 and DuckDB then compare the
# objects with the local parts (tools/lib/object-store.py). DuckDB also reads lakes directly from the store, by itself
# and for `brunt sql s3://…`. Builds brunt with the feature s3.
#
#   object-store.sh --prepare    fetch moto, boto3 and DuckDB with two extensions (network)
#   object-store.sh --ready      exit 0 when prepared
#   object-store.sh              with moto, which keeps objects in memory, so it is stopped but not killed
#   object-store.sh versitygw    with Versity's gateway over files, which is also killed; the first time, it is fetched and
#                                built by `go install` (Go 1.25 or newer, network, two minutes)
#
# BRUNT is an existing program with the feature, instead of building one. BRUNT_STEPS=short runs only the first step and two
# quick ones.
set -euo pipefail
cd "$(dirname "$0")/.."
TARGET=${CARGO_TARGET_DIR:-target}
DIR=$(realpath -m "${BRUNT_TOOLS:-$TARGET/tools}/object-store")
# PyPI has DuckDB's extensions only up to version $HTTPFS.
MOTO=5.2.5 BOTO3=1.44.8 DUCKDB=2.0.0 HTTPFS=1.5.5 VERSITYGW=v1.8.0
MARK=$DIR/versions-$MOTO-$BOTO3-$DUCKDB-$HTTPFS

ready() { [ -e "$MARK" ]; }

prepare() {
  rm -rf "$DIR"; mkdir -p "$(dirname "$DIR")"
  python3 -m venv "$DIR"
  "$DIR/bin/pip" install --quiet --disable-pip-version-check "moto[server]==$MOTO" "boto3==$BOTO3" "duckdb==$DUCKDB"
  python3 -m venv "$DIR/httpfs"
  "$DIR/httpfs/bin/pip" install --quiet --disable-pip-version-check "duckdb==$HTTPFS" "duckdb-extension-httpfs==$HTTPFS" \
    "duckdb-extension-delta==$HTTPFS"
  touch "$MARK"
}

case ${1:-} in
  --prepare) ready || prepare; exit ;;
  --ready) ready; exit ;;
  "" | moto) server=$DIR/bin/moto_server ;;
  versitygw)
    server=$DIR/go/versitygw-$VERSITYGW
    if ready && [ ! -x "$server" ]; then
      mkdir -p "$DIR/go"
      GOBIN=$DIR/go go install "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW"
      mv "$DIR/go/versitygw" "$server"
    fi ;;
  *) sed -n '2,14p' "$0"; exit 2 ;;
esac
ready || { echo "first: tools/object-store.sh --prepare"; exit 2; }

if [ -z "${BRUNT:-}" ]; then
  cargo build -p brunt --features s3
  # Copied, because the next build without the feature would overwrite it.
  BRUNT=$DIR/brunt
  cp "$TARGET/debug/brunt" "$BRUNT"
fi
exec "$DIR/bin/python" tools/lib/object-store.py "$(realpath "$BRUNT")" "$server" "$DIR/httpfs/bin/python"
