//! Byte-range locks (RFC 8881, 9), without I/O: the lock operations, which NFSv3 leaves to another protocol, and what
//! a client has to know about the locks that it holds.
//!
//! The rule: the ranges are those that the server granted, so that all of them can be reclaimed after it restarts.

use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v3::{self, ResultBody, Status};
use brunt_wire::nfs::v4::{Args, CompoundResults, Locker, Op, ResultBody as ResultBody4, Stateid};
use brunt_wire::{Cursor, ParseError};

use super::call::begin_compound;
use super::opens::{ACCESS_READ, ACCESS_WRITE};
use super::reply::walk;

/// A lock operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NfsLockOp {
    /// LOCK.
    Lock,
    /// LOCKT, which asks whether LOCK would succeed.
    Test,
    /// LOCKU.
    Unlock,
}

impl NfsLockOp {
    const fn op(self) -> Op {
        match self {
            NfsLockOp::Lock => Op::Lock,
            NfsLockOp::Test => Op::Lockt,
            NfsLockOp::Unlock => Op::Locku,
        }
    }

    /// The operation with this number (RFC 8881, 16.2.3).
    pub fn from_number(number: u32) -> Option<NfsLockOp> {
        let all = [NfsLockOp::Lock, NfsLockOp::Test, NfsLockOp::Unlock];
        all.into_iter().find(|op| op.number() == number)
    }

    /// Its number.
    pub fn number(self) -> u32 {
        self.op() as u32
    }

    /// The RFC's name.
    pub fn name(self) -> &'static str {
        self.op().name()
    }

    /// The operations of its compound. If the file isn't open, the OPEN is sent in a separate compound.
    const fn operations(self) -> &'static [Op] {
        match self {
            NfsLockOp::Lock => &[Op::Sequence, Op::Putfh, Op::Open, Op::Lock],
            NfsLockOp::Test => &[Op::Sequence, Op::Putfh, Op::Lockt],
            NfsLockOp::Unlock => &[Op::Sequence, Op::Putfh, Op::Locku],
        }
    }
}

/// A range of a file with the type of its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsRange {
    /// The type (`nfs_lock_type4`): 1 read, 2 write, 3 and 4 the same for a client that waits.
    pub kind: u32,
    /// Its first byte.
    pub offset: u64,
    /// Its length; `u64::MAX`: up to the end of the file, however much it grows.
    pub length: u64,
}

impl NfsRange {
    /// The whole file.
    pub const WHOLE_FOR_WRITING: NfsRange = NfsRange {
        kind: 2,
        offset: 0,
        length: u64::MAX,
    };

    const fn is_read(self) -> bool {
        self.kind % 2 == 1
    }

    /// The access with which the file has to be open.
    pub(crate) const fn access(self) -> u32 {
        match self.is_read() {
            true => ACCESS_READ,
            false => ACCESS_WRITE,
        }
    }

    /// Where it ends; `u64::MAX` if it has no end.
    const fn end(self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    const fn between(kind: u32, offset: u64, end: u64) -> NfsRange {
        let length = match end {
            u64::MAX => u64::MAX,
            end => end - offset,
        };
        NfsRange {
            kind,
            offset,
            length,
        }
    }
}

/// A lock operation on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsLock<'a> {
    /// The operation.
    pub op: NfsLockOp,
    /// The file.
    pub file: FileHandle<'a>,
    /// The bytes, and the type of the lock.
    pub range: NfsRange,
    /// The lock owner's number.
    pub owner: u32,
}

/// The locks of an owner on a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NfsHeldLocks {
    pub owner: u32,
    /// With a sequence number of 0, which stands for the newest one (RFC 8881, 8.2.2).
    pub stateid: Stateid,
    pub ranges: Vec<NfsRange>,
}

impl NfsHeldLocks {
    /// Records that the server granted a lock or, if not `locks`, released one.
    pub fn change(&mut self, range: NfsRange, locks: bool) {
        let (start, end) = (range.offset, range.end());
        let mut kept = Vec::with_capacity(self.ranges.len() + 2);
        for held in self.ranges.drain(..) {
            if held.offset < start {
                let before = start.min(held.end());
                kept.push(NfsRange::between(held.kind, held.offset, before));
            }
            if end < held.end() {
                let after = end.max(held.offset);
                kept.push(NfsRange::between(held.kind, after, held.end()));
            }
        }
        if locks {
            // The type of a granted lock is one without waiting.
            let kind = if range.is_read() { 1 } else { 2 };
            kept.push(NfsRange::between(kind, start, end));
        }
        self.ranges = kept;
    }
}

