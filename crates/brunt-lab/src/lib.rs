//! The environment of an experiment: hosts (network namespaces), links between them that delay, lose and reorder
//! packets, and faults (a busy CPU, locked memory, a frozen process) whose start and end are both proven.
//!
//! The rule: no part of a lab outlives the process that created it, however that process ends.

#![deny(unsafe_code)]

pub mod enter;
mod error;
pub mod fault;
pub mod faults;
mod guard;
pub mod helper;
mod host;
mod io_group;
mod lab;
pub mod link;
mod meter;
mod names;
mod netlink;
pub mod outside;
mod process;
mod routes;
mod scratch;
pub mod service;
pub mod stage;
mod start_again;
#[allow(unsafe_code, reason = "system calls that std and rustix lack")]
mod sys;
mod wiring;

pub use enter::{EnterError, HostNamespaces};
pub use error::{LabError, remedy};
pub use fault::{Fault, FaultError, Proof};
pub use faults::{LinkChange, Partition, TcpReset, available_memory, usable_cores};
pub use host::Host;
pub use lab::{HOSTS_MAX, LINKS_MAX, Lab};
pub use link::{Link, LinkError, LinkHandle};
pub use meter::Meter;
pub use process::below;
pub use scratch::{FOLDERS_VARIABLE, ServiceFolder};
pub use stage::Entered;
pub use wiring::{Carrier, LinkConfig};
