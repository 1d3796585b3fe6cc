//! What a fault did to response times: the same rules as for the rate, the other way up. Longer is worse, and
//! an interval in which nothing at all was answered counts as longer than any band.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answers::{Answers, answers};
use super::cost::{Input, band};
use super::evidence::{RunSeries, VerdictBasis};
use super::{Answer, BASELINE_MIN, IntervalFigures, median, parts};

/// Effect on a statistic of the response time (mean or p99) over the intervals of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResponseCost {
    /// Level before the fault, in microseconds.
    pub baseline_us: f64,
    /// Upper edge of its band.
    pub high_us: f64,
    /// Ratio to the baseline during the fault; `null` if no request completed then.
    pub factor: Option<f64>,
    /// The same ratio for the worst interval in which requests completed.
    pub factor_max: Option<f64>,
    /// Time from the start of the fault until its effect was detectable.
    pub detected: Answer,
    /// Time from the end of the fault until recovery.
    pub recovered: Answer,
    /// How the verdict came about, from this run alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<VerdictBasis>,
}

/// A figure of an interval; `None` when nothing was answered in it.
pub(super) type Get = fn(&IntervalFigures) -> Option<f64>;

/// How a figure of several intervals is made of theirs: (figure, requests) of each.
pub(super) type Together = fn(&[(f64, f64)]) -> f64;

/// The mean over all requests, exactly.
pub(super) fn weighted_mean(of: &[(f64, f64)]) -> f64 {
    let requests: f64 = of.iter().map(|(_, requests)| requests).sum();
    of.iter()
        .map(|(figure, requests)| figure * requests)
        .sum::<f64>()
        / requests
}

/// Percentiles cannot be averaged; their median over intervals is that of a usual interval, as before the fault.
pub(super) fn usual(of: &[(f64, f64)]) -> f64 {
    median(of.iter().map(|(figure, _)| *figure).collect())
}

/// The level of a figure before a fault.
pub(super) fn level<'a>(
    before: impl Iterator<Item = &'a IntervalFigures>,
    get: Get,
    together: Together,
) -> Option<f64> {
    let known: Vec<(f64, f64)> = before
        .filter_map(|one| Some((get(one)?, one.requests as f64)))
        .collect();
    (known.len() >= BASELINE_MIN).then(|| together(&known))
}

/// A figure and the requests of each whole interval from `from_s` to `to_s`. Of one at the edge the rest was another
/// time's: those count only if there is no other, with their part.
pub(super) fn in_time(
    series: &[IntervalFigures],
    from_s: f64,
    to_s: f64,
    get: Get,
) -> Vec<(f64, f64)> {
    let known = |whole: bool| {
        let parts =
            parts(series, from_s, to_s).map(|(one, time)| (one, time / (one.end_s - one.start_s)));
        parts
            .filter(|(_, part)| !whole || *part >= 0.999)
            .filter_map(|(one, part)| Some((get(one)?, one.requests as f64 * part)))
            .collect::<Vec<(f64, f64)>>()
    };
    Some(known(true))
        .filter(|known| !known.is_empty())
        .unwrap_or_else(|| known(false))
}

/// How much longer than usual each interval's figure was, as a logarithm: response times grow by factors. In an interval
/// in which nothing was answered, what is outstanding has waited since the last one in which something was, at
/// least.
fn longer(input: &Input, get: Get) -> Option<RunSeries> {
    let before: Vec<f64> = input
        .usual()
        .filter_map(get)
        .filter(|us| *us > 0.0)
        .collect();
    if before.len() < BASELINE_MIN {
        return None;
    }
    let usual = before.iter().map(|us| us.ln()).sum::<f64>() / before.len() as f64;
    let mut unanswered_from_s = None;
    let waited: Vec<Option<f64>> = input
        .series
        .iter()
        .map(|one| match get(one).filter(|us| *us > 0.0) {
            Some(us) => {
                unanswered_from_s = None;
                Some(us)
            }
            None if one.end_s <= input.before.1 => None,
            None => {
                let from_s = *unanswered_from_s.get_or_insert(one.start_s);
                // As long as the middle of what waited, and more than twice the usual.
                let us = (one.end_s - from_s) * 1e6 / 2.0;
                Some(us.max(2.0 * usual.exp()))
            }
        })
        .collect();
    input.relative(|at, _| waited[at].map(|us| us.ln() - usual))
}

/// What a fault did to one figure of each run, and until when; `None` without a baseline.
pub(super) fn of_figure(
    runs: &[&Input],
    chance: f64,
    get: Get,
    together: Together,
) -> Vec<Option<(ResponseCost, Option<f64>)>> {
    let series: Vec<Option<RunSeries>> = runs.iter().map(|run| longer(run, get)).collect();
    let known: Vec<&RunSeries> = series.iter().flatten().collect();
    let mut answers = answers(&known, chance).unwrap_or_default().into_iter();
    let of = |(input, series): (&&Input, &Option<RunSeries>)| {
        series.as_ref()?;
        let answers: Answers = answers.next()?;
        Some((cost(input, &answers, get, together)?, answers.until_s))
    };
    runs.iter().zip(&series).map(of).collect()
}

fn cost(input: &Input, answers: &Answers, get: Get, together: Together) -> Option<ResponseCost> {
    let baseline_us = level(input.usual(), get, together)?;
    let before: Vec<f64> = input.usual().filter_map(get).collect();
    let (_, high_us) = band(&before)?;
    let end_s = input.fault.end_s.unwrap_or(f64::INFINITY);
    let under = in_time(&input.series, input.fault.start_s, end_s, get);
    let worst = under
        .iter()
        .map(|(figure, _)| *figure)
        .fold(f64::NEG_INFINITY, f64::max);
    let known = !under.is_empty();
    Some(ResponseCost {
        baseline_us,
        high_us,
        factor: known.then(|| together(&under) / baseline_us),
        factor_max: known.then_some(worst / baseline_us),
        detected: answers.detected,
        recovered: answers.recovered,
        verdict: Some(answers.verdict),
    })
}

/// How long all requests that were answered from a fault's begin to `until_s` waited beyond the usual mean.
pub(super) fn excess_wait_s(input: &Input, mean: &ResponseCost, until_s: f64) -> f64 {
    parts(&input.series, input.fault.start_s, until_s)
        .filter_map(|(one, time)| {
            let requests = one.requests as f64 * time / (one.end_s - one.start_s);
            Some(requests * (one.response_mean_us? - mean.baseline_us) / 1e6)
        })
        .sum()
}
