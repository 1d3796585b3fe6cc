//! Experiments: the file that describes one, its runs, and their results.
//!
//! [`experiment`] reads and checks the file. [`study`] executes its runs and reports events to [`observe`]'s observers;
//! [`hook`]s accompany each run, and a [`fault`] schedule injects faults. [`results`] writes the tables. Their content
//! is plain data of `brunt_result`: summaries, tables, degradation, statistics. The unit everywhere is the run.
#![forbid(unsafe_code)]

pub mod control;
pub mod device_probing;
pub mod experiment;
pub mod fault;
pub mod hook;
pub mod host;
pub mod host_agents;
pub mod host_bridge;
pub mod host_probing;
pub mod lab;
pub mod noise;
pub mod observe;
pub mod plain;
pub mod probing;
pub mod results;
pub mod role;
pub mod service;
pub mod study;
mod written;

#[cfg(test)]
mod tests {
    mod void_messages;
}
