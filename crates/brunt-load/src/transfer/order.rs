//! The requests of a transfer: a range in address order, block by block, or blocks of it in random order. Also the
//! buffer in which read data waits for its turn.
//!
//! The rule: for in-order delivery, requests stay close together. None is issued while the first one with missing data
//! is more than a few queue depths behind, so that a single late request doesn't use up all memory.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use brunt_block::{Buf, BufPool, Op};
use brunt_core::Nanos;
use brunt_core::random::Random;
use brunt_result::RequestStatus;

use super::TransferError;
use super::input::{Consumed, Input};
use crate::block::generator::Planned;
use crate::content::Carried;
use crate::sequence::{Next, Sequence};

/// Requests of one kind over a range.
#[derive(Clone, Debug)]
pub struct Range {
    /// The operation.
    pub op: Op,
    /// Start of the range, in bytes.
    pub start: u64,
    /// Length of the range, in bytes.
    pub length: u64,
    /// Size of a request in bytes; the last one of the range may be shorter.
    pub block: u64,
    /// Number of requests; those beyond the end of the range wrap around to its start.
    pub count: u64,
    /// For blocks in random order, drawn with replacement, rather than in sequence.
    pub random: Option<Random>,
    /// Whether no more requests follow one that failed.
    pub ends_with_an_error: bool,
    window: Option<Window>,
    next: u64,
    ended: bool,
}

/// The requests from the first that has not ended.
#[derive(Clone, Debug)]
struct Window {
    first: u64,
    ended: VecDeque<bool>,
    len_max: usize,
}

impl Range {
    /// Creates a sequence that covers the range once, in order.
    pub fn new(op: Op, start: u64, length: u64, block: u64) -> Range {
        let count = length.div_ceil(block);
        Range {
            op,
            start,
            length,
            block,
            count,
            random: None,
            ends_with_an_error: false,
            window: None,
            next: 0,
            ended: false,
        }
    }

    /// Keeps requests within this distance of the first that has not ended.
    pub fn keep_together(&mut self, window: usize) {
        let ended = VecDeque::with_capacity(window);
        self.window = Some(Window {
            first: 0,
            ended,
            len_max: window,
        });
    }

    /// Returns the number of requests issued.
    pub fn made(&self) -> u64 {
        self.next
    }

    /// Ends the sequence.
    pub fn end(&mut self) {
        self.ended = true;
    }
}

impl Sequence for Range {
    type Request = Planned;

    fn starts(&mut self, _start: Nanos) {}

    fn next(&mut self, now: Nanos, place: &mut Planned) -> Next {
        if self.ended || self.next >= self.count {
            return Next::End;
        }
        if let Some(window) = &mut self.window {
            if window.ended.len() == window.len_max {
                return Next::WaitFor(window.first);
            }
            window.ended.push_back(false);
        }
        let index = self.next;
        self.next += 1;
        let block = match &mut self.random {
            Some(random) => random.below(self.length / self.block),
            None => index % self.length.div_ceil(self.block),
        };
        let at = block * self.block;
        let len = self.block.min(self.length - at);
        *place = Planned::new(index, self.op, self.start + at, len);
        Next::Due(now)
    }

    fn completed(&mut self, index: u64, status: RequestStatus, _at: Nanos) {
        if status != RequestStatus::Good && self.ends_with_an_error {
            self.end();
        }
        if let Some(window) = &mut self.window {
            window.ended[(index - window.first) as usize] = true;
            while window.ended.front() == Some(&true) {
                window.ended.pop_front();
                window.first += 1;
            }
        }
    }
}

/// The requests of a range; when writing from an input, only until the input ends.
pub struct RangeRequests {
    pub range: Range,
    pub input: Option<Rc<RefCell<Input>>>,
}

impl Sequence for RangeRequests {
    type Request = Planned;

    fn starts(&mut self, start: Nanos) {
        self.range.starts(start);
    }

    fn next(&mut self, now: Nanos, place: &mut Planned) -> Next {
        let Some(input) = self
            .input
            .as_ref()
            .filter(|_| self.range.made() < self.range.count)
        else {
            return self.range.next(now, place);
        };
        let mut len = 0;
        let mut input = input.borrow_mut();
        match input.next(now, &mut len) {
            Next::Due(_) => {
                let next = self.range.next(now, place);
                place.len = len;
                next
            }
            Next::End => {
                if !input.is_stopped() {
                    self.range.count = self.range.made();
                }
                Next::End
            }
            other => other,
        }
    }

    fn completed(&mut self, index: u64, status: RequestStatus, at: Nanos) {
        self.range.completed(index, status, at);
    }
}

