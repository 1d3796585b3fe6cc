//! Thresholds that an experiment requires of its figures (`[[require]]`), and whether its results meet them.
//!
//! The rule: a mean over runs meets or misses a threshold only if its whole 95 % confidence interval is on one side
//! of it; otherwise the requirement is undecided. Requirements on each run (the maximum, the share of failed
//! requests) have to hold in every run.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use brunt_core::units::{UnitError, parse_duration, parse_size};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize};

use crate::OpKind;
use crate::degradation::PhaseFigures;
use crate::percentile::Percentile;
use crate::statistics::Estimate;
use crate::summary::{OpSummary, PointSummary, RunSummary};

/// A threshold for a figure of each point, or only of points with the target or workload that it names.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "RequirementEntry", into = "RequirementEntry")]
pub struct Requirement {
    entry: RequirementEntry,
    figure: Figure,
    side: Side,
    /// In the unit of the figure.
    bound: f64,
}

/// Compares only the entry, because the other fields are derived from it.
impl PartialEq for Requirement {
    fn eq(&self, other: &Requirement) -> bool {
        self.entry == other.entry
    }
}

/// A requirement as written in files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RequirementEntry {
    /// Figure: iops, bandwidth, mean, any percentile such as p95 or p99.9, max, or failed (the share of requests that
    /// didn't succeed). Response times count from when a request was due. max and failed have to meet the bound in
    /// every run, the other figures in their mean over runs.
    figure: String,
    /// The figure has to be below this bound: a duration, requests per second, bytes per second or a percentage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    below: Option<Bound>,
    /// The figure has to be above this bound: a duration, requests per second, bytes per second or a percentage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    above: Option<Bound>,
    /// Kind of operation, such as read or write; default: all kinds together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    op: Option<String>,
    /// Target whose points have to meet the requirement; default: all targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// Workload whose points have to meet the requirement; default: all workloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workload: Option<String>,
}

/// A number, or text with a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
struct Bound(String);

impl<'de> Deserialize<'de> for Bound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bound, D::Error> {
        struct BoundVisitor;
        impl Visitor<'_> for BoundVisitor {
            type Value = Bound;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or a value with its unit such as \"2ms\"")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Bound, E> {
                Ok(Bound(text.into()))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Bound, E> {
                Ok(Bound(number.to_string()))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Bound, E> {
                Ok(Bound(number.to_string()))
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Bound, E> {
                Ok(Bound(number.to_string()))
            }
        }
        deserializer.deserialize_any(BoundVisitor)
    }
}

impl JsonSchema for Bound {
    fn schema_name() -> Cow<'static, str> {
        "Bound".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number, or a value with its unit, such as 2ms, 100MB/s or 1%",
            "anyOf": [
                { "type": "number", "minimum": 0 },
                { "type": "string", "pattern": "^ *[0-9_]*\\.?[0-9_]* *[A-Za-zµ]*(/s|%)?$" }
            ]
        })
    }
}

/// A figure that a requirement can refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Iops,
    Bandwidth,
    Mean,
    Percentile(Percentile),
    Max,
    Failed,
}

/// The figures with fixed names.
const NAMES: [(&str, Figure); 5] = [
    ("iops", Figure::Iops),
    ("bandwidth", Figure::Bandwidth),
    ("mean", Figure::Mean),
    ("max", Figure::Max),
    ("failed", Figure::Failed),
];

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequiredUnit {
    /// Requests per second.
    PerSecond,
    /// Bytes per second.
    BytesPerSecond,
    /// Microseconds.
    Micros,
    /// A share from 0 to 1.
    Share,
}

impl Figure {
    fn named(name: &str) -> Option<Figure> {
        let fixed = NAMES.iter().find(|(known, _)| *known == name);
        let percentile = || Percentile::named(name).map(Figure::Percentile);
        fixed.map(|(_, figure)| *figure).or_else(percentile)
    }

    fn unit(self) -> RequiredUnit {
        match self {
            Figure::Iops => RequiredUnit::PerSecond,
            Figure::Bandwidth => RequiredUnit::BytesPerSecond,
            Figure::Mean | Figure::Percentile(_) | Figure::Max => RequiredUnit::Micros,
            Figure::Failed => RequiredUnit::Share,
        }
    }

