//! The faults of an experiment: what they are, how they come about, and when. Each kind has a file under
//! [`kinds`] and a line in its table; [`FaultSchedule`] goes along with every run; [`FaultDriver`] is what it
//! asks of a fault of any kind.
//!
//! The rule: a fault is proven before it counts, and proven gone; one that was not seen voids its run.

mod actor;
mod driver;
mod entry;
mod kind;
pub mod kinds;
mod overlap;
mod process;
mod schedule;
mod series;

pub use driver::{DriverError, FaultDriver};
pub(crate) use entry::EntryError;
pub use entry::FaultEntry;
pub use kind::{
    About, FaultCommon, FileMistake, Info, Kind, Mistake, Pair, Prepared, Scene, Side, Stage, Times, Together,
};
pub use kinds::{FaultKind, KINDS};
pub use overlap::{Overlap, overlaps};
pub use schedule::{FaultSchedule, ScheduleError};

#[cfg(test)]
mod tests;
