#!/bin/bash
# How fast packets may come before a live capture drops some, by AF_PACKET and by AF_XDP: a capture file is
# sent over a pair of virtual interfaces in a network namespace of its own. Needs root (for AF_XDP).
#
#   live-rates.sh FILE [ROUNDS [GBIT...]]   default: 20 rounds as fast as the sender can
#
# Prints for each rate and source what was sent, seen and dropped; the sources take turns. Fails when packets
# are unaccounted for. BRUNT names the program (default: brunt), BENCH
# the sender (default: brunt-bench next to it).
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
