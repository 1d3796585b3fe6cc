//! Noise shapes around a mean of 1, and the best possible detection for each by a detector that knows the shape.
//!
//! The ceiling is what generalised least squares with the true covariance and the true nuisance regressors (the
//! period of an oscillation, the form of a drift or warm-up) achieves; for noise that isn't normal, the variance is
//! replaced with the inverse of the density's Fisher information, the lower bound for every estimator of a shift
//! (Cramér-Rao).

use brunt_core::random::Random;

/// A noise shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    /// Independent and normally distributed.
    White,
    /// First-order autoregression with this coefficient.
    Alike(f64),
    /// A sine with this period in intervals, plus a tenth of it as white noise.
    Oscillating(f64),
    /// A straight line over the whole run, rising or falling, plus a fifth of it as white noise.
    Drifting,
    /// Intervals near zero, one to three in a row, plus 5 % of white noise.
    Stalling,
    /// Two levels, each held for about five intervals, plus 5 % of white noise.
    Bimodal,
    /// Student's t with three degrees of freedom.
    HeavyTailed,
    /// Log-normal.
    Skewed,
    /// A pause every ten to sixteen intervals, plus 5 % of white noise.
    Collecting,
    /// Warming up from below to the mean over the first third, plus 5 % of white noise.
    Ramping,
    /// Request counts so low that they follow a Poisson distribution.
    Quantised,
    /// Held out from tuning: a triangle wave.
    Triangle(f64),
    /// Held out: the sum of a slow and a fast autoregression.
    TwoSpeeds,
    /// Held out: gamma-distributed.
    Gamma,
    /// Held out: levels that change at random times.
    Steps,
    /// Held out: a sawtooth, like a cache that fills up and is flushed.
    Sawtooth(f64),
    /// Held out: two alternating levels.
    Square(f64),
    /// Held out: a parabola over the whole run, opening upwards or downwards, plus a fifth of it as white noise.
    Bending,
    /// Held out: warming up with the reciprocal of time, plus 5 % of white noise.
    SlowRamp,
}

/// The shapes of the table.
pub(super) const SHAPES: &[(&str, Shape)] = &[
    ("white", Shape::White),
    ("autoregressive 0.3", Shape::Alike(0.3)),
    ("autoregressive 0.6", Shape::Alike(0.6)),
    ("autoregressive 0.8", Shape::Alike(0.8)),
    ("autoregressive 0.95", Shape::Alike(0.95)),
    ("oscillating, 9 intervals", Shape::Oscillating(9.0)),
    ("oscillating, 40 intervals", Shape::Oscillating(40.0)),
    ("drifting", Shape::Drifting),
    ("stalling", Shape::Stalling),
    ("bimodal", Shape::Bimodal),
    ("heavy-tailed", Shape::HeavyTailed),
    ("log-normal", Shape::Skewed),
    ("GC-like", Shape::Collecting),
    ("ramping", Shape::Ramping),
    ("quantised", Shape::Quantised),
];

/// Shapes that were not used to choose the methods.
pub(super) const HELD_OUT: &[(&str, Shape)] = &[
    ("triangle, 14 intervals", Shape::Triangle(14.0)),
    ("two speeds", Shape::TwoSpeeds),
    ("gamma", Shape::Gamma),
    ("steps", Shape::Steps),
    ("sawtooth, 25 intervals", Shape::Sawtooth(25.0)),
    ("square wave, 18 intervals", Shape::Square(18.0)),
    ("bending", Shape::Bending),
    ("slow ramp", Shape::SlowRamp),
];

