use super::*;

use std::path::{Path, PathBuf};

use brunt_block::backends::memory::MemoryBackend;
use brunt_block::backends::null::NullBackend;
use brunt_result::replay::ReplayVerdict;
use brunt_result::void::VoidReason;
use brunt_result::{Interval, RequestRecord, RequestStatus};

use crate::Recorder;
use crate::decisions;

/// A trace in a folder of its own; rows are `device,offset,length,R|W,microseconds`.
fn trace(folder: &Path, rows: impl Iterator<Item = (u32, u64, u64, char, u64)>) -> PathBuf {
    let path = folder.join("x.csv");
    let mut text = String::new();
    for (device, offset, len, op, us) in rows {
        text += &format!("{device},{op},{offset},{len},{us}\n");
    }
    std::fs::write(&path, text).unwrap();
    path
}

fn load(path: &Path, keys: &str) -> ReplayLoad {
    let text =
        format!("trace = {path:?}\nformat = \"alibaba\"\nqueue_depth = 16\nrecord_requests = true\n{keys}");
    let workload: Workload = toml::from_str(&text).unwrap();
    workload.check().unwrap();
    ReplayLoad::new(workload, None)
}

#[derive(Default)]
struct Keep(Vec<RequestRecord>);
impl Recorder for Keep {
    fn interval(&mut self, _interval: &Interval) {}
    fn requests(&mut self, batch: &[RequestRecord]) {
        self.0.extend_from_slice(batch);
    }
}

/// What came of a run, and its requests in the order of the trace.
fn replayed(
    load: &ReplayLoad,
    backend: impl Backend + 'static,
) -> (Outcome, ReplayFidelity, Vec<RequestRecord>) {
    let on = LoadTarget::of(Arc::new(backend));
    load.open(&on).unwrap();
    let mut kept = Keep::default();
    let ran = decisions::run(load, &on, &RunOrder::alone(1), &AtomicBool::new(false), &mut kept).unwrap();
    kept.0.sort_by_key(|request| request.index);
    (ran.outcome, *ran.finished.replay.unwrap(), kept.0)
}

fn memory(bytes: u64) -> MemoryBackend {
    MemoryBackend::new(bytes, 512).unwrap()
}

/// Every request of the trace goes out once, with its operation, address and size, by however many workers, and is due
/// at its time.
#[test]
fn the_same_requests_go_out_at_their_times() {
    let folder = tempfile::tempdir().unwrap();
    let rows = |at: u64| {
        (0, at * 8192 % (1 << 20), 512 * (1 + at % 9), if at.is_multiple_of(3) { 'W' } else { 'R' }, at * 50)
    };
    let path = trace(folder.path(), (0..5000).map(rows));
    for (workers, repeat) in [(1, 1), (3, 1), (2, 3)] {
        let load = load(&path, &format!("speed = 10.0\nworkers = {workers}\nloop = {repeat}"));
        let (outcome, fidelity, requests) = replayed(&load, memory(4 << 20));
        assert_eq!((outcome.figures.completed(), fidelity.sent), (5000 * repeat, 5000 * repeat));
        assert_eq!(fidelity.digests.planned, fidelity.digests.sent);
        if repeat == 1 {
            assert_eq!(fidelity.digests.trace, fidelity.digests.sent);
        }
        assert_eq!(requests.len() as u64, 5000 * repeat);
        let start = requests[0].intended.0;
        for (place, request) in requests.iter().enumerate() {
            let (_, offset, len, op, us) = rows(place as u64 % 5000);
            assert_eq!(request.index, place as u64);
            assert_eq!((request.offset, request.len, request.op == OpKind::Write), (offset, len, op == 'W'));
            if place < 5000 {
                assert_eq!(request.intended.0 - start, us * 100);
            }
            assert!(request.sent >= Some(request.intended));
        }
        assert!(fidelity.over_time.iter().map(|moment| moment.requests).sum::<u64>() == 5000 * repeat);
    }
}

