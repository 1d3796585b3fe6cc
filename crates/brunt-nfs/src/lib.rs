//! A client of NFSv3 (RFC 1813) and NFSv4.1 (RFC 8881) without a kernel mount, a file on an NFS server as a
//! `brunt_block::Device`, and a null server.
//!
//! - [`url`]: device URLs and their options;
//! - [`rpc`]: calls and replies of ONC RPC (RFC 5531), and violations by servers;
//! - [`record`]: records in fragments;
//! - [`conversation`]: one call at a time, blocking, with a deadline; [`connect`] finds an export's file with it;
//! - [`v41`]: NFSv3 calls as NFSv4.1 compounds, and their sessions;
//! - [`calls`]: many outstanding calls of one connection, without I/O;
//! - [`disk`]: block requests as READ, WRITE and COMMIT calls, without I/O;
//! - [`operations`]: arbitrary calls on the files of an export as requests, without I/O;
//! - [`device`] and [`folder`]: the backends; `protocol` moves bytes between a connection and a session;
//! - [`device_errors`]: maps a server's errors to a device's;
//! - [`server`]: a server without data, to measure clients.
//!
//! The one rule: protocol rules are structs that take messages and return actions; only [`connect`], [`conversation`],
//! the device and the server's connections touch a socket, a ring or a clock.
#![forbid(unsafe_code)]

pub mod calls;
pub mod connect;
mod connect_error;
pub mod conversation;
pub mod device;
pub mod device_errors;
pub mod disk;
pub mod folder;
pub mod operations;
mod protocol;
pub mod record;
pub mod rpc;
pub mod server;
pub mod url;
pub mod v41;

pub use connect_error::NfsConnectError;
pub use device::{NFS, NfsBackend};
pub use folder::NfsFolder;

/// The entries that this crate adds to the backend table of `brunt-block`; every program that opens device URLs passes
/// them in.
pub static BACKENDS: &[brunt_block::table::BackendEntry] = &[NFS];