    /// Whether the requirement has to hold in every run, instead of for the mean over runs.
    fn is_of_every_run(self) -> bool {
        matches!(self, Figure::Max | Figure::Failed)
    }

    /// Whether the figure is counted by kind of operation.
    fn is_of_ops(self) -> bool {
        self != Figure::Failed
    }

    fn of_run(self, run: &RunSummary) -> Option<f64> {
        match self {
            Figure::Iops => Some(run.requests_per_second),
            Figure::Bandwidth => Some(run.bytes_per_second),
            Figure::Mean => Some(run.response?.mean_us),
            Figure::Percentile(percentile) => run.percentile_us(percentile),
            Figure::Max => Some(run.response?.max_us),
            Figure::Failed => failed_share(run),
        }
    }

    fn of_op(self, run: &RunSummary, op: &OpSummary) -> Option<f64> {
        match self {
            Figure::Iops => per_second(run, op.completed - op.late),
            Figure::Bandwidth => per_second(run, op.bytes - op.late_bytes),
            Figure::Mean => Some(op.response?.mean_us),
            Figure::Percentile(percentile) => op.percentile_us(percentile),
            Figure::Max => Some(op.response?.max_us),
            Figure::Failed => None,
        }
    }

    /// Whether the figure is known for phases of a run.
    fn is_of_phases(self) -> bool {
        !matches!(self, Figure::Percentile(percentile) if percentile != Percentile::P99)
    }

    fn of_phase(self, phase: &PhaseFigures) -> Option<f64> {
        match self {
            Figure::Iops => Some(phase.requests_per_second),
            Figure::Bandwidth => Some(phase.bytes_per_second),
            Figure::Mean => phase.response_mean_us,
            Figure::Percentile(Percentile::P99) => phase.response_p99_us,
            Figure::Percentile(_) => None,
            Figure::Max => phase.response_max_us,
            Figure::Failed => Some(phase.failed_share),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Figure::Percentile(percentile) => percentile.fmt(f),
            fixed => {
                let named = NAMES.iter().find(|(_, figure)| figure == fixed);
                f.write_str(named.map_or("", |(name, _)| name))
            }
        }
    }
}

fn per_second(run: &RunSummary, number: u64) -> Option<f64> {
    (run.measured_s > 0.0).then(|| number as f64 / run.measured_s)
}

/// Share of a run's requests that did not succeed; `None` without requests.
pub(crate) fn failed_share(run: &RunSummary) -> Option<f64> {
    let lost: u64 = run.losses.values().sum();
    let all = run.completed() + lost;
    (all > 0).then(|| lost as f64 / all as f64)
}

/// The side of the bound that a figure has to be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Below,
    Above,
}

/// Why a requirement is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    /// The text is not a requirement.
    #[error("write for example 'p99 below 2ms', 'write p99 below 2ms' or 'iops above 10000'")]
    Form,
    /// There is no figure with that name.
    #[error("no figure named '{0}'; available: {known}", known = names())]
    Figure(String),
    /// Neither bound is specified, or both are.
    #[error("a requirement has either below or above")]
    Bounds,
    /// There is no kind of operation with that name.
    #[error("no kind of operation named '{0}'; write for example read or write")]
    Op(String),
    /// The figure isn't known for each kind of operation.
    #[error("{0} is known only for all kinds of operations together")]
    FigureOfOp(String),
    /// The figure isn't known before and during faults.
    #[error("{0} is not known for each state; write iops, bandwidth, mean, p99, max or failed")]
    FigureOfPhase(String),
    /// The bound has the wrong unit, or none.
    #[error("{figure} needs {expected}, not '{text}'")]
    Value {
        /// The figure's name.
        figure: String,
        /// An example of a valid bound.
        expected: &'static str,
        /// The text that was given.
        text: String,
    },
}

fn names() -> String {
    let names = NAMES.map(|(name, _)| name);
    format!("{}, and percentiles such as p99.9", names.join(", "))
}