/// As fast as possible, a depth is kept; the order is the trace's.
#[test]
fn a_depth_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(folder.path(), (0..20_000).map(|at| (0, at * 512, 512, 'R', at * 1_000_000)));
    let (outcome, fidelity, _) = replayed(&load(&path, "timing = \"depth\""), NullBackend::new(1 << 30, 512));
    assert_eq!((outcome.figures.completed(), fidelity.verdict), (20_000, ReplayVerdict::True));
    assert_eq!((fidelity.drift, fidelity.issue_error, fidelity.reordered), (None, None, 0));
}

/// Addresses go where the map says, and a trace that does not fit as it is is refused with the key that has to change.
#[test]
fn addresses_are_mapped() {
    let folder = tempfile::tempdir().unwrap();
    let far = 33u64 << 30;
    let rows =
        [(7, 0, 4096, 'W', 0), (7, far, 8192, 'R', 10), (9, 4096, 512, 'R', 20), (7, far, 512, 'W', 30)];
    let path = trace(folder.path(), rows.into_iter());
    let info = memory(1 << 20).info().clone();
    let misfit = load(&path, "").check_trace(&info).unwrap_err();
    assert!(misfit.key == "map" && misfit.what.contains("pack"), "{misfit}");
    let (_, fidelity, requests) = replayed(&load(&path, "map = \"pack\""), memory(1 << 20));
    let offsets: Vec<u64> = requests.iter().map(|request| request.offset).collect();
    assert_eq!(offsets, [0, 65536, 65536 * 2 + 4096, 65536]);
    assert_eq!(fidelity.rows["moved: packed"], 3);
    let (_, fidelity, requests) =
        replayed(&load(&path, "map = \"wrap\"\ntiming = \"depth\""), memory(1 << 20));
    assert!(requests.iter().all(|request| request.offset + request.len <= 1 << 20));
    assert_eq!(fidelity.verdict, ReplayVerdict::Degraded);
    let (_, _, requests) = replayed(&load(&path, "devices = { \"9\" = \"disk\" }"), memory(1 << 20));
    assert_eq!((requests.len(), requests[0].offset), (1, 4096));
    let absent = load(&path, "devices = { \"8\" = \"disk\" }").check_trace(&info).unwrap_err();
    assert!(absent.key == "devices" && absent.what.contains("7, 9"), "{absent}");
}

/// A part of a trace's time is replayed, and rows outside of it are counted.
#[test]
fn parts_of_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(folder.path(), (0..100).map(|at| (0, at * 512, 512, 'R', 5_000_000 + at * 1000)));
    let part = load(&path, "from = \"20ms\"\nfor = \"10ms\"");
    let (_, fidelity, requests) = replayed(&part, memory(1 << 20));
    assert_eq!((requests.len(), requests[0].offset, requests[9].offset), (10, 20 * 512, 29 * 512));
    assert_eq!(fidelity.rows["left out: before `from`"], 20);
    let info = memory(1 << 20).info().clone();
    assert_eq!(load(&path, "from = \"1h\"").check_trace(&info).unwrap_err().key, "from");
}

/// Requests on the same blocks are let through, held back or dropped, and counted in any case.
#[test]
fn conflicts_are_handled_as_asked() {
    let folder = tempfile::tempdir().unwrap();
    // Pairs of writes on one block, both due at once.
    let path = trace(folder.path(), (0..200).map(|at| (0, at / 2 * 4096, 4096, 'W', at / 2 * 100)));
    for rule in ["let-through", "hold-back", "drop"] {
        let (outcome, fidelity, requests) =
            replayed(&load(&path, &format!("conflicts = \"{rule}\"")), memory(1 << 20));
        let conflicts = fidelity.conflicts.requests;
        assert_eq!(fidelity.conflicts.rule, rule);
        assert!((1..=100).contains(&conflicts), "{rule}: {conflicts}");
        let sent = if rule == "drop" { 200 - conflicts } else { 200 };
        assert_eq!((fidelity.sent, outcome.figures.completed()), (sent, sent), "{rule}");
        if rule == "hold-back" {
            assert!(requests.chunks(2).all(|pair| pair[1].sent >= pair[0].completed), "{rule}");
        }
        if rule == "drop" {
            assert_ne!(fidelity.verdict, ReplayVerdict::True);
            assert!(fidelity.reasons.iter().any(|reason| reason.ends_with("requests were not sent; write conflicts = \"hold-back\"")));
        }
    }
}

