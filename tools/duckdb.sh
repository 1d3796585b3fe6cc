#!/bin/bash
# Installs DuckDB from PyPI, module and program, in its own environment, to test the queries of docs/results.md and
# docs/trace.md and `brunt sql`.
#
#   duckdb.sh --prepare    fetch it (network)
#   duckdb.sh --ready      exit 0 when prepared
#   duckdb.sh --where      print the folder with its programs, `duckdb` and the `python` that has the module
#   duckdb.sh FOLDER       in FOLDER, run the statements on standard input, a JSON list of strings;
#                          the answer is a JSON list with each statement's rows as objects
set -euo pipefail
cd "$(dirname "$0")/.."
DIR=$(realpath -m "${BRUNT_TOOLS:-${CARGO_TARGET_DIR:-target}/tools}/duckdb")
VERSION=2.0.0
# The program comes from another package, which doesn't have 2.0 yet.
PROGRAM_VERSION=1.5.6

ready() { [ -e "$DIR/version-$VERSION-$PROGRAM_VERSION" ]; }

prepare() {
  rm -rf "$DIR"; mkdir -p "$(dirname "$DIR")"
  python3 -m venv "$DIR"
  "$DIR/bin/pip" install --quiet --disable-pip-version-check "duckdb==$VERSION" "duckdb-cli==$PROGRAM_VERSION"
  "$DIR/bin/python" -c 'import duckdb; duckdb.connect().execute("select 1").fetchall()'
  "$DIR/bin/duckdb" -c 'select 1' >/dev/null
  touch "$DIR/version-$VERSION-$PROGRAM_VERSION"
}

case ${1:-} in
  --prepare) ready || prepare ;;
  --ready) ready ;;
  --where) echo "$DIR/bin" ;;
  "") sed -n '2,9p' "$0"; exit 2 ;;
  *)
    cd -- "$1"
    exec "$DIR/bin/python" -c '
import duckdb, json, sys
connection = duckdb.connect()
answers = []
for statement in json.load(sys.stdin):
    try:
        rows = connection.execute(statement)
        names = [column[0] for column in rows.description or []]
        answers.append([dict(zip(names, row)) for row in rows.fetchall()])
    except duckdb.Error as error:
        sys.exit(f"{error}\nin: {statement}")
json.dump(answers, sys.stdout, default=str)
'
    ;;
esac
