#!/bin/bash
# Checks that DuckDB, Spark and Sail read the Delta Lake logs written by `brunt lake manifest`: all give the same
# answers, as do `brunt sql` without the logs and the engines with the catalog's list of parts.
# The queries run after a first version, and again after parts were added and removed, from a checkpoint: the versions
# before it are deleted, as by Delta's own cleanup.
#
#   table-formats.sh --prepare   fetch DuckDB with its extension, Spark with Delta's jars, and Sail (network; some 700 MB)
#   table-formats.sh --ready     exit 0 when prepared
#   table-formats.sh             build the lakes and query them: a minute or two on two cores
#   table-formats.sh --duckdb …  any of these with DuckDB and brunt sql only
#
# BRUNT is the program (target/debug/brunt). Spark needs Java 17 or later (Debian: default-jre-headless), and preparing needs
# Maven (Debian: maven).
set -euo pipefail
cd "$(dirname "$0")/.."
TOOLS=$(realpath -m "${BRUNT_TOOLS:-${CARGO_TARGET_DIR:-target}/tools}")
DIR=$TOOLS/table-formats
# PyPI has DuckDB's extensions only up to this version. Delta 4.1 is for Spark 4.1, whose clients also work with Sail.
DUCKDB=1.5.5 SPARK=4.1.1 DELTA=4.1.0 SAIL=0.7.2
with_spark=1
if [ "${1:-}" = --duckdb ]; then with_spark=; shift; fi
MARK=$DIR/version-$DUCKDB SPARK_MARK=$DIR/versions-$SPARK-$DELTA-$SAIL

ready() { [ -e "$MARK" ] && { [ -z "$with_spark" ] || [ -e "$SPARK_MARK" ]; }; }

prepare() {
  [ -e "$MARK" ] || prepare_duckdb
  [ -z "$with_spark" ] || [ -e "$SPARK_MARK" ] || prepare_spark
}

prepare_duckdb() {
  rm -rf "$DIR/duckdb"; mkdir -p "$DIR"
  python3 -m venv "$DIR/duckdb"
  "$DIR/duckdb/bin/pip" install --quiet --disable-pip-version-check "duckdb==$DUCKDB" "duckdb-extension-delta==$DUCKDB"
  touch "$MARK"
}

prepare_spark() {
  rm -rf "$DIR/spark" "$DIR/jars"
  python3 -m venv "$DIR/spark"
  "$DIR/spark/bin/pip" install --quiet --disable-pip-version-check "pyspark[connect]==$SPARK" "pysail==$SAIL"
  cat >"$DIR/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>none</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>io.delta</groupId><artifactId>delta-spark_${SPARK%.*}_2.13</artifactId><version>$DELTA</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
    <dependency>
      <groupId>io.delta</groupId><artifactId>delta-storage</artifactId><version>$DELTA</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
    <dependency>
      <groupId>io.unitycatalog</groupId><artifactId>unitycatalog-client</artifactId><version>0.4.0</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
  </dependencies>
</project>
POM
  mvn --quiet --batch-mode --file "$DIR/pom.xml" dependency:copy-dependencies "-DoutputDirectory=$DIR/jars"
  touch "$SPARK_MARK"
}

case ${1:-} in
  --prepare) prepare; exit ;;
  --ready) ready; exit ;;
  "") ;;
  *) sed -n '2,13p' "$0"; exit 2 ;;
esac
ready || { echo "first: tools/table-formats.sh --prepare"; exit 2; }
[ -z "$with_spark" ] || java -version 2>/dev/null || { echo "Spark needs Java (Debian: default-jre-headless)"; exit 2; }
BRUNT=$(realpath "${BRUNT:-${CARGO_TARGET_DIR:-target}/debug/brunt}")

work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
engines=()
if [ -n "$with_spark" ]; then
  engines=(spark sail)
  # Without Java's thorough compiler, as in sql-engines.sh.
  export JAVA_TOOL_OPTIONS=-XX:TieredStopAtLevel=1
  DELTA_JARS=$(printf ',%s' "$DIR"/jars/*.jar); export DELTA_JARS=${DELTA_JARS#,}
fi
export SPARK_LOCAL_IP=127.0.0.1 SPARK_LOCAL_DIRS=$work/local PYTHONWARNINGS=ignore

# ask ENGINE PYTHON LAKE: writes the engine's answers to a file with its name.
ask() {
  (cd "$work" && "$2" "$OLDPWD/tools/table-formats.py" "$1" "$3") >"$work/$1" 2>"$work/$1.log" ||
    { echo "$1 does not answer"; tail -20 "$work/$1.log"; exit 1; }
}

# judge LAKE WHAT
judge() {
  ask duckdb "$DIR/duckdb/bin/python" "$1"
  for engine in "${engines[@]}"; do
    ask "$engine" "$DIR/spark/bin/python" "$1"
    cmp "$work/duckdb" "$work/$engine" || { head -50 "$work/duckdb" "$work/$engine"; exit 1; }
  done
  # The same rows without any log, through the catalog.
  local expected logged
  expected=$(BRUNT_PYTHON="$DIR/duckdb/bin/python" "$BRUNT" sql --json "$1" \
    'SELECT count(*) AS a, count(latency_ns) AS b, CAST(sum(latency_ns) AS BIGINT) AS c, CAST(sum(record_id) AS BIGINT) AS d FROM operations' |
    python3 -c 'import json, sys; print([list(row.values()) for row in json.load(sys.stdin)["rows"]])')
  logged=$(python3 -c 'import json, sys; print(json.loads(sys.stdin.readline())[1])' <"$work/duckdb")
  [ "$expected" = "$logged" ] || { echo "$2: brunt sql has $expected, the log $logged"; exit 1; }
  echo "$2: ${engines[*]} duckdb and brunt sql agree: operations $logged"
}

zstd --quiet --decompress --stdout testdata/nfs3-small.pcap.zst >"$work/small.pcap"
"$BRUNT" capture --read "$work/small.pcap" --out "$work/one" >/dev/null
"$BRUNT" lake add "$work/lake" "$work/one" --tap one >/dev/null
"$BRUNT" lake manifest "$work/lake" >/dev/null
judge "$work/lake" "first version"
for tap in two three four five six seven eight nine ten eleven; do
  "$BRUNT" lake add "$work/lake" "$work/one" --tap $tap --duplicate >/dev/null
  "$BRUNT" lake manifest "$work/lake" >/dev/null
done
"$BRUNT" lake compact "$work/lake" --keep-old 0s >/dev/null
"$BRUNT" lake manifest "$work/lake" | grep '^operations .*version 11: 1 parts added, 11 removed'
grep --quiet '"dataChange":false' "$work"/lake/operations/_delta_log/*11.json
for log in "$work"/lake/*/_delta_log; do
  ! [ -e "$log/00000000000000000010.checkpoint.parquet" ] || rm "$log"/0000000000000000000?.json
done
judge "$work/lake" "from a checkpoint"
