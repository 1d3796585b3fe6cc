//! The smallest process, only for tests: pairs of requests that are due together.

use brunt_core::random::Random;

use super::kind::{Position, Process, ProcessInfo};

pub(super) struct Pairs;

impl Process for Pairs {
    const INFO: ProcessInfo = ProcessInfo {
        name: "pairs",
        help: "Two requests at a time.",
        manner: "in pairs",
    };

    fn first(_: &Position, _: &mut Random) -> f64 {
        0.0
    }

    fn next(position: &Position, _: &mut Random) -> f64 {
        position.first + (position.index / 2 * 2) as f64 * position.gap
    }
}
