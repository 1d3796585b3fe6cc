//! From packets to storage operations, passively: what a tap or a capture file shows becomes
//! calls matched with their replies, checksums of the data, and analyses of both. Called by
//! `brunt capture` and `brunt analyze`. The one rule: what was not seen is counted, never
//! guessed; no operation is ever made up.
//!
//! ```text
//!   source ──batches──► pipeline: frames → connections → reassembly → records → calls ──► sinks
//! ```
//!
//! Each stage is a plain state machine that is fed; whoever drives it (one thread, an actor)
//! brings the batches. A connection belongs to one pipeline, so pipelines share nothing.
#![deny(unsafe_code)] // but for `live::sys` and `live::xsk`, which own the kernel's rings

pub mod analysis;
pub mod calls;
pub mod checksum;
pub mod compound;
pub mod defragment;
pub mod driver;
pub mod flow;
pub mod ledger;
pub mod live;
pub mod memory;
pub mod operation;
pub mod parallel;
pub mod parcel;
pub mod pipeline;
pub mod reassembly;
pub mod records;
pub mod recovery;
pub mod source;
pub mod trace;

pub use analysis::{Analysed, Analysis, Glance, Report};
pub use driver::{Outcome, run_file};
pub use ledger::Ledger;
pub use live::{LiveCapture, LiveError, LiveOptions, LiveReport, Transmitter};
pub use operation::{Body, ChecksumRun, FileKey, Operation, Peers, Protocol, Sink};
pub use parallel::{FileShares, ParallelError, Parsers, Shares, run_file_parallel};
pub use pipeline::{Limits, Pipeline};
pub use source::{Batch, FileSource, PacketRef, SourceError};
