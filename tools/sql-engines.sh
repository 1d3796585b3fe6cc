#!/bin/bash
# Runs every analysis of `brunt sql` in DuckDB, in Sail in one process, in Sail as a cluster of two workers, and in Spark as a
# cluster of two executors; also sketches, which Sail and Spark merge. DuckDB is compared with `brunt analyze`, the others with
# DuckDB, byte for byte (crates/brunt/tests/it/sql).
#
#   sql-engines.sh --prepare   fetch Sail, Spark and their clients (network; some 600 MB, a minute or two)
#   sql-engines.sh --ready     exit 0 when prepared
#   sql-engines.sh             start the servers, run the tests, stop the servers: several minutes on two cores
#   sql-engines.sh COMMAND…    the same with another command; BRUNT_SQL_SERVERS has ADDRESS=PYTHON of each server
#   sql-engines.sh --sail …    any of these with Sail in one process only, without Spark
#
# Spark needs Java 17 or later (Debian: default-jre-headless).
set -euo pipefail
cd "$(dirname "$0")/.."
TOOLS=$(realpath -m "${BRUNT_TOOLS:-${CARGO_TARGET_DIR:-target}/tools}")
DIR=$TOOLS/sql-engines
# Sail works with clients of version 4.1, this Spark with clients of its own version.
SAIL=0.7.2 SAIL_CLIENT=4.1.1 SPARK=4.3.0
with_spark=1
if [ "${1:-}" = --sail ]; then with_spark=; shift; fi
MARK=$DIR/sail/versions-$SAIL-$SAIL_CLIENT SPARK_MARK=$DIR/spark/version-$SPARK

ready() { [ -e "$MARK" ] && { [ -z "$with_spark" ] || [ -e "$SPARK_MARK" ]; }; }

# environment FOLDER MARK PACKAGE...: creates the Python environment FOLDER unless it exists.
environment() {
  [ ! -e "$2" ] || return 0
  rm -rf "$1"; mkdir -p "$DIR"
  python3 -m venv "$1"
  "$1/bin/pip" install --quiet --disable-pip-version-check "${@:3}"
  touch "$2"
}

prepare() {
  environment "$DIR/sail" "$MARK" "pysail==$SAIL" "pyspark-client==$SAIL_CLIENT"
  [ -z "$with_spark" ] || environment "$DIR/spark" "$SPARK_MARK" "pyspark[connect]==$SPARK"
}

case ${1:-} in
  --prepare) prepare; exit ;;
  --ready) ready; exit ;;
  -*) sed -n '2,12p' "$0"; exit 2 ;;
esac
ready || { echo "first: tools/sql-engines.sh --prepare"; exit 2; }
[ -z "$with_spark" ] || java -version 2>/dev/null || { echo "Spark needs Java (Debian: default-jre-headless)"; exit 2; }

work=$(mktemp -d); servers=()
# Each server has its own process group, including everything that it starts.
end() { for server in "${servers[@]}"; do kill -- "-$server" 2>/dev/null || :; done; wait || :; rm -rf "$work"; }
trap end EXIT

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# start NAME PORT COMMAND…: starts a server and waits until it listens.
start() {
  local name=$1 port=$2; shift 2
  setsid "$@" >"$work/$name.log" 2>&1 </dev/null & servers+=($!)
  for _ in $(seq 600); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return
    kill -0 "${servers[-1]}" 2>/dev/null || break
    sleep .5
  done
  echo "$name does not listen"; tail -20 "$work/$name.log"; exit 1
}

sail_port=$(free_port)
start sail "$sail_port" "$DIR/sail/bin/sail" spark server --port "$sail_port"
if [ -n "$with_spark" ]; then
  # Its workers listen and accept connections like those on other machines.
  cluster_port=$(free_port)
  start cluster "$cluster_port" env SAIL_MODE=local-cluster SAIL_CLUSTER__WORKER_INITIAL_COUNT=2 \
    SAIL_CLUSTER__WORKER_MAX_COUNT=2 SAIL_CLUSTER__WORKER_TASK_SLOTS=32 \
    "$DIR/sail/bin/sail" spark server --port "$cluster_port"
  spark_port=$(free_port)
  home=$("$DIR/spark/bin/python" -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')
  mkdir "$work/spark"
  # Two executors of one core and 1 GiB each, as separate processes. The thorough compiler of Java takes more time for these
  # small tables than its code saves: without it, six analyses took 62 s instead of 134 s.
  start spark "$spark_port" env JAVA_TOOL_OPTIONS=-XX:TieredStopAtLevel=1 SPARK_HOME="$home" SPARK_NO_DAEMONIZE=1 \
    SPARK_LOCAL_IP=127.0.0.1 SPARK_LOG_DIR="$work/spark" SPARK_PID_DIR="$work/spark" SPARK_WORKER_DIR="$work/spark" \
    SPARK_LOCAL_DIRS="$work/spark" PYSPARK_PYTHON="$DIR/spark/bin/python" bash "$home/sbin/start-connect-server.sh" \
    --master 'local-cluster[2,1,1024]' --driver-memory 1g --conf spark.ui.enabled=false \
    --conf spark.sql.shuffle.partitions=4 --conf spark.sql.warehouse.dir="$work/spark/warehouse" \
    --conf spark.connect.grpc.binding.address=127.0.0.1 --conf "spark.connect.grpc.binding.port=$spark_port"
fi

python=$DIR/sail/bin/python
BRUNT_SQL_SERVERS="127.0.0.1:$sail_port=$python"
[ -z "$with_spark" ] ||
  BRUNT_SQL_SERVERS+=" 127.0.0.1:$cluster_port=$python 127.0.0.1:$spark_port=$DIR/spark/bin/python"
export BRUNT_SQL_SERVERS
export BRUNT_REQUIRE_ALL=1 BRUNT_TOOLS=$TOOLS
if [ $# -gt 0 ]; then
  "$@"
else
  bash tools/duckdb.sh --prepare
  cargo test --workspace --test it sql:: -- --nocapture --test-threads 3
fi
