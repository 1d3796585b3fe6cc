#!/bin/bash
# Captures live for a long time over a pair of virtual interfaces in a separate network namespace, while a capture file
# is sent repeatedly, and monitors the capture's memory. Needs no root.
#
#   soak-capture.sh FILE [MINUTES [GBIT]]   default: 10 minutes at 2 Gb/s
#
# Prints memory and backlog every ten seconds. Fails if packets are unaccounted for, or if memory grows by more than a
# tenth after the first minute. BRUNT is the program (default: brunt), BENCH the sender (default: brunt-bench next to it).
set -euo pipefail
[ "${1:-}" != --prepare ] || exit 0
FILE=${1:?a capture file} MINUTES=${2:-10} GBIT=${3:-2}
. "$(dirname "$0")/lib/wire.sh"
on_own_wire -rn "$@"

start_capture --metrics 127.0.0.1:0
url=$(sed -n "s/^brunt: metrics at //p" "$work/notes")
"$BENCH" --json capture "$FILE" --replay v0 --for "${MINUTES}m" --rate "$GBIT" >"$work/sent" & sender=$!
value() { awk -v name="$1" 'index($1, name) == 1 { sum += $2 } END { printf "%.0f", sum }' "$work/page"; }
first=0 most=0
end=$((SECONDS + MINUTES * 60))
while [ $SECONDS -lt $end ] && kill -0 $sender 2>/dev/null; do
  sleep 10
  rss=$(awk '/^VmRSS/ { print $2 }' /proc/$capture/status)
  curl -s "$url" >"$work/page" || :
  echo "$SECONDS s: resident $((rss / 1024)) MiB, kept $(value brunt_capture_kept_bytes) B," \
    "queued $(value brunt_capture_queued_parcels), open calls $(value brunt_capture_calls_open)," \
    "packets $(value brunt_capture_packets_total), dropped $(value brunt_capture_packets_dropped_total)"
  [ $SECONDS -lt 60 ] || [ $first != 0 ] || first=$rss
  [ "$rss" -le $most ] || most=$rss
done
wait $sender; sleep 1; end_capture
echo "sent $sent, seen $seen, dropped $dropped; resident after a minute $((first / 1024)) MiB, at most $((most / 1024)) MiB"
all_accounted
[ $first = 0 ] || [ $((most * 10)) -le $((first * 11)) ] || { echo "memory grew"; exit 1; }
