//! Shares a ring among many connections of one thread: reports which of them have work, so a turn of the thread's
//! loop costs nothing for the others.
//!
//! The thread's loop calls [`Ring::work_for`] before it works for a connection. Ports attached and wakers created
//! meanwhile belong to that connection, however deep in a stack of devices this happens. After [`Ring::enter`],
//! [`Ring::take_ready`] names the connections whose ports have completions or whose wakers were used.
//!
//! The rule: a connection with completions is named until it has taken all of them.

use super::Ring;
use super::waker::RingOwner;

impl Ring {
    /// Ports attached and wakers created from now on belong to this owner; `None`: to the thread as a whole.
    #[inline]
    pub fn work_for(&self, owner: Option<RingOwner>) {
        self.inner.owner.set(owner);
    }

    /// Appends the owners that have something to process, in the order of arrival; an owner may occur several times.
    /// Call it after each [`Ring::enter`], before [`Ring::take_woken`].
    pub fn take_ready(&self, owners: &mut Vec<RingOwner>) {
        let known = owners.len();
        owners.append(&mut self.inner.ready_owners.borrow_mut());
        if let Some(wake) = &self.inner.wake
            && wake.woken.get()
        {
            wake.waker.take_owners(owners);
        }
        if owners.len() == known && self.inner.ready.get() > 0 {
            // Nothing new has arrived: names the owners that left completions in their ports.
            let ports = self.inner.ports.borrow();
            let left = ports.iter().filter(|port| !port.done.is_empty());
            owners.extend(left.filter_map(|port| port.owner));
        }
    }
}
