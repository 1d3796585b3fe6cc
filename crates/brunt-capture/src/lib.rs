//! Passive reconstruction of storage operations: turns packets from a tap or a capture file into operations (requests
//! matched with their replies), checksums of the data, and analyses of both. Called by `brunt capture` and `brunt
//! analyze`. The one rule: data that was not captured is counted, never guessed, and no operation is ever invented.
//!
//! ```text
//!   source ──batches──► pipeline: frames → connections → reassembly → dissectors ──► sinks
//! ```
//!
//! Each stage is a plain state machine; its driver (a thread or an actor) feeds it batches. Each connection belongs
//! to one pipeline, so pipelines share nothing.
#![deny(unsafe_code)]

pub mod analysis;
pub mod checksum;
pub mod clock;
pub mod defragment;
pub mod dissect;
pub mod driver;
pub mod flow;
pub mod hide;
pub mod key;
pub mod ledger;
pub mod limits;
pub mod live;
pub mod memory;
pub mod operation;
pub mod parallel;
pub mod parcel;
pub mod pipeline;
pub mod reassembly;
pub mod recovery;
pub mod source;
pub mod survey;
pub mod trace;
pub mod windows;

pub use brunt_actors::{CpuList, CpuListError, Placement, pin_thread, thread_cpus};

pub use analysis::{Analysed, Analysis, AnalysisSet, CaptureGlance, Report};
pub use dissect::rpc::Body;
pub use driver::{FileOutcome, run_file};
pub use ledger::Ledger;
pub use limits::Limits;
pub use live::{LiveCapture, LiveError, LiveOptions, LiveReport, Transmitter};
pub use operation::{
    ChecksumRun, FileKey, Operation, OperationKind, OperationSummary, Peers, Protocol, Sink,
    Transport,
};
pub use parallel::{FileShares, ParallelError, ParserPlaces, Parsers, Shares, run_file_parallel};
pub use pipeline::Pipeline;
pub use source::{FileSource, PacketBatch, PacketRef, SourceError};
pub use windows::{CaptureWindow, WindowCollector, WindowedAnalysis};
