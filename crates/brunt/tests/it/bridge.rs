//! A bridge in the link between two namespaces: frames arrive unchanged, impairments are as configured, and the
//! interfaces are restored afterwards.

use crate::support;
use std::process::{Command, Stdio};

use crate::support::{TempDir, need, skip};
use serde_json::Value;

/// Runs a script in new network namespaces: a host `a` with `a0`, a host `b` with `b0`, and in the script's own
/// namespace the other ends of their links, `in0` and `out0`. `A` and `B` run a command on a host; `BRUNT` is the
/// program. `None` if this machine can't create them.
pub fn hosts(script: &str) -> Option<String> {
    for (program, package) in [
        ("unshare", "util-linux"),
        ("ip", "iproute2"),
        ("nsenter", "util-linux"),
    ] {
        need(program, package)?;
    }
    if script.contains(" ping ") {
        need("ping", "iputils-ping")?;
    }
    let setup = r#"set -e
        quiet() { echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6; }
        host() { # name, wire of this side
            mkfifo $WORK/$1; unshare -n sh -c "echo >$WORK/$1; exec sleep 600" & local pid=$!; echo $pid >$WORK/$1.pid
            read line <$WORK/$1
            ip link add $2 mtu 9000 type veth peer name ${1}0 mtu 9000 netns $pid
        }
        WORK=$(mktemp -d); export XDG_RUNTIME_DIR=$WORK; trap 'kill $(cat $WORK/*.pid) 2>/dev/null; rm -rf $WORK' EXIT
        A() { nsenter -n -t $(cat $WORK/a.pid) "$@"; }
        B() { nsenter -n -t $(cat $WORK/b.pid) "$@"; }
        quiet; host a in0; host b out0
        for side in A B; do
            $side sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; ip link set lo up'
        done
        ip link set in0 up; ip link set out0 up
        A ip addr add 10.9.0.1/24 dev a0; A ip link set a0 up
        B ip addr add 10.9.0.2/24 dev b0; B ip link set b0 up
        bridge() { # options...
            "$BRUNT" --json bridge in0 out0 "$@" >$WORK/report 2>$WORK/notes & BRIDGE=$!
            for i in $(seq 2400); do grep -q '^brunt: bridging' $WORK/notes && return; sleep .05; done
            cat $WORK/notes >&2; exit 1
        }
        received() { # host, interface, packets: waits until the interface has received this many
            for i in $(seq 2400); do
                [ $($1 awk "/$2:/ { print \$3 }" /proc/self/net/dev) -ge $3 ] && return; sleep .05
            done
            echo "$2 has not received $3 packets" >&2; exit 1
        }
        pings() { # count, size: each waits for its reply; a single ping would only wait briefly for the last ones
            for i in $(seq $1); do A ping -c 1 -W 60 -s $2 10.9.0.2; done
        }
        end() { kill -${1:-INT} $BRIDGE; wait $BRIDGE || { cat $WORK/notes >&2; exit 1; }; cat $WORK/report; }
        "#;
    // Root is needed because in a user namespace, the kernel doesn't grant the receive buffer that a bridge needs for
    // bursts.
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return None;
    }
    let run = |script: &str| {
        // Restore the default for SIGHUP: under nohup, everything started here would ignore it.
        let mut unshare = Command::new("env");
        unshare.args([
            "--default-signal=HUP",
            "unshare",
            "-npf",
            "--kill-child",
            "--mount-proc",
            "bash",
            "-c",
            script,
        ]);
        unshare
            .env("BRUNT", env!("CARGO_BIN_EXE_brunt"))
            .env("BENCH", support::bench_program())
            .stdin(Stdio::null())
            .output()
            .expect("unshare")
    };
    if !run(setup).status.success() {
        skip("network namespaces with veth");
        return None;
    }
    let output = run(&format!("{setup}{script}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(text)
}

/// The report of a bridge, which is the last thing that a script prints.
pub fn report(text: &str) -> Value {
    let start = text
        .find('{')
        .unwrap_or_else(|| panic!("a report in {text}"));
    serde_json::from_str(&text[start..]).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn count(report: &Value, way: &str, name: &str) -> u64 {
    report[way]["counts"][name]
        .as_u64()
        .unwrap_or_else(|| panic!("{way} {name}: {report}"))
}

/// Asserts that every packet is accounted for in each direction; returns the unintended losses. Packets still in the
/// bridge when it ended count as left over: with a delay, TCP's last acknowledgements are among them.
fn unintended(report: &Value) -> u64 {
    let mut all = 0;
    for way in ["there", "back"] {
        let of = |name| count(report, way, name);
        let left = report[way]["left"].as_u64().expect("a count");
        let unintended = of("unmeant_no_buffer") + of("unmeant_refused") + of("unmeant_device");
        let lost = of("lost") + of("queue_full") + unintended + left + of("fins_taken");
        let came = of("packets") + of("duplicated") + of("fins_released");
        assert_eq!(came, of("delivered") + lost, "{way}: {report}");
        all += unintended;
    }
    all
}

/// A pcap file in this machine's byte order with these frames, a millisecond apart.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 2 | 4 << 16, 0, 0, 262_144, 1] {
        file.extend_from_slice(&word.to_ne_bytes());
    }
    for (index, frame) in frames.iter().enumerate() {
        for word in [
            index as u32 / 1000,
            index as u32 % 1000 * 1_000_000,
            frame.len() as u32,
            frame.len() as u32,
        ] {
            file.extend_from_slice(&word.to_ne_bytes());
        }
        file.extend_from_slice(frame);
    }
    file
}

