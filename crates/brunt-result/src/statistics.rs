//! Statistics over runs. The sample is the run, never the second or the request, because the seconds of a run are not
//! independent of each other. `brunt run` uses the confidence intervals, `brunt compare` the verdicts.
//!
//! The rule: with fewer than [`RUNS_MIN`] runs per side there is no verdict, whatever the figures; `verdict` has
//! the other rules.

mod change_points;
mod crossed;
mod effect;
mod precision;
mod serial;
mod variance;
mod verdict;

use brunt_core::random::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

pub use change_points::{ChangePoint, FALSE_ALARMS, RESULTS_MIN, SIDE_MIN, change_points};
pub use crossed::crossed_ratio;
pub use effect::{Effect, EffectScale, PERCENT_RATIO_MAX, POWER};
pub use precision::{PRECISION_RUNS_MIN, PointPrecision, PreciseFigure, is_precise};
pub use serial::{RunCorrelation, RunLikeness};
pub use verdict::{Better, Comparison, MARGIN, MachineAllowance, Metric, Verdict, compare, holm};

/// Minimum number of runs per side for a verdict.
pub const RUNS_MIN: usize = 4;
/// If the half-width of an interval exceeds this share of its mean, the runs are too noisy to compare.
pub const NOISY: f64 = 0.25;
/// Resamples of a bootstrap interval.
pub const RESAMPLES: usize = 10_000;
/// Probability of any false verdict among all metrics of a comparison.
pub const ALPHA: f64 = 0.05;
/// Approximate maximum number of runs that is advised.
const RUNS_WANTED_MAX: usize = 1 << 16;
/// Up to this many runs on both sides together, Mann-Whitney p-values are exact if there are no ties.
const EXACT_RUNS_MAX: usize = 40;

/// Mean over runs with its 95 % confidence interval (Student's t).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// Mean over runs.
    pub mean: f64,
    /// Lower end of the interval; `null` for a single run.
    pub low: Option<f64>,
    /// Upper end of the interval; `null` for a single run.
    pub high: Option<f64>,
    /// Number of runs in the mean.
    pub runs: usize,
}

impl Estimate {
    /// Computes the estimate from one figure per run; `None` without any.
    pub fn of(runs: &[f64]) -> Option<Estimate> {
        if runs.is_empty() {
            return None;
        }
        let mean = mean(runs);
        let half = (runs.len() > 1).then(|| {
            let error = (variance(runs) / runs.len() as f64).sqrt();
            student_quantile(0.975, runs.len() as f64 - 1.0) * error
        });
        Some(Estimate {
            mean,
            low: half.map(|h| mean - h),
            high: half.map(|h| mean + h),
            runs: runs.len(),
        })
    }

    /// Half-width of the interval as a share of the mean: "± 3 %".
    pub fn relative_half_width(&self) -> Option<f64> {
        let half = self.high? - self.mean;
        (self.mean != 0.0).then(|| half / self.mean.abs())
    }

    /// Approximate number of runs needed until the half-width is this share of the mean, if further runs vary like
    /// these; `None` for a single run or a mean of zero.
    pub fn runs_wanted(&self, share: f64) -> Option<usize> {
        let half = self.relative_half_width()?;
        let deviation =
            half * (self.runs as f64).sqrt() / student_quantile(0.975, self.runs as f64 - 1.0);
        let narrow = |runs: usize| {
            student_quantile(0.975, runs as f64 - 1.0) * deviation / (runs as f64).sqrt() <= share
        };
        // Double, then bisect: the width decreases with every run.
        let mut high = self.runs.max(2);
        while !narrow(high) && high < RUNS_WANTED_MAX {
            high *= 2;
        }
        let mut low = self.runs.max(2);
        while low < high {
            let middle = (low + high) / 2;
            if narrow(middle) {
                high = middle
            } else {
                low = middle + 1
            }
        }
        Some(high)
    }
}

/// The ratio of two means, `b` to `a`, with a 95 % bootstrap interval on its logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ratio {
    /// Mean of `b` over mean of `a`.
    pub ratio: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval of the ratio.
    pub high: f64,
}

