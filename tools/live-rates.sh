#!/bin/bash
# Measures the packet rate at which a live capture starts to drop packets, with AF_PACKET and with AF_XDP: a capture
# file is sent over a pair of virtual interfaces in a separate network namespace. Needs root (for AF_XDP).
#
#   live-rates.sh FILE [ROUNDS [GBIT...]]   default: 20 rounds as fast as the sender can
#
# Prints the sent, seen and dropped packets for each rate and source; the sources take turns. Fails if packets are
# unaccounted for. BRUNT is the program (default: brunt), BENCH the sender (default: brunt-bench next to it).
set -euo pipefail
[ "${1:-}" != --prepare ] || exit 0
FILE=${1:?a capture file} ROUNDS=${2:-20}
. "$(dirname "$0")/lib/wire.sh"
on_own_wire -n "$@"

RATES=("${@:3}")
for rate in "${RATES[@]:-unlimited}"; do
  limit=(); [ "$rate" = unlimited ] || limit=(--rate "$rate")
  for source in packet xdp; do
    start_capture --source $source
    "$BENCH" --json capture "$FILE" --replay v0 --times "$ROUNDS" "${limit[@]}" >"$work/sent"
    sleep .5; end_capture
    echo "$source at $rate: $(number gbit_per_s "$work/sent") Gb/s, sent $sent, seen $seen, dropped $dropped"
    all_accounted
  done
done
