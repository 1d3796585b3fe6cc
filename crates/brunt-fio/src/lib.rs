//! fio compatibility: converts job files to experiments ([`import()`]), and exports results as the JSON that
//! existing dashboards read ([`FioJson`]). Called by the command line only; `brunt-study` does not know it.
//!
//! The rule: everything in a job file without an equivalent is reported with its line and the reason. It
//! makes the import fail unless the caller accepts losses; nothing is dropped silently.
#![forbid(unsafe_code)]

mod engine;
mod error;
mod import;
mod job;
mod keys;
mod keyword;
mod order;
mod output;
mod translate;
mod units;

pub use error::{Cause, FioError, Location};
pub use import::{Import, Remark, import};
pub use output::FioJson;