impl RangeRequests {
    /// Returns the results of the input, if there is one; `goes_on` decides whether to keep waiting for its end.
    ///
    /// # Errors
    /// The input could not be read.
    pub fn consumed(
        &mut self,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Consumed, TransferError> {
        let finish = |input: Rc<RefCell<Input>>| input.borrow_mut().finish(goes_on);
        self.input
            .take()
            .map_or(Ok(Consumed::default()), finish)
            .map_err(TransferError::Input)
    }
}

/// Delivers read data in the order of the requests.
pub struct InOrder {
    pool: BufPool,
    first: u64,
    /// Data that arrived before its turn.
    early: VecDeque<Option<(Buf, usize)>>,
}

impl InOrder {
    /// Creates an empty buffer; `pool` supplies replacements for buffers that wait.
    pub fn new(pool: BufPool) -> InOrder {
        InOrder {
            pool,
            first: 0,
            early: VecDeque::new(),
        }
    }

    /// Takes the data of a request and delivers what is now in order.
    ///
    /// # Errors
    /// The first error of `deliver`; the data that it did not take is lost.
    pub fn take(
        &mut self,
        request: &Planned,
        carried: &mut Carried,
        mut deliver: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let (place, len) = ((request.index - self.first) as usize, request.len as usize);
        if place > 0 {
            if self.early.len() <= place {
                self.early.resize_with(place + 1, || None);
            }
            let spare = self.pool.take(carried.buf.len());
            let early =
                self.early[place].replace((std::mem::replace(&mut carried.buf, spare), len));
            assert!(
                early.is_none(),
                "request {} was answered twice",
                request.index
            );
            return Ok(());
        }
        deliver(&carried.buf[..len])?;
        self.early.pop_front();
        self.first += 1;
        while let Some(Some((buf, len))) = self.early.front() {
            deliver(&buf[..*len])?;
            self.early.pop_front();
            self.first += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos(5);
    const NONE: Planned = Planned::NOTHING;

    fn offsets(range: &mut Range) -> Vec<(u64, u64)> {
        let (mut all, mut planned) = (Vec::new(), NONE);
        while let Next::Due(NOW) = range.next(NOW, &mut planned) {
            assert_eq!(planned.index, all.len() as u64);
            all.push((planned.offset, planned.len));
        }
        assert_eq!(range.next(NOW, &mut planned), Next::End);
        all
    }

    #[test]
    fn a_range_is_covered_once_with_a_short_last_block() {
        let once_through = || Range::new(Op::Read, 1024, 10240, 4096);
        let once = [(1024, 4096), (5120, 4096), (9216, 2048)];
        assert_eq!(offsets(&mut once_through()), once);
        assert_eq!(
            offsets(&mut Range {
                count: 5,
                ..once_through()
            }),
            [&once[..], &once[..2]].concat()
        );
        let random = offsets(&mut Range {
            count: 100,
            random: Some(Random::new(1)),
            ..once_through()
        });
        assert_eq!(random.len(), 100);
        assert!(
            random.iter().all(|request| once[..2].contains(request)),
            "whole blocks only"
        );
    }

    #[test]
    fn requests_stay_together() {
        let mut range = Range::new(Op::Read, 0, 100 << 12, 1 << 12);
        range.keep_together(3);
        let mut next = |ended: Option<u64>| {
            if let Some(ended) = ended {
                range.completed(ended, RequestStatus::Good, NOW);
            }
            let mut planned = NONE;
            match range.next(NOW, &mut planned) {
                Next::Due(_) => Ok(planned.index),
                Next::WaitFor(index) => Err(index),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(
            [next(None), next(None), next(None), next(None)],
            [Ok(0), Ok(1), Ok(2), Err(0)]
        );
        assert_eq!((next(Some(1)), next(Some(2))), (Err(0), Err(0)));
        assert_eq!(
            [next(Some(0)), next(None), next(None), next(None)],
            [Ok(3), Ok(4), Ok(5), Err(3)]
        );
    }

    #[test]
    fn an_error_ends_the_sequence_if_requested() {
        let whole = Range::new(Op::Read, 0, 100 << 12, 1 << 12);
        for ends_with_an_error in [false, true] {
            let mut range = Range {
                ends_with_an_error,
                ..whole.clone()
            };
            assert_eq!(range.next(NOW, &mut NONE.clone()), Next::Due(NOW));
            range.completed(0, RequestStatus::Os, NOW);
            assert_eq!(
                range.next(NOW, &mut NONE.clone()) == Next::End,
                ends_with_an_error
            );
            assert_eq!(range.made(), if ends_with_an_error { 1 } else { 2 });
        }
    }

    #[test]
    fn data_is_delivered_in_order() {
        let mut order = InOrder::new(BufPool::new(0));
        let mut seen = Vec::new();
        for index in [2, 1, 0, 3, 5, 4] {
            let mut carried = Carried {
                buf: Buf::zeroed(4096),
                ..Carried::default()
            };
            carried.buf[..8].fill(index as u8);
            let request = Planned::new(index, Op::Read, index * 8, 8);
            let deliver = |bytes: &[u8]| {
                seen.extend_from_slice(bytes);
                Ok(())
            };
            order.take(&request, &mut carried, deliver).unwrap();
            assert_eq!(carried.buf.len(), 4096, "the worker has a buffer again");
        }
        assert_eq!(
            seen.chunks(8).map(|block| block[0]).collect::<Vec<_>>(),
            [0, 1, 2, 3, 4, 5]
        );
    }
}