impl RequiredUnit {
    fn expected(self) -> &'static str {
        match self {
            RequiredUnit::PerSecond => "a number of requests per second",
            RequiredUnit::BytesPerSecond => "bytes per second such as 100MB/s",
            RequiredUnit::Micros => "a duration with its unit such as 2ms",
            RequiredUnit::Share => "a percentage such as 0.1%",
        }
    }

    fn parse(self, text: &str) -> Option<f64> {
        let text = text.trim();
        let number = |text: &str| text.trim().parse().ok();
        let value: f64 = match self {
            RequiredUnit::PerSecond => number(text)?,
            RequiredUnit::BytesPerSecond => {
                parse_size(text.strip_suffix("/s").unwrap_or(text)).ok()? as f64
            }
            RequiredUnit::Micros => duration_us(text).ok()?,
            RequiredUnit::Share => number(text.strip_suffix('%')?)? / 100.0,
        };
        (value.is_finite() && value >= 0.0).then_some(value)
    }

    /// Formats a value with its unit, to three significant figures.
    pub fn show(self, value: f64) -> String {
        match self {
            RequiredUnit::PerSecond => format!("{value:.0}/s"),
            RequiredUnit::BytesPerSecond => format!("{} MB/s", three(value / 1e6)),
            RequiredUnit::Micros if value < 999.5 => format!("{}us", three(value)),
            RequiredUnit::Micros if value < 999.5e3 => format!("{}ms", three(value / 1e3)),
            RequiredUnit::Micros => format!("{}s", three(value / 1e6)),
            RequiredUnit::Share => format!("{}%", three(value * 100.0)),
        }
    }
}

fn three(value: f64) -> String {
    match value {
        _ if value == 0.0 => "0".into(),
        _ if value < 10.0 => format!("{value:.2}"),
        _ if value < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn duration_us(text: &str) -> Result<f64, UnitError> {
    Ok(parse_duration(text)?.as_nanos() as f64 / 1e3)
}

impl TryFrom<RequirementEntry> for Requirement {
    type Error = RequirementError;

    fn try_from(entry: RequirementEntry) -> Result<Requirement, RequirementError> {
        let figure = Figure::named(&entry.figure)
            .ok_or_else(|| RequirementError::Figure(entry.figure.clone()))?;
        if let Some(op) = &entry.op {
            OpKind::of_name(op).ok_or_else(|| RequirementError::Op(op.clone()))?;
            if !figure.is_of_ops() {
                return Err(RequirementError::FigureOfOp(figure.to_string()));
            }
        }
        let (side, Bound(text)) = match (&entry.below, &entry.above) {
            (Some(bound), None) => (Side::Below, bound),
            (None, Some(bound)) => (Side::Above, bound),
            _ => return Err(RequirementError::Bounds),
        };
        let bound = figure
            .unit()
            .parse(text)
            .ok_or_else(|| RequirementError::Value {
                figure: figure.to_string(),
                expected: figure.unit().expected(),
                text: text.clone(),
            })?;
        Ok(Requirement {
            entry,
            figure,
            side,
            bound,
        })
    }
}

impl From<Requirement> for RequirementEntry {
    fn from(requirement: Requirement) -> RequirementEntry {
        requirement.entry
    }
}

/// `p99 below 2ms`, or `write p99 below 2ms`.
impl FromStr for Requirement {
    type Err = RequirementError;

    fn from_str(text: &str) -> Result<Requirement, RequirementError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (op, figure, side, value) = match words.as_slice() {
            [figure, side, value] => (None, figure, side, value),
            [op, figure, side, value] => (Some(op.to_string()), figure, side, value),
            _ => return Err(RequirementError::Form),
        };
        let value = Some(Bound(value.to_string()));
        let (below, above) = match *side {
            "below" => (value, None),
            "above" => (None, value),
            _ => return Err(RequirementError::Form),
        };
        Requirement::try_from(RequirementEntry {
            figure: figure.to_string(),
            below,
            above,
            op,
            target: None,
            workload: None,
        })
    }
}

/// The requirement without its target and workload: `write p99 below 2ms`.
impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(op) = &self.entry.op {
            write!(f, "{op} ")?;
        }
        let (side, bound) = match self.side {
            Side::Below => ("below", &self.entry.below),
            Side::Above => ("above", &self.entry.above),
        };
        let bound = bound.as_ref().map_or("", |bound| &bound.0);
        write!(f, "{} {side} {bound}", self.figure)
    }
}

