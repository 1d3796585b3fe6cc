//! Change points of a series of results, oldest first: where its level shifted, by how much, and how certain that is.
//! Used by histories ([`crate::history`]).
//!
//! The method is E-divisive (Matteson and James, A nonparametric approach for multiple change point analysis of
//! multivariate data, Journal of the American Statistical Association, 2014, with exponent 1) over windows of a long
//! series, as in Hunter, now Apache Otava (Fleming and others, Hunter: using change point detection to hunt for
//! performance regressions, ICPE 2023). A series is split where the energy distance between both sides, scaled by `m
//! n / (m + n)`, is largest; the parts are split in turn. There are three differences from Hunter:
//!
//! - The test is by permutations, as in Matteson and James. It assumes no distribution of the noise, and a single
//!   outlier is never a change, because it would be just as extreme in any order. The seed is constant: the same
//!   series always has the same changes.
//! - Where no single split is significant, a middle part is tested against what comes before and after it (circular
//!   binary segmentation, Olshen and others, 2004). A slowdown that was fixed later hardly shows if a series is split
//!   in two.
//! - The significance level applies to the whole series, however many windows it has.
//!
//! The rule: at most [`FALSE_ALARMS`] of unchanged series, whose results are exchangeable, have a change point.
//! Everything else follows from that. A change needs [`SIDE_MIN`] results on each side, and with fewer than
//! [`RESULTS_MIN`] results no change is significant. Results that are correlated in time cause more false alarms.
//!
//! There is a limit to what can be detected. For a shift of 5 % over results that differ by 3 %, with twenty results
//! before and five after it, `ln(1.05) / 0.03 * sqrt(20 * 5 / 25)` is 3.25 standard errors. Even a test that knew the
//! noise and the position would detect 75 % of such shifts at a level of 1 %. This test detects about a third of
//! them, and 87 % after 20 results. If single runs differ by 3 % and a result is the mean of five, results differ by
//! 1.3 %, and it detects nine of ten shifts after three results and nearly all after four.

use brunt_core::random::Random;
use serde::Serialize;

use super::Welch;

/// Largest share of unchanged series that have a change point.
pub const FALSE_ALARMS: f64 = 0.01;
/// Minimum number of results on each side of a change point.
pub const SIDE_MIN: usize = 3;
/// With fewer results, no order is extreme enough to be significant: of nine, the four largest are at one end in 2 of
/// 126 cases.
pub const RESULTS_MIN: usize = 10;
/// Number of results examined together.
const WINDOW: usize = 100;
/// The part of the significance level that is used for splits in two; the rest is used for middle parts.
const SPLIT_SHARE: f64 = 0.8;
/// A middle part counts as significant if at most this many permutations are as extreme.
const EXTREME_MAX: f64 = 2.0;
/// Sums over other permutations count as equal to the original sum if they differ by at most this share.
const ROUNDING: f64 = 1e-9;
const SEED: u64 = 0xed1;

/// A point where a series changed its level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ChangePoint {
    /// The first value of the new level, from 0.
    pub index: usize,
    /// Mean since the previous change point; geometric if all values of the series are above zero.
    pub before: f64,
    /// Mean until the next change point; geometric if all values of the series are above zero.
    pub after: f64,
    /// `after / before`; `None` unless all values are above zero.
    pub ratio: Option<f64>,
    /// Lower end of the ratio's 95 % interval (Welch), as if the position of the change had been known.
    pub low: Option<f64>,
    /// Upper end of the ratio's 95 % interval.
    pub high: Option<f64>,
    /// Probability that an unchanged series has a change as clear as this; below [`FALSE_ALARMS`].
    pub p: f64,
}

