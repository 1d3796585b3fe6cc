//! The actors of one scheduler: their slots and the run queue, under one lock.
//!
//! The home's own scheduler takes the lock once per round, and another scheduler occasionally takes it to steal, but
//! the lock is never held while an actor runs. An idle scheduler can therefore take over from one that the kernel has
//! preempted. An actor keeps its home for life; a stolen actor is returned.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::address::SharedInbox;
use crate::inbound::{Inbound, Signal};
use crate::inbox::{CLOSED, OPEN};
use crate::lane::{Accept, LaneMessage, Lanes};
use crate::machine::Inner;
use crate::runnable::{ActorEnd, Runnable, TurnOutcome, panic_words};
use crate::stats::{ActorFailure, ActorFailureKind, ActorState, ActorStats, HomeCounters};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, Padded, lock};
use crate::wait::Parking;

/// One home. Fields written by different threads are on different cache lines.
pub(crate) struct Home {
    pub state: Padded<Mutex<HomeState>>,
    pub inbound: Padded<Mutex<Inbound<HomeState>>>,
    /// Notified under the `inbound` lock.
    pub bell: Condvar,
    /// Number of the last take of `inbound` whose messages are all in their inboxes.
    pub admitted: Padded<AtomicU64>,
    /// Hints for other schedulers: messages waiting in `inbound`, and actors in the run queue.
    pub waiting: Padded<AtomicUsize>,
    pub runnable: Padded<AtomicUsize>,
    /// Counts the rounds of the home's own scheduler. If it doesn't advance, the kernel or a long handler is holding up
    /// the scheduler.
    pub beat: Padded<AtomicU64>,
    /// The home's scheduler sleeps, or is about to.
    pub asleep: Padded<AtomicBool>,
}

impl Home {
    pub fn new() -> Self {
        Home {
            state: Padded(Mutex::new(HomeState::default())),
            inbound: Padded(Mutex::new(Inbound::default())),
            bell: Condvar::new(),
            admitted: Padded::default(),
            waiting: Padded::default(),
            runnable: Padded::default(),
            beat: Padded::default(),
            asleep: Padded::default(),
        }
    }

    /// Publishes the number of waiting entries and wakes the scheduler if it sleeps. Called with
    /// the inbound lock held.
    #[inline]
    pub fn ring(&self, inbound: &mut Inbound<HomeState>) {
        self.waiting.store(
            inbound.lanes.count() + inbound.signals.len(),
            Ordering::Release,
        );
        if inbound.sleeping {
            inbound.sleeping = false;
            self.bell.notify_all();
        }
    }

