//! What drives a device, and what it saw: a described workload becomes requests, requests become
//! histograms.
//!
//! Start reading at [`block::workload`], the description. [`block::generator`] turns it into a sequence of
//! requests and [`block::arrival`] into times, both without I/O and the same on every machine for the
//! same seed. [`block::worker`] is the loop between them and a device; [`block`] runs several of
//! them in threads. [`file`] drives a mounted directory instead of a device. Figures leave through
//! [`record::Recorder`]; no file format is known here.
#![forbid(unsafe_code)]

pub mod block;
mod collect;
pub mod commands;
pub mod cost;
pub mod file;
pub mod load;
pub mod record;
pub mod sequence;
pub mod steady;

pub use block::workload::Workload;
pub use block::{Session, SessionError};
pub use commands::{Command, CommandError, Commands};
pub use load::WorkloadError;
pub use record::{NoRecorder, Recorder};
