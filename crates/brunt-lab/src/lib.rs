//! The stage for an experiment: hosts that are network namespaces, links between them that delay,
//! lose and reorder, and trouble (a busy processor, locked memory, a frozen process) that is proven
//! when it begins and proven gone when it ends.
//!
//! The rule: nothing of a lab outlives the process that made it, whatever ends that process.

pub mod fault;
pub mod faults;
mod host;
mod lab;
pub mod link;
mod netlink;
mod routes;
pub mod stage;
mod sys;

pub use fault::{Fault, FaultError, Proof};
pub use faults::{LinkChange, Partition, TcpReset};
pub use host::Host;
pub use lab::{Carrier, HOSTS_MAX, LINKS_MAX, Lab, LabError, LinkConfig};
pub use link::{Link, LinkHandle};
pub use stage::Stage;
