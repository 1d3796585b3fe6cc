//! iSCSI initiator and target: pure sessions under thin drivers.
//!
//! - [`scsi`]: a logical unit: SPC-4 and SBC-3 over a `brunt-block` backend;
//! - [`target_node`]: sessions, connections, and the threads that drive them;
//! - [`params`]: negotiation of text keys, for both sides;
//! - [`chap`]: authentication, both roles;
//! - [`device_errors`]: converts SCSI errors to device errors and back;
//! - [`initiator`]: a session with a remote LUN, as a `brunt_block::Device`;
//! - [`local_disk`]: names of this machine's disks.
//!
//! The one rule: protocol rules are structs that take messages and return actions; only the `driver` files touch a
//! ring, a socket or a clock.
#![forbid(unsafe_code)]

pub mod chap;
pub mod device_errors;
pub mod initiator;
pub mod local_disk;
pub mod params;
pub mod scsi;
mod tag;
pub mod target_node;

/// The entries that this crate adds to the backend table of `brunt-block`; every program that opens device URLs
/// includes them.
pub static BACKENDS: &[brunt_block::table::BackendEntry] = &[initiator::ENTRY];