impl Ratio {
    /// Computes the ratio from one positive figure per run; `None` with fewer than two per side, or if a figure is
    /// not above zero. Runs are resampled with replacement [`RESAMPLES`] times, from a seed. The percentiles are
    /// those of the expanded interval (Hesterberg, What teachers should know about the bootstrap, 2015, section 4.6),
    /// because the plain ones are too narrow for few runs.
    pub fn of(a: &[f64], b: &[f64], seed: u64) -> Option<Ratio> {
        let positive =
            |runs: &[f64]| runs.len() >= 2 && runs.iter().all(|run| *run > 0.0 && run.is_finite());
        if !positive(a) || !positive(b) {
            return None;
        }
        let mut random = Random::new(seed);
        let mut logs: Vec<f64> = (0..RESAMPLES)
            .map(|_| (resampled_mean(b, &mut random) / resampled_mean(a, &mut random)).ln())
            .collect();
        logs.sort_unstable_by(f64::total_cmp);
        let runs = a.len().min(b.len()) as f64;
        let normal = Normal::new(0.0, 1.0).expect("the standard normal");
        let tail = normal.cdf(-(runs / (runs - 1.0)).sqrt() * student_quantile(0.975, runs - 1.0));
        let at = |share: f64| logs[((share * RESAMPLES as f64) as usize).min(RESAMPLES - 1)].exp();
        Some(Ratio {
            ratio: mean(b) / mean(a),
            low: at(tail),
            high: at(1.0 - tail),
        })
    }
}

/// Welch's test of two means.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Welch {
    /// Mean of `b` minus mean of `a`.
    pub difference: f64,
    /// Lower end of the difference's 95 % interval.
    pub low: f64,
    /// Upper end of the difference's 95 % interval.
    pub high: f64,
    /// The statistic.
    pub t: f64,
    /// Degrees of freedom (Welch, Satterthwaite).
    pub freedom: f64,
    /// Two-sided p-value.
    pub p: f64,
    /// Effect size: difference in pooled standard deviations, corrected for few runs (Hedges' g).
    pub hedges_g: f64,
}

impl Welch {
    /// `None` with fewer than two runs per side.
    pub fn of(a: &[f64], b: &[f64]) -> Option<Welch> {
        if a.len() < 2 || b.len() < 2 {
            return None;
        }
        let (count_a, count_b) = (a.len() as f64, b.len() as f64);
        let (error_a, error_b) = (variance(a) / count_a, variance(b) / count_b);
        let difference = mean(b) - mean(a);
        let error = (error_a + error_b).sqrt();
        if error == 0.0 {
            // There is no spread at all: the figures are either identical or certainly different.
            let (t, p) = if difference == 0.0 {
                (0.0, 1.0)
            } else {
                (f64::INFINITY.copysign(difference), 0.0)
            };
            let freedom = count_a + count_b - 2.0;
            return Some(Welch {
                difference,
                low: difference,
                high: difference,
                t,
                freedom,
                p,
                hedges_g: t,
            });
        }
        let freedom = (error_a + error_b).powi(2)
            / (error_a.powi(2) / (count_a - 1.0) + error_b.powi(2) / (count_b - 1.0));
        let t = difference / error;
        let law = StudentsT::new(0.0, 1.0, freedom).expect("degrees of freedom are above zero");
        let half = student_quantile(0.975, freedom) * error;
        let pooled_freedom = count_a + count_b - 2.0;
        let pooled = (((count_a - 1.0) * variance(a) + (count_b - 1.0) * variance(b))
            / pooled_freedom)
            .sqrt();
        Some(Welch {
            difference,
            low: difference - half,
            high: difference + half,
            t,
            freedom,
            p: (2.0 * law.cdf(-t.abs())).min(1.0),
            hedges_g: difference / pooled * (1.0 - 3.0 / (4.0 * pooled_freedom - 1.0)),
        })
    }
}

/// The Mann-Whitney test, which makes no assumption about the distribution of the figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MannWhitney {
    /// Pairs in which `b` is larger; ties count as half.
    pub u: f64,
    /// Two-sided p-value; exact for few runs without ties, otherwise by the normal approximation with corrections for
    /// ties and continuity.
    pub p: f64,
    /// Effect size: the probability that a run of `b` is larger than one of `a`, 0 to 1.
    pub superiority: f64,
    /// The median of all differences `b - a` (Hodges, Lehmann).
    pub shift: f64,
}

