#!/bin/bash
# Reproduces Figure 3 of the SPEK paper: random writes of 16 KiB over time, through the page cache (like IoMeter's) and
# past it (like SPEK's), to a disk that is slow enough for the cache to matter. Linux runs in QEMU
# (tools/kernel-initiator.sh) with half a gigabyte of memory; its disk is one of our LUNs with the service time of the
# paper's disk (15,000 rpm, average seek 4.2 ms); `brunt run` generates the load, in the guest. The guest is emulated,
# but at a few hundred writes per second it mostly waits for the disk.
#
#   over-page-cache.sh OUT [RUNS [SECONDS [RAMP_UP]]]     writes OUT/over-time.json; default: 3 runs of 40 s each way, 6 minutes
#
# Each run begins with RAMP_UP seconds (10) that do not count, in which the cache fills. Variables: BRUNT (the program,
# dynamic or static), and those of kernel-initiator.sh. Run tools/kernel-initiator.sh --prepare first.
set -euo pipefail
[ "${1:-}" != --prepare ] || exit 0
[ $# -gt 0 ] || { sed -n '2,11p' "$0"; exit 2; }
cd "$(dirname "$0")/.."
BRUNT=$(realpath "${BRUNT:-target/release/brunt}")
OUT=$(realpath -m "$1") RUNS=${2:-3} SECONDS_EACH=${3:-40} RAMP_UP=${4:-10}
NAME=iqn.2026-11.io.brunt:paper-disk
tools/kernel-initiator.sh --ready || { echo "run tools/kernel-initiator.sh --prepare first" >&2; exit 125; }
mkdir -p "$OUT"
work=$(mktemp -d); target=
trap '[ -z "$target" ] || kill "$target"; rm -rf "$work"' EXIT

"$BRUNT" target --name "$NAME" --portal 127.0.0.1:0 \
  --lun 'null:4GiB?delay=disk:55MB/s-39MB/s,seek=600us-7400us,rpm=15000,zones=16' >"$work/target" 2>"$work/target.err" &
target=$!
for _ in $(seq 100); do [ -s "$work/target" ] && break; sleep .1; done
port=$(head -1 "$work/target"); port=${port##*:}
[ -n "$port" ] || { cat "$work/target.err" >&2; exit 1; }

# The program without symbols, because the guest unpacks it into half of its memory, and those of its libraries that the guest
# may lack.
strip -o "$work/brunt" "$BRUNT"
files=("$work/brunt")
for library in libgcc_s.so.1 libm.so.6; do
  path=$(ldd "$BRUNT" 2>/dev/null | awk -v name="$library" '$1 == name { print $3 }')
  [ -z "$path" ] || files+=("$path")
done

printf 'NAME=%s PORT=%s RUNS=%s SECONDS_EACH=%s RAMP_UP=%s\n' "$NAME" "$port" "$RUNS" "$SECONDS_EACH" "$RAMP_UP" >"$work/script"
cat >>"$work/script" <<'GUEST'
set -e
export LD_LIBRARY_PATH=/
iscsid
iscsiadm -m node -T "$NAME" -p "10.0.2.2:$PORT" -o new >/dev/null
iscsiadm -m node -T "$NAME" -p "10.0.2.2:$PORT" --login >/dev/null
for i in $(seq 300); do [ -b /dev/sda ] && break; sleep .1; done
# force: for a moment after a run, the kernel still holds what its ring had open.
experiment() {
  cat <<TOML
name = "random writes over time"
repetitions = 1
[probes]
interval = "0ms"
[targets.$1]
url = "file:/dev/sda?force=yes$2"
[workloads.random-write]
read = 0.0
blocks = [{ size = "16k" }]
align = "16k"
queue_depth = 4
interval = "1s"
ramp_up = { time = "${RAMP_UP}s" }
stop = { time = "${SECONDS_EACH}s" }
TOML
}
experiment page-cache '&direct=no' >/tmp/page-cache.toml
experiment below-it '' >/tmp/below-it.toml
for run in $(seq "$RUNS"); do
  for how in page-cache below-it; do
    /brunt run /tmp/$how.toml --out /tmp/$how.$run >/tmp/said 2>&1 || { cat /tmp/said; exit 1; }
    # Don't leave data in the cache for the next run.
    sync
    echo "report $how $run"
    gzip -c /tmp/$how.$run/report.html | base64
    echo "end"
    rm -rf /tmp/$how.$run
  done
done
iscsiadm -m node -T "$NAME" -p "10.0.2.2:$PORT" --logout >/dev/null
GUEST
BRUNT_GUEST_SECONDS=${BRUNT_GUEST_SECONDS:-1800} tools/kernel-initiator.sh "$work/script" "${files[@]}" |
  tr -d '\r' >"$work/said" || { grep -v '^[A-Za-z0-9+/=]\{70,\}$' "$work/said" >&2; exit 1; }
python3 tools/lib/over-time.py "$work/said" "$OUT/over-time.json"