    /// Wakes the scheduler although nothing waits at this home, because there is work elsewhere or the system is
    /// stopping.
    pub fn poke(&self) {
        let mut inbound = lock(&self.inbound);
        inbound.poked = true;
        self.ring(&mut inbound);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    /// Nothing to do.
    Idle,
    /// In the run queue.
    Queued,
    /// Held by a scheduler that runs it or is about to.
    Out,
    /// Waiting for room in another inbox.
    Parked,
}

/// A slot of a home, for one actor. Sized to a cache line, so taking in a message costs one miss here and one in the
/// actor's box.
#[repr(align(64))]
struct Slot {
    actor: Option<Box<dyn Runnable>>,
    shared: Arc<SharedInbox>,
    handled: u64,
    rare: Option<Box<Rare>>,
    generation: u32,
    /// Half the capacity: the gate closes here. A copy, because `shared` is on another cache line.
    shut_at: u32,
    /// True if this home has closed the gate and not reopened it.
    shut: bool,
    /// Messages in the inbox; while the actor is out, the number when it left.
    queued: u32,
    queued_max: u32,
    state: SlotState,
    finish: bool,
}

const _: () = assert!(size_of::<Option<Slot>>() == 64);

/// State that most slots don't need.
#[derive(Default)]
struct Rare {
    /// A `VecDeque` of messages that arrived while the actor was out; `late_count` is their number.
    late: Option<Box<dyn Any + Send>>,
    late_count: u32,
    parks: u64,
}

/// An actor taken out of its slot.
pub(crate) struct Taken {
    pub slot: u32,
    pub actor: Box<dyn Runnable>,
    pub outcome: TurnOutcome,
    /// The actor's panic payload, if it panicked.
    pub panic: Option<Box<Box<dyn Any + Send>>>,
}

#[derive(Default)]
pub(crate) struct HomeState {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Generation for the next actor in a slot; survives the actor.
    generations: Vec<u32>,
    run_queue: VecDeque<u32>,
    /// Actors just woken by a message. They run first, while the message is still cached.
    hot: Vec<u32>,
    /// Buffers that are swapped with those of the inbound queue.
    taken_lanes: Lanes<HomeState>,
    taken_signals: Vec<(u32, u32, Signal)>,
    out: usize,
    pub counters: HomeCounters,
    /// Ended actors and undelivered messages, to be dropped after the lock is released.
    ended: Vec<Box<dyn Send>>,
}

impl Accept for HomeState {
    /// Puts a message into its receiver's inbox; if the receiver has ended, counts it as undelivered.
    #[inline]
    fn accept<M: Send + 'static>(&mut self, envelope: LaneMessage<M>) {
        let LaneMessage {
            slot: number,
            generation,
            message,
        } = envelope;
        let Some(slot) = self.slots[number as usize]
            .as_mut()
            .filter(|slot| slot.generation == generation)
        else {
            self.counters.undelivered += 1;
            self.ended.push(Box::new(message));
            return;
        };
        let queued = match &mut slot.actor {
            Some(actor) => {
                let inbox = actor
                    .inbox()
                    .downcast_mut::<VecDeque<M>>()
                    .expect("an address has its actor's type of message");
                inbox.push_back(message);
                slot.queued = inbox.len() as u32;
                slot.queued
            }
            None => {
                let rare = slot.rare.get_or_insert_default();
                let late = rare
                    .late
                    .get_or_insert_with(|| Box::new(VecDeque::<M>::new()));
                late.downcast_mut::<VecDeque<M>>()
                    .expect("an address has its actor's type of message")
                    .push_back(message);
                rare.late_count += 1;
                slot.queued + rare.late_count
            }
        };
        // Breaking cycles may fill an inbox to twice its capacity.
        debug_assert!(queued <= 4 * slot.shut_at + 4, "an inbox has bounds");
        if queued > slot.queued_max {
            slot.queued_max = queued;
        }
        if queued >= slot.shut_at && !slot.shut {
            slot.shut = true;
            slot.shared.shut();
        }
        if slot.state == SlotState::Idle {
            slot.state = SlotState::Queued;
            self.hot.push(number);
        }
    }
}

impl HomeState {
    /// Reserves a slot for an actor and returns its index and generation.
    pub fn reserve(&mut self) -> (u32, u32) {
        if let Some(slot) = self.free.pop() {
            return (slot, self.generations[slot as usize]);
        }
        self.slots.push(None);
        self.generations.push(0);
        (self.slots.len() as u32 - 1, 0)
    }

    pub fn install(&mut self, shared: Arc<SharedInbox>, actor: Box<dyn Runnable>) {
        let slot = shared.id.slot;
        self.slots[slot as usize] = Some(Slot {
            actor: Some(actor),
            generation: shared.id.generation,
            shut_at: shared.capacity / 2,
            shut: false,
            shared,
            handled: 0,
            queued: 0,
            queued_max: 0,
            // Queued to run `start`.
            state: SlotState::Queued,
            finish: false,
            rare: None,
        });
        self.run_queue.push_back(slot);
    }

