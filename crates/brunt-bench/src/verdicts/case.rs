//! Labelled experiments: four runs each, divided into intervals, with a fault whose effect is known.

use std::ops::Range;

use brunt_core::random::Random;
use brunt_result::degradation::{FaultSpan, IntervalFigures};

use super::noise::Shape;

/// Runs per experiment.
pub(super) const RUNS: usize = 4;
/// Requests per second before a fault.
const LEVEL: f64 = 10_000.0;
/// Mean response time before a fault.
const RESPONSE_US: f64 = 500.0;

/// The effect of a fault on the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Effect {
    /// Nothing.
    None,
    /// The fault takes this share of the rate for as long as it lasts.
    Drop(f64),
    /// Like `Drop`, but the fault begins and ends within intervals, not at their edges.
    Within(f64),
    /// The fault takes the whole rate in its first third, and nothing later.
    Stall,
    /// The fault takes half of the rate, which then recovers linearly over half of the remaining time.
    Slowly,
    /// The fault takes half of the rate permanently.
    ForGood,
    /// An open loop gets no responses until the end of the fault, when all its requests complete at once.
    Backlog,
}

/// The effects of the table, by name.
pub(super) const EFFECTS: &[(&str, Effect)] = &[
    ("none", Effect::None),
    ("drop 5 %", Effect::Drop(0.05)),
    ("drop 10 %", Effect::Drop(0.1)),
    ("drop 30 %", Effect::Drop(0.3)),
    ("drop 50 %", Effect::Drop(0.5)),
    ("drop 90 %", Effect::Drop(0.9)),
    ("drop 100 %", Effect::Drop(1.0)),
    ("stall", Effect::Stall),
    ("slow recovery", Effect::Slowly),
    ("no recovery", Effect::ForGood),
    ("stall, open loop", Effect::Backlog),
    ("drop 30 %, within intervals", Effect::Within(0.3)),
    ("drop 90 %, within intervals", Effect::Within(0.9)),
];

/// An experiment and its ground truth.
pub(super) struct Case {
    pub shape: Shape,
    pub effect: Effect,
    pub deviation: f64,
    pub interval_s: f64,
    /// The intervals that the fault touches.
    pub window: Range<usize>,
    /// The shares of the first and of the last interval in `window` that lie outside the fault.
    pub spared: [f64; 2],
    /// The share of the rate that remains in each interval.
    pub left: Vec<f64>,
    pub has_blips: bool,
    /// Requests per second before the fault.
    pub level: f64,
    pub runs: Vec<Vec<IntervalFigures>>,
}

impl Case {
    /// Draws an experiment.
    pub(super) fn draw(random: &mut Random, shape: Shape, effect: Effect) -> Case {
        let pick = |random: &mut Random, of: &[f64]| of[random.below(of.len() as u64) as usize];
        let count = pick(
            random,
            &[10.0, 20.0, 40.0, 60.0, 100.0, 200.0, 400.0, 1000.0],
        ) as usize;
        let deviation = pick(random, &[0.05, 0.1, 0.2, 0.35, 0.5]);
        let interval_s = match count {
            ..=20 => 1.0,
            21..=60 => 0.2,
            _ => 0.1,
        };
        let share = |random: &mut Random, least: f64, most: f64| {
            (count as f64 * (least + (most - least) * random.unit())).round() as usize
        };
        let begin = share(random, 0.25, 0.45).max(4);
        let end = begin + share(random, 0.15, 0.3).max(2);
        let window = begin..end.min(count - 3);
        let spared = match effect {
            Effect::Within(_) => [0.1 + 0.8 * random.unit(), 0.1 + 0.8 * random.unit()],
            _ => [0.0; 2],
        };
        let left = left(effect, count, &window, spared);
        let has_blips = count >= 40 && random.chance(0.3);
        // A quantised rate needs few requests per interval; all other shapes get many.
        let level = match shape {
            Shape::Quantised => deviation.powi(-2) / interval_s,
            _ => LEVEL,
        };
        let runs = (0..RUNS)
            .map(|_| {
                let mut rate = shape.draw(random, count, deviation);
                let slow = shape.draw(random, count, deviation).into_iter();
                let slow: Vec<f64> = slow.map(|slow| slow.max(0.2)).collect();
                let blip_at = random.below(count as u64) as usize;
                let blip_long = 1 + random.below(3) as usize;
                if has_blips {
                    rate.iter_mut()
                        .skip(blip_at)
                        .take(blip_long)
                        .for_each(|rate| *rate *= 0.2);
                }
                Loaded {
                    level,
                    interval_s,
                    window: &window,
                    effect,
                }
                .run(&rate, &slow, &left)
            })
            .collect();
        Case {
            shape,
            effect,
            deviation,
            interval_s,
            window,
            spared,
            left,
            has_blips,
            level,
            runs,
        }
    }

    /// The time of the fault.
    pub(super) fn span(&self) -> FaultSpan {
        let [first, last] = self.spared;
        FaultSpan {
            start_s: (self.window.start as f64 + first) * self.interval_s,
            end_s: Some((self.window.end as f64 - last) * self.interval_s),
        }
    }

    /// How long the fault lasts, in seconds.
    fn lasts_s(&self) -> f64 {
        let spared: f64 = self.spared.iter().sum();
        (self.window.len() as f64 - spared) * self.interval_s
    }

    /// The share of the rate that is missing when the fault begins.
    pub(super) fn fall(&self) -> f64 {
        match self.effect {
            Effect::Within(share) => share,
            _ => 1.0 - self.left[self.window.start],
        }
    }

