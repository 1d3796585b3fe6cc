//! fio's language: job files become experiments ([`import()`]), and figures become the JSON that existing
//! dashboards read ([`FioJson`]). Called by the command line only; `brunt-study` does not know it.
//!
//! The rule: what a job file says and an experiment cannot do is named, with its line and the reason. It refuses the
//! whole file unless the caller said that it may be lost; nothing is dropped in silence.
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
