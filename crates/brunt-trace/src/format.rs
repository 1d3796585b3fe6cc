//! A trace format: its description and its decoder. Each file in `formats/` has one or more.
//!
//! The rule: no format is named here; their table is in [`crate::table`].

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::columns::ColumnMap;
use crate::record::{BlockRequest, Devices, TraceOp};

/// One format.
pub struct Format {
    /// What the user types.
    pub name: &'static str,
    /// Where it comes from, in a line.
    pub help: &'static str,
    /// What its fields leave open and how that was decided; empty where nothing is.
    pub note: &'static str,
    /// It was held against a file of its publisher's, not only against published lines.
    pub checked: bool,
    /// Its rows do not say what a request asks for: [`FormatOptions::op`] has to.
    pub needs_op: bool,
    /// It is any table: [`FormatOptions::columns`] has to say what its columns mean. It is never found out.
    pub needs_columns: bool,
    /// Options of [`crate::TraceReading`] that have an effect on it; others are refused.
    pub takes: &'static [ReadingKey],
    /// The beginning of a file of it.
    pub example: &'static [u8],
    /// A decoder at the beginning of a file.
    pub decoder: fn(&FormatOptions) -> Box<dyn Decode + Send>,
}

/// What a format leaves open and nobody has stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unstated {
    /// What requests ask for: [`FormatOptions::op`], or a column of it.
    Operation,
    /// What the columns mean: [`FormatOptions::columns`].
    Columns,
}

impl Format {
    /// What these options would have to state.
    pub fn unstated(&self, options: &FormatOptions) -> Option<Unstated> {
        if self.needs_columns && options.columns.is_none() {
            return Some(Unstated::Columns);
        }
        let has_op = options.op.is_some()
            || self.needs_columns && options.columns.is_some_and(|columns| columns.op.is_some());
        (self.needs_op && !has_op).then_some(Unstated::Operation)
    }
}

/// What some formats leave open, as the user says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatOptions {
    /// Bytes of a block where addresses are blocks of a size that is not in the file: SPC, libCacheSim.
    pub block_bytes: u32,
    /// Jiffies a second of the kernel that wrote the trace: DTB.
    pub jiffies_per_s: u32,
    /// Which step of a request's way counts as the request: blktrace.
    pub event: TracedEvent,
    /// What requests ask for where the format has no operation: libCacheSim's oracleGeneral.
    pub op: Option<TraceOp>,
    /// What the columns of a table mean: csv.
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

/// An option that only some formats take.
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
    /// As written in a file, and after `--`.
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

/// A step of a request's way through Linux's block layer.
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
    /// Which row of the file, from 1: lines, or records.
    pub row: u64,
}

/// What the rows of a trace of events were, besides requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EventCounts {
    /// Requests that were merged into others before they were sent (M, F).
    pub merges: u64,
    /// Requests that were split (X).
    pub splits: u64,
    /// Other events: steps that were not asked for, messages, process names.
    pub others: u64,
}

impl EventCounts {
    /// Adds those of another part.
    pub fn add(&mut self, other: EventCounts) {
        self.merges += other.merges;
        self.splits += other.splits;
        self.others += other.others;
    }
}

/// Reads a file, a piece after another.
pub trait Decode {
    /// Reads the whole rows of `bytes`, and says how many bytes that were. `last`: the file ends here, and what is left
    /// is a row or damaged. Requests go to `requests`, rows that cannot be read to `damaged`.
    fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        devices: &mut Devices,
        requests: &mut Vec<BlockRequest>,
        damaged: &mut Vec<DamagedRow>,
    ) -> usize;

    /// What other events there were so far; none for formats that have only requests.
    fn events(&self) -> Option<EventCounts> {
        None
    }

    /// Its rows are in the order in which requests were answered.
    fn by_completion(&self) -> bool {
        false
    }
}
