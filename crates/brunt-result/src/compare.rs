//! Two results side by side, point by point, and the conditions under which a build should fail.
//! `brunt compare` prints it.
//!
//! The rule: only points of the same label are compared, and Holm's correction is over all
//! metrics of all points, since a reader looks at all of them.

use std::collections::BTreeSet;

use crate::degradation::Degradation;
use crate::statistics::{Better, Comparison, Metric, Verdict, compare};
use crate::summary::{Latencies, PointSummary, RunSummary, Summary};

/// A figure of a run: its name, which way is up, and how to get it.
struct Figure {
    name: &'static str,
    unit: &'static str,
    better: Better,
    get: fn(&RunSummary) -> Option<f64>,
}

/// What is compared, one line each.
#[rustfmt::skip]
const FIGURES: &[Figure] = &[
    Figure { name: "iops", unit: "requests/s", better: Better::Higher, get: |run| Some(run.requests_per_second) },
    Figure { name: "mean", unit: "us", better: Better::Lower, get: |run| latency(run, |l| l.mean_us) },
    Figure { name: "p99", unit: "us", better: Better::Lower, get: |run| latency(run, |l| l.p99_us) },
    Figure { name: "p99.9", unit: "us", better: Better::Lower, get: |run| latency(run, |l| l.p99_9_us) },
];

/// What is compared of each fault that both have. Both areas are left to the tables: a longer run has a
/// larger one.
#[rustfmt::skip]
const FAULT_FIGURES: &[FaultFigure] = &[
    FaultFigure { name: "drop", unit: "share", better: Better::Lower, get: |cost| Some(cost.drop) },
    FaultFigure { name: "recovery", unit: "s", better: Better::Lower, get: |cost| cost.recovered.seconds() },
    FaultFigure { name: "mean-factor", unit: "times", better: Better::Lower, get: |cost| cost.response_mean?.factor },
    FaultFigure { name: "p99-factor", unit: "times", better: Better::Lower, get: |cost| cost.response_p99?.factor },
    FaultFigure { name: "failed", unit: "share", better: Better::Lower, get: |cost| Some(cost.failed_share) },
];

/// A figure of what a fault cost a run.
struct FaultFigure {
    name: &'static str,
    unit: &'static str,
    better: Better,
    get: fn(&Degradation) -> Option<f64>,
}

fn latency(run: &RunSummary, get: fn(&Latencies) -> f64) -> Option<f64> {
    run.response.as_ref().map(get)
}

/// One metric of one point in both results.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Line {
    /// The point.
    pub label: String,
    /// `iops`, `mean`, `p99`, `p99.9`; of a fault `drop`, `recovery`, `mean-factor`, `p99-factor`, `failed`.
    pub metric: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Which way is up.
    pub better: Better,
    /// Figures, tests, verdict.
    pub comparison: Comparison,
}

/// Every metric of every point that both have; and the labels that only one has.
pub fn compare_summaries(a: &Summary, b: &Summary) -> (Vec<Line>, Vec<String>) {
    let (mut metrics, mut keys, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for point in &a.points {
        let Some(other) = b.points.iter().find(|other| other.label == point.label) else {
            alone.push(point.label.clone());
            continue;
        };
        for figure in FIGURES {
            let of = |runs: &[RunSummary]| {
                runs.iter().filter(|run| run.is_complete()).filter_map(figure.get).collect::<Vec<f64>>()
            };
            let name = format!("{} {}", point.label, figure.name);
            metrics.push(Metric { name, better: figure.better, a: of(&point.runs), b: of(&other.runs) });
            keys.push((point.label.clone(), figure.name, figure.unit, figure.better));
        }
        faults(point, other, &mut metrics, &mut keys);
    }
    let only_b = b.points.iter().filter(|point| a.points.iter().all(|other| other.label != point.label));
    alone.extend(only_b.map(|point| point.label.clone()));
    let compared = compare(&metrics, a.experiment.seed);
    let lines = keys.into_iter().zip(compared).map(|((label, metric, unit, better), comparison)| Line {
        label,
        metric,
        unit,
        better,
        comparison,
    });
    (lines.collect(), alone)
}

/// Name of the point, name, unit and direction of the figure.
type Key = (String, &'static str, &'static str, Better);

/// Adds what the faults cost that both points have, each found by its place in the file and its name. What
/// neither side has anything to say of, or both say zero of, is no figure.
fn faults(a: &PointSummary, b: &PointSummary, metrics: &mut Vec<Metric>, keys: &mut Vec<Key>) {
    let known: BTreeSet<(u32, &str)> = names(a).intersection(&names(b)).copied().collect();
    for (index, name) in known {
        let label = format!("{}, fault {name}", a.label);
        for figure in FAULT_FIGURES {
            let of = |point: &PointSummary| {
                let runs = point.runs.iter().filter(|run| run.is_complete());
                let faults = runs.flat_map(|run| &run.faults).filter(|fault| fault.index == index);
                faults.filter_map(|fault| (figure.get)(fault.cost.as_ref()?)).collect::<Vec<f64>>()
            };
            let (a, b) = (of(a), of(b));
            if a.iter().chain(&b).all(|value| *value == 0.0) {
                continue;
            }
            metrics.push(Metric { name: format!("{label} {}", figure.name), better: figure.better, a, b });
            keys.push((label.clone(), figure.name, figure.unit, figure.better));
        }
    }
}

fn names(point: &PointSummary) -> BTreeSet<(u32, &str)> {
    let faults = point.runs.iter().flat_map(|run| &run.faults);
    faults.map(|fault| (fault.index, fault.name.as_str())).collect()
}

/// A condition for the exit status: `p99 worse by 10%`.
#[derive(Clone, Debug, PartialEq)]
pub struct FailIf {
    metric: &'static str,
    /// As a share: 0.1 for 10 %.
    by: f64,
}

/// Older words for metrics, still understood in conditions.
const ALIASES: &[(&str, &str)] = &[("depth", "drop")];

/// A condition that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}; write for example 'p99 worse by 10%'; metrics are {}", all_metrics().collect::<Vec<_>>().join(", "))]
pub struct ConditionError {
    /// What is wrong.
    pub kind: ConditionMistake,
}

/// What can be wrong with a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionMistake {
    /// It does not say "METRIC worse", with or without "by PERCENT".
    #[error("not a condition")]
    Form,
    /// Its metric is not compared.
    #[error("there is no metric {0}")]
    Metric(String),
    /// What follows "by" is not a percentage from 0 up.
    #[error("'{0}' is no percentage")]
    Percentage(String),
}

