//! Lets the connections of a logical unit abort each other's tasks (SAM-5, 7), through a request in every
//! connection's mailbox and a ticket that shows when all connections have complied. The one rule: each connection
//! that received a ticket completes it once, even if it closes first.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use brunt_block::Waker;

use super::reservation::PortPair;

/// The resets that a target passes on (SAM-5, 7.6 and 7.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// LOGICAL UNIT RESET.
    LogicalUnit,
    /// TARGET WARM RESET and TARGET COLD RESET, once for each unit.
    Target,
}

/// Tracks whether a task management function is complete on every connection.
#[derive(Clone, Debug)]
pub struct Ticket {
    shared: Arc<TicketShared>,
}

#[derive(Debug)]
struct TicketShared {
    /// Connections that still have tasks to abort.
    remaining: AtomicUsize,
    waker: Waker,
}

impl Ticket {
    pub(super) fn new(waker: Waker) -> Ticket {
        Ticket {
            shared: Arc::new(TicketShared {
                remaining: AtomicUsize::new(0),
                waker,
            }),
        }
    }

    /// Whether the function is complete and can be answered.
    pub fn is_done(&self) -> bool {
        self.shared.remaining.load(Ordering::Acquire) == 0
    }

    pub(super) fn add(&self) {
        self.shared.remaining.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn finish(&self) {
        let remaining = self.shared.remaining.fetch_sub(1, Ordering::AcqRel);
        assert!(remaining > 0, "a connection completes a function once");
        if remaining == 1 {
            self.shared.waker.wake();
        }
    }
}

/// Whose tasks to abort.
#[derive(Clone, Debug)]
pub(super) enum AbortScope {
    Everybody,
    Nexus(u64),
    Ports(PortPair),
}

/// A request to other connections to abort tasks.
#[derive(Clone, Debug)]
pub(super) struct AbortRequest {
    pub scope: AbortScope,
    pub ticket: Option<Ticket>,
    /// The nexus that sent CLEAR TASK SET; other nexuses that lose tasks are notified.
    pub cleared_by: Option<u64>,
}

impl AbortRequest {
    pub fn new(scope: AbortScope) -> AbortRequest {
        AbortRequest {
            scope,
            ticket: None,
            cleared_by: None,
        }
    }
}

/// Receives abort requests from other connections.
#[derive(Debug)]
pub(super) struct Mailbox {
    pending: AtomicBool,
    requests: Mutex<Vec<AbortRequest>>,
    waker: Waker,
}

impl Mailbox {
    pub fn new(waker: Waker) -> Mailbox {
        Mailbox {
            pending: AtomicBool::new(false),
            requests: Mutex::default(),
            waker,
        }
    }

    pub fn put(&self, request: &AbortRequest) {
        if let Some(ticket) = &request.ticket {
            ticket.add();
        }
        self.requests
            .lock()
            .expect("no panic while holding a mailbox")
            .push(request.clone());
        self.pending.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Wakes the connection without a request.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Whether there are requests.
    pub fn has_requests(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// Takes the pending requests.
    pub fn take(&self) -> Vec<AbortRequest> {
        self.pending.store(false, Ordering::Release);
        std::mem::take(
            &mut *self
                .requests
                .lock()
                .expect("no panic while holding a mailbox"),
        )
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        // A closed connection has nothing left to abort.
        for request in self
            .requests
            .get_mut()
            .expect("no panic while holding a mailbox")
        {
            if let Some(ticket) = &request.ticket {
                ticket.finish();
            }
        }
    }
}
