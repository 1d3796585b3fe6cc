//! Experiments: the file that describes one, its runs, and their results.
//!
//! [`experiment`] reads the file and says what is wrong with it; [`study`] makes its runs and tells
//! what happens to [`observe`]'s observers, while [`hook`]s go along with each and a [`fault`]
//! schedule breaks things; [`results`] writes it down. What is written is plain data of `brunt_result`:
//! summaries, tables, degradation, statistics. The unit everywhere is the run.
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
