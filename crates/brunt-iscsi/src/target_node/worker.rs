//! A worker: one thread and one ring for many connections. Started by `workers`.
//!
//! Each iteration of its loop gives a turn to every connection that has something to process: completions in its
//! ports, messages from other threads, or a deadline that has passed. The connections' responses, receives and
//! requests are submitted together, so with many busy connections a system call serves many requests, and idle
//! connections cost nothing.
//!
//! The rules: nothing in the loop waits except [`Ring::enter`]. An error ends only one connection: protocol errors,
//! device errors and panics don't affect the rest. A closed connection keeps its slot until its devices have
//! completed its commands, but for at most [`ENDING_MAX`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use brunt_block::{Ring, RingOwner};
use brunt_core::{Clock, Nanos};

use super::deadlines::Deadlines;
use super::driver::{ConnectionDriver, ConnectionError, DriverStep, EndingConnection};
use super::event::TargetEvent;
use super::server_state::{CountedRing, Seat, ServerState, lock};
use super::workers::{NewConnection, WorkerHandle};

/// How long a closed connection waits for its devices. A disk that hasn't completed a request by then may never do
/// so; the request's memory is leaked.
const ENDING_MAX: Duration = Duration::from_secs(4);
/// How long dropping a connection's socket or device may hold up the other connections of the thread. A socket that was
/// shut down and a device without requests are dropped at once.
const DROP_MAX: Duration = Duration::from_millis(100);
/// After this many turns, the requests that they queued are submitted before the next turn, so that the first peers
/// don't have to wait for the last.
const TURNS_PER_SUBMISSION: u32 = 32;
/// Minimum time between two releases of unused memory to the system, because each delays the connections that are
/// still busy.
const RELEASE_INTERVAL: Duration = Duration::from_secs(1);

/// Runs a worker until it has no connections.
pub(super) fn run(state: &ServerState, own: &Arc<WorkerHandle>) {
    let ring = match Ring::new(own.ring_config(state.shared.poll)) {
        Ok(ring) => ring,
        Err(error) => return refuse_all(state, own, &error),
    };
    ring.limit_idle_wait(DROP_MAX);
    own.set_waker(ring.waker());
    let mut worker = Worker {
        state,
        own,
        counted: CountedRing::new(state),
        slots: Vec::new(),
        free: Vec::new(),
        deadlines: Deadlines::new(),
        round: 0,
        release: None,
        release_after: Nanos(0),
        ring,
    };
    worker.run();
}

/// Without a ring, every connection fails.
fn refuse_all(state: &ServerState, own: &Arc<WorkerHandle>, error: &std::io::Error) {
    while !own.retire(&state.workers) {
        for new in own.take() {
            report(state, &new.seat, copy_of(error).into());
            drop(new);
            own.uncount();
        }
    }
}

struct Worker<'a> {
    state: &'a ServerState,
    own: &'a Arc<WorkerHandle>,
    counted: CountedRing<'a>,
    slots: Vec<Option<Slot<'a>>>,
    free: Vec<u32>,
    deadlines: Deadlines,
    /// Number of iterations.
    round: u64,
    /// Set when connections have become idle: when to return the memory that they released.
    release: Option<Nanos>,
    /// Earliest time of the next release.
    release_after: Nanos,
    // Dropped last, because the connections use it.
    ring: Ring,
}

/// A connection's slot.
struct Slot<'a> {
    stage: Stage<'a>,
    /// The iteration of the connection's last turn: it has at most one turn in each iteration.
    round: u64,
    // Dropped last: when it is released, its connection has ended.
    seat: Seat,
}

enum Stage<'a> {
    Open(Box<ConnectionDriver<'a>>),
    Ending {
        connection: Box<EndingConnection>,
        until: Nanos,
    },
}

/// What to do after a turn.
enum Next {
    Wait(Nanos),
    End,
}

