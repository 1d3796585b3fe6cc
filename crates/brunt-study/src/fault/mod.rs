//! The faults of an experiment: their kinds, mechanisms and times. Each kind has a file under [`kinds`] and a
//! line in its table; [`crate::hooks::FaultSchedule`] accompanies every run; [`FaultDriver`] is its interface to a
//! fault of any kind.
//!
//! The rule: a fault must be proven to be in effect, and later to be gone; otherwise it invalidates its run.

mod driver;
mod entry;
mod kind;
pub mod kinds;
mod layer;
mod overlap;
mod process;
mod recurrence;

pub use driver::{DriverError, FaultDriver};
pub use entry::FaultEntry;
pub(crate) use entry::{EntryError, serialize_written};
pub use kind::{
    About, FaultCommon, FaultContext, FileMistake, Info, Kind, Mistake, Pair, Prepared, Side,
    Stage, Times, Together,
};
pub use kinds::{FaultKind, KINDS};
pub use layer::with_fault_layer;
pub use overlap::{Overlap, overlaps};
pub use recurrence::{OCCURRENCES_MAX, Occurrence, OccurrenceTimes, Recurrence};

#[cfg(test)]
mod tests;
