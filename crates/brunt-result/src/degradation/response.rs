//! What a fault did to response times: the same rules as for the rate, the other way up. Longer is worse, and
//! an interval in which nothing at all was answered counts as longer than any band.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answers::{Answers, answers};
use super::shift::Scale;
use super::{Answer, FaultSpan, IntervalFigures, median, parts};

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

/// The level of a figure before `first_s`, each held within the band, and the band's scale; `None` without a baseline.
pub(super) fn level(
    series: &[IntervalFigures],
    first_s: f64,
    get: Get,
    together: Together,
) -> Option<(Scale, f64)> {
    let before = || {
        let before = series.iter().filter(|one| one.end_s <= first_s);
        before.filter_map(|one| Some((get(one)?, one.requests as f64)))
    };
    let scale = Scale::of(
        &before().map(|(figure, _)| figure).collect::<Vec<f64>>(),
        1.0,
    )?;
    let (low, high) = (
        scale.middle - scale.half_band(),
        scale.middle + scale.half_band(),
    );
    let held: Vec<(f64, f64)> = before()
        .map(|(figure, of)| (figure.clamp(low, high), of))
        .collect();
    let level = together(&held);
    Some((scale, level))
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

/// Of one figure; `None` without a baseline.
pub(super) fn of_figure(
    series: &[IntervalFigures],
    fault: FaultSpan,
    first_s: f64,
    horizon_s: f64,
    get: Get,
    together: Together,
) -> Option<ResponseCost> {
    let (scale, baseline_us) = level(series, first_s, get, together)?;
    let high_us = scale.middle + scale.half_band();
    let under = in_time(
        series,
        fault.start_s,
        fault.end_s.unwrap_or(f64::INFINITY),
        get,
    );
    let worst = under
        .iter()
        .map(|(figure, _)| *figure)
        .fold(f64::NEG_INFINITY, f64::max);
    let known = !under.is_empty();
    let Answers {
        detected,
        recovered,
        ..
    } = answers(series, &scale, get, fault, first_s, horizon_s);
    Some(ResponseCost {
        baseline_us,
        high_us,
        factor: known.then(|| together(&under) / baseline_us),
        factor_max: known.then_some(worst / baseline_us),
        detected,
        recovered,
    })
}
