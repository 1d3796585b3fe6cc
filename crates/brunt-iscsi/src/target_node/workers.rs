//! Distributes connections that have logged in over worker threads. Called by `acceptor`, and by a [`worker`] that has
//! no connections left.
//!
//! There are at most as many shared workers as cores. The first connections get one worker each; after that, a
//! connection goes to the worker with the fewest connections. A worker's thread and ring exist only while it has
//! connections.
//!
//! A connection has a worker to itself if it could hold up others: if a backend of its target may wait
//! ([`brunt_block::Backend::may_wait`]), or with the `threads` engine, whose waits take longer the more sockets there
//! are. A LUN of such a backend that is added later is opened by the worker that the connection already has.
//!
//! The rule: a connection is in exactly one worker's inbox or slots, and is counted there until it has ended.

use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use brunt_block::ring::{engine, polling_threads_max};
use brunt_block::{RingConfig, Waker};
use brunt_core::IoEngine;

use super::login::LoggedInConnection;
use super::server_state::{Seat, ServerState, lock};
use super::worker;

/// The workers of a server.
pub(super) struct Workers {
    shared: Mutex<Vec<Arc<WorkerHandle>>>,
    shared_max: usize,
}

/// A connection on its way to a worker.
pub(super) struct NewConnection {
    pub logged_in: Box<LoggedInConnection>,
    pub socket: TcpStream,
    /// Data received after the last login request.
    pub early: Vec<u8>,
    pub seat: Seat,
}

/// A worker, as seen by other threads.
pub(super) struct WorkerHandle {
    inbox: Mutex<Inbox>,
    /// Whether the worker takes several connections.
    is_shared: bool,
}

#[derive(Default)]
struct Inbox {
    arrived: Vec<NewConnection>,
    /// Number of connections, including those that have just arrived.
    connections: usize,
    /// `None` until the worker has a ring.
    waker: Option<Waker>,
}

impl Workers {
    /// With `poll`, there are as many shared workers as threads may poll; more would only take turns with each other.
    pub fn new(poll: bool) -> Workers {
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
        Workers {
            shared: Mutex::default(),
            shared_max: match poll {
                true => polling_threads_max() as usize,
                false => cores(),
            },
        }
    }

    /// Hands a connection to a worker. If no thread can be started, the connection goes to another shared worker; it
    /// is closed if it needs its own worker or there is none, and the initiator will then try again later.
    pub fn hand_over(state: &Arc<ServerState>, new: NewConnection) {
        if needs_own_thread(&new) {
            let id = new.seat.connection();
            let own = Arc::new(WorkerHandle::new(false));
            own.put(new);
            let _ = start(state, &own, format!("connection {id}"));
            return;
        }
        let Workers { shared, shared_max } = &state.workers;
        let mut shared = lock(shared);
        if shared.len() < *shared_max {
            let own = Arc::new(WorkerHandle::new(true));
            if start(state, &own, "connections".into()).is_ok() {
                own.put(new);
                shared.push(own);
                return;
            }
        }
        if let Some(own) = shared.iter().min_by_key(|own| lock(&own.inbox).connections) {
            own.put(new);
        }
    }
}

fn needs_own_thread(new: &NewConnection) -> bool {
    // If there is no engine, the worker reports the error.
    let has_threads = engine::usual_engine().is_ok_and(|engine| engine == IoEngine::Threads);
    let target = new.logged_in.session.target();
    let may_wait = || {
        let units = target.map(|target| target.luns.units());
        let units = units.unwrap_or_default();
        units.iter().any(|(_, unit)| unit.backend().may_wait())
    };
    has_threads || may_wait()
}

/// Starts a worker's thread.
fn start(state: &Arc<ServerState>, own: &Arc<WorkerHandle>, name: String) -> std::io::Result<()> {
    let (state, own) = (Arc::clone(state), Arc::clone(own));
    std::thread::Builder::new()
        .name(name)
        .spawn(move || worker::run(&state, &own))?;
    Ok(())
}

impl WorkerHandle {
    fn new(is_shared: bool) -> WorkerHandle {
        WorkerHandle {
            inbox: Mutex::default(),
            is_shared,
        }
    }

    /// The configuration of the worker's ring.
    pub fn ring_config(&self, poll: bool) -> RingConfig {
        let config = match self.is_shared {
            true => RingConfig::of_connections(),
            false => RingConfig::of_connection(),
        };
        RingConfig {
            never_sleeps: poll,
            ..config
        }
    }

    /// Adds a connection and wakes the worker.
    fn put(&self, new: NewConnection) {
        let mut inbox = lock(&self.inbox);
        inbox.arrived.push(new);
        inbox.connections += 1;
        if let Some(waker) = &inbox.waker {
            waker.wake();
        }
    }

    /// Sets the ring to wake for new connections. Connections may have arrived before.
    pub fn set_waker(&self, waker: Waker) {
        lock(&self.inbox).waker = Some(waker);
    }

    /// Takes the connections that have arrived.
    pub fn take(&self) -> Vec<NewConnection> {
        std::mem::take(&mut lock(&self.inbox).arrived)
    }

    /// Subtracts an ended connection from the count.
    pub fn uncount(&self) {
        lock(&self.inbox).connections -= 1;
    }

    /// Called by a worker without connections. Returns whether the worker may end, because no other connection will
    /// arrive.
    pub fn retire(self: &Arc<WorkerHandle>, workers: &Workers) -> bool {
        // Connections are added only while this lock is held.
        let mut shared = lock(&workers.shared);
        if lock(&self.inbox).connections > 0 {
            return false;
        }
        shared.retain(|other| !Arc::ptr_eq(other, self));
        true
    }
}
