//! What every crate of Brunt shares: units as people write them, the clock, seeded
//! random numbers, histograms. No I/O beyond reading the monotonic clock; no knowledge of storage.
#![deny(unsafe_code)]

pub mod clock;
pub mod histogram;
pub mod quantity;
pub mod random;
pub mod units;

pub use clock::{Clock, Nanos};
pub use histogram::Histogram;
pub use quantity::{Size, Span};
