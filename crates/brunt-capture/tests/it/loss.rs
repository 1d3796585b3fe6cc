//! Tests how many operations are recovered when the tap loses packets.

use crate::common;
use std::collections::HashSet;
use std::path::Path;

use brunt_capture::recovery::{FoundOperations, Loss};
use brunt_capture::{Analysis, Ledger, Limits, Pipeline, Report};
use brunt_wire::pcap::CapturedPacket;

fn run(packets: &[common::Packet], keep: impl Fn(usize) -> bool) -> (FoundOperations, Ledger) {
    let found = FoundOperations {
        sums: Some(HashSet::new()),
        ..FoundOperations::default()
    };
    let mut pipeline = Pipeline::new(found, Limits::default());
    for (index, packet) in packets.iter().enumerate().filter(|(index, _)| keep(*index)) {
        pipeline.on_packet(&common::numbered(index, packet));
    }
    let (found, ledger) = pipeline.finish();
    ledger.check().unwrap();
    (found, ledger)
}

/// Whether a packet is sent to the server.
fn is_to_server(packet: &common::Packet) -> bool {
    // The packets have Ethernet, IPv4 without options, and TCP headers.
    packet.3.get(36..38) == Some(&2049u16.to_be_bytes())
}

/// When packets are lost, one direction alone yields as much data as both directions: gaps neither wait for
/// acknowledgements that never come nor fill the memory.
#[test]
fn one_direction_yields_as_much_as_both_despite_losses() {
    let all = common::packets(&common::small_piece());
    let packets: Vec<_> = all
        .iter()
        .filter(|packet| is_to_server(packet))
        .cloned()
        .collect();
    let calls = |kept_bytes: usize, lose: bool| {
        let mut losing = Loss::new(1, 0.01);
        let limits = Limits {
            kept_bytes,
            ..Limits::default()
        };
        let mut pipeline = Pipeline::new(FoundOperations::default(), limits);
        let mut lost_bytes = 0;
        for (index, packet) in packets.iter().enumerate() {
            if lose && !losing.keeps() {
                lost_bytes += u64::from(packet.1);
            } else {
                pipeline.on_packet(&common::numbered(index, packet));
            }
        }
        let (_, ledger) = pipeline.finish();
        assert!(
            ledger.hole_bytes <= lost_bytes,
            "{} of {lost_bytes} bytes",
            ledger.hole_bytes
        );
        assert_eq!(ledger.replies, 0);
        ledger.calls
    };
    let whole = calls(48 << 20, false);
    assert!(whole > 200, "{whole} calls");
    for kept_bytes in [48 << 20, 64 << 10, 4 << 10] {
        let found = calls(kept_bytes, true);
        assert!(
            found * 100 >= whole * 95,
            "{found} of {whole} calls with {kept_bytes} bytes of memory"
        );
    }
}

/// Replies alone yield no operations, but the report mentions them.
#[test]
fn replies_alone_are_named() {
    let all = common::packets(&common::small_piece());
    let mut pipeline = Pipeline::new(Analysis::new(), Limits::default());
    for (index, packet) in all
        .iter()
        .enumerate()
        .filter(|(_, packet)| !is_to_server(packet))
    {
        pipeline.on_packet(&common::numbered(index, packet));
    }
    let (analysis, ledger) = pipeline.finish();
    assert_eq!(ledger.calls, 0);
    let report = analysis.report(&ledger);
    assert!(
        report
            .findings
            .iter()
            .any(|finding| finding.kind == "one-sided"),
        "{:?}",
        report.findings
    );
}

/// Calls alone have no latencies, errors or queue depths, and the text shows no zeros for them.
#[test]
fn calls_alone_have_no_latency() {
    let all = common::packets(&common::small_piece());
    let mut pipeline = Pipeline::new(Analysis::new(), Limits::default());
    for (index, packet) in all
        .iter()
        .enumerate()
        .filter(|(_, packet)| is_to_server(packet))
    {
        pipeline.on_packet(&common::numbered(index, packet));
    }
    let (analysis, ledger) = pipeline.finish();
    let report = analysis.report(&ledger);
    assert!(report.operations > 200 && !report.is_answered());
    let text = brunt_capture::analysis::report::text(&report);
    assert!(
        !text.contains(" ns") && !text.contains("at a time"),
        "{text}"
    );
    let getattr = text
        .lines()
        .find(|line| line.starts_with("GETATTR"))
        .expect("a row");
    let cells: Vec<&str> = getattr.split_whitespace().collect();
    assert_eq!(cells[3..], ["-"; 5], "{getattr}");
}

/// Removes packets at random and compares the findings with the whole capture.
fn check(path: &Path, recovered_min: f64, exact: bool) {
    let packets = common::packets(path);
    let (truth, _) = run(&packets, |_| true);
    assert!(truth.twice.is_empty());
    for (seed, loss) in [(1, 0.005), (2, 0.01), (3, 0.02), (4, 0.05)] {
        let mut losing = Loss::new(seed, loss);
        let kept: Vec<bool> = packets.iter().map(|_| losing.keeps()).collect();
        let (found, ledger) = run(&packets, |index| kept[index]);
        let recovery = truth.compare(&found, &kept, exact);
        // Nothing is invented or mismatched: every operation is one of the whole capture's, with its own call
        // and its own reply.
        assert_eq!(recovery.invented, Vec::<String>::new());
        let sums = |of: &FoundOperations| of.sums.clone().expect("they are collected");
        let had = sums(&truth);
        for key in &sums(&found) {
            assert!(had.contains(key), "a sum that the data never had: {key:?}");
        }
        let (recovered, possible, share) =
            (recovery.recovered, recovery.possible, recovery.share());
        println!(
            "{} loss {loss}: {recovered} of {possible} = {share:.5}; {} unmatched, {} searches over {} bytes",
            path.display(),
            ledger.replies_unmatched,
            ledger.slow_mode_entries,
            ledger.slow_mode_bytes
        );
        assert!(share >= recovered_min, "seed {seed}, loss {loss}: {share}");
    }
}

