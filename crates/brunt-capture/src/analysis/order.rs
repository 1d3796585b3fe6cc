//! Detects sequential access: a READ or WRITE is sequential if it begins where the same client's previous one in the
//! same direction on the same file ended. Used by `profile`.
//!
//! The one rule: requests are judged in the order in which clients sent them. Replies can overtake each other, and
//! analyses see operations on completion, so transfers wait here until earlier requests have likely completed.

use std::collections::VecDeque;

use super::bounded::{Bounded, Weight};
use super::event::OperationEvent;
use super::hot::client_key;
use crate::operation::{FileKey, TransferDirection};

/// Maximum number of tracked pairs of client and file.
const PAIRS_MAX: usize = 64 << 10;
/// Maximum number of waiting transfers. If more than this many later transfers complete before a transfer does, it is
/// judged when its reply arrives.
const WAITING_MAX: usize = 1024;
/// A transfer's entry is prefetched while this many transfers are ahead of it, to hide the memory latency.
const PREFETCH_AHEAD: usize = 8;

/// A READ or WRITE of a known file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileTransfer {
    /// Read or write.
    pub direction: TransferDirection,
    /// The file.
    pub file: FileKey,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Bytes moved.
    pub bytes: u32,
    /// The place of the file's server in the profile.
    pub server: usize,
    record_id: u64,
    pair: u64,
    /// The likely place of the client-file pair's entry.
    place: usize,
}

/// Where a client's last transfers on a file ended, per direction.
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

/// Restores the request order of transfers.
#[derive(Clone, Debug)]
pub struct Order {
    /// Sorted by `record_id`.
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
    /// Adds an operation on a server, which is identified by its place in the profile. If it is a transfer on a known
    /// file and the queue is full, returns the oldest queued transfer, and whether that transfer is sequential.
    #[inline]
    pub fn add(&mut self, event: &OperationEvent, server: usize) -> Option<(FileTransfer, bool)> {
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
            server,
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
        // Most replies arrive in order, and the others are only a few places off.
        let later = self
            .waiting
            .iter()
            .rev()
            .take_while(|other| other.record_id > transfer.record_id)
            .count();
        self.waiting.insert(self.waiting.len() - later, transfer);
    }

    /// Removes the first waiting transfer, and returns whether it is sequential.
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

    /// Whether no transfer is waiting.
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
            server: IpAddress::v4([10, 0, 0, 9]),
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
            .filter_map(|event| order.add(&event, 0))
            .collect();
        judged.extend(std::iter::from_fn(|| order.next()));
        judged
            .into_iter()
            .map(|(transfer, sequential)| (transfer.record_id, sequential))
            .collect()
    }

    /// The first transfer has no predecessor; a transfer that moved no data ends where it began.
    #[test]
    fn replies_out_of_order_change_nothing() {
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

    /// Other clients, files and directions, and operations without a file, come in between.
    #[test]
    fn order_is_tracked_per_client_file_and_direction() {
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

    /// A stream with any number of outstanding requests is sequential, although few of its transfers wait here.
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

    /// A very late or missing reply breaks the sequence at its place, but delays no other transfer.
    #[test]
    fn late_replies_delay_no_transfers() {
        let stream = (0..5000).filter(|id| *id != 100).chain([100]);
        let broken: Vec<_> = sequential(stream.map(|id| read(id, id * 4096, 4096)))
            .into_iter()
            .filter_map(|(id, sequential)| (!sequential).then_some(id))
            .collect();
        // The late transfer is judged before the transfers that were still waiting when it arrived.
        assert_eq!(broken, [0, 101, 100, 5000 - WAITING_MAX as u64]);
        let mut order = Order::default();
        assert!(order.is_empty());
        for id in 0..5000 {
            order.add(&read(id, 0, 1), 0);
        }
        assert_eq!(order.waiting.len(), WAITING_MAX);
    }
}
