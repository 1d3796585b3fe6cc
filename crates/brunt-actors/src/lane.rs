//! Batches messages of one type from one scheduler to one home in one buffer.
//!
//! Sending a single message across cores costs a few cache line transfers. A lane carries a batch,
//! so all its messages share that cost. Buffers are swapped, never freed: once they have grown,
//! sending allocates nothing.

use std::any::Any;

pub(crate) struct LaneMessage<M> {
    pub slot: u32,
    pub generation: u32,
    pub message: M,
}

/// Receives messages of any type: implemented by homes, which put them into inboxes.
pub(crate) trait Accept {
    /// Puts a message into its receiver's inbox.
    fn accept<M: Send + 'static>(&mut self, envelope: LaneMessage<M>);
}

/// A lane to a home `H`. Only the lane's sender and receiver know the type of its messages.
pub(crate) trait AnyLane<H>: Any + Send {
    fn len(&self) -> usize;
    /// Returns an empty lane of the same type.
    fn fresh(&self) -> Box<dyn AnyLane<H>>;
    /// Moves all messages to the end of `to`, a lane of the same type.
    fn append_to(&mut self, to: &mut dyn AnyLane<H>);
    /// Puts all messages into the inboxes of `home`.
    fn deliver(&mut self, home: &mut H);
}

pub(crate) struct TypedLane<M>(pub Vec<LaneMessage<M>>);

impl<H: Accept + 'static, M: Send + 'static> AnyLane<H> for TypedLane<M> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn fresh(&self) -> Box<dyn AnyLane<H>> {
        Box::new(TypedLane::<M>(Vec::new()))
    }

    fn append_to(&mut self, to: &mut dyn AnyLane<H>) {
        typed::<H, M>(to).append(&mut self.0);
    }

    fn deliver(&mut self, home: &mut H) {
        for envelope in self.0.drain(..) {
            home.accept(envelope);
        }
    }
}

#[inline]
fn typed<H: 'static, M: Send + 'static>(lane: &mut dyn AnyLane<H>) -> &mut Vec<LaneMessage<M>> {
    let lane: &mut dyn Any = lane;
    &mut lane
        .downcast_mut::<TypedLane<M>>()
        .expect("each lane kind has one message type")
        .0
}

/// Lanes to one home, indexed by message type.
pub(crate) struct Lanes<H> {
    by_kind: Vec<Option<Box<dyn AnyLane<H>>>>,
    count: usize,
}

impl<H> Default for Lanes<H> {
    fn default() -> Self {
        Lanes {
            by_kind: Vec::new(),
            count: 0,
        }
    }
}

impl<H: Accept + 'static> Lanes<H> {
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    #[inline]
    pub fn push<M: Send + 'static>(&mut self, kind: u16, envelope: LaneMessage<M>) {
        self.count += 1;
        // Creating the lane doesn't involve the envelope, so the envelope stays in registers.
        let lane = match self.by_kind.get_mut(usize::from(kind)) {
            Some(Some(lane)) => lane,
            _ => self.first::<M>(usize::from(kind)),
        };
        typed(&mut **lane).push(envelope);
    }

    #[cold]
    fn first<M: Send + 'static>(&mut self, kind: usize) -> &mut Box<dyn AnyLane<H>> {
        if self.by_kind.len() <= kind {
            self.by_kind.resize_with(kind + 1, || None);
        }
        self.by_kind[kind].insert(Box::new(TypedLane::<M>(Vec::new())))
    }

    /// Moves all messages to the end of `to`: swaps buffers where `to` is empty, copies otherwise.
    pub fn append_to(&mut self, to: &mut Lanes<H>) {
        if self.count == 0 {
            return;
        }
        if to.count == 0 {
            std::mem::swap(self, to);
            return;
        }
        if to.by_kind.len() < self.by_kind.len() {
            to.by_kind.resize_with(self.by_kind.len(), || None);
        }
        for (from, into) in self.by_kind.iter_mut().zip(&mut to.by_kind) {
            let Some(from) = from.as_mut().filter(|lane| lane.len() > 0) else {
                continue;
            };
            from.append_to(&mut **into.get_or_insert_with(|| from.fresh()));
        }
        to.count += std::mem::take(&mut self.count);
    }

    pub fn deliver(&mut self, home: &mut H) {
        if self.count > 0 {
            for lane in self
                .by_kind
                .iter_mut()
                .flatten()
                .filter(|lane| lane.len() > 0)
            {
                lane.deliver(home);
            }
            self.count = 0;
        }
    }
}
