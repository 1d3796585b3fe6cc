//! What every crate of Brunt shares: units as people write them, the clock, seeded
//! random numbers, histograms, the parts of device URLs, sketches of what is distinct, locks of files. No I/O beyond these
//! locks, reading files that users name, the clock and what this process used; no knowledge of storage.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "clock_gettime")]
pub mod clock;
#[allow(unsafe_code, reason = "getrusage and wait4")]
pub mod cost;
pub mod device_url;
mod engine;
mod file_lock;
pub mod histogram;
pub mod input;
#[allow(
    unsafe_code,
    reason = "a request for a cache line reads nothing, and the place is one of ours"
)]
mod prefetch;
pub mod quantity;
pub mod random;
mod rank;
pub mod sketch;
pub mod transfer;
pub mod units;

pub use clock::{Clock, Nanos};
pub use cost::{ResourceUsage, Spent};
pub use engine::IoEngine;
pub use file_lock::FileLock;
pub use histogram::{COUNT_READ_MAX, Histogram, HistogramError};
pub use prefetch::prefetch;
pub use quantity::{Size, Span};
pub use rank::rank;
pub use sketch::HyperLogLog;
pub use transfer::{LeftOutTransfers, TransferOutcome};
