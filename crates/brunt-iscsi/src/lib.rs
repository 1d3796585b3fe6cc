//! iSCSI, both ends: pure sessions under thin drivers.
//!
//! - [`scsi`]: a logical unit: what SPC-4 and SBC-3 say, over a `brunt-block` backend;
//! - [`target_node`]: sessions, connections, and the threads that drive them;
//! - [`params`]: the text keys both ends negotiate;
//! - [`chap`]: authentication, both roles;
//! - [`said`]: SCSI's words in a device's error, both ways;
//! - [`initiator`]: a session to a remote LUN, seen as a `brunt_block::Device`.
//!
//! The one rule: protocol rules are structs that take messages and give actions; only the
//! `driver` files touch a ring, a socket or a clock.
#![forbid(unsafe_code)]

pub mod chap;
pub mod initiator;
pub mod params;
pub mod said;
pub mod scsi;
mod tag;
pub mod target_node;

/// What this crate adds to the table of backends of `brunt-block`: every program that opens device URLs
/// hands these over.
pub static BACKENDS: &[brunt_block::table::BackendEntry] = &[initiator::ENTRY];