impl MannWhitney {
    /// `None` without runs on both sides.
    pub fn of(a: &[f64], b: &[f64]) -> Option<MannWhitney> {
        if a.is_empty() || b.is_empty() {
            return None;
        }
        let mut differences: Vec<f64> = b
            .iter()
            .flat_map(|b| a.iter().map(move |a| b - a))
            .collect();
        differences.sort_unstable_by(f64::total_cmp);
        let u = differences
            .iter()
            .map(|d| {
                if *d > 0.0 {
                    1.0
                } else if *d == 0.0 {
                    0.5
                } else {
                    0.0
                }
            })
            .sum::<f64>();
        let pairs = differences.len();
        let shift = (differences[(pairs - 1) / 2] + differences[pairs / 2]) / 2.0;
        let mut all: Vec<f64> = a.iter().chain(b).copied().collect();
        all.sort_unstable_by(f64::total_cmp);
        let ties: f64 = all
            .chunk_by(|x, y| x == y)
            .map(|tie| (tie.len() as f64).powi(3) - tie.len() as f64)
            .sum();
        let p = if ties == 0.0 && all.len() <= EXACT_RUNS_MAX {
            exact_p(a.len(), b.len(), u)
        } else {
            approximate_p(a.len() as f64, b.len() as f64, u, ties)
        };
        Some(MannWhitney {
            u,
            p,
            superiority: u / pairs as f64,
            shift,
        })
    }
}

/// Counts the orderings of two samples whose statistic is at least as extreme as `u`.
fn exact_p(count_a: usize, count_b: usize, u: f64) -> f64 {
    let pairs = count_a * count_b;
    // ways[j][u]: orderings of i runs of a and j of b with statistic u, built up run by run of a.
    let mut ways = vec![vec![0.0f64; pairs + 1]; count_b + 1];
    ways.iter_mut().for_each(|row| row[0] = 1.0);
    for i in 1..=count_a {
        for j in 1..=count_b {
            // The largest figure is either from b (it exceeds those of i runs of a) or from a.
            let (before, from) = ways.split_at_mut(j);
            for u in (0..=i * j).rev() {
                let last_b = if u >= i { before[j - 1][u - i] } else { 0.0 };
                let last_a = if u <= (i - 1) * j { from[0][u] } else { 0.0 };
                from[0][u] = last_a + last_b;
            }
        }
    }
    let total: f64 = ways[count_b].iter().sum();
    let far = u.max(pairs as f64 - u) as usize;
    (2.0 * ways[count_b][far..].iter().sum::<f64>() / total).min(1.0)
}

fn approximate_p(count_a: f64, count_b: f64, u: f64, ties: f64) -> f64 {
    let all = count_a + count_b;
    let variance = count_a * count_b / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    if variance <= 0.0 {
        return 1.0; // all the same
    }
    let far = (u - count_a * count_b / 2.0).abs() - 0.5;
    let normal = Normal::new(0.0, 1.0).expect("the standard normal");
    (2.0 * normal.cdf(-far.max(0.0) / variance.sqrt())).min(1.0)
}

/// The order in which to run `points`, each `repetitions` times: every round has every point once and is shuffled
/// separately, so that drift of the machine affects all points equally. Returns pairs of point and repetition.
pub fn interleaved(points: usize, repetitions: usize, seed: u64) -> Vec<(usize, usize)> {
    let mut random = Random::new(seed);
    let mut order = Vec::with_capacity(points * repetitions);
    for repetition in 0..repetitions {
        let start = order.len();
        order.extend((0..points).map(|point| (point, repetition)));
        for index in (1..points).rev() {
            order.swap(
                start + index,
                start + random.below(index as u64 + 1) as usize,
            );
        }
    }
    order
}

fn mean(runs: &[f64]) -> f64 {
    runs.iter().sum::<f64>() / runs.len() as f64
}

/// Sample variance, with n - 1.
fn variance(runs: &[f64]) -> f64 {
    let mean = mean(runs);
    runs.iter().map(|run| (run - mean).powi(2)).sum::<f64>() / (runs.len() as f64 - 1.0)
}

