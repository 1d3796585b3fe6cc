//! Live capture over a pair of virtual interfaces in the test's own network namespace: traffic replayed from a file
//! yields the same results as the file, and packets that don't fit into the ring are counted.

use crate::support;
use std::process::{Command, Stdio};

use crate::support::{alone, need, root, skip};
use serde_json::Value;

/// Runs a script in a new user and network namespace, in which `BRUNT` is the program and `v0` and `v1` are the ends
/// of a link. `None` if this machine can't create one.
pub fn namespace(script: &str) -> Option<String> {
    for (program, package) in [
        ("unshare", "util-linux"),
        ("ip", "iproute2"),
        ("curl", "curl"),
    ] {
        need(program, package)?;
    }
    let setup = "set -e
        echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
        ip link set lo up
        ip link add v0 mtu 9000 type veth peer name v1 mtu 9000
        ip link set v0 arp off up; ip link set v1 arp off up
        ";
    let possible = Command::new("unshare")
        .args(["-rn", "bash", "-c", setup])
        .output()
        .expect("unshare");
    if !possible.status.success() {
        skip("user and network namespaces with veth (see sysctl kernel.unprivileged_userns_clone)");
        return None;
    }
    let output = Command::new("unshare")
        .args(["-rn", "bash", "-c", &format!("{setup}{script}")])
        .env("BRUNT", env!("CARGO_BIN_EXE_brunt"))
        .env("BENCH", support::bench_program())
        .env("DATA", root().join("testdata"))
        .stdin(Stdio::null())
        .output()
        .expect("unshare");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(text)
}

pub fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

