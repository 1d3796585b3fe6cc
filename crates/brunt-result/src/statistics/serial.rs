//! Correlation of consecutive runs, and intervals that are wide enough for it. A study estimates the correlation of
//! each figure over the runs of all points together, because few runs of one point show little.
//!
//! The model: the deviation of a run's figure follows the deviation of the previous run, in the order in which they
//! were made, with one correlation (a first-order autoregression). The mean of such runs is less certain than the
//! mean of as many independent runs, and their spread underestimates the true spread. Both are corrected by what the
//! model expects of the actual order, and Student's t gets the remaining degrees of freedom (Satterthwaite).
//!
//! The rule: an interval is never narrower than that of independent runs. A few runs can look correlated or
//! independent by chance, so the evidence is combined with a prior: with few runs of one point, the interval depends
//! on both; with many, on the evidence alone.

use super::{Estimate, mean, student_quantile, variance};

/// Minimum degrees of freedom of all points together to estimate a correlation.
const FREEDOM_MIN: usize = 3;
/// The correlation is increased by at most this share of its standard error. For a few runs the increase is smaller,
/// because the full increase would triple their intervals.
const CAUTION: f64 = 0.65;
/// Prior correlation of runs, and the number of runs that it is worth: a cautious guess, since a shared machine
/// showed 0.3 (docs/results.md). Without it, intervals over four to twenty runs of a single point with a correlation
/// of 0.5 between neighbours cover the truth in 90 to 92 %; with it, in 93 to 94 %, and in 99 % if runs are
/// independent.
const GUESS: f64 = 0.43;
const GUESS_RUNS: f64 = 12.0;
/// Upper limit of the estimated correlation.
const CORRELATION_MAX: f64 = 0.8;
/// Number of most recent runs to estimate from: the time that this takes grows with the square of their number.
const RUNS_MAX: usize = 96;
/// Runs correlated by less than this count as independent.
const NEGLIGIBLE: f64 = 1e-6;
/// Number of bisections until the correlation is known to a thousandth.
const HALVINGS: usize = 10;

/// Correlation of consecutive runs, 0 to 0.8.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunCorrelation(f64);

impl RunCorrelation {
    /// Independent runs.
    pub const NONE: RunCorrelation = RunCorrelation(0.0);

    /// Estimates the correlation from one figure: for each point, its runs' positions in the order of all runs and
    /// their figures.
    pub fn of(points: &[Vec<(u32, f64)>]) -> RunCorrelation {
        let runs = Residuals::of(points);
        if runs.0.len() < FREEDOM_MIN + runs.points() {
            return RunCorrelation::NONE;
        }
        let (products, squares) =
            runs.0
                .windows(2)
                .fold((0.0, 0.0), |(products, squares), pair| {
                    (
                        products + pair[0].off * pair[1].off,
                        squares + pair[1].off * pair[1].off,
                    )
                });
        let squares = squares + runs.0[0].off * runs.0[0].off;
        let seen = products / squares;
        let count = runs.0.len() as f64;
        let caution = CAUTION * (1.0 - FREEDOM_MIN as f64 / count);
        let seen = seen + caution * ((1.0 - seen * seen) / count).sqrt();
        let shown = runs.correlation_of(seen);
        RunCorrelation((count * shown + GUESS_RUNS * GUESS) / (count + GUESS_RUNS))
    }

    /// Correlation of runs that are adjacent in order.
    pub fn of_neighbours(self) -> f64 {
        self.0
    }

    fn between(self, one: u32, other: u32) -> f64 {
        power(self.0, one.abs_diff(other))
    }
}

fn power(correlation: f64, gap: u32) -> f64 {
    correlation.powi(gap.min(1 << 20) as i32)
}

/// By how much less informative correlated runs are than as many independent ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunLikeness {
    /// Variance of the runs' mean, relative to that of independent runs: 1 or more.
    pub inflation: f64,
    /// Degrees of freedom of the runs' spread.
    pub freedom: f64,
}

impl RunLikeness {
    /// The values for this many independent runs.
    pub fn independent(count: usize) -> RunLikeness {
        RunLikeness {
            inflation: 1.0,
            freedom: count.saturating_sub(1) as f64,
        }
    }

    /// The values for runs at these positions in the order of all runs, ascending.
    pub fn of(places: impl Iterator<Item = u32>, correlation: RunCorrelation) -> RunLikeness {
        let places: Vec<u32> = places.collect();
        // Results that don't record the order of their runs have the same position for all runs.
        let is_known = places.windows(2).all(|pair| pair[0] < pair[1]);
        if places.len() < 2 || !is_known || correlation == RunCorrelation::NONE {
            return RunLikeness::independent(places.len());
        }
        let count = places.len() as f64;
        // The values from the matrix of correlations between these runs: the sum of each row, and of all squares.
        let (mut rows, mut squares) = (vec![1.0; places.len()], count);
        for (index, order) in places.iter().enumerate() {
            for (other, later) in places.iter().enumerate().skip(index + 1) {
                let alike = correlation.between(*order, *later);
                if alike < NEGLIGIBLE {
                    break;
                }
                rows[index] += alike;
                rows[other] += alike;
                squares += 2.0 * alike * alike;
            }
        }
        let all: f64 = rows.iter().sum();
        // Variance of the mean, and expected variance within the runs, both for a true variance of one.
        let of_mean = all / (count * count);
        let of_spread = count * (1.0 - of_mean) / (count - 1.0);
        let rows_squared: f64 = rows.iter().map(|row| row * row).sum();
        let centred = squares - 2.0 / count * rows_squared + all * all / (count * count);
        let freedom = ((count * (1.0 - of_mean)).powi(2) / centred).clamp(1.0, count - 1.0);
        RunLikeness {
            inflation: (count * of_mean / of_spread).max(1.0),
            freedom,
        }
    }
}

