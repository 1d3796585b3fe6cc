//! A server for NBD clients (QEMU, libnbd, the kernel, Brunt) that exports any backend.
//!
//! - [`offer`]: the handshake, without I/O;
//! - [`requests`]: what a request may do and how it is answered, without I/O;
//! - `connection`: moves bytes between a socket and a device, with one thread and one ring per connection;
//! - `memory`: shares data memory between connections;
//! - `tally`: counters of connections, and their sums;
//! - [`tls`]: the server's certificates, and whether clients may connect without TLS;
//! - `error`: maps a device's errors to NBD.
//!
//! The one rule: memory use is bounded per client and for all clients together, and a client can only break its own
//! connection.

mod connection;
mod error;
mod memory;
pub mod offer;
pub mod requests;
mod tally;
#[cfg(test)]
mod tests;
pub mod tls;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use brunt_block::Backend;
use brunt_block::reception::{ListeningSocket, Reception, ReceptionCounts, ReceptionListener};
use brunt_block::socket::SocketOptions;

use memory::Memory;
use tally::Totals;
use tls::NbdServerTls;

/// Default maximum number of concurrent connections.
pub const CONNECTIONS_MAX: usize = 128;

/// Memory for the data of requests and replies of all connections: their own memory and the memory that they share.
pub const MEMORY_BYTES_MAX: usize = 512 << 20;
/// Each connection's own memory, so that small requests don't wait: its ring's arena, and memory from the heap.
const ARENA_BYTES: usize = 1 << 20;
const OWN_BYTES: usize = 512 << 10;
/// A client that takes and sends no data for this long is disconnected if others wait for memory. Two lost TCP
/// retransmissions take less time.
const STUCK_TIME: Duration = Duration::from_secs(2);

/// Limits of a server's memory for the data of requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdMemoryLimits {
    /// Bytes shared by all connections; requests are limited to the largest power of two that fits in a quarter of
    /// this.
    pub shared_bytes: usize,
    /// Bytes in the arena of each connection's ring.
    pub arena_bytes: usize,
    /// Additional bytes that each connection may take from the heap.
    pub own_bytes: usize,
    /// How long a client may take and send no data while others wait for memory.
    pub stuck_after: Duration,
}

impl NbdMemoryLimits {
    /// The longest payload. Encrypting a reply takes slightly more than the same amount again.
    fn payload_max(&self) -> u32 {
        let quarter = (self.shared_bytes / 4).max(1);
        1 << quarter.ilog2().min(31)
    }
}

impl Default for NbdMemoryLimits {
    fn default() -> NbdMemoryLimits {
        NbdMemoryLimits {
            shared_bytes: MEMORY_BYTES_MAX - CONNECTIONS_MAX * (ARENA_BYTES + OWN_BYTES),
            arena_bytes: ARENA_BYTES,
            own_bytes: OWN_BYTES,
            stuck_after: STUCK_TIME,
        }
    }
}

/// One export.
#[derive(Clone)]
pub struct NbdServed {
    /// The name by which clients request it.
    pub name: String,
    /// The description.
    pub description: String,
    /// The backend that it exports.
    pub backend: Arc<dyn Backend>,
    /// Whether writes are refused.
    pub read_only: bool,
}

/// Returns the current exports. Called once per connection, so that exports may change. The first one is the default,
/// for clients that request no name.
pub type NbdCatalog = dyn Fn() -> Vec<NbdServed> + Send + Sync;

/// Counters of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NbdServerStats {
    /// Accepted connections.
    pub connections: u64,
    /// Connections refused because of the limit.
    pub refused: u64,
    /// Connections that ended because of data from their client or because of a server error.
    pub broken: u64,
    /// Broken connections that were closed because their clients took and sent no data while others waited for memory.
    pub stuck: u64,
    /// Peak bytes of shared memory in use.
    pub shared_bytes_peak: u64,
    /// Requests answered.
    pub requests: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Payload bytes of reads.
    pub sent_bytes: u64,
    /// Payload bytes of writes.
    pub received_bytes: u64,
}

/// A running server. Dropping it stops it.
pub struct NbdServer {
    reception: Reception,
    totals: Arc<Totals>,
    memory: Arc<Memory>,
    address: Option<SocketAddr>,
}

impl NbdServer {
    /// Serves the catalog's exports, over TLS if `tls` is given.
    ///
    /// # Errors
    /// A system call failed.
    pub fn start(
        listening: ListeningSocket,
        catalog: Arc<NbdCatalog>,
        tls: Option<NbdServerTls>,
        sockets: SocketOptions,
        memory: NbdMemoryLimits,
        listener: ReceptionListener,
    ) -> io::Result<NbdServer> {
        let address = listening.address()?;
        let totals = Arc::new(Totals::default());
        let memory = Arc::new(Memory::new(memory));
        let of_connection = (Arc::clone(&memory), Arc::clone(&totals));
        let reception = Reception::open(
            "nbd",
            listening,
            CONNECTIONS_MAX,
            listener,
            move |socket, guest| {
                connection::run(
                    socket,
                    guest,
                    &*catalog,
                    tls.as_ref(),
                    &sockets,
                    &of_connection.0,
                    &of_connection.1,
                )
            },
        )?;
        Ok(NbdServer {
            reception,
            totals,
            memory,
            address,
        })
    }

    /// The port's address; `None` for a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Counters so far.
    pub fn stats(&self) -> NbdServerStats {
        let ReceptionCounts {
            connections,
            refused,
            broken,
        } = self.reception.counts();
        let (peak_bytes, stuck) = self.memory.peak_and_stuck();
        NbdServerStats {
            connections,
            refused,
            broken,
            stuck,
            shared_bytes_peak: peak_bytes as u64,
            ..self.totals.sum()
        }
    }

    /// Closes all connections and the listener; returns the counters.
    pub fn shutdown(mut self) -> NbdServerStats {
        self.reception.close();
        self.stats()
    }
}