/// Whether a point meets a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequirementVerdict {
    /// The figure is on the required side.
    Met,
    /// The figure is on the other side of the bound.
    Missed,
    /// The interval contains the bound, there is only one run, or no run has the figure.
    Undecided,
}

impl RequirementVerdict {
    /// One word for the verdict.
    pub fn name(self) -> &'static str {
        match self {
            RequirementVerdict::Met => "met",
            RequirementVerdict::Missed => "missed",
            RequirementVerdict::Undecided => "undecided",
        }
    }
}

/// A requirement, and a point that it applies to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequirementOutcome {
    /// What is required, such as `p99 below 2ms`.
    pub required: String,
    /// Label of the point.
    pub label: String,
    /// The bound, in `unit`.
    pub bound: f64,
    /// Mean over complete runs with its interval, in `unit`; for `max` and `failed`, the worst run without an
    /// interval. `null` if no run has the figure.
    pub figure: Option<Estimate>,
    /// Unit of `bound` and `figure`.
    pub unit: RequiredUnit,
    /// Met, missed or undecided.
    pub verdict: RequirementVerdict,
}

impl Requirement {
    /// The target that the requirement names, if any.
    pub fn target(&self) -> Option<&str> {
        self.entry.target.as_deref()
    }

    /// The workload that the requirement names, if any.
    pub fn workload(&self) -> Option<&str> {
        self.entry.workload.as_deref()
    }

    /// The percentile and its upper limit in microseconds, if the requirement is for a percentile of all operations
    /// together.
    pub fn percentile_limit_us(&self) -> Option<(Percentile, f64)> {
        let is_of_all = self.entry.op.is_none() && self.side == Side::Below;
        let percentile = self.percentile().filter(|_| is_of_all)?;
        Some((percentile, self.bound))
    }

    /// The percentile that the requirement is for, if any.
    pub fn percentile(&self) -> Option<Percentile> {
        match self.figure {
            Figure::Percentile(percentile) => Some(percentile),
            _ => None,
        }
    }

    fn is_about(&self, point: &PointSummary) -> bool {
        self.target().is_none_or(|target| target == point.target)
            && self.workload().is_none_or(|name| name == point.workload)
    }

    fn of_run(&self, run: &RunSummary) -> Option<f64> {
        let Some(op) = &self.entry.op else {
            return self.figure.of_run(run);
        };
        let op = run.ops.iter().find(|of| of.op.name() == op)?;
        self.figure.of_op(run, op)
    }

    fn outcome(&self, point: &PointSummary) -> RequirementOutcome {
        let complete = point.runs.iter().filter(|run| run.is_complete());
        let values: Vec<f64> = complete.filter_map(|run| self.of_run(run)).collect();
        let figure = self.over_runs(&values);
        RequirementOutcome {
            required: self.to_string(),
            label: point.label.clone(),
            bound: self.bound,
            figure,
            unit: self.figure.unit(),
            verdict: figure.map_or(RequirementVerdict::Undecided, |figure| {
                self.verdict(&figure)
            }),
        }
    }

    /// Rejects figures that are not known for phases of a run.
    pub(crate) fn check_for_phases(&self) -> Result<(), RequirementError> {
        match &self.entry.op {
            Some(op) => Err(RequirementError::FigureOfPhase(format!(
                "{op} {}",
                self.figure
            ))),
            None if !self.figure.is_of_phases() => {
                Err(RequirementError::FigureOfPhase(self.figure.to_string()))
            }
            None => Ok(()),
        }
    }

    /// The verdict on one phase over several runs; undecided if one of the runs lacks the figure.
    pub(crate) fn verdict_of_phases(&self, phases: &[&PhaseFigures]) -> RequirementVerdict {
        let values = phases.iter().map(|phase| self.figure.of_phase(phase));
        let values: Option<Vec<f64>> = values.collect();
        let figure = values.and_then(|values| self.over_runs(&values));
        figure.map_or(RequirementVerdict::Undecided, |figure| {
            self.verdict(&figure)
        })
    }

