//! Tests of link faults: they take effect, their proofs hold, and a fault without effect is an error.
//!
//! The rule: no timing is checked except for a generous upper bound.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use brunt_core::Clock;
use brunt_lab::link::{Direction, ResetPorts, Settings};
use brunt_lab::{Carrier, Fault, FaultError, Host, Lab};

use crate::Test;
use crate::two_hosts::{PATIENCE, arrives, config, connection, counted, lab, of, pair, transfer};

pub const TESTS: [Test; 7] = [
    ("link_faults_are_proven", link_faults_are_proven),
    ("one_direction_is_cut", one_direction_is_cut),
    ("hosts_are_parted", hosts_are_parted),
    ("connections_are_reset", connections_are_reset),
    ("connections_close_slowly", connections_close_slowly),
    ("links_in_trouble_change", links_in_trouble_change),
    ("troubles_that_do_not_happen", troubles_that_do_not_happen),
];

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
        ("delay = '40ms'", "median latency"),
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
            "delay = '60ms'\njitter = '15ms'\ndistribution = 'paretonormal'",
            "median latency",
        ),
        ("delay = '1ms'\nduplicate = 0.1", "duplicated"),
        ("delay = '1ms'\nreorder = 0.02", "reordered"),
        ("delay = '25ms'\njitter = '20ms'", "median latency"),
        ("delay = '1ms'\nrate = '20Mb/s'", "packet trains at"),
        // All impairments at once.
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
    // Dropping the fault without removing it restores the link.
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
            [
                !arrives(&first, &second, !cut[0]),
                !arrives(&second, &first, !cut[1])
            ],
            cut,
            "from {from}"
        );
        fault.remove(&clock).unwrap();
        assert!(arrives(&first, &second, true) && arrives(&second, &first, true));
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
        // Injecting the fault sets both directions, so this thread keeps stopping the other direction while the fault
        // probes it.
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
    let passes = |from: &Host, to: &Host, expected: bool| {
        let (first, second) = pair(from, to);
        arrives(&first, &second, expected)
    };
    let connected = |one: &Host, other: &Host| passes(one, other, true) && passes(other, one, true);
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
        assert!(!passes(one, other, false) && !passes(other, one, false));
        for (from, to) in others {
            assert!(connected(from, to), "{first} {second}");
        }
        near.write_all(b"late").unwrap();
        fault.remove(&clock).unwrap();
        assert!(connected(one, other));
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
    for (from, to, expected) in [(&a, &b, true), (&a, &c, false), (&c, &b, false)] {
        assert_eq!(
            (passes(from, to, expected), passes(to, from, expected)),
            (expected, expected),
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
    assert!(connected(&a, &c) && connected(&b, &c));
    // Dropping the fault without removing it reconnects the hosts. If the hosts are already separated, a second fault
    // cannot be proven.
    let mut fault = lab.partition(&["a"], &["b"]).unwrap();
    fault.inject(&clock).unwrap();
    let error = lab
        .partition(&["b"], &["a"])
        .unwrap()
        .inject(&clock)
        .unwrap_err();
    assert!(matches!(error, FaultError::NotShown { .. }), "{error}");
    drop(fault);
    assert!(connected(&a, &b));
}

/// A reset ends the matching connections at the receiver, according to that host's own counter, while the other host
/// sent none; other connections continue. A reset works with data in flight, lost packets and long trains; if nothing
/// is sent, the fault fails.
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

/// A single connection is reset from the other side, based on the packets of that connection; without traffic,
/// nothing is reset.
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
    // The canary: without traffic, no reset is seen and the fault fails.
    let mut fault = lab.tcp_reset("a", "b", ResetPorts::Either(9)).unwrap();
    let error = fault.inject(&clock).unwrap_err();
    assert!(matches!(error, FaultError::NotShown { .. }), "{error}");
}

/// A held FIN arrives no earlier than its hold time, after all data before it; the proof closes a separate connection.
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
    assert_eq!(lab.link("wire").unwrap().report().there.unintended(), 0);
    // The canary: only FINs in the other direction are held.
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

/// On a link that is already impaired, only the fault's changes have to be observed, whether they increase or reduce
/// an impairment; a change that cannot be observed is an error.
fn links_in_trouble_change() {
    let standing = "delay = '2ms'\njitter = '1ms'\nloss = 0.03\ncorrupt = 0.0002";
    let (lab, _, _) = lab([of(standing), of(standing)], 1500, Carrier::Brunt);
    let clock = Clock::default();
    for (from, to, seen) in [
        // The link corrupted packets before, but too rarely for 256 packets to show it.
        ("'2ms'", "'12ms'", Ok("median latency")),
        ("loss = 0.03", "loss = 0.2", Ok("missing")),
        // Packets damaged by the link still go missing.
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
    // Packets also look delayed if the machine pauses before it receives them, so these delays exceed any pause.
    for (text, absent) in [
        ("delay = '10s'", "no delay"),
        ("loss = 0.1", "no loss"),
        ("corrupt = 0.1", "no damaged packet"),
        ("ecn = 0.1", "no packet marked"),
        ("loss = 1.0\nloss_gap = 10", "no loss"),
        ("duplicate = 0.1", "no duplicated packet"),
        ("reorder = 0.1", "no reordered packet"),
        ("delay = '10s'\njitter = '9s'", "no jitter"),
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
