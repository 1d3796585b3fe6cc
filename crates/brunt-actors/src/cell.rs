//! An actor with its inbox: the content of a slot's box.
//!
//! Run by a scheduler through [`Runnable`]. The rule: while a send waits, no message is handled.

use std::any::Any;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::actor::{Actor, Context};
use crate::address::SharedInbox;
use crate::inbox::FULL;
use crate::outbox::Outbox;
use crate::runnable::{ActorEnd, Attempt, Runnable, Stashed, TurnOutcome};

#[derive(Clone, Copy, PartialEq, Eq)]
enum ActorPhase {
    New,
    Running,
    /// Finishes once its inbox is empty.
    Finishing,
    /// Ends once its waiting sends have been delivered.
    Stopping,
}

pub(crate) struct ActorCell<P: Actor> {
    inbox: VecDeque<P::Message>,
    actor: P,
    phase: ActorPhase,
    granted: bool,
    kind: u16,
    shared: Arc<SharedInbox>,
    stash: VecDeque<Box<dyn Stashed>>,
}

impl<P: Actor> ActorCell<P> {
    pub fn new(actor: P, shared: Arc<SharedInbox>, kind: u16) -> Self {
        ActorCell {
            inbox: VecDeque::new(),
            actor,
            phase: ActorPhase::New,
            granted: false,
            kind,
            shared,
            stash: VecDeque::new(),
        }
    }

    /// Returns true if the actor has started and has no waiting sends.
    fn is_plain(&self) -> bool {
        self.phase == ActorPhase::Running && self.stash.is_empty()
    }

    /// Handles messages; returns their number and whether the actor wants to stop.
    #[inline]
    fn run_messages(&mut self, outbox: &mut Outbox, budget: u32) -> (u32, bool) {
        let mut stopping = false;
        let mut context = Context {
            outbox,
            shared: &self.shared,
            kind: self.kind,
            stash: &mut self.stash,
            stopping: &mut stopping,
            message: PhantomData,
        };
        let mut handled = 0;
        while handled < budget {
            let Some(message) = self.inbox.pop_front() else {
                break;
            };
            handled += 1;
            self.actor.handle(message, &mut context);
            if *context.stopping || !context.stash.is_empty() {
                break;
            }
        }
        (handled, stopping)
    }

    /// Like `run_messages`, for an actor that starts, ends, or has waiting sends.
    #[cold]
    fn run_special(&mut self, outbox: &mut Outbox, budget: u32) -> (u32, bool) {
        if !self.stash.is_empty() {
            self.retry_stash(outbox);
        }
        let mut stopping = false;
        let mut handled = 0;
        let mut context = Context {
            outbox,
            shared: &self.shared,
            kind: self.kind,
            stash: &mut self.stash,
            stopping: &mut stopping,
            message: PhantomData,
        };
        if self.phase == ActorPhase::New {
            self.phase = ActorPhase::Running;
            self.actor.start(&mut context);
        }
        if self.phase == ActorPhase::Stopping {
            return (0, false);
        }
        while handled < budget && context.stash.is_empty() && !*context.stopping {
            let Some(message) = self.inbox.pop_front() else {
                break;
            };
            handled += 1;
            self.actor.handle(message, &mut context);
        }
        if self.phase == ActorPhase::Finishing
            && self.inbox.is_empty()
            && context.stash.is_empty()
            && !*context.stopping
        {
            self.actor.finish(&mut context);
            *context.stopping = true;
        }
        (handled, stopping)
    }

    #[cold]
    fn retry_stash(&mut self, outbox: &mut Outbox) {
        while let Some(first) = self.stash.front_mut() {
            if first.retry(outbox, std::mem::take(&mut self.granted)) == Attempt::Full {
                break;
            }
            self.stash.pop_front();
        }
        self.granted = false;
    }
}

impl<P: Actor> Runnable for ActorCell<P> {
    #[inline]
    fn run(&mut self, outbox: &mut Outbox, budget: u32) -> TurnOutcome {
        let (handled, stopping) = if self.is_plain() {
            self.run_messages(outbox, budget)
        } else {
            self.run_special(outbox, budget)
        };
        if stopping {
            self.phase = ActorPhase::Stopping;
        }
        let stashed = !self.stash.is_empty();
        TurnOutcome {
            handled,
            left: self.inbox.len() as u32,
            stashed,
            end: if self.phase == ActorPhase::Stopping && !stashed {
                ActorEnd::Stopped
            } else {
                ActorEnd::Alive
            },
        }
    }

    #[inline]
    fn inbox(&mut self) -> &mut dyn Any {
        &mut self.inbox
    }

    fn absorb(&mut self, late: &mut (dyn Any + Send)) -> u32 {
        let late = late
            .downcast_mut::<VecDeque<P::Message>>()
            .expect("an inbox has one type of message");
        self.inbox.append(late);
        self.inbox.len() as u32
    }

    fn pending(&self) -> u64 {
        (self.inbox.len() + self.stash.len()) as u64
    }

    fn set_finish(&mut self) {
        if self.phase == ActorPhase::Running {
            self.phase = ActorPhase::Finishing;
        }
    }

    fn grant(&mut self) {
        self.granted = true;
    }

    fn waits_for(&self) -> Option<Arc<SharedInbox>> {
        let target = self.stash.front()?.target();
        (target.gate() == FULL).then(|| target.clone())
    }
}
