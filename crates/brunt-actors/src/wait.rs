//! Tracks which actor waits for which inbox, and resolves cycles of waiting actors.
//!
//! An actor that waits for a full inbox handles no messages, so a cycle of waiting actors would deadlock. Each actor
//! waits for exactly one other, so following the edges from an actor about to wait finds a cycle at once. The send that
//! would close the cycle is allowed to exceed the capacity and is counted; the actor runs, frees space, and the cycle
//! moves. A cycle in which each message creates several others cannot be resolved in bounded memory: when an inbox
//! reaches twice its capacity, the sender fails, with the cycle in the report.

use std::collections::HashMap;
use std::sync::Arc;

use crate::inbox::{FULL, Inbox};
use crate::stats::ActorId;
use crate::sync::{Condvar, Mutex, lock};

/// The response to an actor that wants to wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parking {
    /// There is room now: try again.
    Go,
    /// Wait; a `Resume` signal will follow.
    Parked,
    /// Waiting would close a cycle: send beyond the capacity.
    Granted,
    /// The inbox is at twice its capacity; contains the names of the actors in the cycle.
    Circle(String),
}

enum Waiter {
    Actor(ActorId),
    Outside(Arc<Gate>),
}

#[derive(Default)]
pub(crate) struct WaitGraph {
    /// Parked actor → the actor whose inbox it waits for, and that actor's name.
    waits: HashMap<ActorId, (ActorId, Arc<str>)>,
    waiters: HashMap<ActorId, Vec<Waiter>>,
    /// Messages admitted beyond the capacity since the gate closed.
    granted: HashMap<ActorId, u32>,
    pub circles: u64,
}

impl WaitGraph {
    /// Parks `sender`, whose message `target`'s gate refused. Called under the sender's home lock.
    pub fn park(&mut self, sender: &Inbox, target: &Inbox) -> Parking {
        if target.gate() != FULL {
            return Parking::Go;
        }
        if let Some(circle) = self.circle(sender, target) {
            let granted = self.granted.entry(target.id).or_default();
            if *granted >= target.capacity {
                return Parking::Circle(circle);
            }
            *granted += 1;
            self.circles += 1;
            return Parking::Granted;
        }
        let before = self
            .waits
            .insert(sender.id, (target.id, target.name.clone()));
        assert!(before.is_none(), "an actor that waits sends nothing more");
        self.waiters
            .entry(target.id)
            .or_default()
            .push(Waiter::Actor(sender.id));
        Parking::Parked
    }

    fn circle(&self, sender: &Inbox, target: &Inbox) -> Option<String> {
        let mut path = sender.name.to_string();
        let mut at = (&target.id, &target.name);
        loop {
            path = format!("{path} -> {}", at.1);
            if *at.0 == sender.id {
                return Some(path);
            }
            let (id, name) = self.waits.get(at.0)?;
            at = (id, name);
        }
    }

    /// Returns false if waiting isn't necessary.
    pub fn wait_outside(&mut self, target: &Inbox, gate: &Arc<Gate>) -> bool {
        if target.gate() != FULL {
            return false;
        }
        self.waiters
            .entry(target.id)
            .or_default()
            .push(Waiter::Outside(gate.clone()));
        true
    }

    /// The inbox of `target` has room (`OPEN`) or no longer exists (`CLOSED`): wakes the outside threads that waited
    /// for it and calls `resume` for each waiting actor. Called under the target's home lock.
    pub fn release(&mut self, target: &Inbox, gate: u8, mut resume: impl FnMut(ActorId)) {
        target.set_gate(gate);
        self.granted.remove(&target.id);
        for waiter in self.waiters.remove(&target.id).unwrap_or_default() {
            match waiter {
                Waiter::Outside(gate) => gate.open(),
                Waiter::Actor(id) => {
                    let waited = self.waits.remove(&id);
                    assert!(
                        waited.is_some_and(|(id, _)| id == target.id),
                        "a parked actor waits for the inbox that it named"
                    );
                    resume(id);
                }
            }
        }
    }

    /// Wakes every outside thread; called when a system ends.
    pub fn release_outside(&mut self) {
        for waiter in self.waiters.values_mut().flatten() {
            if let Waiter::Outside(gate) = waiter {
                gate.open();
            }
        }
    }

    pub fn parked(&self) -> usize {
        self.waits.len()
    }
}

/// Where an outside thread waits for room in an inbox.
#[derive(Default)]
pub(crate) struct Gate {
    open: Mutex<bool>,
    bell: Condvar,
}

impl Gate {
    pub fn open(&self) {
        *lock(&self.open) = true;
        self.bell.notify_all();
    }

    pub fn wait(&self) {
        let mut open = lock(&self.open);
        while !*open {
            open = self
                .bell
                .wait(open)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}
