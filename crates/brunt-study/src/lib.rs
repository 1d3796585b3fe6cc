//! Experiments: the file that describes one, its runs, and their results.
//!
//! [`experiment`] reads and checks the file; [`startup`] starts what it needs. [`study`] executes its runs and reports
//! events to [`observe`]'s observers; [`hooks`] accompany each run; one of them injects its [`fault`]s. [`results`] writes the tables. Their content
//! is plain data of `brunt_result`: summaries, tables, degradation, statistics. The unit everywhere is the run.
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
