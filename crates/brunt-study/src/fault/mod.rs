//! The faults of an experiment: what they are, how they come about, and when. [`FaultSchedule`] goes along
//! with every run; [`FaultDriver`] is what it asks of a fault of any kind.
//!
//! The rule: a fault is proven before it counts, and proven gone; one that was not seen voids its run.

mod actor;
mod driver;
mod member;
mod process;
mod schedule;
mod series;
mod storage;

pub use driver::{DriverError, FaultDriver};
pub use schedule::{FaultSchedule, ScheduleError};

#[cfg(test)]
mod tests;