/// The frames in a pcap file in this machine's byte order.
fn frames_of(file: &[u8]) -> Vec<Vec<u8>> {
    let (mut rest, mut frames) = (&file[24..], Vec::new());
    while !rest.is_empty() {
        let len = u32::from_ne_bytes(rest[8..12].try_into().expect("four bytes")) as usize;
        frames.push(rest[16..16 + len].to_vec());
        rest = &rest[16 + len..];
    }
    frames
}

/// Frames of many kinds: short and jumbo; unicast and broadcast; without a VLAN tag, with one, with two, and with a
/// priority tag; of types that no stack recognizes, including slow protocols.
fn frames() -> Vec<Vec<u8>> {
    let tags: [&[u8]; 5] = [
        &[],
        &[0x81, 0, 0x20, 7],
        &[0x88, 0xa8, 0, 100, 0x81, 0, 0, 7],
        &[0x81, 0, 0xe0, 0],
        &[0x81, 0, 0, 1, 0x81, 0, 0, 2],
    ];
    let to: [[u8; 6]; 4] = [
        [0xff; 6],
        [2, 0, 0, 0, 0, 9],
        [1, 0, 0x5e, 1, 2, 3],
        [1, 0x80, 0xc2, 0, 0, 0x0e],
    ];
    let sizes = [
        60, 61, 64, 100, 590, 1499, 1514, 1518, 2048, 4096, 8999, 9014,
    ];
    (0..600usize)
        .map(|index| {
            let mut frame = to[index % 4].to_vec();
            frame.extend([2, 0, 0, 0, 0, 1]);
            frame.extend(tags[index % 5]);
            frame.extend([[0x88, 0xb5], [0x88, 0xcc], [0x88, 0xb6]][index % 3]);
            let len = sizes[index % sizes.len()];
            frame.extend((frame.len()..len).map(|at| (at / 251 + at + index) as u8));
            frame
        })
        .collect()
}

