//! One thread's loop: take a batch of runnable actors, run them, and push the messages they sent to the receivers'
//! homes.
//!
//! A round is:
//!
//! 1. push messages staged for other homes, one push per home;
//! 2. under the lock of the batch's home: put the actors back, take in what others sent, deliver
//!    what the batch sent to its own home, take the next batch;
//! 3. without any lock: run the batch.
//!
//! The rule: an actor is put back only after everything it sent has been pushed. Therefore its messages never
//! overtake each other, wherever it runs next, and a home with nothing out, queued or inbound is quiet.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use crate::home::{HomeState, Taken};
use crate::inbound;
use crate::machine::Inner;
use crate::outbox::Outbox;
use crate::sync::{self, Ordering, drop_all, lock, thread, try_lock};

/// Maximum number of actors in a batch. Larger batches amortize the lock over more actors; smaller
/// ones leave more to steal, and delay fewer actors when the kernel preempts the thread.
const BATCH_MAX: usize = 16;
/// A batch that takes longer halves the size of the next one: with handlers of 50 µs, a batch shrinks to a single
/// actor, and idle schedulers find the rest in the run queue.
const ROUND_LONGEST: Duration = Duration::from_micros(40);
const ROUND_SHORTEST: Duration = Duration::from_micros(10);
/// How long to wait for messages before stealing: several times what a busy neighbour takes to push its next batch.
/// Waiting beats stealing the neighbour's actors, whose data is cached there. Halved with each consecutive theft,
/// which shows that no messages are coming.
const LOOK_BEFORE_STEAL: Duration = Duration::from_micros(20);
/// Total time to look for work before sleeping: about the cost of a sleep and a wake-up.
const LOOK_BEFORE_SLEEP: Duration = Duration::from_micros(50);
/// Interval at which a scheduler yields its core while it holds no actor. The kernel would preempt it anyway at the
/// end of a time slice of a few milliseconds, but then it would hold actors that all others have to wait for (a
/// convoy). Costs under 1 µs if no other thread wants the core.
const YIELD_EVERY: Duration = Duration::from_micros(250);
/// A round this long means that the kernel preempted the scheduler, or that a handler was slow; in
/// that case postponing the next yield costs nothing.
const PUT_ASIDE: Duration = Duration::from_millis(1);
/// How long recently woken actors may run ahead of queued ones. Following a message while it is
/// cached is faster and lets batches build up behind it.
const HOT_LONGEST: Duration = Duration::from_micros(50);
/// How long to sleep while another home has work that can't be taken yet.
const NAP: Duration = Duration::from_micros(100);

pub(crate) struct Scheduler {
    index: usize,
    outbox: Outbox,
    batch: Vec<Taken>,
    /// The home of the actors in `batch`.
    batch_home: usize,
    batch_count_max: usize,
    /// The other schedulers; those on the same node come first.
    others: Vec<usize>,
    steals: u64,
    sleeps: u64,
    yields: u64,
    /// When this round began.
    tick: Nanos,
    yielded_at: Nanos,
    hot_since: Nanos,
    /// The home last stolen from, and its beat at that time.
    robbed: Option<(usize, u64)>,
}

/// The outcome of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// Actors ran.
    Busy,
    /// Actors ran, but all of them are only waiting for their messages to be taken in elsewhere.
    Stuck,
    /// There was nothing to run.
    Idle,
}

impl Scheduler {
    pub fn new(system: Arc<Inner>, index: usize) -> Self {
        let count = system.homes.len();
        let mut others: Vec<usize> = (1..count).map(|step| (index + step) % count).collect();
        others.sort_by_key(|&other| {
            system.cpus_by_scheduler[other].node != system.cpus_by_scheduler[index].node
        });
        let tick = Clock::Monotonic.now();
        Scheduler {
            index,
            outbox: Outbox::new(system, index as u16),
            batch: Vec::with_capacity(BATCH_MAX),
            batch_home: index,
            batch_count_max: BATCH_MAX / 4,
            others,
            steals: 0,
            sleeps: 0,
            yields: 0,
            tick,
            yielded_at: tick,
            hot_since: tick,
            robbed: None,
        }
    }

    /// Runs until the system stops.
    pub fn run(mut self) {
        sync::enter_scheduler();
        let mut idle: Option<(Nanos, u32)> = None;
        let mut steal_after = LOOK_BEFORE_STEAL;
        while !self.outbox.system.stop.load(Ordering::Acquire) {
            match self.round() {
                Round::Busy => {
                    idle = None;
                    steal_after = LOOK_BEFORE_STEAL;
                    continue;
                }
                Round::Stuck => {
                    self.help();
                    thread::yield_now();
                    continue;
                }
                Round::Idle => {}
            }
            let (since, looks) = idle.get_or_insert((self.tick, 0));
            let (since, looks) = (*since, {
                *looks += 1;
                *looks
            });
            if self.spin() {
                continue;
            }
            if (self.robs_a_stalled() || patience(steal_after, since, 1, looks)) && self.steal() {
                steal_after /= 2;
                idle = None;
                continue;
            }
            if patience(LOOK_BEFORE_SLEEP, since, 2, looks) {
                self.sleep();
                idle = None;
            }
        }
        self.settle(0);
    }

