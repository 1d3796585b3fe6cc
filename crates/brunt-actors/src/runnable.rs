//! An actor with its type erased, as homes and schedulers see it: they run it for a while and look at the
//! result.
//!
//! The holder of the box has exclusive access to the actor, its inbox and its timers. The rule: homes and
//! schedulers pass the box on and only look inside while they hold it.

use std::any::Any;
use std::sync::Arc;

use brunt_core::Nanos;

use crate::address::{Address, Refused, SharedInbox};
use crate::outbox::Outbox;

/// What came of running an actor.
#[derive(Clone, Copy)]
pub(crate) struct TurnOutcome {
    pub handled: u32,
    /// Messages left in the inbox.
    pub left: u32,
    /// When its next timer is due.
    pub due: Nanos,
    /// A send waits.
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
    /// That of an actor that did not return: what it handled is not known, and it is not run again.
    fn default() -> Self {
        TurnOutcome {
            handled: 0,
            left: 0,
            due: Nanos::MAX,
            stashed: false,
            end: ActorEnd::Failed,
        }
    }
}

/// An actor behind its type.
pub(crate) trait Runnable: Send {
    /// Handles at most `budget` messages. A panic of the actor goes through.
    fn run(&mut self, outbox: &mut Outbox, budget: u32) -> TurnOutcome;
    /// Its `VecDeque` of messages.
    fn inbox(&mut self) -> &mut dyn Any;
    /// Moves messages that came while it was away, a `VecDeque` of its type, into its inbox.
    fn absorb(&mut self, late: &mut (dyn Any + Send)) -> u32;
    /// Messages in the inbox and sends that wait.
    fn pending(&self) -> u64;
    fn set_finish(&mut self);
    /// Its first waiting send goes above the capacity.
    fn grant(&mut self);
    /// Whose inbox its first waiting send is for.
    fn waits_for(&self) -> Option<Arc<SharedInbox>>;
}

/// A send that waits for room, whatever its type.
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

/// What a panic said.
pub(crate) fn panic_words(panic: &(dyn Any + Send)) -> String {
    if let Some(words) = panic.downcast_ref::<&str>() {
        (*words).to_string()
    } else if let Some(words) = panic.downcast_ref::<String>() {
        words.clone()
    } else {
        "a panic without words".to_string()
    }
}
