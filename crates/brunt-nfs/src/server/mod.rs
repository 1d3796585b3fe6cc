//! A null NFSv3 server: MOUNT, NFS and the port mapper on one port. Names and attributes are kept in memory, data is
//! not: WRITE discards it, and READ returns zeros. `brunt sink --nfs` runs it, and so do benchmarks and tests of the
//! client.
//!
//! `nodes` holds the names and attributes, `procedures` and [`service`] execute calls on them, all without I/O. [`start`] puts the
//! service behind a `brunt_block` sink.
//!
//! The one rule: a client can use only a bounded amount of memory, and every RPC call gets one reply.

mod connection;
mod nodes;
mod procedures;
pub mod service;

pub use connection::start;

/// The exported directory.
pub const EXPORT: &str = "/export";
/// A regular file in it, for block devices.
pub const DISK: &str = "disk";
/// The length of that file.
pub const DISK_BYTES: u64 = 1 << 30;
/// Maximum data of one READ or WRITE.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;