impl Shape {
    /// Draws `count` intervals with this standard deviation.
    pub(super) fn draw(self, random: &mut Random, count: usize, deviation: f64) -> Vec<f64> {
        let noise: Vec<f64> = match self {
            Shape::White => (0..count).map(|_| deviation * random.normal()).collect(),
            Shape::Alike(alike) => autoregression(random, count, alike)
                .map(|value| deviation * value)
                .collect(),
            Shape::TwoSpeeds => two_speeds(random, count, deviation),
            Shape::Oscillating(period) => periodic(random, count, deviation, period, sine),
            Shape::Triangle(period) => periodic(random, count, deviation, period, triangle),
            Shape::Sawtooth(period) => periodic(random, count, deviation, period, sawtooth),
            Shape::Square(period) => periodic(random, count, deviation, period, square),
            Shape::Bending => bending(random, count, deviation),
            Shape::SlowRamp => (0..count)
                .map(|at| -3.0 * deviation * slow_warm_up(at, count) + 0.05 * random.normal())
                .collect(),
            Shape::Drifting => drifting(random, count, deviation),
            Shape::Stalling => stalling(random, count, deviation),
            Shape::Bimodal => bimodal(random, count, deviation),
            Shape::Steps => steps(random, count, deviation),
            Shape::HeavyTailed => (0..count)
                .map(|_| {
                    let chi: f64 = (0..3).map(|_| random.normal().powi(2)).sum();
                    deviation * random.normal() / chi.max(1e-9).sqrt()
                })
                .collect(),
            Shape::Skewed => {
                let sigma = deviation.powi(2).ln_1p().sqrt();
                (0..count)
                    .map(|_| (sigma * random.normal() - sigma * sigma / 2.0).exp() - 1.0)
                    .collect()
            }
            Shape::Gamma => {
                // The mean of an integer number of exponentials, whose deviation is the closest one at or below
                // `deviation`.
                let of = deviation.powi(-2).ceil().clamp(1.0, 400.0) as usize;
                (0..count)
                    .map(|_| {
                        (0..of).map(|_| random.exponential(1.0)).sum::<f64>() / of as f64 - 1.0
                    })
                    .collect()
            }
            Shape::Collecting => collecting(random, count, deviation),
            Shape::Ramping => (0..count)
                .map(|at| -3.0 * deviation * warm_up(at, count) + 0.05 * random.normal())
                .collect(),
            Shape::Quantised => {
                let mean = quantum(deviation);
                (0..count)
                    .map(|_| poisson(random, mean) / mean - 1.0)
                    .collect()
            }
        };
        noise
            .into_iter()
            .map(|noise| (1.0 + noise).max(0.0))
            .collect()
    }

    /// The standard error, for a detector that knows this shape, of a share lost in the intervals where `hit` is true,
    /// in a single run.
    pub(super) fn ideal_error(self, hit: &[bool], deviation: f64) -> f64 {
        let count = hit.len();
        let line = |at: usize| at as f64 / count as f64 - 0.5;
        let waves = |period: f64, most: usize| -> Vec<Vec<f64>> {
            let turn = |at: usize, of: usize| std::f64::consts::TAU * (at * of) as f64 / period;
            (1..=most)
                .flat_map(|of| {
                    let wave = move |phase: f64| {
                        (0..count)
                            .map(move |at| libm_sin(turn(at, of) + phase))
                            .collect()
                    };
                    [wave(0.0), wave(std::f64::consts::FRAC_PI_2)]
                })
                .collect()
        };
        // Spread, correlation of neighbours, and known regressors.
        let (spread, alike, forms): (f64, f64, Vec<Vec<f64>>) = match self {
            Shape::White | Shape::Gamma => (deviation, 0.0, vec![]),
            Shape::Alike(alike) => (deviation * (1.0 - alike * alike).sqrt(), alike, vec![]),
            Shape::TwoSpeeds => (deviation * 0.8, 0.6, vec![]),
            Shape::Oscillating(period) => (0.1 * deviation, 0.0, waves(period, 1)),
            Shape::Triangle(period) | Shape::Sawtooth(period) | Shape::Square(period) => {
                (0.1 * deviation, 0.0, waves(period, 2))
            }
            Shape::Bending => {
                let known = [1, 2].map(|power| (0..count).map(|at| line(at).powi(power)).collect());
                (0.2 * deviation, 0.0, known.into())
            }
            Shape::SlowRamp => {
                let known = (0..count).map(|at| slow_warm_up(at, count)).collect();
                (0.05, 0.0, vec![known])
            }
            Shape::Drifting => (0.2 * deviation, 0.0, vec![(0..count).map(line).collect()]),
            Shape::Stalling => {
                let share = stalled_share(deviation);
                (0.05 / (1.0 - share).powf(1.5), 0.0, vec![])
            }
            Shape::Bimodal => (0.05, 0.0, vec![]),
            Shape::Steps => (deviation * 0.5, 0.8, vec![]),
            Shape::HeavyTailed => (deviation * (1.0 / 3f64.sqrt()) * 1.5f64.sqrt(), 0.0, vec![]),
            Shape::Skewed => (deviation.powi(2).ln_1p().sqrt(), 0.0, vec![]),
            Shape::Collecting => (0.05 / (1.0 - pause_depth(deviation) / 13.0), 0.0, vec![]),
            Shape::Ramping => (
                0.05,
                0.0,
                vec![(0..count).map(|at| warm_up(at, count)).collect()],
            ),
            Shape::Quantised => (quantum(deviation).powf(-0.5), 0.0, vec![]),
        };
        let hit: Vec<f64> = hit.iter().map(|hit| f64::from(u8::from(*hit))).collect();
        let columns: Vec<Vec<f64>> = [hit, vec![1.0; count]]
            .into_iter()
            .chain(forms)
            .map(|column| whitened(&column, alike))
            .collect();
        spread / unexplained(columns).sqrt()
    }

