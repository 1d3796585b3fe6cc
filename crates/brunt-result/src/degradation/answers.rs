//! Determines when a fault became visible in a figure of each run and when the figure recovered, from the evidence of
//! all runs that are judged together.
//!
//! The rule: an effect is shown, or an effect of [`NOTICEABLE`] is ruled out, or the answer is
//! [`Answer::Inconclusive`]. [`paths`] judges recovery, and only if an effect was shown.

use super::answer::Answer;
use super::evidence::{Evidence, Form, RunSeries, VerdictBasis, evidence};
use super::limits::{HOLD, NOTICEABLE};
use super::paths::{self, Return};

/// Part of the false-alarm probability available for testing each of several runs alone.
const ALONE: f64 = 0.25;

/// Conclusions about one fault in one figure of a run.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    pub detected: Answer,
    pub recovered: Answer,
    /// Smallest worsening during the fault that would have been detected, as a share.
    pub noticeable: f64,
    /// Time until which the series would have had to continue, or the next fault to wait, to show whether the metric
    /// recovered; `None` if the series was long enough.
    pub too_short_until_s: Option<f64>,
    /// When the effect ended; `None` if unknown, infinite if the effect lasted to the end of the series.
    pub until_s: Option<f64>,
    /// First interval from which the series is usual again; `None` if there is none.
    pub usual_from: Option<usize>,
    pub evidence: Evidence,
    /// Basis of the verdict.
    pub verdict: VerdictBasis,
}

impl Answers {
    /// What would have been usual in each interval without the fault.
    pub fn usual(&self, run: &RunSeries) -> Vec<f64> {
        match self.recovered {
            Answer::Never if run.fault_end_s.is_some() && self.detected.seconds().is_some() => {
                paths::usual_if_lasting(run, &self.evidence)
            }
            _ => paths::usual(run, &self.evidence, self.usual_from),
        }
    }
}

/// Answers for runs that are judged together, at this probability of a false alarm; `None` without enough intervals.
///
/// An effect that all runs show together counts as shown in each run, except in runs that rule it out. A model may
/// rule out what a reader sees, for example if the noise before the fault is much larger than during it, so the plain
/// mean has to agree. If the runs differ too much to show an effect together, single runs may still show it alone,
/// unless another run shows the opposite: then the difference is likely to be noise that no model explains.
pub(super) fn answers(runs: &[&RunSeries], chance: f64) -> Option<Vec<Answers>> {
    let together = match runs {
        [run] => run.evidence_alone()?,
        runs => evidence(runs)?,
    };
    let alone: Vec<Option<Evidence>> = match runs.len() {
        1 => vec![None],
        _ => runs.iter().map(|run| run.evidence_alone()).collect(),
    };
    let is_shown = together.chance < chance;
    let limit = ALONE * chance / runs.len() as f64;
    let is_noise = alone.iter().flatten().any(Evidence::is_opposite);
    let effect = together.whole.0;
    let mut hit: Vec<bool> = runs
        .iter()
        .zip(&alone)
        .map(|(run, alone)| match (is_shown, alone) {
            (true, Some(alone)) => {
                !alone.excludes(effect)
                    || run.mean_during(&paths::course(run, alone)) >= 0.5 * effect
            }
            (false, Some(alone)) => alone.chance < limit && !is_noise,
            (_, None) => is_shown,
        })
        .collect();
    // It can't be that every run rules out what all runs together show: then it counts as shown in each.
    if is_shown && !hit.contains(&true) {
        hit.fill(true);
    }
    let hits: Vec<&RunSeries> = runs
        .iter()
        .zip(&hit)
        .filter_map(|(run, hit)| hit.then_some(*run))
        .collect();
    let mut shown = match (hits.len() == runs.len(), hits.is_empty()) {
        (_, true) => Vec::new(),
        (true, _) => shown(&hits, &together, chance),
        (false, _) => shown(&hits, &evidence(&hits)?, chance),
    }
    .into_iter();
    let of = |((run, hit), alone): ((&&RunSeries, bool), Option<Evidence>)| match hit {
        true => shown.next(),
        false if hits.is_empty() => Some(unseen(run, &together, runs.len(), chance)),
        false => Some(unseen(run, &alone?, 1, limit)),
    };
    runs.iter().zip(hit).zip(alone).map(of).collect()
}

