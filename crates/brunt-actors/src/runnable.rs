//! A type-erased actor, as homes and schedulers see it: they run it and check the outcome.
//!
//! The holder of the box has exclusive access to the actor and its inbox. The rule: homes and schedulers pass the box
//! on, and access its content only while they hold it.

use std::any::Any;
use std::sync::Arc;

use crate::address::{Address, Refused, SharedInbox};
use crate::outbox::Outbox;

/// The result of running an actor.
#[derive(Clone, Copy)]
pub(crate) struct TurnOutcome {
    pub handled: u32,
    /// Messages left in the inbox.
    pub left: u32,
    /// A send waits for room.
    pub stashed: bool,
    pub end: ActorEnd,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActorEnd {
    Alive,
    Stopped,
    /// It panicked.
    Failed,
}

impl Default for TurnOutcome {
    /// The outcome for an actor that did not return: the number of messages handled is unknown, and
    /// it is not run again.
    fn default() -> Self {
        TurnOutcome {
            handled: 0,
            left: 0,
            stashed: false,
            end: ActorEnd::Failed,
        }
    }
}

/// A type-erased actor.
pub(crate) trait Runnable: Send {
    /// Handles at most `budget` messages. A panic of the actor propagates.
    fn run(&mut self, outbox: &mut Outbox, budget: u32) -> TurnOutcome;
    /// Returns its `VecDeque` of messages.
    fn inbox(&mut self) -> &mut dyn Any;
    /// Moves messages that arrived while the actor was out, in a `VecDeque` of its message type, to
    /// its inbox.
    fn absorb(&mut self, late: &mut (dyn Any + Send)) -> u32;
    /// Returns the number of messages in the inbox plus waiting sends.
    fn pending(&self) -> u64;
    fn set_finish(&mut self);
    /// Lets the actor's first waiting send exceed the capacity.
    fn grant(&mut self);
    /// Returns the inbox that the actor's first waiting send is for.
    fn waits_for(&self) -> Option<Arc<SharedInbox>>;
}

/// A type-erased send that waits for room.
pub(crate) trait Stashed: Send {
    fn retry(&mut self, outbox: &mut Outbox, granted: bool) -> Attempt;
    fn target(&self) -> &Arc<SharedInbox>;
}

#[derive(PartialEq, Eq)]
pub(crate) enum Attempt {
    Sent,
    Full,
}

pub(crate) struct Held<T> {
    pub to: Address<T>,
    pub message: Option<T>,
}

impl<T: Send + 'static> Stashed for Held<T> {
    fn retry(&mut self, outbox: &mut Outbox, granted: bool) -> Attempt {
        let Some(message) = self.message.take() else {
            return Attempt::Sent;
        };
        let result = if granted {
            outbox.stage_granted(&self.to, message)
        } else {
            outbox.stage(&self.to, message)
        };
        match result {
            Ok(()) => Attempt::Sent,
            Err(Refused::Full(message)) => {
                self.message = Some(message);
                Attempt::Full
            }
            Err(_) => {
                outbox.undelivered += 1;
                Attempt::Sent
            }
        }
    }

    fn target(&self) -> &Arc<SharedInbox> {
        &self.to.shared
    }
}

/// Returns the message of a panic.
pub(crate) fn panic_words(panic: &(dyn Any + Send)) -> String {
    if let Some(words) = panic.downcast_ref::<&str>() {
        (*words).to_string()
    } else if let Some(words) = panic.downcast_ref::<String>() {
        words.clone()
    } else {
        "a panic without words".to_string()
    }
}
