//! What can be seen from outside: queues, rates, steals, parks, failures. Everything is counted
//! by the thread that does it and read under the home's lock; looking costs the runtime one short
//! lock for each scheduler.

use std::fmt;
use std::time::Duration;

use brunt_core::Nanos;

/// Which actor: the scheduler whose home it is, its slot there, and how many actors had the
/// slot before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActorId {
    /// Index of the scheduler.
    pub home: u16,
    /// Index of the slot.
    pub slot: u32,
    /// Actors that had the slot before.
    pub generation: u32,
}

impl fmt::Display for ActorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.home, self.slot, self.generation)
    }
}

/// What an actor is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActorState {
    /// Its inbox is empty.
    Idle,
    /// It has messages and waits for a scheduler.
    Runnable,
    /// A scheduler has it.
    Running,
    /// It waits for room in another inbox.
    Waiting,
}

/// One actor at one time.
#[derive(Clone, Debug)]
pub struct ActorStats {
    /// Which.
    pub id: ActorId,
    /// Its name.
    pub name: String,
    /// Most messages that its inbox holds.
    pub capacity: u32,
    /// Messages in its inbox; while it runs, as many as when it began and what came since.
    pub queued: u32,
    /// The most there ever were.
    pub queued_max: u32,
    /// Messages handled.
    pub handled: u64,
    /// How often it had to wait for room in another inbox.
    pub parks: u64,
    /// What it is doing.
    pub state: ActorState,
}

/// What was counted at a home, by whoever held it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HomeCounters {
    pub messages: u64,
    pub activations: u64,
    pub parks: u64,
    pub undelivered: u64,
    pub rounds: u64,
    /// By the home's own scheduler.
    pub steals: u64,
    pub stolen: u64,
    pub sleeps: u64,
    pub yields: u64,
}

/// One scheduler at one time; counts are since the start.
#[derive(Clone, Debug, Default)]
pub struct SchedulerStats {
    /// Messages handled by actors that have their home here.
    pub messages: u64,
    /// How often one of them was run.
    pub activations: u64,
    /// How often one of them had to wait for room.
    pub parks: u64,
    /// Times the home's lock was taken for a batch of actors.
    pub rounds: u64,
    /// Actors that this scheduler took from others.
    pub steals: u64,
    /// Actors that others took from this home.
    pub stolen: u64,
    /// Times this scheduler went to sleep for lack of work.
    pub sleeps: u64,
    /// Times this scheduler offered its core to other threads of the machine.
    pub yields: u64,
    /// Actors in the run queue now.
    pub runnable: usize,
    /// Messages and signals under way to this home now.
    pub inbound: usize,
    /// The CPUs that it may run on; empty when it may run anywhere.
    pub cpus: Vec<usize>,
}

/// The whole system at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When, by the system's clock.
    pub at: Nanos,
    /// Each scheduler.
    pub schedulers: Vec<SchedulerStats>,
    /// Each living actor, by home and slot.
    pub actors: Vec<ActorStats>,
    /// Messages that no actor will handle: their receiver had ended.
    pub undelivered: u64,
    /// Messages let in above an inbox's capacity, because their senders waited in a circle.
    pub circles: u64,
    /// Actors that wait for room in an inbox now.
    pub waiting: usize,
    /// Actors that failed.
    pub failures: u64,
}

impl Snapshot {
    /// Messages handled since the start.
    pub fn messages(&self) -> u64 {
        self.schedulers
            .iter()
            .map(|scheduler| scheduler.messages)
            .sum()
    }

    /// Messages handled per second between an earlier snapshot and this one.
    pub fn messages_per_second(&self, earlier: &Snapshot) -> f64 {
        let elapsed: Duration = self.at.since(earlier.at);
        if elapsed.is_zero() {
            return 0.0;
        }
        self.messages().saturating_sub(earlier.messages()) as f64 / elapsed.as_secs_f64()
    }
}

/// Why an actor failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActorFailureKind {
    /// It panicked.
    Panic,
    /// It waited in a circle of full inboxes that letting messages in above the capacity did
    /// not move.
    Circle,
}

/// An actor that failed. The others went on.
#[derive(Clone, Debug)]
pub struct ActorFailure {
    /// Which.
    pub id: ActorId,
    /// Its name.
    pub actor: String,
    /// Why.
    pub kind: ActorFailureKind,
    /// The panic's words, or the names around the circle.
    pub what: String,
}

impl fmt::Display for ActorFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ActorFailure {
            id, actor, what, ..
        } = self;
        match self.kind {
            ActorFailureKind::Panic => write!(f, "actor {actor} ({id}) panicked: {what}"),
            ActorFailureKind::Circle => write!(
                f,
                "actor {actor} ({id}) waited in a circle of full inboxes: {what}; raise their \
                 capacity, or let one of them drop (try_send)"
            ),
        }
    }
}

/// How a system ended.
#[derive(Clone, Debug)]
pub struct SystemReport {
    /// Every message sent was handled and every actor finished. Always false after an abort.
    pub drained: bool,
    /// The first failures, at most [`FAILURES_MAX`]; `snapshot.failures` counts all.
    pub failures: Vec<ActorFailure>,
    /// The state at the end.
    pub snapshot: Snapshot,
}

/// Failures kept with their words.
pub const FAILURES_MAX: usize = 64;
