//! Tests of the order, targets, flags and contents of the requests that reach a device.

use super::*;

/// The requests that a device received, with their data.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<AskedFor>>>);

#[derive(Clone, Debug, PartialEq)]
struct AskedFor {
    target: char,
    op: brunt_block::Op,
    offset: u64,
    len: u64,
    fua: bool,
    data: Vec<u8>,
}

/// A memory device that records its requests.
struct Witness {
    inner: MemoryBackend,
    target: char,
    asked: Asked,
    /// Maximum number of requests that the device accepts at a time.
    takes: usize,
}

struct WitnessDevice {
    inner: Box<dyn brunt_block::Device>,
    target: char,
    asked: Asked,
    takes: usize,
}

impl Backend for Witness {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }
    fn open(
        &self,
        ring: &brunt_block::Ring,
        depth: u32,
    ) -> Result<Box<dyn brunt_block::Device>, brunt_block::OpenError> {
        let inner = self.inner.open(ring, depth)?;
        Ok(Box::new(WitnessDevice {
            inner,
            target: self.target,
            asked: self.asked.clone(),
            takes: self.takes,
        }))
    }
}

impl brunt_block::Device for WitnessDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }
    fn submit(&mut self, batch: &mut std::collections::VecDeque<brunt_block::Request>) {
        let rest = batch.split_off(batch.len().min(self.takes));
        self.asked
            .0
            .lock()
            .unwrap()
            .extend(batch.iter().map(|request| AskedFor {
                target: self.target,
                op: request.op,
                offset: request.offset,
                len: request.len,
                fua: request.force_unit_access,
                data: if request.op == brunt_block::Op::Write {
                    request.buf[..request.len as usize].to_vec()
                } else {
                    Vec::new()
                },
            }));
        self.inner.submit(batch);
        assert!(batch.is_empty(), "memory takes all");
        *batch = rest;
    }
    fn poll(&mut self, done: &mut Vec<brunt_block::Completion>) {
        self.inner.poll(done);
    }
    fn outstanding(&self) -> u32 {
        self.inner.outstanding()
    }
    fn deadline(&self) -> Nanos {
        self.inner.deadline()
    }
}

fn witness(target: char, asked: &Asked) -> Witness {
    Witness {
        inner: memory(4 << 20),
        target,
        asked: asked.clone(),
        takes: usize::MAX,
    }
}

/// With any number of workers, requests reach the device in the order of the trace, either at its times or as fast as
/// possible, even if the device accepts only some of them at a time.
#[test]
fn several_workers_keep_the_order_of_the_trace() {
    const REQUESTS: u64 = 40_000;
    let folder = tempfile::tempdir().unwrap();
    let offset = |at: u64| at % 8000 * 512;
    let path = trace(
        folder.path(),
        (0..REQUESTS).map(|at| (0, offset(at), 512, 'R', at * 5)),
    );
    let mut shared = 0;
    for (workers, timing, takes) in [
        (2, "trace", usize::MAX),
        (4, "trace", 3),
        (2, "depth", 3),
        (4, "depth", usize::MAX),
    ] {
        let case = format!("{workers} workers, {timing}, {takes} at once");
        let asked = Asked::default();
        let witness = Witness {
            takes,
            ..witness('a', &asked)
        };
        let keys = format!("workers = {workers}\ntiming = \"{timing}\"");
        let (outcome, fidelity, requests) = replayed(&load(&path, &keys), witness);
        assert_eq!(
            (outcome.figures.completed(), fidelity.sent),
            (REQUESTS, REQUESTS),
            "{case}"
        );
        let asked: Vec<u64> = asked
            .0
            .lock()
            .unwrap()
            .iter()
            .map(|asked| asked.offset)
            .collect();
        assert!(
            asked.iter().copied().eq((0..REQUESTS).map(offset)),
            "{case}"
        );
        assert!(
            requests.windows(2).all(|pair| pair[0].sent <= pair[1].sent),
            "{case}"
        );
        assert_eq!(
            (fidelity.reordered, fidelity.reordered_overlapping),
            (0, 0),
            "{case}"
        );
        if timing == "trace" {
            // When sending as fast as possible, a single worker may send everything, so only replays with the trace's
            // times count.
            let sent = |worker: &u32| requests.iter().any(|request| request.worker == *worker);
            shared += usize::from((0..workers).filter(sent).count() > 1);
        }
    }
    // Even in some of these, a single worker may send everything because the others get no processor time.
    assert!(shared > 0, "more than one worker sent");
}