impl Estimate {
    /// Computes the estimate from one figure for each run with its position in the order of all runs; `None` without
    /// any.
    pub fn of_correlated(runs: &[(u32, f64)], correlation: RunCorrelation) -> Option<Estimate> {
        let figures: Vec<f64> = runs.iter().map(|(_, figure)| *figure).collect();
        let independent = Estimate::of(&figures)?;
        if runs.len() < 2 || correlation == RunCorrelation::NONE {
            return Some(independent);
        }
        let likeness = RunLikeness::of(runs.iter().map(|(place, _)| *place), correlation);
        let error = (variance(&figures) * likeness.inflation / runs.len() as f64).sqrt();
        let half = student_quantile(0.975, likeness.freedom) * error;
        let half = independent
            .high
            .map_or(half, |high| half.max(high - independent.mean));
        let (low, high) = (Some(independent.mean - half), Some(independent.mean + half));
        Some(Estimate {
            low,
            high,
            ..independent
        })
    }
}

/// Deviation of a run's figure from the mean of its point, in standard deviations of that point.
#[derive(Clone, Copy)]
struct Residual {
    order: u32,
    point: usize,
    off: f64,
}

/// Sorted by the order in which the runs took place.
struct Residuals(Vec<Residual>);

impl Residuals {
    fn of(points: &[Vec<(u32, f64)>]) -> Residuals {
        let last = points
            .iter()
            .flatten()
            .map(|(order, _)| *order)
            .max()
            .unwrap_or(0);
        let runs = points.iter().map(Vec::len).sum::<usize>();
        let from = if runs > RUNS_MAX {
            last.saturating_sub(RUNS_MAX as u32 - 1)
        } else {
            0
        };
        let mut residuals = Vec::new();
        for (point, runs) in points.iter().enumerate() {
            let runs: Vec<(u32, f64)> = runs
                .iter()
                .copied()
                .filter(|(order, _)| *order >= from)
                .collect();
            let figures: Vec<f64> = runs.iter().map(|(_, figure)| *figure).collect();
            let spread = if figures.len() > 1 {
                variance(&figures).sqrt()
            } else {
                0.0
            };
            if spread > 0.0 && spread.is_finite() {
                let mean = mean(&figures);
                residuals.extend(runs.iter().map(|(order, figure)| Residual {
                    order: *order,
                    point,
                    off: (figure - mean) / spread,
                }));
            }
        }
        residuals.sort_unstable_by_key(|residual| residual.order);
        Residuals(residuals)
    }

    /// Number of points that have residuals.
    fn points(&self) -> usize {
        let mut points: Vec<usize> = self.0.iter().map(|run| run.point).collect();
        points.sort_unstable();
        points.dedup();
        points.len()
    }

    /// The correlation of runs for which the residuals' expected correlation is `seen`.
    fn correlation_of(&self, seen: f64) -> f64 {
        if self.expected(0.0) >= seen {
            return 0.0;
        }
        let (mut low, mut high) = (0.0, CORRELATION_MAX);
        for _ in 0..HALVINGS {
            let middle = (low + high) / 2.0;
            if self.expected(middle) < seen {
                low = middle
            } else {
                high = middle
            }
        }
        (low + high) / 2.0
    }