/// Frames that enter on one side leave on the other, in order and unchanged, and the capture contains the same
/// frames. Afterwards, the interfaces are restored, whichever signal ended the bridge.
#[test]
fn frames_arrive_bit_for_bit() {
    let folder = TempDir::new("bridge-frames");
    for (signal, from, to) in [("INT", "A", "B"), ("TERM", "B", "A"), ("HUP", "A", "B")] {
        let (near, far) = (from.to_lowercase(), to.to_lowercase());
        let sent = frames();
        let files =
            ["sent", "seen", "kept"].map(|name| folder.join(&format!("{signal}-{name}.pcap")));
        std::fs::write(&files[0], pcap(&sent)).expect("a file");
        let [sent_at, seen_at, kept_at] = files.each_ref().map(|file| file.display().to_string());
        let script = format!(
            r#"
            look() {{ ip -d link show dev $1 | grep -o 'promiscuity [0-9]*'; ethtool -k $1 2>/dev/null || :; }}
            look in0 >$WORK/before; look out0 >>$WORK/before
            A ip link set a0 arp off; B ip link set b0 arp off
            bridge --capture {kept_at}
            look in0 | grep -q 'promiscuity 1'
            nsenter -n -t $(cat $WORK/{far}.pid) "$BRUNT" --json capture -i {far}0 --plain --pcap {seen_at} >/dev/null 2>$WORK/seen & seen=$!
            for i in $(seq 2400); do grep -q '^brunt: capturing' $WORK/seen && break; sleep .05; done
            {from} "$BENCH" capture {sent_at} --replay {near}0 >/dev/null
            received {to} {far}0 600; sleep 1; kill -INT $seen; wait $seen || :
            end {signal}
            look in0 >$WORK/after; look out0 >>$WORK/after; cmp $WORK/before $WORK/after >&2
            "#
        );
        let Some(text) = hosts(&script) else { return };
        let report = report(&text);
        assert_eq!(unintended(&report), 0, "{report}");
        let way = if from == "A" { "there" } else { "back" };
        assert_eq!(count(&report, way, "packets"), sent.len() as u64);
        assert!(
            report[way]["added_frames"].as_u64() >= Some(sent.len() as u64),
            "{report}"
        );
        assert!(
            report[way]["added_p50_us"]
                .as_f64()
                .is_some_and(|added| added > 0.0),
            "{report}"
        );
        for file in &files[1..] {
            let seen = frames_of(&std::fs::read(file).expect("packets"));
            assert_eq!(seen.len(), sent.len(), "{}", file.display());
            for (index, (seen, sent)) in seen.iter().zip(&sent).enumerate() {
                assert!(
                    seen == sent,
                    "frame {index} of {}: {seen:02x?} for {sent:02x?}",
                    file.display()
                );
            }
        }
    }
}

/// Prints one line per frame of a file, as tshark decodes it: its interface, whether `a` sent it, its time, its length,
/// and a checksum of all its bytes.
const DISSECT: &str = r#"
    frames() { # file
        tshark -r $1 -o frame.generate_md5_hash:TRUE -T fields -e frame.interface_name -e eth.src \
            -e frame.time_epoch -e frame.len -e frame.md5_hash 2>/dev/null
    }
    "#;

/// Interface, sender, time, length and checksum of each frame that tshark finds in a file written by a bridge.
fn dissected(text: &str) -> Vec<[&str; 5]> {
    let lines = text.lines();
    lines
        .map(|line| {
            line.split('\t')
                .collect::<Vec<_>>()
                .try_into()
                .expect("five fields")
        })
        .collect()
}

