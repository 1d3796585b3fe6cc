//! What is recovered when the tap loses packets.

mod common;

use std::collections::HashMap;
use std::path::Path;

use brunt_capture::{ChecksumRun, FileKey, Ledger, Limits, Operation, Pipeline, Sink};
use brunt_core::random::Random;

/// What names an operation: client address and port, xid.
type Id = (u128, u16, u32);
/// Procedure, the packets of the call's and the reply's header, the status.
type Found = (u32, u64, Option<u64>, Option<u32>);

#[derive(Default)]
struct Collect {
    operations: HashMap<Id, Found>,
    sums: HashMap<(FileKey, u64, bool, u64), u64>,
    twice: Vec<Id>,
}

impl Sink for Collect {
    fn on_operation(&mut self, operation: &Operation<'_>) {
        let client = operation.peers.client;
        let id = (client.address.0, client.port, operation.call.xid.0);
        let reply = operation.reply_time_ns.map(|time| time / 1000);
        let found = (operation.call.procedure, operation.call_time_ns / 1000, reply, operation.status);
        if self.operations.insert(id, found).is_some() {
            self.twice.push(id);
        }
    }
    fn on_checksums(&mut self, run: &ChecksumRun<'_>) {
        for (block, sum) in run.sums.iter().enumerate() {
            // The last sum at a place wins in both runs; places are written more than once.
            self.sums.insert((run.file, run.offset + 512 * block as u64, run.write, *sum), *sum);
        }
    }
}

fn run(packets: &[common::Packet], keep: impl Fn(usize) -> bool) -> (Collect, Ledger) {
    let mut pipeline = Pipeline::new(Collect::default(), Limits::default());
    for (index, packet) in packets.iter().enumerate().filter(|(index, _)| keep(*index)) {
        pipeline.on_packet(&common::numbered(index, packet));
    }
    let (collect, ledger) = pipeline.finish();
    ledger.check().unwrap();
    (collect, ledger)
}

/// Removes packets at random and holds what is found against the whole capture.
fn check(path: &Path, recovered_min: f64, exact: bool) {
    let packets = common::packets(path);
    let (truth, _) = run(&packets, |_| true);
    assert!(truth.twice.is_empty());
    for (seed, loss) in [(1, 0.005), (2, 0.01), (3, 0.02), (4, 0.05)] {
        let mut random = Random::new(seed);
        let kept: Vec<bool> = packets.iter().map(|_| !random.chance(loss)).collect();
        let (found, ledger) = run(&packets, |index| kept[index]);
        let (mut possible, mut recovered) = (0u64, 0u64);
        for (id, (procedure, call, reply, status)) in &truth.operations {
            let Some(reply) = reply else { continue };
            if kept[*call as usize] && kept[*reply as usize] {
                possible += 1;
                recovered += u64::from(found.operations.get(id).is_some_and(|f| {
                    (f.0, f.1, f.2) == (*procedure, *call, Some(*reply)) && (f.3 == *status || f.3.is_none())
                }));
            }
        }
        // Nothing is invented, nothing mismatched: every operation is one of the truth's, with
        // its own call and its own reply.
        for (id, f) in &found.operations {
            let Some(t) = truth.operations.get(id) else { panic!("invented: {id:?} {f:?}") };
            assert_eq!(f.0, t.0, "{id:?}: another procedure");
            if exact {
                assert_eq!(f.1, t.1, "{id:?}: another call");
                assert!(f.2.is_none() || f.2 == t.2, "{id:?}: another reply: {f:?} {t:?}");
            }
            assert!(f.3.is_none() || f.3 == t.3 || t.3.is_none(), "{id:?}: another status");
        }
        for key in found.sums.keys() {
            assert!(truth.sums.contains_key(key), "a sum that the data never had: {key:?}");
        }
        let share = recovered as f64 / possible as f64;
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

/// The goal: with up to 5 % of the packets gone, what can be recovered is, and nothing else.
#[test]
fn small_piece() {
    check(&common::small_piece(), 0.985, false);
}

/// The goal: the same on small operations, to the figure that is promised.
#[test]
fn small_operations() {
    if let Some(path) = common::shared("small-1500.pcap.zst") {
        check(&path, 0.995, true);
    }
}

/// The goal: the same when each operation spans many packets.
#[test]
fn large_operations() {
    if let Some(path) = common::shared("tput-9000.pcap.zst") {
        check(&path, 0.995, true);
    }
}

/// The goal: loss at the tap on top of loss, reordering and duplication in the network.
#[test]
fn lossy_network() {
    for name in ["retx-small.pcap.zst", "retx-tput.pcap.zst"] {
        if let Some(path) = common::shared(name) {
            check(&path, 0.995, false);
        }
    }
}
