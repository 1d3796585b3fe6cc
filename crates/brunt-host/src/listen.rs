//! Agents that wait for their controller on a port, with TLS. Each connection has a thread.
//!
//! The rule: an unauthenticated peer costs a thread for at most [`HELLO_TIME`] and some kilobytes, learns only the
//! public part of a certificate, and cannot keep controllers out: when too many connections are waiting, the oldest
//! is closed.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::agent::AgentEnd;
use crate::connection::{AgentConfig, serve};
use crate::stream::{MessageStream, StreamError};
use crate::tls::AgentTls;

/// Maximum number of connections with controllers; any further connection is closed immediately.
const CONNECTIONS_MAX: usize = 64;
/// Maximum number of unauthenticated connections; one more closes the oldest.
const WAITING_MAX: usize = 256;
/// A connection that has not authenticated within this time is closed.
const HELLO_TIME: Duration = Duration::from_secs(5);
/// Interval between checks whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A listening agent's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenStats {
    /// Connections with controllers.
    pub controllers: u64,
    /// Connections whose peer did not present a certificate of our authority.
    pub strangers: u64,
    /// Connections closed because of a limit: the oldest without a certificate, or a controller beyond the maximum.
    pub refused: u64,
}

/// Unauthenticated connections by number, so the oldest comes first.
#[derive(Default)]
struct Waiting(Mutex<BTreeMap<u64, TcpStream>>);

impl Waiting {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, TcpStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection; returns whether the oldest had to be closed for it.
    fn add(&self, number: u64, socket: TcpStream) -> bool {
        let mut all = self.all();
        let oldest = (all.len() >= WAITING_MAX)
            .then(|| all.pop_first())
            .flatten();
        all.insert(number, socket);
        if let Some((_, socket)) = &oldest {
            // The connection's thread sees the end of the stream, and ends.
            let _ = socket.shutdown(Shutdown::Both);
        }
        oldest.is_some()
    }

    fn remove(&self, number: u64) {
        self.all().remove(&number);
    }
}

/// An agent that listens on a port.
#[derive(Debug)]
pub struct AgentListener {
    listener: TcpListener,
    address: SocketAddr,
    tls: AgentTls,
    config: AgentConfig,
}

impl AgentListener {
    /// Binds the port; 0 picks a free one.
    ///
    /// # Errors
    /// The port is in use, or the address doesn't belong to this machine.
    pub fn bind(
        address: SocketAddr,
        tls: AgentTls,
        config: AgentConfig,
    ) -> io::Result<AgentListener> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(AgentListener {
            listener,
            address,
            tls,
            config,
        })
    }

    /// The address that the agent listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is set; `note` receives reports about connections. When this returns, all connections have
    /// ended.
    pub fn run(&self, stop: &AtomicBool, note: impl Fn(String) + Sync) -> ListenStats {
        let stats = Mutex::new(ListenStats::default());
        let refused = || stats.lock().unwrap_or_else(PoisonError::into_inner).refused += 1;
        let (waiting, conversations) = (Waiting::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                let Ok((socket, peer)) = self.listener.accept() else {
                    std::thread::sleep(POLL_INTERVAL);
                    continue;
                };
                let Ok(copy) = socket.try_clone() else {
                    refused();
                    continue;
                };
                if waiting.add(number, copy) {
                    refused();
                }
                let place = Place {
                    number,
                    waiting: &waiting,
                    conversations: &conversations,
                };
                number += 1;
                let (stats, note) = (&stats, &note);
                let converse = move || match self.converse(socket, &place, stop, stats) {
                    Ok(AgentEnd::Closed | AgentEnd::Stopped) => {}
                    Ok(AgentEnd::LeaseOver) => {
                        note(format!("{peer}: lost contact with the controller"))
                    }
                    Ok(AgentEnd::Greeting(error)) => note(format!("{peer}: {error}")),
                    Err(error) => note(format!("{peer}: {error}")),
                };
                let started = std::thread::Builder::new()
                    .name("agent".into())
                    .spawn_scoped(scope, converse);
                if let Err(error) = started {
                    note(format!("{peer}: cannot start a thread: {error}"));
                }
            }
        });
        stats.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn converse(
        &self,
        socket: TcpStream,
        place: &Place<'_>,
        stop: &AtomicBool,
        stats: &Mutex<ListenStats>,
    ) -> Result<AgentEnd, StreamError> {
        let greeted = self.tls.seal().map_err(StreamError::from).and_then(|seal| {
            let mut stream = MessageStream::sealed(socket, seal)?;
            stream.greet(HELLO_TIME)?;
            Ok(stream)
        });
        place.waiting.remove(place.number);
        let has_room = greeted.is_err()
            || place.conversations.fetch_add(1, Ordering::Relaxed) < CONNECTIONS_MAX;
        let _conversation = greeted.is_ok().then_some(Conversation(place.conversations));
        let mut counts = stats.lock().unwrap_or_else(PoisonError::into_inner);
        match (&greeted, has_room) {
            (Ok(_), true) => counts.controllers += 1,
            (Ok(_), false) => counts.refused += 1,
            (Err(_), _) => counts.strangers += 1,
        }
        drop(counts);
        match has_room {
            true => serve(greeted?, &self.config, stop),
            false => Ok(AgentEnd::Closed),
        }
    }
}

/// A connection's entry, first among the unauthenticated connections and then among those with controllers. Dropping
/// this removes it.
struct Place<'a> {
    number: u64,
    waiting: &'a Waiting,
    conversations: &'a AtomicUsize,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.waiting.remove(self.number);
    }
}

/// Counts the connection as one with a controller until dropped.
struct Conversation<'a>(&'a AtomicUsize);

impl Drop for Conversation<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
