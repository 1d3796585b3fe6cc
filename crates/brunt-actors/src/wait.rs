//! Who waits for whose inbox, and what happens when they wait for each other.
//!
//! A process that waits for a full inbox handles no messages, so a circle of such processes
//! would stand for ever. Each waits for exactly one other: following the arrows from a process
//! about to wait finds the circle at once. The send that would close it is let through above the
//! capacity and counted; the process runs, makes room, and the circle moves. A circle in which
//! each message makes several has no answer in bounded memory: when an inbox stands at twice its
//! capacity the sender is failed, with the circle in the report.

use std::collections::HashMap;
use std::sync::Arc;

use crate::address::{FULL, Shared};
use crate::inbound::{Gate, Signal};
use crate::stats::ProcessId;
use crate::sync::{Ordering, lock};

/// What a process that wants to wait is told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is room by now: try again.
    Go,
    /// Wait; a `Resume` will come.
    Parked,
    /// Waiting would close a circle: send above the capacity.
    Granted,
    /// Above twice the capacity; the names around the circle.
    Doomed(String),
}

enum Waiter {
    Process(ProcessId),
    Outside(Arc<Gate>),
}

#[derive(Default)]
pub(crate) struct WaitGraph {
    /// Parked process → whose inbox it waits for.
    waits: HashMap<ProcessId, Arc<Shared>>,
    waiters: HashMap<ProcessId, Vec<Waiter>>,
    /// Messages let in above the capacity since the gate closed.
    granted: HashMap<ProcessId, u32>,
    pub circles: u64,
}

impl WaitGraph {
    /// `sender` has something for `target` that its gate refused. Called under the sender's home.
    pub fn park(&mut self, sender: &Arc<Shared>, target: &Arc<Shared>) -> Verdict {
        if target.gate() != FULL {
            return Verdict::Go;
        }
        if let Some(circle) = self.circle(sender, target) {
            let granted = self.granted.entry(target.id).or_default();
            if *granted >= target.capacity {
                return Verdict::Doomed(circle);
            }
            *granted += 1;
            self.circles += 1;
            return Verdict::Granted;
        }
        self.waits.insert(sender.id, target.clone());
        self.waiters.entry(target.id).or_default().push(Waiter::Process(sender.id));
        Verdict::Parked
    }

    fn circle(&self, sender: &Shared, target: &Arc<Shared>) -> Option<String> {
        let mut path = sender.name.to_string();
        let mut at = target;
        loop {
            path = format!("{path} -> {}", at.name);
            if at.id == sender.id {
                return Some(path);
            }
            at = self.waits.get(&at.id)?;
        }
    }

    /// False when there is no need to wait.
    pub fn wait_outside(&mut self, target: &Arc<Shared>, gate: &Arc<Gate>) -> bool {
        if target.gate() != FULL || target.system.refuses_outside() {
            return false;
        }
        self.waiters.entry(target.id).or_default().push(Waiter::Outside(gate.clone()));
        true
    }

    /// The inbox of `target` has room (`OPEN`) or is gone (`CLOSED`). Called under its home.
    pub fn release(&mut self, target: &Shared, gate: u8) {
        debug_assert_ne!(gate, FULL);
        target.gate.store(gate, Ordering::Relaxed);
        self.granted.remove(&target.id);
        for waiter in self.waiters.remove(&target.id).unwrap_or_default() {
            match waiter {
                Waiter::Outside(gate) => gate.open(),
                Waiter::Process(id) => {
                    self.waits.remove(&id);
                    let home = &target.system.homes[usize::from(id.home)];
                    let mut inbound = lock(&home.inbound);
                    inbound.signals.push((id.slot, id.generation, Signal::Resume));
                    home.ring(&mut inbound);
                }
            }
        }
    }

    /// Lets every thread outside go; for the end of a system.
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
