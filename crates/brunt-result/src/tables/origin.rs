//! The origin of a row.

use brunt_core::Nanos;

/// The run and trial to which a row belongs.
#[derive(Clone, Copy, Debug)]
pub struct RunOrigin {
    /// Number of the run among all runs.
    pub run: u32,
    /// Trial of a rate search, from 0.
    pub trial: u32,
    /// Start of the run's workers: the zero of all times in the tables.
    pub origin: Nanos,
}
