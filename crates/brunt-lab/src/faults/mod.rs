//! Controller faults: trouble of a whole host or of a process of ours. One file each.

mod freeze;

pub use freeze::Freeze;
