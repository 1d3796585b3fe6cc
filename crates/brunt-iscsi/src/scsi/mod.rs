//! A logical unit: the device server and task manager of SAM-5 over any backend.
//!
//! [`LogicalUnit`] is shared by all connections of a target (reservations, mode pages, unit attentions, the table of
//! range locks); [`TaskSet`] is one connection's handle to it: its open device and its commands in progress. This
//! module is independent of iSCSI: the target passes it CDBs.
//!
//! The life of a command: [`TaskSet::begin`] checks everything that can be checked with the CDB and returns how much
//! Data-Out it wants; [`TaskSet::start`] runs it with that data; [`TaskSet::poll`] returns the outcome. `begin` answers
//! a command at once if it needs no device.

pub mod command;

mod answers;
mod attention;
mod jobs;
mod locks;
mod lun;
mod management;
mod map;
mod replies;
mod reservation;
mod sanitize;
mod store;
mod tasks;
#[cfg(test)]
mod tests;

pub use brunt_wire::scsi::alua::{AccessState, PortGroup};
pub use command::{Begin, CommandOutcome, DataIn, Nexus, TaskAttribute, TransportCommand};
pub use lun::{
    AccessReport, Alua, DiskEvent, LogicalUnit, LunError, LunOptions, NoSuchGroup, unit_uuid,
};
pub use management::{Reset, Ticket};
pub use map::LunMap;
pub use store::{FileStore, ReservationStore};
pub use tasks::TaskSet;
