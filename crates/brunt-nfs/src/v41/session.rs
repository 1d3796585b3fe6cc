//! The slots of a session (RFC 8881, 2.10.6), without I/O: each has one call at a time, whose sequence number is one
//! more than that of the last call that the server executed on it.
//!
//! The one rule: a sequence number advances when the server says that it executed the call, and only then.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use brunt_wire::nfs::v4::{CompoundResults, Op, OpResult, ResultBody, Status};
use brunt_wire::{Cursor, Malformed, ParseError};

/// The slot of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NfsSlot {
    /// The session.
    pub session: [u8; 16],
    /// Its number.
    pub slot: u32,
    /// The call's number on it.
    pub sequence: u32,
    /// The highest slot in use.
    pub highest: u32,
}

/// The slots that calls use.
#[derive(Debug)]
pub(crate) struct NfsSlots {
    session: [u8; 16],
    /// The sequence number of the last call that the server executed, by slot.
    executed: Vec<u32>,
    /// Slots without a call; the lowest is used first.
    free: BinaryHeap<Reverse<u32>>,
    /// Number of slots that the server wants the client to use.
    target: u32,
}

impl NfsSlots {
    /// The slots of a new session.
    pub fn new(session: [u8; 16], count: u32) -> NfsSlots {
        NfsSlots {
            session,
            executed: vec![0; count as usize],
            free: (0..count).map(Reverse).collect(),
            target: count,
        }
    }

    /// The session that they belong to.
    pub fn session(&self) -> [u8; 16] {
        self.session
    }

    /// Takes the lowest free slot; `None` if the server does not want more concurrent calls.
    pub fn take(&mut self) -> Option<NfsSlot> {
        let slot = self.free.peek()?.0;
        if slot >= self.target {
            return None;
        }
        self.free.pop();
        Some(NfsSlot {
            session: self.session,
            slot,
            sequence: self.executed[slot as usize].wrapping_add(1),
            highest: slot.max(self.target - 1),
        })
    }

    /// Returns the slot of a call that ended; if `executed`, the slot's next call has the next sequence number.
    pub fn give_back(&mut self, slot: NfsSlot, executed: bool) {
        if executed {
            self.executed[slot.slot as usize] = slot.sequence;
        }
        self.free.push(Reverse(slot.slot));
    }

    /// The slots without a call, each usable for one more call.
    pub fn idle(&self) -> impl Iterator<Item = NfsSlot> {
        let highest = self.target - 1;
        let free = self.free.iter().filter(move |slot| slot.0 <= highest);
        free.map(move |Reverse(slot)| NfsSlot {
            session: self.session,
            slot: *slot,
            sequence: self.executed[*slot as usize].wrapping_add(1),
            highest,
        })
    }

    /// Sets the highest slot that the server wants the client to use. Slot 0 may always be used.
    pub fn set_target(&mut self, highest: u32) {
        let count = self.executed.len() as u32;
        self.target = highest.saturating_add(1).clamp(1, count);
    }
}

/// Writes a slot into the SEQUENCE of a call that was encoded without one.
pub(crate) fn put_slot(head: &mut [u8], at: usize, slot: &NfsSlot) {
    head[at..at + 16].copy_from_slice(&slot.session);
    let words = [slot.sequence, slot.slot, slot.highest];
    for (index, word) in words.into_iter().enumerate() {
        head[at + 16 + 4 * index..][..4].copy_from_slice(&word.to_be_bytes());
    }
}

/// Whether a status of any operation asks to try again later.
pub(crate) fn asks_to_wait(status: Status) -> bool {
    matches!(status, Status::DELAY | Status::GRACE)
}

/// What a reply says about the slot of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sequenced {
    /// The server executed the call, with this status of the whole compound, and wants no slots above this one to be
    /// used.
    Executed(Status, u32),
    /// The server had already executed the call but didn't keep the reply; the call changes nothing, so it is
    /// repeated.
    Uncached,
    /// The server cannot execute the call yet; the slot is unchanged.
    Later(Status),
    /// The session no longer exists, or client and server disagree about its state.
    Over(Status),
    /// The server refused the call; the slot is unchanged.
    Refused(Status),
}

/// Reads the beginning of a reply's body, which answers a call on this slot.
///
/// # Errors
/// The reply is truncated or malformed, or names another slot.
pub(crate) fn sequenced(body: &[u8], slot: &NfsSlot) -> Result<Sequenced, ParseError> {
    let wrong = |what| ParseError::from(Malformed::new(0, what));
    let reply = CompoundResults::parse(&mut Cursor::new(body))?;
    let first = match reply.operations().next() {
        Some(first) => first?,
        None if reply.status == Status::OK => return Err(wrong("no results")),
        None => return Ok(refused(reply.status)),
    };
    let OpResult {
        number,
        status,
        body,
    } = first;
    if number != Op::Sequence as u32 && number != Op::Illegal as u32 {
        return Err(wrong("first result is not that of SEQUENCE"));
    }
    match body {
        ResultBody::Sequence {
            session,
            sequence,
            slot: number,
            target_highest_slot,
            ..
        } => {
            if (*session, number, sequence) != (slot.session, slot.slot, slot.sequence) {
                return Err(wrong(
                    "SEQUENCE has another session, slot or sequence number",
                ));
            }
            // This status may come from the operation after SEQUENCE (RFC 8881, 2.10.6.1.3).
            match reply.status {
                Status::RETRY_UNCACHED_REP => Ok(Sequenced::Uncached),
                _ => Ok(Sequenced::Executed(reply.status, target_highest_slot)),
            }
        }
        _ => Ok(refused(status)),
    }
}

