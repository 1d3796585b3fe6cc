//! Checks that the engine issues the same requests as in earlier versions: for the same seed, the same operations,
//! addresses, lengths, due times and contents, in the same order. Results from different years are comparable only as
//! long as this holds, so a digest below never changes; a new kind of workload adds a line.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use brunt_block::{
    Backend, Completion, Device, DeviceInfo, Op, OpenError, Request, Ring, open_url,
};
use brunt_core::Nanos;
use brunt_load::{Recorder, Session, Workload};
use brunt_result::{Interval, OpKind, RequestRecord};
use sha2::{Digest, Sha256};

fn name(op: OpKind) -> &'static str {
    op.name()
}

fn hex(digest: impl AsRef<[u8]>) -> String {
    digest.as_ref()[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Keeps each worker's requests and the start time of the run.
#[derive(Default)]
struct Keep {
    start: Nanos,
    requests: Vec<RequestRecord>,
}

impl Recorder for Keep {
    fn interval(&mut self, _interval: &Interval) {}
    fn requests(&mut self, batch: &[RequestRecord]) {
        self.requests.extend_from_slice(batch);
    }
    fn starts(&mut self, start: Nanos) {
        self.start = start;
    }
}

fn run(text: &str, url: &str, seed: u64) -> Keep {
    let workload: Workload = toml::from_str(text).unwrap();
    let mut keep = Keep::default();
    let session = Session::new(workload, open_url(url).unwrap(), seed);
    let outcome = session.run(&AtomicBool::new(false), &mut keep).unwrap();
    assert!(outcome.is_complete(), "{text}");
    keep.requests
        .sort_by_key(|request| (request.worker, request.index));
    keep
}

/// Returns a digest of all workers' requests in sequence order, with due times if the workload determines them.
fn digest(text: &str, seed: u64, timed: bool) -> String {
    let keep = run(
        &format!("{text}\nrecord_requests = true\ninterval = \"0\""),
        "memory:64MiB",
        seed,
    );
    let mut sum = Sha256::new();
    for request in &keep.requests {
        let due = if timed {
            request.intended.since(keep.start).as_nanos()
        } else {
            0
        };
        let RequestRecord {
            worker,
            index,
            op,
            offset,
            len,
            ..
        } = request;
        sum.update(format!(
            "{worker} {index} {} {offset} {len} {due}\n",
            name(*op)
        ));
    }
    hex(sum.finalize())
}

#[test]
fn random_requests_start_at_whole_blocks_unless_align_says_otherwise() {
    let stop = "stop = { requests = 500 }";
    for (blocks, align) in [
        ("", "4k"),
        ("blocks = [{ size = \"64k\" }]", "64k"),
        ("blocks = [{ size = \"64k\" }, { size = \"8k\" }]", "8k"),
    ] {
        let of = |align: &str| digest(&format!("{blocks}\n{align}\n{stop}"), 3, false);
        assert_eq!(of(""), of(&format!("align = \"{align}\"")), "{blocks}");
        assert_ne!(of(""), of("align = \"512\""), "{blocks}");
    }
}

#[test]
fn the_same_seed_makes_the_same_requests() {
    let check = |text: &str, timed: bool, expected: [&str; 2]| {
        // The digests were computed with the default alignment before Brunt 0.2, which was sectors.
        let aligned = if text.contains("align") {
            text.to_string()
        } else {
            format!("align = \"512\"\n{text}")
        };
        let found = [1, 77].map(|seed| digest(&aligned, seed, timed));
        assert_eq!(found, expected, "{text}");
    };
    let stop = "stop = { requests = 3000 }";
    let closed = |text: &str, expected| check(&format!("{text}\n{stop}"), false, expected);
    closed("", ["6c72159853e9957f", "a8d0c7379ffc26dd"]);
    closed("read = 0.0", ["92903a2a11b3cf50", "ba230a82e2574746"]);
    closed(
        "read = 0.3\nqueue_depth = 16",
        ["5a86101dba6bc112", "eb23d2d60dc12348"],
    );
    closed(
        "workers = 3\nqueue_depth = 4\nread = 0.5\nsequential = 0.5",
        ["6e26f937b012d9f3", "402cbb5bb0ddda90"],
    );
    closed(
        "sequential = 1.0\nworkers = 2",
        ["f4a3958768db0686", "f4a3958768db0686"],
    );
    closed(
        "align = \"64k\"\nregion = { start = \"1m\", length = \"8m\" }",
        ["8d1f40807e33dbba", "869f172c641021a9"],
    );
    closed(
        "blocks = [{ size = \"512\", weight = 3 }, { size = \"4k\" }, { size = \"64k\", weight = 0.5 }]\nread = 0.6",
        ["a536a5fe855582e8", "85996aa8b9cf3217"],
    );
    closed(
        "align = \"512\"\nblocks = { kind = \"uniform\", min = \"4k\", max = \"64k\", step = \"512\" }",
        ["f4108ff59672e38d", "a312013d10e42e3d"],
    );
    closed(
        "align = \"512\"\nblocks = { kind = \"log-normal\", median = \"16k\", sigma = 1.0, min = \"512\", max = \"1MiB\" }",
        ["489f6c9382f281e3", "9815641ff849238c"],
    );
    closed(
        "align = \"512\"\nblocks = { kind = \"pareto\", shape = 1.2, min = \"4k\", max = \"1MiB\" }",
        ["f1d59c18b617701f", "15139fac560bac02"],
    );
    closed(
        "distribution = { kind = \"zipf\", theta = 1.1 }",
        ["b2a6391f076ddc02", "680051e07adeb0ca"],
    );
    closed(
        "distribution = { kind = \"pareto\", skew = 0.2 }",
        ["6f1c582d59afae70", "9cb7681ecf9cd5b6"],
    );
    closed(
        "distribution = { kind = \"normal\", mean = 0.3, deviation = 0.1 }",
        ["5e2bd07cf04ab636", "2c73f9852ce24d38"],
    );
    closed(
        "distribution = { kind = \"hot-zones\", zones = [{ access = 0.9, size = 0.1 }, { access = 0.1, size = 0.9 }] }",
        ["7f7283dec39d6c44", "d1c7fc94e1466c13"],
    );
    closed(
        "read = 0.5\nverify = {}\nworkers = 2\nqueue_depth = 8",
        ["1132c222b11ea68a", "6d564f2b6cd22859"],
    );
    closed(
        "read = 0.5\ndata = { compressible = 0.5, dedupable = 0.3 }",
        ["0d6f1745e9d9e16d", "f4699b6bce501664"],
    );
    closed(
        "burst = { requests = 100, interval = \"1us\" }",
        ["6c72159853e9957f", "a8d0c7379ffc26dd"],
    );
    closed(
        "read = 0.5\ntrim = 0.2\nwrite_zeroes = 0.1\nflush_every = 25\nworkers = 2",
        ["1ea34d59dcc935f8", "8ba6ca8a1592bbb4"],
    );
    closed(
        "ramp_up = { requests = 500 }",
        ["2ad01756ca95fd6d", "b3bc068bfd53e30a"],
    );
    let open = |text: &str, expected| {
        check(&format!("{text}\nqueue_depth = 64\n{stop}"), true, expected);
    };
    open(
        "arrival = { kind = \"open\", rate = 50000 }",
        ["fffd969df9835d72", "846fba9558ecfd1c"],
    );
    open(
        "arrival = { kind = \"open\", rate = 50000, process = \"poisson\" }\nread = 0.5",
        ["8f424df31e241f67", "fae02894326f9d8b"],
    );
    open(
        "arrival = { kind = \"open\", rate = 50000, process = \"poisson\" }\nworkers = 3",
        ["3f7a5bc1c944a5ac", "e4bbbe152c1f2de9"],
    );
    open(
        "arrival = { kind = \"open\", rate = 100000 }\nburst = { requests = 50, interval = \"1ms\" }",
        ["b6047daf2b4e0bed", "8c77b0462cdbaab0"],
    );
}

/// Computes a digest of everything that reaches the device, including the data of writes.
struct Watched {
    below: Arc<dyn Backend>,
    seen: Arc<Mutex<Sha256>>,
}

struct WatchedDevice {
    below: Box<dyn Device>,
    seen: Arc<Mutex<Sha256>>,
}

impl Backend for Watched {
    fn info(&self) -> &DeviceInfo {
        self.below.info()
    }
    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        let below = self.below.open(ring, depth)?;
        Ok(Box::new(WatchedDevice {
            below,
            seen: Arc::clone(&self.seen),
        }))
    }
}

impl Device for WatchedDevice {
    fn info(&self) -> &DeviceInfo {
        self.below.info()
    }
    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        let mut seen = self.seen.lock().unwrap();
        for request in batch.iter() {
            let Request {
                op,
                offset,
                len,
                force_unit_access,
                ..
            } = request;
            seen.update(format!(
                "{} {offset} {len} {force_unit_access}\n",
                name(brunt_load::record::kind_of(*op))
            ));
            if *op == Op::Write {
                seen.update(&request.buf[..*len as usize]);
            }
        }
        self.below.submit(batch);
        assert!(
            batch.is_empty(),
            "the device takes all of a batch, or it would be summed up twice"
        );
    }
    fn poll(&mut self, done: &mut Vec<Completion>) {
        self.below.poll(done);
    }
    fn outstanding(&self) -> u32 {
        self.below.outstanding()
    }
    fn deadline(&self) -> Nanos {
        self.below.deadline()
    }
}

