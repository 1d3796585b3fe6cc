//! Benchmarks Brunt against comparable tools in one run: the subjects of the program `brunt-bench`, which parses
//! arguments into a subject's struct and calls `run`; output goes to its [`Console`].
//!
//! The rule: contestants take turns, round by round, because a machine's speed drifts; ratios are computed within a
//! round or from medians, never against a figure from another day.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)]

mod actors;
mod bare;
mod bare_nbd;
mod calls;
mod capture;
mod cleanup;
mod console;
mod drive;
mod error;
mod fio;
mod fio_jobs;
mod hosts;
mod iscsi;
mod iscsi_sessions;
mod link;
mod link_rates;
mod load;
mod nbd;
mod nfs;
mod page;
mod peers;
mod program;
mod replay;
mod replay_peers;
mod rows;
mod sample;
mod scratch;
mod sockets;
mod spdk;
mod store;
mod trace;
mod trace_file;
mod trace_subject;
mod verdicts;
mod weeks;

pub use actors::ActorsBench;
pub use calls::CallsBench;
pub use capture::CaptureBench;
pub use cleanup::end_if_interrupted;
pub use console::Console;
pub use error::{BenchError, BenchErrorKind, BenchResult};
pub use fio_jobs::FioJobsBench;
pub use hosts::{HostsBench, sleep_until};
pub use iscsi::IscsiBench;
pub use link::LinkBench;
pub use load::LoadBench;
pub use nbd::NbdBench;
pub use nfs::NfsBench;
pub use page::PageBench;
pub use program::brunt as program_under_test;
pub use replay::ReplayBench;
pub use store::StoreBench;
pub use trace::TraceBench;
pub use verdicts::{VerdictsBench, judge_recorded};
pub use weeks::WeeksBench;
