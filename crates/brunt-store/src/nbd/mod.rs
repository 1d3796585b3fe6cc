//! NBD, both sides: a client of NBD servers (nbdkit, QEMU, nbd-server and others) as a device on the ring, and a
//! server.
//!
//! - [`url`]: URLs as specified by the protocol, and their options;
//! - [`handshake`]: the client's handshake, without I/O;
//! - [`connect`]: connects, blocking, with a deadline; queries export lists and block status;
//! - [`session`]: requests and replies of one connection, without I/O;
//! - [`device`]: the backend; `link` moves bytes between a connection and its session;
//! - `listener`: whether two addresses of this machine belong to the same server;
//! - `tls`: the client's encryption; `pem`: certificate files;
//! - [`device_errors`]: maps a server's errors to a device's;
//! - [`server`]: the server.
//!
//! The one rule: everything that a server sends is checked against the request; a reply that doesn't match ends the
//! connection.

pub mod connect;
mod connect_error;
pub mod device;
pub mod device_errors;
mod export;
pub mod handshake;
mod link;
mod listener;
mod pem;
pub mod server;
pub mod session;
mod tls;
pub mod url;

pub use connect_error::NbdConnectError;
pub use device::{NBD, NBD_UNIX, NBDS, NBDS_UNIX, NbdBackend};
pub use export::NbdExport;
pub use pem::CertificateFileError;
