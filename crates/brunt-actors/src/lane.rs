//! Messages of one type on their way from one scheduler to one home, in one buffer.
//!
//! A message that crosses cores costs a few cache line transfers when sent alone. A lane carries
//! a batch, so that they are shared by all messages in it. Buffers are swapped, never freed: once
//! they have grown, sending allocates nothing.

use std::any::Any;

use crate::home::HomeState;

pub(crate) struct Envelope<M> {
    pub slot: u32,
    pub generation: u32,
    pub message: M,
}

/// A lane whose type of message is known to its sender and its receiver only.
pub(crate) trait Lane: Any + Send {
    fn len(&self) -> usize;
    /// An empty one of the same type.
    fn fresh(&self) -> Box<dyn Lane>;
    /// Moves all messages to the end of `to`, a lane of the same type.
    fn append_to(&mut self, to: &mut dyn Lane);
    /// Puts all messages into the inboxes of `home`.
    fn deliver(&mut self, home: &mut HomeState);
}

pub(crate) struct TypedLane<M>(pub Vec<Envelope<M>>);

impl<M: Send + 'static> Lane for TypedLane<M> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn fresh(&self) -> Box<dyn Lane> {
        Box::new(TypedLane::<M>(Vec::new()))
    }

    fn append_to(&mut self, to: &mut dyn Lane) {
        typed::<M>(to).append(&mut self.0);
    }

    fn deliver(&mut self, home: &mut HomeState) {
        for envelope in self.0.drain(..) {
            home.accept(envelope);
        }
    }
}

#[inline]
fn typed<M: Send + 'static>(lane: &mut dyn Lane) -> &mut Vec<Envelope<M>> {
    let lane: &mut dyn Any = lane;
    &mut lane.downcast_mut::<TypedLane<M>>().expect("a lane's kind stands for one type").0
}

/// Lanes to one home, by kind of message.
#[derive(Default)]
pub(crate) struct Lanes {
    by_kind: Vec<Option<Box<dyn Lane>>>,
    count: usize,
}

impl Lanes {
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    #[inline]
    pub fn push<M: Send + 'static>(&mut self, kind: u16, envelope: Envelope<M>) {
        self.count += 1;
        if let Some(Some(lane)) = self.by_kind.get_mut(usize::from(kind)) {
            typed(&mut **lane).push(envelope);
        } else {
            self.push_first(kind, envelope);
        }
    }

    #[cold]
    fn push_first<M: Send + 'static>(&mut self, kind: u16, envelope: Envelope<M>) {
        let kind = usize::from(kind);
        if self.by_kind.len() <= kind {
            self.by_kind.resize_with(kind + 1, || None);
        }
        self.by_kind[kind] = Some(Box::new(TypedLane(vec![envelope])));
    }

    /// Moves everything to the end of `to`. Empty buffers change places, full ones are copied.
    pub fn append_to(&mut self, to: &mut Lanes) {
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
            let Some(from) = from.as_mut().filter(|lane| lane.len() > 0) else { continue };
            from.append_to(&mut **into.get_or_insert_with(|| from.fresh()));
        }
        to.count += std::mem::take(&mut self.count);
    }

    pub fn deliver(&mut self, home: &mut HomeState) {
        if self.count > 0 {
            for lane in self.by_kind.iter_mut().flatten().filter(|lane| lane.len() > 0) {
                lane.deliver(home);
            }
            self.count = 0;
        }
    }
}
