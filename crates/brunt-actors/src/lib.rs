#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod actor;
mod address;
pub mod bench;
mod cell;
mod cpu_list;
mod home;
mod inbound;
mod inbox;
mod lane;
mod machine;
mod outbox;
mod runnable;
mod scheduler;
mod spawn;
mod stats;
mod sync;
mod system;
mod topology;
mod wait;

pub use actor::{Actor, ActorOptions, CAPACITY_DEFAULT, Context};
pub use address::{Address, Refused};
pub use cpu_list::{CpuList, CpuListError};
pub use stats::{
    ActorFailure, ActorFailureKind, ActorId, ActorState, ActorStats, FAILURES_MAX, SchedulerStats,
    Snapshot, SystemReport,
};
pub use system::{Builder, Manual, Shutdown, System};
pub use topology::{Placement, pin_thread, thread_cpus};
