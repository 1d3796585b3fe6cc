# Sourced by the tools that compare a live capture with the packets sent: a link of two virtual interfaces in a new
# network namespace, v0 to send on and v1 to capture from. BRUNT is the program, BENCH the sender (brunt-bench, by
# default the one next to it).
BRUNT=${BRUNT:-brunt} BENCH=${BENCH:-$(dirname "$(command -v "${BRUNT:-brunt}")")/brunt-bench}

# on_own_wire OPTION "$@": restarts the tool in a namespace made by `unshare OPTION`, and creates the link there.
# $work is a folder that is removed when the tool ends.
on_own_wire() {
  [ -n "${ON_OWN_WIRE:-}" ] || ON_OWN_WIRE=1 exec unshare "$1" bash "$0" "${@:2}"
  work=$(mktemp -d); trap 'kill $(jobs -p) 2>/dev/null || :; rm -rf "$work"' EXIT
  echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
  ip link set lo up
  ip link add v0 mtu 9000 type veth peer name v1 mtu 9000
  ip link set v0 arp off up; ip link set v1 arp off up
}

# start_capture OPTION...: starts process $capture; returns once it is capturing. Its messages are in $work/notes.
start_capture() {
  "$BRUNT" --json capture -i v1 --plain "$@" >"$work/report" 2>"$work/notes" & capture=$!
  for _ in $(seq 200); do grep -q "^brunt: capturing" "$work/notes" && break; sleep .05; done
}

# end_capture: ends it and counts packets: $sent (as reported by the sender in $work/sent), $seen and $dropped.
end_capture() {
  kill -INT $capture; wait $capture
  sed -n '/"ledger"/,$p' "$work/report" >"$work/ledger"
  sent=$(number packets "$work/sent") seen=$(number packets "$work/ledger")
  dropped=$(number packets_dropped "$work/ledger")
}

# all_accounted: fails if a sent packet was neither seen nor dropped.
all_accounted() { [ $((seen + dropped)) = "$sent" ] || { echo "packets are unaccounted for"; exit 1; }; }

# number KEY FILE: the first number with this key in a JSON file.
number() { grep -m1 "^ *\"$1\":" "$2" | tr -dc 0-9.; }
