# Sourced by the tools that hold a live capture against what was sent: a wire of two virtual interfaces in a
# network namespace of its own, v0 to send on and v1 to capture from. BRUNT names the program, BENCH the sender
# (brunt-bench, by default the one next to it).
BRUNT=${BRUNT:-brunt} BENCH=${BENCH:-$(dirname "$(command -v "${BRUNT:-brunt}")")/brunt-bench}

# on_own_wire OPTION "$@": starts the tool anew in a namespace that `unshare OPTION` makes, and lays the wire
# there. $work is a folder that goes when the tool does.
on_own_wire() {
  [ -n "${ON_OWN_WIRE:-}" ] || ON_OWN_WIRE=1 exec unshare "$1" bash "$0" "${@:2}"
  work=$(mktemp -d); trap 'kill $(jobs -p) 2>/dev/null || :; rm -rf "$work"' EXIT
  echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
  ip link set lo up
  ip link add v0 mtu 9000 type veth peer name v1 mtu 9000
  ip link set v0 arp off up; ip link set v1 arp off up
}

# start_capture OPTION...: process $capture; returns when it takes packets. What it says is in $work/notes.
start_capture() {
  "$BRUNT" --json capture -i v1 --plain "$@" >"$work/report" 2>"$work/notes" & capture=$!
  for _ in $(seq 200); do grep -q "^brunt: capturing" "$work/notes" && break; sleep .05; done
}

# end_capture: and counts packets: $sent (by the sender's answer, which is in $work/sent), $seen and $dropped.
end_capture() {
  kill -INT $capture; wait $capture
  sed -n '/"ledger"/,$p' "$work/report" >"$work/ledger"
  sent=$(number packets "$work/sent") seen=$(number packets "$work/ledger")
  dropped=$(number packets_dropped "$work/ledger")
}

# all_accounted: fails when a packet that was sent was neither seen nor dropped.
all_accounted() { [ $((seen + dropped)) = "$sent" ] || { echo "packets are unaccounted for"; exit 1; }; }

# number KEY FILE: the first number of that name in a JSON file.
number() { grep -m1 "^ *\"$1\":" "$2" | tr -dc 0-9.; }