    /// Takes in messages and signals in transit to this home.
    pub fn take_in(&mut self, home: &Home) {
        if home.waiting.load(Ordering::Acquire) > 0 {
            let mut inbound = lock(&home.inbound);
            std::mem::swap(&mut inbound.lanes, &mut self.taken_lanes);
            std::mem::swap(&mut inbound.signals, &mut self.taken_signals);
            inbound.takes += 1;
            let take = inbound.takes;
            home.waiting.store(0, Ordering::Relaxed);
            drop(inbound);
            let mut lanes = std::mem::take(&mut self.taken_lanes);
            lanes.deliver(self);
            self.taken_lanes = lanes;
            let mut signals = std::mem::take(&mut self.taken_signals);
            for (slot, generation, signal) in signals.drain(..) {
                self.signal(slot, generation, signal);
            }
            self.taken_signals = signals;
            home.admitted.store(take, Ordering::Release);
        }
    }

    fn signal(&mut self, number: u32, generation: u32, signal: Signal) {
        let Some(slot) = self.slots[number as usize]
            .as_mut()
            .filter(|slot| slot.generation == generation)
        else {
            return;
        };
        match signal {
            Signal::Finish => {
                slot.finish = true;
                if slot.state == SlotState::Idle {
                    slot.state = SlotState::Queued;
                    self.run_queue.push_back(number);
                }
            }
            Signal::Resume => {
                if slot.state == SlotState::Parked {
                    slot.state = SlotState::Queued;
                    self.run_queue.push_back(number);
                }
            }
        }
    }

    pub fn runnable(&self) -> usize {
        self.run_queue.len() + self.hot.len()
    }

    /// Ends the priority of recently woken actors by moving them to the run queue.
    pub fn cool(&mut self) {
        self.run_queue.extend(self.hot.drain(..));
    }

    /// Hands out up to `count` runnable actors.
    pub fn take(&mut self, count: usize, batch: &mut Vec<Taken>) {
        let hot = count.min(self.hot.len());
        let queued = (count - hot).min(self.run_queue.len());
        for number in self.hot.drain(..hot).chain(self.run_queue.drain(..queued)) {
            let slot = self.slots[number as usize]
                .as_mut()
                .expect("only living actors are queued");
            let mut actor = slot.actor.take().expect("a queued actor is at home");
            debug_assert!(
                slot.state == SlotState::Queued,
                "every queued entry is marked as queued"
            );
            slot.state = SlotState::Out;
            if std::mem::take(&mut slot.finish) {
                actor.set_finish();
            }
            batch.push(Taken {
                slot: number,
                actor,
                outcome: TurnOutcome::default(),
                panic: None,
            });
        }
        self.out += hot + queued;
    }

    /// Puts back an actor that ran, and decides what it does next.
    pub fn put_back(&mut self, taken: Taken, system: &Inner) {
        let Taken {
            slot: number,
            mut actor,
            outcome,
            panic,
        } = taken;
        debug_assert!(self.out > 0, "only what was taken is put back");
        self.out -= 1;
        let slot = self.slots[number as usize]
            .as_mut()
            .expect("an actor that is out keeps its slot");
        assert!(
            slot.state == SlotState::Out,
            "an actor that is put back was out"
        );
        debug_assert!(slot.actor.is_none(), "an actor is in one place");
        slot.handled += u64::from(outcome.handled);
        self.counters.messages += u64::from(outcome.handled);
        self.counters.activations += 1;
        let mut left = outcome.left;
        if let Some(rare) = slot.rare.as_mut().filter(|rare| rare.late_count > 0) {
            left = actor.absorb(&mut **rare.late.as_mut().expect("late messages have a queue"));
            rare.late_count = 0;
        }
        slot.queued = left;
        if let ActorEnd::Alive = outcome.end {
            if slot.shut && left <= slot.shut_at / 2 {
                slot.shut = false;
                system.release(&slot.shared, OPEN);
            }
            if outcome.stashed
                && let Some(target) = actor.waits_for()
            {
                return self.wait_for(&target, number, actor, system);
            }
            slot.actor = Some(actor);
            if left > 0 || outcome.stashed || slot.finish {
                slot.state = SlotState::Queued;
                self.run_queue.push_back(number);
            } else {
                slot.state = SlotState::Idle;
            }
            return;
        }
        slot.actor = Some(actor);
        let failure = match outcome.end {
            ActorEnd::Failed => {
                let panic = panic.map_or_else(String::new, |panic| panic_words(&**panic));
                Some((ActorFailureKind::Panic, panic))
            }
            _ => None,
        };
        self.end(number, system, failure);
    }

