//! Faults of a host, of a process or of a link; one per file.

mod cpu;
pub(crate) mod disk;
mod freeze;
mod kill;
mod link;
mod memory;
mod netem;
mod other;
mod partition;
mod reset;
#[cfg(test)]
pub(crate) mod sleeper;

pub use crate::io_group::DiskLimits;
pub use cpu::{CpuHog, usable_cores};
pub use disk::{Processes, SlowDisk};
pub use freeze::Freeze;
pub use kill::{Kill, Restart, kill_below};
pub use link::LinkChange;
pub(crate) use link::longest;
pub use memory::{MemoryHog, available_memory};
pub use netem::Netem;
pub use other::{FreezeOther, KillOther, OtherProcess, ProcessError};
pub use partition::Partition;
pub(crate) use partition::{Course, Leaving};
pub use reset::TcpReset;