    /// The figure that the bound applies to.
    fn over_runs(&self, values: &[f64]) -> Option<Estimate> {
        match self.figure.is_of_every_run() {
            false => Estimate::of(values),
            true => self.worst(values),
        }
    }

    /// The run that misses the bound by most, or meets it by least.
    fn worst(&self, values: &[f64]) -> Option<Estimate> {
        let worst = match self.side {
            Side::Below => values.iter().copied().reduce(f64::max),
            Side::Above => values.iter().copied().reduce(f64::min),
        };
        worst.map(|mean| Estimate {
            mean,
            low: None,
            high: None,
            runs: values.len(),
        })
    }

    fn verdict(&self, figure: &Estimate) -> RequirementVerdict {
        let ends = match self.figure.is_of_every_run() {
            true => Some((figure.mean, figure.mean)),
            false => figure.low.zip(figure.high),
        };
        let is_within = |value: f64| match self.side {
            Side::Below => value < self.bound,
            Side::Above => value > self.bound,
        };
        match ends.map(|(low, high)| (is_within(low), is_within(high))) {
            Some((true, true)) => RequirementVerdict::Met,
            Some((false, false)) => RequirementVerdict::Missed,
            _ => RequirementVerdict::Undecided,
        }
    }
}

/// The outcome of each requirement for each point that it applies to.
pub fn outcomes(requirements: &[Requirement], points: &[PointSummary]) -> Vec<RequirementOutcome> {
    let mut outcomes = Vec::new();
    for requirement in requirements {
        let points = points.iter().filter(|point| requirement.is_about(point));
        outcomes.extend(points.map(|point| requirement.outcome(point)));
    }
    outcomes
}

impl RequirementOutcome {
    /// Formats the figure: `1.45ms, 1.30ms to 1.60ms`.
    pub fn figure_in_words(&self) -> String {
        let show = |value| self.unit.show(value);
        match &self.figure {
            None => "no complete run has this figure".into(),
            Some(Estimate {
                mean,
                low: Some(low),
                high: Some(high),
                ..
            }) => format!("{}, {} to {}", show(*mean), show(*low), show(*high)),
            Some(Estimate { mean, .. }) => show(*mean),
        }
    }
}

