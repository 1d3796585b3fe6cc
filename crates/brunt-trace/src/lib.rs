//! Block traces, whoever published them: a file of any known format is read as one stream of [`BlockRequest`]s.
//! Called by `brunt trace`.
//!
//! To add a format: one file in `formats/`, and its line in [`FORMATS`].
//!
//! The rule: a row that cannot be read is skipped and counted, or ends the reading; never guessed at. Memory does not
//! grow with the length of a trace.
#![forbid(unsafe_code)]

mod field;
mod format;
mod formats;
mod info;
mod reader;
mod record;
mod table;

pub use format::{DamagedRow, Decode, Format};
pub use info::{Counted, Footprint, Rate, Response, SizeCount, Summarizer, TraceInfo};
pub use reader::{RowLedger, TraceError, TraceReader};
pub use record::{BlockRequest, DEVICES_MAX, Devices, TraceOp};
pub use table::{Candidates, FORMATS, detect, format_named};
