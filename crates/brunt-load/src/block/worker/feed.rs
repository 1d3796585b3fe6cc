//! A worker's hand on its sequence: keeps a request that is not due yet, and remembers when asking again makes sense.

use brunt_core::Nanos;
use brunt_result::RequestStatus;

use crate::block::generator::Planned;
use crate::sequence::{FOREIGN_POLL_NANOS, Next, Sequence};

pub(super) struct Feed<S> {
    sequence: S,
    /// Given away by the sequence, and not due yet.
    upcoming: Option<(Planned, Nanos)>,
    /// Nothing comes before this time, unless a request completes.
    ask_at: Nanos,
    ended: bool,
    /// The sequence is not asked: it has ended, or what it gave is still here.
    asks_no_more: bool,
}

impl<S: Sequence<Request = Planned>> Feed<S> {
    pub(super) fn new(sequence: S) -> Feed<S> {
        Feed { sequence, upcoming: None, ask_at: Nanos(0), ended: false, asks_no_more: false }
    }

    /// Nothing comes before the start.
    pub(super) fn starts(&mut self, start: Nanos) {
        self.ask_at = start;
        self.sequence.starts(start);
    }

    /// The next request if it is due by now, and since when. `own` says whether a request is this worker's and has not
    /// ended.
    #[inline(always)] // once a request: returning it through memory would cost a tenth of the loop
    pub(super) fn due(&mut self, now: Nanos, own: impl Fn(u64) -> bool) -> Option<(Planned, Nanos)> {
        if now < self.ask_at {
            return None;
        }
        if self.asks_no_more {
            return self.kept(now);
        }
        match self.sequence.next(now) {
            Next::Due(planned, at) if at <= now => Some((planned, at)),
            not_yet => {
                self.keep(not_yet, now, own);
                None
            }
        }
    }

    /// The request that was not due before, if it is now.
    #[cold]
    fn kept(&mut self, now: Nanos) -> Option<(Planned, Nanos)> {
        match self.upcoming {
            Some((_, at)) if at <= now => {
                self.asks_no_more = self.ended;
                self.upcoming.take()
            }
            Some((_, at)) => {
                self.ask_at = at;
                None
            }
            None => None,
        }
    }

    /// Remembers what was not due.
    #[cold]
    fn keep(&mut self, next: Next<Planned>, now: Nanos, own: impl Fn(u64) -> bool) {
        self.ask_at = match next {
            Next::Due(planned, at) => {
                (self.upcoming, self.asks_no_more) = (Some((planned, at)), true);
                at
            }
            Next::Later(at) => at,
            Next::WaitFor(index) if own(index) => Nanos::MAX,
            Next::WaitFor(_) => Nanos(now.0 + FOREIGN_POLL_NANOS),
            Next::End => {
                (self.ended, self.asks_no_more) = (true, true);
                Nanos::MAX
            }
        };
    }

    /// Takes back what [`Feed::due`] gave: it cannot be used now.
    pub(super) fn put_back(&mut self, request: (Planned, Nanos)) {
        assert!(self.upcoming.is_none(), "one request at a time");
        (self.upcoming, self.asks_no_more) = (Some(request), true);
    }

    /// A request ended.
    #[inline]
    pub(super) fn completed(&mut self, index: u64, status: RequestStatus) {
        self.sequence.completed(index, status);
    }

    /// Some requests ended: it makes sense to ask again.
    #[inline]
    pub(super) fn ask_again(&mut self) {
        self.ask_at = Nanos(0);
    }

    /// When it makes sense to ask again, if nothing completes before.
    #[inline]
    pub(super) fn ask_at(&self) -> Nanos {
        self.ask_at
    }

    /// Whether nothing comes any more.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.upcoming.is_none()
    }

    /// Another rate, of all workers together.
    pub(super) fn set_rate(&mut self, rate: f64, now: Nanos) {
        self.sequence.set_rate(rate, now);
        self.ask_at = now;
    }
}
