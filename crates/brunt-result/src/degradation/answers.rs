//! When a fault became visible in a metric and when the metric recovered, computed from scores; the same for
//! the rate and for response times.
//!
//! The rule: an answer is significant or it is [`Answer::Inconclusive`]. *Never* means that the effect would
//! have been detected, or that a series of at least [`HOLD`] after the fault is significantly low until its end.

use super::shift::{Scale, Shift, correlation, shift};
use super::{Answer, FaultSpan, HOLD, IntervalFigures, NOTICEABLE};

/// What the intervals of a run say of one fault, in one figure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answers {
    pub detected: Answer,
    pub recovered: Answer,
    /// The share by which the figure would have had to be worse while the fault was there, to be seen.
    pub noticeable: f64,
    /// Up to when the series would have had to go on, or the next fault to wait, to tell whether the metric recovered;
    /// `None` where its length left nothing open.
    pub too_short_until_s: Option<f64>,
}

/// An interval as far as answers need it.
#[derive(Clone, Copy, Debug)]
struct Scored {
    start_s: f64,
    end_s: f64,
    score: f64,
}

/// Of a figure whose baseline has `scale`; the first fault begins at `first_s`, and nothing can be told from
/// `horizon_s` on.
pub(super) fn answers(
    series: &[IntervalFigures],
    scale: &Scale,
    get: impl Fn(&IntervalFigures) -> Option<f64>,
    fault: FaultSpan,
    first_s: f64,
    horizon_s: f64,
) -> Answers {
    let scored = |one: &IntervalFigures| Scored {
        start_s: one.start_s,
        end_s: one.end_s,
        score: scale.score(get(one)),
    };
    // An interval without a figure is a bad one under a fault, and nothing to go by before it.
    let before: Vec<f64> = series
        .iter()
        .filter(|one| one.end_s <= first_s && get(one).is_some())
        .map(|one| scored(one).score)
        .collect();
    let alike = correlation(&before);
    let end_s = fault.end_s.unwrap_or(f64::INFINITY).min(horizon_s);
    let later: Vec<Scored> = series
        .iter()
        .filter(|one| one.end_s > fault.start_s && one.start_s < horizon_s)
        .map(scored)
        .collect();
    let under: Vec<f64> = later
        .iter()
        .filter(|one| one.start_s < end_s)
        .map(|one| one.score)
        .collect();
    let all: Vec<f64> = later.iter().map(|one| one.score).collect();
    let worse = |stretch: &[f64]| shift(&before, stretch, scale.margin(), alike);
    let within = worse(&under);
    let noticeable = scale.share(within.noticeable);
    // A short fault may show only when it is over.
    let seen = Some((within, &under))
        .filter(|(shift, _)| shift.shown)
        .or_else(|| Some((worse(&all), &all)).filter(|(shift, _)| shift.shown));
    let detected = match seen {
        Some((shift, _)) => Answer::AfterS(later[shift.first].end_s - fault.start_s),
        None if noticeable <= NOTICEABLE => Answer::Never,
        None => Answer::Inconclusive,
    };
    let (recovered, too_short_until_s) = match fault.end_s {
        None => (Answer::Never, None),
        Some(end_s) => {
            let after: Vec<Scored> = later
                .iter()
                .filter(|one| one.end_s > end_s && one.end_s <= horizon_s)
                .map(|one| Scored {
                    start_s: one.start_s.max(end_s),
                    ..*one
                })
                .collect();
            let low = seen.map(|(shift, of)| of[shift.first..=shift.last].to_vec());
            let recovery = Recovery {
                before: &before,
                after: &after,
                scale,
                alike,
                end_s,
                detected,
            };
            match recovery.of(low) {
                Recovered::Known(answer) => (answer, None),
                Recovered::TooShort { begin_s } => {
                    // Whole intervals: one more than fits into the time.
                    let interval_s = series
                        .iter()
                        .map(|one| one.end_s - one.start_s)
                        .fold(0.0, f64::max);
                    (
                        Answer::Inconclusive,
                        Some(begin_s + HOLD.as_secs_f64() + interval_s),
                    )
                }
            }
        }
    };
    Answers {
        detected,
        recovered,
        noticeable,
        too_short_until_s,
    }
}

/// Whether a series recovered, or when what may be its recovery began, too close to its end to last [`HOLD`].
enum Recovered {
    Known(Answer),
    TooShort { begin_s: f64 },
}

/// A series from a fault's end on, and what it is held against.
struct Recovery<'a> {
    before: &'a [f64],
    after: &'a [Scored],
    scale: &'a Scale,
    alike: f64,
    end_s: f64,
    detected: Answer,
}

impl Recovery<'_> {
    /// From which interval on the series is what it was before, after a stretch with the scores `low`.
    fn of(&self, mut low: Option<Vec<f64>>) -> Recovered {
        let Recovery {
            before,
            after,
            scale,
            alike,
            end_s,
            detected,
        } = *self;
        let scores: Vec<f64> = after.iter().map(|one| one.score).collect();
        let holds = |from: usize| {
            let time = after
                .get(from)
                .zip(after.last())
                .map(|(first, last)| last.end_s - first.start_s);
            time.is_some_and(|time| time >= HOLD.as_secs_f64() * 0.999)
        };
        if !holds(0) {
            return Recovered::TooShort { begin_s: end_s };
        }
        let mut from = 0;
        // Each round leaves a stretch behind that is shown to be low.
        while holds(from) {
            let rest = &scores[from..];
            let worse = shift(before, rest, scale.margin(), alike);
            if worse.shown {
                low = Some(rest[worse.first..=worse.last].to_vec());
                from += worse.last + 1;
                continue;
            }
            let Some(low) = low else {
                // It never was low; as good as that can be known.
                let known =
                    detected == Answer::Never && scale.share(worse.noticeable) <= NOTICEABLE;
                return Recovered::Known(if known {
                    Answer::AfterS(0.0)
                } else {
                    Answer::Inconclusive
                });
            };
            let returned = back(&low, rest, alike);
            let begin = from + returned.first;
            return match (returned.shown, holds(begin)) {
                (true, true) => Recovered::Known(Answer::AfterS(after[begin].start_s - end_s)),
                (true, false) => Recovered::TooShort {
                    begin_s: after[begin].start_s,
                },
                (false, _) => Recovered::Known(Answer::Inconclusive),
            };
        }
        // Low almost until the end: what is left is as low, or a recovery that had no time.
        let rest = scores.get(from..).filter(|rest| !rest.is_empty());
        let returned = low
            .as_ref()
            .zip(rest)
            .map(|(low, rest)| back(low, rest, alike));
        match returned.filter(|returned| returned.shown) {
            Some(returned) => Recovered::TooShort {
                begin_s: after[from + returned.first].start_s,
            },
            None => Recovered::Known(Answer::Never),
        }
    }
}

/// Whether `rest` is better than the stretch `low`: the same question upside down.
fn back(low: &[f64], rest: &[f64], alike: f64) -> Shift {
    let turned = |scores: &[f64]| scores.iter().map(|score| -score).collect::<Vec<f64>>();
    let low = turned(low);
    // Of one interval alone no spread is known: it counts as two that agree.
    let low = if low.len() == 1 { vec![low[0]; 2] } else { low };
    shift(&low, &turned(rest), 0.0, alike)
}
