#!/bin/bash
# How fast packets may come before a live capture drops some, by AF_PACKET and by AF_XDP: a capture file is
# sent over a pair of virtual interfaces in a network namespace of its own. Needs root (for AF_XDP).
#
#   live-rates.sh FILE [ROUNDS [GBIT...]]   default: 20 rounds as fast as the sender can
#
# Prints for each rate and source what was sent, seen and dropped; the sources take turns. Fails when packets
# are unaccounted for. BRUNT names the program (default: brunt).
set -euo pipefail
[ "${1:-}" != --prepare ] || exit 0
FILE=$(realpath "${1:?a capture file}") ROUNDS=${2:-20}
shift; shift || :
RATES=${*:-}
BRUNT=$(realpath "$(command -v "${BRUNT:-brunt}")")
export FILE ROUNDS RATES BRUNT
exec unshare -n bash -euo pipefail -c '
  work=$(mktemp -d); trap "kill \$(jobs -p) 2>/dev/null || :; rm -rf $work" EXIT
  echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
  ip link set lo up
  ip link add v0 mtu 9000 type veth peer name v1 mtu 9000
  ip link set v0 arp off up; ip link set v1 arp off up
  number() { grep -m1 "^ *\"$1\":" $2 | tr -dc 0-9.; }
  ledger() { sed -n "/\"ledger\"/,\$p" $work/report >$work/ledger; number $1 $work/ledger; }
  for rate in ${RATES:-unlimited}; do
    limit=(); [ $rate = unlimited ] || limit=(--rate $rate)
    for source in packet xdp; do
      "$BRUNT" --json capture -i v1 --plain --source $source >$work/report 2>$work/notes & capture=$!
      for i in $(seq 200); do grep -q "^brunt: capturing" $work/notes && break; sleep .05; done
      "$BRUNT" --json bench capture "$FILE" --replay v0 --times $ROUNDS "${limit[@]}" >$work/sent
      sleep .5; kill -INT $capture; wait $capture
      sent=$(number packets $work/sent) seen=$(ledger packets) dropped=$(ledger packets_dropped)
      echo "$source at $rate: $(number gbit_per_s $work/sent) Gb/s, sent $sent, seen $seen, dropped $dropped"
      [ $((seen + dropped)) = "$sent" ] || { echo "packets are unaccounted for"; exit 1; }
    done
  done
'