    /// The share of the rate that the fault took, averaged over its duration.
    pub(super) fn drop(&self) -> f64 {
        let under = self.left[self.window.clone()].iter();
        under.map(|left| 1.0 - left).sum::<f64>() * self.interval_s / self.lasts_s()
    }

    /// Requests lost until recovery.
    pub(super) fn lost(&self) -> f64 {
        self.left
            .iter()
            .map(|left| (1.0 - left) * self.level * self.interval_s)
            .sum()
    }

    /// Total seconds of waiting beyond normal response times; `None` if the effect on response times is not modelled.
    pub(super) fn excess_wait_s(&self) -> Option<f64> {
        match self.effect {
            Effect::Backlog => {
                let time = self.window.len() as f64 * self.interval_s;
                Some(self.level * time * time / 2.0)
            }
            Effect::Drop(share) | Effect::Within(share) if share < 1.0 => {
                let time = self.lasts_s();
                // In a closed loop, slower requests are sent less often.
                Some(self.level * (1.0 - share) * time * RESPONSE_US / 1e6 * share / (1.0 - share))
            }
            _ => None,
        }
    }

    /// Time from the fault's end until less than 5 % of the rate is missing; `None` if the rate never recovers.
    pub(super) fn recovered_s(&self) -> Option<f64> {
        let after = &self.left[self.window.end..];
        let bad = after
            .iter()
            .rposition(|left| *left < 0.95)
            .map_or(0, |at| at + 1);
        (bad < after.len()).then_some(bad as f64 * self.interval_s)
    }

    /// The probability that a detector that knows the shape of the noise detects the effect in all runs combined, at
    /// this false alarm probability.
    pub(super) fn ceiling(&self, quantile: f64, law: impl Fn(f64) -> f64) -> f64 {
        let hit: Vec<bool> = self.left.iter().map(|left| *left < 0.999).collect();
        let missing: f64 = self.left.iter().map(|left| 1.0 - left).sum();
        let hits = hit.iter().filter(|hit| **hit).count();
        if hits == 0 {
            return 1.0 - law(quantile);
        }
        let error = self.shape.ideal_error(&hit, self.deviation) / (RUNS as f64).sqrt();
        law(missing / hits as f64 / error - quantile)
    }

    /// Whether the noise also allows determining the time of recovery to within one interval.
    pub(super) fn recovery_is_sharp(&self) -> bool {
        if self.effect != Effect::Slowly {
            return true;
        }
        // The end of a line fitted to this many intervals has twice the standard error of their mean; the line rises
        // by 0.5 in total, and the error must stay below its rise per interval.
        let intervals = ((self.left.len() - self.window.end) / 2).max(1) as f64;
        let error = 2.0 * self.shape.surprise(self.deviation) / intervals.sqrt();
        2.576 * error <= 0.5 / intervals
    }

    /// Whether a detector that knows the noise locates the edge of a fall by `fall` to within one interval in 99 % of
    /// single runs.
    pub(super) fn is_sharp(&self, fall: f64) -> bool {
        // The true edge and one that is two intervals off differ by `fall` in two intervals; telling them apart takes
        // 2.576 standard errors on either side of the middle.
        2f64.sqrt() * fall / self.shape.surprise(self.deviation) >= 2.0 * 2.576
    }
}

fn left(effect: Effect, count: usize, window: &Range<usize>, spared: [f64; 2]) -> Vec<f64> {
    let long = window.len();
    let back = ((count - window.end) / 2).max(1);
    (0..count)
        .map(|at| {
            let under = window.contains(&at);
            match effect {
                Effect::None => 1.0,
                Effect::Drop(share) if under => 1.0 - share,
                Effect::Within(share) if at == window.start => 1.0 - share * (1.0 - spared[0]),
                Effect::Within(share) if at + 1 == window.end => 1.0 - share * (1.0 - spared[1]),
                Effect::Within(share) if under => 1.0 - share,
                Effect::Backlog if under => 0.0,
                Effect::Stall if under && at < window.start + long.div_ceil(3) => 0.0,
                Effect::Slowly if under => 0.5,
                Effect::Slowly if at >= window.end && at < window.end + back => {
                    0.5 + 0.5 * (at - window.end + 1) as f64 / (back + 1) as f64
                }
                Effect::ForGood if at >= window.start => 0.5,
                _ => 1.0,
            }
        })
        .collect()
}

/// The parameters of a run's intervals.
struct Loaded<'a> {
    level: f64,
    interval_s: f64,
    window: &'a Range<usize>,
    effect: Effect,
}

impl Loaded<'_> {
    /// Builds a run from the noise of the rate, the noise of response times, and the remaining share.
    fn run(&self, rate: &[f64], slow: &[f64], left: &[f64]) -> Vec<IntervalFigures> {
        let each = rate.iter().zip(slow).zip(left).enumerate();
        each.map(|(at, ((rate, slow), left))| {
            let mut requests = (self.level * rate * left * self.interval_s).round();
            let mut response_us = RESPONSE_US * slow / left.max(1e-3);
            if self.effect == Effect::Backlog && at == self.window.end {
                let time = self.window.len() as f64 * self.interval_s;
                let waiting = (self.level * time).round();
                let waited_us = waiting * time * 1e6 / 2.0;
                response_us = (requests * response_us + waited_us) / (requests + waiting);
                requests += waiting;
            }
            let answered = (requests > 0.0).then_some(response_us);
            IntervalFigures {
                start_s: at as f64 * self.interval_s,
                end_s: (at + 1) as f64 * self.interval_s,
                requests: requests as u64,
                bytes: requests as u64 * 4096,
                response_mean_us: answered,
                ..IntervalFigures::default()
            }
        })
        .collect()
    }
}