pub fn count(report: &Value, name: &str) -> u64 {
    report["ledger"][name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {report}"))
}

/// Starts a capture, waits until it captures, replays a file, stops it with Ctrl-C, and prints its report. The rate is
/// limited, because between two interfaces of a busy machine the kernel drops packets that come faster than it works.
pub const CAPTURE: &str = r#"
    live() { # interface, file, options...
        local interface=$1 file=$2; shift 2
        "$BRUNT" --json capture -i $interface --plain "$@" >/tmp/report.$$ 2>/tmp/notes.$$ & local capture=$!
        for i in $(seq 2400); do grep -q ^'brunt: capturing' /tmp/notes.$$ && break; sleep .05; done
        if [ -n "${ALSO:-}" ]; then "$BENCH" capture "$ALSO" --replay w0 --rate 0.1 >/dev/null & fi
        "$BENCH" capture "$file" --replay ${PEER:-v0} --rate 0.1 >/tmp/sent.$$
        [ -z "${ALSO:-}" ] || wait $!
        sleep .2; kill -INT $capture; wait $capture || { cat /tmp/notes.$$ >&2; exit 1; }
        cat /tmp/report.$$; rm -f /tmp/report.$$ /tmp/notes.$$
    }
"#;

/// A capture replayed over a link yields the file's operations, with one parser and with three, with one ring and
/// with two on the same interface; nothing is dropped, and everything is accounted for.
#[test]
fn a_live_capture_matches_the_replayed_file() {
    for (file, options) in [
        ("nfs3-small.pcap.zst", ""),
        ("nfs4-small.pcap.zst", "--workers 3"),
        ("nfs4-small.pcap.zst", "--workers 2 --rings 2 --ring 8MiB"),
        ("nfs4-small.pcap.zst", "--port 2049"),
    ] {
        let script = format!("{CAPTURE} live v1 $DATA/{file} {options}");
        let Some(text) = namespace(&script) else {
            return;
        };
        let live = json(&text);
        let path = root().join("testdata").join(file);
        let from_file = Command::new(env!("CARGO_BIN_EXE_brunt"))
            .args(["--json", "analyze"])
            .arg(path)
            .output();
        let from_file = json(&String::from_utf8_lossy(&from_file.expect("brunt").stdout));
        assert_eq!(count(&live, "packets_dropped"), 0, "{file} {options}");
        for name in [
            "packets",
            "calls",
            "calls_answered",
            "replies",
            "data_bytes",
            "blocks_summed",
            "holes",
        ] {
            assert_eq!(
                count(&live, name),
                count(&from_file, name),
                "{name} of {file} {options}"
            );
        }
        let names = |report: &Value| -> Vec<(String, u64)> {
            let rows = report["by_operation"].as_array().expect("rows");
            rows.iter()
                .map(|r| (r["name"].to_string(), r["calls"].as_u64().expect("a count")))
                .collect()
        };
        assert_eq!(names(&live), names(&from_file), "{file} {options}");
    }
}

/// Packets from one ring wait until those from the others are known to be later. No ring is too small for that, even
/// if one of two rings gets no packets of a connection, or one of two interfaces is silent.
#[test]
fn small_rings_have_room_for_packets_that_wait() {
    if need("python3", "python3").is_none() {
        return;
    }
    let _alone = alone(); // If a parser gets no CPU time for 100 ms, the kernel also drops packets.
    let script = format!(
        r#"{CAPTURE}
        cat >/tmp/send.$$ <<'END'
import socket, time
sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sender.bind(("v0", 0))
udp = bytes.fromhex("45000026000040004011000a0a0000010a000002" + "0801080100120000") + bytes(10)
begun = time.monotonic()
for n in range(2500):
    sender.send(bytes(12) + bytes.fromhex("0800") + udp)
    time.sleep(max(begun + n / 2500 - time.monotonic(), 0))
END
        ip link add w0 type veth peer name w1; ip link set w0 arp off up; ip link set w1 arp off up
        live() {{
            "$BRUNT" --json capture --plain "$@" >/tmp/report.$$ 2>/tmp/notes.$$ & local capture=$!
            for i in $(seq 2400); do grep -q ^'brunt: capturing' /tmp/notes.$$ && break; sleep .05; done
            python3 /tmp/send.$$
            sleep .2; kill -INT $capture; wait $capture || :
            sed -n 's/.*"packets_dropped": \([0-9]*\).*/\1/p' /tmp/report.$$; rm -f /tmp/report.$$ /tmp/notes.$$
        }}
        first= second= third=
        for round in $(seq 20); do
            [ "$first" = 0 ] || first=$(live -i v1 --rings 2 --ring 1MiB)
            [ "$second" = 0 ] || second=$(live -i v1 --rings 2 --ring 4MiB)
            [ "$third" = 0 ] || third=$(live -i v1 -i w1 --ring 1MiB)
            echo "$first $second $third"
            [ "$first $second $third" != '0 0 0' ] || break
        done; rm -f /tmp/send.$$"#
    );
    let Some(text) = namespace(&script) else {
        return;
    };
    // A busy machine drops some packets in some rounds; rings that are too small drop half of them in every round.
    assert_eq!(text.lines().last(), Some("0 0 0"), "{text}");
}

/// The tables and packets that several parsers save from live traffic match that traffic. A snap length truncates the
/// packets in the file, but keeps their original lengths.
#[test]
fn tables_and_packets_of_several_parsers_match_the_traffic() {
    let script = format!(
        r#"{CAPTURE}
        kept=$(mktemp -d); trap "rm -rf $kept" EXIT
        live v1 $DATA/nfs4-small.pcap.zst --workers 2 --out $kept/trace --pcap $kept/packets.pcap
        "$BRUNT" --json analyze $kept/trace
        "$BRUNT" --json analyze $kept/packets.pcap
        live v1 $DATA/nfs4-small.pcap.zst --pcap $kept/cut.pcap --snap 200
        "$BRUNT" --json analyze $kept/cut.pcap"#
    );
    let Some(text) = namespace(&script) else {
        return;
    };
    let reports: Vec<Value> = serde_json::Deserializer::from_str(&text)
        .into_iter()
        .map(|r| r.expect("a report"))
        .collect();
    let [live, trace, packets, live_cut, cut] = &reports[..] else {
        panic!("{} reports", reports.len())
    };
    assert_eq!(
        count(live, "packets_dropped") + count(live, "pcap_packets_lost"),
        0
    );
    for name in [
        "packets",
        "wire_bytes",
        "calls",
        "calls_answered",
        "data_bytes",
        "blocks_summed",
        "holes",
    ] {
        assert_eq!(count(trace, name), count(live, name), "{name}");
        assert_eq!(count(packets, name), count(live, name), "{name}");
    }
    for part in ["by_operation", "clients"] {
        assert_eq!(trace[part], live[part], "{part}");
        assert_eq!(packets[part], live[part], "{part}");
    }
    for name in ["packets", "wire_bytes", "packets_cut", "calls"] {
        assert_eq!(count(cut, name), count(live_cut, name), "{name}");
    }
    assert_eq!(count(cut, "wire_bytes"), count(live, "wire_bytes"));
    assert!(count(cut, "packets_cut") > 0);
    let bytes = live_cut["pcap"]["bytes"].as_u64().expect("bytes");
    assert!(bytes <= count(cut, "packets") * 216 + 24, "{bytes}");
}

/// Two interfaces with simultaneous traffic make one capture.
#[test]
fn two_interfaces_make_one_capture() {
    let script = format!(
        "ip link add w0 mtu 9000 type veth peer name w1 mtu 9000
        ip link set w0 arp off up; ip link set w1 arp off up
        {CAPTURE} ALSO=$DATA/nfs3-small.pcap.zst live v1 $DATA/nfs4-small.pcap.zst -i w1 --workers 2"
    );
    let Some(text) = namespace(&script) else {
        return;
    };
    let live = json(&text);
    for name in ["packets", "calls", "calls_answered", "data_bytes"] {
        let sum: u64 = ["nfs3-small.pcap.zst", "nfs4-small.pcap.zst"]
            .iter()
            .map(|file| {
                let path = root().join("testdata").join(file);
                let output = Command::new(env!("CARGO_BIN_EXE_brunt"))
                    .args(["--json", "analyze"])
                    .arg(path)
                    .output();
                count(
                    &json(&String::from_utf8_lossy(&output.expect("brunt").stdout)),
                    name,
                )
            })
            .sum();
        assert_eq!(count(&live, name), sum, "{name}");
    }
}

/// On the loopback interface, where each packet both leaves and arrives, it is captured once.
#[test]
fn a_loopback_packet_is_captured_once() {
    let script = format!("{CAPTURE} PEER=lo live lo $DATA/nfs3-small.pcap.zst; cat /tmp/sent.$$");
    let Some(text) = namespace(&script) else {
        return;
    };
    let (report, sent) = text
        .rsplit_once("}\n")
        .expect("a report, then what was sent");
    let sent: u64 = sent
        .split_whitespace()
        .find_map(|word| word.parse().ok())
        .expect("a count");
    let report = json(&format!("{report}}}"));
    assert_eq!(count(&report, "packets"), sent);
}

/// With a ring of two blocks and a stopped parser, packets are lost, and captured plus dropped packets add up to all
/// that were sent.
#[test]
fn packets_that_overflow_the_ring_are_counted() {
    let script = r#"
        "$BRUNT" --json capture -i v1 --plain --ring 2MiB >/tmp/report.$$ 2>/tmp/notes.$$ & capture=$!
        for i in $(seq 2400); do grep -q ^'brunt: capturing' /tmp/notes.$$ && break; sleep .05; done
        kill -STOP $capture
        "$BENCH" capture "$DATA/nfs4-small.pcap.zst" --replay v0 --times 5 --rate 0.1 >/tmp/sent.$$
        kill -CONT $capture; sleep .2; kill -INT $capture; wait $capture
        cat /tmp/report.$$; cat /tmp/sent.$$; rm -f /tmp/report.$$ /tmp/notes.$$ /tmp/sent.$$
    "#;
    let Some(text) = namespace(script) else {
        return;
    };
    let (report, sent) = text
        .rsplit_once("}\n")
        .expect("a report, then what was sent");
    let sent: u64 = sent
        .split_whitespace()
        .find_map(|word| word.parse().ok())
        .expect("a count");
    let report = json(&format!("{report}}}"));
    let (seen, dropped) = (count(&report, "packets"), count(&report, "packets_dropped"));
    assert!(dropped > 0, "{seen} seen of {sent}, none dropped");
    assert_eq!(seen + dropped, sent);
    let finding = report["findings"]
        .as_array()
        .expect("findings")
        .iter()
        .any(|f| f["kind"] == "capture-loss");
    assert!(finding, "losses are told: {}", report["findings"]);
}

/// Like [`namespace`], but with the privileges of the machine's root, which programs in the kernel need and a user
/// namespace doesn't grant. `None`, with a message, if these aren't available.
fn namespace_of_root(script: &str) -> Option<String> {
    let probe = "ip link set lo up; timeout -s KILL 1 \"$BRUNT\" capture -i lo --plain --source xdp 2>&1 || :";
    let run = |script: &str| {
        let mut unshare = Command::new("unshare");
        unshare
            .args(["-n", "bash", "-c", script])
            .stdin(Stdio::null());
        unshare
            .env("BRUNT", env!("CARGO_BIN_EXE_brunt"))
            .env("BENCH", support::bench_program())
            .env("DATA", root().join("testdata"));
        unshare.output().expect("unshare")
    };
    need("unshare", "util-linux")?;
    let output = run(probe);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() || !said.contains("capturing on") {
        // No package provides this, so it is skipped even where skips are forbidden.
        println!(
            "skipped: needs AF_XDP, and root: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return None;
    }
    let setup = "set -e
        echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
        ip link add v0 mtu 9000 type veth peer name v1 mtu 9000
        ip link set v0 arp off up; ip link set v1 arp off up
        ";
    let output = run(&format!("{setup}{script}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(text)
}

/// Over AF_XDP, the capture yields the file's contents, including packets that span several frames, with one parser
/// and with two. The XDP program is attached during the capture and gone afterwards, even if the capture was killed.
#[test]
fn packets_over_af_xdp_match_the_file() {
    let file = root().join("testdata/nfs4-small.pcap.zst");
    let output = Command::new(env!("CARGO_BIN_EXE_brunt"))
        .args(["--json", "analyze"])
        .arg(file)
        .output();
    let from_file = json(&String::from_utf8_lossy(&output.expect("brunt").stdout));
    for options in ["--ring 16MiB", "--workers 2 --ring 16MiB"] {
        let script = format!(
            r#"{CAPTURE} live v1 $DATA/nfs4-small.pcap.zst --source xdp {options}
            ip link show v1 | grep -q xdp && {{ echo 'the program is still there' >&2; exit 1; }}
            "$BRUNT" capture -i v1 --plain --source xdp >/dev/null 2>/tmp/notes.$$ & capture=$!
            for i in $(seq 2400); do grep -q ^'brunt: capturing' /tmp/notes.$$ && break; sleep .05; done
            ip link show v1 | grep -q xdp || {{ echo 'no program' >&2; exit 1; }}
            kill -KILL $capture; wait $capture || :; rm -f /tmp/notes.$$
            ip link show v1 | grep -q xdp && {{ echo 'a killed capture left it' >&2; exit 1; }} || :"#
        );
        let Some(text) = namespace_of_root(&script) else {
            return;
        };
        let live = json(&text);
        assert_eq!(count(&live, "packets_dropped"), 0, "{options}");
        for name in [
            "packets",
            "wire_bytes",
            "calls",
            "calls_answered",
            "replies",
            "data_bytes",
            "blocks_summed",
        ]
        .into_iter()
        .chain(["holes"])
        {
            assert_eq!(
                count(&live, name),
                count(&from_file, name),
                "{name} {options}"
            );
        }
        let calls = |report: &Value| -> Vec<(String, u64)> {
            let rows = report["by_operation"].as_array().expect("rows");
            rows.iter()
                .map(|r| (r["name"].to_string(), r["calls"].as_u64().expect("a count")))
                .collect()
        };
        assert_eq!(calls(&live), calls(&from_file), "{options}");
    }
}

/// The packets in a pcap file in this machine's byte order: original length, bytes.
fn packets_of(file: &[u8]) -> Vec<(u32, &[u8])> {
    let (mut rest, mut packets) = (&file[24..], Vec::new());
    while !rest.is_empty() {
        let word = |at: usize| u32::from_ne_bytes(rest[at..at + 4].try_into().expect("four bytes"));
        let (len, wire_len) = (word(8) as usize, word(12));
        packets.push((wire_len, &rest[16..16 + len]));
        rest = &rest[16 + len..];
    }
    packets
}

/// A packet that spans several frames is reassembled to the last byte.
#[test]
fn a_packet_of_several_af_xdp_frames_is_complete() {
    let folder = support::TempDir::new("jumbo");
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 2 | 4 << 16, 0, 0, 262_144, 1] {
        file.extend_from_slice(&word.to_ne_bytes());
    }
    for index in 0..500usize {
        // Lengths around one frame, around two frames, and the greatest length that this link carries.
        let len = [60, 3800, 4000, 4096, 4097, 7600, 8192, 8193, 9014][index % 9];
        for word in [index as u32, 0, len as u32, len as u32] {
            file.extend_from_slice(&word.to_ne_bytes());
        }
        // Broadcast, with an experimental EtherType.
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        frame.extend((frame.len()..len).map(|at| (at / 251 + at + index) as u8));
        file.extend(frame);
    }
    let (sent, seen) = (folder.join("sent.pcap"), folder.join("seen.pcap"));
    std::fs::write(&sent, &file).expect("a file");
    let (sent, seen_at) = (sent.display(), seen.display());
    let script = format!("{CAPTURE} live v1 {sent} --source xdp --pcap {seen_at}");
    let Some(text) = namespace_of_root(&script) else {
        return;
    };
    let report = json(&text);
    assert_eq!(
        (count(&report, "packets"), count(&report, "packets_dropped")),
        (500, 0)
    );
    assert_eq!(count(&report, "packets_cut"), 0);
    let seen = std::fs::read(seen).expect("packets");
    assert!(
        packets_of(&seen) == packets_of(&file),
        "other bytes came than were sent"
    );
}

/// AF_XDP also counts packets that found no free frame. Frames are returned when the parsers are done with them, so a
/// capture can receive more packets than there are frames.
#[test]
fn packets_without_an_af_xdp_frame_are_counted() {
    // 256 frames; each round of the file has eight times as many packets. A busy machine may not keep up, so rounds
    // continue until it has processed twice as many packets as there are frames.
    let script = r#"
        ip link set lo up
        "$BRUNT" --json capture -i v1 --plain --source xdp --ring 1MiB --metrics 127.0.0.1:0 \
            >/tmp/report.$$ 2>/tmp/notes.$$ & capture=$!
        for i in $(seq 2400); do grep -q ^'brunt: capturing' /tmp/notes.$$ && break; sleep .05; done
        url=$(sed -n 's/^brunt: metrics at //p' /tmp/notes.$$)
        rounds=1
        for i in $(seq 40); do
            "$BENCH" capture "$DATA/nfs4-small.pcap.zst" --replay v0 --rate 0.05 >/dev/null; rounds=$((rounds + 1))
            for j in $(seq 20); do
                seen=$(curl -sf $url | sed -n 's/^brunt_capture_packets_total //p')
                [ "${seen:-0}" -gt 512 ] && break 2; sleep .1
            done
        done
        kill -STOP $capture
        for i in $(seq 2400); do grep -q '^State:.*T' /proc/$capture/status && break; sleep .05; done
        "$BENCH" capture "$DATA/nfs4-small.pcap.zst" --replay v0 >/dev/null
        kill -CONT $capture; sleep .3; kill -INT $capture; wait $capture
        cat /tmp/report.$$; echo $rounds; rm -f /tmp/report.$$ /tmp/notes.$$
    "#;
    let Some(text) = namespace_of_root(script) else {
        return;
    };
    let (report, rounds) = text
        .rsplit_once("}\n")
        .expect("a report, then how many rounds were sent");
    let rounds: u64 = rounds.trim().parse().expect("a count");
    let report = json(&format!("{report}}}"));
    let (seen, dropped) = (count(&report, "packets"), count(&report, "packets_dropped"));
    assert!(
        dropped > 1000 && seen > 512,
        "{seen} seen, {dropped} dropped in {rounds} rounds"
    );
    assert_eq!(seen + dropped, rounds * 2115);
}

/// Runs a live capture on a terminal while a capture is replayed; `keys` are pressed `seconds` after the first
/// traffic was shown. Returns the terminal's output, as bytes and as text. Asserts that the terminal's settings are
/// the same afterwards. `None` if no such terminal is available.
fn on_a_terminal(keys: &str, seconds: &str) -> Option<(Vec<u8>, String)> {
    need("script", "bsdutils")?;
    let script = format!(
        r#"
        work=$(mktemp -d); trap "rm -rf $work" EXIT
        cd $work; mkfifo keys; export TERM=xterm LC_ALL=C.UTF-8
        inner='stty cols 120 rows 60; stty -g >before; "$BRUNT" capture -i v1; echo "status $?"; stty -g >after'
        script -qfec "bash -c '$(printf %s "$inner" | sed "s/'/'\\''/g")'" typescript <keys >/dev/null & shown=$!
        exec 3>keys
        for i in $(seq 2400); do grep -aq 'capturing on' typescript && break; sleep .05; done
        "$BENCH" capture "$DATA/nfs4-small.pcap.zst" --replay v0 --rate 0.1 >/dev/null
        # A picture with traffic, and those after it.
        for i in $(seq 2400); do grep -aq GETATTR typescript && break; sleep .05; done
        sleep {seconds}
        printf '{keys}' >&3; wait $shown
        cmp before after >&2 && base64 -w0 typescript
    "#
    );
    let text = namespace(&script)?;
    let bytes = Command::new("base64")
        .arg("-d")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = bytes.expect("base64 starts");
    std::io::Write::write_all(
        &mut child.stdin.take().expect("piped"),
        text.trim().as_bytes(),
    )
    .expect("text");
    let bytes = child.wait_with_output().expect("base64").stdout;
    let all = String::from_utf8_lossy(&bytes).into_owned();
    Some((bytes, all))
}

/// The live view shows rates, the hottest files and clients, and the ledger of the traffic. `q` or Ctrl-C ends the
/// capture in an orderly way, the report follows, and the terminal is restored.
#[test]
fn the_live_view_shows_traffic_and_restores_the_terminal() {
    let packets = {
        let path = root().join("testdata/nfs4-small.pcap.zst");
        let output = Command::new(env!("CARGO_BIN_EXE_brunt"))
            .args(["--json", "analyze"])
            .arg(path)
            .output();
        count(
            &json(&String::from_utf8_lossy(&output.expect("brunt").stdout)),
            "packets",
        )
    };
    for keys in ["q", "\\003"] {
        let (mut all, mut last, mut rate) = Default::default();
        let mut terminal = vt100::Parser::new(60, 120, 0);
        // A busy machine draws fewer screens; the last screen must show everything that was sent.
        for seconds in ["2.5", "10", "40"] {
            let Some((bytes, text)) = on_a_terminal(keys, seconds) else {
                return;
            };
            (all, last, rate) = (text, String::new(), 0u64);
            terminal = vt100::Parser::new(60, 120, 0);
            for piece in bytes.chunks(64) {
                terminal.process(piece);
                if terminal.screen().alternate_screen() {
                    last = terminal.screen().contents();
                    let words: Vec<&str> = last.split_whitespace().collect();
                    let rates = words.windows(2).filter(|pair| pair[1] == "op/s");
                    rate = rates
                        .filter_map(|pair| pair[0].parse().ok())
                        .fold(rate, u64::max);
                }
            }
            if rate > 0 && last.contains(&format!("packets {packets} seen")) {
                break;
            }
        }
        assert!(rate > 0, "a rate was shown:\n{last}");
        for shown in [
            "hottest files",
            "hottest clients",
            "ledger",
            "READ",
            "GETATTR",
            "0 dropped by the ring",
        ] {
            assert!(last.contains(shown), "{shown} in\n{last}");
        }
        assert!(
            last.contains(&format!("packets {packets} seen")),
            "{packets} in\n{last}"
        );
        let clients = last
            .split("hottest clients")
            .nth(1)
            .and_then(|rest| rest.split("ledger").next());
        let is_address = |word: &str| word.parse::<std::net::IpAddr>().is_ok();
        assert!(
            clients.expect("a table").split_whitespace().any(is_address),
            "a client in\n{last}"
        );
        let files = last
            .split("hottest files")
            .nth(1)
            .and_then(|rest| rest.split("hottest clients").next());
        assert!(files.expect("a table").contains('/'), "a path in\n{last}");
        // Afterwards there is the normal screen, with a cursor and the report, and the program ends in an orderly
        // way.
        let screen = terminal.screen();
        assert!(
            !screen.alternate_screen() && !screen.hide_cursor(),
            "{}",
            screen.contents()
        );
        assert!(all.contains("status 0"), "{all}");
        let report = all.rsplit("[?1049l").next().expect("what follows the view");
        assert!(
            report.contains("ledger") && report.contains("GETATTR"),
            "{report}"
        );
    }
}

/// Metrics are in Prometheus's format, checked with its own tool, and count the traffic.
#[test]
fn metrics_are_in_prometheus_format() {
    if need("promtool", "prometheus").is_none() {
        return;
    }
    let script = r#"
        "$BRUNT" --json capture -i v1 --plain --workers 2 --metrics 127.0.0.1:0 >/tmp/report.$$ 2>/tmp/notes.$$ & capture=$!
        for i in $(seq 2400); do grep -q ^'brunt: capturing' /tmp/notes.$$ && break; sleep .05; done
        "$BENCH" capture "$DATA/nfs4-small.pcap.zst" --replay v0 --rate 0.1 >/dev/null
        url=$(sed -n 's/^brunt: metrics at //p' /tmp/notes.$$)
        for i in $(seq 1200); do
            curl -sf $url >/tmp/page.$$ || :
            grep -q 'operations_total{operation="READ"} 40' /tmp/page.$$ \
                && grep -q 'latency_seconds_count{operation="READ"} 40' /tmp/page.$$ \
                && grep -q '^brunt_capture_packets_total 2115$' /tmp/page.$$ && break
            sleep .1
        done
        kill -INT $capture; wait $capture
        promtool check metrics </tmp/page.$$ >&2
        cat /tmp/page.$$; rm -f /tmp/report.$$ /tmp/notes.$$ /tmp/page.$$
    "#;
    let Some(text) = namespace(script) else {
        return;
    };
    let value = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} in\n{text}"))
            .parse::<f64>()
            .expect("a number")
    };
    assert_eq!(
        value("brunt_nfs_operations_total{operation=\"READ\"}"),
        40.0
    );
    assert_eq!(
        value("brunt_nfs_latency_seconds_count{operation=\"READ\"}"),
        40.0
    );
    assert_eq!(
        value("brunt_nfs_latency_seconds_bucket{operation=\"READ\",le=\"+Inf\"}"),
        40.0
    );
    assert_eq!(value("brunt_capture_packets_dropped_total"), 0.0);
    assert_eq!(value("brunt_capture_packets_total"), 2115.0);
}

/// Without the privilege to capture, the error explains how to get it.
#[test]
fn without_the_privilege_the_error_says_how_to_get_it() {
    // This runs without a user namespace, so the capabilities are those of the user who runs the tests.
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let capabilities = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .expect("a line");
    let capabilities = u64::from_str_radix(capabilities.trim(), 16).expect("hex");
    let mut command = if capabilities >> 13 & 1 == 1 {
        if need("setpriv", "util-linux").is_none() {
            return;
        }
        let mut command = Command::new("setpriv");
        command.args([
            "--bounding-set",
            "-net_raw",
            "--inh-caps",
            "-net_raw",
            env!("CARGO_BIN_EXE_brunt"),
        ]);
        command
    } else {
        Command::new(env!("CARGO_BIN_EXE_brunt"))
    };
    let output = command
        .args(["capture", "-i", "lo", "--for", "1s"])
        .output()
        .expect("brunt");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("CAP_NET_RAW") && text.contains("setcap"),
        "{text}"
    );
    for options in [["--port", "2049"], ["--rings", "2"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brunt"));
        let output = command
            .args(["capture", "-i", "lo", "--source", "xdp"])
            .args(options)
            .output();
        let output = output.expect("brunt");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2)
                && text.contains("--source xdp cannot be combined with"),
            "{text}"
        );
    }
    let output = Command::new(env!("CARGO_BIN_EXE_brunt"))
        .args(["capture", "-i", "none9"])
        .output();
    let output = output.expect("brunt");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && text.contains("none9"),
        "{text}"
    );
}
