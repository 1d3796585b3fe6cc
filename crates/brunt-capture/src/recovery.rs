//! Determines which operations can still be found in a capture that lost packets, and how many of them were found.
//! Called by the loss tests and by `brunt-bench capture --loss`. The one rule: an operation can be found if the
//! packet in which its call's header began and the packet in which its reply's header began are both present, even if
//! all others are missing.
//!
//! Each packet carries its number as its time ([`numbered`]), so an operation's times identify packets.

use std::collections::{HashMap, HashSet};

use brunt_core::random::Random;
use brunt_wire::pcap::CapturedPacket;

use crate::operation::{ChecksumRun, FileKey, Operation, OperationKind, Sink};

/// Identifies an operation: the client's address and port, and the tag that pairs it with its reply.
pub type Id = (u128, u16, u32);
/// A block's place and checksum: file, offset in bytes, whether it was written, and the checksum.
pub type SumAt = (FileKey, u64, bool, u64);

/// An operation as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenOperation {
    /// Its kind.
    pub kind: OperationKind,
    /// The number of the packet in which the call's header began.
    pub call: u64,
    /// The number of the packet in which the reply's header began, if there was a reply.
    pub reply: Option<u64>,
    /// The status.
    pub status: Option<u32>,
}

/// Time between consecutive packets in a numbered capture.
const STEP_NS: u64 = 1000;

/// Packet `index` of a capture, with its number as its time.
pub fn numbered<'a>(index: u64, packet: &CapturedPacket<'a>) -> CapturedPacket<'a> {
    CapturedPacket {
        time_ns: index * STEP_NS,
        ..*packet
    }
}

/// Simulates packet loss at a tap: each packet is lost with the same probability, and the same seed loses the same
/// packets.
#[derive(Clone, Debug)]
pub struct Loss {
    random: Random,
    share: f64,
}

impl Loss {
    /// Loses a fraction `share` of the packets, from 0 to 1.
    pub fn new(seed: u64, share: f64) -> Loss {
        Loss {
            random: Random::new(seed),
            share,
        }
    }

    /// Whether the next packet is kept.
    pub fn keeps(&mut self) -> bool {
        !self.random.chance(self.share)
    }
}

/// A sink that records operations, and checksums if requested.
#[derive(Debug, Default)]
pub struct FoundOperations {
    /// Operations by their id.
    pub operations: HashMap<Id, SeenOperation>,
    /// Operations that were reported more than once.
    pub twice: Vec<Id>,
    /// All block checksums; `None` unless requested, since there are many.
    pub sums: Option<HashSet<SumAt>>,
}

impl Sink for FoundOperations {
    fn on_operation(&mut self, operation: &Operation<'_>) {
        let client = operation.peers.client;
        let id = (client.address.0, client.port, operation.tag);
        let seen = SeenOperation {
            kind: operation.summary.kind,
            call: operation.request.first_ns / STEP_NS,
            reply: operation.reply.map(|reply| reply.first_ns / STEP_NS),
            status: operation.summary.status,
        };
        if self.operations.insert(id, seen).is_some() {
            self.twice.push(id);
        }
    }

    fn on_checksums(&mut self, run: &ChecksumRun<'_>) {
        let Some(sums) = &mut self.sums else { return };
        for (block, sum) in run.sums.iter().enumerate() {
            sums.insert((run.file, run.offset + 512 * block as u64, run.write, *sum));
        }
    }
}

/// How many of the operations that could be found were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Operations with a reply in the whole capture.
    pub whole: u64,
    /// Operations that can be found with the packets that were kept.
    pub possible: u64,
    /// Possible operations that were found correctly.
    pub recovered: u64,
    /// Operations that were found but are wrong or never existed; should be empty.
    pub invented: Vec<String>,
}

impl Recovery {
    /// Share of the possible operations that were recovered; 1 if none was possible.
    pub fn share(&self) -> f64 {
        if self.possible == 0 {
            1.0
        } else {
            self.recovered as f64 / self.possible as f64
        }
    }
}

