//! Sorts requests by time, for traces whose rows are slightly out of order. Used by [`crate::reader`].
//!
//! The rule: memory is bounded because only a window of requests is held back. A request that is
//! later than the window allows comes out of order and is counted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::record::BlockRequest;

/// Maximum number of requests held back: at 64 bytes each, 4 MiB.
pub const SORT_WINDOW: usize = 1 << 16;

/// A request that waits for earlier ones, ordered by time, then by position in the file.
struct Held {
    place: u64,
    request: BlockRequest,
}

impl Held {
    fn key(&self) -> (u64, u64) {
        (self.request.time_ns, self.place)
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Held) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// Sorts requests by time.
pub(crate) struct Sorter {
    held: BinaryHeap<Reverse<Held>>,
    window: usize,
    place: u64,
    last_ns: u64,
    out_of_order: u64,
}

impl Sorter {
    /// Holds back up to `window` requests.
    pub fn new(window: usize) -> Sorter {
        Sorter {
            held: BinaryHeap::new(),
            window,
            place: 0,
            last_ns: 0,
            out_of_order: 0,
        }
    }

    /// Takes the requests and replaces them with those that are ready, or at the `end` with all of them. Returns how
    /// many came out of order so far.
    pub fn sort(&mut self, requests: &mut Vec<BlockRequest>, end: bool) -> u64 {
        for request in requests.drain(..) {
            self.held.push(Reverse(Held {
                place: self.place,
                request,
            }));
            self.place += 1;
        }
        let keep = if end { 0 } else { self.window };
        while self.held.len() > keep {
            let Some(Reverse(Held { request, .. })) = self.held.pop() else {
                break;
            };
            self.out_of_order += u64::from(request.time_ns < self.last_ns);
            self.last_ns = request.time_ns;
            requests.push(request);
        }
        self.out_of_order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::TraceOp;

    #[test]
    fn requests_within_the_window_are_sorted_and_later_ones_counted() {
        let request = |time_ns, offset| BlockRequest::new(time_ns, 0, TraceOp::Read, offset, 512);
        let mut sorter = Sorter::new(3);
        let mut requests: Vec<_> = [5, 4, 6, 6, 7, 8, 9, 1]
            .map(|time| request(time, 0))
            .to_vec();
        requests[3].offset_bytes = 1;
        assert_eq!(sorter.sort(&mut requests, false), 0);
        let times =
            |requests: &[BlockRequest]| requests.iter().map(|r| r.time_ns).collect::<Vec<_>>();
        assert_eq!(times(&requests), [1, 4, 5, 6, 6]);
        assert_eq!((requests[3].offset_bytes, requests[4].offset_bytes), (0, 1));
        let mut more = vec![request(2, 0)];
        assert_eq!(
            (sorter.sort(&mut more, true), times(&more)),
            (1, vec![2, 7, 8, 9])
        );
    }
}