/// What is written is found again by later reads; a device that forgets is found out.
#[test]
fn a_replay_verifies() {
    let folder = tempfile::tempdir().unwrap();
    let op = |at: u64| if at.is_multiple_of(2) { 'W' } else { 'R' };
    let path = trace(folder.path(), (0..4000).map(|at| (0, at / 2 % 64 * 4096, 4096, op(at), at)));
    let load = load(&path, "verify = {}\ntiming = \"depth\"");
    let (outcome, _, _) = replayed(&load, memory(1 << 20));
    assert_eq!((outcome.figures.completed(), outcome.figures.counts.errors()), (4000, 0));
    let (outcome, fidelity, _) = replayed(&load, NullBackend::new(1 << 20, 512));
    assert!(outcome.figures.counts.of(RequestStatus::Miscompare) > 1000);
    assert_eq!(fidelity.verdict, ReplayVerdict::NotAReplay);
}

/// With response times, a request waits for those that had completed before it, and keeps its think time.
#[test]
fn dependencies_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.load");
    let mut text = String::from("start ; sector ; length ; op ; replay_delay=0 ; replay_duration=0\n");
    // Two at once that take 10 ms; 2 ms after the second of them the next two.
    for at in 0..20 {
        text += &format!("{:.3} ; {} ; 8 ; R ; 0 ; 0.010\n", (at / 2) as f64 * 0.012, at * 8);
    }
    std::fs::write(&path, text).unwrap();
    let keys = format!(
        "trace = {path:?}\nformat = \"blkreplay\"\ntiming = \"dependency\"\nqueue_depth = 8\nrecord_requests = true"
    );
    let load = ReplayLoad::new(toml::from_str(&keys).unwrap(), None);
    let (_, fidelity, requests) = replayed(&load, memory(1 << 20));
    assert_eq!((requests.len(), fidelity.drift), (20, None));
    for pair in requests.chunks(2).collect::<Vec<_>>().windows(2) {
        let done = pair[0].iter().filter_map(|request| request.completed).max().unwrap();
        for request in pair[1] {
            assert_eq!(request.intended.0, done.0 + 2_000_000);
        }
    }
}

/// Without, a request keeps its distance from the one before, and waits for one that it overlaps or continues.
#[test]
fn dependencies_without_response_times_are_those_of_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(folder.path(), (0..50).map(|at| (0, at * 4096, 4096, 'W', at)));
    let (_, _, requests) = replayed(&load(&path, "timing = \"dependency\""), memory(1 << 20));
    assert!(requests.windows(2).all(|pair| pair[1].sent >= pair[0].completed));
}

/// A run that is cut short says so.
#[test]
fn an_end_before_the_end_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(folder.path(), (0..1000).map(|at| (0, at * 512, 512, 'R', at)));
    let (outcome, fidelity, _) =
        replayed(&load(&path, "stop = { requests = 100 }\ntiming = \"depth\""), memory(1 << 20));
    assert_eq!((outcome.figures.completed(), fidelity.sent, fidelity.planned), (100, 100, 1000));
    assert_eq!(fidelity.verdict, ReplayVerdict::Degraded);
    let said = &fidelity.reasons[0];
    assert!(said.contains("100 of 1000") && said.contains("stop = { time = \""), "{said}");
    assert!(VoidReason::ReplayUntrue.is_named_in(said), "{said}");
}
