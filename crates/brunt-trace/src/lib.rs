//! Reads block traces: a file in any supported format becomes a stream of [`BlockRequest`]s. Called by `brunt trace`.
//! [`nfs`] reads the NFS calls of a captured trace.
//!
//! To add a format: one file in `formats/`, and its line in [`FORMATS`].
//!
//! The rule: an unreadable row is skipped and counted, or stops the reader; it is never guessed. Memory does not grow
//! with the length of a trace, except for NFS calls.
#![forbid(unsafe_code)]

mod archive;
mod captured;
mod columns;
mod cpus;
#[cfg(test)]
mod cross_check;
mod digest;
mod error;
mod events;
mod field;
mod fit;
mod format;
mod formats;
mod info;
mod locality;
mod merge;
pub mod nfs;
mod phases;
mod reader;
mod reading;
mod record;
#[cfg(test)]
mod roundtrip;
mod sort;
mod spread;
mod stream;
mod table;
mod tables;
mod text;
mod transform;
mod write;

pub use columns::{ColumnMap, ColumnsError};
pub use digest::{DigestBuilder, StreamDigest};
pub use error::TraceError;
pub use fit::{ModelDistance, ModelFitter, TraceModel};
pub use format::{
    DamagedRow, Decode, EventCounts, Format, FormatOptions, MissingInfo, ReadingKey, TracedEvent,
};
pub use info::{Counted, Footprint, Rate, Response, SizeCount, Summarizer, TraceInfo};
pub use locality::{BLOCKS_MAX, CacheShare, Reuse, ReuseSampler};
pub use phases::{Burstiness, Depth, HotExtent, Runs, WorkingSet};
pub use reader::{ReadOptions, RowLedger, TraceReader};
pub use reading::{ReadingError, StatedOp, TraceOpenError, TraceReading};
pub use record::{BlockRequest, ContentHash, DEVICES_MAX, Devices, TraceOp};
pub use sort::SORT_WINDOW;
pub use spread::{SizeClass, Stretch};
pub use table::{Candidates, FORMATS, detect, format_named};
pub use tables::BLOCK_REQUESTS;
pub use transform::{DeviceExtents, SHARE_BYTES, Transform, TransformLedger, TransformOptions};
pub use write::{TraceSink, WRITERS, WriteLedger, Writer, writer_named};