/// Answers for a run in which no effect was shown.
fn unseen(run: &RunSeries, evidence: &Evidence, runs: usize, chance: f64) -> Answers {
    let no_effect = evidence.noticeable <= NOTICEABLE;
    Answers {
        detected: if no_effect {
            Answer::Never
        } else {
            Answer::Inconclusive
        },
        recovered: match (run.fault_end_s, no_effect) {
            (None, _) => Answer::Never,
            (Some(_), true) if holds(run) => Answer::AfterS(0.0),
            _ => Answer::Inconclusive,
        },
        noticeable: evidence.noticeable,
        too_short_until_s: run
            .fault_end_s
            .filter(|_| !holds(run))
            .map(|end_s| until(run, end_s)),
        until_s: run.fault_end_s.or(Some(f64::INFINITY)),
        usual_from: no_effect.then_some(run.after),
        verdict: evidence.basis(runs, chance),
        evidence: evidence.clone(),
    }
}

/// Whether a run continued for long enough after its fault.
fn holds(run: &RunSeries) -> bool {
    let end_s = run.end_s.last().copied().unwrap_or(0.0);
    run.fault_end_s
        .is_some_and(|fault_end_s| end_s - fault_end_s >= HOLD.as_secs_f64() * 0.999)
}

/// Time until which a run would have had to continue to show a recovery at `begin_s`: `HOLD` later, plus the length
/// of the longest interval, because only whole intervals count.
fn until(run: &RunSeries, begin_s: f64) -> f64 {
    let lengths = run
        .start_s
        .iter()
        .zip(&run.end_s)
        .map(|(start, end)| end - start);
    begin_s + HOLD.as_secs_f64() + lengths.fold(0.0, f64::max)
}

fn shown(runs: &[&RunSeries], evidence: &Evidence, chance: f64) -> Vec<Answers> {
    let mut evidence = evidence.clone();
    evidence.form = match (paths::extent(runs, &evidence), evidence.form) {
        (Some(intervals), _) => Form::First(intervals),
        (None, Form::First(_)) => Form::Whole,
        (None, form) => form,
    };
    let evidence = &evidence;
    let returned = paths::together(runs, evidence);
    let of = |(run, returned): (&&RunSeries, Return)| {
        let first = run.begin + paths::onset(run, evidence);
        let detected = Answer::AfterS((run.end_s[first] - run.fault_start_s).max(0.0));
        let mut answers = Answers {
            detected,
            recovered: Answer::Never,
            noticeable: evidence.noticeable,
            too_short_until_s: None,
            until_s: Some(f64::INFINITY),
            usual_from: None,
            verdict: evidence.basis(runs.len(), chance),
            evidence: evidence.clone(),
        };
        let Some(fault_end_s) = run.fault_end_s else {
            return answers;
        };
        match returned {
            Return::After(bad) => {
                let from = run.after + bad;
                let seconds = match bad {
                    0 => 0.0,
                    _ => run.start_s[from] - fault_end_s,
                };
                answers.recovered = Answer::AfterS(seconds);
                answers.until_s = Some(fault_end_s + seconds);
                answers.usual_from = Some(from);
            }
            Return::Never => {}
            Return::TooShort { begin_s } => {
                answers.recovered = Answer::Inconclusive;
                answers.too_short_until_s = Some(until(run, begin_s));
                answers.until_s = None;
            }
            Return::Unclear => {
                answers.recovered = Answer::Inconclusive;
                answers.until_s = None;
            }
        }
        answers
    };
    runs.iter().zip(returned).map(of).collect()
}
