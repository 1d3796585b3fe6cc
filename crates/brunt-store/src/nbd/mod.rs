//! NBD, both ends: a client of NBD servers (nbdkit, QEMU, nbd-server and others) as a device on the ring, and a server.
//!
//! - [`url`]: URLs as the protocol's document on them says, and their options;
//! - [`haggling`]: the handshake, without I/O;
//! - [`connect`]: makes a connection, blocking, with a deadline; asks for lists and block status;
//! - [`session`]: requests and replies of one connection, without I/O;
//! - [`device`]: the backend; `link`, one connection on the ring and its way back;
//! - `tls`, how a client encrypts; `pem`, files with certificates;
//! - [`said`]: a server's errors in a device's;
//! - [`server`]: the other end.
//!
//! The one rule: what a server sends is held against what was asked; a reply that does not fit ends the connection.

pub mod connect;
mod connect_error;
pub mod device;
mod export;
pub mod haggling;
mod link;
mod pem;
pub mod said;
pub mod server;
pub mod session;
mod tls;
pub mod url;

pub use connect_error::NbdConnectError;
pub use device::{NBD, NBD_UNIX, NBDS, NBDS_UNIX, NbdBackend};
pub use export::NbdExport;
pub use pem::CertificateFileError;