fn all_metrics() -> impl Iterator<Item = &'static str> {
    let faults = FAULT_FIGURES.iter().map(|figure| figure.name);
    FIGURES.iter().map(|figure| figure.name).chain(faults)
}

impl std::str::FromStr for FailIf {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<FailIf, ConditionError> {
        let wrong = |kind| ConditionError { kind };
        let words: Vec<&str> = text.split_whitespace().collect();
        let [metric, "worse", rest @ ..] = words.as_slice() else {
            return Err(wrong(ConditionMistake::Form));
        };
        let alias = ALIASES.iter().find(|(old, _)| old == metric).map(|(_, new)| *new);
        let metric = all_metrics()
            .find(|name| *name == alias.unwrap_or(metric))
            .ok_or_else(|| wrong(ConditionMistake::Metric(metric.to_string())))?;
        let by = match rest {
            [] => 0.0,
            ["by", percent] => percent
                .strip_suffix('%')
                .and_then(|number| number.parse::<f64>().ok())
                .filter(|number| (0.0..=1e6).contains(number))
                .ok_or_else(|| wrong(ConditionMistake::Percentage(percent.to_string())))?,
            _ => return Err(wrong(ConditionMistake::Form)),
        };
        Ok(FailIf { metric, by: by / 100.0 })
    }
}

impl FailIf {
    /// Whether a line fulfils it: shown to be worse, and the mean worse by more than that share.
    /// Where no verdict is possible the condition cannot be judged, which counts as failing: a gate
    /// that nobody can close is none.
    pub fn fails(&self, line: &Line) -> bool {
        if line.metric != self.metric {
            return false;
        }
        match line.comparison.verdict {
            Verdict::TooFewRuns => true,
            Verdict::Worse => {
                let means = line.comparison.a.map(|a| a.mean).zip(line.comparison.b.map(|b| b.mean));
                means.is_none_or(|(a, b)| match line.better {
                    Better::Higher => b < a * (1.0 - self.by),
                    Better::Lower => b > a * (1.0 + self.by),
                })
            }
            Verdict::Better | Verdict::NotShown => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(metric: &'static str, better: Better, a: &[f64], b: &[f64]) -> Line {
        let metrics = [Metric { name: metric.into(), better, a: a.to_vec(), b: b.to_vec() }];
        let comparison = compare(&metrics, 1).remove(0);
        Line { label: "x".into(), metric, unit: "us", better, comparison }
    }

    #[test]
    fn conditions_are_read() {
        assert_eq!("p99 worse by 10%".parse(), Ok(FailIf { metric: "p99", by: 0.1 }));
        assert_eq!("iops worse".parse(), Ok(FailIf { metric: "iops", by: 0.0 }));
        assert_eq!("depth worse by 5%".parse::<FailIf>(), "drop worse by 5%".parse());
        let mistake = |text: &str| text.parse::<FailIf>().unwrap_err().kind;
        assert_eq!(mistake("p99 better"), ConditionMistake::Form);
        assert_eq!(mistake("p98 worse"), ConditionMistake::Metric("p98".into()));
        assert_eq!(mistake("p99 worse by 10"), ConditionMistake::Percentage("10".into()));
        for text in ["", "p98 worse", "p99 better", "p99 worse by 10", "p99 worse by", "p99 worse by -1%"] {
            assert!(text.parse::<FailIf>().unwrap_err().to_string().contains("'p99 worse by 10%'"), "{text}");
        }
    }

    /// A gate closes when something is shown to be worse by enough, and when nothing can be shown.
    #[test]
    fn gates_close() {
        let gate: FailIf = "p99 worse by 10%".parse().unwrap();
        let base = [100.0, 101.0, 99.0, 100.5];
        let times = |by: f64| base.map(|value| value * by);
        let check = |b: &[f64], fails| {
            assert_eq!(gate.fails(&line("p99", Better::Lower, &base, b)), fails, "{b:?}");
        };
        check(&times(1.2), true);
        check(&times(1.05), false); // worse, but not by enough
        check(&times(0.5), false);
        check(&[150.0, 151.0], true); // too few runs to say
        assert!(!gate.fails(&line("iops", Better::Higher, &base, &times(0.5))), "another metric");
    }
}
