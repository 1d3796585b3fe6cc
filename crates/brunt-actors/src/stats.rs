//! Externally visible statistics: queue lengths, rates, steals, parks and failures. The thread that
//! does the work also counts it; counters are read under the home's lock, so a snapshot costs the
//! runtime one short lock per scheduler.

use std::fmt;
use std::time::Duration;

use brunt_core::Nanos;

/// Identifies an actor by its home scheduler, its slot there, and the number of actors that used
/// the slot before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActorId {
    /// Index of the scheduler.
    pub home: u16,
    /// Index of the slot.
    pub slot: u32,
    /// Number of actors that used the slot before.
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
    /// The actor's inbox is empty.
    Idle,
    /// The actor has messages and waits for a scheduler.
    Runnable,
    /// A scheduler holds the actor and runs it.
    Running,
    /// The actor waits for room in another inbox.
    Waiting,
}

/// The state of one actor at a point in time.
#[derive(Clone, Debug)]
pub struct ActorStats {
    /// The actor's id.
    pub id: ActorId,
    /// Its name.
    pub name: String,
    /// Capacity of its inbox, in messages.
    pub capacity: u32,
    /// Messages in its inbox. While the actor runs: the number when it started plus arrivals since.
    pub queued: u32,
    /// The highest number of messages queued so far.
    pub queued_max: u32,
    /// Messages handled.
    pub handled: u64,
    /// Number of times the actor had to wait for room in another inbox.
    pub parks: u64,
    /// What the actor is doing.
    pub state: ActorState,
}

/// A home's counters, updated by the thread that holds the home.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HomeCounters {
    pub messages: u64,
    pub activations: u64,
    pub parks: u64,
    pub undelivered: u64,
    pub rounds: u64,
    /// Actors that the home's own scheduler took from others.
    pub steals: u64,
    pub stolen: u64,
    pub sleeps: u64,
    pub yields: u64,
}

/// The state of one scheduler at a point in time; counts are since the start.
#[derive(Clone, Debug, Default)]
pub struct SchedulerStats {
    /// Messages handled by actors whose home is here.
    pub messages: u64,
    /// Number of times one of these actors was run.
    pub activations: u64,
    /// Number of times one of these actors had to wait for room.
    pub parks: u64,
    /// Times the home's lock was taken for a batch of actors.
    pub rounds: u64,
    /// Actors that this scheduler stole from other homes.
    pub steals: u64,
    /// Actors that other schedulers stole from this home.
    pub stolen: u64,
    /// Times this scheduler slept because it found no work.
    pub sleeps: u64,
    /// Times this scheduler yielded its core to other threads on the machine.
    pub yields: u64,
    /// Actors in the run queue now.
    pub runnable: usize,
    /// Messages and signals currently in transit to this home.
    pub inbound: usize,
    /// The CPUs that it may run on; empty if unrestricted.
    pub cpus: Vec<usize>,
}

/// The state of the whole system at a point in time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The time of the snapshot.
    pub at: Nanos,
    /// Each scheduler.
    pub schedulers: Vec<SchedulerStats>,
    /// Each living actor, ordered by home and slot.
    pub actors: Vec<ActorStats>,
    /// Messages never handled because their receiver had ended.
    pub undelivered: u64,
    /// Messages admitted above an inbox's capacity to break a cycle of waiting senders.
    pub circles: u64,
    /// Actors that currently wait for room in an inbox.
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
    /// The actor waited in a cycle of full inboxes that exceeding the capacity could not resolve.
    Circle,
}

/// An actor that failed. Other actors keep running.
#[derive(Clone, Debug)]
pub struct ActorFailure {
    /// The actor's id.
    pub id: ActorId,
    /// Its name.
    pub actor: String,
    /// The kind of failure.
    pub kind: ActorFailureKind,
    /// The panic message, or the names of the actors in the cycle.
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
                "actor {actor} ({id}) waited in a cycle of full inboxes: {what}; raise their \
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
    /// The final state.
    pub snapshot: Snapshot,
}

/// Maximum number of failures kept with their details.
pub const FAILURES_MAX: usize = 64;
