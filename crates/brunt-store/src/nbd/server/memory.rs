//! Memory for the data of requests and replies, shared by all connections of a server. A connection reserves memory
//! before it takes a buffer from the heap. Its ring's arena and a small amount of heap memory are its own and need no
//! reservation, so that small requests don't wait.
//!
//! - Connections for which no memory is left wait in line; [`line`] determines which is next, and only that one gets
//!   memory.
//! - While any connection waits, the others free buffers that they keep for reuse.
//! - While any connection waits, connections whose clients have neither taken nor sent data for
//!   [`NbdMemoryLimits::stuck_after`] are closed until the next in line fits; [`stuck`] chooses them.
//!
//! The one rule: reserved memory never exceeds the limit, and the largest request fits when nothing is reserved.

mod line;
mod stuck;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brunt_block::Waker;
use brunt_core::Nanos;

use super::NbdMemoryLimits;
use line::{Line, Waiting};
use stuck::Holding;

/// `Pulse::since` of a connection that doesn't wait for its client.
const NEVER: u64 = u64::MAX;

/// The memory of a server's connections.
#[derive(Debug)]
pub(super) struct Memory {
    limits: NbdMemoryLimits,
    /// Whether connections wait; a copy that is read without the lock.
    is_short: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    reserved_bytes: usize,
    peak_bytes: usize,
    /// Connections closed because their clients were stuck.
    stuck: u64,
    next_id: u64,
    line: Line,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    id: u64,
    bytes: usize,
    pulse: Arc<Pulse>,
    waker: Waker,
    closed_at: Option<Nanos>,
}

/// The state of a connection's client, read by other connections.
#[derive(Debug)]
struct Pulse {
    /// When the socket last made progress, if the connection waits for its client; otherwise [`NEVER`].
    since: AtomicU64,
    closed: AtomicBool,
}

