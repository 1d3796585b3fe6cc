//! How quiet the machine was while a run was made: what a thread of its own saw, beside the run, of stolen processor time,
//! late wake-ups and a fixed piece of work. `brunt-probe` measures it; the terminal, the page and comparisons hold it
//! against what a difference or a fault cost.
//!
//! The rule: the load itself keeps processors busy, and the thread feels that too. So nothing is concluded from one run's
//! figures but stolen time; what counts is how runs of one point differ.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::statistics::Better;
use crate::summary::{PointSummary, RunSummary};

/// Above this share the machine's noise is worth a word.
pub const NOISE_SHOWN: f64 = 0.02;

/// What one run's machine did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineNoise {
    /// Share of all processors' time that the hypervisor gave to others; `null` where the kernel does not say.
    pub stolen_share: Option<f64>,
    /// How late a sleeping thread was woken: mean.
    pub wakeup_mean_us: f64,
    /// The longest of it.
    pub wakeup_max_us: f64,
    /// How long a fixed piece of work took: mean.
    pub work_mean_us: f64,
    /// The shortest of it.
    pub work_min_us: f64,
    /// How often both were measured.
    pub samples: u64,
}

/// What the machine's noise does to the figures of a point, as shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoiseShare {
    /// Processor time that was stolen, over its runs.
    pub stolen: f64,
    /// How much the time of the fixed work differed from run to run: deviation over mean.
    pub uneven: f64,
    /// The longest that a thread was woken late, in microseconds.
    pub wakeup_max_us: f64,
}

impl NoiseShare {
    /// Of a point's complete runs; `None` where nothing was measured beside them.
    pub fn of(point: &PointSummary) -> Option<NoiseShare> {
        let noises: Vec<MachineNoise> = noises(point).collect();
        let count = noises.len() as f64;
        let stolen = noises
            .iter()
            .filter_map(|noise| noise.stolen_share)
            .sum::<f64>()
            / count;
        let mean = noises.iter().map(|noise| noise.work_mean_us).sum::<f64>() / count;
        let squares = noises
            .iter()
            .map(|noise| (noise.work_mean_us - mean).powi(2))
            .sum::<f64>();
        let deviation = if noises.len() > 1 {
            (squares / (count - 1.0)).sqrt()
        } else {
            0.0
        };
        let wakeup_max_us = noises
            .iter()
            .map(|noise| noise.wakeup_max_us)
            .fold(0.0, f64::max);
        (!noises.is_empty() && mean > 0.0).then(|| NoiseShare {
            stolen,
            uneven: deviation / mean,
            wakeup_max_us,
        })
    }

    /// A change of this share or less may be the machine's own.
    pub fn explains(&self) -> f64 {
        self.stolen + self.uneven
    }

    /// A sentence's worth of it, where it matters.
    pub fn said(&self) -> Option<String> {
        let late = self.wakeup_max_us / 1e3;
        (self.explains() >= NOISE_SHOWN).then(|| {
            let [stolen, uneven] = [self.stolen, self.uneven].map(|share| share * 100.0);
            format!(
                "{stolen:.1}% stolen, work uneven by {uneven:.1}%, woken up to {late:.1} ms late"
            )
        })
    }

    /// Whether what a fault cost of the rate is no more than this noise.
    pub fn hides(&self, drop: f64) -> bool {
        drop.abs() <= self.explains()
    }
}

/// The share by which the machine was slower in the runs of `b` than in those of `a` (faster below zero), where that is
/// enough to explain that a figure became `ratio` times as large.
pub fn explanation(a: &PointSummary, b: &PointSummary, ratio: f64, better: Better) -> Option<f64> {
    let slower = slower(a, b)?.clamp(-0.99, 0.99);
    let expected = match better {
        Better::Higher => (1.0 - slower).ln(),
        Better::Lower => -(1.0 - slower).ln(),
    };
    let seen = ratio.ln();
    (seen * expected > 0.0 && seen.abs() <= expected.abs() && slower.abs() >= NOISE_SHOWN)
        .then_some(slower)
}

