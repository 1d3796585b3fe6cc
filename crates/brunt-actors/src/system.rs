//! Starts, observes and ends a set of schedulers.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use brunt_core::Clock;

use crate::actor::{Actor, ActorOptions};
use crate::address::Address;
use crate::machine::{Inner, MachinePlan};
use crate::scheduler::{Round, Scheduler};
use crate::spawn::spawn;
use crate::stats::{ActorFailure, Snapshot, SystemReport};
use crate::sync::{on_scheduler, thread};
use crate::topology::{self, Placement};

/// How to end a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Accept no more messages from outside, handle those already queued, then let actors finish one at a time, most
    /// recently spawned first. The messages that an actor sends while finishing are handled before the next one
    /// finishes, so spawn sinks before sources. After the given time, the drain becomes an abort.
    Drain(Duration),
    /// Stop after the messages currently being handled. Queued messages count as undelivered.
    Abort,
}

/// Options for starting a system.
#[derive(Clone, Debug)]
pub struct Builder {
    schedulers: usize,
    placement: Placement,
    /// Takes precedence over `placement` unless empty.
    cpus: Vec<Vec<usize>>,
    budget: u32,
}

impl Default for Builder {
    /// One scheduler per CPU available to this thread, placed anywhere, 32 messages per
    /// turn.
    fn default() -> Self {
        let schedulers = topology::nodes().iter().map(Vec::len).sum::<usize>().max(1);
        Builder {
            schedulers,
            placement: Placement::default(),
            cpus: Vec::new(),
            budget: 32,
        }
    }
}

impl Builder {
    /// Sets the number of schedulers: at least one, at most 1,024.
    pub fn schedulers(self, count: usize) -> Self {
        Builder {
            schedulers: count.clamp(1, 1024),
            ..self
        }
    }

    /// Sets where schedulers run.
    pub fn placement(self, placement: Placement) -> Self {
        Builder { placement, ..self }
    }

    /// Places schedulers on these sets of CPUs in turn (see [`CpuList::resolve`](crate::CpuList::resolve)); if the
    /// list is empty, the placement applies.
    pub fn cpus(self, cpus: Vec<Vec<usize>>) -> Self {
        Builder { cpus, ..self }
    }

    /// Sets how many messages an actor handles before it yields; at least one.
    pub fn budget(self, messages: u32) -> Self {
        Builder {
            budget: messages.max(1),
            ..self
        }
    }

    fn inner(self, threaded: bool) -> Arc<Inner> {
        let is_anywhere = self.placement == Placement::Anywhere && self.cpus.is_empty();
        let nodes = if is_anywhere {
            Vec::new()
        } else {
            topology::nodes()
        };
        Inner::new(MachinePlan {
            schedulers: self.schedulers,
            cpus_by_scheduler: match self.cpus.is_empty() {
                true => topology::cpus_by_scheduler(self.placement, self.schedulers, &nodes),
                false => topology::cpus_of_list(&self.cpus, self.schedulers, &nodes),
            },
            budget: self.budget,
            threaded,
        })
    }

    /// Starts the schedulers' threads.
    ///
    /// # Panics
    /// Panics if the operating system cannot create another thread.
    pub fn start(self) -> System {
        let inner = self.inner(true);
        let threads = (0..inner.homes.len())
            .map(|index| {
                let inner = inner.clone();
                thread::Builder::new()
                    .name(format!("scheduler-{index}"))
                    .spawn(move || {
                        if !topology::pin_thread(&inner.cpus_by_scheduler[index].cpus) {
                            inner.not_pinned(index);
                        }
                        Scheduler::new(inner, index).run();
                    })
                    .expect("a thread for each scheduler")
            })
            .collect();
        System { inner, threads }
    }

    /// Creates a deterministic system without threads, for tests. It runs only when called.
    pub fn manual(self) -> Manual {
        let inner = self.inner(false);
        let schedulers = (0..inner.homes.len())
            .map(|index| Scheduler::new(inner.clone(), index))
            .collect();
        Manual { inner, schedulers }
    }
}

