//! Shared by all crates of Brunt: units, the clock, seeded random numbers, histograms, device URL parsing,
//! names as text, distinct-count sketches and file locks. Its only I/O is locking files, reading and writing user-named
//! files, reading the clock, and reading the resource usage of processes. It has no knowledge of storage.
#![deny(unsafe_code)]

pub mod byte_text;
#[allow(unsafe_code, reason = "clock_gettime")]
pub mod clock;
#[allow(unsafe_code, reason = "getrusage and wait4")]
pub mod cost;
pub mod cpus;
pub mod device_path;
pub mod device_url;
mod engine;
mod file_lock;
pub mod histogram;
pub mod input;
pub mod output;
#[allow(
    unsafe_code,
    reason = "a prefetch reads no memory, so any address is valid"
)]
mod prefetch;
mod process_stat;
pub mod quantity;
pub mod random;
mod rank;
pub mod readings;
pub mod share;
mod sizer;
pub mod sketch;
pub mod spelling;
pub mod transfer;
pub mod units;

pub use clock::{Clock, Nanos};
pub use cost::{ChildUsage, ResourceUsage};
pub use engine::IoEngine;
pub use file_lock::FileLock;
pub use histogram::{COUNT_READ_MAX, Histogram, HistogramError};
pub use prefetch::prefetch;
pub use process_stat::ProcessStat;
pub use quantity::{Size, Span};
pub use rank::rank;
pub use sizer::{SizerCounts, SizerProfile, SizerTimes, SizerTransfers};
pub use sketch::HyperLogLog;
pub use transfer::{LeftOutTransfers, TransferOutcome};
