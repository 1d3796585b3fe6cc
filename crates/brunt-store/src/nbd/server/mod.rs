//! A server of NBD clients (QEMU, libnbd, the kernel's, our own): any backend as an export.
//!
//! - [`offer`]: the handshake, without I/O;
//! - [`serving`]: what a request may do and how it is answered, without I/O;
//! - `connection`: moves bytes between a socket and a device, one thread and one ring for each connection;
//! - `tally`: what connections count, and the sums;
//! - [`tls`]: what it shows to clients, and whether they may do without;
//! - `error`: a device's errors as NBD has them.
//!
//! The one rule: a client can only use a bounded amount of memory, all clients together too, and only break its own
//! connection.

mod connection;
mod error;
pub mod offer;
pub mod serving;
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

/// Connections at once, where nobody says otherwise.
pub const CONNECTIONS_MAX: usize = 128;

/// Data at devices and answers queued, in bytes, of all connections together. Beyond it a connection looks at no further request
/// while it has some under way itself.
pub const HELD_BYTES_MAX_ALL: usize = 512 << 20;

/// One export.
#[derive(Clone)]
pub struct NbdServed {
    /// By which clients ask for it.
    pub name: String,
    /// In words.
    pub description: String,
    /// What is behind it.
    pub backend: Arc<dyn Backend>,
    /// Writes are refused.
    pub read_only: bool,
}

/// Says which exports there are. Asked once for each connection, so that they may come and go. The first is what
/// clients get that name none.
pub type NbdCatalog = dyn Fn() -> Vec<NbdServed> + Send + Sync;

/// What a server did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NbdServerStats {
    /// Connections that were let in.
    pub connections: u64,
    /// Connections that were one too many.
    pub refused: u64,
    /// Connections that ended because of what their client sent, or for trouble of our own.
    pub broken: u64,
    /// Requests answered.
    pub requests: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Payload of reads.
    pub sent_bytes: u64,
    /// Payload of writes.
    pub received_bytes: u64,
}

/// A server that listens. Dropping it ends it.
pub struct NbdServer {
    reception: Reception,
    totals: Arc<Totals>,
    address: Option<SocketAddr>,
}

impl NbdServer {
    /// Serves what the catalog has; with `tls`, through TLS.
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

    /// What it did so far.
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

    /// Closes everything; what it did.
    pub fn shutdown(mut self) -> NbdServerStats {
        self.reception.close();
        self.stats()
    }
}
