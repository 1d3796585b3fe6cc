//! A capture as tables for long-term storage, readable by all data tools: `brunt capture --out DIR` writes them, and
//! `brunt analyze DIR` reports the same findings from them as from the packets.
//!
//! ```text
//!   pipeline ──► recorder ──rows──► lanes (threads) ──► DIR/operations/part-000000.parquet, …
//! ```
//!
//! [`tables`] lists the tables; each group of tables is described and filled by one file, which `recorder` calls;
//! `store` writes the rows, and [`replay`] reads them. The rule: information from packets is stored once, and
//! everything missing is counted.

mod anonymize;
mod budget;
mod checksums;
pub(crate) mod common;
pub mod extents;
pub(crate) mod files;
mod flows;
mod health;
pub mod lake;
pub(crate) mod latencies;
pub mod manifest;
mod operations;
mod packets;
pub mod pcap;
mod pseudonyms;
pub mod questions;
mod recorder;
pub mod repeat;
mod replay;
mod resume;
pub(crate) mod rows;
mod sizer;
mod sketches;
mod statistics;
mod store;
pub mod tables;

pub use anonymize::{Anonymizer, KeyError};
pub use budget::TraceParts;
pub use health::TraceHealth;
pub use recorder::{TraceRecorder, TraceStatus, TraceSummary};
pub use resume::ContinueError;

pub use replay::{ReplayError, Replayed, TraceNotes, is_trace, notes, replay, replay_selected};
pub use sizer::{TraceSizer, WindowProfile, sizer};
pub use store::{Notify, OnFull, OnLag, Stop, TraceOptions};
