//! The load engine: turns a described workload into requests, and requests into histograms.
//!
//! Start reading at [`block::workload`], the description. [`block::generator`] turns it into a sequence of requests and
//! [`block::arrival`] into due times. Both do no I/O and, for a given seed, produce the same results on every machine.
//! [`block::worker`] is the loop between them and a device; [`block`] runs several of these loops in threads.
//! [`mod@file`] drives a mounted directory instead of a device, [`replay`] sends the requests of a block trace,
//! [`mod@nfs`] makes calls to an NFS server, [`mod@metadata`] creates, looks up and removes many files like mdtest, and
//! [`mod@together`] runs several such loads concurrently. Each is a [`Load`] with a line in [`LOADS`]. [`mod@transfer`]
//! moves a range once, with the same loop. [`decisions`] runs a load and makes the decisions that involve all of its
//! workers. Figures are output through [`record::Recorder`]; this crate has no file formats.
#![forbid(unsafe_code)]

pub mod block;
pub mod collect;
pub mod commands;
pub mod content;
pub mod cost;
pub mod decisions;
mod entry;
pub mod file;
mod file_sizes;
pub mod hosted;
mod kind;
pub mod load;
mod loads;
pub mod metadata;
pub mod nfs;
pub mod nfs_replay;
pub mod record;
pub mod replay;
pub mod sequence;
#[cfg(any(test, feature = "test-load"))]
pub mod sleep;
pub mod together;
pub mod transfer;

pub use block::Session;
pub use block::workload::Workload;
pub use commands::{Commands, LoadCommand, LoadCommandError};
pub use entry::{LoadEntry, written};
pub use file_sizes::FileSizes;
pub use hosted::HostedLoad;
pub use kind::{
    LoadContext, LoadForm, LoadKind, NamedLoad, OwnTable, ReadEntry, ReadError, SharedInputs,
};
pub use load::{Load, LoadError, WorkloadError};
pub use loads::{LOADS, load_kind};
pub use record::{NoRecorder, Recorder};
