//! Whether a client reads and writes a file in order: a READ or WRITE is sequential if it begins where the one of
//! its direction that the same client asked of the file before had ended. `profile` asks.
//!
//! The one rule: requests count in the order in which clients made them. Answers overtake each other, and analyses
//! see operations when they are answered; so transfers wait here until those asked for before them are likely to
//! have come.

use std::collections::VecDeque;

use super::bounded::{Bounded, Weight};
use super::event::OperationEvent;
use super::hot::client_key;
use crate::operation::{FileKey, TransferDirection};

/// Pairs of client and file that are followed.
const PAIRS_MAX: usize = 64 << 10;
/// Transfers that wait. One whose answer comes when more of those after it were answered counts as asked for then.
const WAITING_MAX: usize = 1024;
/// So many before it is judged, a transfer's entry is asked for: memory is that slow.
const PREFETCH_AHEAD: usize = 8;

/// A READ or WRITE of a known file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileTransfer {
    /// Which way.
    pub direction: TransferDirection,
    /// The file.
    pub file: FileKey,
    /// Where in it, in bytes.
    pub offset: u64,
    /// Bytes that moved.
    pub bytes: u32,
    record_id: u64,
    pair: u64,
    /// Where the pair's entry is, most likely.
    place: usize,
}

/// Where a client's last transfers of a file ended.
#[derive(Clone, Debug, Default)]
struct Ends {
    transfers: u64,
    ends: [Option<u64>; 2],
}

impl Weight for Ends {
    fn weight(&self) -> u64 {
        self.transfers
    }
}

/// Puts transfers in order.
#[derive(Clone, Debug)]
pub struct Order {
    /// By `record_id`.
    waiting: VecDeque<FileTransfer>,
    pairs: Bounded<Ends>,
}

impl Default for Order {
    fn default() -> Order {
        Order {
            waiting: VecDeque::new(),
            pairs: Bounded::new(PAIRS_MAX),
        }
    }
}

impl Order {
    /// Adds an operation; `None` unless it transfers data of a known file and another one's turn has come: that
    /// one, and whether it is sequential.
    #[inline]
    pub fn add(&mut self, event: &OperationEvent) -> Option<(FileTransfer, bool)> {
        let (direction, file) = (event.transfer()?, event.file?);
        let pair = file.0 ^ client_key(event.client);
        let place = self.pairs.guess(pair);
        let OperationEvent {
            record_id,
            offset,
            bytes,
            ..
        } = *event;
        self.insert(FileTransfer {
            direction,
            file,
            offset,
            bytes,
            record_id,
            pair,
            place,
        });
        if self.waiting.len() > WAITING_MAX {
            self.next()
        } else {
            None
        }
    }

    fn insert(&mut self, transfer: FileTransfer) {
        // Most answers come in order, and those that do not are a few places off.
        let later = self
            .waiting
            .iter()
            .rev()
            .take_while(|other| other.record_id > transfer.record_id)
            .count();
        self.waiting.insert(self.waiting.len() - later, transfer);
    }

