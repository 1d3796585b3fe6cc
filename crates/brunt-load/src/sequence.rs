//! A worker's next request and its time: the interface between the source of requests and the loop that sends
//! them. The synthetic generator is a sequence; a trace is another. A worker reports how each request ended,
//! so a sequence can hold back requests that depend on earlier ones.
//!
//! The rule: a sequence never waits before its worker has left, and never reads a clock; it only knows the times it is
//! given. A request that it has handed out belongs to its worker and returns exactly once through
//! [`Sequence::completed`] or [`Sequence::given_back`].

use brunt_core::{Histogram, Nanos};
use brunt_result::RequestStatus;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The request that was written is due at this time, which may be later than now. A closed loop's are due when they
    /// are asked for.
    Due(Nanos),
    /// Nothing is due before this time. In contrast to [`Next::Due`] nothing is decided yet: another worker
    /// may get the request, or another rate may make it earlier.
    Later(Nanos),
    /// Nothing before the completion of the request with this index, which may be another worker's. The worker asks
    /// again after any completion of its own, and every [`FOREIGN_POLL_NANOS`] while it has none of this index.
    WaitFor(u64),
    /// There is nothing more, ever.
    End,
}

/// How often a worker looks whether another worker's request has completed: the most by which a dependent request
/// is late for it.
pub const FOREIGN_POLL_NANOS: u64 = 100_000;

/// Requests in their order. A worker owns one; several workers that draw from the same one each own a handle on
/// it.
pub trait Sequence {
    /// What a worker sends.
    type Request;

    /// Whether it is told of each request when it is sent ([`Sequence::sent`]).
    const WATCHES: bool = false;

    /// The run starts at this time. Called once by each worker, before anything else.
    fn starts(&mut self, start: Nanos);

    /// What comes next for the worker that asks. A request is written into `place`, where the worker keeps it until it
    /// ends; with any other answer what `place` holds means nothing. `now` never runs backwards for one worker.
    fn next(&mut self, now: Nanos, place: &mut Self::Request) -> Next;

    /// The device took this request at this time; told again of each further attempt. Only if it
    /// [`Sequence::WATCHES`].
    fn sent(&mut self, _request: &Self::Request, _at: Nanos) {}

    /// The worker is about to wait for its device. It has told of all that ended; `unsent` requests that it was given are
    /// not with the device yet and are going to be. Only if it [`Sequence::WATCHES`].
    fn pause(&mut self, _unsent: usize) {}

    /// Whether another worker may go on after the next [`Sequence::pause`], so that what this one has sent has to be with
    /// the kernel before.
    fn hands_over(&self) -> bool {
        false
    }

    /// Whether the last answer was [`Next::Later`] only because what comes next is not known yet: another worker is deciding
    /// it, or it was not read yet. There may be more that is due.
    fn is_undecided(&self) -> bool {
        false
    }

    /// Records the ages at `now` of requests that are due by then and were not given to a worker. Called when an interval
    /// ends. Sequences that don't know what comes next record none.
    fn overdue(&self, _now: Nanos, _ages: &mut Histogram) {}

    /// A request that was given is not going to be sent by anybody: the run is over before it is due. It does not
    /// complete.
    fn given_back(&mut self, _index: u64, _at: Nanos) {}

    /// The worker sends no more. Whether others go on, which then send what is due; it may still ask, to count what
    /// nobody sends. If `may_wait`, that asking waits for what is not read yet, up to a limit.
    fn leaves(&mut self, _may_wait: bool) -> bool {
        false
    }

    /// A request ended at this time, for good and however: also one that was skipped.
    fn completed(&mut self, index: u64, status: RequestStatus, at: Nanos);

    /// From now on requests come at this rate, requests a second of all workers together. `false`: the times of this
    /// sequence do not follow from a rate.
    fn set_rate(&mut self, _rate: f64, _now: Nanos) -> bool {
        false
    }
}

/// For whoever wants to look at a sequence after the run.
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