/// What a status of SEQUENCE means (RFC 8881, 18.46.3).
fn refused(status: Status) -> Sequenced {
    match status {
        _ if asks_to_wait(status) => Sequenced::Later(status),
        Status::RETRY_UNCACHED_REP => Sequenced::Uncached,
        Status::EXPIRED
        | Status::STALE_CLIENTID
        | Status::BADSESSION
        | Status::BADSLOT
        | Status::CONN_NOT_BOUND_TO_SESSION
        | Status::SEQ_MISORDERED
        | Status::SEQ_FALSE_RETRY
        | Status::BAD_HIGH_SLOT
        | Status::DEADSESSION => Sequenced::Over(status),
        _ => Sequenced::Refused(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: [u8; 16] = *b"the only session";

    #[test]
    fn the_lowest_free_slot_is_used_and_numbers_advance_with_execution() {
        let mut slots = NfsSlots::new(SESSION, 3);
        let mut take = || slots.take().map(|slot| (slot.slot, slot.sequence));
        assert_eq!(
            (take(), take(), take()),
            (Some((0, 1)), Some((1, 1)), Some((2, 1)))
        );
        assert_eq!(take(), None);
        let used = |slot, sequence| NfsSlot {
            session: SESSION,
            slot,
            sequence,
            highest: 2,
        };
        slots.give_back(used(2, 1), true);
        slots.give_back(used(1, 1), false);
        assert_eq!(slots.take(), Some(used(1, 1)), "it was not executed");
        assert_eq!(slots.take(), Some(used(2, 2)));
    }

    #[test]
    fn a_server_limits_the_slots_in_use() {
        let mut slots = NfsSlots::new(SESSION, 4);
        slots.set_target(0);
        let first = slots.take().unwrap();
        assert_eq!((first.slot, first.highest, slots.take()), (0, 0, None));
        slots.set_target(9);
        assert_eq!(
            slots.take().map(|slot| (slot.slot, slot.highest)),
            Some((1, 3))
        );
    }

    /// Sequence numbers are 32-bit values that wrap around.
    #[test]
    fn sequence_numbers_wrap() {
        let mut slots = NfsSlots::new(SESSION, 1);
        let mut slot = slots.take().unwrap();
        slot.sequence = u32::MAX;
        slots.give_back(slot, true);
        assert_eq!(slots.take().map(|slot| slot.sequence), Some(0));
    }

    fn reply(status: u32, results: &[OpResult<'_>]) -> Vec<u8> {
        let mut body = Vec::new();
        CompoundResults::begin(&mut body, Status(status), results.len() as u32);
        results.iter().for_each(|result| result.encode(&mut body));
        body
    }

    #[test]
    fn a_reply_says_what_became_of_its_slot() {
        let slot = slot(8);
        let answered = |number, sequence, status| {
            let body = ResultBody::Sequence {
                session: &SESSION,
                sequence,
                slot: number,
                highest_slot: 9,
                target_highest_slot: 5,
                flags: 0,
            };
            let result = OpResult {
                number: 53,
                status: Status::OK,
                body,
            };
            sequenced(&reply(status, &[result]), &slot)
        };
        assert_eq!(answered(3, 8, 0), Ok(Sequenced::Executed(Status::OK, 5)));
        assert_eq!(answered(3, 8, 10068), Ok(Sequenced::Uncached));
        assert_eq!(answered(3, 8, 2), Ok(Sequenced::Executed(Status(2), 5)));
        assert!(matches!(answered(3, 9, 0), Err(ParseError::Malformed(_))));
        assert!(matches!(answered(2, 8, 0), Err(ParseError::Malformed(_))));
        let failed = |status| {
            let result = OpResult {
                number: 53,
                status: Status(status),
                body: ResultBody::Empty,
            };
            sequenced(&reply(status, &[result]), &slot).unwrap()
        };
        assert_eq!(failed(10008), Sequenced::Later(Status(10008)));
        assert_eq!(failed(10068), Sequenced::Uncached);
        for status in [
            10011, 10022, 10052, 10053, 10055, 10063, 10076, 10077, 10078,
        ] {
            assert_eq!(failed(status), Sequenced::Over(Status(status)));
        }
        assert_eq!(failed(10065), Sequenced::Refused(Status(10065)));
        assert_eq!(
            sequenced(&reply(10021, &[]), &slot),
            Ok(Sequenced::Refused(Status(10021))),
            "MINOR_VERS_MISMATCH comes without results"
        );
        assert!(sequenced(&reply(0, &[]), &slot).is_err());
        let whole = reply(0, &[]);
        for end in 0..whole.len() {
            assert!(matches!(
                sequenced(&whole[..end], &slot),
                Err(ParseError::Incomplete(_))
            ));
        }
    }

    fn slot(sequence: u32) -> NfsSlot {
        NfsSlot {
            session: SESSION,
            slot: 3,
            sequence,
            highest: 9,
        }
    }
}
