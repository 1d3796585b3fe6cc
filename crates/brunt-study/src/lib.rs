//! Experiments: what a person describes in a file, the runs it stands for, and what may be
//! concluded from them.
//!
//! [`experiment`] reads the file and says what is wrong with it; [`study`] makes its runs and tells
//! what happens to [`observe`]'s observers, while [`hook`]s go along with each and a [`fault`]
//! schedule breaks things; [`summary`] is what people read of them, [`results`] the tables that programs read, [`degradation`] says what the
//! faults cost, and [`statistics`] turns the figures of runs into intervals and verdicts
//! ([`compare`]). The unit everywhere is the run.
#![forbid(unsafe_code)]

pub mod compare;
pub mod control;
pub mod experiment;
pub mod fault;
pub mod hook;
pub mod lab;
pub mod observe;
pub mod probe;
pub mod results;
pub mod role;
pub mod study;
pub mod summary;

pub use brunt_result::{degradation, statistics};