/// By what share the machine did less work in the runs of `b` than in those of `a`, the fixed piece of it and what was
/// stolen; `None` where one of them has not measured it.
pub fn slower(a: &PointSummary, b: &PointSummary) -> Option<f64> {
    let mean = |point: &PointSummary, get: fn(&MachineNoise) -> f64| {
        let figures: Vec<f64> = noises(point).map(|noise| get(&noise)).collect();
        (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
    };
    let work = |point| mean(point, |noise| noise.work_mean_us).filter(|mean| *mean > 0.0);
    let stolen = |point| mean(point, |noise| noise.stolen_share.unwrap_or(0.0));
    let by_work = 1.0 - work(a)? / work(b)?;
    let by_theft = stolen(b)? - stolen(a)?;
    // Stolen time is in the time of the work already: the larger of both, by size.
    Some(if by_theft.abs() > by_work.abs() {
        by_theft
    } else {
        by_work
    })
}

fn noises(point: &PointSummary) -> impl Iterator<Item = MachineNoise> + '_ {
    point
        .runs
        .iter()
        .filter(|run| run.is_complete())
        .filter_map(|run: &RunSummary| run.noise)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpKind;
    use crate::summary::tests::{op, point, run};

    fn of(noises: &[(f64, f64)]) -> PointSummary {
        let one = |&(stolen, work): &(f64, f64)| RunSummary {
            noise: Some(MachineNoise {
                stolen_share: Some(stolen),
                wakeup_mean_us: 60.0,
                wakeup_max_us: 900.0,
                work_mean_us: work,
                work_min_us: 20.0,
                samples: 40,
            }),
            ..run(vec![op(OpKind::Read, 100, 10.0)])
        };
        point("disk w", noises.iter().map(one).collect())
    }

    #[test]
    fn a_quiet_machine_explains_nothing() {
        let quiet = NoiseShare::of(&of(&[(0.0, 20.0), (0.0, 20.0), (0.0, 20.0)])).unwrap();
        assert_eq!((quiet.explains(), quiet.wakeup_max_us), (0.0, 900.0));
        assert_eq!(
            NoiseShare::of(&point("disk w", vec![run(vec![op(OpKind::Read, 1, 1.0)])])),
            None
        );
    }

    #[test]
    fn stolen_time_and_uneven_work_add_up() {
        let noisy = NoiseShare::of(&of(&[(0.1, 18.0), (0.3, 22.0)])).unwrap();
        assert!(
            (noisy.stolen - 0.2).abs() < 1e-9 && (noisy.uneven - 8f64.sqrt() / 20.0).abs() < 1e-9,
            "{noisy:?}"
        );
        assert!((noisy.explains() - noisy.stolen - noisy.uneven).abs() < 1e-9);
    }

    #[test]
    fn the_slower_machine_is_found() {
        let (fast, slow) = (
            of(&[(0.0, 20.0), (0.0, 20.0)]),
            of(&[(0.0, 25.0), (0.0, 25.0)]),
        );
        assert!((slower(&fast, &slow).unwrap() - 0.2).abs() < 1e-9);
        assert!(slower(&slow, &fast).unwrap() < -0.2);
        let robbed = of(&[(0.4, 20.0), (0.4, 20.0)]);
        assert!((slower(&fast, &robbed).unwrap() - 0.4).abs() < 1e-9);
        assert_eq!(slower(&fast, &of(&[])), None);
    }

    /// A change is explained by a machine that changed the same way by as much or more, and by no other.
    #[test]
    fn changes_are_held_against_the_machine() {
        let (fast, slow) = (
            of(&[(0.0, 20.0), (0.0, 20.0)]),
            of(&[(0.0, 25.0), (0.0, 25.0)]),
        );
        let explained = |a, b, ratio, better| explanation(a, b, ratio, better).is_some();
        assert!(
            explained(&fast, &slow, 0.9, Better::Higher)
                && explained(&fast, &slow, 1.1, Better::Lower)
        );
        assert!(
            !explained(&fast, &slow, 1.1, Better::Higher)
                && !explained(&fast, &slow, 0.9, Better::Lower)
        );
        assert!(
            !explained(&fast, &slow, 0.5, Better::Higher),
            "more than the machine's change"
        );
        assert!(
            !explained(&fast, &fast, 0.999, Better::Higher)
                && explained(&slow, &fast, 1.1, Better::Higher)
        );
        let noisy = NoiseShare::of(&of(&[(0.1, 18.0), (0.3, 22.0)])).unwrap();
        assert!(noisy.hides(0.2) && noisy.hides(-0.2) && !noisy.hides(0.5));
        assert!(
            noisy
                .said()
                .unwrap()
                .starts_with("20.0% stolen, work uneven by 14.1%"),
            "{:?}",
            noisy.said()
        );
    }
}
