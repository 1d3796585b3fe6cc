//! Sheepdog: a virtual disk (VDI) in a cluster of sheep as a device on the ring, using the cluster's client protocol.
//!
//! - [`url`]: URLs and their options;
//! - [`connect`]: connects, locks the VDI, reads its inode; blocking, with a deadline;
//! - [`objects`]: which data objects the disk has, shared by all threads of a process;
//! - [`session`]: requests and responses of one connection, without I/O;
//! - [`device`]: the backend; `link` moves bytes between a connection and its session;
//! - [`device_errors`]: maps a server's results to a device's errors.
//!
//! The one rule: an object is written before the inode refers to it, and a request is answered after both. A crash in
//! between leaves an unreferenced object, but never a disk that refers to a missing one.

pub mod connect;
mod connect_error;
pub mod device;
pub mod device_errors;
mod link;
pub mod objects;
pub mod session;
pub mod url;

pub use connect_error::SheepdogConnectError;
pub use device::{SHEEPDOG, SheepdogBackend};
