//! What drives a device, and what it saw: a described workload becomes requests, requests become
//! histograms.
//!
//! Start reading at [`workload`], the description. [`generator`] turns it into a sequence of
//! requests and [`arrival`] into times, both without I/O and the same on every machine for the
//! same seed. [`worker`] is the loop between them and a device; [`session`] runs several of
//! them in threads and merges what they saw. [`filesystem`] drives a mounted
//! directory instead of a device. Figures leave through [`record::Recorder`]; no file
//! format is known here.
#![forbid(unsafe_code)]

pub mod arrival;
pub mod audit;
pub mod calibrate;
pub mod cost;
pub mod data;
pub mod depth;
pub mod filesystem;
pub mod generator;
pub mod pattern;
pub mod record;
pub mod search;
pub mod session;
pub mod steady;
pub mod verify;
pub mod worker;
pub mod workload;

pub use record::{Figures, Interval, NoRecorder, Outcome, Recorder, RequestRecord, Stopped};
pub use session::{Session, SessionError};
pub use workload::Workload;
