//! A worker's access to its sequence. Keeps a request that is not due yet, and remembers when to ask again.

use brunt_core::{Histogram, Nanos};
use brunt_result::RequestStatus;

use crate::block::generator::Planned;
use crate::sequence::{FOREIGN_POLL_NANOS, Next, Sequence};

pub(super) struct Feed<S> {
    sequence: S,
    /// A request that the sequence handed out, but that is not due yet.
    upcoming: Option<(Planned, Nanos)>,
    /// No request is due before this time unless another one completes.
    ask_at: Nanos,
    /// Index of a request that has to complete before another one is due.
    waits_for: Option<u64>,
    ended: bool,
    /// Whether to stop taking requests from the sequence: it has ended, or its last request is still kept here.
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

    /// Forwards the start time; nothing is due before it.
    pub(super) fn starts(&mut self, start: Nanos) {
        self.ask_at = start;
        self.sequence.starts(start);
    }

    /// If the next request is due, writes it into `place` and returns its due time.
    #[inline(always)] // once per request
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

    /// Like [`Feed::due`], for callers that use it once per run.
    #[inline(never)]
    pub(super) fn seldom_due(&mut self, now: Nanos, place: &mut Planned) -> Option<Nanos> {
        self.due(now, place)
    }

    /// Returns the kept request if it is due now.
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

    /// Keeps a request that is not due yet, or remembers when to ask again.
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

    /// Takes back a request from [`Feed::due`] that can't be used now.
    pub(super) fn put_back(&mut self, planned: Planned, at: Nanos) {
        assert!(self.upcoming.is_none(), "one request at a time");
        (self.upcoming, self.asks_no_more) = (Some((planned, at)), true);
    }

    /// Reports a request that ended.
    #[inline]
    pub(super) fn completed(&mut self, index: u64, status: RequestStatus, at: Nanos) {
        self.sequence.completed(index, status, at);
    }

    /// Reports a request that the device accepted.
    pub(super) fn sent(&mut self, request: &Planned, at: Nanos) {
        self.sequence.sent(request, at);
    }

    /// Returns the due time of the kept request, if there is one.
    #[inline]
    pub(super) fn kept_due(&self) -> Option<Nanos> {
        self.upcoming.as_ref().map(|(_, at)| *at)
    }

    /// Reports that the worker is waiting for its device, and that `unsent` of its requests are not sent yet.
    pub(super) fn pause(&mut self, unsent: usize) {
        self.sequence.pause(unsent);
    }

    /// Returns true if another worker may continue while this one pauses.
    pub(super) fn hands_over(&self) -> bool {
        self.sequence.hands_over()
    }

    /// Returns true if the next request is not known yet, so that more requests may be due than this worker was given.
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

    /// Takes the kept request, which was not due or could not be used.
    pub(super) fn take_kept(&mut self) -> Option<(Planned, Nanos)> {
        let kept = self.upcoming.take()?;
        self.asks_no_more = self.ended;
        Some(kept)
    }

    /// Reports that a request will not be sent, because the run ends before it is due.
    pub(super) fn give_back(&mut self, index: u64, at: Nanos) {
        self.sequence.given_back(index, at);
    }

    /// Reports that the worker sends no more requests and from now on only asks which requests remain unsent; they
    /// may still have to be read. Returns true if other workers continue.
    pub(super) fn leaves(&mut self, may_wait: bool) -> bool {
        self.ask_again();
        self.sequence.leaves(may_wait)
    }

    /// Makes the next call ask the sequence again, because requests ended.
    #[inline]
    pub(super) fn ask_again(&mut self) {
        (self.ask_at, self.waits_for) = (Nanos(0), None);
    }

    /// Returns when to ask again if nothing completes before that. `own` returns true for an unfinished request of
    /// this worker; while the sequence waits for such a request, there is no need to ask before it completes.
    #[inline]
    pub(super) fn ask_at(&self, own: impl Fn(u64) -> bool) -> Nanos {
        match self.waits_for {
            Some(index) if own(index) => Nanos::MAX,
            _ => self.ask_at,
        }
    }

    /// Returns true if a request due before `end` may still come.
    pub(super) fn may_have_before(&self, end: Nanos) -> bool {
        self.kept_due().map_or(!self.ended, |at| at < end)
    }

    /// Returns true if no more requests will come.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.upcoming.is_none()
    }

    /// Changes the rate of all workers together.
    pub(super) fn set_rate(&mut self, rate: f64, now: Nanos) {
        self.sequence.set_rate(rate, now);
        self.ask_at = now;
    }
}