    /// The first of those that wait, and whether it is sequential.
    pub fn next(&mut self) -> Option<(FileTransfer, bool)> {
        if let Some(soon) = self.waiting.get(PREFETCH_AHEAD) {
            self.pairs.prefetch(soon.place);
        }
        let transfer = self.waiting.pop_front()?;
        let place = self.pairs.place_near(transfer.pair, transfer.place);
        let pair = self.pairs.at_mut(place);
        pair.transfers += 1;
        let end = transfer.offset.wrapping_add(u64::from(transfer.bytes));
        let which = usize::from(transfer.direction == TransferDirection::Write);
        let expected = pair.ends[which].replace(end);
        Some((transfer, expected == Some(transfer.offset)))
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use brunt_core::sketch::spread;
    use brunt_wire::net::IpAddress;

    use super::*;
    use crate::dissect::rpc::GETATTR;
    use crate::operation::Protocol;

    fn read(record_id: u64, offset: u64, bytes: u32) -> OperationEvent {
        OperationEvent {
            record_id,
            time_ns: 0,
            latency_ns: Some(1000),
            client: IpAddress::v4([10, 0, 0, 1]),
            kind: GETATTR,
            protocol: Protocol::all().next().expect("a protocol"),
            direction: Some(TransferDirection::Read),
            outcome: brunt_core::TransferOutcome::Moved,
            file: Some(FileKey(spread(5))),
            offset,
            bytes,
            error: None,
            outstanding: 1,
        }
    }

    fn sequential(events: impl IntoIterator<Item = OperationEvent>) -> Vec<(u64, bool)> {
        let mut order = Order::default();
        let mut judged: Vec<_> = events
            .into_iter()
            .filter_map(|event| order.add(&event))
            .collect();
        judged.extend(std::iter::from_fn(|| order.next()));
        judged
            .into_iter()
            .map(|(transfer, sequential)| (transfer.record_id, sequential))
            .collect()
    }

    /// The first has nothing before it; a transfer that moved nothing ends where it began.
    #[test]
    fn answers_that_overtake_each_other_change_nothing() {
        let asked = [
            (10, 0, 100),
            (11, 100, 100),
            (14, 200, 50),
            (15, 250, 0),
            (18, 350, 0),
            (19, 350, 0),
        ];
        let expected = [
            (10, false),
            (11, true),
            (14, true),
            (15, true),
            (18, false),
            (19, true),
        ];
        for order in [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [1, 3, 0, 5, 2, 4]] {
            let events = order
                .map(|index| asked[index])
                .map(|(id, at, bytes)| read(id, at, bytes));
            assert_eq!(sequential(events), expected, "{order:?}");
        }
    }

    /// Other clients, other files, the other direction, and what names no file come in between.
    #[test]
    fn each_client_file_and_direction_has_its_order() {
        let mut between = [read(1, 7, 7); 4];
        between[0].client = IpAddress::v4([10, 0, 0, 2]);
        between[1].file = Some(FileKey(spread(6)));
        between[2].direction = Some(TransferDirection::Write);
        between[3].file = None;
        let events = [&[read(0, 0, 7)], &between[..], &[read(2, 7, 7)]].concat();
        let judged = sequential(events);
        assert_eq!(
            judged
                .iter()
                .filter(|(_, sequential)| *sequential)
                .collect::<Vec<_>>(),
            [&(2, true)]
        );
        assert_eq!(judged.len(), 5);
    }

    /// A stream with any number of requests waiting at a time is sequential, and little waits here.
    #[test]
    fn a_deep_stream_is_sequential() {
        for depth in [1_u64, 2, 64, 1000] {
            let ids = (0..20_000 - 20_000 % depth)
                .map(|index| index - index % depth + (depth - 1 - index % depth));
            let judged = sequential(ids.map(|id| read(id, id * 4096, 4096)));
            assert_eq!(
                judged.iter().filter(|(_, sequential)| !sequential).count(),
                1,
                "{depth}"
            );
        }
    }

    /// An answer that is very late, or that never comes, breaks the order at its place, and holds nothing up.
    #[test]
    fn late_answers_hold_nothing_up() {
        let stream = (0..5000).filter(|id| *id != 100).chain([100]);
        let broken: Vec<_> = sequential(stream.map(|id| read(id, id * 4096, 4096)))
            .into_iter()
            .filter_map(|(id, sequential)| (!sequential).then_some(id))
            .collect();
        // The late one stands before those that still waited when it came.
        assert_eq!(broken, [0, 101, 100, 5000 - WAITING_MAX as u64]);
        let mut order = Order::default();
        assert!(order.is_empty());
        for id in 0..5000 {
            order.add(&read(id, 0, 1));
        }
        assert_eq!(order.waiting.len(), WAITING_MAX);
    }
}
