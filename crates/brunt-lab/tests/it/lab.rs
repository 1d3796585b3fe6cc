//! Tests of hosts and links in the kernel: real sockets over real devices.
//!
//! The rule: no timing is checked except for a generous upper bound; `brunt-bench link` measures accuracy.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use brunt_core::{Clock, Span};
use brunt_lab::link::{Direction, Settings};
use brunt_lab::{Carrier, Host, Lab, LinkConfig};

use crate::Test;
use crate::two_hosts::{LOST, PATIENCE, becomes_true, counted, lab, of, pair, transfer};

pub const TESTS: [Test; 10] = [
    ("congestion_is_marked_for_tcp", congestion_is_marked_for_tcp),
    ("congestion_control_is_chosen", congestion_control_is_chosen),
    ("the_kernels_own_wires", the_kernels_own_wires),
    ("the_prototype_carries", the_prototype_carries),
    ("hosts_forward_for_others", hosts_forward_for_others),
    ("bytes_arrive_whole", bytes_arrive_whole),
    ("delay_shows_both_ways", delay_shows_both_ways),
    ("loss_changes_under_way", loss_changes_under_way),
    (
        "corruption_is_caught_by_checksums",
        corruption_is_caught_by_checksums,
    ),
    ("processes_run_on_hosts", processes_run_on_hosts),
];