impl Memory {
    pub fn new(limits: NbdMemoryLimits) -> Memory {
        Memory {
            limits,
            is_short: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    pub fn limits(&self) -> &NbdMemoryLimits {
        &self.limits
    }

    /// The peak number of reserved bytes, and the number of connections closed because they were stuck.
    pub fn peak_and_stuck(&self) -> (usize, u64) {
        let state = self.state();
        (state.peak_bytes, state.stuck)
    }

    /// Adds a connection, to be woken by `waker`.
    pub fn join(&self, waker: Waker) -> Share<'_> {
        let pulse = Arc::new(Pulse {
            since: AtomicU64::new(NEVER),
            closed: AtomicBool::new(false),
        });
        let mut state = self.state();
        let id = state.next_id;
        state.next_id += 1;
        state.members.push(Member {
            id,
            bytes: 0,
            pulse: Arc::clone(&pulse),
            waker,
            closed_at: None,
        });
        Share {
            memory: self,
            id,
            pulse,
            own_bytes: 0,
            peak_bytes: 0,
            waits: false,
            is_proven: false,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fits(&self, state: &State, bytes: usize) -> bool {
        state.reserved_bytes + bytes <= self.limits.shared_bytes
    }

    /// Lets the next in line try again if its request fits now.
    fn wake_next(&self, state: &State) {
        self.is_short
            .store(!state.line.is_empty(), Ordering::Release);
        if let Some(next) = state.line.next()
            && self.fits(state, next.bytes)
            && let Some(member) = state.members.iter().find(|member| member.id == next.id)
        {
            member.waker.wake();
        }
    }
}

impl Member {
    fn holding(&self) -> Holding {
        let since = self.pulse.since.load(Ordering::Relaxed);
        Holding {
            bytes: self.bytes,
            stuck_since: (since != NEVER).then_some(Nanos(since)),
            closed_at: self.closed_at,
        }
    }
}

impl State {
    fn set(&mut self, id: u64, bytes: usize) {
        let member = self.members.iter_mut().find(|member| member.id == id);
        let member = member.expect("a connection with memory is a member");
        self.reserved_bytes = self.reserved_bytes - member.bytes + bytes;
        member.bytes = bytes;
        self.peak_bytes = self.peak_bytes.max(self.reserved_bytes);
    }
}

/// One connection's memory; returned when dropped.
#[derive(Debug)]
pub(super) struct Share<'a> {
    memory: &'a Memory,
    id: u64,
    pulse: Arc<Pulse>,
    own_bytes: usize,
    pub peak_bytes: usize,
    waits: bool,
    is_proven: bool,
}

impl Share<'_> {
    /// Raises the reservation to `total` bytes. If memory is short, the connection waits in line, and its ring is
    /// woken when it may try again. Returns whether the memory is reserved.
    pub fn reserve_up_to(&mut self, total: usize) -> bool {
        let bytes = total.saturating_sub(self.own_bytes);
        if bytes == 0 {
            self.stop_waiting();
            return true;
        }
        let memory = self.memory;
        let mut state = memory.state();
        let is_new = state.line.enter(Waiting {
            id: self.id,
            bytes,
            is_proven: self.is_proven,
            is_holder: self.own_bytes > 0,
        });
        let is_next = state.line.next().is_some_and(|next| next.id == self.id);
        self.waits = !(is_next && memory.fits(&state, bytes));
        if !self.waits {
            match is_new && state.line.len() == 1 {
                // If no other connection was waiting, this grant doesn't count as a turn of the line.
                true => state.line.leave(self.id),
                false => state.line.grant(),
            }
            self.own_bytes += bytes;
            state.set(self.id, self.own_bytes);
            memory.wake_next(&state);
            self.peak_bytes = self.peak_bytes.max(self.own_bytes);
            return true;
        }
        if is_new && state.line.len() == 1 {
            memory.is_short.store(true, Ordering::Release);
            let others = state.members.iter().filter(|member| member.id != self.id);
            others
                .filter(|member| member.bytes > 0)
                .for_each(|member| member.waker.wake());
        }
        false
    }

    /// Sets the reservation to the bytes in use.
    pub fn set(&mut self, bytes: usize) {
        if bytes == self.own_bytes {
            return;
        }
        self.own_bytes = bytes;
        self.peak_bytes = self.peak_bytes.max(bytes);
        let mut state = self.memory.state();
        state.set(self.id, bytes);
        self.memory.wake_next(&state);
    }

    /// Whether the connection waits for memory.
    pub fn waits(&self) -> bool {
        self.waits
    }

    pub fn stop_waiting(&mut self) {
        if std::mem::take(&mut self.waits) {
            let mut state = self.memory.state();
            state.line.leave(self.id);
            self.memory.wake_next(&state);
        }
    }

    /// Gives the connection priority from now on, because its client has taken and sent enough data.
    pub fn prove(&mut self) {
        self.is_proven = true;
    }

    /// Whether any connection waits for memory.
    pub fn is_short(&self) -> bool {
        self.memory.is_short.load(Ordering::Acquire)
    }

    /// Records whether the connection waits for its client and whether the client has just made progress.
    pub fn note(&self, waits_for_client: bool, progress: bool, now: impl FnOnce() -> Nanos) {
        let since = self.pulse.since.load(Ordering::Relaxed);
        let new = match waits_for_client {
            false => NEVER,
            true if progress || since == NEVER => now().0,
            true => since,
        };
        if new != since {
            self.pulse.since.store(new, Ordering::Relaxed);
        }
    }

    /// Closes as many stuck connections as the next in line needs.
    pub fn close_stuck(&self, now: Nanos) {
        let memory = self.memory;
        let mut state = memory.state();
        let Some(next) = state.line.next() else {
            return;
        };
        // A connection that is alone in line keeps its memory: no other needs it.
        let alone = (state.line.len() == 1).then_some(next.id);
        let missing_bytes =
            (state.reserved_bytes + next.bytes).saturating_sub(memory.limits.shared_bytes);
        loop {
            let holdings = state.members.iter().map(|member| match member.holding() {
                holding if alone == Some(member.id) => Holding {
                    stuck_since: None,
                    ..holding
                },
                holding => holding,
            });
            let found = stuck::to_close(holdings, missing_bytes, memory.limits.stuck_after, now);
            let Some(index) = found else {
                return;
            };
            let member = &mut state.members[index];
            member.closed_at = Some(now);
            member.pulse.closed.store(true, Ordering::Release);
            member.waker.wake();
            state.stuck += 1;
        }
    }

    /// Whether another connection has closed this one because it was stuck.
    pub fn is_closed(&self) -> bool {
        self.pulse.closed.load(Ordering::Acquire)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut state = self.memory.state();
        state.set(self.id, 0);
        state.members.retain(|member| member.id != self.id);
        state.line.leave(self.id);
        self.memory.wake_next(&state);
    }
}
