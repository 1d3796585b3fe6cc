//! A server for NBD clients (QEMU, libnbd, the kernel, Brunt): any backend as an export.
//!
//! - [`offer`]: the handshake, without I/O;
//! - [`requests`]: what a request may do and how it is answered, without I/O;
//! - `connection`: moves bytes between a socket and a device, with one thread and one ring per connection;
//! - `tally`: counters of connections, and their sums;
//! - [`tls`]: the server's certificates, and whether clients may connect without TLS;
//! - `error`: maps a device's errors to NBD.
//!
//! The one rule: memory use is bounded per client and for all clients together,
//! and a client can only break its own connection.

mod connection;
mod error;
pub mod offer;
pub mod requests;
mod tally;
pub mod tls;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use brunt_block::Backend;
use brunt_block::reception::{Reception, ReceptionCounts, ReceptionDoor, ReceptionListener};
use brunt_block::socket::SocketOptions;

use tally::Totals;
use tls::NbdServerTls;

/// Default maximum of concurrent connections.
pub const CONNECTIONS_MAX: usize = 128;

/// Bytes of data at devices and queued replies, of all connections together, beyond which a connection reads no further
/// request while it has requests in progress.
pub const HELD_BYTES_MAX_ALL: usize = 512 << 20;

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

/// Returns the current exports. Called once per connection, so that they may change. The
/// first is the default, for clients that name none.
pub type NbdCatalog = dyn Fn() -> Vec<NbdServed> + Send + Sync;

/// Counters of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NbdServerStats {
    /// Accepted connections.
    pub connections: u64,
    /// Connections refused because of the limit.
    pub refused: u64,
    /// Connections that ended because of what their client sent, or because of an error of the server.
    pub broken: u64,
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
    address: Option<SocketAddr>,
}

impl NbdServer {
    /// Serves the catalog's exports; with `tls`, over TLS.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(
        door: ReceptionDoor,
        catalog: Arc<NbdCatalog>,
        tls: Option<NbdServerTls>,
        sockets: SocketOptions,
        listener: ReceptionListener,
    ) -> io::Result<NbdServer> {
        let address = door.address()?;
        let totals = Arc::new(Totals::default());
        let of_connection = Arc::clone(&totals);
        let reception = Reception::open(
            "nbd",
            door,
            CONNECTIONS_MAX,
            listener,
            move |socket, guest| {
                connection::run(
                    socket,
                    guest,
                    &*catalog,
                    tls.as_ref(),
                    &sockets,
                    &of_connection,
                )
            },
        )?;
        Ok(NbdServer {
            reception,
            totals,
            address,
        })
    }

    /// The port's address; `None` for a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The counters so far.
    pub fn stats(&self) -> NbdServerStats {
        let ReceptionCounts {
            connections,
            refused,
            broken,
        } = self.reception.counts();
        NbdServerStats {
            connections,
            refused,
            broken,
            ..self.totals.sum()
        }
    }

    /// Closes all connections and the listener; returns the counters.
    pub fn shutdown(mut self) -> NbdServerStats {
        self.reception.close();
        self.stats()
    }
}