/// With up to 5 % of the packets lost, nearly all operations that can be recovered are, and no others.
#[test]
fn operations_of_the_small_piece_are_recovered_despite_losses() {
    check(&common::small_piece(), 0.985, false);
}

/// Of the small operations that can be recovered, at least 99.5 % are.
#[test]
fn small_operations_are_recovered_despite_losses() {
    if let Some(path) = common::shared("small-1500.pcap.zst") {
        check(&path, 0.995, true);
    }
}

/// If each operation spans many packets, at least 99.5 % of those that can be recovered are.
#[test]
fn large_operations_are_recovered_despite_losses() {
    if let Some(path) = common::shared("tput-9000.pcap.zst") {
        check(&path, 0.995, true);
    }
}

/// Packets lost at the tap, in addition to loss, reordering and duplication in the network.
#[test]
fn operations_from_a_lossy_network_are_recovered_despite_losses() {
    for name in ["retx-small.pcap.zst", "retx-tput.pcap.zst"] {
        if let Some(path) = common::shared(name) {
            check(&path, 0.995, false);
        }
    }
}

/// The report of packets whose times are given by `time`.
fn report_at(packets: &[common::Packet], time: impl Fn(usize, u64) -> u64) -> (Report, Ledger) {
    let mut pipeline = Pipeline::new(Analysis::new(), Limits::default());
    for (index, (time_ns, wire_len, link, bytes)) in packets.iter().enumerate() {
        pipeline.on_packet(&CapturedPacket {
            time_ns: time(index, *time_ns),
            wire_len: *wire_len,
            interface: 0,
            link: *link,
            bytes,
        });
    }
    let (analysis, ledger) = pipeline.finish();
    ledger.check().unwrap();
    (analysis.report(&ledger), ledger)
}

/// If the clock is set forwards or backwards while requests are outstanding, these have no latency; all others are
/// unchanged.
#[test]
fn latencies_across_a_clock_step_are_left_out_and_counted() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    let packets = common::packets(&common::small_piece());
    let replies = |report: &Report| {
        report
            .by_operation
            .iter()
            .map(|row| row.replies)
            .sum::<u64>()
    };
    let longest = |report: &Report| {
        let rows = report.by_operation.iter();
        rows.filter_map(|row| row.latency)
            .map(|latency| latency.max_ns)
            .max()
            .unwrap()
    };
    let (plain, ledger) = report_at(&packets, |_, time| time);
    assert_eq!((ledger.clock_steps, ledger.packets_back), (0, 0));
    let mut across = 0;
    for at in (50..packets.len() - 50).step_by(50) {
        for ahead in [true, false] {
            let (report, ledger) = report_at(&packets, |index, time| match (index < at, ahead) {
                (true, true) | (false, false) => time,
                _ => time + HOUR_NS,
            });
            assert_eq!(ledger.packets_back, u64::from(!ahead));
            assert!(ledger.clock_steps <= 1 && (ahead || ledger.clock_steps == 1));
            let waited = replies(&plain) - replies(&report);
            assert!(waited == 0 || ledger.clock_steps == 1, "{at} {ahead}");
            assert!(longest(&report) <= longest(&plain), "{at} {ahead}");
            let is_reported = report
                .findings
                .iter()
                .any(|found| found.kind == "clock-step");
            assert_eq!(is_reported, ledger.clock_steps > 0);
            across += waited;
        }
    }
    assert!(across > 10, "{across} requests waited");
}

/// Operations lose their calls, their replies, or both; the share in the finding is within a quarter of the actual
/// share.
#[test]
fn the_stated_loss_is_close_to_the_actual_share() {
    let packets = common::packets(&common::small_piece());
    let answered = |report: &Report| report.ledger.of("calls_answered") as f64;
    let (whole, _) = report_at(&packets, |_, time| time);
    let (mut lost, mut stated) = (0.0, 0.0);
    for seed in 1..=8 {
        let mut losing = Loss::new(seed, 0.03);
        let kept: Vec<_> = packets.iter().filter(|_| losing.keeps()).cloned().collect();
        let (report, ledger) = report_at(&kept, |_, time| time);
        lost += 1.0 - answered(&report) / answered(&whole);
        let operations = ledger.calls + ledger.replies_unmatched + ledger.records_lost;
        let parts = ledger.replies_unmatched + ledger.records_lost + ledger.replies_lost;
        assert!(ledger.replies_lost > 0);
        stated += parts as f64 / operations as f64;
        let text = format!("At least {parts} of {operations} operations");
        let found = &report.findings[0];
        assert!(found.text.starts_with(&text), "{}", found.text);
    }
    assert!((stated / lost - 1.0).abs() < 0.25, "{stated} {lost}");
}
