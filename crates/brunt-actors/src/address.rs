//! An [`Address`] is a handle to an actor that any code may clone, keep and send in a message. It
//! carries the actor's message type, so sending the wrong type does not compile.
//!
//! Spawning an actor returns its address. The rule: an accepted message is handled or counted as
//! undelivered; a refused one is returned to the sender.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use crate::inbox::{CLOSED, FULL, Inbox, OPEN};
use crate::lane::LaneMessage;
use crate::machine::Inner;
use crate::stats::ActorId;
use crate::sync::{Ordering, lock};
use crate::wait::Gate as WaitGate;

/// Why a message was refused. Each variant returns the message.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused<M> {
    /// The inbox is full at the moment.
    #[error("the inbox is full")]
    Full(M),
    /// The actor has ended, or the system no longer accepts messages from outside.
    #[error("the actor has ended")]
    Closed(M),
    /// A blocking send was called on a scheduler's own thread, which has to stay free to make room.
    /// Use [`Context::send`](crate::Context::send) there.
    #[error("a blocking send inside an actor would stop its scheduler")]
    InsideActor(M),
}

impl<M> Refused<M> {
    /// Returns the message.
    pub fn into_message(self) -> M {
        match self {
            Refused::Full(message) | Refused::Closed(message) | Refused::InsideActor(message) => {
                message
            }
        }
    }
}

impl<M> fmt::Debug for Refused<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Full(_) => "Full",
            Refused::Closed(_) => "Closed",
            Refused::InsideActor(_) => "InsideActor",
        })
    }
}

/// The part of an actor shared with its senders: its inbox, and the system it belongs to.
pub(crate) struct SharedInbox {
    pub inbox: Inbox,
    pub system: Arc<Inner>,
}

impl Deref for SharedInbox {
    type Target = Inbox;

    #[inline]
    fn deref(&self) -> &Inbox {
        &self.inbox
    }
}

/// A handle to an actor that takes messages of type `M`.
pub struct Address<M> {
    // Everything that a send needs besides the gate, copied here to save a pointer dereference.
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    pub(crate) table_index: u32,
    pub(crate) window: u32,
    pub(crate) home: u16,
    pub(crate) kind: u16,
    pub(crate) shared: Arc<SharedInbox>,
    pub(crate) takes: PhantomData<fn(M)>,
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        Address {
            shared: self.shared.clone(),
            ..*self
        }
    }
}

impl<M> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.shared.name, self.shared.id)
    }
}

impl<M: Send + 'static> Address<M> {
    pub(crate) fn new(shared: Arc<SharedInbox>, kind: u16) -> Self {
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

    /// Returns the actor's id.
    pub fn id(&self) -> ActorId {
        self.shared.id
    }

    /// Returns the actor's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns true if the actor has ended.
    pub fn is_closed(&self) -> bool {
        self.shared.gate() == CLOSED
    }

    /// Sends from outside an actor, without waiting.
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
        // Relaxed: both counters are only accessed under this lock.
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
        self.shared
            .outside_count
            .store(under_way + 1, Ordering::Relaxed);
        self.shared
            .outside_ticket
            .store(inbound.next_take(), Ordering::Relaxed);
        let envelope = LaneMessage {
            slot: self.slot,
            generation: self.generation,
            message,
        };
        inbound.lanes.push(self.kind, envelope);
        home.ring(&mut inbound);
        Ok(())
    }

    /// Sends from outside an actor and waits while the inbox is full. Use it for backpressure, for
    /// example on a thread that reads a file. A thread that must not stall, such as one that reads
    /// packets, uses [`Address::try_send`] and counts what it drops.
    pub fn send(&self, message: M) -> Result<(), Refused<M>> {
        if crate::sync::on_scheduler() {
            return Err(Refused::InsideActor(message));
        }
        let mut message = message;
        loop {
            message = match self.try_send(message) {
                Err(Refused::Full(message)) if self.shared.system.threaded => message,
                result => return result,
            };
            // The gate wakes us when there is room. A full window reopens soon, once the home's
            // scheduler has taken in the messages in transit.
            let gate = Arc::new(WaitGate::default());
            let system = &self.shared.system;
            let waits = {
                let mut graph = lock(&system.graph);
                !system.refuses_outside() && graph.wait_outside(&self.shared, &gate)
            };
            if waits {
                gate.wait();
            } else {
                crate::sync::thread::yield_now();
            }
        }
    }
}
