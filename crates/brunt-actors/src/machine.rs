//! State shared by all schedulers and addresses of a system: the homes, which actor waits for which, and failures.
//!
//! Every address holds a reference to it. The rule: nothing here changes per message.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::Arc;

use brunt_core::Clock;

use crate::home::Home;
use crate::inbound::Signal;
use crate::inbox::Inbox;
use crate::stats::{ActorFailure, FAILURES_MAX, SchedulerStats, Snapshot};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, drop_all, lock};
use crate::topology::SchedulerCpus;
use crate::wait::WaitGraph;

/// State shared by all schedulers and addresses. No message changes it.
pub(crate) struct Inner {
    pub homes: Box<[Home]>,
    pub cpus_by_scheduler: Vec<SchedulerCpus>,
    pub graph: Mutex<WaitGraph>,
    /// Messages that an actor handles before it yields to the next.
    pub budget: u32,
    /// True if schedulers run on threads; false in a [`Manual`] system.
    pub threaded: bool,
    pub stop: AtomicBool,
    closing: AtomicBool,
    kinds: Mutex<HashMap<TypeId, u16>>,
    failures: Mutex<(u64, Vec<ActorFailure>)>,
    pub spawned: AtomicU64,
    /// Schedulers that could not be pinned to their CPUs.
    unpinned: Mutex<Vec<usize>>,
}

/// Parameters of an [`Inner`].
pub(crate) struct MachinePlan {
    pub schedulers: usize,
    pub cpus_by_scheduler: Vec<SchedulerCpus>,
    pub budget: u32,
    pub threaded: bool,
}

impl Inner {
    pub fn new(plan: MachinePlan) -> Arc<Inner> {
        assert_eq!(
            plan.cpus_by_scheduler.len(),
            plan.schedulers,
            "CPUs for each scheduler"
        );
        Arc::new(Inner {
            homes: (0..plan.schedulers).map(|_| Home::new()).collect(),
            cpus_by_scheduler: plan.cpus_by_scheduler,
            graph: Mutex::new(WaitGraph::default()),
            budget: plan.budget,
            threaded: plan.threaded,
            stop: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            kinds: Mutex::new(HashMap::new()),
            failures: Mutex::new((0, Vec::new())),
            spawned: AtomicU64::new(0),
            unpinned: Mutex::new(Vec::new()),
        })
    }

    /// Records that scheduler `index` could not be pinned, so it runs on any CPU.
    pub fn not_pinned(&self, index: usize) {
        lock(&self.unpinned).push(index);
    }

    /// Resumes all senders that wait for `to`, which has room or no longer exists.
    pub fn release(&self, to: &Inbox, gate: u8) {
        lock(&self.graph).release(to, gate, |id| {
            let home = &self.homes[usize::from(id.home)];
            let mut inbound = lock(&home.inbound);
            inbound
                .signals
                .push((id.slot, id.generation, Signal::Resume));
            home.ring(&mut inbound);
        });
    }

    pub fn refuses_outside(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub fn report(&self, failure: ActorFailure) {
        let mut failures = lock(&self.failures);
        failures.0 += 1;
        if failures.1.len() < FAILURES_MAX {
            failures.1.push(failure);
        }
    }

    pub fn kind_of<M: 'static>(&self) -> u16 {
        let mut kinds = lock(&self.kinds);
        let next = u16::try_from(kinds.len()).expect("fewer than 65,536 types of message");
        *kinds.entry(TypeId::of::<M>()).or_insert(next)
    }

    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot {
            at: Clock::Monotonic.now(),
            schedulers: Vec::with_capacity(self.homes.len()),
            actors: Vec::new(),
            undelivered: 0,
            circles: 0,
            waiting: 0,
            failures: lock(&self.failures).0,
        };
        for (index, home) in self.homes.iter().enumerate() {
            let state = lock(&home.state);
            let counters = state.counters;
            snapshot.undelivered += counters.undelivered;
            snapshot.actors.extend(state.actor_stats());
            let unpinned = lock(&self.unpinned).contains(&index);
            snapshot.schedulers.push(SchedulerStats {
                messages: counters.messages,
                activations: counters.activations,
                parks: counters.parks,
                rounds: counters.rounds,
                steals: counters.steals,
                stolen: counters.stolen,
                sleeps: counters.sleeps,
                yields: counters.yields,
                runnable: state.runnable(),
                inbound: home.waiting.load(Ordering::Relaxed),
                cpus: if unpinned {
                    Vec::new()
                } else {
                    self.cpus_by_scheduler[index].cpus.clone()
                },
            });
        }
        let graph = lock(&self.graph);
        snapshot.circles = graph.circles;
        snapshot.waiting = graph.parked();
        snapshot
    }

    /// Returns true if nothing runs and nothing is in transit. Exact, because all homes are locked
    /// at once.
    pub fn is_quiet(&self) -> bool {
        let states: Vec<_> = self.homes.iter().map(|home| lock(&home.state)).collect();
        states
            .iter()
            .zip(&self.homes)
            .all(|(state, home)| state.is_quiet(&lock(&home.inbound)))
    }

    /// Asks the most recently spawned living actor to finish. Returns false if there is none.
    pub fn finish_youngest(&self) -> bool {
        let youngest = self
            .homes
            .iter()
            .filter_map(|home| {
                lock(&home.state)
                    .youngest()
                    .map(|youngest| (youngest, home))
            })
            .max_by_key(|(youngest, _)| *youngest);
        let Some(((_, slot, generation), home)) = youngest else {
            return false;
        };
        let mut inbound = lock(&home.inbound);
        inbound.signals.push((slot, generation, Signal::Finish));
        home.ring(&mut inbound);
        true
    }

    pub fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        lock(&self.graph).release_outside();
    }

    pub fn halt(&self) {
        self.close();
        self.stop.store(true, Ordering::SeqCst);
        for home in &self.homes {
            home.poke();
        }
    }

    /// Empties all homes; returns the number of messages left.
    pub fn clear(&self) -> u64 {
        let mut left = 0;
        for home in &self.homes {
            let mut state = lock(&home.state);
            let before = state.counters.undelivered;
            state.clear(home, self);
            left += state.counters.undelivered - before;
            let ended = state.ended();
            drop(state);
            drop_all(ended);
        }
        left
    }

    pub fn failures(&self) -> Vec<ActorFailure> {
        lock(&self.failures).1.clone()
    }
}
