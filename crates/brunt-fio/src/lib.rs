//! fio compatibility: converts job files to experiments ([`import()`]), and exports results as the JSON that existing
//! dashboards read ([`FioJson`]). Called only by the command line; `brunt-study` doesn't depend on it.
//!
//! The rule: everything in a job file that has no equivalent is reported with its line and the reason. Such a part
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
mod remark;
mod translate;
mod units;

pub use error::{Cause, FioError, Location};
pub use import::{Import, import};
pub use output::FioJson;
pub use remark::Remark;
