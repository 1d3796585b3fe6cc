//! Starting, watching and ending a set of schedulers.

use std::any::TypeId;
use std::collections::HashMap;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use crate::actor::ActorCell;
use crate::address::{Address, OPEN, Shared, capacity_min, window};
use crate::home::Home;
use crate::inbound::Signal;
use crate::process::{self, Options, Process};
use crate::scheduler::{Round, Scheduler, drop_all};
use crate::stats::{FAILURES_MAX, Failure, ProcessId, Report, SchedulerStats, Snapshot};
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Mutex, Ordering, lock, thread};
use crate::topology::{self, Placement, Seat};
use crate::wait::WaitGraph;

/// What all schedulers and addresses share. Nothing in it changes for each message.
pub(crate) struct Inner {
    pub homes: Box<[Home]>,
    pub seats: Vec<Seat>,
    pub graph: Mutex<WaitGraph>,
    pub clock: Clock,
    /// Messages that a process handles before the next one's turn.
    pub budget: u32,
    /// Schedulers are threads: false in a [`Manual`] system.
    pub threaded: bool,
    pub stop: AtomicBool,
    closing: AtomicBool,
    kinds: Mutex<HashMap<TypeId, u16>>,
    failures: Mutex<(u64, Vec<Failure>)>,
    spawned: AtomicU64,
    /// Schedulers whose seat the kernel refused.
    unseated: Mutex<Vec<usize>>,
}

/// Processes spawned from outside one after the other share a home in blocks of this size:
/// neighbours in a program tend to talk to each other.
const SPAWN_BLOCK: u64 = 16;

impl Inner {
    pub fn refuses_outside(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub fn report(&self, failure: Failure) {
        let mut failures = lock(&self.failures);
        failures.0 += 1;
        if failures.1.len() < FAILURES_MAX {
            failures.1.push(failure);
        }
    }

    fn kind_of<M: 'static>(&self) -> u16 {
        let mut kinds = lock(&self.kinds);
        let next = u16::try_from(kinds.len()).expect("fewer than 65,536 types of message");
        *kinds.entry(TypeId::of::<M>()).or_insert(next)
    }

    pub fn spawn<P: Process>(self: &Arc<Self>, process: P, options: Options) -> Address<P::Message> {
        let count = self.homes.len();
        let serial = self.spawned.fetch_add(1, Ordering::Relaxed);
        let index = match options.home {
            Some(process::Home::Index(index)) => index % count,
            Some(process::Home::Of(id)) => usize::from(id.home) % count,
            None => (serial / SPAWN_BLOCK) as usize % count,
        };
        let capacity = options.capacity.max(capacity_min(count));
        let kind = self.kind_of::<P::Message>();
        let home = &self.homes[index];
        let mut state = lock(&home.state);
        let (slot, generation) = state.reserve();
        let shared = Arc::new(Shared {
            id: ProcessId { home: index as u16, slot, generation },
            serial,
            name: options.name.unwrap_or_else(|| format!("process-{serial}").into()),
            capacity,
            window: window(capacity, count),
            gate: AtomicU8::new(OPEN),
            outside_count: AtomicU32::new(0),
            outside_ticket: AtomicU64::new(0),
            system: self.clone(),
        });
        state.install(shared.clone(), Box::new(ActorCell::new(process, shared.clone(), kind)));
        home.runnable.store(state.runnable(), Ordering::SeqCst);
        drop(state);
        home.poke();
        Address::new(shared, kind)
    }

    fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot {
            at: self.clock.now(),
            schedulers: Vec::with_capacity(self.homes.len()),
            processes: Vec::new(),
            undelivered: 0,
            circles: 0,
            waiting: 0,
            failures: lock(&self.failures).0,
        };
        for (index, home) in self.homes.iter().enumerate() {
            let state = lock(&home.state);
            let counters = state.counters;
            snapshot.undelivered += counters.undelivered;
            snapshot.processes.extend(state.process_stats());
            let unseated = lock(&self.unseated).contains(&index);
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
                cpus: if unseated { Vec::new() } else { self.seats[index].cpus.clone() },
            });
        }
        let graph = lock(&self.graph);
        snapshot.circles = graph.circles;
        snapshot.waiting = graph.parked();
        snapshot
    }

    /// Nothing runs and nothing is under way. Exact: all homes are held at once.
    fn is_quiet(&self) -> bool {
        let states: Vec<_> = self.homes.iter().map(|home| lock(&home.state)).collect();
        states.iter().zip(&self.homes).all(|(state, home)| state.is_quiet(&lock(&home.inbound)))
    }

    /// Asks the living process spawned last to finish. False when none lives.
    fn finish_youngest(&self) -> bool {
        let youngest = self
            .homes
            .iter()
            .filter_map(|home| lock(&home.state).youngest().map(|youngest| (youngest, home)))
            .max_by_key(|(youngest, _)| *youngest);
        let Some(((_, slot, generation), home)) = youngest else { return false };
        let mut inbound = lock(&home.inbound);
        inbound.signals.push((slot, generation, Signal::Finish));
        home.ring(&mut inbound);
        true
    }

    fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        lock(&self.graph).release_outside();
    }

    fn halt(&self) {
        self.close();
        self.stop.store(true, Ordering::SeqCst);
        for home in &self.homes {
            home.poke();
        }
    }

    /// Empties all homes; returns how many messages were left.
    fn clear(&self) -> u64 {
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

    fn failures(&self) -> Vec<Failure> {
        lock(&self.failures).1.clone()
    }
}

/// How to end a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Take nothing more from outside, handle what is there, then let processes finish one by
    /// one, the last spawned first, each with its last messages handled before the next: spawn
    /// sinks before sources. Pending timers are dropped. After the given time it is an abort.
    Drain(Duration),
    /// Stop after the messages being handled now. What is queued counts as undelivered.
    Abort,
}

/// How to start a system.
#[derive(Clone, Debug)]
pub struct Builder {
    schedulers: usize,
    placement: Placement,
    clock: Clock,
    budget: u32,
}

impl Default for Builder {
    /// A scheduler for each CPU that this thread may use, placed anywhere, on the real clock,
    /// 32 messages a turn.
    fn default() -> Self {
        let schedulers = topology::nodes().iter().map(Vec::len).sum::<usize>().max(1);
        Builder { schedulers, placement: Placement::default(), clock: Clock::default(), budget: 32 }
    }
}

impl Builder {
    /// How many schedulers: at least one, at most 1,024.
    pub fn schedulers(self, count: usize) -> Self {
        Builder { schedulers: count.clamp(1, 1024), ..self }
    }

    /// Where they run.
    pub fn placement(self, placement: Placement) -> Self {
        Builder { placement, ..self }
    }

    /// Where time comes from.
    pub fn clock(self, clock: Clock) -> Self {
        Builder { clock, ..self }
    }

    /// Messages that a process handles before it is another's turn; at least one.
    pub fn budget(self, messages: u32) -> Self {
        Builder { budget: messages.max(1), ..self }
    }

    fn inner(self, threaded: bool) -> Arc<Inner> {
        let nodes = if self.placement == Placement::Anywhere { Vec::new() } else { topology::nodes() };
        Arc::new(Inner {
            homes: (0..self.schedulers).map(|_| Home::new()).collect(),
            seats: topology::seats(self.placement, self.schedulers, &nodes),
            graph: Mutex::new(WaitGraph::default()),
            clock: self.clock,
            budget: self.budget,
            threaded,
            stop: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            kinds: Mutex::new(HashMap::new()),
            failures: Mutex::new((0, Vec::new())),
            spawned: AtomicU64::new(0),
            unseated: Mutex::new(Vec::new()),
        })
    }