    /// Puts back an actor whose messages wait for room in the inbox of `target`.
    fn wait_for(
        &mut self,
        target: &Arc<SharedInbox>,
        number: u32,
        mut actor: Box<dyn Runnable>,
        system: &Inner,
    ) {
        let slot = self.slots[number as usize]
            .as_mut()
            .expect("an actor that is out keeps its slot");
        let parking = lock(&system.graph).park(&slot.shared, target);
        match parking {
            Parking::Go => {}
            Parking::Granted => actor.grant(),
            Parking::Parked => {
                slot.rare.get_or_insert_default().parks += 1;
                self.counters.parks += 1;
                slot.actor = Some(actor);
                slot.state = SlotState::Parked;
                return;
            }
            Parking::Circle(circle) => {
                slot.actor = Some(actor);
                self.end(number, system, Some((ActorFailureKind::Circle, circle)));
                return;
            }
        }
        slot.actor = Some(actor);
        slot.state = SlotState::Queued;
        self.run_queue.push_back(number);
    }

    /// Ends an actor that is in its slot.
    fn end(&mut self, number: u32, system: &Inner, failure: Option<(ActorFailureKind, String)>) {
        let slot = self.slots[number as usize]
            .take()
            .expect("only a living actor ends");
        self.generations[number as usize] = slot.generation.wrapping_add(1);
        self.free.push(number);
        system.release(&slot.shared, CLOSED);
        if let Some(actor) = slot.actor {
            self.counters.undelivered += actor.pending();
            self.ended.push(Box::new(actor));
        }
        if let Some((kind, what)) = failure {
            let failure = ActorFailure {
                id: slot.shared.id,
                actor: slot.shared.name.to_string(),
                kind,
                what,
            };
            system.report(failure);
        }
    }

    /// Returns ended actors and undelivered messages. Drop them without holding the lock: their destructors run user
    /// code.
    pub fn ended(&mut self) -> Vec<Box<dyn Send>> {
        std::mem::take(&mut self.ended)
    }

    /// Returns true if no actor is running or runnable and nothing is in transit.
    pub fn is_quiet(&self, inbound: &Inbound<HomeState>) -> bool {
        self.out == 0 && self.runnable() == 0 && inbound.is_empty()
    }

    /// Returns the most recently spawned living actor (by serial number), for an orderly shutdown.
    pub fn youngest(&self) -> Option<(u64, u32, u32)> {
        self.slots
            .iter()
            .flatten()
            .map(|slot| (slot.shared.serial, slot.shared.id.slot, slot.generation))
            .max()
    }

    /// Ends all actors and empties all queues.
    pub fn clear(&mut self, home: &Home, system: &Inner) {
        self.take_in(home);
        for number in 0..self.slots.len() as u32 {
            if self.slots[number as usize].is_some() {
                self.end(number, system, None);
            }
        }
        assert_eq!(self.out, 0, "a home is cleared when nothing runs any more");
        self.run_queue.clear();
        self.hot.clear();
    }

    pub fn actor_stats(&self) -> impl Iterator<Item = ActorStats> {
        self.slots.iter().flatten().map(|slot| {
            let late = slot.rare.as_ref().map_or(0, |rare| rare.late_count);
            ActorStats {
                id: slot.shared.id,
                name: slot.shared.name.to_string(),
                capacity: slot.shared.capacity,
                queued: slot.queued + late,
                queued_max: slot.queued_max,
                handled: slot.handled,
                parks: slot.rare.as_ref().map_or(0, |rare| rare.parks),
                state: match slot.state {
                    SlotState::Idle => ActorState::Idle,
                    SlotState::Queued => ActorState::Runnable,
                    SlotState::Out => ActorState::Running,
                    SlotState::Parked => ActorState::Waiting,
                },
            }
        })
    }
}