/// Devices of a trace go to their configured targets, in the order of the trace across all of them, and each has its
/// own figures and digest.
#[test]
fn several_targets_keep_the_order_of_one_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.iolog");
    let mut text = String::from("fio version 3 iolog\n");
    for at in 0..600u64 {
        let (device, action) = (
            at * 7 % 3,
            if at.is_multiple_of(5) { "sync" } else { "read" },
        );
        text += &format!("{} d{device} {action} {} 512\n", at * 20, at % 100 * 4096);
    }
    std::fs::write(&path, &text).unwrap();
    let keys = format!(
        "trace = {path:?}\nqueue_depth = 16\nrecord_requests = true\n\
         devices = {{ d0 = \"a\", d1 = \"b\", d2 = \"a\" }}"
    );
    let load = ReplayLoad::new(
        toml::from_str(&keys).unwrap(),
        &["a".to_string(), "b".into()],
    );
    let asked = Asked::default();
    let joined = JoinedBackend::new(vec![
        Arc::new(witness('a', &asked)),
        Arc::new(witness('b', &asked)),
    ]);
    let joined = joined.unwrap();
    let on = LoadTarget {
        parts: joined.ranges(),
        ..LoadTarget::of(Arc::new(joined))
    };
    let (outcome, fidelity, _) = replayed_on(&load, &on);
    assert_eq!(
        (
            outcome.figures.completed(),
            fidelity.digests.planned.clone()
        ),
        (600, fidelity.digests.sent.clone())
    );
    let asked = asked.0.lock().unwrap();
    assert_eq!(asked.len(), 600);
    for (at, asked) in (0..600u64).zip(&*asked) {
        let device = at * 7 % 3;
        let target = if device == 1 { 'b' } else { 'a' };
        // d2 follows d0 on the same target.
        let begin = if device == 2 { 1 << 20 } else { 0 };
        let (op, offset) = match at.is_multiple_of(5) {
            true => (brunt_block::Op::Flush, 0),
            false => (brunt_block::Op::Read, begin + at % 100 * 4096),
        };
        assert_eq!(
            (asked.target, asked.op, asked.offset),
            (target, op, offset),
            "{at}"
        );
    }
    let told: Vec<_> = fidelity
        .devices
        .iter()
        .map(|told| (told.device.as_deref(), told.target.as_deref()))
        .collect();
    let expected = [
        (Some("d0"), Some("a")),
        (Some("d1"), Some("b")),
        (Some("d2"), Some("a")),
    ];
    assert_eq!(told, expected);
    for told in &fidelity.devices {
        assert_eq!((told.planned, told.sent, told.completed), (200, 200, 200));
        assert_eq!(told.digests.planned, told.digests.sent);
        assert!(told.issue_error.is_some());
    }
    // A device that is alone on its target keeps the trace's addresses.
    assert_eq!(
        fidelity.devices[1].digests.trace,
        fidelity.devices[1].digests.sent
    );
    let small =
        JoinedBackend::new(vec![Arc::new(memory(4 << 20)), Arc::new(memory(64 << 10))]).unwrap();
    let misfit = load.check_trace(small.info(), &small.ranges()).unwrap_err();
    assert!(
        misfit.key == "map" && misfit.what.contains("beyond b"),
        "{misfit}"
    );
}

/// Writes with FUA are sent with FUA, flushes as flushes; writes with the same hash carry the same data, all others
/// different data.
#[test]
fn flags_and_contents_of_the_trace_are_sent() {
    let folder = tempfile::tempdir().unwrap();
    let lake = folder.path().join("t");
    let mut devices = brunt_trace::Devices::default();
    let device = devices.index_of(b"d").unwrap();
    let requests: Vec<BlockRequest> = (0..300u64)
        .map(|at| {
            let op = if at % 10 == 9 {
                TraceOp::Flush
            } else {
                TraceOp::Write
            };
            let len = if op == TraceOp::Flush { 0 } else { 4096 };
            let content = std::num::NonZeroU64::new(at % 7).map(ContentHash);
            let plain = BlockRequest::new(at * 1000, device, op, at % 64 * 4096, len);
            BlockRequest {
                fua: at.is_multiple_of(4) && op == TraceOp::Write,
                content,
                ..plain
            }
        })
        .collect();
    let mut sink = TraceSink::table(&lake).unwrap();
    sink.write(&requests, &devices).unwrap();
    sink.finish(&devices).unwrap();
    let replay = |keys: &str| {
        let text = format!("trace = {lake:?}\nqueue_depth = 16\ntiming = \"depth\"\n{keys}");
        let load = ReplayLoad::new(toml::from_str(&text).unwrap(), &[]);
        let asked = Asked::default();
        let (_, fidelity, _) = replayed(&load, witness('a', &asked));
        assert_eq!(
            fidelity.verdict,
            ReplayVerdict::True,
            "{:?}",
            fidelity.reasons
        );
        let asked = asked.0.lock().unwrap().clone();
        (asked, fidelity)
    };
    let (asked, fidelity) = replay("");
    let forced = requests.iter().filter(|request| request.fua).count() as u64;
    assert!(forced > 50);
    assert_eq!(
        (fidelity.forced.planned, fidelity.forced.sent),
        (forced, forced)
    );
    assert_eq!(asked.len(), 300);
    let mut seen = std::collections::HashMap::new();
    for (request, asked) in requests.iter().zip(&asked) {
        assert_eq!(asked.fua, request.fua);
        assert_eq!(
            asked.op == brunt_block::Op::Flush,
            request.op == TraceOp::Flush
        );
        if let (Some(content), TraceOp::Write) = (request.content, request.op) {
            let known = seen.entry(content).or_insert_with(|| asked.data.clone());
            assert_eq!(*known, asked.data);
        }
    }
    let data = |asked: &[AskedFor]| {
        let writes = asked
            .iter()
            .filter(|asked| asked.op == brunt_block::Op::Write);
        writes
            .map(|asked| asked.data.clone())
            .collect::<std::collections::HashSet<_>>()
            .len()
    };
    // Six contents, plus one for each write with unknown content.
    let unknown = requests
        .iter()
        .filter(|r| r.op == TraceOp::Write && r.content.is_none())
        .count();
    assert_eq!((seen.len(), data(&asked)), (6, 6 + unknown));
    let (asked, _) = replay("contents = \"data\"");
    assert_eq!(data(&asked), 270);
}
