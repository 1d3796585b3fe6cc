//! Windows of a capture, compared with a plain count per window.

use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::time::Duration;

use brunt_capture::windows::tables::{WindowFacts, WindowTables, WindowTablesError};
use brunt_capture::{
    Analysis, ChecksumRun, Ledger, Limits, Operation, Pipeline, Sink, WindowCollector,
};
use brunt_wire::pcap::CapturedPacket;

use crate::common::{Packet, packets, small_piece};

const WIDTH_NS: u64 = 60_000_000_000;
const COUNT: u64 = 14;
/// A multiple of the width.
const START_NS: u64 = 1_767_225_600_000_000_000;

/// Counts operations by the window of the packet that completed them.
#[derive(Default)]
struct Counted {
    now_ns: u64,
    windows: BTreeMap<u64, u64>,
}

impl Sink for Counted {
    fn on_operation(&mut self, _: &Operation<'_>) {
        *self
            .windows
            .entry(self.now_ns / WIDTH_NS * WIDTH_NS)
            .or_default() += 1;
    }
    fn on_checksums(&mut self, _: &ChecksumRun<'_>) {}
    fn on_packet(&mut self, time_ns: u64, _: u32) {
        self.now_ns = time_ns;
    }
}

/// What a test checks for each window.
#[derive(Debug, PartialEq)]
struct Seen {
    from_ns: u64,
    operations: u64,
    calls_open: u64,
    valid: bool,
    duration_s: f64,
    intervals: u64,
}

/// A small capture, stretched over [`COUNT`] windows.
fn stretched() -> Vec<Packet> {
    let mut all = packets(&small_piece());
    let (first, last) = (all[0].0, all[all.len() - 1].0);
    let span = COUNT * WIDTH_NS - 1;
    for packet in &mut all {
        let since = u128::from(packet.0.saturating_sub(first)) * u128::from(span);
        packet.0 = START_NS + (since / u128::from(last - first)) as u64;
    }
    all
}

fn feed<S: Sink>(pipeline: &mut Pipeline<S>, all: &[Packet]) {
    for batch in all.chunks(7) {
        pipeline.on_packets(
            batch
                .iter()
                .map(|(time_ns, wire_len, link, bytes)| CapturedPacket {
                    time_ns: *time_ns,
                    wire_len: *wire_len,
                    interface: 0,
                    link: *link,
                    bytes,
                }),
        );
    }
}

/// Runs packets through windows until `end_ns`, and calls `each` with every window.
fn run_until(
    all: &[Packet],
    end_ns: u64,
    each: impl FnMut(&brunt_capture::CaptureWindow) + Send + 'static,
) {
    let width = Duration::from_nanos(WIDTH_NS);
    let (collector, mut sinks) =
        WindowCollector::start(width, vec![Analysis::new()], each).unwrap();
    let mut pipeline = Pipeline::new(sinks.remove(0), Limits::default());
    feed(&mut pipeline, all);
    pipeline.on_time(end_ns);
    drop(pipeline.finish());
    collector.finish();
}

/// Runs packets through windows; returns each window, the report of the whole capture, and the true counts.
fn run(all: &[Packet]) -> (Vec<Seen>, brunt_capture::Report, BTreeMap<u64, u64>) {
    let (to, from) = channel();
    let each = move |window: &brunt_capture::CaptureWindow| {
        let report = window.analysis.report(&window.ledger);
        let seen = Seen {
            from_ns: window.span.from_ns,
            operations: report.operations,
            calls_open: window.ledger.calls_open,
            valid: report.valid,
            duration_s: report.duration_s,
            intervals: report.intervals.iter().map(|row| row.operations).sum(),
        };
        to.send(seen).unwrap();
    };
    let analyses = vec![Analysis::new()];
    let width = Duration::from_nanos(WIDTH_NS);
    let (collector, mut sinks) = WindowCollector::start(width, analyses, each).unwrap();
    let sink = (sinks.remove(0), Counted::default());
    // Replies take minutes in the stretched capture.
    let limits = Limits {
        call_timeout_ns: u64::MAX,
        ..Limits::default()
    };
    let mut pipeline = Pipeline::new(sink, limits);
    feed(&mut pipeline, all);
    let ((windowed, counted), ledger): ((_, Counted), Ledger) = pipeline.finish();
    drop(windowed);
    let report = collector.finish().report(&ledger);
    (from.try_iter().collect(), report, counted.windows)
}

/// Each operation is in the window of its reply; the ledgers of the windows add up, even if calls are open when a
/// window ends, and together the windows make up the whole capture.
#[test]
fn windows_add_up_to_the_whole_capture() {
    let all = stretched();
    let (windows, whole, truth) = run(&all);
    assert_eq!(windows.len() as u64, COUNT, "{windows:?}");
    for (number, window) in (0..).zip(&windows) {
        assert_eq!(window.from_ns, START_NS + number * WIDTH_NS);
        let expected = truth.get(&window.from_ns).copied().unwrap_or(0);
        assert_eq!(window.operations, expected, "{window:?}");
        assert_eq!(window.intervals, expected, "{window:?}");
        assert!(window.valid, "{window:?}");
        assert!((window.duration_s - 60.0).abs() < 1e-6, "{window:?}");
    }
    assert!(windows.iter().any(|window| window.calls_open > 0));
    let sum: u64 = windows.iter().map(|window| window.operations).sum();
    assert_eq!(whole.operations, sum);
    assert!(whole.valid);
    // The report of all windows together equals that of a capture without windows.
    let mut pipeline = Pipeline::new(
        Analysis::new(),
        Limits {
            call_timeout_ns: u64::MAX,
            ..Limits::default()
        },
    );
    feed(&mut pipeline, &all);
    let (plain, ledger) = pipeline.finish();
    let plain = plain.report(&ledger);
    assert_eq!(whole.by_operation, plain.by_operation);
    assert_eq!(whole.clients, plain.clients);
    // In each window, a file's latencies are recorded only from its 32nd operation on, so they are not compared.
    let loads = |report: &brunt_capture::Report| -> Vec<_> {
        let files = report.files.as_ref().expect("all analyses ran");
        let rows = files.top.iter();
        rows.map(|row| (row.name.clone(), row.operations, row.bytes, row.time_ns))
            .collect()
    };
    assert_eq!(loads(&whole), loads(&plain));
    assert_eq!(whole.duration_s, plain.duration_s);
}

/// A packet with a wrong time, years ahead, gets its own window; later packets go to the right windows.
#[test]
fn a_wrong_time_does_not_keep_a_window_open() {
    let mut all = stretched();
    let middle = all.len() / 2;
    let right = run(&all).0;
    all[middle].0 += 400 * 86_400 * 1_000_000_000;
    let (windows, whole, _) = run(&all);
    assert_eq!(
        windows.iter().map(|window| window.operations).sum::<u64>(),
        whole.operations
    );
    // The windows before and after it are unchanged.
    let has = |window: &Seen| windows.iter().any(|other| other.from_ns == window.from_ns);
    assert!(right.iter().all(has), "{windows:?}");
}

/// A capture that ends after a quiet period has no window in the past, and no window's data begins before the window
/// does.
#[test]
fn a_quiet_time_at_the_end_is_not_in_the_past() {
    let all = stretched();
    let (to, from) = channel();
    run_until(
        &all[..all.len() / 2],
        START_NS + (COUNT + 3) * WIDTH_NS,
        move |window| {
            let start_ns = window.analysis.report(&window.ledger).start_ns;
            to.send((window.span.from_ns, start_ns)).unwrap();
        },
    );
    let windows: Vec<_> = from.try_iter().collect();
    assert!(
        windows.windows(2).all(|two| two[0].0 < two[1].0),
        "{windows:?}"
    );
    assert!(
        windows.iter().all(|(from, start)| start >= from),
        "{windows:?}"
    );
}

/// Writing the same packets again would count them twice.
#[test]
fn tables_refuse_windows_that_they_already_have() {
    let folder = tempfile::TempDir::new().unwrap();
    let all = stretched();
    for is_new in [true, false] {
        let mut tables = WindowTables::open(folder.path()).unwrap();
        run_until(&all, 0, move |window| {
            let report = window.analysis.report(&window.ledger);
            let written = tables.write(window, &report, &WindowFacts::default());
            match is_new {
                true => written.unwrap(),
                false => assert!(matches!(written, Err(WindowTablesError::Overlap))),
            }
        });
    }
}
