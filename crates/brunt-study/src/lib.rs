//! Experiments: the file that describes an experiment, its runs, and their results.
//!
//! [`experiment`] reads and checks the file; [`startup`] starts what it needs. [`study`] executes the runs and
//! reports events to the observers in [`observe`]; [`hooks`] accompany each run; one of them injects the experiment's
//! [`fault`]s. [`results`] writes the tables. The content of files and tables is plain data from `brunt_result`:
//! summaries, tables, degradation, statistics. The run is the unit everywhere.
#![forbid(unsafe_code)]

pub mod control;
pub mod experiment;
pub mod fault;
pub mod hooks;
pub mod host;
pub mod lab;
pub mod observe;
pub mod plain;
pub mod results;
pub mod role;
mod rounded;
pub mod service;
pub mod startup;
pub mod study;

#[cfg(test)]
mod tests {
    mod void_messages;
}
