//! Independent arrivals: exponential times between requests.

use brunt_core::random::Random;

use super::kind::{Position, Process, ProcessInfo};

pub(super) struct Poisson;

impl Process for Poisson {
    const INFO: ProcessInfo = ProcessInfo {
        name: "poisson",
        help: "Exponential: independent arrivals.",
        manner: "Poisson",
    };

    #[inline(always)]
    fn first(position: &Position, random: &mut Random) -> f64 {
        random.exponential(position.gap)
    }

    #[inline(always)]
    fn next(position: &Position, random: &mut Random) -> f64 {
        position.at + random.exponential(position.gap)
    }
}
