//! A trace format: its description and its decoder. Each file in `formats/` defines one or more.
//!
//! The rule: this module names no format; the table of formats is in [`crate::table`].

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::columns::ColumnMap;
use crate::record::{BlockRequest, Devices, TraceOp};

/// One format.
pub struct Format {
    /// The name that users type.
    pub name: &'static str,
    /// Its origin, in one line.
    pub help: &'static str,
    /// What the format leaves ambiguous and how it is interpreted; empty if nothing is.
    pub note: &'static str,
    /// Whether the format was verified against a file from its publisher, not only against published lines.
    pub checked: bool,
    /// Whether rows lack the operation, so that [`FormatOptions::op`] is required.
    pub needs_op: bool,
    /// Whether this is a generic table, which needs [`FormatOptions::columns`] and is never auto-detected.
    pub needs_columns: bool,
    /// Options of [`crate::TraceReading`] that apply to it; others are rejected.
    pub takes: &'static [ReadingKey],
    /// The beginning of a file in this format.
    pub example: &'static [u8],
    /// Creates a decoder for the start of a file.
    pub decoder: fn(&FormatOptions) -> Box<dyn Decode + Send>,
}

/// Information that a format needs and that the caller didn't provide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingInfo {
    /// The operation: [`FormatOptions::op`], or a column that contains it.
    Operation,
    /// The meaning of the columns: [`FormatOptions::columns`].
    Columns,
}

impl Format {
    /// The required information that these options lack.
    pub fn unstated(&self, options: &FormatOptions) -> Option<MissingInfo> {
        if self.needs_columns && options.columns.is_none() {
            return Some(MissingInfo::Columns);
        }
        let has_op = options.op.is_some()
            || self.needs_columns && options.columns.is_some_and(|columns| columns.op.is_some());
        (self.needs_op && !has_op).then_some(MissingInfo::Operation)
    }
}

/// Values that some formats don't record, as stated by the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatOptions {
    /// Block size in bytes, if addresses are in blocks and the file doesn't record their size: SPC, csv, libCacheSim.
    pub block_bytes: u32,
    /// Jiffies per second of the kernel that wrote the trace: DTB.
    pub jiffies_per_s: u32,
    /// The step that counts as the request: blktrace, blkparse, ftrace.
    pub event: TracedEvent,
    /// The operation of all requests, if the format records none: csv, libCacheSim's lcs and oracleGeneral.
    pub op: Option<TraceOp>,
    /// The meaning of a table's columns: csv.
    pub columns: Option<ColumnMap>,
}

impl Default for FormatOptions {
    fn default() -> FormatOptions {
        FormatOptions {
            block_bytes: 512,
            jiffies_per_s: 100,
            event: TracedEvent::Dispatched,
            op: None,
            columns: None,
        }
    }
}

/// An option that only some formats accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadingKey {
    /// [`crate::TraceReading::op`].
    Op,
    /// [`crate::TraceReading::block`].
    Block,
    /// [`crate::TraceReading::columns`].
    Columns,
    /// [`crate::TraceReading::jiffies`].
    Jiffies,
    /// [`crate::TraceReading::event`].
    Event,
}

impl ReadingKey {
    /// Its name in a file, and after `--`.
    pub fn name(self) -> &'static str {
        match self {
            ReadingKey::Op => "op",
            ReadingKey::Block => "block",
            ReadingKey::Columns => "columns",
            ReadingKey::Jiffies => "jiffies",
            ReadingKey::Event => "event",
        }
    }
}

impl fmt::Display for ReadingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A step on a request's way through Linux's block layer.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum TracedEvent {
    /// Given to the block layer (Q): before merging and splitting.
    Queued,
    /// Sent to the device (D): what the storage saw.
    #[default]
    Dispatched,
    /// Answered by the device (C).
    Completed,
}

/// A row that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedRow {
    /// The row's number in the file, from 1: a line or a record.
    pub row: u64,
}

/// Counts of a trace's events that aren't requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EventCounts {
    /// Requests merged into others before dispatch (M, F).
    pub merges: u64,
    /// Requests that were split (X).
    pub splits: u64,
    /// Other events: steps that aren't selected, messages, process names.
    pub others: u64,
}

impl EventCounts {
    /// Adds the counts of another part.
    pub fn add(&mut self, other: EventCounts) {
        self.merges += other.merges;
        self.splits += other.splits;
        self.others += other.others;
    }
}

/// Decodes a file, piece by piece.
pub trait Decode {
    /// Decodes the complete rows of `bytes` and returns the number of bytes consumed. `last` means
    /// that the file ends here, so the remaining bytes are a row or damaged. Appends requests to
    /// `requests` and unreadable rows to `damaged`.
    fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        devices: &mut Devices,
        requests: &mut Vec<BlockRequest>,
        damaged: &mut Vec<DamagedRow>,
    ) -> usize;

    /// Counts of other events so far; `None` for formats that contain only requests.
    fn events(&self) -> Option<EventCounts> {
        None
    }

    /// Whether rows are in completion order.
    fn by_completion(&self) -> bool {
        false
    }
}