/// One line: `disk read: p99 below 2ms: missed (2.91ms, 2.70ms to 3.12ms)`.
impl fmt::Display for RequirementOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = self.verdict.name();
        let figure = self.figure_in_words();
        write!(f, "{}: {}: {verdict} ({figure}", self.label, self.required)?;
        let is_single = self.figure.is_some_and(|figure| figure.runs == 1);
        match self.verdict {
            RequirementVerdict::Undecided if is_single => {
                f.write_str("; a single run has no interval, write repetitions = 4)")
            }
            _ => f.write_str(")"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::tests::{op, point, run};

    fn requirement(text: &str) -> Requirement {
        text.parse().expect(text)
    }

    /// A point whose runs have reads with these mean response times, in microseconds.
    fn reads(times: &[f64]) -> PointSummary {
        let runs = times.iter().map(|us| run(vec![op(OpKind::Read, 100, *us)]));
        point("disk w", runs.collect())
    }

    fn verdict(text: &str, point: &PointSummary) -> RequirementVerdict {
        requirement(text).outcome(point).verdict
    }

    #[test]
    fn a_mean_decides_only_with_its_whole_interval() {
        let steady = reads(&[100.0, 101.0, 99.0, 100.0]);
        assert_eq!(
            verdict("mean below 110us", &steady),
            RequirementVerdict::Met
        );
        assert_eq!(
            verdict("mean below 90us", &steady),
            RequirementVerdict::Missed
        );
        assert_eq!(verdict("mean above 90us", &steady), RequirementVerdict::Met);
        assert_eq!(
            verdict("mean above 110us", &steady),
            RequirementVerdict::Missed
        );
        assert_eq!(
            verdict("mean below 100.5us", &steady),
            RequirementVerdict::Undecided
        );
        assert_eq!(
            verdict("read mean below 110us", &steady),
            RequirementVerdict::Met
        );
    }

    #[test]
    fn one_run_and_figures_that_no_run_has_are_undecided() {
        assert_eq!(
            verdict("mean below 1s", &reads(&[100.0])),
            RequirementVerdict::Undecided
        );
        assert_eq!(
            verdict("mean below 1s", &reads(&[])),
            RequirementVerdict::Undecided
        );
        let writes = verdict("write mean below 1s", &reads(&[100.0, 100.0]));
        assert_eq!(writes, RequirementVerdict::Undecided);
    }

    #[test]
    fn a_maximum_and_failures_have_to_hold_in_every_run() {
        let mut one_fails = reads(&[100.0, 100.0, 100.0]);
        assert_eq!(
            verdict("max below 1ms", &one_fails),
            RequirementVerdict::Met
        );
        assert_eq!(
            verdict("failed below 1%", &one_fails),
            RequirementVerdict::Met
        );
        one_fails.runs[1].losses.insert("os".into(), 100);
        assert_eq!(
            verdict("failed below 1%", &one_fails),
            RequirementVerdict::Missed
        );
        let outcome = requirement("failed below 1%").outcome(&one_fails);
        assert_eq!(
            outcome.to_string(),
            "disk w: failed below 1%: missed (50.0%)"
        );
        assert_eq!(
            verdict("max below 1ms", &reads(&[100.0, 5000.0])),
            RequirementVerdict::Missed
        );
    }

    #[test]
    fn any_percentile_can_be_required_if_there_are_enough_requests() {
        let mut runs = reads(&[100.0, 100.0, 100.0]);
        let p95 = requirement("p95 below 200us");
        assert_eq!(p95.percentile(), Percentile::named("p95"));
        let of = |point: &PointSummary| p95.outcome(point).verdict;
        assert_eq!(of(&runs), RequirementVerdict::Undecided, "not kept");
        for run in &mut runs.runs {
            run.response_percentiles_us = [(p95.percentile().unwrap(), 150.0)].into();
        }
        assert_eq!(of(&runs), RequirementVerdict::Met);
        let of_reads = verdict("read p99 below 1ms", &runs);
        assert_eq!(of_reads, RequirementVerdict::Met);
        let too_few = verdict("p99.9 below 1ms", &runs);
        assert_eq!(too_few, RequirementVerdict::Undecided);
    }

    #[test]
    fn a_requirement_of_a_target_is_not_about_others() {
        let entry = r#"{ "figure": "iops", "above": 10, "target": "other" }"#;
        let other: Requirement = serde_json::from_str(entry).unwrap();
        let of_disk = reads(&[100.0, 100.0]);
        let all = requirement("iops above 10");
        assert_eq!(outcomes(&[other, all], &[of_disk]).len(), 1);
    }

    #[test]
    fn requirements_are_written_as_they_are_read() {
        for text in [
            "p99.9 below 2ms",
            "write p99 below 1.5s",
            "iops above 10000",
            "bandwidth above 100MB/s",
        ] {
            assert_eq!(requirement(text).to_string(), text);
            let json = serde_json::to_string(&requirement(text)).unwrap();
            assert_eq!(
                serde_json::from_str::<Requirement>(&json).unwrap(),
                requirement(text)
            );
        }
    }

    #[test]
    fn mistakes_come_with_a_correction() {
        let error = |text: &str| text.parse::<Requirement>().unwrap_err().to_string();
        assert!(error("p99 under 2ms").contains("'p99 below 2ms'"));
        assert!(error("p101 below 2ms").contains("p99.9"));
        assert!(error("p99 below 2").contains("a duration with its unit such as 2ms"));
        assert!(error("iops above 10MB/s").contains("requests per second"));
        assert!(error("failed below 0.1").contains("a percentage such as 0.1%"));
        assert!(error("read failed below 1%").contains("all kinds of operations together"));
        assert!(error("raed p99 below 1ms").contains("'raed'"));
        let both = r#"{ "figure": "iops", "above": 10, "below": 20 }"#;
        let error = serde_json::from_str::<Requirement>(both).unwrap_err();
        assert!(error.to_string().contains("either below or above"));
    }
}
