#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod actor;
mod address;
pub mod bench;
mod home;
mod inbound;
mod lane;
mod outbox;
mod process;
mod scheduler;
mod stats;
mod sync;
mod system;
mod topology;
mod wait;

pub use address::{Address, Refused};
pub use process::{CAPACITY_DEFAULT, Context, Options, Process, TimerId};
pub use stats::{
    FAILURES_MAX, Failure, FailureKind, ProcessId, ProcessState, ProcessStats, Report, SchedulerStats,
    Snapshot,
};
pub use system::{Builder, Manual, Shutdown, System};
pub use topology::Placement;