/// The change points of a series, oldest first. A series with a value that is not finite has none.
pub fn change_points(series: &[f64]) -> Vec<ChangePoint> {
    if !series.iter().all(|value| value.is_finite()) {
        return Vec::new();
    }
    // Shifts and noise are shares of the level.
    let is_positive = series.iter().all(|value| *value > 0.0);
    let values: Vec<f64> = match is_positive {
        true => series.iter().map(|value| value.ln()).collect(),
        false => series.to_vec(),
    };
    let mut found = places(&values);
    relocate(&values, &mut found);
    let ends = found.iter().map(|place| place.index);
    let ends: Vec<usize> = [0].into_iter().chain(ends).chain([values.len()]).collect();
    let describe = |(at, place): (usize, &Place)| {
        let (before, after) = (
            &values[ends[at]..ends[at + 1]],
            &values[ends[at + 1]..ends[at + 2]],
        );
        let level = |part: &[f64]| match is_positive {
            true => super::mean(part).exp(),
            false => super::mean(part),
        };
        let welch = Welch::of(before, after).filter(|_| is_positive);
        ChangePoint {
            index: place.index,
            before: level(before),
            after: level(after),
            ratio: welch.map(|welch| welch.difference.exp()),
            low: welch.map(|welch| welch.low.exp()),
            high: welch.map(|welch| welch.high.exp()),
            p: place.p,
        }
    };
    found.iter().enumerate().map(describe).collect()
}

/// A change point whose levels are not known yet.
#[derive(Clone, Copy)]
struct Place {
    index: usize,
    p: f64,
}

/// Finds change points window by window, from the oldest result on. The next window begins at a change point that was
/// found, or otherwise half a window later, so that no change is found twice.
fn places(values: &[f64]) -> Vec<Place> {
    let windows = 1 + values.len().saturating_sub(WINDOW).div_ceil(WINDOW / 2);
    let mut search = Search::new(windows as f64);
    let (mut found, mut start) = (Vec::new(), 0);
    loop {
        let end = values.len().min(start + WINDOW);
        let mut here = Vec::new();
        search.divide(&values[start..end], start, &mut here);
        if end == values.len() {
            found.extend(here);
            return found;
        }
        match here.first() {
            Some(first) => {
                start = first.index;
                found.push(*first);
            }
            None => start += WINDOW / 2,
        }
    }
}

/// Moves each change point to the best split between its neighbours, not all of which were known when it was found.
fn relocate(values: &[f64], found: &mut [Place]) {
    for at in 0..found.len() {
        let start = at.checked_sub(1).map_or(0, |before| found[before].index);
        let end = found.get(at + 1).map_or(values.len(), |next| next.index);
        let (_, best) = best_split(&spaced(&values[start..end]));
        if let Some(best) = best {
            found[at].index = start + best;
        }
    }
}

/// The search within one series.
struct Search {
    random: Random,
    windows: f64,
    permutations: usize,
}

/// A part of a series against the rest.
#[derive(Clone, Copy)]
struct Part {
    start: usize,
    end: usize,
}

impl Search {
    fn new(windows: f64) -> Search {
        let least = (1.0 - SPLIT_SHARE) * FALSE_ALARMS / windows;
        Search {
            random: Random::new(SEED),
            windows,
            permutations: (EXTREME_MAX / least).ceil() as usize - 1,
        }
    }

    /// Adds the change points of a part of the series that begins at `offset`, oldest first.
    fn divide(&mut self, values: &[f64], offset: usize, found: &mut Vec<Place>) {
        let Some((cuts, p)) = self.cut(values) else {
            return;
        };
        let mut start = 0;
        for cut in cuts {
            self.divide(&values[start..cut], offset + start, found);
            let index = offset + cut;
            found.push(Place { index, p });
            start = cut;
        }
        self.divide(&values[start..], offset + start, found);
    }

    /// Where to split, and the probability of such a split by chance.
    fn cut(&mut self, values: &[f64]) -> Option<(Vec<usize>, f64)> {
        let values = &spaced(values)[..];
        let (observed, cut) = best_split(values);
        if let Some(p) = self.test(values, observed, SPLIT_SHARE, |values| best_split(values).0) {
            return Some((vec![cut?], p));
        }
        let (observed, part) = best_middle(values);
        let share = 1.0 - SPLIT_SHARE;
        let p = self.test(values, observed, share, |values| best_middle(values).0)?;
        let Part { start, end } = part?;
        Some((vec![start, end], p))
    }

