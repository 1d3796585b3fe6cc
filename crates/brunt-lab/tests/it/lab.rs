//! Tests of hosts and links in the kernel: real sockets over real devices.
//!
//! The rule: no timing is checked except for a generous upper bound; `brunt-bench link` measures accuracy.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use brunt_core::{Clock, Span};
use brunt_lab::link::{Direction, ResetPorts, Settings};
use brunt_lab::{Carrier, Fault, FaultError, Host, Lab, LinkConfig};

use crate::Test;

/// Longer than anything here takes, even on a machine that is busy otherwise.
const PATIENCE: Duration = Duration::from_secs(120);
/// After this time, packets that should be lost would have arrived.
const LOST: Duration = Duration::from_millis(300);

/// Whether the system supports links.
pub fn is_possible() -> bool {
    let possible = std::path::Path::new("/dev/net/tun").exists();
    if !possible {
        assert!(
            std::env::var("BRUNT_REQUIRE_ALL").is_err(),
            "needs /dev/net/tun"
        );
        println!("skipped: needs /dev/net/tun");
    }
    possible
}

pub const TESTS: [Test; 17] = [
    ("link_faults_are_proven", link_faults_are_proven),
    ("one_direction_is_cut", one_direction_is_cut),
    ("hosts_are_parted", hosts_are_parted),
    ("connections_are_reset", connections_are_reset),
    ("connections_close_slowly", connections_close_slowly),
    ("congestion_is_marked_for_tcp", congestion_is_marked_for_tcp),
    ("congestion_control_is_chosen", congestion_control_is_chosen),
    ("links_in_trouble_change", links_in_trouble_change),
    ("troubles_that_do_not_happen", troubles_that_do_not_happen),
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

fn lab(settings: [Settings; 2], mtu: u32, carrier: Carrier) -> (Lab, Host, Host) {
    let mut lab = Lab::new(["a", "b"], Clock::default()).unwrap();
    let between = ["a".to_string(), "b".to_string()];
    lab.add_link(&LinkConfig {
        name: "wire".into(),
        between,
        settings,
        mtu,
        seed: 7,
        carrier,
    })
    .unwrap();
    let (a, b) = (
        lab.host("a").unwrap().clone(),
        lab.host("b").unwrap().clone(),
    );
    (lab, a, b)
}

fn of(text: &str) -> Settings {
    let settings: Settings = toml::from_str(text).unwrap();
    settings.check().unwrap();
    settings
}

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

/// Sends `bytes` of a pattern over TCP and checks that all of them arrive at the other end.
fn transfer(from: &Host, to: &Host, bytes: usize) {
    let listener = to.run(|| TcpListener::bind((to.address(), 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let pattern: Vec<u8> = (0..251u8).cycle().take(251 * 512).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut socket = from
                .run(|| TcpStream::connect_timeout(&address, PATIENCE))
                .unwrap();
            socket.set_write_timeout(Some(PATIENCE)).unwrap();
            let mut left = bytes;
            while left > 0 {
                let count = left.min(pattern.len());
                socket.write_all(&pattern[..count]).unwrap();
                left -= count;
            }
        });
        let (mut socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut buffer = vec![0; 1 << 20];
        let mut got = 0;
        loop {
            let count = socket.read(&mut buffer).unwrap();
            if count == 0 {
                break;
            }
            check(&buffer[..count], got, &pattern);
            got += count;
        }
        assert_eq!(got, bytes);
    });
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
                (report.there.unmeant(), report.back.unmeant()),
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
                // The last frame of a connection may be between the two counters.
                let is_counted = || {
                    let (_, report) = lab.reports().unwrap().remove(0);
                    report.there.frames_in == report.there.packets
                };
                let mut looks = (0..100).map(|_| std::thread::sleep(Duration::from_millis(20)));
                assert!(is_counted() || looks.any(|()| is_counted()), "{report:?}");
            }
        }
    }
}

/// Compares whole slices: comparing bytes would make the receiver the slowest part.
fn check(mut bytes: &[u8], at: usize, pattern: &[u8]) {
    let mut place = at % pattern.len();
    while !bytes.is_empty() {
        let count = bytes.len().min(pattern.len() - place);
        assert!(
            bytes[..count] == pattern[place..place + count],
            "behind byte {at}"
        );
        bytes = &bytes[count..];
        place = 0;
    }
}