    /// How far an interval typically deviates from what its neighbours and the shape predict, as a share of the mean.
    pub(super) fn surprise(self, deviation: f64) -> f64 {
        // The larger error for a step and for a single interval, among 400 intervals, so that estimating the other
        // unknowns matters little.
        let hit: Vec<bool> = (0..400).map(|at| at >= 200).collect();
        let single: Vec<bool> = (0..400).map(|at| at == 200).collect();
        self.ideal_error(&single, deviation)
            .max(self.ideal_error(&hit, deviation))
    }
}

fn libm_sin(phase: f64) -> f64 {
    phase.sin()
}

/// Waves of standard deviation 1 and mean 0, by phase in radians.
fn sine(phase: f64) -> f64 {
    std::f64::consts::SQRT_2 * libm_sin(phase)
}

fn triangle(phase: f64) -> f64 {
    let turn = phase / std::f64::consts::TAU;
    3f64.sqrt() * (4.0 * (turn - (turn + 0.5).floor()).abs() - 1.0)
}

fn sawtooth(phase: f64) -> f64 {
    let turn = phase / std::f64::consts::TAU;
    3f64.sqrt() * (2.0 * (turn - turn.floor()) - 1.0)
}

fn square(phase: f64) -> f64 {
    if libm_sin(phase) < 0.0 { -1.0 } else { 1.0 }
}

fn periodic(
    random: &mut Random,
    count: usize,
    deviation: f64,
    period: f64,
    wave: impl Fn(f64) -> f64,
) -> Vec<f64> {
    let phase = std::f64::consts::TAU * random.unit();
    (0..count)
        .map(|at| {
            let turned = phase + std::f64::consts::TAU * at as f64 / period;
            deviation * (wave(turned) + 0.1 * random.normal())
        })
        .collect()
}

fn drifting(random: &mut Random, count: usize, deviation: f64) -> Vec<f64> {
    let slope = 12f64.sqrt() * if random.chance(0.5) { 1.0 } else { -1.0 };
    (0..count)
        .map(|at| {
            let line = slope * (at as f64 / count as f64 - 0.5);
            deviation * (line + 0.2 * random.normal())
        })
        .collect()
}

fn bending(random: &mut Random, count: usize, deviation: f64) -> Vec<f64> {
    // The parabola has mean 0 and standard deviation 1.
    let size = 180f64.sqrt() * if random.chance(0.5) { 1.0 } else { -1.0 };
    (0..count)
        .map(|at| {
            let square = (at as f64 / count as f64 - 0.5).powi(2) - 1.0 / 12.0;
            deviation * (size * square + 0.2 * random.normal())
        })
        .collect()
}

fn stalling(random: &mut Random, count: usize, deviation: f64) -> Vec<f64> {
    let share = stalled_share(deviation);
    let mut left = 0;
    let mut stalled = || {
        if left == 0 && random.chance(share / (2.0 - share)) {
            left = 1 + random.below(3);
        }
        let now = left > 0;
        left = left.saturating_sub(1);
        let level = if now { 0.0 } else { 1.0 };
        level * (1.0 + 0.05 * random.normal()) / (1.0 - share) - 1.0
    };
    (0..count).map(|_| stalled()).collect()
}