/// A capture of both sides has two interfaces. Each contains exactly the frames that dumpcap sees on that side's
/// host, including frames too long for the ring.
#[test]
fn a_capture_has_both_sides() {
    if need("tshark", "tshark")
        .and(need("dumpcap", "tshark"))
        .and(need("ping", "iputils-ping"))
        .is_none()
    {
        return;
    }
    let folder = TempDir::new("bridge-both");
    let [kept, side] =
        ["kept.pcapng", "side.pcapng"].map(|name| folder.join(name).display().to_string());
    let script = format!(
        r#"
        {DISSECT}
        nsenter -n -t $(cat $WORK/a.pid) dumpcap -q -i a0 -w {side} >$WORK/dumpcap 2>&1 & D=$!
        for i in $(seq 2400); do [ -s {side} ] && break; sleep .05; done
        # When the bridge or dumpcap ends, no host sends another ARP request, which only one of the files would have.
        A sh -c 'echo 3600 >/proc/sys/net/ipv4/neigh/a0/delay_first_probe_time'
        B sh -c 'echo 3600 >/proc/sys/net/ipv4/neigh/b0/delay_first_probe_time'
        bridge --capture {kept}
        for size in 0 56 1400 1472 4000 8972; do pings 4 $size >&2; done
        end >$WORK/end
        # dumpcap writes what it has when it has a moment.
        for i in $(seq 1200); do
            [ $(frames {side} | wc -l) -ge $(frames {kept} | wc -l) ] && break; sleep .05
        done
        kill -INT $D; wait $D || :
        echo -----; A ip -o link show a0 | sed 's/.*ether \([^ ]*\).*/\1/'; echo -----; frames {kept}; echo -----; frames {side}; echo -----
        cat $WORK/end
        "#
    );
    let Some(text) = hosts(&script) else { return };
    let parts: Vec<&str> = text.split("-----\n").collect();
    let (address, kept, side, report) = (
        parts[1].trim(),
        dissected(parts[2]),
        dissected(parts[3]),
        report(parts[4]),
    );
    assert_eq!(report["capture"]["packets_lost"], 0, "{report}");
    assert_eq!(unintended(&report), 0, "{report}");
    // 24 requests and 24 replies, plus address resolution.
    assert!(kept.len() >= 48, "{text}");
    for (interface, by_a) in [("in0", true), ("out0", false)] {
        let here = kept
            .iter()
            .filter(|frame| frame[0] == interface)
            .map(|frame| (frame[3], frame[4]));
        let there = side
            .iter()
            .filter(|frame| (frame[1] == address) == by_a)
            .map(|frame| (frame[3], frame[4]));
        assert_eq!(
            here.collect::<Vec<_>>(),
            there.collect::<Vec<_>>(),
            "{interface}: {text}"
        );
    }
    assert!(kept.iter().any(|frame| frame[3] == "9014"), "{text}");
}

/// Frames that don't fit into the ring while the thread has no core are counted as lost; all other frames pass.
#[test]
fn frames_that_overflow_the_ring_are_counted() {
    let folder = TempDir::new("bridge-overrun");
    let sent = folder.join("sent.pcap");
    let frame = |number: usize| {
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        frame.resize(60 + number % 3 * 700, 7);
        frame
    };
    std::fs::write(&sent, pcap(&(0..40).map(frame).collect::<Vec<_>>())).expect("a file");
    let script = format!(
        r#"
        A ip link set a0 arp off; B ip link set b0 arp off
        bridge
        kill -STOP $BRIDGE
        A "$BENCH" capture {} --replay a0 --times 1000 >/dev/null
        kill -CONT $BRIDGE
        received B b0 32768
        end
        "#,
        sent.display()
    );
    let Some(text) = hosts(&script) else { return };
    let report = report(&text);
    assert_eq!(count(&report, "there", "packets"), 40_000, "{report}");
    assert_eq!(count(&report, "there", "delivered"), 32_768, "{report}");
    assert_eq!(unintended(&report), 40_000 - 32_768, "{report}");
    assert!(report["doubts"].to_string().contains("buffer"), "{report}");
}

/// A file system on iSCSI through the bridge, with segmentation offload on both hosts: written data is read back, with
/// and without impairments, and only the configured losses occur.
#[test]
fn a_file_system_on_iscsi_survives_the_bridge() {
    for (options, lost) in [
        ("", false),
        (
            "--set delay=2ms --set loss=0.002 --set reorder=0.01 --set duplicate=0.01 --back rate=500Mb/s",
            true,
        ),
    ] {
        let script = format!(
            r#"
            bridge {options}
            B "$BRUNT" target --lun memory:64MiB --portal 10.9.0.2:3260 >$WORK/portal 2>/dev/null & echo $! >$WORK/t.pid
            for i in $(seq 2400); do grep -q 10.9.0.2 $WORK/portal && break; sleep .05; done
            url=iscsi://10.9.0.2:3260/iqn.2026-11.io.brunt:t0/0
            A "$BRUNT" io write $url --bs 64k --depth 8 --count 400 >&2
            A "$BRUNT" io verify $url --bs 64k --depth 8 --count 400 >&2
            end
            "#
        );
        let Some(text) = hosts(&script) else { return };
        let report = report(&text);
        assert_eq!(unintended(&report), 0, "{report}");
        let packets = count(&report, "there", "packets");
        // 400 writes of 64 KiB in packets of at most 9000 bytes; offloaded trains are counted by the packets that
        // they contain.
        assert!(packets > 400 * 7, "{report}");
        assert_eq!(count(&report, "there", "lost") > 0, lost, "{report}");
        assert_eq!(count(&report, "back", "duplicated") > 0, lost, "{report}");
    }
}