    /// The expected correlation of neighbouring residuals if the runs have the correlation `correlation`: it is
    /// lower, because each point's mean was subtracted.
    fn expected(&self, correlation: f64) -> f64 {
        let (runs, points) = (
            &self.0,
            self.0.iter().map(|run| run.point + 1).max().unwrap_or(0),
        );
        // Powers by distance in the order; more distant runs count as independent.
        let powers: Vec<f64> = (0..=RUNS_MAX as u32)
            .map(|gap| power(correlation, gap))
            .collect();
        let alike = |one: &Residual, other: &Residual| {
            powers
                .get(one.order.abs_diff(other.order) as usize)
                .copied()
                .unwrap_or(0.0)
        };
        let mut counts = vec![0.0; points];
        runs.iter().for_each(|run| counts[run.point] += 1.0);
        // Covariances of each run with each point's mean, and of these means with each other.
        let mut with_mean = vec![0.0; runs.len() * points];
        for (index, run) in runs.iter().enumerate() {
            for other in runs {
                with_mean[index * points + other.point] += alike(run, other) / counts[other.point];
            }
        }
        let mut means = vec![0.0; points * points];
        for (index, run) in runs.iter().enumerate() {
            for point in 0..points {
                means[run.point * points + point] +=
                    with_mean[index * points + point] / counts[run.point];
            }
        }
        let off = |one: usize, other: usize, alike: f64| {
            let (first, second) = (runs[one].point, runs[other].point);
            alike - with_mean[one * points + second] - with_mean[other * points + first]
                + means[first * points + second]
        };
        let squares: f64 = (0..runs.len()).map(|run| off(run, run, 1.0)).sum();
        let products: f64 = (1..runs.len())
            .map(|run| off(run, run - 1, alike(&runs[run], &runs[run - 1])))
            .sum();
        products / squares
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::interleaved;
    use brunt_core::random::Random;

    /// Simulates experiments with this many points and rounds, with correlated consecutive runs on top of a trend.
    /// Returns the share of the points' intervals that cover the truth, for plain and for widened intervals, and the
    /// median factor of the widening.
    fn coverage(points: usize, rounds: usize, alike: f64, trend: f64) -> [f64; 3] {
        let experiments = if points == 1 { 3000 } else { 300 };
        let (mut plain, mut widened, mut wider) = (0u32, 0u32, Vec::new());
        for seed in 0..experiments {
            let mut random = Random::for_part(77, seed);
            let order = interleaved(points, rounds, seed);
            let (mut last, runs) = (random.normal(), order.len() as f64);
            let mut figures = vec![Vec::new(); points];
            for (place, (point, _)) in order.into_iter().enumerate() {
                last = alike * last + (1.0 - alike * alike).sqrt() * random.normal();
                let drifted = last + trend * (place as f64 / (runs - 1.0) - 0.5);
                figures[point].push((place as u32, 100.0 + 3.0 * drifted));
            }
            let correlation = RunCorrelation::of(&figures);
            for figures in &figures {
                let alone: Vec<f64> = figures.iter().map(|(_, figure)| *figure).collect();
                let estimates = [
                    Estimate::of(&alone),
                    Estimate::of_correlated(figures, correlation),
                ];
                let [one, two] = estimates.map(Option::unwrap);
                let holds = |estimate: Estimate| {
                    u32::from(estimate.low <= Some(100.0) && Some(100.0) <= estimate.high)
                };
                plain += holds(one);
                widened += holds(two);
                wider.push(two.relative_half_width().unwrap() / one.relative_half_width().unwrap());
            }
        }
        wider.sort_unstable_by(f64::total_cmp);
        let all = wider.len() as f64;
        [
            f64::from(plain) / all,
            f64::from(widened) / all,
            wider[wider.len() / 2],
        ]
    }

    #[test]
    fn intervals_hold_the_truth_though_runs_are_alike() {
        for points in [1, 3] {
            for rounds in [4, 5, 8, 10, 20] {
                for (alike, trend) in [(0.0, 0.0), (0.3, 0.0), (0.5, 0.0), (0.0, 3.0)] {
                    let [plain, widened, wider] = coverage(points, rounds, alike, trend);
                    println!(
                        "{points} points, {rounds} rounds, correlation of neighbours {alike}, trend \
                         {trend}: {:.1} % of plain intervals cover the truth, {:.1} % of widened ones, \
                         {wider:.2} times as wide",
                        plain * 100.0,
                        widened * 100.0
                    );
                    assert!(
                        widened >= 0.93,
                        "{points} points, {rounds} rounds, {alike}, {trend}: {widened}"
                    );
                    // For one point with few runs, even independent runs get intervals that are wide enough for
                    // correlated ones.
                    let most = if points == 1 { 1.75 } else { 1.25 };
                    assert!(
                        alike > 0.0 || trend > 0.0 || wider < most,
                        "{points} points, {rounds} rounds: {wider}"
                    );
                }
            }
        }
    }

    #[test]
    fn nothing_is_made_of_too_little() {
        assert_eq!(RunCorrelation::of(&[]), RunCorrelation::NONE);
        assert_eq!(
            RunCorrelation::of(&[vec![(0, 1.0), (1, 2.0), (2, 3.0)]]),
            RunCorrelation::NONE
        );
        let same: Vec<(u32, f64)> = (0..20).map(|order| (order, 5.0)).collect();
        assert_eq!(
            RunCorrelation::of(std::slice::from_ref(&same)),
            RunCorrelation::NONE
        );
        let correlation = RunCorrelation::of(&[(0..40)
            .map(|order| (order, f64::from(order / 10)))
            .collect()]);
        assert!(correlation.of_neighbours() > 0.6, "{correlation:?}");
        assert_eq!(Estimate::of_correlated(&[], correlation), None);
        assert_eq!(
            Estimate::of_correlated(&same[..1], correlation)
                .unwrap()
                .low,
            None
        );
        let flat = Estimate::of_correlated(&same, correlation).unwrap();
        assert_eq!((flat.low, flat.high), (Some(5.0), Some(5.0)));
    }
}
