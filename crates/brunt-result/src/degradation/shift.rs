//! Whether a stretch of intervals is worse than a reference, and from where to where. Degradation asks it of a fault's
//! window against what was before, of what came after against the same, and of a return against the fault.
//!
//! The rule: what noise could have done is never an answer. A shift is shown at [`ALPHA`], or it is not shown; and of
//! one that is not shown [`Shift::noticeable`] says how large it would have had to be.
//!
//! Two tests, each at half of [`ALPHA`], both one-sided:
//! - *the whole stretch*: Welch's test of the means of the scores, for a small shift that lasts;
//! - *a part of it*: the largest sum of consecutive scores (CUSUM) against [`PERMUTATIONS`] orders of reference and
//!   stretch drawn at random, for a large shift that does not. It assumes no law of the noise.
//!
//! Both allow for neighbours that resemble each other, as far as the reference shows that they do: the error of a mean
//! is widened, and orders are drawn in blocks.

use brunt_core::random::Random;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::{BAND_SHARE, BAND_SPREADS, median};

/// Chance of a shift that is none, of one question.
pub const ALPHA: f64 = 0.01;
/// Chance to miss a shift of [`Shift::noticeable`].
const MISS: f64 = 0.05;
/// Orders drawn for the test of a part.
const PERMUTATIONS: usize = 999;
/// Scores are held within so many spreads: one stall of an hour is one bad interval.
const SCORE_MAX: f64 = 10.0;
/// The test of a part counts what is beyond so many spreads.
const CUSUM_REFERENCE: f64 = 0.5;
/// Least variance of scores: that of intervals which agree by chance is no certainty.
const VARIANCE_MIN: f64 = 0.25;
/// Fewest intervals from which the resemblance of neighbours is taken.
const CORRELATION_MIN: usize = 12;

/// Turns figures into scores: how many spreads worse than the middle of the baseline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub middle: f64,
    pub spread: f64,
    /// 1 where more is worse, -1 where less is.
    pub worse: f64,
}

impl Scale {
    /// Of a baseline's figures; `None` of too few, or of a middle of zero.
    pub fn of(before: &[f64], worse: f64) -> Option<Scale> {
        if before.len() < super::BASELINE_MIN {
            return None;
        }
        let middle = median(before.to_vec());
        let spread = 1.4826
            * median(
                before
                    .iter()
                    .map(|figure| (figure - middle).abs())
                    .collect(),
            );
        let spread = spread.max(middle * BAND_SHARE / BAND_SPREADS);
        (middle > 0.0).then_some(Scale {
            middle,
            spread,
            worse,
        })
    }

    /// Half of the band.
    pub fn half_band(&self) -> f64 {
        BAND_SPREADS * self.spread
    }

    /// Of a figure; none at all is as bad as can be.
    pub fn score(&self, figure: Option<f64>) -> f64 {
        figure.map_or(SCORE_MAX, |figure| {
            (self.worse * (figure - self.middle) / self.spread).clamp(-SCORE_MAX, SCORE_MAX)
        })
    }

    /// The share of the middle that counts as no change, in scores.
    pub fn margin(&self) -> f64 {
        BAND_SHARE * self.middle / self.spread
    }

    /// Scores as a share of the middle.
    pub fn share(&self, scores: f64) -> f64 {
        scores * self.spread / self.middle
    }
}

/// What became of a stretch against a reference.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shift {
    /// Whether it is worse beyond noise and margin.
    pub shown: bool,
    /// First interval of the worst part.
    pub first: usize,
    /// Last one.
    pub last: usize,
    /// A shift of the mean by so many scores would have been shown, in 95 of 100 cases.
    pub noticeable: f64,
}

/// `series` against `reference`, both in scores: worse by more than `margin`? `correlation` is that of neighbours.
pub(super) fn shift(reference: &[f64], series: &[f64], margin: f64, correlation: f64) -> Shift {
    if series.is_empty() || reference.len() < 2 {
        return Shift {
            shown: false,
            first: 0,
            last: 0,
            noticeable: f64::INFINITY,
        };
    }
    let (first, last) = worst_part(reference, series);
    // So many neighbours say what one independent interval would.
    let alike = (1.0 + correlation) / (1.0 - correlation);
    let (count_a, count_b) = (reference.len() as f64 / alike, series.len() as f64 / alike);
    let variance_a = variance(reference).max(VARIANCE_MIN);
    // A single interval has no spread of its own.
    let variance_b = if series.len() > 1 {
        variance(series).max(VARIANCE_MIN)
    } else {
        variance_a
    };
    let (error_a, error_b) = (variance_a / count_a, variance_b / count_b);
    let own = |error: f64, count: f64| error.powi(2) / (count - 1.0).max(0.5);
    let freedom = match series.len() {
        1 => (count_a - 1.0).max(1.0),
        _ => (error_a + error_b).powi(2) / (own(error_a, count_a) + own(error_b, count_b)),
    };
    let error = (error_a + error_b).sqrt();
    let law = StudentsT::new(0.0, 1.0, freedom).expect("degrees of freedom are above zero");
    let t = (mean(series) - mean(reference) - margin) / error;
    let noticeable =
        margin + (law.inverse_cdf(1.0 - ALPHA / 2.0) + law.inverse_cdf(1.0 - MISS)) * error;
    let whole = law.cdf(-t) < ALPHA / 2.0;
    let shown = whole || part_is_shown(reference, series, margin, block(alike, series.len()));
    Shift {
        shown,
        first,
        last,
        noticeable,
    }
}