/// By the hosts' own clocks, packets are delayed by at least the configured time.
#[test]
fn packets_are_delayed_by_the_configured_time() {
    if need("ping", "iputils-ping").is_none() {
        return;
    }
    let Some(text) = hosts(
        r#"
        bridge --set delay=30ms --back delay=10ms
        pings 5 8000
        end
        "#,
    ) else {
        return;
    };
    let report = report(&text);
    let times: Vec<f64> = text
        .lines()
        .filter_map(|line| line.split("time=").nth(1)?.split(' ').next()?.parse().ok())
        .collect();
    assert_eq!(times.len(), 5, "{text}");
    assert!(times.iter().all(|time| *time >= 40.0), "{text}");
    assert_eq!(report["there"]["set"], "delay 30ms");
    assert_eq!(report["back"]["set"], "delay 10ms");
    assert_eq!(unintended(&report), 0, "{report}");
}

/// A host in the network path forwards during the whole experiment and delays packets only while a fault is active.
/// Pings between the hosts on its two sides prove it. Before and afterwards, the path is cut.
#[test]
fn a_bridging_host_delays_packets_only_during_a_fault() {
    if need("ping", "iputils-ping").is_none() {
        return;
    }
    let Some(text) = hosts(
        r#"
        printf '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n' >$WORK/ssh; chmod +x $WORK/ssh
        cat >$WORK/x.toml <<END
name = "wire"
repetitions = 1
host_silence = "60s"
[hosts.wire]
ssh = "wire"
command = "$WORK/ssh"
program = "$BRUNT"
bridge = ["in0", "out0"]
capture = "$WORK/wire.pcapng"
[targets.memory]
url = "memory:1MiB"
[workloads.w]
arrival = { kind = "open", rate = 50 }
stop = { time = "14s" }
[probes]
interval = "0s"
[[fault]]
host = "wire"
bridge = { delay = "400ms" }
at = "3s"
for = "7s"
END
        A ping -c 1 -W 1 10.9.0.2 >&2 && { echo forwarded by nobody >&2; exit 1; }
        A ping -i 0.1 -w 3600 10.9.0.2 >$WORK/pings & PING=$!
        "$BRUNT" --json run $WORK/x.toml --out $WORK/results >$WORK/summary 2>$WORK/notes \
            || { cat $WORK/notes >&2; exit 1; }
        kill $PING
        grep -q "the packets of its bridge are saved on that host, to $WORK/wire.pcapng" $WORK/notes \
            || { cat $WORK/notes >&2; exit 1; }
        "$BRUNT" --json run $WORK/x.toml --out $WORK/again 2>$WORK/refused >&2 && { echo overwritten >&2; exit 1; }
        grep -q 'cannot save packets' $WORK/refused || { cat $WORK/refused >&2; exit 1; }
        # Pings aren't storage operations.
        "$BRUNT" --json capture -r $WORK/wire.pcapng >$WORK/read && exit 1
        A ping -c 1 -W 1 10.9.0.2 >&2 && { echo it still forwards >&2; exit 1; }
        sed -n 's/.* time=\([0-9.]*\) ms.*/\1/p' $WORK/pings
        cat $WORK/summary
        "#,
    ) else {
        return;
    };
    let summary = report(&text);
    let times = text.lines().map_while(|line| line.parse::<f64>().ok());
    let (late, prompt): (Vec<f64>, Vec<f64>) = times.partition(|time| *time >= 800.0);
    assert!(late.len() >= 3 && prompt.len() >= 3, "{late:?} {prompt:?}");
    let run = &summary["points"][0]["runs"][0];
    let captured = &run["links"]["wire"]["captured"];
    assert!(
        captured["packets"].as_u64() > Some(10) && captured["lost"] == 0,
        "{captured}"
    );
    assert!(
        run["links"]["wire"]["there"]["packets"].as_u64() > Some(5),
        "{run:#}"
    );
    let fault = &run["faults"][0];
    assert!(
        fault
            .to_string()
            .contains("packets arrived during the fault"),
        "{fault:#}"
    );
    let began = fault["start_s"].as_f64().unwrap();
    assert!((3.0..60.0).contains(&began), "{fault:#}");
}

