#!/bin/bash
# Runs the notebook of examples/notebooks on traces and results made for it, with two settings and with one; fails if a
# cell does. Cells compare their figures with the report of `brunt analyze`.
#
#   notebook.sh --prepare      fetch what it needs (network)
#   notebook.sh --ready        exit 0 when prepared
#   notebook.sh [BRUNT] [DIR]  run it with this program (default: target/debug/brunt), half a minute; the executed
#                              notebooks are left in DIR as pages
set -euo pipefail
cd "$(dirname "$0")/.."
DIR=$(realpath -m "${BRUNT_TOOLS:-${CARGO_TARGET_DIR:-target}/tools}/notebook")
NBCONVERT=7.17.2 IPYKERNEL=7.4.0 MATPLOTLIB=3.11.2 PYARROW=26.0.1
MARK=$DIR/versions-$NBCONVERT-$IPYKERNEL-$MATPLOTLIB-$PYARROW

ready() { [ -e "$MARK" ]; }

case ${1:-} in
  --prepare)
    ready && exit
    rm -rf "$DIR"; mkdir -p "$(dirname "$DIR")"
    python3 -m venv "$DIR"
    "$DIR/bin/pip" install --quiet --disable-pip-version-check \
      "nbconvert==$NBCONVERT" "ipykernel==$IPYKERNEL" "matplotlib==$MATPLOTLIB" "pyarrow==$PYARROW"
    touch "$MARK"; exit ;;
  --ready) ready; exit ;;
  -*) sed -n '2,8p' "$0"; exit 2 ;;
esac
ready || { echo "first: tools/notebook.sh --prepare"; exit 2; }
BRUNT=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/debug/brunt}")
NOTEBOOK=examples/notebooks/storage-questions.ipynb
"$DIR/bin/python" - "$NOTEBOOK" <<'PYTHON'
import json, sys
if any(cell.get("outputs") for cell in json.load(open(sys.argv[1]))["cells"]):
    sys.exit(f"{sys.argv[1]} has outputs: they are made, not kept")
PYTHON

work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cat > "$work/depths.toml" <<'TOML'
name = "depths"
repetitions = 3
[targets.nothing]
url = "null:1GiB"
[workloads.mixed]
blocks = [{ size = "4k" }]
read = 0.5
stop = { requests = 1000 }
[sweep]
queue_depth = [1, 4]
TOML
# One setting, one run, with a fault and a record of every request.
cat > "$work/stall.toml" <<'TOML'
name = "stall"
repetitions = 1
[targets.san]
serve = "memory:16MiB?delay=const:200us"
[workloads.closed]
interval = "50ms"
record_requests = true
stop = { time = "1s" }
[[fault]]
target = "san"
freeze = true
at = "300ms"
for = "300ms"
TOML
for name in depths stall; do
  "$BRUNT" --json run "$work/$name.toml" --out "$work/$name.results" > "$work/run.json"
done
for version in 3 4; do
  name=depths; [ "$version" = 3 ] || name=stall
  "$BRUNT" --json capture -r "testdata/nfs$version-small.pcap.zst" --out "$work/trace$version" > "$work/capture.json"
  "$BRUNT" --json analyze "$work/trace$version" > "$work/report$version.json"
  TRACE=$work/trace$version RESULTS=$work/$name.results REPORT=$work/report$version.json \
    PYTHONPATH=$PWD/python/src PYTHONDONTWRITEBYTECODE=1 IPYTHONDIR=$work/ipython MPLCONFIGDIR=$work/matplotlib \
    "$DIR/bin/python" -m nbconvert --execute --to html --log-level WARN \
    --output-dir "$work" --output "nfs$version" "$NOTEBOOK"
done
[ $# -lt 2 ] || cp "$work"/nfs?.html "$2"