    /// Runs one round of this scheduler's own home. A manual system calls it without a thread.
    pub fn round(&mut self) -> Round {
        let tick = Clock::Monotonic.now();
        let took = tick.since(self.tick);
        self.tick = tick;
        if took > PUT_ASIDE {
            // The kernel preempted us, so this is a new time slice: don't yield it.
            self.yielded_at = tick;
        }
        if took > ROUND_LONGEST {
            self.batch_count_max = (self.batch_count_max / 2).max(1);
        } else if took < ROUND_SHORTEST && self.batch.len() == self.batch_count_max {
            self.batch_count_max = (self.batch_count_max * 2).min(BATCH_MAX);
        }
        self.settle(self.batch_count_max);
        self.run_batch()
    }

    fn run_batch(&mut self) -> Round {
        if self.batch.is_empty() {
            return Round::Idle;
        }
        let budget = self.outbox.system.budget;
        let Scheduler { outbox, batch, .. } = self;
        let (mut begun, mut progress) = (0, false);
        // One guard around the batch instead of one per actor: after a panic, the loop continues
        // with the next actor. The actor that panicked keeps the outcome of a failure.
        while begun < batch.len() {
            let panic = catch_unwind(AssertUnwindSafe(|| {
                for taken in &mut batch[begun..] {
                    begun += 1;
                    taken.outcome = taken.actor.run(outbox, budget);
                    progress |= taken.outcome.handled > 0 || !taken.outcome.stashed;
                }
            }));
            if let Err(panic) = panic {
                batch[begun - 1].panic = Some(Box::new(panic));
                progress = true;
            }
        }
        if progress { Round::Busy } else { Round::Stuck }
    }

    /// Pushes messages that the batch sent, puts its actors back, and takes the next batch of at most `count` actors
    /// from its own home.
    pub fn settle(&mut self, count: usize) {
        let system = self.outbox.system.clone();
        for home in 0..self.outbox.homes.len() {
            if home != self.batch_home && self.outbox.homes[home].lanes.count() > 0 {
                self.hand_over(&system, home);
            }
        }
        if self.batch_home != self.index {
            let home = &system.homes[self.batch_home];
            let mut state = lock(&home.state);
            self.put_back(&system, &mut state);
            let (runnable, ended) = (state.runnable(), state.ended());
            home.runnable.store(runnable, Ordering::SeqCst);
            drop(state);
            drop_all(ended);
            if runnable > 0 {
                self.wake_sleeper(self.batch_home);
            }
            self.batch_home = self.index;
        }
        let home = &system.homes[self.index];
        let mut state = lock(&home.state);
        self.put_back(&system, &mut state);
        if self.yields_now() {
            // No actors are held here, so all of this home's actors can be stolen.
            home.runnable.store(state.runnable(), Ordering::SeqCst);
            drop(state);
            thread::yield_now();
            // Time used by other threads in the meantime must not count as ours.
            self.tick = Clock::Monotonic.now();
            self.yielded_at = self.tick;
            state = lock(&home.state);
            state.take_in(home);
        }
        if self.tick.since(self.hot_since) >= HOT_LONGEST {
            self.hot_since = self.tick;
            state.cool();
        }
        assert!(
            self.batch.is_empty(),
            "a batch goes back before the next is taken"
        );
        state.take(count, &mut self.batch);
        state.counters.rounds += 1;
        home.beat.store(state.counters.rounds, Ordering::Relaxed);
        state.counters.steals = self.steals;
        state.counters.sleeps = self.sleeps;
        state.counters.yields = self.yields;
        state.counters.undelivered += std::mem::take(&mut self.outbox.undelivered);
        let (runnable, ended) = (state.runnable(), state.ended());
        home.runnable.store(runnable, Ordering::SeqCst);
        drop(state);
        drop_all(ended);
        if runnable > 0 {
            self.wake_sleeper(self.index);
        }
    }

    /// Runs under the lock of the batch's home. The actors are put back first, so that messages delivered next find
    /// them; then messages from other homes are taken in; then the messages that this batch sent to its own home are
    /// delivered, which cannot be older than any of those.
    fn put_back(&mut self, system: &Inner, state: &mut HomeState) {
        for taken in self.batch.drain(..) {
            state.put_back(taken, system);
        }
        state.take_in(&system.homes[self.batch_home]);
        let staged = &mut self.outbox.homes[self.batch_home];
        if staged.lanes.count() > 0 {
            staged.lanes.deliver(state);
        }
        staged.open_window();
    }

