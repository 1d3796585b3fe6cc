//! Block traces, whoever published them: a file of any known format is read as one stream of [`BlockRequest`]s.
//! Called by `brunt trace`.
//!
//! To add a format: one file in `formats/`, and its line in [`FORMATS`].
//!
//! The rule: a row that cannot be read is skipped and counted, or ends the reading; never guessed at. Memory does not
//! grow with the length of a trace.
#![forbid(unsafe_code)]

mod distinct;
mod field;
mod format;
mod formats;
mod info;
mod reader;
mod record;

pub use format::{Candidates, DamagedRow, Decode, FORMATS, Format, detect, format_named};
pub use info::{Counted, Footprint, Info, Rate, Response, SizeCount, Summarizer};
pub use reader::{Ledger, TraceError, TraceReader};
pub use record::{BlockRequest, DEVICES_MAX, Devices, TraceOp};