/// Segments that end connections are held, released, sent again, or still held when the bridge ends, and the counts
/// of these cases add up; rejected frames have no added delay.
#[test]
fn held_ends_of_connections_add_up() {
    let Some(text) = hosts(
        r#"
        bridge --set slow_close=300ms
        B "$BRUNT" target --lun memory:1MiB --portal 10.9.0.2:3260 >$WORK/portal 2>/dev/null & echo $! >$WORK/t.pid
        for i in $(seq 2400); do grep -q 10.9.0.2 $WORK/portal && break; sleep .05; done
        # The bridge may end before it reads the last segment, but not before it reads those of earlier connections.
        for i in 1 2 3 4; do A "$BRUNT" io info iscsi://10.9.0.2:3260/iqn.2026-11.io.brunt:t0/0 >&2; done
        end
        "#,
    ) else {
        return;
    };
    let report = report(&text);
    assert!(count(&report, "there", "fins_held") >= 3, "{report}");
    // The bridge doesn't wait for held segments when it ends: usually the last ones are still held.
    let ends = |name: &str| count(&report, "there", name) + count(&report, "back", name);
    let left: u64 = ["there", "back"]
        .iter()
        .map(|way| report[way]["ends_left"].as_u64().unwrap())
        .sum();
    assert!(ends("fins_released") + left >= 3, "{report}");
    assert_eq!(unintended(&report), 0, "{report}");
}

/// Frames that the outgoing interface rejects are counted.
#[test]
fn frames_refused_by_the_outgoing_interface_are_counted() {
    let folder = TempDir::new("bridge-refused");
    let sent = folder.join("sent.pcap");
    let frame = |len: usize| {
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        frame.resize(len, 7);
        frame
    };
    std::fs::write(
        &sent,
        pcap(&[frame(1514), frame(9014), frame(1515), frame(60)]),
    )
    .expect("a file");
    let script = format!(
        r#"
        B ip link set b0 mtu 1500; ip link set out0 mtu 1500
        A ip link set a0 arp off; B ip link set b0 arp off
        bridge; grep -q 'set the same MTU on both' $WORK/notes
        A "$BENCH" capture {} --replay a0 >/dev/null
        # When the last frame has arrived, the bridge has handled those before it.
        received B b0 2; end
        "#,
        sent.display()
    );
    let Some(text) = hosts(&script) else { return };
    let report = report(&text);
    assert_eq!(count(&report, "there", "packets"), 4);
    assert_eq!(
        (count(&report, "there", "delivered"), unintended(&report)),
        (2, 2),
        "{report}"
    );
    assert!(
        report["doubts"]
            .as_array()
            .is_some_and(|doubts| !doubts.is_empty()),
        "{report}"
    );
}

