//! The trait of arrival processes, separate from their table to avoid an import cycle.

use brunt_core::random::Random;

/// Describes an arrival process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessInfo {
    /// The process's name: the value of `process`.
    pub name: &'static str,
    /// The process's one-line help.
    pub help: &'static str,
    /// How descriptions of workloads express the process: `open loop, 900 requests/s, evenly`.
    pub manner: &'static str,
}

/// A worker's position in its schedule. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    /// Mean time between requests of this worker.
    pub gap: f64,
    /// Due time of the first request since the rate took effect.
    pub first: f64,
    /// Requests since the rate took effect.
    pub index: u64,
    /// Due time of the previous request.
    pub at: f64,
    /// Number of this worker, from 0.
    pub worker: u32,
    /// Number of workers.
    pub workers: u32,
}

/// Draws due times. The same seed gives the same times in every version.
pub(super) trait Process {
    /// The process's description.
    const INFO: ProcessInfo;

    /// Returns the due time of a worker's first request, relative to when the rate takes effect.
    fn first(position: &Position, random: &mut Random) -> f64;

    /// Returns the due time of request `index`.
    fn next(position: &Position, random: &mut Random) -> f64;
}