impl FoundOperations {
    /// The operations with a reply before packet `end` that can be found with the packets kept, and the total number
    /// of operations with a reply before `end`.
    pub fn possible(&self, kept: &[bool], end: u64) -> (Vec<Id>, u64) {
        let is_kept = |packet: u64| kept.get(packet as usize).copied().unwrap_or(false);
        let (mut possible, mut whole) = (Vec::new(), 0);
        for (id, seen) in &self.operations {
            let Some(reply) = seen.reply.filter(|reply| *reply < end) else {
                continue;
            };
            whole += 1;
            if is_kept(seen.call) && is_kept(reply) {
                possible.push(*id);
            }
        }
        (possible, whole)
    }

    /// Compares the operations found despite losses with those of the whole capture. `strictly` also requires every
    /// call and reply to be found in its original packet, which is always the case in captures without
    /// retransmissions.
    pub fn compare(&self, found: &FoundOperations, kept: &[bool], strictly: bool) -> Recovery {
        let (possible, whole) = self.possible(kept, u64::MAX);
        let mut recovery = Recovery {
            whole,
            possible: possible.len() as u64,
            ..Recovery::default()
        };
        for id in possible {
            let truth = &self.operations[&id];
            recovery.recovered += u64::from(found.operations.get(&id).is_some_and(|seen| {
                (seen.kind, seen.call, seen.reply) == (truth.kind, truth.call, truth.reply)
                    && (seen.status == truth.status || seen.status.is_none())
            }));
        }
        for (id, seen) in &found.operations {
            let wrong = match self.operations.get(id) {
                None => "an operation that never existed",
                Some(truth) if seen.kind != truth.kind => "another kind",
                Some(truth)
                    if seen.status != truth.status && seen.status.and(truth.status).is_some() =>
                {
                    "another status"
                }
                Some(truth) if strictly && seen.call != truth.call => "another call",
                Some(truth) if strictly && seen.reply.is_some() && seen.reply != truth.reply => {
                    "another reply"
                }
                Some(_) => continue,
            };
            recovery.invented.push(format!("{wrong}: {id:?} {seen:?}"));
        }
        recovery
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dissect::rpc::{GETATTR, WRITE};

    fn found(operations: &[(u32, SeenOperation)]) -> FoundOperations {
        let operations = operations
            .iter()
            .map(|(xid, seen)| ((1, 1, *xid), *seen))
            .collect();
        FoundOperations {
            operations,
            ..FoundOperations::default()
        }
    }

    /// Operations that can be found count as possible, and wrong ones that were found are reported.
    #[test]
    fn possible_operations_are_counted_and_wrong_ones_reported() {
        let seen = |call, reply| SeenOperation {
            kind: GETATTR,
            call,
            reply,
            status: Some(0),
        };
        let truth = found(&[
            (1, seen(0, Some(1))),
            (2, seen(2, Some(3))),
            (3, seen(4, Some(5))),
            (4, seen(6, None)),
        ]);
        // The packet with the second call is lost.
        let kept = [true, true, false, true, true, true, true];
        let check = |operations: &[(u32, SeenOperation)], recovered: u64, invented: &[&str]| {
            let recovery = truth.compare(&found(operations), &kept, true);
            assert_eq!(
                (recovery.whole, recovery.possible, recovery.recovered),
                (3, 2, recovered)
            );
            assert_eq!(recovery.invented.len(), invented.len(), "{recovery:?}");
            invented.iter().for_each(|what| {
                assert!(
                    recovery.invented.iter().any(|line| line.starts_with(what)),
                    "{recovery:?}"
                );
            });
        };
        check(&[(1, seen(0, Some(1))), (3, seen(4, Some(5)))], 2, &[]);
        check(&[(1, seen(0, Some(1))), (3, seen(4, None))], 1, &[]);
        check(&[(1, seen(0, Some(3)))], 0, &["another reply"]);
        check(
            &[(1, seen(0, Some(1))), (9, seen(0, Some(1)))],
            1,
            &["an operation that never existed"],
        );
        let other = SeenOperation {
            kind: WRITE,
            ..seen(0, Some(1))
        };
        check(&[(1, other)], 0, &["another kind"]);
        assert_eq!(truth.possible(&kept, 5).0.len(), 1);
    }

    /// The same seed loses the same packets, and about as many as requested.
    #[test]
    fn the_same_seed_loses_the_same_packets() {
        let draw = |seed| {
            let mut loss = Loss::new(seed, 0.1);
            (0..10_000).map(|_| loss.keeps()).collect::<Vec<bool>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let lost = draw(1).iter().filter(|kept| !**kept).count();
        assert!((850..1150).contains(&lost), "{lost}");
    }
}
