//! A worker's next request and its time: the interface between the source of requests and the loop that sends them. The
//! synthetic generator is one sequence; a trace is another. A worker reports how each request ended, so a sequence can
//! hold back requests that depend on earlier ones.
//!
//! The rule: a sequence never waits before its worker has left, and never reads a clock; it only knows the times it is
//! given. A request that it has handed out belongs to its worker, and returns exactly once through
//! [`Sequence::completed`] or [`Sequence::given_back`].

use brunt_core::{Histogram, Nanos};
use brunt_result::RequestStatus;

/// A sequence's answer to a worker that asks for its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The request in `place` is due at this time, which may be in the future. In a closed loop, requests are due when
    /// they are asked for.
    Due(Nanos),
    /// Nothing is due before this time. Unlike with [`Next::Due`], nothing has been decided: another worker may get the
    /// request, or a new rate may make it due earlier.
    Later(Nanos),
    /// Nothing is due before the request with this index, which may be another worker's, completes. The worker asks
    /// again after any of its own completions and, unless this request is its own, every [`FOREIGN_POLL_NANOS`].
    WaitFor(u64),
    /// The sequence has ended.
    End,
}

/// Interval at which a worker checks whether another worker's request has completed, and so the maximum delay added
/// to a dependent request.
pub const FOREIGN_POLL_NANOS: u64 = 100_000;

/// Requests in order. Each worker owns a sequence; workers that share one each own a handle to it.
pub trait Sequence {
    /// The type of a worker's requests.
    type Request;

    /// Whether the sequence has to be notified of each request that is sent ([`Sequence::sent`]).
    const WATCHES: bool = false;

    /// Sets the start time of the run. Called once by each worker, before any other method.
    fn starts(&mut self, start: Nanos);

    /// Returns the next request for the worker that asks. The request is written into `place`, where the worker keeps
    /// it until it ends; for any other answer, the content of `place` is undefined. A worker's `now` never decreases.
    fn next(&mut self, now: Nanos, place: &mut Self::Request) -> Next;

    /// The device accepted this request at this time; called again for each further attempt. Only called if
    /// [`Sequence::WATCHES`] is set.
    fn sent(&mut self, _request: &Self::Request, _at: Nanos) {}

    /// The worker is about to wait for its device. The worker has reported all requests that ended; `unsent` of its
    /// requests have not been submitted to the device yet, but will be. Only called if [`Sequence::WATCHES`] is set.
    fn pause(&mut self, _unsent: usize) {}

    /// Returns true if another worker may continue after the next [`Sequence::pause`], so that this worker's requests
    /// must have reached the kernel before that.
    fn hands_over(&self) -> bool {
        false
    }

    /// Returns true if the last answer was [`Next::Later`] just because the next request is not known yet: another
    /// worker is deciding about it, or it has not been read yet. More requests may be due.
    fn is_undecided(&self) -> bool {
        false
    }

    /// Records the ages at `now` of requests that are due by then and have not been given to a worker. Called when an
    /// interval ends. Sequences that don't know their next requests record nothing.
    fn overdue(&self, _now: Nanos, _ages: &mut Histogram) {}

    /// No worker will send this request, because the run ends before it is due; it does not complete.
    fn given_back(&mut self, _index: u64, _at: Nanos) {}

    /// The worker sends no more requests, but may still ask for requests, to count those that will not be sent. If
    /// `may_wait`, asking then waits for requests that have not been read yet, up to a limit. Returns true if other
    /// workers continue and send the due requests.
    fn leaves(&mut self, _may_wait: bool) -> bool {
        false
    }

    /// A request ended, without further attempts, at this time with this status. This includes skipped requests.
    fn completed(&mut self, index: u64, status: RequestStatus, at: Nanos);

    /// Changes the rate, in requests per second of all workers combined. Returns `false` if the times of this sequence
    /// don't depend on a rate.
    fn set_rate(&mut self, _rate: f64, _now: Nanos) -> bool {
        false
    }
}

/// Lets a caller inspect a sequence after the run.
impl<S: Sequence> Sequence for &mut S {
    type Request = S::Request;
    const WATCHES: bool = S::WATCHES;

    fn starts(&mut self, start: Nanos) {
        (**self).starts(start);
    }
    fn next(&mut self, now: Nanos, place: &mut S::Request) -> Next {
        (**self).next(now, place)
    }
    fn sent(&mut self, request: &S::Request, at: Nanos) {
        (**self).sent(request, at);
    }
    fn pause(&mut self, unsent: usize) {
        (**self).pause(unsent);
    }
    fn hands_over(&self) -> bool {
        (**self).hands_over()
    }
    fn is_undecided(&self) -> bool {
        (**self).is_undecided()
    }
    fn overdue(&self, now: Nanos, ages: &mut Histogram) {
        (**self).overdue(now, ages);
    }
    fn given_back(&mut self, index: u64, at: Nanos) {
        (**self).given_back(index, at);
    }
    fn leaves(&mut self, may_wait: bool) -> bool {
        (**self).leaves(may_wait)
    }
    fn completed(&mut self, index: u64, status: RequestStatus, at: Nanos) {
        (**self).completed(index, status, at);
    }
    fn set_rate(&mut self, rate: f64, now: Nanos) -> bool {
        (**self).set_rate(rate, now)
    }
}
