//! A worker's hand on its sequence: keeps a request that is not due yet, and remembers when asking again makes sense.

use brunt_core::{Histogram, Nanos};
use brunt_result::RequestStatus;

use crate::block::generator::Planned;
use crate::sequence::{FOREIGN_POLL_NANOS, Next, Sequence};

pub(super) struct Feed<S> {
    sequence: S,
    /// Given away by the sequence, and not due yet.
    upcoming: Option<(Planned, Nanos)>,
    /// Nothing comes before this time, unless a request completes.
    ask_at: Nanos,
    /// Nothing comes before the completion of this request.
    waits_for: Option<u64>,
    ended: bool,
    /// The sequence is not asked: it has ended, or what it gave is still here.
    asks_no_more: bool,
}

impl<S: Sequence<Request = Planned>> Feed<S> {
    pub(super) fn new(sequence: S) -> Feed<S> {
        Feed {
            sequence,
            upcoming: None,
            ask_at: Nanos(0),
            waits_for: None,
            ended: false,
            asks_no_more: false,
        }
    }

    /// Nothing comes before the start.
    pub(super) fn starts(&mut self, start: Nanos) {
        self.ask_at = start;
        self.sequence.starts(start);
    }

    /// Writes the next request into `place` if it is due by now, and says since when.
    #[inline(always)] // once a request
    pub(super) fn due(&mut self, now: Nanos, place: &mut Planned) -> Option<Nanos> {
        if now < self.ask_at {
            return None;
        }
        if self.asks_no_more {
            return self.kept(now, place);
        }
        match self.sequence.next(now, place) {
            Next::Due(at) if at <= now => Some(at),
            not_yet => {
                self.keep(not_yet, now, place);
                None
            }
        }
    }

    /// As [`Feed::due`], for callers that do so once a run.
    #[inline(never)]
    pub(super) fn seldom_due(&mut self, now: Nanos, place: &mut Planned) -> Option<Nanos> {
        self.due(now, place)
    }

    /// The request that was not due before, if it is now.
    #[cold]
    fn kept(&mut self, now: Nanos, place: &mut Planned) -> Option<Nanos> {
        let (planned, at) = self.upcoming?;
        if at > now {
            self.ask_at = at;
            return None;
        }
        (self.upcoming, self.asks_no_more) = (None, self.ended);
        *place = planned;
        Some(at)
    }

    /// Remembers what was not due.
    #[cold]
    fn keep(&mut self, next: Next, now: Nanos, place: &Planned) {
        self.ask_at = match next {
            Next::Due(at) => {
                (self.upcoming, self.asks_no_more) = (Some((*place, at)), true);
                at
            }
            Next::Later(at) => at,
            Next::WaitFor(index) => {
                self.waits_for = Some(index);
                Nanos(now.0 + FOREIGN_POLL_NANOS)
            }
            Next::End => {
                (self.ended, self.asks_no_more) = (true, true);
                Nanos::MAX
            }
        };
    }

    /// Takes back what [`Feed::due`] gave: it cannot be used now.
    pub(super) fn put_back(&mut self, planned: Planned, at: Nanos) {
        assert!(self.upcoming.is_none(), "one request at a time");
        (self.upcoming, self.asks_no_more) = (Some((planned, at)), true);
    }

    /// A request ended.
    #[inline]
    pub(super) fn completed(&mut self, index: u64, status: RequestStatus, at: Nanos) {
        self.sequence.completed(index, status, at);
    }

    /// The device took a request.
    pub(super) fn sent(&mut self, request: &Planned, at: Nanos) {
        self.sequence.sent(request, at);
    }

    /// When the request is due that the sequence gave away and that was not sent yet.
    #[inline]
    pub(super) fn kept_due(&self) -> Option<Nanos> {
        self.upcoming.as_ref().map(|(_, at)| *at)
    }

    /// The worker waits for its device now, which has all but `unsent` of its requests.
    pub(super) fn pause(&mut self, unsent: usize) {
        self.sequence.pause(unsent);
    }

    /// Whether another worker may go on where this one pauses.
    pub(super) fn hands_over(&self) -> bool {
        self.sequence.hands_over()
    }

    /// Whether what comes next is not known yet, so that more may be due than this worker was given.
    pub(super) fn is_undecided(&self) -> bool {
        !self.asks_no_more && self.sequence.is_undecided()
    }

    /// Records the ages of requests that were due by `at` and that this worker has not sent.
    pub(super) fn overdue(&self, at: Nanos, ages: &mut Histogram) {
        if let Some(due) = self.kept_due().filter(|due| *due <= at) {
            ages.record(Nanos(at.0 - due.0));
        }
        self.sequence.overdue(at, ages);
    }

    /// What the sequence gave away and this worker kept, because it was not due or could not be used.
    pub(super) fn take_kept(&mut self) -> Option<(Planned, Nanos)> {
        let kept = self.upcoming.take()?;
        self.asks_no_more = self.ended;
        Some(kept)
    }

    /// A request that was given is not going to be sent: the run is over before it is due.
    pub(super) fn give_back(&mut self, index: u64, at: Nanos) {
        self.sequence.given_back(index, at);
    }

    /// The worker sends no more, and asks only for what nobody sends, which may have to be read first. Whether others go
    /// on.
    pub(super) fn leaves(&mut self, may_wait: bool) -> bool {
        self.ask_again();
        self.sequence.leaves(may_wait)
    }

    /// Some requests ended: it makes sense to ask again.
    #[inline]
    pub(super) fn ask_again(&mut self) {
        (self.ask_at, self.waits_for) = (Nanos(0), None);
    }

    /// When it makes sense to ask again, if nothing completes before. `own` says whether a request is this worker's and
    /// has not ended: whoever waits for such a one need not ask before it completes.
    #[inline]
    pub(super) fn ask_at(&self, own: impl Fn(u64) -> bool) -> Nanos {
        match self.waits_for {
            Some(index) if own(index) => Nanos::MAX,
            _ => self.ask_at,
        }
    }

    /// Whether something may come that is due before `end`.
    pub(super) fn may_have_before(&self, end: Nanos) -> bool {
        self.kept_due().map_or(!self.ended, |at| at < end)
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
