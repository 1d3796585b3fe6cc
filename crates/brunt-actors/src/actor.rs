//! An [`Actor`]: private state and a handler for one type of message. Through its [`Context`] it sends
//! messages, sets timers, starts other actors and stops.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use brunt_core::Nanos;

use crate::address::{Address, Refused, SharedInbox};
use crate::outbox::Outbox;
use crate::runnable::{Held, Stashed};
use crate::spawn::spawn;
use crate::stats::ActorId;
use crate::timers::{TimerId, TimerQueue};

/// An actor. It owns its state, runs on one thread at a time, and handles each message to its
/// end before the next.
pub trait Actor: Sized + Send + 'static {
    /// What it takes. Ownership moves with the message: a batch of buffers changes hands
    /// without a copy.
    type Message: Send + 'static;

    /// Handles one message. Must not block: the actors behind it on this scheduler wait.
    /// A panic ends this actor, and no other.
    fn handle(&mut self, message: Self::Message, context: &mut Context<'_, Self::Message>);

    /// Runs before the first message.
    fn start(&mut self, _context: &mut Context<'_, Self::Message>) {}

    /// Runs after the last message when the system drains: pass on what is held back, close
    /// what is open. What it sends is still handled by the actors spawned before it.
    fn finish(&mut self, _context: &mut Context<'_, Self::Message>) {}
}

/// How to spawn an actor.
#[derive(Clone, Debug)]
pub struct ActorOptions {
    pub(crate) name: Option<Box<str>>,
    pub(crate) capacity: u32,
    pub(crate) home: Option<Near>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Near {
    Scheduler(usize),
    Other(ActorId),
}

/// An inbox's capacity when nothing else is said, in messages.
pub const CAPACITY_DEFAULT: u32 = 1024;

impl Default for ActorOptions {
    fn default() -> Self {
        ActorOptions {
            name: None,
            capacity: CAPACITY_DEFAULT,
            home: None,
        }
    }
}

impl ActorOptions {
    /// A name for reports.
    pub fn named(name: impl Into<Box<str>>) -> Self {
        ActorOptions {
            name: Some(name.into()),
            ..ActorOptions::default()
        }
    }

    /// Most messages its inbox holds. Raised to `4 * (schedulers + 1)` when below: each
    /// scheduler and the outside need room for what is under way.
    pub fn capacity(self, messages: u32) -> Self {
        ActorOptions {
            capacity: messages,
            ..self
        }
    }

    /// Make scheduler `index`, modulo their number, its home.
    pub fn on_scheduler(self, index: usize) -> Self {
        ActorOptions {
            home: Some(Near::Scheduler(index)),
            ..self
        }
    }

    /// Give it the home of another actor that it talks with a lot.
    pub fn near<M: Send + 'static>(self, other: &Address<M>) -> Self {
        ActorOptions {
            home: Some(Near::Other(other.id())),
            ..self
        }
    }
}

/// What an actor can do while it handles a message of its type `M`.
pub struct Context<'a, M> {
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) shared: &'a Arc<SharedInbox>,
    pub(crate) kind: u16,
    pub(crate) stash: &'a mut VecDeque<Box<dyn Stashed>>,
    pub(crate) timers: &'a mut TimerQueue<M>,
    pub(crate) stopping: &'a mut bool,
}

impl<M: Send + 'static> Context<'_, M> {
    /// Sends. When the inbox is full, the message waits with this actor, in order, and this
    /// actor handles no further message until it is gone: its own inbox fills, and its
    /// senders are held back in turn. When the receiver has ended, the message is dropped and
    /// counted as undelivered.
    #[inline]
    pub fn send<T: Send + 'static>(&mut self, to: &Address<T>, message: T) {
        if !self.stash.is_empty() {
            self.hold(to, message);
            return;
        }
        match self.outbox.stage(to, message) {
            Ok(()) => {}
            Err(Refused::Full(message)) => self.hold(to, message),
            Err(_) => self.outbox.undelivered += 1,
        }
    }

    /// Sends only when there is room now, and gives the message back otherwise: for a source
    /// that would rather drop and count than wait.
    #[inline]
    pub fn try_send<T: Send + 'static>(
        &mut self,
        to: &Address<T>,
        message: T,
    ) -> Result<(), Refused<T>> {
        // Behind a message that waits, this one would overtake it.
        if !self.stash.is_empty() {
            return Err(Refused::Full(message));
        }
        self.outbox.stage(to, message)
    }

    #[cold]
    fn hold<T: Send + 'static>(&mut self, to: &Address<T>, message: T) {
        self.stash.push_back(Box::new(Held {
            to: to.clone(),
            message: Some(message),
        }));
    }

    /// The actor's own address.
    pub fn this(&self) -> Address<M> {
        Address::new(self.shared.clone(), self.kind)
    }

    /// The time at which this round of the scheduler began; by the system's clock.
    pub fn now(&self) -> Nanos {
        self.outbox.now
    }

    /// Hands `message` to this actor itself, not before `delay` is over. Refused when as many
    /// timers are pending as the inbox holds messages.
    pub fn after(&mut self, delay: Duration, message: M) -> Result<TimerId, Refused<M>> {
        if self.timers.len() >= self.shared.capacity as usize {
            return Err(Refused::Full(message));
        }
        Ok(self.timers.push(self.outbox.now.after(delay), message))
    }

    /// Takes a timer back. `None` when it has fired.
    pub fn cancel(&mut self, timer: TimerId) -> Option<M> {
        self.timers.remove(timer)
    }

    /// Starts another actor; near this one unless the options say otherwise.
    pub fn spawn<P: Actor>(&mut self, actor: P, options: ActorOptions) -> Address<P::Message> {
        let near = Near::Scheduler(usize::from(self.outbox.home));
        let options = ActorOptions {
            home: options.home.or(Some(near)),
            ..options
        };
        spawn(&self.outbox.system, actor, options)
    }

    /// Ends this actor after this message. What is in its inbox then counts as undelivered.
    pub fn stop(&mut self) {
        *self.stopping = true;
    }
}
