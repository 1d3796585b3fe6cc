//! Spawns an actor: reserves a slot at a home and creates its inbox and address.
//!
//! Called from outside and by actors. The rule: `start` runs before the first message, because the
//! actor is queued before its address is published.

use std::sync::Arc;

use crate::actor::{Actor, ActorOptions, Near};
use crate::address::{Address, SharedInbox};
use crate::cell::ActorCell;
use crate::inbox::{Inbox, capacity_min};
use crate::machine::Inner;
use crate::stats::ActorId;
use crate::sync::{Ordering, lock};

/// Consecutive actors spawned from outside share a home in blocks of this size, because actors
/// spawned together tend to talk to each other.
const SPAWN_BLOCK: u64 = 16;

/// Spawns an actor on the home that its options name, or on the next home in turn.
pub(crate) fn spawn<P: Actor>(
    system: &Arc<Inner>,
    actor: P,
    options: ActorOptions,
) -> Address<P::Message> {
    let count = system.homes.len();
    let serial = system.spawned.fetch_add(1, Ordering::Relaxed);
    let index = match options.home {
        Some(Near::Scheduler(index)) => index % count,
        Some(Near::Other(id)) => usize::from(id.home) % count,
        None => (serial / SPAWN_BLOCK) as usize % count,
    };
    let capacity = options.capacity.max(capacity_min(count));
    let kind = system.kind_of::<P::Message>();
    let home = &system.homes[index];
    let mut state = lock(&home.state);
    let (slot, generation) = state.reserve();
    let id = ActorId {
        home: index as u16,
        slot,
        generation,
    };
    let name = options
        .name
        .unwrap_or_else(|| format!("actor-{serial}").into())
        .into();
    let inbox = Inbox::new(id, serial, name, capacity, count);
    let shared = Arc::new(SharedInbox {
        inbox,
        system: system.clone(),
    });
    state.install(
        shared.clone(),
        Box::new(ActorCell::new(actor, shared.clone(), kind)),
    );
    home.runnable.store(state.runnable(), Ordering::SeqCst);
    drop(state);
    home.poke();
    Address::new(shared, kind)
}
