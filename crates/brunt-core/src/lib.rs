//! What every crate of Brunt shares: units as people write them, the clock, seeded
//! random numbers. No I/O beyond reading the monotonic clock; no knowledge of storage.
#![deny(unsafe_code)]

pub mod clock;
pub mod random;
pub mod units;

pub use clock::{Clock, Nanos};