/// Appends the beginning of an operation's compound, up to the file. Returns the slot's offset.
pub(crate) fn begin_lock(lock: &NfsLock<'_>, out: &mut Vec<u8>) -> usize {
    let slot_at = begin_compound(3, lock.op != NfsLockOp::Test, out);
    Args::Putfh { object: lock.file }.encode(out);
    slot_at
}

/// Appends LOCK by an owner that has no locks on the file yet, or has some with this stateid.
pub(crate) fn encode_lock(
    range: NfsRange,
    owner: u32,
    (open, held): (&Stateid, Option<&Stateid>),
    reclaim: bool,
    out: &mut Vec<u8>,
) {
    let name = lock_owner(owner);
    let locker = match held {
        Some(held) => Locker::Old(held),
        None => Locker::New {
            open,
            client: 0,
            owner: &name,
        },
    };
    Args::Lock {
        kind: range.kind,
        reclaim,
        offset: range.offset,
        length: range.length,
        locker,
    }
    .encode(out);
}

/// Appends LOCKT.
pub(crate) fn encode_test(range: NfsRange, owner: u32, out: &mut Vec<u8>) {
    Args::Lockt {
        kind: range.kind,
        offset: range.offset,
        length: range.length,
        // Servers ignore it: the session identifies the client (RFC 8881, 18.11.3).
        client: 0,
        owner: &lock_owner(owner),
    }
    .encode(out);
}

/// Appends LOCKU.
pub(crate) fn encode_unlock(range: NfsRange, stateid: &Stateid, out: &mut Vec<u8>) {
    Args::Locku {
        kind: range.kind,
        stateid,
        offset: range.offset,
        length: range.length,
    }
    .encode(out);
}

fn lock_owner(owner: u32) -> [u8; 14] {
    let mut name = *b"brunt lock....";
    name[10..].copy_from_slice(&owner.to_be_bytes());
    name
}

/// The lock stateid that LOCK or LOCKU returned; `None` if it failed or was not executed.
pub(crate) fn locked(body: &[u8]) -> Option<Stateid> {
    let reply = CompoundResults::parse(&mut Cursor::new(body)).ok()?;
    for result in reply.operations() {
        if let ResultBody4::State { stateid } = result.ok()?.body {
            return Some(super::opens::newest(stateid));
        }
    }
    None
}

/// The results of a lock operation, which are only a status, from the body of its reply, and where they end.
///
/// # Errors
/// The reply is truncated or malformed, or belongs to another call.
pub(crate) fn lock_results(
    op: NfsLockOp,
    body: &[u8],
) -> Result<(v3::Results<'_>, usize), ParseError> {
    let walked = walk(op.operations(), |op| op == Op::Open, body)?;
    let results = v3::Results {
        status: Status(walked.status.0),
        body: ResultBody::Empty,
    };
    Ok((results, walked.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An owner's newest lock on a byte counts; its earlier locks remain on the other bytes.
    #[test]
    fn ranges_are_split_by_later_ones() {
        let range = |kind, offset, length| NfsRange {
            kind,
            offset,
            length,
        };
        let check = |steps: &[(NfsRange, bool)], expected: &[NfsRange]| {
            let mut held = NfsHeldLocks {
                owner: 0,
                stateid: [0; 16],
                ranges: Vec::new(),
            };
            for (range, locks) in steps {
                held.change(*range, *locks);
            }
            held.ranges.sort_by_key(|range| range.offset);
            assert_eq!(held.ranges, expected, "{steps:?}");
        };
        let all = range(4, 0, u64::MAX);
        check(&[(all, true)], &[range(2, 0, u64::MAX)]);
        check(&[(all, true), (all, false)], &[]);
        let hole = [range(2, 0, 10), range(2, 20, u64::MAX)];
        check(&[(all, true), (range(1, 10, 10), false)], &hole);
        let read = [range(2, 0, 10), range(1, 10, 10), range(2, 20, u64::MAX)];
        check(&[(all, true), (range(3, 10, 10), true)], &read);
        let apart = [range(1, 0, 5), range(1, 10, 5)];
        let [first, second] = apart;
        check(&[(first, true), (second, true)], &apart);
        check(&[(first, true), (range(1, 5, 5), false)], &[first]);
        let ends = [range(1, 0, 3), range(1, 12, 3)];
        let middle = range(2, 3, 9);
        check(&[(first, true), (second, true), (middle, false)], &ends);
    }
}
