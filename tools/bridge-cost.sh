#!/bin/bash
# Measures the cost and the throughput of Brunt's bridge, compared with the kernel's own bridge. Two hosts in network
# namespaces, whose links (veth) are bridged here by each contestant in turn, round by round. Needs root, iproute2,
# iputils-ping, iperf3.
#
#   bridge-cost.sh [ROUNDS [BRUNT...]]      default: 6 rounds of $BRUNT (default: brunt) and the kernel's bridge;
#                                         $BENCH sends (default: brunt-bench next to the first program)
#
# Prints one line per contestant with medians over its rounds: the round trip in microseconds of a lone ping, median and
# p99 (400 pings, 5 ms apart, so that the forwarding thread has gone to sleep); frames of 60 and of 1514 bytes per second that
# arrive when more are sent (as raw frames that no stack processes), and nanoseconds of CPU time per frame of the bridge's
# thread (- for the kernel's, which works on the sender's account); and Gb/s of one TCP connection, with segmentation offload.
# The ratios next to them are relative to the kernel's in the same round.
set -euo pipefail
[ "${1:-}" != --prepare ] || exit 0
if [ "${BRIDGE_COST_INSIDE:-}" != 1 ]; then
  BRIDGE_COST_INSIDE=1 exec unshare -nmpf --kill-child --mount-proc "$0" "$@"
fi
ROUNDS=${1:-6}
programs=("${@:2}"); [ ${#programs[@]} -gt 0 ] || programs=("${BRUNT:-brunt}")
BENCH=${BENCH:-$(dirname "$(command -v "${programs[0]}")")/brunt-bench}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir -p /run/netns; mount -t tmpfs none /run/netns

for host in a b; do ip netns add $host; done
ip link add in0 type veth peer name a0 netns a; ip link add out0 type veth peer name b0 netns b
for name in in0 out0; do echo 1 >/proc/sys/net/ipv6/conf/$name/disable_ipv6; ip link set $name up; done
A() { ip netns exec a "$@"; }; B() { ip netns exec b "$@"; }
number=1
for host in a b; do
  ip netns exec $host sh -c "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6
    ip link set lo up; ip addr add 10.9.0.$number/24 dev ${host}0; ip link set ${host}0 up"
  number=2
done
B iperf3 -s -D >/dev/null

# A pcap file with 64 frames of this size, of a type that no stack knows.
frame() {
  printf '\xd4\xc3\xb2\xa1\x02\x00\x04\x00\0\0\0\0\0\0\0\0\x00\x00\x04\x00\x01\0\0\0'
  for _ in $(seq 64); do
    printf "\\0\\0\\0\\0\\0\\0\\0\\0\\x$(printf %02x $(($1 % 256)))\\x$(printf %02x $(($1 / 256)))\\0\\0"
    printf "\\x$(printf %02x $(($1 % 256)))\\x$(printf %02x $(($1 / 256)))\\0\\0"
    printf '\x02\0\0\0\0\x09\x02\0\0\0\0\x01\x88\xb5'; head -c $(($1 - 14)) /dev/zero
  done
}
for bytes in 60 1514; do frame $bytes >"$work/$bytes.pcap"; done

began() { # contestant
  if [ "$1" = kernel ]; then
    ip link add br0 type bridge; ip link set br0 up
    for name in in0 out0; do ip link set $name master br0; done
    return
  fi
  "$1" bridge in0 out0 >"$work/said" 2>&1 & bridge=$!
  for _ in $(seq 600); do grep -q bridging "$work/said" && break; sleep .05; done
  for task in /proc/$bridge/task/*; do [ "$(cat "$task/comm")" != bridge ] || thread=$task; done
}
ended() {
  if [ "$1" = kernel ]; then ip link del br0; return; fi
  kill -INT $bridge; wait $bridge || { cat "$work/said" >&2; exit 1; }
}
busy() { [ "$1" = kernel ] && echo 0 || cut -d' ' -f1 "$thread/schedstat"; }

# Measures a contestant; prints its figures in one line.
measure() {
  local before after nanos figures
  for _ in $(seq 50); do A ping -c 1 -W 1 10.9.0.2 >/dev/null && break; done
  figures=$(A ping -c 400 -i 0.005 10.9.0.2 | sed -n 's/.*time=\([0-9.]*\) ms.*/\1/p' | sort -n |
    awk '{ t[NR] = $1 * 1000 } END { print t[int(NR / 2)], t[int(NR * .99)] }')
  for bytes in 60 1514; do
    before=$(B cat /sys/class/net/b0/statistics/rx_packets); nanos=$(busy "$1")
    A "$BENCH" capture "$work/$bytes.pcap" --replay a0 --for 2s >/dev/null
    nanos=$(($(busy "$1") - nanos)); after=$(B cat /sys/class/net/b0/statistics/rx_packets)
    figures+=" $(((after - before) / 2)) $((nanos / (after - before)))"
  done
  echo "$figures $(A iperf3 -c 10.9.0.2 -t 2 -J | awk '/"sum_received"/ { on = 1 } on && /bits_per_second/ { gsub(",", ""); print $2 / 1e9; exit }')"
}

for ((round = 0; round < ROUNDS; round++)); do
  for contestant in kernel "${programs[@]}"; do
    began "$contestant"; echo "$contestant $round $(measure "$contestant")" >>"$work/all"; ended "$contestant"
  done
done

awk '
  function median(list, count,   i, j, t) {
    for (i = 2; i <= count; i++) for (j = i; j > 1 && list[j] < list[j - 1]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
    return count % 2 ? list[(count + 1) / 2] : (list[count / 2] + list[count / 2 + 1]) / 2
  }
  BEGIN { split("ping_p50_us ping_p99_us small_per_s small_ns large_per_s large_ns tcp_gbit", names) }
  { if (!($1 in seen)) { seen[$1] = 1; order[++contestants] = $1 } rounds[$1]++
    for (i = 1; i <= 7; i++) value[$1, i, rounds[$1]] = $(i + 2) }
  END {
    for (c = 1; c <= contestants; c++) {
      who = order[c]; line = who
      for (i = 1; i <= 7; i++) {
        for (r = 1; r <= rounds[who]; r++) {
          list[r] = value[who, i, r]; base = value["kernel", i, r]; ratios[r] = base ? list[r] / base : 0
        }
        m = median(list, rounds[who]); q = median(ratios, rounds[who])
        line = line " " names[i] "=" (who == "kernel" && (i == 4 || i == 6) ? "-" : sprintf("%.4g", m))
        if (who != "kernel" && i != 4 && i != 6) line = line sprintf("(%.2f)", q)
      }
      print line
    }
  }' "$work/all"
