//! An [`Actor`]: private state and a handler for one type of message. Through its [`Context`] it sends
//! messages, starts other actors and stops.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::address::{Address, Refused, SharedInbox};
use crate::outbox::Outbox;
use crate::runnable::{Held, Stashed};
use crate::spawn::spawn;
use crate::stats::ActorId;

/// An actor owns its state, runs on one thread at a time, and finishes handling each message before
/// it starts the next.
pub trait Actor: Sized + Send + 'static {
    /// The type of message it handles. Ownership moves with the message: a batch of buffers changes hands without a
    /// copy.
    type Message: Send + 'static;

    /// Handles one message. Must not block, because other actors on this scheduler would wait. A
    /// panic ends only this actor.
    fn handle(&mut self, message: Self::Message, context: &mut Context<'_, Self::Message>);

    /// Runs before the first message.
    fn start(&mut self, _context: &mut Context<'_, Self::Message>) {}

    /// Runs after the last message when the system drains: flush pending data and close open resources. Actors spawned
    /// before this one still handle messages sent here.
    fn finish(&mut self, _context: &mut Context<'_, Self::Message>) {}
}

/// Options for spawning an actor.
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

/// Default capacity of an inbox, in messages.
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
    /// Sets a name for reports.
    pub fn named(name: impl Into<Box<str>>) -> Self {
        ActorOptions {
            name: Some(name.into()),
            ..ActorOptions::default()
        }
    }

    /// Sets the capacity of the inbox in messages. Raised to `4 * (schedulers + 1)` if lower: each scheduler and the
    /// outside need room for messages in transit.
    pub fn capacity(self, messages: u32) -> Self {
        ActorOptions {
            capacity: messages,
            ..self
        }
    }

    /// Makes scheduler `index` (modulo the number of schedulers) the actor's home.
    pub fn on_scheduler(self, index: usize) -> Self {
        ActorOptions {
            home: Some(Near::Scheduler(index)),
            ..self
        }
    }

    /// Gives the actor the same home as another actor with which it exchanges many messages.
    pub fn near<M: Send + 'static>(self, other: &Address<M>) -> Self {
        ActorOptions {
            home: Some(Near::Other(other.id())),
            ..self
        }
    }
}

/// What an actor can do while it handles a message of type `M`.
pub struct Context<'a, M> {
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) shared: &'a Arc<SharedInbox>,
    pub(crate) kind: u16,
    pub(crate) stash: &'a mut VecDeque<Box<dyn Stashed>>,
    pub(crate) stopping: &'a mut bool,
    pub(crate) message: PhantomData<fn(M)>,
}

impl<M: Send + 'static> Context<'_, M> {
    /// Sends a message. If the inbox is full, the message waits with this actor, in order, and this actor handles no
    /// further messages until the message has been sent. Its own inbox then fills, which holds back its senders in
    /// turn. If the receiver has ended, the message is dropped and counted as undelivered.
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

    /// Sends a message only if there is room now, and otherwise returns it. For sources that would rather drop and
    /// count messages than wait.
    #[inline]
    pub fn try_send<T: Send + 'static>(
        &mut self,
        to: &Address<T>,
        message: T,
    ) -> Result<(), Refused<T>> {
        // Sending now would overtake a message that is already waiting.
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

    /// Returns the actor's own address.
    pub fn this(&self) -> Address<M> {
        Address::new(self.shared.clone(), self.kind)
    }

    /// Spawns another actor, on the same home unless the options name one.
    pub fn spawn<P: Actor>(&mut self, actor: P, options: ActorOptions) -> Address<P::Message> {
        let near = Near::Scheduler(usize::from(self.outbox.home));
        let options = ActorOptions {
            home: options.home.or(Some(near)),
            ..options
        };
        spawn(&self.outbox.system, actor, options)
    }

    /// Ends this actor after this message. Messages left in its inbox count as undelivered.
    pub fn stop(&mut self) {
        *self.stopping = true;
    }
}