/// A lab's sockets use the chosen congestion control, on the direct path through the kernel, through the emulator, and
/// on hosts behind others; without a choice, they use the kernel's default.
fn congestion_control_is_chosen() {
    let used = |from: &Host, to: &Host| {
        let listener = to.run(|| TcpListener::bind((to.address(), 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let caller = from
            .run(|| TcpStream::connect_timeout(&address, PATIENCE))
            .unwrap();
        let (called, _) = listener.accept().unwrap();
        [&caller, &called].map(|socket| rustix::net::sockopt::tcp_congestion(socket).unwrap())
    };
    let kernels = {
        let (_lab, a, b) = lab([of(""), of("")], 1500, Carrier::Brunt);
        used(&a, &b)[0].clone()
    };
    let available =
        std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    let other = available
        .split_whitespace()
        .find(|name| *name != kernels)
        .unwrap_or("reno");
    for chosen in [Some(other), None] {
        let mut lab = Lab::new(["a", "b", "c"], Clock::default()).unwrap();
        chosen
            .into_iter()
            .for_each(|algorithm| lab.use_congestion(algorithm));
        for (name, between) in [("near", ["a", "b"]), ("far", ["b", "c"])] {
            let between = between.map(str::to_string);
            let settings = [of(""), of("")];
            let carrier = Carrier::Brunt;
            lab.add_link(&LinkConfig {
                name: name.into(),
                between,
                settings,
                mtu: 1500,
                seed: 7,
                carrier,
            })
            .unwrap();
        }
        lab.route().unwrap();
        let host = |name: &str| lab.host(name).unwrap().clone();
        let [a, b, c] = ["a", "b", "c"].map(host);
        let expected = chosen.unwrap_or(&kernels);
        assert_eq!(used(&a, &b), [expected; 2]);
        assert_eq!(used(&c, &a), [expected; 2]);
        lab.change("near", [of("delay = '1ms'"), of("delay = '1ms'")])
            .unwrap();
        assert_eq!(used(&a, &b), [expected; 2]);
    }
}

/// TCP's bytes arrive unchanged, whatever the link does to packets and however segments arrive: in trains, in jumbo
/// frames, or individually.
fn bytes_arrive_whole() {
    let all = "delay = '200us'\njitter = '100us'\nkeep_order = false\nloss = 0.01\ncorrupt = 0.01\n\
               duplicate = 0.01\nreorder = 0.01\nrate = '2Gb/s'";
    let cases = [("", 8 << 20), ("delay = '100us'", 8 << 20), (all, 2 << 20)];
    for (text, bytes) in cases {
        for (mtu, carrier) in [
            (1500, Carrier::Brunt),
            (9000, Carrier::Brunt),
            (1500, Carrier::BruntWireSize),
        ] {
            let (lab, a, b) = lab([of(text), of(text)], mtu, carrier);
            transfer(&a, &b, bytes);
            transfer(&b, &a, bytes);
            let (_, report) = lab.reports().unwrap().remove(0);
            assert_eq!(
                (report.there.unintended(), report.back.unintended()),
                (0, 0),
                "{text}: {report:?}"
            );
            let straight = text.is_empty() && carrier == Carrier::Brunt;
            let there = &report.there;
            assert_eq!(
                there.straight_bytes as usize > bytes,
                straight,
                "{report:?}"
            );
            assert_eq!(
                there.packets as usize > bytes / mtu as usize,
                !straight,
                "{report:?}"
            );
            assert_eq!(report.there.lost > 0, text == all, "{report:?}");
            if carrier == Carrier::BruntWireSize {
                // The last frame of a connection may be in only one of the two counters so far, so this waits.
                let is_counted = || {
                    let (_, report) = lab.reports().unwrap().remove(0);
                    report.there.frames_in == report.there.packets
                };
                assert!(becomes_true(is_counted), "{report:?}");
            }
        }
    }
}

/// Each direction has its own delay; a round trip takes the sum of both.
fn delay_shows_both_ways() {
    let (_lab, a, b) = lab(
        [of("delay = '10ms'"), of("delay = '25ms'")],
        1500,
        Carrier::Brunt,
    );
    let (first, second) = pair(&a, &b);
    let mut buffer = [0; 16];
    let start = Instant::now();
    first.send(b"ping").unwrap();
    second.recv(&mut buffer).unwrap();
    let there = start.elapsed();
    second.send(b"pong").unwrap();
    first.recv(&mut buffer).unwrap();
    let both = start.elapsed();
    assert!(
        there >= Duration::from_millis(10) && both >= Duration::from_millis(35),
        "{there:?} {both:?}"
    );
}

/// TCP with ECN gets its share of marks, all of its bytes and no loss, and its sender is notified of the marks; TCP
/// without ECN gets none, and each packet that would have been marked is counted.
fn congestion_is_marked_for_tcp() {
    for (ecn, capable) in [("1", true), ("0", false)] {
        for carrier in [Carrier::Brunt, Carrier::BruntWireSize] {
            let (lab, a, b) = lab([of("ecn = 0.05"), of("")], 1500, carrier);
            for host in [&a, &b] {
                host.run(|| std::fs::write("/proc/sys/net/ipv4/tcp_ecn", ecn))
                    .unwrap();
            }
            transfer(&a, &b, 2 << 20);
            let (_, report) = lab.reports().unwrap().remove(0);
            let there = report.there;
            assert_eq!((there.unintended(), there.lost), (0, 0), "{report:?}");
            assert_eq!(there.ecn_marked > 0, capable, "{report:?}");
            assert!(there.ecn_not_capable > 0 || capable, "{report:?}");
            // The host counts merged packets as one. The link may count the last packet after it has arrived.
            let is_counted = || {
                let arrived = counted(&b, "netstat", "InCEPkts");
                let (_, report) = lab.reports().unwrap().remove(0);
                arrived <= report.there.ecn_marked && (arrived > 0) == capable
            };
            assert!(becomes_true(is_counted), "{report:?}");
            assert_eq!(counted(&a, "netstat", "TCPDeliveredCE") > 0, capable);
        }
    }
}

/// The kernel's plain veth pair carries packets, and netem delays them if the kernel has it; otherwise the error comes
/// with advice.
fn the_kernels_own_wires() {
    let (_lab, a, b) = lab([of(""), of("")], 1500, Carrier::Bare);
    transfer(&a, &b, 1 << 20);
    let mut lab = Lab::new(["a", "b"], Clock::default()).unwrap();
    let config = LinkConfig {
        name: "wire".into(),
        between: ["a".into(), "b".into()],
        settings: [of("delay = '5ms'"), of("delay = '5ms'")],
        mtu: 1500,
        seed: 7,
        carrier: Carrier::Netem,
    };
    match lab.add_link(&config) {
        Ok(_) => {
            let (first, second) = pair(lab.host("a").unwrap(), lab.host("b").unwrap());
            let start = Instant::now();
            first.send(b"probe").unwrap();
            second.recv(&mut [0; 16]).unwrap();
            assert!(start.elapsed() >= Duration::from_millis(5));
        }
        Err(error) => assert!(error.to_string().contains("modprobe sch_netem"), "{error}"),
    }
}

/// The prototype carries trains and single packets unchanged, counts them, and delays them.
fn the_prototype_carries() {
    for wire_size in [false, true] {
        let carrier = Carrier::Prototype { wire_size };
        let (lab, a, b) = lab([of("delay = '2ms'"), of("delay = '2ms'")], 1500, carrier);
        transfer(&a, &b, 2 << 20);
        let (_, report) = lab.reports().unwrap().remove(0);
        assert_eq!(
            (report.there.unintended(), report.back.unintended()),
            (0, 0),
            "{report:?}"
        );
        assert!(report.there.packets >= (2 << 20) / 1460, "{report:?}");
        let has_trains = || {
            let (_, report) = lab.reports().unwrap().remove(0);
            report.there.frames_in != report.there.packets
        };
        // The last frame may be in only one of the two counters so far, so this waits.
        assert!(becomes_true(|| has_trains() != wire_size), "{report:?}");
        let (first, second) = pair(&a, &b);
        let start = Instant::now();
        first.send(b"probe").unwrap();
        second.recv(&mut [0; 16]).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(2));
    }
}

/// In a chain of hosts, the ends reach each other through the middle, over links with and without impairments, with the
/// sum of all delays; a link whose settings change keeps its traffic.
fn hosts_forward_for_others() {
    let mut lab = Lab::new(["a", "b", "c", "d", "alone"], Clock::default()).unwrap();
    for (name, first, second, settings) in [
        ("one", "a", "b", "delay = '5ms'"),
        ("two", "c", "b", ""),
        ("three", "c", "d", "delay = '7ms'"),
    ] {
        let between = [first.to_string(), second.to_string()];
        let config = LinkConfig {
            name: name.into(),
            between,
            settings: [of(settings), of(settings)],
            mtu: 1500,
            seed: 7,
            carrier: Carrier::Brunt,
        };
        lab.add_link(&config).unwrap();
        let twice = LinkConfig {
            name: "duplicated".into(),
            ..config
        };
        let error = lab.add_link(&twice).unwrap_err().to_string();
        assert!(
            error.contains(&format!("as {name} already does")),
            "{error}"
        );
    }
    lab.route().unwrap();
    let (a, d) = (
        lab.host("a").unwrap().clone(),
        lab.host("d").unwrap().clone(),
    );
    transfer(&a, &d, 1 << 20);
    let (first, second) = pair(&a, &d);
    let time = |least_ms: u64| {
        let start = Instant::now();
        first.send(b"probe").unwrap();
        second.recv(&mut [0; 16]).unwrap();
        assert!(
            start.elapsed() >= Duration::from_millis(least_ms),
            "{:?}",
            start.elapsed()
        );
    };
    time(12);
    lab.change("two", [of("delay = '20ms'"), of("delay = '20ms'")])
        .unwrap();
    time(32);
    lab.change("two", [of(""), of("")]).unwrap();
    transfer(&d, &a, 1 << 20);
    let alone = lab.host("alone").unwrap().address();
    let sent = a.run(|| UdpSocket::bind("0.0.0.0:0")?.send_to(b"probe", (alone, 9)));
    assert!(sent.is_err(), "nothing leads there");
}

/// Settings change while sockets stay open: nothing arrives under full loss, everything does before and after.
fn loss_changes_under_way() {
    let (lab, a, b) = lab([of(""), of("")], 1500, Carrier::Brunt);
    let (first, second) = pair(&a, &b);
    let link = lab.link("wire").unwrap();
    let mut buffer = [0; 16];
    for (text, arrives) in [("", true), ("loss = 1.0", false), ("", true)] {
        link.change(Direction::There, of(text)).unwrap();
        second
            .set_read_timeout(Some(if arrives { PATIENCE } else { LOST }))
            .unwrap();
        first.send(b"probe").unwrap();
        // With its next settings, the link would deliver a packet that it has not looked at yet.
        assert!(arrives || becomes_true(|| link.report().there.lost == 1));
        assert_eq!(second.recv(&mut buffer).is_ok(), arrives, "{text}");
    }
    assert_eq!(link.report().there.lost, 1);
    // An open connection survives every change of path, independently in both directions.
    let listener = b.run(|| TcpListener::bind((b.address(), 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = a
        .run(|| TcpStream::connect_timeout(&address, PATIENCE))
        .unwrap();
    let (mut server, _) = listener.accept().unwrap();
    for socket in [&client, &server] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    for (direction, text) in [
        (Direction::There, "delay = '2ms'"),
        (Direction::Back, "delay = '1ms'\nloss = 0.01"),
        (Direction::There, ""),
        (Direction::Back, ""),
    ] {
        link.change(direction, of(text)).unwrap();
        let sent: Vec<u8> = (0..=255).cycle().take(200_000).collect();
        let mut got = vec![0; sent.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| client.write_all(&sent).unwrap());
            server.read_exact(&mut got).unwrap();
        });
        assert!(got == sent, "{text}");
        std::thread::scope(|scope| {
            scope.spawn(|| server.write_all(&sent).unwrap());
            client.read_exact(&mut got).unwrap();
        });
        assert!(got == sent, "{text}");
    }
    let report = lab.reports().unwrap().remove(0).1;
    assert!(
        report.there.straight_frames > 0 && report.there.packets > 100,
        "{report:?}"
    );
    assert_eq!(
        (report.there.unintended(), report.back.unintended()),
        (0, 0),
        "{report:?}"
    );
}

/// A flipped bit doesn't reach the receiving program, because checksums drop the packet.
fn corruption_is_caught_by_checksums() {
    let (lab, a, b) = lab([of("corrupt = 1.0"), of("")], 1500, Carrier::Brunt);
    let (first, second) = pair(&a, &b);
    for _ in 0..50 {
        first.send(&[0x5a; 1000]).unwrap();
    }
    let corrupted = || lab.link("wire").unwrap().report().there.corrupted;
    let begin = Instant::now();
    while corrupted() < 50 && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(corrupted(), 50);
    let mut buffer = [0; 2000];
    second.set_read_timeout(Some(LOST)).unwrap();
    assert!(second.recv(&mut buffer).is_err());
}

/// A process started on a host sees only that host's devices, and runs on its cores.
fn processes_run_on_hosts() {
    let (_lab, a, _) = lab(
        [
            of("delay = '1ms'"),
            Settings {
                delay: Span(Duration::from_secs(5)),
                ..of("")
            },
        ],
        1500,
        Carrier::Brunt,
    );
    // Threads that settle on the host share its core; others don't.
    let error = a.pin_to(&[100_000]).unwrap_err().to_string();
    assert!(
        error.contains("core 100000 is not available to this process; available cores: ")
            && a.pin_to(&[]).is_err(),
        "{error}"
    );
    let cores = |line: String| {
        line.lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:").map(str::to_string))
    };
    let own = || cores(std::fs::read_to_string("/proc/thread-self/status").unwrap()).unwrap();
    let all = own();
    a.pin_to(&[0]).unwrap();
    let settled = std::thread::scope(|scope| {
        scope
            .spawn(|| a.settle().map(|()| own()).unwrap())
            .join()
            .unwrap()
    });
    assert_eq!((settled.trim(), own()), ("0", all));
    let mut command = std::process::Command::new("cat");
    command.arg("/proc/self/status");
    a.place(&mut command).unwrap();
    let placed = cores(String::from_utf8(command.output().unwrap().stdout).unwrap()).unwrap();
    assert_eq!(placed.trim(), "0");
    let mut command = std::process::Command::new("cat");
    command.arg("/proc/self/net/dev");
    a.place(&mut command).unwrap();
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("link0:") && text.contains("lo:") && text.lines().count() == 5,
        "{text}"
    );
}