    /// Starts the schedulers' threads.
    ///
    /// # Panics
    /// When the operating system has no more threads.
    pub fn start(self) -> System {
        let inner = self.inner(true);
        let threads = (0..inner.homes.len())
            .map(|index| {
                let inner = inner.clone();
                thread::Builder::new()
                    .name(format!("scheduler-{index}"))
                    .spawn(move || {
                        if !topology::sit(&inner.seats[index]) {
                            lock(&inner.unseated).push(index);
                        }
                        Scheduler::new(inner, index).run();
                    })
                    .expect("a thread for each scheduler")
            })
            .collect();
        System { inner, threads }
    }

    /// A system without threads, for tests: it runs when it is told to, the same way each time.
    /// Its clock is manual and stands at zero, unless a manual clock was given.
    pub fn manual(mut self) -> Manual {
        if matches!(self.clock, Clock::Monotonic) {
            self.clock = Clock::manual();
        }
        let inner = self.inner(false);
        let schedulers = (0..inner.homes.len()).map(|index| Scheduler::new(inner.clone(), index)).collect();
        Manual { inner, schedulers }
    }
}

/// Schedulers on threads, and the processes on them. Dropping it aborts.
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
    /// Starts a process.
    pub fn spawn<P: Process>(&self, process: P, options: Options) -> Address<P::Message> {
        self.inner.spawn(process, options)
    }

    /// The state now.
    pub fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }

    /// The first failures, at most [`FAILURES_MAX`].
    pub fn failures(&self) -> Vec<Failure> {
        self.inner.failures()
    }

    /// Moves a manual clock on, and has due timers fire.
    ///
    /// # Panics
    /// On the real clock.
    pub fn advance(&self, by: Duration) {
        self.inner.clock.advance(by);
        for home in &self.inner.homes {
            home.poke();
        }
    }

    /// Ends it.
    ///
    /// # Panics
    /// When called by a process, and when a scheduler did (a fault of this crate).
    pub fn shutdown(mut self, how: Shutdown) -> Report {
        let drained = match how {
            Shutdown::Abort => false,
            Shutdown::Drain(within) => self.drain(within),
        };
        self.end();
        let left = self.inner.clear();
        Report {
            drained: drained && left == 0,
            failures: self.inner.failures(),
            snapshot: self.inner.snapshot(),
        }
    }

    fn drain(&self, within: Duration) -> bool {
        assert!(!crate::scheduler::inside(), "a process cannot drain the system it is part of");
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

/// A system in the hands of a test: no threads, time by hand.
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
    /// Starts a process.
    pub fn spawn<P: Process>(&self, process: P, options: Options) -> Address<P::Message> {
        self.inner.spawn(process, options)
    }

    /// The state now.
    pub fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }

    /// The first failures, at most [`FAILURES_MAX`].
    pub fn failures(&self) -> Vec<Failure> {
        self.inner.failures()
    }

    /// Runs each scheduler for one round. False when there was nothing to do.
    pub fn step(&mut self) -> bool {
        let mut busy = false;
        for scheduler in &mut self.schedulers {
            busy |= scheduler.round() != Round::Idle;
        }
        busy
    }

    /// Runs until nothing is left to do at this time. For ever, when processes keep each other
    /// busy without end.
    pub fn run(&mut self) {
        while self.step() || !self.inner.is_quiet() {}
    }

    /// Moves the clock on, stopping at each timer on the way to run what it sets off.
    pub fn advance(&mut self, by: Duration) {
        let clock = self.inner.clock.clone();
        let end = clock.now().after(by);
        loop {
            self.run();
            let due = self.inner.homes.iter().map(|home| lock(&home.state).due()).min().unwrap_or(Nanos::MAX);
            let next = due.min(end);
            clock.advance(next.since(clock.now()));
            if due > end {
                break;
            }
        }
        self.run();
    }

    /// Ends it; the time that [`Shutdown::Drain`] allows is not looked at.
    pub fn shutdown(mut self, how: Shutdown) -> Report {
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
        Report {
            drained: left == 0 && how != Shutdown::Abort,
            failures: self.inner.failures(),
            snapshot: self.inner.snapshot(),
        }
    }
}

impl Manual {
    /// Returns how many messages were left.
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