/// Schedulers on threads, and their actors. Dropping it aborts the system.
pub struct System {
    inner: Arc<Inner>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "System of {} schedulers", self.inner.homes.len())
    }
}

impl System {
    /// Starts an actor.
    pub fn spawn<P: Actor>(&self, actor: P, options: ActorOptions) -> Address<P::Message> {
        spawn(&self.inner, actor, options)
    }

    /// Returns the current state.
    pub fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }

    /// Returns the first failures, at most [`FAILURES_MAX`](crate::FAILURES_MAX).
    pub fn failures(&self) -> Vec<ActorFailure> {
        self.inner.failures()
    }

    /// Ends the system.
    ///
    /// # Panics
    /// Panics if called by an actor, or if a scheduler panicked (a bug in this crate).
    pub fn shutdown(mut self, how: Shutdown) -> SystemReport {
        let drained = match how {
            Shutdown::Abort => false,
            Shutdown::Drain(within) => self.drain(within),
        };
        self.end();
        let left = self.inner.clear();
        SystemReport {
            drained: drained && left == 0,
            failures: self.inner.failures(),
            snapshot: self.inner.snapshot(),
        }
    }

    fn drain(&self, within: Duration) -> bool {
        assert!(
            !on_scheduler(),
            "an actor cannot drain the system it is part of"
        );
        self.inner.close();
        let deadline = Clock::Monotonic.now().after(within);
        loop {
            let mut looks = 0;
            while !self.inner.is_quiet() {
                if Clock::Monotonic.now() >= deadline {
                    return false;
                }
                looks += 1;
                if looks < 20 || cfg!(feature = "model-check") {
                    thread::yield_now();
                } else {
                    thread::sleep(Duration::from_micros(200));
                }
            }
            if !self.inner.finish_youngest() {
                return true;
            }
        }
    }

    fn end(&mut self) {
        self.inner.halt();
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join()
                && !std::thread::panicking()
            {
                resume_unwind(panic);
            }
        }
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.end();
            self.inner.clear();
        }
    }
}

/// A system without threads that a test drives step by step.
pub struct Manual {
    inner: Arc<Inner>,
    schedulers: Vec<Scheduler>,
}

impl fmt::Debug for Manual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Manual system of {} schedulers", self.inner.homes.len())
    }
}

impl Manual {
    /// Starts an actor.
    pub fn spawn<P: Actor>(&self, actor: P, options: ActorOptions) -> Address<P::Message> {
        spawn(&self.inner, actor, options)
    }

    /// Returns the current state.
    pub fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }

    /// Returns the first failures, at most [`FAILURES_MAX`](crate::FAILURES_MAX).
    pub fn failures(&self) -> Vec<ActorFailure> {
        self.inner.failures()
    }

    /// Runs each scheduler for one round. Returns false if there was nothing to do.
    pub fn step(&mut self) -> bool {
        let mut busy = false;
        for scheduler in &mut self.schedulers {
            busy |= scheduler.round() != Round::Idle;
        }
        busy
    }

    /// Runs until nothing is left to do. Never returns if actors send each
    /// other messages forever.
    pub fn run(&mut self) {
        while self.step() || !self.inner.is_quiet() {}
    }

    /// Ends the system, ignoring the time limit of [`Shutdown::Drain`].
    pub fn shutdown(mut self, how: Shutdown) -> SystemReport {
        self.inner.close();
        if let Shutdown::Drain(_) = how {
            loop {
                self.run();
                if !self.inner.finish_youngest() {
                    break;
                }
            }
        }
        let left = self.end();
        SystemReport {
            drained: left == 0 && how != Shutdown::Abort,
            failures: self.inner.failures(),
            snapshot: self.inner.snapshot(),
        }
    }
}

impl Manual {
    /// Returns the number of messages left.
    fn end(&mut self) -> u64 {
        for scheduler in &mut self.schedulers {
            scheduler.settle(0);
        }
        self.inner.clear()
    }
}

impl Drop for Manual {
    fn drop(&mut self) {
        self.end();
    }
}
