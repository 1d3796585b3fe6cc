//! Lets the workers of a replay take turns: one at a time has the stream, takes due requests from it, and ends its
//! turn once its device and the kernel have all of them. Sits between the worker loop, as its [`Sequence`], and
//! [`super::stream`].
//!
//! The rule: a request goes to a device only during a turn, and a turn ends only when none of its requests is left.
//! Therefore requests are sent in the order of the trace for any number of workers. A worker that finds another's
//! turn asks again later and never waits for it. A single worker keeps its turn throughout, without a lock. Due
//! requests are counted as skipped only by the last worker to leave, or once the grace period for late requests has
//! ended for all. A worker that lost its device leaves the rest to the others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brunt_core::Nanos;
use brunt_result::RequestStatus;

use super::stream::Stream;
use crate::block::generator::Planned;
use crate::sequence::{Next, Sequence};

/// How soon a worker asks again during another's turn: less than a turn with a single request takes.
const TURN_POLL_NANOS: u64 = 1_000;

/// A request that ended or was returned unsent.
struct Ended {
    index: u64,
    /// `None` if returned unsent.
    status: Option<RequestStatus>,
    at: Nanos,
}

/// State shared by all workers of a run.
struct Shared {
    /// The requests to come; `None` during a worker's turn.
    stream: Option<Box<Stream>>,
    /// Requests that ended at other workers during this turn.
    ended: Vec<Ended>,
    /// Number of workers that have not left and may still send requests.
    at_work: u32,
}

/// The turns of a run.
#[derive(Clone)]
pub(super) struct Turns {
    shared: Arc<Mutex<Shared>>,
    workers: u32,
}

impl Turns {
    /// Creates the turns for `workers` workers with this queue depth each.
    pub(super) fn new(stream: Stream, workers: u32, depth: u32) -> Turns {
        let in_flight = workers as usize * depth as usize;
        let shared = Shared {
            stream: Some(Box::new(stream)),
            ended: Vec::with_capacity(in_flight),
            at_work: 0,
        };
        Turns {
            shared: Arc::new(Mutex::new(shared)),
            workers,
        }
    }

    fn locked(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a worker's access to the stream; its queue depth is `depth`.
    pub(super) fn sequence(&self, depth: u32) -> ReplaySequence {
        self.locked().at_work += 1;
        ReplaySequence {
            turns: self.clone(),
            stream: None,
            is_undecided: false,
            has_left: false,
            may_wait: false,
            is_ending: false,
            ended: Vec::with_capacity(depth as usize),
            in_flight: 0,
            depth,
            full_until: Nanos(0),
        }
    }

    /// Returns the stream, after all workers have ended.
    ///
    /// # Panics
    /// Panics if a worker still has its turn, which is a bug.
    pub(super) fn into_stream(self) -> Box<Stream> {
        self.locked()
            .stream
            .take()
            .expect("workers that have ended get no turn")
    }
}

/// A worker's access to the stream.
pub(super) struct ReplaySequence {
    turns: Turns,
    /// The stream, during this worker's turn.
    stream: Option<Box<Stream>>,
    /// Whether, when this worker last asked, it was another's turn or the reader was behind.
    is_undecided: bool,
    /// Whether this worker sends no more requests.
    has_left: bool,
    /// Whether this worker may wait for the reader, having left.
    may_wait: bool,
    /// Whether the turn ends as soon as its device has accepted the remaining requests. No more requests are handed
    /// out, so that others get their turns.
    is_ending: bool,
    /// Requests that ended here during another's turn and have not been reported yet.
    ended: Vec<Ended>,
    /// This worker's requests in flight, and their maximum number.
    in_flight: u32,
    depth: u32,
    /// The last time at which its queue was full.
    full_until: Nanos,
}

impl ReplaySequence {
    fn is_alone(&self) -> bool {
        self.turns.workers == 1
    }

    /// Begins a turn, unless another worker has it.
    #[cold]
    fn take_turn(&mut self) {
        let mut shared = self.turns.locked();
        let taken = shared.stream.take();
        self.is_undecided = taken.is_none();
        let Some(mut stream) = taken else {
            drop(shared);
            // The worker that has the turn may need this core.
            std::thread::yield_now();
            return;
        };
        tell(&mut stream, &mut shared.ended);
        drop(shared);
        tell(&mut stream, &mut self.ended);
        self.stream = Some(stream);
    }