/// Two connected UDP sockets.
fn pair(a: &Host, b: &Host) -> (UdpSocket, UdpSocket) {
    let [first, second] = [a, b].map(|host| {
        let socket = host.run(|| UdpSocket::bind((host.address(), 0))).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    });
    let addresses: [SocketAddr; 2] = [first.local_addr().unwrap(), second.local_addr().unwrap()];
    first.connect(addresses[1]).unwrap();
    second.connect(addresses[0]).unwrap();
    (first, second)
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

/// Probes at the receiver observe each impairment of a link while it lasts, and not afterwards; an impairment without a
/// visible effect is an error (the canary).
fn link_faults_are_proven() {
    let (lab, _, _) = lab(
        [of("delay = '1ms'"), of("delay = '1ms'")],
        1500,
        Carrier::Brunt,
    );
    let clock = Clock::default();
    for (text, said) in [
        ("delay = '8ms'", "median latency"),
        ("delay = '1ms'\nloss = 0.05", "missing"),
        (
            "delay = '1ms'\nloss_bursts = { to_bad = 0.01, to_good = 0.2 }",
            "missing",
        ),
        ("delay = '1ms'\nloss = 1.0\nloss_gap = 20", "missing"),
        (
            "delay = '1ms'\nloss = 0.05\nloss_correlation = 0.3",
            "missing",
        ),
        ("delay = '1ms'\ncorrupt = 0.02", "damaged"),
        ("delay = '1ms'\necn = 0.1", "marked with congestion"),
        (
            "delay = '8ms'\njitter = '2ms'\ndistribution = 'paretonormal'",
            "median latency",
        ),
        ("delay = '1ms'\nduplicate = 0.1", "duplicated"),
        ("delay = '1ms'\nreorder = 0.02", "reordered"),
        ("delay = '5ms'\njitter = '4ms'", "median latency"),
        ("delay = '1ms'\nrate = '20Mb/s'", "packet trains at"),
        // All of them at once.
        (
            "delay = '1ms'\nloss = 0.02\ncorrupt = 0.02\nduplicate = 0.02\nreorder = 0.02\nrate = '50Mb/s'",
            "trains",
        ),
    ] {
        let mut fault = lab
            .link_fault("wire", [of(text), of("delay = '1ms'")])
            .unwrap();
        let proof = fault
            .inject(&clock)
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        let told = &proof.what;
        assert!(
            told.contains("there: ") && !told.contains("back: ") && told.contains(said),
            "{proof:?}"
        );
        fault
            .remove(&clock)
            .unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    for (text, seen) in [
        ("delay = '1ms'\nloss = 0.0000001", "too rare"),
        ("delay = '1ms'\nrate = '900Gb/s'", "is not visible"),
    ] {
        let mut fault = lab
            .link_fault("wire", [of(text), of("delay = '1ms'")])
            .unwrap();
        let error = fault.inject(&clock).unwrap_err();
        assert!(matches!(error, FaultError::NotShown { .. }), "{error}");
        assert!(error.to_string().contains(seen), "{error}");
    }
    // A delay below the time that packets take anyway.
    let mut fault = lab
        .link_fault("wire", [of("delay = '1001us'"), of("delay = '1ms'")])
        .unwrap();
    assert!(
        fault
            .inject(&clock)
            .unwrap_err()
            .to_string()
            .contains("cannot be distinguished")
    );
    // Dropped without removal: the link is as it was before.
    let mut fault = lab
        .link_fault("wire", [of("loss = 1.0"), of("loss = 1.0")])
        .unwrap();
    fault.inject(&clock).unwrap();
    drop(fault);
    transfer(lab.host("a").unwrap(), lab.host("b").unwrap(), 1 << 20);
}

/// A fault of one direction stops packets in that direction only; if the other direction stops, too, the fault fails.
fn one_direction_is_cut() {
    let (lab, a, b) = lab([of(""), of("delay = '1ms'")], 1500, Carrier::Brunt);
    let clock = Clock::default();
    let (first, second) = pair(&a, &b);
    let arrives = |from: &UdpSocket, to: &UdpSocket| {
        to.set_read_timeout(Some(LOST)).unwrap();
        from.send(b"probe").unwrap();
        to.recv(&mut [0; 16]).is_ok()
    };
    for (from, cut) in [("a", [true, false]), ("b", [false, true])] {
        let during = Settings {
            loss: 1.0,
            ..lab.settings_from("wire", from).unwrap()
        };
        let mut fault = lab.one_way_fault("wire", from, during).unwrap();
        let proof = fault.inject(&clock).unwrap();
        assert!(
            fault.describe().contains("link wire cut from"),
            "{}",
            fault.describe()
        );
        assert!(proof.what.contains("works as before"), "{proof:?}");
        assert_eq!(
            [!arrives(&first, &second), !arrives(&second, &first)],
            cut,
            "from {from}"
        );
        fault.remove(&clock).unwrap();
        assert!(arrives(&first, &second) && arrives(&second, &first));
    }
    let error = lab
        .one_way_fault("wire", "c", of("loss = 1.0"))
        .map(drop)
        .unwrap_err();
    assert!(
        error.to_string().contains("connects a and b, not c"),
        "{error}"
    );
    // Stop the other direction without the lab's knowledge.
    let during = Settings {
        loss: 1.0,
        ..lab.settings_from("wire", "a").unwrap()
    };
    let mut fault = lab.one_way_fault("wire", "a", during).unwrap();
    lab.link("wire")
        .unwrap()
        .change(Direction::Back, of("loss = 1.0"))
        .unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let probed = std::thread::scope(|scope| {
        // Injecting sets both directions, so the other one is stopped while it probes.
        let link = lab.link("wire").unwrap();
        scope.spawn(|| {
            let link = link;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = link.change(Direction::Back, of("loss = 1.0"));
            }
        });
        let probed = fault.inject(&clock);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        probed
    });
    assert!(
        matches!(probed, Err(FaultError::NotShown { .. })),
        "{probed:?}"
    );
}

/// An open connection between two hosts: the first host's end, then the second's.
fn connection(a: &Host, b: &Host) -> (TcpStream, TcpStream) {
    let listener = b.run(|| TcpListener::bind((b.address(), 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let near = a
        .run(|| TcpStream::connect_timeout(&address, PATIENCE))
        .unwrap();
    let (far, _) = listener.accept().unwrap();
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    (near, far)
}

fn config(name: &str, first: &str, second: &str, settings: &str) -> LinkConfig {
    LinkConfig {
        name: name.into(),
        between: [first.into(), second.into()],
        settings: [of(settings), of(settings)],
        mtu: 1500,
        seed: 7,
        carrier: Carrier::Brunt,
    }
}

/// Separated hosts reach all others but not each other, over several links and over one; connections between them
/// continue after reconnection.
fn hosts_are_parted() {
    let mut lab = Lab::new(["a", "b", "c", "alone"], Clock::default()).unwrap();
    lab.add_link(&config("one", "a", "b", "delay = '1ms'"))
        .unwrap();
    lab.add_link(&config("two", "b", "c", "")).unwrap();
    lab.route().unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| lab.host(name).unwrap().clone());
    let clock = Clock::default();
    let arrives = |from: &Host, to: &Host| {
        let (first, second) = pair(from, to);
        second.set_read_timeout(Some(LOST)).unwrap();
        first.send(b"probe").unwrap();
        second.recv(&mut [0; 16]).is_ok()
    };
    for (first, second, others) in [
        ("a", "c", [(&a, &b), (&b, &c)]),
        ("c", "b", [(&a, &b), (&a, &c)]),
    ] {
        let (one, other) = (lab.host(first).unwrap(), lab.host(second).unwrap());
        let (mut near, mut far) = connection(one, other);
        let mut fault = lab.partition(&[first], &[second]).unwrap();
        let proof = fault.inject(&clock).unwrap();
        assert!(
            proof.what.contains(&format!("from {first} to {second}: ")),
            "{proof:?}"
        );
        assert!(!arrives(one, other) && !arrives(other, one));
        for (from, to) in others {
            assert!(arrives(from, to) && arrives(to, from), "{first} {second}");
        }
        near.write_all(b"late").unwrap();
        fault.remove(&clock).unwrap();
        assert!(arrives(one, other) && arrives(other, one));
        let mut got = [0; 4];
        far.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"late");
    }
    let report = lab.link("one").unwrap().report();
    assert!(
        report.there.parted > 0 && report.there.lost == 0,
        "{report:?}"
    );
    for (first, second) in [("a", "alone"), ("a", "a")] {
        let error = lab.partition(&[first], &[second]).unwrap_err().to_string();
        assert!(error.contains("no route"), "{error}");
    }
    // Groups: hosts of different groups are separated from each other, hosts of the same group are not.
    let mut fault = lab.partition(&["a", "b"], &["c"]).unwrap();
    let proof = fault.inject(&clock).unwrap();
    assert!(
        proof.value >= Some(1024.0) && proof.what.contains("from b to c: "),
        "{proof:?}"
    );
    for (from, to, passes) in [(&a, &b, true), (&a, &c, false), (&c, &b, false)] {
        assert_eq!(
            (arrives(from, to), arrives(to, from)),
            (passes, passes),
            "{} {}",
            from.name(),
            to.name()
        );
    }
    assert!(
        fault
            .remove(&clock)
            .unwrap()
            .what
            .contains(" packets stopped; from a to c: ")
    );
    assert!(arrives(&a, &c) && arrives(&b, &c));
    // Dropped without removal: the hosts are reconnected. If they are already separated, a second fault cannot be
    // proven.
    let mut fault = lab.partition(&["a"], &["b"]).unwrap();
    fault.inject(&clock).unwrap();
    let error = lab
        .partition(&["b"], &["a"])
        .unwrap()
        .inject(&clock)
        .unwrap_err();
    assert!(matches!(error, FaultError::NotShown { .. }), "{error}");
    drop(fault);
    assert!(arrives(&a, &b));
}

/// A reset ends the matching connections at the receiver, according to that host's own counter, while the other host
/// sent none; other connections continue. It works with data in flight, lost packets and long trains, and is an error
/// if nothing is sent.
fn connections_are_reset() {
    for text in ["", "delay = '2ms'", "delay = '1ms'\nloss = 0.02"] {
        let (lab, a, b) = lab([of(text), of(text)], 1500, Carrier::Brunt);
        let clock = Clock::default();
        let (mut near, mut far) = connection(&a, &b);
        let (mut spared_near, mut spared_far) = connection(&a, &b);
        let ports = ResetPorts::Either(far.local_addr().unwrap().port());
        let mut fault = lab.tcp_reset("a", "b", ports).unwrap();
        // Data is sent continuously until one side notices.
        let (read, sent, proof) = std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut buffer = vec![0; 1 << 16];
                loop {
                    match far.read(&mut buffer) {
                        Ok(0) => break Ok(()),
                        Ok(_) => {}
                        Err(error) => break Err(error.kind()),
                    }
                }
            });
            let sending = scope.spawn(|| {
                loop {
                    if let Err(error) = near.write_all(&[7; 1 << 15]) {
                        break error.kind();
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let proof = fault.inject(&clock);
            (reading.join().unwrap(), sending.join().unwrap(), proof)
        });
        let proof = proof.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(read, Err(std::io::ErrorKind::ConnectionReset), "{text}");
        assert!(
            matches!(
                sent,
                std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe
            ),
            "{sent}"
        );
        assert_eq!(proof.value, Some(1.0), "{text}: {proof:?}");
        assert_eq!(
            (
                counted(&b, "snmp", "EstabResets"),
                counted(&a, "snmp", "OutRsts")
            ),
            (1, 0),
            "{text}"
        );
        spared_near.write_all(b"spared").unwrap();
        spared_far.read_exact(&mut [0; 6]).unwrap();
        fault.remove(&clock).unwrap();
        let report = lab.link("wire").unwrap().report();
        assert!(
            report.there.tcp_resets >= 1 && report.back.tcp_resets == 0,
            "{report:?}"
        );
        transfer(&a, &b, 1 << 20);
    }
    one_connection_is_reset();
}

/// A reset from the other side, of a single connection, based on its own packets; without traffic nothing is reset.
fn one_connection_is_reset() {
    let (lab, a, b) = lab([of(""), of("")], 1500, Carrier::Brunt);
    let clock = Clock::default();
    let (mut near, mut far) = connection(&a, &b);
    let port = |socket: &TcpStream| socket.local_addr().unwrap().port();
    let ports = ResetPorts::Both {
        from: port(&far),
        to: port(&near),
    };
    let mut fault = lab.tcp_reset("b", "a", ports).unwrap();
    let proof = std::thread::scope(|scope| {
        scope.spawn(|| {
            while far.write_all(b"more").is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        fault.inject(&clock).unwrap()
    });
    assert!(proof.what.contains("a: 1 connections reset"), "{proof:?}");
    assert_eq!(counted(&b, "snmp", "OutRsts"), 0);
    let mut rest = Vec::new();
    assert_eq!(
        near.read_to_end(&mut rest).unwrap_err().kind(),
        std::io::ErrorKind::ConnectionReset
    );
    fault.remove(&clock).unwrap();
    // The canary: no traffic.
    let mut fault = lab.tcp_reset("a", "b", ResetPorts::Either(9)).unwrap();
    let error = fault.inject(&clock).unwrap_err();
    assert!(matches!(error, FaultError::NotShown { .. }), "{error}");
}

/// A held FIN arrives no earlier than its hold time, after all data before it; the proof closes a connection of its
/// own.
fn connections_close_slowly() {
    let (lab, a, b) = lab([of(""), of("delay = '1ms'")], 1500, Carrier::Brunt);
    let clock = Clock::default();
    let held = Duration::from_millis(700);
    let mut fault = lab
        .one_way_fault("wire", "a", of("slow_close = '700ms'"))
        .unwrap();
    let proof = fault.inject(&clock).unwrap();
    assert!(
        proof.what.contains("to close") && proof.what.contains("works as before"),
        "{proof:?}"
    );
    for bytes in [0, 1, 300_000] {
        let (mut near, mut far) = connection(&a, &b);
        let sent: Vec<u8> = (0..=255).cycle().take(bytes).collect();
        let begin = Instant::now();
        let mut got = vec![0; bytes];
        let data = std::thread::scope(|scope| {
            scope.spawn(|| {
                near.write_all(&sent).unwrap();
                near.shutdown(std::net::Shutdown::Write).unwrap();
            });
            far.read_exact(&mut got).unwrap();
            begin.elapsed()
        });
        assert!(got == sent);
        assert_eq!(far.read(&mut [0; 1]).unwrap(), 0);
        assert!(
            begin.elapsed() >= held,
            "{bytes}: {:?}, data after {data:?}",
            begin.elapsed()
        );
        // The other side's FIN is not held, and the connection is closed for both.
        drop(far);
        near.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(near.read(&mut [0; 1]).unwrap(), 0);
    }
    let report = lab.link("wire").unwrap().report();
    assert!(
        report.there.fins_held >= 4 && report.back.fins_held == 0,
        "{report:?}"
    );
    fault.remove(&clock).unwrap();
    assert_eq!(lab.link("wire").unwrap().report().there.unmeant(), 0);
    // The canary: a link that holds FINs in the other direction.
    let mut fault = lab
        .one_way_fault("wire", "b", of("delay = '1ms'\nslow_close = '300ms'"))
        .unwrap();
    fault.inject(&clock).unwrap();
    let (near, mut far) = connection(&a, &b);
    let begin = Instant::now();
    near.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(far.read(&mut [0; 1]).unwrap(), 0);
    assert!(begin.elapsed() < Duration::from_secs(60));
    fault.remove(&clock).unwrap();
}

/// A host's counter with this name in /proc/net/snmp or netstat.
fn counted(host: &Host, file: &str, name: &str) -> u64 {
    let text = host
        .run(|| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")))
        .unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut named = lines
        .chunks_exact(2)
        .flat_map(|pair| pair[0].split_whitespace().zip(pair[1].split_whitespace()));
    named
        .find(|(key, _)| *key == name)
        .map_or(0, |(_, value)| value.parse().unwrap())
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
            assert_eq!((there.unmeant(), there.lost), (0, 0), "{report:?}");
            assert_eq!(there.ecn_marked > 0, capable, "{report:?}");
            assert!(there.ecn_not_capable > 0 || capable, "{report:?}");
            // The host counts merged packets as one.
            let arrived = counted(&b, "netstat", "InCEPkts");
            assert!(
                arrived <= there.ecn_marked && (arrived > 0) == capable,
                "{arrived}: {report:?}"
            );
            assert_eq!(counted(&a, "netstat", "TCPDeliveredCE") > 0, capable);
        }
    }
}

/// On a link with impairments, only what a fault changes has to be observed, for better or for worse; a change that
/// cannot be observed is an error.
fn links_in_trouble_change() {
    let standing = "delay = '2ms'\njitter = '1ms'\nloss = 0.03\ncorrupt = 0.0002";
    let (lab, _, _) = lab([of(standing), of(standing)], 1500, Carrier::Brunt);
    let clock = Clock::default();
    for (from, to, seen) in [
        // The corruption existed before; 256 packets don't encounter it.
        ("'2ms'", "'12ms'", Ok("median latency")),
        ("loss = 0.03", "loss = 0.2", Ok("missing")),
        // Damaged packets are still missing.
        ("loss = 0.03", "loss = 0.0", Ok("there: ")),
        (
            "loss = 0.03",
            "loss_bursts = { to_bad = 0.02, to_good = 0.1 }",
            Ok("missing"),
        ),
        (
            "loss = 0.03",
            "loss = 0.0301",
            Err("loss with a probability of 0.0301 instead of 0.03 is too rare"),
        ),
        ("'2ms'", "'2001us'", Err("cannot be distinguished")),
        (", ", ", ", Err("already has these settings")),
        (
            "delay",
            "queue = '64KiB'\ndelay",
            Err("probe packets cannot show this change"),
        ),
        (
            "delay",
            "keep_order = false\ndelay",
            Err("probe packets cannot show this change"),
        ),
    ] {
        let settings = of(&standing.replace(from, to));
        let mut fault = lab.link_fault("wire", [settings, of(standing)]).unwrap();
        match (fault.inject(&clock), seen) {
            (Ok(proof), Ok(said)) => {
                assert!(proof.what.contains(said), "{to}: {proof:?}");
                fault
                    .remove(&clock)
                    .unwrap_or_else(|error| panic!("{to}: {error}"));
            }
            (Err(error), Err(said)) => assert!(error.to_string().contains(said), "{to}: {error}"),
            (result, _) => panic!("{to}: {result:?}"),
        }
    }
}

/// The canary: if packets silently bypass a link's impairments, no effect is claimed, whatever the link itself reports.
fn troubles_that_do_not_happen() {
    let (lab, a, _) = lab([of(""), of("")], 1500, Carrier::Brunt);
    // Without the lab's knowledge, packets bypass the link's thread, whatever its routes are.
    for arguments in [
        "rule add pref 1 to 10.77.0.2 lookup 100",
        "route add 10.77.0.2 dev straight0 src 10.77.0.1 table 100",
    ] {
        let mut command = std::process::Command::new("ip");
        command.args(arguments.split(' '));
        a.place(&mut command).unwrap();
        let done = command.output().is_ok_and(|output| output.status.success());
        if !done && arguments.starts_with("rule add") {
            assert!(
                std::env::var("BRUNT_REQUIRE_ALL").is_err(),
                "needs iproute2"
            );
            println!("skipped: needs iproute2");
            return;
        }
    }
    let clock = Clock::default();
    for (text, absent) in [
        ("delay = '30ms'", "no delay"),
        ("loss = 0.1", "no loss"),
        ("corrupt = 0.1", "no damaged packet"),
        ("ecn = 0.1", "no packet marked"),
        ("loss = 1.0\nloss_gap = 10", "no loss"),
        ("duplicate = 0.1", "no duplicated packet"),
        ("reorder = 0.1", "no reordered packet"),
        ("delay = '40ms'\njitter = '30ms'", "no jitter"),
        ("rate = '5Mb/s'", "a rate of 5.000 Mb/s is not visible"),
        ("loss = 1.0", "no loss of all"),
    ] {
        let mut fault = lab.link_fault("wire", [of(text), of("")]).unwrap();
        let error = fault.inject(&clock).expect_err(text);
        assert!(
            matches!(error, FaultError::NotShown { .. }),
            "{text}: {error}"
        );
        assert!(error.to_string().contains(absent), "{text}: {error}");
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
            (report.there.unmeant(), report.back.unmeant()),
            (0, 0),
            "{report:?}"
        );
        assert!(report.there.packets >= (2 << 20) / 1460, "{report:?}");
        assert_eq!(
            report.there.frames_in == report.there.packets,
            wire_size,
            "{report:?}"
        );
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
        (report.there.unmeant(), report.back.unmeant()),
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
    let error = a.keep_on(&[100_000]).unwrap_err().to_string();
    assert!(
        error.contains("unknown core 100000; the cores are ") && a.keep_on(&[]).is_err(),
        "{error}"
    );
    let cores = |line: String| {
        line.lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:").map(str::to_string))
    };
    let own = || cores(std::fs::read_to_string("/proc/thread-self/status").unwrap()).unwrap();
    let all = own();
    a.keep_on(&[0]).unwrap();
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
