use std::collections::{BTreeMap, BTreeSet};

use super::super::call::file_at;
use super::*;

fn workload(text: &str) -> Workload {
    let workload: Workload = toml::from_str(&format!("stop = {{ requests = 9 }}\n{text}")).unwrap();
    workload.check().unwrap();
    workload
}

fn requests(workload: &Workload, seed: u64, worker: u32) -> NfsRequests {
    let id = WorkerId {
        worker,
        ..WorkerId::alone(seed)
    };
    NfsRequests::new(workload, workload.nfs.as_ref().unwrap(), id, worker)
}

fn draw(requests: &mut NfsRequests, count: usize) -> Vec<Drawn> {
    (0..count).map(|_| requests.next_request()).collect()
}

/// Returns the operation of a request, and its code if it has one.
fn call(planned: &Planned) -> (NfsOp, Option<NfsCode>) {
    match planned.len {
        0 => {
            let code = NfsCode::of_offset(planned.offset);
            (code.op, Some(code))
        }
        _ if planned.op == brunt_block::Op::Read => (NfsOp::Read, None),
        _ => (NfsOp::Write, None),
    }
}

#[test]
fn the_same_seed_gives_the_same_requests() {
    let workload = workload("nfs = {}");
    let all = draw(&mut requests(&workload, 7, 1), 10_000);
    assert_eq!(draw(&mut requests(&workload, 7, 1), 10_000), all);
    assert_ne!(draw(&mut requests(&workload, 8, 1), 10_000), all);
    assert_ne!(draw(&mut requests(&workload, 7, 2), 10_000), all);
    let indexes: Vec<u64> = all.iter().map(|drawn| drawn.planned.index).collect();
    assert_eq!(indexes, (0..10_000).collect::<Vec<u64>>());
}

/// Shares follow the weights, and requests are counted by their kind.
#[test]
fn weights_are_met() {
    let workload = workload("nfs = {}");
    let mix = &workload.nfs.as_ref().unwrap().mix;
    let count = 400_000;
    let mut counts = BTreeMap::new();
    for drawn in draw(&mut requests(&workload, 3, 0), count) {
        let (op, _) = call(&drawn.planned);
        assert_eq!(drawn.planned.kind, op.kind());
        *counts.entry(op as u8).or_insert(0) += 1;
    }
    for op in OPS {
        let (found, wanted) = (
            f64::from(counts.get(&(op as u8)).copied().unwrap_or(0)) / count as f64,
            mix.weight(op) / 100.0,
        );
        // CREATE and REMOVE, and MKDIR and RMDIR, replace each other where names require it, so shares are only met
        // approximately.
        assert!(
            (found - wanted).abs() < 0.002,
            "{}: {found} is not {wanted}",
            op.name()
        );
    }
}

/// A name is created once, and only an existing one is renamed or removed. The number of names stays within its
/// bounds for any weights.
#[test]
fn names_never_collide() {
    let mixes = [
        "create = 1, remove = 1, rename = 1, mkdir = 1, rmdir = 1",
        "create = 1",
        "remove = 1, rmdir = 1",
        "rename = 1, mkdir = 9",
    ];
    for mix in mixes {
        let workload = workload(&format!("nfs = {{ names = 5, mix = {{ {mix} }} }}"));
        let prepared: BTreeSet<u64> = (0..5).collect();
        let (mut files, mut folders) = (prepared.clone(), prepared);
        let (mut makers, mut made) = (BTreeMap::new(), BTreeSet::new());
        for drawn in draw(&mut requests(&workload, 1, 0), 20_000) {
            let (op, code) = call(&drawn.planned);
            let NfsCode { number, other, .. } = code.unwrap();
            let is_folder = matches!(op, NfsOp::Mkdir | NfsOp::Rmdir);
            let names = if is_folder { &mut folders } else { &mut files };
            let new = match op {
                NfsOp::Create | NfsOp::Mkdir => Some(number),
                NfsOp::Rename => Some(other),
                _ => None,
            };
            if !matches!(op, NfsOp::Create | NfsOp::Mkdir) {
                assert!(names.remove(&number), "{mix}: {op:?} of {number}");
                assert_eq!(drawn.after, makers.get(&(is_folder, number)).copied());
            }
            assert_eq!(drawn.makes, new.is_some());
            if let Some(new) = new {
                assert!(
                    names.insert(new) && made.insert((is_folder, new)),
                    "{mix}: {new}"
                );
                assert!(new >= 5, "{mix}: {new} was prepared");
                makers.insert((is_folder, new), drawn.planned.index);
            }
            assert!(names.len() <= 10, "{mix}");
        }
    }
}

