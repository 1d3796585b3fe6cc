#!/bin/bash
# Records fio's requests to a LUN over iSCSI, live on a lab's link, and replays the record on another target.
# docs/capture-replay.md walks through the steps. No root needed.
#
#   capture-replay.sh [SECONDS [FOLDER [OPTION...]]]     runs fio for SECONDS (default 10); the record, fio's own figures and
#                                                        the output of each step go to FOLDER (default: a new one in
#                                                        /tmp); options are those of `brunt replay`
#
# BRUNT is the program. Needs fio with its nbd engine, and qemu-nbd with iSCSI (Debian: fio, qemu-utils, qemu-block-extra).
# The exit status is that of the replay: 0 if it was true or degraded, 1 if it was not a replay.
set -euo pipefail
[ "${1:-}" != --prepare ] || exit 0
cd "$(dirname "$0")/.."
BRUNT=$(realpath "${BRUNT:-target/release/brunt}")
seconds=${1:-10} out=$(realpath -m "${2:-$(mktemp -d)}")
shift $(($# < 2 ? $# : 2))
mkdir -p "$out"
lab=record-$$
on() { local host=$1; shift; "$BRUNT" lab exec "$lab" "$host" -- "$@"; }
# Waits until a command succeeds, for 20 seconds.
until_true() { for _ in $(seq 200); do "$@" && return; sleep .1; done; echo "gave up waiting: $*" >&2; return 1; }

"$BRUNT" lab up examples/record.toml --name "$lab" >"$out/lab.txt"
trap '"$BRUNT" lab down "$lab" >>"$out/lab.txt" 2>&1 || true' EXIT

# 1. Record. A link carries packets over one of two devices (docs/lab.md); capture on both.
on server "$BRUNT" capture -i link0 -i straight0 --for $((seconds + 8))s --out "$out/trace" >"$out/capture.txt" 2>&1 &
capture=$!
until_true grep -q "capturing on" "$out/capture.txt"

# 2. The load to record: fio on the array's LUN. QEMU's initiator logs in and passes requests on one by one.
socket=$(mktemp -u)
on client sh -c 'exec qemu-nbd --format raw --cache none --persistent --socket "$0" "$BRUNT_TARGET_ARRAY"' "$socket" \
  >"$out/nbd.txt" 2>&1 &
until_true test -S "$socket"
on client fio --name=database --ioengine=nbd --uri="nbd+unix:///?socket=$socket" --size=64M --iodepth=8 \
  --rw=randrw --rwmixread=70 --bssplit=4k/50:8k/30:64k/20 --rate_iops=210,90 --rate_process=poisson --fsync=32 \
  --time_based --runtime="$seconds" --output-format=json --output="$out/fio.json"
wait "$capture"
"$BRUNT" trace info "$out/trace" >"$out/info.txt"

# 3. Replay on the candidate, over the same network.
on client sh -c 'exec "$0" replay "$@" "$BRUNT_TARGET_CANDIDATE"' "$BRUNT" "$out/trace" "$@"
