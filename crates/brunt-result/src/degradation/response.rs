//! The effect of a fault on response times: the same rules as for the rate, but longer is worse.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::answers::{Answers, answers};
use super::cost::{Input, band};
use super::evidence::{RunSeries, VerdictBasis};
use super::interval::{IntervalFigures, touched};
use super::limits::BASELINE_MIN;
use super::times::{TimeFigure, TimesTogether};

/// Effect on a statistic of the response time (mean or p99) over the intervals of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResponseCost {
    /// Level before the fault, in microseconds.
    pub baseline_us: f64,
    /// Upper edge of the baseline's band, in microseconds.
    pub high_us: f64,
    /// Ratio to the baseline during the fault; `null` if no request was due or outstanding then.
    pub factor: Option<f64>,
    /// Ratio to the baseline in the worst interval.
    pub factor_max: Option<f64>,
    /// Time from the start of the fault until its effect was detectable.
    pub detected: Answer,
    /// Time from the end of the fault until the response time recovered.
    pub recovered: Answer,
    /// How the verdict came about, from this run alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<VerdictBasis>,
}

/// The level of a figure before a fault.
pub(super) fn level<'a>(
    before: impl Iterator<Item = &'a IntervalFigures>,
    figure: TimeFigure,
) -> Option<f64> {
    let before = TimesTogether::of_all(before);
    (before.known() >= BASELINE_MIN)
        .then(|| figure.over(&before))
        .flatten()
}

/// How much longer than usual each interval's figure was, as a logarithm, because response times grow by factors. In
/// an interval without known times, outstanding requests have waited at least since the last interval with known
/// times.
fn longer(input: &Input, figure: TimeFigure) -> Option<RunSeries> {
    let before: Vec<f64> = input
        .usual()
        .filter_map(|one| figure.of(one))
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
        .map(|one| match figure.of(one).filter(|us| *us > 0.0) {
            Some(us) => {
                unanswered_from_s = None;
                Some(us)
            }
            None if one.end_s <= input.before.1 => None,
            None => {
                let from_s = *unanswered_from_s.get_or_insert(one.start_s);
                // The mean age of outstanding requests, but at least twice the usual time.
                let us = (one.end_s - from_s) * 1e6 / 2.0;
                Some(us.max(2.0 * usual.exp()))
            }
        })
        .collect();
    let place = match figure {
        TimeFigure::Mean => 1,
        TimeFigure::P99 => 2,
    };
    input.relative(place, |at, _| waited[at].map(|us| us.ln() - usual))
}

/// The effect of a fault on one figure of a run.
pub(super) struct FigureCost {
    pub cost: ResponseCost,
    /// When the effect ended; `None` if unknown.
    until_s: Option<f64>,
    /// By how much the figure of each interval would have been above its usual level without the fault, as a logarithm.
    usual: Vec<f64>,
}

/// The effect of a fault on one figure of each run; `None` without a baseline.
pub(super) fn of_figure(
    runs: &[&Input],
    chance: f64,
    figure: TimeFigure,
) -> Vec<Option<FigureCost>> {
    let series: Vec<Option<RunSeries>> = runs.iter().map(|run| longer(run, figure)).collect();
    let known: Vec<&RunSeries> = series.iter().flatten().collect();
    let mut answers = answers(&known, chance).unwrap_or_default().into_iter();
    let of = |(input, series): (&&Input, &Option<RunSeries>)| {
        let series = series.as_ref()?;
        let answers: Answers = answers.next()?;
        Some(FigureCost {
            cost: cost(input, &answers, figure)?,
            until_s: answers.until_s,
            usual: answers.usual(series),
        })
    };
    runs.iter().zip(&series).map(of).collect()
}

impl FigureCost {
    /// Waiting time beyond the usual, summed over all requests answered between the fault's start and the recovery of
    /// the mean, and those outstanding then, with their age; `None` if that end is unknown. Whole intervals are
    /// summed: requests held up by a stall are answered at once when it ends, anywhere within an interval. If that
    /// interval counts as recovered, they are still outstanding at its start.
    pub fn excess_wait_s(&self, input: &Input) -> Option<f64> {
        let until_s = self.until_s?.min(input.horizon_s);
        // The mean of logarithms is below the logarithm of the mean; the baseline shows by how much.
        let (mut is, mut usual) = (0.0, 0.0);
        for (at, one) in input.series.iter().enumerate() {
            if one.end_s <= input.before.1
                && let Some(mean_us) = one.response_mean_us
            {
                is += one.requests as f64 * mean_us;
                usual += one.requests as f64 * self.usual[at].exp();
            }
        }
        if usual <= 0.0 {
            return None;
        }
        let all: Vec<usize> = touched(&input.series, input.fault.start_s, until_s).collect();
        let answered: f64 = all
            .iter()
            .filter_map(|at| {
                let one = &input.series[*at];
                let usual_us = self.usual[*at].exp() * is / usual;
                Some(one.requests as f64 * (one.response_mean_us? - usual_us) / 1e6)
            })
            .sum();
        let last = all.last().map(|at| &input.series[*at]);
        Some(answered + last.and_then(|last| older_s(input, last)).unwrap_or(0.0))
    }
}

fn cost(input: &Input, answers: &Answers, figure: TimeFigure) -> Option<ResponseCost> {
    let baseline_us = level(input.usual(), figure)?;
    let before: Vec<f64> = input.usual().filter_map(|one| figure.of(one)).collect();
    let (_, high_us) = band(&before)?;
    let end_s = input.fault.end_s.unwrap_or(f64::INFINITY);
    let under = TimesTogether::in_time(&input.series, input.fault.start_s, end_s);
    let factor = figure.over(&under).map(|us| us / baseline_us);
    let worst = under.each(figure).reduce(f64::max);
    Some(ResponseCost {
        baseline_us,
        high_us,
        factor,
        factor_max: worst.map(|us| us / baseline_us),
        detected: answers.detected,
        recovered: answers.recovered,
        verdict: Some(answers.verdict),
    })
}

/// Total additional wait of the requests outstanding at the end of an interval, compared with a usual interval;
/// `None` if their ages are unknown.
fn older_s(input: &Input, one: &IntervalFigures) -> Option<f64> {
    let ages_us = |one: &IntervalFigures| {
        let waiting = one.waiting?;
        Some(waiting.requests as f64 * waiting.mean_us.unwrap_or(0.0))
    };
    let before: Vec<f64> = input.usual().filter_map(ages_us).collect();
    if before.is_empty() {
        return None;
    }
    Some((ages_us(one)? - before.iter().sum::<f64>() / before.len() as f64) / 1e6)
}