    /// If this worker has the turn, ends it and reports the requests that ended here.
    fn give_up_turn(&mut self) {
        if self.stream.is_none() && self.ended.is_empty() {
            return;
        }
        self.is_ending = false;
        let mut shared = self.turns.locked();
        if let Some(mut stream) = self.stream.take() {
            tell(&mut stream, &mut shared.ended);
            shared.stream = Some(stream);
        }
        let Shared { stream, ended, .. } = &mut *shared;
        match stream {
            Some(stream) => tell(stream, &mut self.ended),
            None => ended.append(&mut self.ended),
        }
    }

    /// Reports an ended request to the stream, at the latest in the next turn.
    #[inline]
    fn returned(&mut self, ended: Ended) {
        self.in_flight -= 1;
        match &mut self.stream {
            Some(stream) => tell_one(stream, ended),
            None => self.ended.push(ended),
        }
    }
}

/// Reports ended requests to the stream.
fn tell(stream: &mut Stream, ended: &mut Vec<Ended>) {
    ended.drain(..).for_each(|ended| tell_one(stream, ended));
}

#[inline]
fn tell_one(stream: &mut Stream, Ended { index, status, at }: Ended) {
    match status {
        Some(status) => stream.completed(index, status, at),
        None => stream.given_back(index, at),
    }
}

impl Sequence for ReplaySequence {
    type Request = Planned;
    const WATCHES: bool = true;

    fn starts(&mut self, start: Nanos) {
        if let Some(stream) = &mut self.turns.locked().stream {
            stream.starts(start);
        }
        // If another worker has the turn, it has already forwarded the start time.
    }

    #[inline]
    fn next(&mut self, now: Nanos, place: &mut Planned) -> Next {
        if self.stream.is_none() {
            self.take_turn();
        }
        let not_now = Next::Later(Nanos(now.0 + TURN_POLL_NANOS));
        let Some(stream) = self.stream.as_mut().filter(|_| !self.is_ending) else {
            return not_now;
        };
        if self.has_left {
            let next = stream.rest(now, self.may_wait, place);
            self.in_flight += u32::from(matches!(next, Next::Due(_)));
            return next;
        }
        let mut next = stream.next(now, self.full_until, place);
        if matches!(next, Next::WaitFor(_)) && self.turns.workers > 1 {
            // The request it waits for may have ended after this turn began.
            tell(stream, &mut self.turns.locked().ended);
            next = stream.next(now, self.full_until, place);
        }
        self.is_undecided = stream.is_starved();
        self.in_flight += u32::from(matches!(next, Next::Due(_)));
        next
    }

    #[inline]
    fn sent(&mut self, request: &Planned, at: Nanos) {
        // Outside of a turn, only failed requests are sent again.
        if let Some(stream) = &mut self.stream {
            stream.sent(request, at);
        }
    }

    #[inline]
    fn pause(&mut self, unsent: usize) {
        if self.is_alone() {
            return;
        }
        match unsent {
            0 => self.give_up_turn(),
            _ => self.is_ending = self.stream.is_some(),
        }
    }

    fn hands_over(&self) -> bool {
        !self.is_alone() && self.stream.is_some()
    }

    fn is_undecided(&self) -> bool {
        self.is_undecided
    }

    fn given_back(&mut self, index: u64, at: Nanos) {
        self.returned(Ended {
            index,
            status: None,
            at,
        });
    }

    fn leaves(&mut self, may_wait: bool) -> bool {
        self.may_wait = may_wait;
        // End the turn before leaving: the last worker to leave has to be able to take it.
        self.give_up_turn();
        let mut shared = self.turns.locked();
        if !std::mem::replace(&mut self.has_left, true) {
            shared.at_work -= 1;
        }
        shared.at_work > 0
    }

    #[inline]
    fn completed(&mut self, index: u64, status: RequestStatus, at: Nanos) {
        if self.in_flight == self.depth {
            self.full_until = at;
        }
        self.returned(Ended {
            index,
            status: Some(status),
            at,
        });
    }
}

impl Drop for ReplaySequence {
    fn drop(&mut self) {
        // This includes workers that failed, so that no other worker waits for them.
        self.leaves(false);
    }
}
