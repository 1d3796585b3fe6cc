#!/bin/bash
# The Python package of python/: builds its wheel, checks its types, and runs its tests with the wheel installed.
#
#   python-package.sh --prepare      fetch what it needs (network)
#   python-package.sh --ready        exit 0 when prepared
#   python-package.sh [BRUNT] [DIR]  run it with this program (default: target/debug/brunt), ten seconds; the wheel is
#                                    left in DIR
set -euo pipefail
cd "$(dirname "$0")/.."
DIR=$(realpath -m "${BRUNT_TOOLS:-${CARGO_TARGET_DIR:-target}/tools}/python-package")
SETUPTOOLS=80.9.0 PYARROW=26.0.1 MYPY=1.18.2 DATASKETCHES=5.2.0
MARK=$DIR/versions-$SETUPTOOLS-$PYARROW-$MYPY-$DATASKETCHES

ready() { [ -e "$MARK" ]; }

case ${1:-} in
  --prepare)
    ready && exit
    rm -rf "$DIR"; mkdir -p "$(dirname "$DIR")"
    python3 -m venv "$DIR"
    "$DIR/bin/pip" install --quiet --disable-pip-version-check \
      "setuptools==$SETUPTOOLS" "pyarrow==$PYARROW" "mypy==$MYPY" "datasketches==$DATASKETCHES"
    touch "$MARK"; exit ;;
  --ready) ready; exit ;;
  -*) sed -n '2,7p' "$0"; exit 2 ;;
esac
ready || { echo "first: tools/python-package.sh --prepare"; exit 2; }
BRUNT=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/debug/brunt}"); export BRUNT
TESTDATA=$PWD/testdata; export TESTDATA
# If DuckDB is prepared, its answers are compared with the others.
if tools/duckdb.sh --ready; then BRUNT_PYTHON=$(tools/duckdb.sh --where)/python; export BRUNT_PYTHON; fi

work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
# Building leaves files in the source folder.
cp -r python "$work/python"
"$DIR/bin/pip" wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --no-index \
  --wheel-dir "$work/wheel" "$work/python"
"$DIR/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-index --target "$work/site" "$work"/wheel/*.whl
[ -e "$work/site/brunt/py.typed" ] || { echo "the wheel lacks py.typed: its types would not be seen"; exit 1; }
(cd python && "$DIR/bin/mypy" --cache-dir "$work/mypy")
(cd "$work" && PYTHONPATH=$work/site PYTHONDONTWRITEBYTECODE=1 "$DIR/bin/python" "$OLDPWD/python/tests/test_brunt.py")
[ $# -lt 2 ] || cp "$work"/wheel/*.whl "$2"