    /// Pushes everything staged for `home` at once.
    fn hand_over(&mut self, system: &Inner, home: usize) {
        let staged = &mut self.outbox.homes[home];
        let home = &system.homes[home];
        if home.admitted.load(Ordering::Acquire) >= staged.ticket {
            staged.open_window();
        }
        let mut inbound = lock(&home.inbound);
        staged.lanes.append_to(&mut inbound.lanes);
        staged.ticket = inbound.next_take();
        home.ring(&mut inbound);
    }

    fn yields_now(&mut self) -> bool {
        let yields = !self.others.is_empty() && self.tick.since(self.yielded_at) >= YIELD_EVERY;
        self.yields += u64::from(yields);
        yields
    }

    /// Spins briefly; returns true if work arrived for its own home.
    fn spin(&self) -> bool {
        let home = &self.outbox.system.homes[self.index];
        for _ in 0..LOOKS_A_ROUND {
            if home.waiting.load(Ordering::Acquire) > 0 || home.runnable.load(Ordering::Acquire) > 0
            {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// Returns true while the scheduler last stolen from has made no progress since. It will push no messages until
    /// then, so the next theft need not wait.
    fn robs_a_stalled(&self) -> bool {
        let homes = &self.outbox.system.homes;
        self.robbed
            .is_some_and(|(victim, beat)| homes[victim].beat.load(Ordering::Relaxed) == beat)
    }

    /// Takes half of another home's runnable actors and runs them.
    fn steal(&mut self) -> bool {
        let system = self.outbox.system.clone();
        for &victim in &self.others {
            let home = &system.homes[victim];
            if home.runnable.load(Ordering::SeqCst) == 0 && home.waiting.load(Ordering::SeqCst) == 0
            {
                continue;
            }
            let Some(mut state) = try_lock(&home.state) else {
                continue;
            };
            state.take_in(home);
            // Take the actors that waited longest, not those in their scheduler's cache.
            state.cool();
            let count = state.runnable().div_ceil(2).min(self.batch_count_max);
            assert!(
                self.batch.is_empty(),
                "a stealing scheduler holds no actors"
            );
            state.take(count, &mut self.batch);
            state.counters.stolen += count as u64;
            home.runnable.store(state.runnable(), Ordering::SeqCst);
            drop(state);
            if count > 0 {
                self.steals += count as u64;
                self.robbed = Some((victim, home.beat.load(Ordering::Relaxed)));
                self.batch_home = victim;
                self.outbox.home = victim as u16;
                self.run_batch();
                self.outbox.home = self.index as u16;
                return true;
            }
        }
        false
    }

    /// Takes in messages for homes whose own schedulers haven't done so yet.
    fn help(&mut self) {
        let system = &self.outbox.system;
        for &other in &self.others {
            let home = &system.homes[other];
            if home.waiting.load(Ordering::Acquire) == 0 {
                continue;
            }
            if let Some(mut state) = try_lock(&home.state) {
                state.take_in(home);
                let ended = state.ended();
                home.runnable.store(state.runnable(), Ordering::SeqCst);
                drop(state);
                drop_all(ended);
            }
        }
    }

    /// Wakes `home`'s scheduler, or else another one, if it sleeps while there is work.
    fn wake_sleeper(&self, home: usize) {
        let homes = &self.outbox.system.homes;
        let candidates = std::iter::once(home).chain(self.others.iter().copied());
        if let Some(sleeper) = candidates
            .into_iter()
            .find(|&other| homes[other].asleep.load(Ordering::SeqCst))
        {
            homes[sleeper].asleep.store(false, Ordering::SeqCst);
            homes[sleeper].poke();
        }
    }

    fn sleep(&mut self) {
        let system = &self.outbox.system;
        let home = &system.homes[self.index];
        // Announce sleep first, then check for work; a thread that adds work does the reverse. At
        // least one of them sees the other (all accesses are sequentially consistent).
        home.asleep.store(true, Ordering::SeqCst);
        let work = system.homes.iter().any(|home| {
            home.runnable.load(Ordering::SeqCst) > 0 || home.waiting.load(Ordering::SeqCst) > 0
        });
        if system.stop.load(Ordering::SeqCst) {
            return;
        }
        let longest = work.then_some(NAP);
        if !work {
            self.sleeps += 1;
        }
        if cfg!(feature = "model-check") && longest.is_some() {
            // Shuttle's waits never time out.
            thread::yield_now();
        } else {
            inbound::sleep(&home.inbound, &home.bell, longest);
        }
        home.asleep.store(false, Ordering::SeqCst);
    }
}

/// Checks per call of [`Scheduler::spin`]: about a microsecond.
const LOOKS_A_ROUND: u32 = if cfg!(feature = "model-check") { 1 } else { 32 };

/// Returns true if an idle scheduler has looked for work long enough: measured by time, or under
/// the model checker, which has no time, by count.
fn patience(time: Duration, since: Nanos, count: u32, looks: u32) -> bool {
    if cfg!(feature = "model-check") {
        looks >= count
    } else {
        Clock::Monotonic.now().since(since) >= time
    }
}