    /// The p-value of a statistic, for the whole series and both kinds of tests; `None` if it is not significant,
    /// which becomes clear after a few permutations.
    fn test(
        &mut self,
        values: &[Spaced],
        observed: f64,
        share: f64,
        statistic: impl Fn(&[Spaced]) -> f64,
    ) -> Option<f64> {
        if observed <= 0.0 {
            return None;
        }
        let p = |extreme: usize, permutations: usize| {
            (1 + extreme) as f64 / (1 + permutations) as f64 * self.windows / share
        };
        let mut shuffled = values.to_vec();
        let mut extreme = 0;
        for _ in 0..self.permutations {
            for index in (1..shuffled.len()).rev() {
                shuffled.swap(index, self.random.below(index as u64 + 1) as usize);
            }
            if statistic(&shuffled) >= observed * (1.0 - ROUNDING) {
                extreme += 1;
                if p(extreme, self.permutations) > FALSE_ALARMS {
                    return None;
                }
            }
        }
        Some(p(extreme, self.permutations))
    }
}

/// Scaled energy distance of `m` values from `n` others, from the sums of distances within both groups and between
/// them; pairs within a group count twice.
fn energy(m: usize, n: usize, within_m: f64, within_n: f64, between: f64) -> f64 {
    let (m, n) = (m as f64, n as f64);
    let distance =
        2.0 * between / (m * n) - within_m / (m * (m - 1.0)) - within_n / (n * (n - 1.0));
    distance * m * n / (m + n)
}

/// A value with the sum of its distances to all others, which does not depend on the order.
#[derive(Clone, Copy)]
struct Spaced {
    value: f64,
    total: f64,
}

fn spaced(values: &[f64]) -> Vec<Spaced> {
    let total = |value: f64| values.iter().map(|other| (other - value).abs()).sum();
    let each = values.iter().map(|value| Spaced {
        value: *value,
        total: total(*value),
    });
    each.collect()
}

/// The best split into two parts, and its statistic.
fn best_split(values: &[Spaced]) -> (f64, Option<usize>) {
    let (mut best, mut place) = (0.0, None);
    if values.len() < 2 * SIDE_MIN {
        return (best, place);
    }
    let (mut left, mut between) = (0.0, 0.0);
    let mut right: f64 = values.iter().map(|one| one.total).sum();
    for (at, Spaced { value, total }) in values.iter().enumerate() {
        // When a value moves to the left part, its distances to earlier values no longer lie between the parts but
        // within the left one, and its distances to later values no longer lie within the right part but between the
        // parts.
        let mut before = 0.0;
        for other in &values[..at] {
            before += (other.value - value).abs();
        }
        let after = total - before;
        left += 2.0 * before;
        right -= 2.0 * after;
        between += after - before;
        let (m, n) = (at + 1, values.len() - at - 1);
        if m < SIDE_MIN || n < SIDE_MIN {
            continue;
        }
        let one = energy(m, n, left, right, between);
        if one > best {
            (best, place) = (one, Some(m));
        }
    }
    (best, place)
}

/// The middle part that differs most from the rest, and its statistic.
fn best_middle(values: &[Spaced]) -> (f64, Option<Part>) {
    let (mut best, mut place) = (0.0, None);
    let count = values.len();
    if count < 3 * SIDE_MIN {
        return (best, place);
    }
    // sums[i][j]: all distances between the first i and the first j values.
    let width = count + 1;
    let mut sums = vec![0.0; width * width];
    for (i, value) in values.iter().enumerate() {
        let mut row = 0.0;
        for (j, other) in values.iter().enumerate() {
            row += (value.value - other.value).abs();
            sums[(i + 1) * width + j + 1] = sums[i * width + j + 1] + row;
        }
    }
    let at = |i: usize, j: usize| sums[i * width + j];
    for start in SIDE_MIN..count {
        for end in start + SIDE_MIN..=count.saturating_sub(SIDE_MIN) {
            let within = at(end, end) - 2.0 * at(start, end) + at(start, start);
            let between = at(end, count) - at(start, count) - within;
            let rest = at(count, count) - within - 2.0 * between;
            let inner = end - start;
            let one = energy(inner, count - inner, within, rest, between);
            if one > best {
                (best, place) = (one, Some(Part { start, end }));
            }
        }
    }
    (best, place)
}

#[cfg(test)]
mod tests;