fn resampled_mean(runs: &[f64], random: &mut Random) -> f64 {
    let count = runs.len() as u64;
    (0..count)
        .map(|_| runs[random.below(count) as usize])
        .sum::<f64>()
        / count as f64
}

fn student_quantile(p: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom)
        .expect("degrees of freedom are above zero")
        .inverse_cdf(p)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: [f64; 6] = [101.2, 98.7, 105.3, 99.9, 102.8, 97.1];
    const B: [f64; 5] = [110.4, 104.9, 112.2, 108.8, 100.7];

    fn near(got: f64, expected: f64, what: &str) {
        assert!(
            (got - expected).abs() <= 1e-6 * expected.abs().max(1e-3),
            "{what}: {got}, not {expected}"
        );
    }

    /// Quantiles of Student's t match the printed tables.
    #[test]
    fn student_quantiles_match_printed_tables() {
        let check = |freedom, expected: f64| {
            assert!(
                (student_quantile(0.975, freedom) - expected).abs() < 5e-4,
                "{freedom}"
            );
        };
        check(1.0, 12.706);
        check(3.0, 3.182);
        check(4.0, 2.776);
        check(9.0, 2.262);
        check(30.0, 2.042);
        check(120.0, 1.980);
    }

    /// With too few runs there is no verdict, and without runs no estimate.
    #[test]
    fn few_runs_have_no_verdict() {
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[5.0]).unwrap().low, None);
        let metric = |count: usize| {
            let a = vec![100.0, 101.0, 99.0, 100.5][..count].to_vec();
            Metric::new(
                "iops",
                "iops",
                Better::Higher,
                a,
                vec![200.0, 201.0, 199.0, 202.0],
            )
        };
        assert_eq!(
            compare(&[metric(3)], MARGIN)[0].verdict,
            Verdict::TooFewRuns
        );
        assert_eq!(compare(&[metric(3)], MARGIN)[0].effect, None);
        assert_eq!(compare(&[metric(4)], MARGIN)[0].verdict, Verdict::Better);
        let lower = Metric {
            better: Better::Lower,
            ..metric(4)
        };
        assert_eq!(compare(&[lower], MARGIN)[0].verdict, Verdict::Worse);
        // Metrics that are found different don't reduce the power for the others.
        let both = compare(&[metric(3), metric(4)], MARGIN);
        assert_eq!(both[1].p_holm, both[1].effect.map(|effect| effect.p));
    }

    /// The advised number of runs gives the requested width, and one run fewer does not.
    #[test]
    fn runs_that_are_wanted() {
        let wide = Estimate::of(&[100.0, 140.0, 60.0, 120.0]).unwrap();
        let wanted = wide.runs_wanted(0.1).unwrap();
        let deviation = variance(&[100.0, 140.0, 60.0, 120.0]).sqrt() / wide.mean;
        let half = |runs: usize| {
            student_quantile(0.975, runs as f64 - 1.0) * deviation / (runs as f64).sqrt()
        };
        assert!(half(wanted) <= 0.1 && half(wanted - 1) > 0.1, "{wanted}");
        assert_eq!(wide.runs_wanted(10.0), Some(4));
        assert_eq!(Estimate::of(&[1.0]).unwrap().runs_wanted(0.1), None);
    }

    /// Holm's correction as in his paper: sorted, multiplied, never decreasing.
    #[test]
    fn holm_steps_down() {
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (got, expected) in corrected.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            near(*got, expected, "holm");
        }
        assert!(holm(&[]).is_empty());
    }

    /// The interval of a ratio covers the truth about as often as stated.
    #[test]
    fn bootstrap_intervals_cover_the_mean() {
        let mut random = Random::new(11);
        let mut covered = 0;
        let rounds = 100;
        for seed in 0..rounds {
            let mut draw = |mean: f64| {
                (0..5)
                    .map(|_| mean * (1.0 + 0.05 * random.normal()))
                    .collect::<Vec<_>>()
            };
            let ratio = Ratio::of(&draw(100.0), &draw(150.0), seed).unwrap();
            covered += u32::from(ratio.low <= 1.5 && 1.5 <= ratio.high);
        }
        assert!((89..=100).contains(&covered), "{covered} of {rounds}");
        assert_eq!(Ratio::of(&A, &B, 5), Ratio::of(&A, &B, 5), "seeded");
        assert_eq!(Ratio::of(&[1.0, 0.0], &B, 5), None);
    }

    /// Two equal distributions are hardly ever called different, however many metrics there are.
    #[test]
    fn false_verdicts_are_rare() {
        let mut random = Random::new(17);
        let mut wrong = 0;
        for _ in 0..40 {
            let mut runs = || (0..5).map(|_| 100.0 + random.normal()).collect::<Vec<_>>();
            let metrics: Vec<Metric> = (0..5)
                .map(|_| Metric::new("m", "m", Better::Higher, runs(), runs()))
                .collect();
            let compared = compare(&metrics, 0.0);
            wrong += u32::from(
                compared
                    .iter()
                    .any(|metric| metric.verdict != Verdict::Inconclusive),
            );
        }
        assert!(wrong <= 6, "{wrong} of 40 families");
    }

    /// A change is called the same if it is shown to be within the margin, even if the change itself is shown, too; a
    /// change that may be larger is inconclusive; and each verdict states the detectable change.
    #[test]
    fn the_same_within_a_margin() {
        let check = |b: &[f64], margin: f64, expected: Verdict| {
            let metric = Metric::new(
                "iops",
                "iops",
                Better::Higher,
                vec![100.0, 101.0, 99.0, 100.5],
                b.to_vec(),
            );
            let compared = compare(&[metric], margin).remove(0);
            assert_eq!(compared.verdict, expected, "{compared:?}");
            compared
        };
        check(&[100.2, 101.1, 99.3, 100.1], 0.05, Verdict::Same);
        check(&[100.2, 101.1, 99.3, 100.1], 0.001, Verdict::Inconclusive);
        let small = check(&[103.0, 104.0, 102.5, 103.5], 0.1, Verdict::Same);
        assert_eq!(small.shown, Some(Verdict::Better));
        check(&[103.0, 104.0, 102.5, 103.5], 0.02, Verdict::Better);
        let noisy = check(&[60.0, 140.0, 90.0, 115.0], 0.05, Verdict::Inconclusive);
        assert!(noisy.effect.unwrap().detectable.unwrap() > 0.5, "{noisy:?}");
        let still = check(&[100.0, 101.0, 99.0, 100.5], 0.05, Verdict::Same);
        assert!(
            still.effect.unwrap().detectable.unwrap() < 0.05,
            "{still:?}"
        );
    }

    /// The effect of rounds on both sides is not noise when runs are compared round by round.
    #[test]
    fn pairs_leave_rounds_out() {
        let rounds = [1.0, 1.5, 0.7, 1.2];
        let runs = |times: [f64; 4]| {
            rounds
                .iter()
                .zip(times)
                .map(|(r, t)| 100.0 * r * t)
                .collect::<Vec<f64>>()
        };
        let apart = Metric::new(
            "x",
            "x",
            Better::Higher,
            runs([1.0, 1.01, 0.99, 1.0]),
            runs([1.1, 1.1, 1.11, 1.09]),
        );
        let paired = Metric {
            paired: true,
            ..apart.clone()
        };
        assert_eq!(compare(&[apart], MARGIN)[0].verdict, Verdict::Inconclusive);
        let paired = compare(&[paired], MARGIN).remove(0);
        assert_eq!(paired.verdict, Verdict::Better);
        assert!((paired.effect.unwrap().value - 1.1).abs() < 0.02);
    }

    /// A figure that expresses the same fact as another one does not reduce the power for the rest, and is corrected
    /// by the same factor as that one.
    #[test]
    fn one_figure_is_counted_once() {
        let (a, b) = (
            vec![100.0, 102.0, 99.0, 100.0],
            vec![103.0, 104.0, 105.0, 103.5],
        );
        let rate = Metric::new("iops", "iops", Better::Higher, a.clone(), b.clone());
        let turned = |runs: &[f64]| runs.iter().map(|run| 1e6 / run).collect::<Vec<f64>>();
        let mean = Metric {
            one_with: Some(0),
            ..Metric::new("mean", "mean", Better::Lower, turned(&a), turned(&b))
        };
        let alone = compare(std::slice::from_ref(&rate), 0.0);
        let both = compare(&[rate, mean], 0.0);
        assert_eq!(both[0].p_holm, alone[0].p_holm);
        near(
            both[1].p_holm.unwrap(),
            alone[0].p_holm.unwrap(),
            "p of the other side",
        );
        assert_eq!(both[0].verdict, both[1].verdict);
    }

    /// Without a change, false verdicts over all figures of a comparison are as rare as stated; a change of exactly the
    /// margin is called "same" no more often than the tests allow, whether or not points have similar noise.
    #[test]
    fn verdicts_keep_their_promise() {
        let (mut wrong, mut same, mut figures) = (0, 0, 0);
        let rounds = 300;
        for round in 0..rounds {
            let mut random = Random::for_part(29, round);
            let unlike = round % 2 == 0;
            let mut metrics = |times: f64| -> Vec<Metric> {
                let mut all = Vec::new();
                for point in 0..3 {
                    for kind in ["iops", "p99"] {
                        let noise = if unlike {
                            0.01 * 3f64.powi(point)
                        } else {
                            0.04
                        };
                        let mut runs = |times: f64| -> Vec<f64> {
                            (0..4)
                                .map(|_| times * (noise * random.normal()).exp())
                                .collect()
                        };
                        let a = runs(100.0);
                        all.push(Metric::new(
                            "x",
                            kind,
                            Better::Higher,
                            a,
                            runs(100.0 * times),
                        ));
                    }
                }
                all
            };
            let unchanged = compare(&metrics(1.0), MARGIN);
            wrong += usize::from(unchanged.iter().any(|one| one.shown.is_some()));
            let changed = compare(&metrics(1.0 + MARGIN), MARGIN);
            same += changed
                .iter()
                .filter(|one| one.verdict == Verdict::Same)
                .count();
            figures += changed.len();
        }
        println!(
            "false verdicts in {wrong} of {rounds} comparisons; {same} of {figures} figures falsely the same"
        );
        assert!(wrong * 100 <= rounds as usize * 8, "{wrong} of {rounds}");
        assert!(same * 100 <= figures * 6, "{same} of {figures}");
    }

    /// Rounds are complete, shuffled, and the same for the same seed.
    #[test]
    fn order_is_interleaved() {
        let order = interleaved(5, 4, 9);
        for (round, part) in order.chunks(5).enumerate() {
            let mut points: Vec<usize> = part.iter().map(|(point, _)| *point).collect();
            points.sort_unstable();
            assert!(
                points.into_iter().eq(0..5)
                    && part.iter().all(|(_, repetition)| *repetition == round)
            );
        }
        assert_eq!(order, interleaved(5, 4, 9));
        assert_ne!(order, interleaved(5, 4, 10));
        assert!(
            order[..5]
                .iter()
                .map(|x| x.0)
                .ne(order[5..10].iter().map(|x| x.0))
        );
    }

    /// Results agree with SciPy 1.17 (`ttest_ind(equal_var=False)`, `mannwhitneyu`, `t.interval`).
    #[test]
    fn agrees_with_scipy() {
        let estimate = Estimate::of(&A).unwrap();
        near(estimate.low.unwrap(), 97.74459149, "t interval, low");
        near(estimate.high.unwrap(), 103.9220752, "t interval, high");
        let welch = Welch::of(&A, &B).unwrap();
        near(welch.t, 2.750286363, "Welch t");
        near(welch.freedom, 6.568863308, "Welch df");
        near(welch.p, 0.03035234124, "Welch p");
        near(welch.low, 0.8448243633, "Welch interval, low");
        near(welch.high, 12.28850897, "Welch interval, high");
        let ranks = MannWhitney::of(&A, &B).unwrap();
        near(ranks.u, 26.0, "U");
        near(ranks.p, 0.05194805195, "exact p");
        let tied = MannWhitney::of(&[1.0, 2.0, 2.0, 3.0, 5.0], &[2.0, 4.0, 5.0, 6.0]).unwrap();
        near(tied.u, 15.5, "U with ties");
        near(tied.p, 0.2109029261, "p with ties");
    }
}
