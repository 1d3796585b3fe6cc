//! Conditions under which a comparison fails a build, and the margin within which changes don't matter, as users write
//! them.
//!
//! The rule: a condition that can't be checked because there are too few runs counts as met, so that a gate doesn't
//! pass without enough data.

use std::borrow::Cow;

use super::{EXPECTED, FAULT_FIGURES, INDEX_FIGURES, LINK_FIGURES, Line, MetricName};
use crate::OpKind;
use crate::percentile::Percentile;
use crate::statistics::{Better, EffectScale, MARGIN, Verdict};

/// A condition for the exit status: `p99 worse by 10%`, or for one kind of operation `write p99 worse by 10%`.
#[derive(Clone, Debug, PartialEq)]
pub struct FailIf {
    /// `None`: all kinds together.
    pub(super) op: Option<OpKind>,
    pub(super) metric: MetricName,
    /// As a share: 0.1 for 10 %.
    pub(super) by: f64,
}

/// Older names of metrics, still accepted in conditions.
const ALIASES: &[(&str, &str)] = &[("depth", "drop")];

/// An invalid condition for the exit status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{kind}; write for example 'p99 worse by 10%'; metrics are {}",
    known_metrics()
)]
pub struct ConditionError {
    /// What is wrong.
    pub kind: ConditionMistake,
}

/// What is wrong with a condition, for programs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionMistake {
    /// Not of the form "METRIC worse", optionally followed by "by PERCENT".
    #[error("not a condition")]
    Form,
    /// Comparisons don't cover this metric.
    #[error("unknown metric {0}")]
    Metric(String),
    /// The word before the metric isn't the name of a kind of operation.
    #[error("unknown kind of operation {0}")]
    Kind(String),
    /// Comparisons don't cover this metric for single kinds of operations.
    #[error(
        "{0} is compared only for all kinds of operations together; mean, percentiles and impacts also for each kind"
    )]
    MetricOfKind(MetricName),
    /// The text after "by" is not a percentage of 0 or more.
    #[error("'{0}' is not a percentage")]
    Percentage(String),
    /// A figure for which higher is better can't fall by 100 % or more.
    #[error("{0} cannot be worse by 100% or more, so this would never apply")]
    Never(MetricName),
}

/// The names of all metrics other than rates and response times.
fn other_metrics() -> impl Iterator<Item = &'static str> {
    let faults = FAULT_FIGURES.iter().map(|figure| figure.name);
    let indexes = INDEX_FIGURES.iter().map(|(_, name)| *name);
    let links = LINK_FIGURES.iter().map(|(name, _)| *name);
    links.chain([EXPECTED]).chain(faults).chain(indexes)
}

fn known_metrics() -> String {
    let others: Vec<&str> = other_metrics().collect();
    format!(
        "iops, mean, percentiles such as p99.9, {}",
        others.join(", ")
    )
}

/// The current name of a metric, given its current or older name.
fn metric_named(name: &str) -> Option<MetricName> {
    let alias = ALIASES.iter().find(|(old, _)| *old == name);
    let name = alias.map_or(name, |(_, new)| *new);
    if let Some(percentile) = Percentile::named(name) {
        return Some(percentile.to_string().into());
    }
    let mut known = ["iops", "mean"].into_iter().chain(other_metrics());
    known.find(|known| *known == name).map(Cow::Borrowed)
}

impl std::str::FromStr for FailIf {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<FailIf, ConditionError> {
        let wrong = |kind| ConditionError { kind };
        let words: Vec<&str> = text.split_whitespace().collect();
        let (op, metric, rest) = match words.as_slice() {
            [metric, "worse", rest @ ..] => (None, metric, rest),
            [op, metric, "worse", rest @ ..] => (Some(op), metric, rest),
            _ => return Err(wrong(ConditionMistake::Form)),
        };
        let kind = |op: &&str| {
            OpKind::of_name(op).ok_or_else(|| wrong(ConditionMistake::Kind(op.to_string())))
        };
        let op = op.map(kind).transpose()?;
        let metric = metric_named(metric)
            .ok_or_else(|| wrong(ConditionMistake::Metric(metric.to_string())))?;
        let is_impact = INDEX_FIGURES.iter().any(|(_, name)| *name == metric);
        let is_of_kinds = metric == "mean" || is_impact || Percentile::named(&metric).is_some();
        if op.is_some() && !is_of_kinds {
            return Err(wrong(ConditionMistake::MetricOfKind(metric)));
        }
        let by = match rest {
            [] => 0.0,
            ["by", percent] => percent
                .strip_suffix('%')
                .and_then(|number| number.parse::<f64>().ok())
                .filter(|number| (0.0..=1e6).contains(number))
                .ok_or_else(|| wrong(ConditionMistake::Percentage(percent.to_string())))?,
            _ => return Err(wrong(ConditionMistake::Form)),
        };
        let falls = metric == "iops" || metric == EXPECTED || is_impact;
        if falls && by >= 100.0 {
            return Err(wrong(ConditionMistake::Never(metric)));
        }
        Ok(FailIf {
            op,
            metric,
            by: by / 100.0,
        })
    }
}

impl std::fmt::Display for FailIf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let FailIf { op, metric, by } = self;
        op.map_or(Ok(()), |op| write!(f, "{op} "))?;
        write!(f, "{metric} worse")?;
        if *by > 0.0 {
            write!(f, " by {}%", by * 100.0)
        } else {
            Ok(())
        }
    }
}

impl FailIf {
    /// The percentile that the condition refers to, if any.
    pub fn percentile(&self) -> Option<Percentile> {
        Percentile::named(&self.metric)
    }

    /// Whether the condition applies to a line.
    pub fn is_about(&self, line: &Line) -> bool {
        let op_is = match self.op {
            // Parts of a point need their own conditions.
            None => !line.is_part,
            op => line.op == op,
        };
        line.metric == self.metric && op_is
    }

    /// Whether a line meets the condition: the metric is shown to be worse by more than that share. A line without a
    /// verdict also fails, because the condition can't be checked: a gate must not pass without enough data.
    pub fn fails(&self, line: &Line) -> bool {
        if !self.is_about(line) {
            return false;
        }
        match (line.comparison.verdict, line.comparison.shown) {
            (Verdict::TooFewRuns, _) => true,
            // The condition's own margin is applied to the same effect as the verdict.
            (_, Some(Verdict::Worse)) => line.comparison.effect.is_none_or(|effect| {
                let share = match effect.scale {
                    EffectScale::Ratio => effect.value - 1.0,
                    EffectScale::Difference => effect.value / effect.first.abs(),
                };
                let worse = match line.better {
                    Better::Higher => -share,
                    Better::Lower => share,
                };
                // A change from zero to something exceeds any share.
                worse > self.by || worse.is_nan()
            }),
            _ => false,
        }
    }
}

/// Changes smaller than this share count as no change: `5%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin(pub f64);

impl Default for Margin {
    fn default() -> Margin {
        Margin(MARGIN)
    }
}

/// An invalid margin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a percentage from 0 to 100; write for example 5%")]
pub struct MarginError(pub(super) String);

impl std::str::FromStr for Margin {
    type Err = MarginError;

    fn from_str(text: &str) -> Result<Margin, MarginError> {
        let number = text
            .strip_suffix('%')
            .and_then(|number| number.trim().parse::<f64>().ok());
        let percent = number.filter(|number| (0.0..=100.0).contains(number));
        percent
            .map(|percent| Margin(percent / 100.0))
            .ok_or_else(|| MarginError(text.to_string()))
    }
}
