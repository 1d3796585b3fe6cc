//! The stage for an experiment: hosts that are network namespaces, links between them that delay,
//! lose and reorder, and trouble (a busy processor, locked memory, a frozen process) that is proven
//! when it begins and proven gone when it ends.
//!
//! The rule: nothing of a lab outlives the process that made it, whatever ends that process.

pub mod fault;
pub mod faults;

pub use fault::{Fault, FaultError, Proof};
