//! Results as plain data: owned, mergeable numbers and text that can be stored in a table, drawn on a page or sent to
//! another host.
//!
//! Start reading at [`record`]: the figures of a run and of its intervals, by kind of operation ([`op`]). [`event`]
//! defines the events during runs, and [`tables`] and [`summary`] what is stored of them; [`degradation`] computes
//! what faults cost; [`statistics`] and [`compare`] draw conclusions. The crates that produce results (`brunt-load`,
//! `brunt-study`) and the crate that shows them (`brunt-report`) all depend on this one, but not on each other.
//!
//! The rule: this crate uses no devices, sockets or threads, so that results can be read without the engine that
//! produces them. The only files that it touches are those of a result.
#![forbid(unsafe_code)]

pub mod by_kind;
pub mod capture;
pub mod choice;
pub mod compare;
pub mod correlated;
pub mod cost;
pub mod degradation;
pub mod distinct;
pub mod drift;
pub mod engines;
pub mod estimates;
pub mod event;
pub mod experiment;
pub mod failures;
mod fault_record;
pub mod health_waits;
pub mod history;
pub mod history_results;
pub mod hosts;
pub mod impact;
pub mod indexes;
pub mod interleaved;
mod kept_percentiles;
mod latencies;
pub mod link;
pub mod noise;
pub mod normal;
pub mod op;
pub mod over_occurrences;
pub mod percentile;
pub mod performability;
pub mod phase_wait;
pub mod probe;
pub mod profile;
pub mod record;
pub mod recurring;
pub mod replay;
pub mod require;
pub mod run_log;
pub mod statistics;
pub mod steady;
pub mod sticky;
pub mod summary;
pub mod tables;
pub mod transfer;
pub mod void;
pub mod wrong;

pub use cost::Cost;
pub use op::OpKind;
pub use record::{
    Counts, Figures, FirstError, Interval, OpFigures, Outcome, RequestRecord, RequestStatus,
    Stopped,
};
