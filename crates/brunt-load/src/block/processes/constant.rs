//! Arrivals at equal intervals.

use brunt_core::random::Random;

use super::kind::{Position, Process, ProcessInfo};

pub(super) struct Constant;

impl Process for Constant {
    const INFO: ProcessInfo = ProcessInfo {
        name: "constant",
        help: "Constant.",
        manner: "evenly",
    };

    /// Workers take turns, so that the total rate is constant, too.
    #[inline(always)]
    fn first(position: &Position, _: &mut Random) -> f64 {
        position.gap * f64::from(position.worker) / f64::from(position.workers)
    }

    /// Multiplied, not accumulated, so that no error builds up over a day of requests.
    #[inline(always)]
    fn next(position: &Position, _: &mut Random) -> f64 {
        position.first + position.index as f64 * position.gap
    }
}
