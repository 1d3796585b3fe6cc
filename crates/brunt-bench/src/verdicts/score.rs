//! Scores the verdicts on labelled experiments against the truth.

use brunt_result::degradation::{Answer, Degradation, OverRuns, of_run, over_runs, together};
use brunt_result::statistics::Estimate;
use statrs::distribution::{ContinuousCDF, Normal};

use super::case::{Case, Effect};

/// The false alarm probability for which the ceiling is computed.
const CEILING_ALPHA: f64 = 0.02;

/// The verdicts on one experiment, compared with the truth. `None` means not applicable.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Score {
    /// Whether an effect was reported.
    pub detected: bool,
    /// Whether the verdict over all runs is inconclusive.
    pub open: bool,
    /// The probability that a detector that knows the noise reports an effect.
    pub ceiling: f64,
    /// Whether the drop is within two percentage points of the truth, or its interval contains the truth.
    pub drop_right: Option<bool>,
    /// Whether the drop's interval contains the truth.
    pub drop_covered: Option<bool>,
    /// Whether the number of lost requests is within 10 % of the truth, or its interval contains the truth.
    pub lost_right: Option<bool>,
    /// Whether the excess wait is within 10 % of the truth, or its interval contains the truth.
    pub wait_right: Option<bool>,
    /// Runs whose time to detection is within one interval of the truth, and all runs; both 0 unless the case allows
    /// determining that time.
    pub detected_in_time: [usize; 2],
    /// Runs whose recovery time is within one interval of the truth, and all runs; both 0 unless the case allows
    /// determining that time.
    pub recovered_in_time: [usize; 2],
    /// Whether the mean recovery time of all runs is within one interval of the truth.
    pub recovered_right: Option<bool>,
    /// Runs that recovered but are reported never to have recovered, and all runs of such a case.
    pub false_never: [usize; 2],
    /// Runs with an inconclusive recovery although the series is long enough, and all runs of such a case.
    pub recovery_open: [usize; 2],
    /// Runs that did not recover but are reported to have recovered, and all runs of such a case.
    pub false_return: [usize; 2],
}

/// Whether the verdict over all runs reports an effect, and whether it is inconclusive.
fn verdict(all: &OverRuns) -> (bool, bool) {
    let seen = all.detected_s.map_or(0, |seen| seen.runs);
    (
        2 * seen >= all.runs,
        2 * all.detection_inconclusive >= all.runs,
    )
}

/// Whether an estimate is at most `off` from the truth or its interval contains the truth; and whether its interval
/// does.
pub(super) fn right(estimate: Option<Estimate>, truth: f64, off: f64) -> (bool, bool) {
    let Some(known) = estimate else {
        return (false, false);
    };
    let covered = known
        .low
        .zip(known.high)
        .is_some_and(|(low, high)| low <= truth && truth <= high);
    (covered || (known.mean - truth).abs() <= off, covered)
}

/// Judges an experiment as Brunt does, and compares the results with the truth.
pub(super) fn score(case: &Case) -> Score {
    let spans = [case.span()];
    let runs: Vec<Degradation> = case
        .runs
        .iter()
        .filter_map(|run| of_run(run, &spans, 0))
        .collect();
    let all = over_runs("fault", &runs);
    let normal = Normal::standard();
    let quantile = normal.inverse_cdf(1.0 - CEILING_ALPHA);
    let (detected, open) = verdict(&all);
    let mut score = Score {
        detected,
        open,
        ceiling: case.ceiling(quantile, |at| normal.cdf(at)),
        ..Score::default()
    };
    let (drop_right, covered) = right(all.drop, case.drop(), 0.02);
    score.drop_right = Some(drop_right);
    score.drop_covered = Some(covered);
    if case.effect == Effect::None {
        return score;
    }
    if case.effect != Effect::Backlog {
        score.lost_right = Some(right(all.lost_requests, case.lost(), 0.1 * case.lost()).0);
    }
    score.wait_right = case
        .excess_wait_s()
        .map(|truth| right(all.excess_wait_s, truth, 0.1 * truth).0);
    times(case, &together(&runs), &all, &mut score);
    score
}

/// Scores the times to detection and recovery, for experiments whose noise allows determining them.
fn times(case: &Case, runs: &[Degradation], all: &OverRuns, score: &mut Score) {
    if !case.is_sharp(case.fall()) {
        return;
    }
    let is_in_time = |answer: Answer, truth: f64| {
        let off = answer.seconds().map(|seconds| (seconds - truth).abs());
        off.is_some_and(|off| off <= case.interval_s * 1.001)
    };
    for run in runs {
        score.detected_in_time[0] += usize::from(is_in_time(run.detected, case.interval_s));
        score.detected_in_time[1] += 1;
    }
    let after_s = (case.left.len() - case.window.end) as f64 * case.interval_s;
    let Some(truth) = case.recovered_s() else {
        for run in runs {
            score.false_return[0] += usize::from(run.recovered.seconds().is_some());
            score.false_return[1] += 1;
        }
        return;
    };
    // A recovery has to last for a second, so the series must continue for that long after it, plus half an interval.
    if after_s - truth < 1.0 + 0.5 * case.interval_s {
        return;
    }
    for run in runs {
        score.false_never[0] += usize::from(run.recovered == Answer::Never);
        score.recovery_open[0] += usize::from(run.recovered == Answer::Inconclusive);
    }
    score.false_never[1] += runs.len();
    score.recovery_open[1] += runs.len();
    if !case.recovery_is_sharp() {
        return;
    }
    for run in runs {
        score.recovered_in_time[0] += usize::from(is_in_time(run.recovered, truth));
        score.recovered_in_time[1] += 1;
    }
    let mean = all.recovered_s.map(|recovered| recovered.mean);
    score.recovered_right = Some(mean.is_some_and(|mean| is_in_time(Answer::AfterS(mean), truth)));
}
