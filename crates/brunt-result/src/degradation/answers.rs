//! When a fault became visible in a figure of each run and when the figure was back, from the evidence of all runs that
//! are judged together.
//!
//! The rule: an effect is shown, or there is none of [`NOTICEABLE`], or it is [`Answer::Inconclusive`]; a return is
//! [`paths`]' to judge, and only of an effect that is shown.

use super::evidence::{Evidence, Form, RunSeries, VerdictBasis, evidence};
use super::paths::{self, Return};
use super::{Answer, HOLD, NOTICEABLE};

/// What may be spent on each of several runs alone of the chance of a false alarm.
const ALONE: f64 = 0.25;

/// What the intervals of a run say of one fault, in one figure.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    pub detected: Answer,
    pub recovered: Answer,
    /// The share by which the figure would have had to be worse while the fault was there, to be seen.
    pub noticeable: f64,
    /// Up to when the series would have had to go on, or the next fault to wait, to tell whether the metric recovered;
    /// `None` where its length left nothing open.
    pub too_short_until_s: Option<f64>,
    /// Until when the effect lasted; `None` where that is open, infinite of one that lasted to the end.
    pub until_s: Option<f64>,
    /// The interval from which on the series is usual again; `None` where there is none.
    pub usual_from: Option<usize>,
    pub evidence: Evidence,
    /// How the verdict came about.
    pub verdict: VerdictBasis,
}

/// Of runs that are judged together, at this chance of a false alarm; `None` without enough intervals.
///
/// What all show together is shown, but not of a run that shows there was nothing in it. What all together do not
/// show, since they differ, some may still show alone.
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
    let hit: Vec<bool> = alone
        .iter()
        .map(|alone| match (is_shown, alone) {
            (true, Some(alone)) => !alone.excludes(together.whole.0),
            (false, Some(alone)) => alone.chance < limit,
            (_, None) => is_shown,
        })
        .collect();
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

/// Of a run in which no effect was shown.
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

/// Whether a run went on for long enough after its fault.
fn holds(run: &RunSeries) -> bool {
    let end_s = run.end_s.last().copied().unwrap_or(0.0);
    run.fault_end_s
        .is_some_and(|fault_end_s| end_s - fault_end_s >= HOLD.as_secs_f64() * 0.999)
}

/// Up to when a run would have had to go on to show a return at this time: whole intervals, one more than fits.
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
