//! From fio and to fio: job files become experiments ([`import`]), and figures become the JSON that
//! existing dashboards read ([`FioJson`]).
//!
//! The rule: what a job file says and an experiment cannot do is named, with its line and the reason;
//! nothing is dropped in silence.

mod job;
mod keys;
mod output;
mod translate;
mod units;

pub use output::FioJson;
pub use translate::{Import, Remark, import};