/// A running bridge can be changed in one direction or both; the report and a pcapng capture contain each change with
/// its time, and invalid changes are rejected without an effect.
#[test]
fn a_running_bridge_can_be_changed() {
    let folder = TempDir::new("bridge-set");
    let kept = folder.join("kept.pcapng");
    let Some(text) = hosts(&format!(
        r#"
        rtt() {{ A ping -c 1 -W 60 10.9.0.2 | sed -n 's/.*time=\([0-9]*\).*/\1/p'; }}
        # A reply can be late at any time, but with the earlier delay, no reply would be early.
        prompt() {{ for i in $(seq 100); do [ $(rtt) -lt 200 ] && return; done; return 1; }}
        set_() {{ "$BRUNT" --json bridge set "$@" >$WORK/changed 2>$WORK/refused; }}
        refused() {{ words=$1; shift; set_ "$@" && exit 1; grep -q "$words" $WORK/refused || {{ cat $WORK/refused >&2; exit 1; }}; }}
        refused 'no running bridge' delay=1ms
        bridge --set delay=5ms --capture {kept}
        grep -q "brunt bridge set in0-out0" $WORK/notes
        A ping -c 1 -W 60 10.9.0.2 >&2
        set_ delay=100ms; [ $(rtt) -ge 200 ]
        set_ in0-out0 delay=300ms --from out0; [ $(rtt) -ge 400 ]
        set_ --restore loss=0; prompt
        refused 'did you mean delay?' dely=1ms
        refused 'already has these settings' --restore
        refused "is not one of the bridge's interfaces, in0 and out0" delay=1ms --from eth7
        refused 'no running bridge named' other delay=1ms
        refused 'no settings' in0-out0
        end
        [ -z "$(ls $WORK/brunt-bridges)" ]
        "#,
        kept = kept.display()
    )) else {
        return;
    };
    let report = report(&text);
    let changes = report["changes"].as_array().expect("a list");
    let said: Vec<String> = changes
        .iter()
        .map(|change| {
            format!(
                "{} {} {}",
                change["options"], change["from"], change["restored"]
            )
        })
        .collect();
    let expected = [
        "[\"delay=100ms\"] null false",
        "[\"delay=300ms\"] \"out0\" false",
        "[\"loss=0\"] null true",
    ];
    assert_eq!(said, expected);
    let times: Vec<f64> = changes
        .iter()
        .filter_map(|change| change["at_s"].as_f64())
        .collect();
    assert!(times.is_sorted() && times[0] > 1.7e9, "{times:?}");
    assert_eq!(report["older_changes"], 0);
    let capture = std::fs::read(&kept).expect("the capture");
    for comment in [
        "link in0-out0: delay=100ms, at ",
        "link in0-out0 from out0: delay=300ms, at ",
        "as at the start, then loss=0",
    ] {
        assert!(
            capture
                .windows(comment.len())
                .any(|part| part == comment.as_bytes()),
            "{comment}"
        );
    }
}

/// If an interface disappears, the bridge ends with its report and an error.
#[test]
fn a_lost_interface_ends_the_bridge_with_its_report() {
    let Some(text) = hosts(
        r#"
        bridge
        ip link del out0
        status=0; wait $BRIDGE || status=$?
        [ $status = 1 ] && grep -q 'an interface disappeared' $WORK/notes || { cat $WORK/notes >&2; exit 1; }
        cat $WORK/report
        "#,
    ) else {
        return;
    };
    assert!(report(&text)["ended_by"].is_string(), "{text}");
}

/// Interfaces that can't be bridged, and settings that links don't have, are rejected with advice.
#[test]
fn mistakes_are_refused_with_advice() {
    let check = |arguments: &[&str], said: &str| {
        let output = support::brunt()
            .arg("bridge")
            .args(arguments)
            .output()
            .expect("brunt");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(said), "{text}");
    };
    check(&["no-such-if", "lo"], "unknown interface no-such-if");
    check(&["lo", "lo"], "cannot be bridged with itself");
    check(&["lo", "no-such-if"], "not an Ethernet interface");
    check(&["a", "b", "--set", "delay"], "KEY=VALUE");
    check(&["a", "b", "--set", "mtu=9000"], "mtu=9000");
    check(&["a", "b", "--set", "loss=1.5"], "loss=1.5");
    let Some(text) = hosts(
        r#"
        ip link add x0 type veth peer name x1; ip link set x0 up; ip link set x1 up
        "$BRUNT" bridge x0 x1 2>&1 | grep 'circulate forever'
        ip link set x1 down; ip link set in0 down
        "$BRUNT" bridge in0 out0 2>&1 | grep 'ip link set in0 up'
        "#,
    ) else {
        return;
    };
    assert_eq!(text.lines().count(), 2, "{text}");
}
