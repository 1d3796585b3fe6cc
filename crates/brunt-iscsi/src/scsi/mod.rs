//! A logical unit: the device server and task manager of SAM-5, over any backend.
//!
//! [`LogicalUnit`] is shared by all connections of a target (reservations, mode pages, unit
//! attentions, the table of range locks); [`TaskSet`] is one connection's hand on it: its open
//! device and its commands in progress. Knows nothing of iSCSI: the target hands it CDBs.
//!
//! A command's life: [`TaskSet::begin`] checks everything that can be checked from the CDB and
//! says how much data-out it wants; [`TaskSet::start`] runs it with that data; [`TaskSet::poll`]
//! gives the answer. A command that needs no device is answered by `begin` at once.

pub mod command;

mod answers;
mod attention;
mod jobs;
mod locks;
mod lun;
mod management;
mod map;
mod reservation;
mod sanitize;
mod store;
mod tasks;
#[cfg(test)]
mod tests;

pub use brunt_wire::scsi::alua::{AccessState, PortGroup};
pub use command::{Begin, CommandOutcome, DataIn, Nexus, TaskAttribute, TransportCommand};
pub use lun::{AccessReport, Alua, DiskEvent, LogicalUnit, LunError, LunOptions, NoSuchGroup};
pub use management::{Reset, Ticket};
pub use map::LunMap;
pub use store::{FileStore, ReservationStore};
pub use tasks::TaskSet;