fn bimodal(random: &mut Random, count: usize, deviation: f64) -> Vec<f64> {
    let mut side = if random.chance(0.5) { 1.0 } else { -1.0 };
    (0..count)
        .map(|_| {
            side *= if random.chance(0.2) { -1.0 } else { 1.0 };
            side * deviation + 0.05 * random.normal()
        })
        .collect()
}

fn steps(random: &mut Random, count: usize, deviation: f64) -> Vec<f64> {
    let mut level = random.normal();
    (0..count)
        .map(|_| {
            if random.chance(0.05) {
                level = random.normal();
            }
            deviation * (level + 0.2 * random.normal())
        })
        .collect()
}

fn collecting(random: &mut Random, count: usize, deviation: f64) -> Vec<f64> {
    let depth = pause_depth(deviation);
    let mut next = random.below(13);
    (0..count as u64)
        .map(|at| {
            let pause = at == next;
            if pause {
                next += 10 + random.below(7);
            }
            let level = 1.0 - if pause { depth } else { 0.0 };
            level * (1.0 + 0.05 * random.normal()) / (1.0 - depth / 13.0) - 1.0
        })
        .collect()
}

fn two_speeds(random: &mut Random, count: usize, deviation: f64) -> Vec<f64> {
    let slow: Vec<f64> = autoregression(random, count, 0.9).collect();
    autoregression(random, count, 0.2)
        .zip(slow)
        .map(|(fast, slow)| deviation * (0.6 * slow + 0.8 * fast))
        .collect()
}

fn autoregression(random: &mut Random, count: usize, alike: f64) -> impl Iterator<Item = f64> {
    let mut last = random.normal();
    (0..count).map(move |_| {
        let now = last;
        last = alike * last + (1.0 - alike * alike).sqrt() * random.normal();
        now
    })
}

/// The share of zero intervals that results in this deviation.
fn stalled_share(deviation: f64) -> f64 {
    let square = deviation.powi(2);
    square / (1.0 + square)
}

/// The depth of a pause in one of 13 intervals that results in this deviation.
fn pause_depth(deviation: f64) -> f64 {
    (deviation * 13.0 / 12f64.sqrt()).min(1.0)
}

/// The mean of a Poisson count with this relative deviation.
fn quantum(deviation: f64) -> f64 {
    deviation.powi(-2)
}

fn warm_up(at: usize, count: usize) -> f64 {
    (-(at as f64) * 12.0 / count as f64).exp()
}

fn slow_warm_up(at: usize, count: usize) -> f64 {
    (1.0 + at as f64 * 40.0 / count as f64).recip()
}

/// Knuth's algorithm for small means, the normal approximation for large ones.
fn poisson(random: &mut Random, mean: f64) -> f64 {
    if mean > 60.0 {
        return (mean + mean.sqrt() * random.normal()).round().max(0.0);
    }
    let (limit, mut product, mut count) = ((-mean).exp(), random.unit(), 0.0);
    while product > limit {
        product *= random.unit();
        count += 1.0;
    }
    count
}

fn whitened(column: &[f64], alike: f64) -> Vec<f64> {
    let first = column[0] * (1.0 - alike * alike).sqrt();
    std::iter::once(first)
        .chain(column.windows(2).map(|pair| pair[1] - alike * pair[0]))
        .collect()
}

/// The sum of squares of the first column that the other columns don't explain (Gram-Schmidt).
fn unexplained(mut columns: Vec<Vec<f64>>) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut rest = columns.remove(0);
    let whole = dot(&rest, &rest);
    let mut basis: Vec<Vec<f64>> = Vec::new();
    for mut column in columns {
        let size = dot(&column, &column);
        for known in &basis {
            let part = dot(&column, known);
            column
                .iter_mut()
                .zip(known)
                .for_each(|(value, known)| *value -= part * known);
        }
        let left = dot(&column, &column);
        if left > 1e-9 * size {
            column.iter_mut().for_each(|value| *value /= left.sqrt());
            basis.push(column);
        }
    }
    for known in &basis {
        let part = dot(&rest, known);
        rest.iter_mut()
            .zip(known)
            .for_each(|(value, known)| *value -= part * known);
    }
    dot(&rest, &rest).max(1e-12 * whole)
}