/// How many neighbours stay together in the orders drawn: twice as many as resemble each other, since sums of
/// consecutive scores feel it further.
fn block(alike: f64, series: usize) -> usize {
    if alike <= 1.0 {
        1
    } else {
        ((2.0 * alike).ceil() as usize)
            .min(series.div_ceil(2))
            .max(1)
    }
}

/// Whether the largest sum of consecutive scores is one that few other orders have.
fn part_is_shown(reference: &[f64], series: &[f64], margin: f64, block: usize) -> bool {
    let mut all: Vec<f64> = reference
        .iter()
        .chain(series)
        .map(|score| score - margin - CUSUM_REFERENCE)
        .collect();
    let largest = |scores: &[f64]| {
        let (mut sum, mut most) = (0.0f64, 0.0f64);
        for score in scores {
            sum = (sum + score).max(0.0);
            most = most.max(sum);
        }
        most
    };
    let seen = largest(&all[reference.len()..]);
    if seen <= 0.0 {
        return false;
    }
    let enough = (ALPHA / 2.0 * (PERMUTATIONS + 1) as f64).ceil() as usize;
    let mut random = Random::new(PERMUTATIONS as u64);
    let blocks = all.len() / block;
    // What is left over of the last block stays where it is.
    let mut as_far = 1;
    for _ in 0..PERMUTATIONS {
        for index in (1..blocks).rev() {
            let other = random.below(index as u64 + 1) as usize;
            if other != index {
                let (low, high) = all.split_at_mut(index * block);
                low[other * block..][..block].swap_with_slice(&mut high[..block]);
            }
        }
        as_far += usize::from(largest(&all[reference.len()..]) >= seen - 1e-9);
        if as_far >= enough {
            return false;
        }
    }
    true
}

/// The consecutive intervals that stand out most, first and last: those with the largest sum above half way between
/// the reference and themselves.
fn worst_part(reference: &[f64], series: &[f64]) -> (usize, usize) {
    let usual = mean(reference);
    let (mut first, mut last) = (0, series.len() - 1);
    for _ in 0..3 {
        let half_way = (usual + mean(&series[first..=last]).max(usual)) / 2.0;
        let (mut sum, mut most, mut begin) = (0.0, f64::NEG_INFINITY, 0);
        for (index, score) in series.iter().enumerate() {
            if sum <= 0.0 {
                (sum, begin) = (0.0, index);
            }
            sum += score - half_way;
            // Of equal sums the longest: what is exactly half way changes nothing.
            if sum > most + 1e-12 {
                (most, first, last) = (sum, begin, index);
            }
        }
    }
    (first, last)
}

/// How much neighbours resemble each other in a reference, 0 to 0.9; 0 where it is too short to say or where noise
/// would look the same.
pub(super) fn correlation(reference: &[f64]) -> f64 {
    let count = reference.len() as f64;
    if reference.len() < CORRELATION_MIN {
        return 0.0;
    }
    let mean = mean(reference);
    let all: f64 = reference.iter().map(|score| (score - mean).powi(2)).sum();
    let pairs: f64 = reference
        .windows(2)
        .map(|pair| (pair[0] - mean) * (pair[1] - mean))
        .sum();
    if all == 0.0 {
        return 0.0;
    }
    // The estimate is too low by about (1 + 3 r) / n (Kendall, 1954).
    let raw = pairs / all;
    let mended = raw + (1.0 + 3.0 * raw) / count;
    if raw > 1.64 / count.sqrt() {
        mended.clamp(0.0, 0.9)
    } else {
        0.0
    }
}

fn mean(scores: &[f64]) -> f64 {
    scores.iter().sum::<f64>() / scores.len() as f64
}

fn variance(scores: &[f64]) -> f64 {
    let mean = mean(scores);
    scores
        .iter()
        .map(|score| (score - mean).powi(2))
        .sum::<f64>()
        / (scores.len() as f64 - 1.0)
}
