#!/bin/bash
# Measures the cost of queries on a lake of 1, 10 and 100 times a trace's size: docs/scale.md has the results. Not part
# of CI: it takes up to 17 GB and tens of minutes.
#
#   lake-scale.sh CAPTURE FOLDER [ROWS]   a packet file, a folder for the lakes (removed at the end), and the rows of the
#                                         largest lake (default 2000000000)
#
# BRUNT is the program (target/release/brunt). Run tools/table-formats.sh --prepare first.
set -euo pipefail
# tools/table-formats.sh prepares what this needs.
[ "${1:-}" != --prepare ] || exit 0
[ $# -ge 2 ] || { sed -n '2,8p' "$0"; exit 2; }
capture=$(realpath "$1"); mkdir -p "$2"; folder=$(realpath "$2"); rows=${3:-2000000000}
cd "$(dirname "$0")/.."
bash tools/table-formats.sh --ready || { echo "first: tools/table-formats.sh --prepare"; exit 2; }
DIR=$(realpath -m "${BRUNT_TOOLS:-${CARGO_TARGET_DIR:-target}/tools}")/table-formats
BRUNT=$(realpath "${BRUNT:-${CARGO_TARGET_DIR:-target}/release/brunt}")
export BRUNT_PYTHON=$DIR/duckdb/bin/python SPARK_LOCAL_IP=127.0.0.1 SPARK_LOCAL_DIRS=$folder/spark PYTHONWARNINGS=ignore
DELTA_JARS=$(printf ',%s' "$DIR"/jars/*.jar); export DELTA_JARS=${DELTA_JARS#,}
trap 'rm -rf "$folder"' EXIT

uptime
"$BRUNT" capture --read "$capture" --out "$folder/trace" >/dev/null
lakes=()
for size in $((rows / 100)) $((rows / 10)) "$rows"; do
  lake=$folder/lake-$size; lakes+=("$lake")
  echo "== $size rows"
  "$BRUNT" lake repeat "$folder/trace" --rows "$size" --out "$lake"
  "$BRUNT" lake manifest "$lake" >"$folder/manifest"
  du -sh "$lake"
done

# The file with the most operations, and the middle of the smallest lake, which all lakes have.
answer() { python3 -c 'import json, sys; print(list(json.load(sys.stdin)["rows"][0].values())[0])'; }
file=$("$BRUNT" sql --json "$folder/trace" \
  'SELECT file FROM operations WHERE file IS NOT NULL GROUP BY file ORDER BY count(*) DESC, file LIMIT 1' | answer)
from=$("$BRUNT" sql --json "${lakes[0]}" \
  'SELECT CAST(min(request_first_ns) / 2 + max(request_first_ns) / 2 AS BIGINT) AS at FROM operations' | answer)
from=$((from / 1000000000 * 1000000000))

ask() { "$2" tools/lake-scale.py "$1" "$file" "$from" "${lakes[@]}" 2>"$folder/log" || tail -5 "$folder/log"; }
echo "== duckdb"; ask duckdb "$DIR/duckdb/bin/python"
echo "== sail, in one process"; ask sail "$DIR/spark/bin/python"
for executors in 1 2; do
  # With fewer slots than a stage has tasks, Sail waits forever.
  echo "== sail, $executors workers"
  SAIL_MODE=local-cluster SAIL_CLUSTER__WORKER_INITIAL_COUNT=$executors SAIL_CLUSTER__WORKER_MAX_COUNT=$executors \
    SAIL_CLUSTER__WORKER_TASK_SLOTS=32 ask sail "$DIR/spark/bin/python"
done
for executors in 1 2; do
  echo "== spark, $executors executors of one core"
  SPARK_MASTER="local-cluster[$executors,1,1024]" ask spark "$DIR/spark/bin/python"
done
uptime