/// A file is locked once at a time, and the oldest lock is released, after the request that takes it.
#[test]
fn locks_never_collide() {
    for (mix, most) in [("lock = 2, locku = 1", 5), ("locku = 1", 1)] {
        let workload = workload(&format!("nfs = {{ names = 5, mix = {{ {mix} }} }}"));
        let mut held = VecDeque::new();
        let mut longest = 0;
        for drawn in draw(&mut requests(&workload, 1, 0), 2000) {
            let (op, code) = call(&drawn.planned);
            let file = code.unwrap().number;
            if op == NfsOp::Lock {
                assert!(held.iter().all(|(locked, _)| *locked != file));
                assert!(drawn.makes && drawn.after.is_none());
                held.push_back((file, drawn.planned.index));
            } else {
                let (oldest, made_by) = held.pop_front().unwrap();
                assert_eq!((oldest, Some(made_by)), (file, drawn.after));
            }
            longest = longest.max(held.len());
        }
        assert_eq!(longest, most, "{mix}");
    }
}

/// Data has an address within a file, in multiples of its size.
#[test]
fn transfers_stay_within_their_file() {
    let workload = workload(
        "blocks = [{ size = \"4k\" }, { size = \"12k\" }]\ndistribution = { kind = \"zipf\", theta = 1.2 }\n\
         nfs = { directories = 3, files = 7, file_size = \"50000\", mix = { read = 1, write = 1 } }",
    );
    let mut files = BTreeMap::new();
    for drawn in draw(&mut requests(&workload, 1, 0), 50_000) {
        let Planned { offset, len, .. } = drawn.planned;
        let (file, at) = file_at(offset);
        assert!(file < 21 && at.is_multiple_of(len) && at + len <= 50_000);
        *files.entry(file).or_insert(0) += 1;
    }
    // Zipf's law: the most popular of 21 files has about 36 %.
    let most = files.values().max().copied().unwrap_or(0);
    assert!(
        files.len() == 21 && (15_000..21_000).contains(&most),
        "{files:?}"
    );
}

/// A request waits for the one that creates its name, and is due when it can be sent.
#[test]
fn a_name_is_used_when_it_exists() {
    let workload = workload("nfs = { names = 1, mix = { rename = 1 } }\nqueue_depth = 4");
    let id = WorkerId::alone(1);
    let mut sequence = NfsSequence::new(&workload, workload.nfs.as_ref().unwrap(), id, 0);
    sequence.starts(Nanos(5));
    let mut place = Planned::NOTHING;
    assert_eq!(sequence.next(Nanos(10), &mut place), Next::Due(Nanos(10)));
    assert_eq!(place.index, 0);
    assert_eq!(sequence.next(Nanos(11), &mut place), Next::WaitFor(0));
    assert_eq!(sequence.next(Nanos(12), &mut place), Next::WaitFor(0));
    sequence.completed(0, RequestStatus::Good, Nanos(20));
    assert_eq!(sequence.next(Nanos(21), &mut place), Next::Due(Nanos(21)));
    assert_eq!(place.index, 1);
    assert_eq!(sequence.next(Nanos(22), &mut place), Next::WaitFor(1));
}

/// A request of an open loop that has to wait for a name is late, and its wait is counted.
#[test]
fn waiting_for_a_name_counts_in_an_open_loop() {
    let text = "arrival = { kind = \"open\", rate = 1000, process = \"constant\" }\n\
                nfs = { names = 1, mix = { rename = 1 } }";
    let workload = workload(text);
    let id = WorkerId::alone(1);
    let mut sequence = NfsSequence::new(&workload, workload.nfs.as_ref().unwrap(), id, 0);
    sequence.starts(Nanos(0));
    let (mut place, ms) = (Planned::NOTHING, |count: u64| Nanos(count * 1_000_000));
    assert_eq!(sequence.next(ms(0), &mut place), Next::Due(ms(0)));
    assert_eq!(sequence.next(ms(0), &mut place), Next::Later(ms(1)));
    assert_eq!(sequence.next(ms(1), &mut place), Next::WaitFor(0));
    let mut ages = Histogram::new();
    sequence.overdue(ms(3), &mut ages);
    // Overdue at 3 ms: the request due at 1 ms, which waits for the name, and those due at 2 and 3 ms.
    assert_eq!(ages.count(), 3);
    sequence.completed(0, RequestStatus::Good, ms(4));
    assert_eq!(sequence.next(ms(4), &mut place), Next::Due(ms(1)));
}
