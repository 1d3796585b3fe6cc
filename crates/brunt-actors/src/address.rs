//! Where a message goes. An [`Address`] is a handle that anyone may clone, keep and send in a
//! message; it carries the type of message its process takes, so a wrong one does not compile.
//!
//! The rule: the part of a process that its senders read (`Shared`) is almost never written.
//! A counter of queued messages there would move a cache line between cores for each message.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::inbound::Gate as WaitGate;
use crate::stats::ProcessId;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering, lock};
use crate::system::Inner;

/// Why a message was not taken. It comes back.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused<M> {
    /// The inbox has no room now.
    #[error("the inbox is full")]
    Full(M),
    /// The process has ended, or the system takes nothing from outside any more.
    #[error("the process has ended")]
    Closed(M),
    /// A blocking send was called on a scheduler's own thread, which has to stay free to make
    /// room. Use [`Context::send`](crate::Context::send) there.
    #[error("a blocking send inside a process would stop its scheduler")]
    InsideProcess(M),
}

impl<M> Refused<M> {
    /// The message.
    pub fn into_message(self) -> M {
        match self {
            Refused::Full(message) | Refused::Closed(message) | Refused::InsideProcess(message) => message,
        }
    }
}

impl<M> fmt::Debug for Refused<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Full(_) => "Full",
            Refused::Closed(_) => "Closed",
            Refused::InsideProcess(_) => "InsideProcess",
        })
    }
}

pub(crate) const OPEN: u8 = 0;
pub(crate) const FULL: u8 = 1;
pub(crate) const CLOSED: u8 = 2;

/// What senders know of a process.
pub(crate) struct Shared {
    pub id: ProcessId,
    /// Counts processes in the order of their spawning.
    pub serial: u64,
    pub name: Box<str>,
    /// Most messages its inbox holds.
    pub capacity: u32,
    /// Most messages that one scheduler, or everybody outside, may have under way to it: see
    /// [`window`].
    pub window: u32,
    /// `OPEN`, `FULL` or `CLOSED`. Set and cleared by whoever holds its home.
    pub gate: AtomicU8,
    /// Messages under way from outside, and the drain of its home's inbound that takes the last
    /// of them in. Both change under the inbound's lock only.
    pub outside_count: AtomicU32,
    pub outside_ticket: AtomicU64,
    pub system: Arc<Inner>,
}

impl Shared {
    #[inline]
    pub fn gate(&self) -> u8 {
        // Relaxed: a sender that reads it late is what `window` makes room for.
        self.gate.load(Ordering::Relaxed)
    }

    /// Closes the gate; senders see it at their next send.
    #[cold]
    pub fn shut(&self) {
        self.gate.store(FULL, Ordering::Relaxed);
    }
}

/// How many messages to one process may be under way in one window of one sender.
///
/// An inbox closes its gate at half its capacity. A sender's window opens again when what it
/// sent before its last flush has been taken in, so it has at most two windows under way that
/// the gate does not count yet. With `s` schedulers and the outside that is
/// `s * 2 * window + window <= capacity / 2` for the value below: the capacity is never passed.
pub(crate) fn window(capacity: u32, schedulers: usize) -> u32 {
    capacity / (4 * (schedulers as u32 + 1))
}

/// The smallest capacity for which [`window`] is at least one.
pub(crate) fn capacity_min(schedulers: usize) -> u32 {
    4 * (schedulers as u32 + 1)
}

/// A handle to a process that takes messages of type `M`.
pub struct Address<M> {
    // What a send needs, beside the gate, without following the pointer.
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    pub(crate) table_index: u32,
    pub(crate) window: u32,
    pub(crate) home: u16,
    pub(crate) kind: u16,
    pub(crate) shared: Arc<Shared>,
    pub(crate) takes: PhantomData<fn(M)>,
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        Address { shared: self.shared.clone(), ..*self }
    }
}

impl<M> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.shared.name, self.shared.id)
    }
}

impl<M: Send + 'static> Address<M> {
    pub(crate) fn new(shared: Arc<Shared>, kind: u16) -> Self {
        let id = shared.id;
        Address {
            slot: id.slot,
            generation: id.generation,
            table_index: id.slot * shared.system.homes.len() as u32 + u32::from(id.home),
            window: shared.window,
            home: id.home,
            kind,
            shared,
            takes: PhantomData,
        }
    }

    /// The process's id.
    pub fn id(&self) -> ProcessId {
        self.shared.id
    }

    /// The process's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// True when the process has ended.
    pub fn is_closed(&self) -> bool {
        self.shared.gate() == CLOSED
    }

    /// Sends from outside a process; never waits.
    pub fn try_send(&self, message: M) -> Result<(), Refused<M>> {
        let system = &self.shared.system;
        if system.refuses_outside() {
            return Err(Refused::Closed(message));
        }
        match self.shared.gate() {
            OPEN => {}
            FULL => return Err(Refused::Full(message)),
            _ => return Err(Refused::Closed(message)),
        }
        let home = &system.homes[usize::from(self.home)];
        let mut inbound = lock(&home.inbound);
        // Relaxed: both are only touched under this lock.
        let under_way = if home.admitted.0.load(Ordering::Acquire)
            >= self.shared.outside_ticket.load(Ordering::Relaxed)
        {
            0
        } else {
            self.shared.outside_count.load(Ordering::Relaxed)
        };
        if under_way >= self.shared.window {
            return Err(Refused::Full(message));
        }
        self.shared.outside_count.store(under_way + 1, Ordering::Relaxed);
        self.shared.outside_ticket.store(inbound.next_take(), Ordering::Relaxed);
        inbound.push_one(self, message);
        home.ring(&mut inbound);
        Ok(())
    }

    /// Sends from outside a process, and waits while the inbox is full. A thread that reads a
    /// file is held back this way; one that must not lose packets uses [`Address::try_send`]
    /// and counts what it drops.
    pub fn send(&self, message: M) -> Result<(), Refused<M>> {
        if crate::scheduler::inside() {
            return Err(Refused::InsideProcess(message));
        }
        let mut message = message;
        loop {
            message = match self.try_send(message) {
                Err(Refused::Full(message)) if self.shared.system.threaded => message,
                result => return result,
            };
            // The gate tells when there is room; a full window opens when the home's scheduler
            // has taken in what is under way, which is soon.
            let gate = Arc::new(WaitGate::default());
            if lock(&self.shared.system.graph).wait_outside(&self.shared, &gate) {
                gate.wait();
            } else {
                crate::sync::thread::yield_now();
            }
        }
    }
}