impl Worker<'_> {
    fn run(&mut self) {
        let mut ready = Vec::new();
        self.admit();
        loop {
            let now = Clock::Monotonic.now();
            self.round += 1;
            self.ring.take_ready(&mut ready);
            if self.ring.take_woken() {
                self.admit();
            }
            self.deadlines
                .take_due(now, |slot| ready.push(RingOwner(slot)));
            self.counted.set(&self.ring);
            let mut turns = 0;
            for RingOwner(slot) in ready.drain(..) {
                if self.turn(slot, now) {
                    turns += 1;
                    if turns % TURNS_PER_SUBMISSION == 0 {
                        // If this fails, the ring fails again below.
                        let _ = self.ring.start();
                    }
                }
            }
            self.ring.work_for(None);
            if self.release.is_some_and(|due| now >= due) {
                self.release = None;
                self.release_after = now.after(RELEASE_INTERVAL);
                self.ring.release();
            }
            if self.free.len() == self.slots.len() && self.own.retire(&self.state.workers) {
                return;
            }
            let until = self.deadlines.earliest();
            let until = self.release.map_or(until, |due| until.min(due));
            if let Err(error) = self.ring.enter(until) {
                self.fail_all(&error);
            }
        }
    }

    /// Opens the connections that have arrived.
    fn admit(&mut self) {
        for new in self.own.take() {
            let slot = self.free.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() as u32 - 1
            });
            self.ring.work_for(Some(RingOwner(slot)));
            let NewConnection {
                logged_in,
                socket,
                early,
                seat,
            } = new;
            let (ring, shared) = (&self.ring, &self.state.shared);
            let opened = catch_unwind(AssertUnwindSafe(|| {
                ConnectionDriver::open(ring, *logged_in, socket, &early, shared, seat.live())
            }));
            match opened {
                Ok(Ok(driver)) => {
                    self.slots[slot as usize] = Some(Slot {
                        stage: Stage::Open(Box::new(driver)),
                        round: self.round,
                        seat,
                    });
                    self.deadlines.set(slot, Nanos(0));
                }
                failed => {
                    match failed {
                        Ok(Err(error)) => report(self.state, &seat, error),
                        _ => lock(&self.state.totals).past.connections_broken += 1,
                    }
                    drop(seat);
                    self.vacate(slot);
                }
            }
        }
    }

    /// Gives a connection its turn; returns whether it had one.
    fn turn(&mut self, slot: u32, now: Nanos) -> bool {
        let Some(Some(Slot { stage, round, seat })) = self.slots.get_mut(slot as usize) else {
            return false;
        };
        if *round == self.round {
            return false;
        }
        *round = self.round;
        self.ring.work_for(Some(RingOwner(slot)));
        let next = match stage {
            Stage::Open(driver) => {
                // A failed assertion ends only the connection that hit it.
                match catch_unwind(AssertUnwindSafe(|| driver.turn(now))) {
                    Ok(Ok(DriverStep::Wait { deadline, is_idle })) => {
                        if is_idle {
                            self.release.get_or_insert(self.release_after);
                        }
                        Next::Wait(deadline)
                    }
                    Ok(Ok(DriverStep::Over)) => Next::End,
                    Ok(Err(error)) => {
                        report(self.state, seat, error);
                        Next::End
                    }
                    Err(_) => {
                        lock(&self.state.totals).past.connections_broken += 1;
                        self.vacate(slot);
                        return true;
                    }
                }
            }
            Stage::Ending { connection, until } => {
                let step = catch_unwind(AssertUnwindSafe(|| connection.turn()));
                match step {
                    Ok(Some(deadline)) if now < *until => Next::Wait(deadline.min(*until)),
                    _ => {
                        self.vacate(slot);
                        return true;
                    }
                }
            }
        };
        match next {
            Next::Wait(deadline) => self.deadlines.set(slot, deadline),
            Next::End => self.end(slot, now),
        }
        true
    }

    /// Closes a connection's socket, and keeps the slot until the connection's devices are done.
    fn end(&mut self, slot: u32, now: Nanos) {
        let Some(Slot { stage, round, seat }) = self.slots[slot as usize].take() else {
            return;
        };
        let Stage::Open(driver) = stage else {
            unreachable!("only open connections end");
        };
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let mut connection = Box::new(driver.end());
            connection.turn().map(|deadline| (connection, deadline))
        }));
        let Ok(Some((connection, deadline))) = ended else {
            drop(seat);
            return self.vacate(slot);
        };
        let until = now.after(ENDING_MAX);
        self.deadlines.set(slot, deadline.min(until));
        self.slots[slot as usize] = Some(Slot {
            stage: Stage::Ending { connection, until },
            round,
            seat,
        });
    }

    /// Drops a slot's contents, and makes it available.
    fn vacate(&mut self, slot: u32) {
        let left = self.slots[slot as usize].take();
        // If dropping the contents panics, for example after an earlier panic, that panic is ignored.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(left)));
        self.deadlines.set(slot, Nanos::MAX);
        self.free.push(slot);
        self.own.uncount();
    }

    /// Ends all connections, because the ring doesn't work.
    fn fail_all(&mut self, error: &std::io::Error) {
        for slot in 0..self.slots.len() as u32 {
            if let Some(Slot { seat, .. }) = &self.slots[slot as usize] {
                report(self.state, seat, copy_of(error).into());
                self.vacate(slot);
            }
        }
    }
}

/// Counts a connection that failed and reports why.
fn report(state: &ServerState, seat: &Seat, error: ConnectionError) {
    lock(&state.totals).past.connections_broken += 1;
    state
        .config
        .listener
        .notify(&TargetEvent::ConnectionBroken {
            connection: seat.connection(),
            error: &error,
        });
}

/// Copies an error, which can't be cloned, for another connection.
fn copy_of(error: &std::io::Error) -> std::io::Error {
    match error.raw_os_error() {
        Some(code) => std::io::Error::from_raw_os_error(code),
        None => std::io::Error::new(error.kind(), error.to_string()),
    }
}