#[test]
fn the_same_seed_writes_the_same_contents() {
    let check = |text: &str, expected: &str| {
        let text = format!("align = \"512\"\n{text}\nstop = {{ requests = 1000 }}");
        let workload: Workload = toml::from_str(&text).unwrap();
        let seen = Arc::new(Mutex::new(Sha256::new()));
        let backend = Watched {
            below: open_url("memory:16MiB").unwrap(),
            seen: Arc::clone(&seen),
        };
        let outcome = Session::new(workload, Arc::new(backend), 5)
            .run(&AtomicBool::new(false), &mut Keep::default());
        assert_eq!(outcome.unwrap().figures.completed(), 1000, "{text}");
        assert_eq!(
            hex(seen.lock().unwrap().clone().finalize()),
            expected,
            "{text}"
        );
    };
    check("read = 0.0", "4bbf4c094b937611");
    check("read = 0.5\nforce_unit_access = true", "355b3c31679230d0");
    check(
        "read = 0.0\nblocks = [{ size = \"64k\" }]\ndata = { compressible = 0.4, dedupable = 0.3 }",
        "9de6001ad5a26a61",
    );
    check("read = 0.3\nverify = {}", "1ea4a251558e063a");
    check("read = 0.0\nqueue_depth = 8", "f3590301f527d7e4");
}
