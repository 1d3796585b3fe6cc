//! Two results side by side, point by point, and the conditions under which a build should fail.
//! `brunt compare` prints it.
//!
//! The rule: only points with the same label are compared, and Holm's correction covers all metrics of all
//! points, because a reader looks at all of them; two metrics that express the same fact count once. What only one
//! of several jobs does is that job's line, and not repeated for all of them together.

use std::collections::{BTreeMap, BTreeSet};

use crate::OpKind;
use crate::by_kind;
use crate::correlated::CorrelatedFigure;
use crate::degradation::Degradation;
use crate::experiment::ArrivalKind;
use crate::impact::{ImpactIndex, ImpactKind};
use crate::noise::{FigureKind, MachineDifference, SESSION};
use crate::statistics::{
    Better, Comparison, EffectScale, Estimate, MARGIN, MachineAllowance, Metric, RunLikeness,
    Verdict, compare,
};
use crate::summary::{Latencies, OpSummary, PointSummary, RunSummary, Summary};

/// A figure of a run: its name, which way is up, and how to get it.
pub(crate) struct RunFigure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    is_tail: bool,
    pub(crate) get: fn(&RunSummary) -> Option<f64>,
}

/// What is compared, one line each.
#[rustfmt::skip]
pub(crate) const FIGURES: &[RunFigure] = &[
    RunFigure { name: "iops", unit: "requests/s", better: Better::Higher, is_tail: false, get: |run| Some(run.requests_per_second) },
    RunFigure { name: "mean", unit: "us", better: Better::Lower, is_tail: false, get: |run| latency(run, |l| l.mean_us) },
    RunFigure { name: "p99", unit: "us", better: Better::Lower, is_tail: true, get: |run| latency(run, |l| l.p99_us) },
    RunFigure { name: "p99.9", unit: "us", better: Better::Lower, is_tail: true, get: |run| latency(run, |l| l.p99_9_us) },
];

/// What is compared of each kind of operation, where a load makes several. Not their rates: shares are the
/// workload's, so that all rates say what `iops` says, and each more would cost the others power.
#[rustfmt::skip]
const KIND_FIGURES: &[KindFigure] = &[
    KindFigure { name: "mean", get: |op| op.response.as_ref().map(|l| l.mean_us) },
    KindFigure { name: "p99", get: |op| op.response.as_ref().map(|l| l.p99_us) },
];

/// A response time of one kind of operation in a run, in microseconds.
struct KindFigure {
    name: &'static str,
    get: fn(&OpSummary) -> Option<f64>,
}

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

/// What is compared of the links of a lab: bytes that they carried for each byte that the load moved.
const LINK_BYTES: &str = "link-bytes";

/// What is compared of each index of robustness that both have: the ratio of each round, of a client's mean.
const INDEX_FIGURES: &[(ImpactKind, &str)] = &[
    (ImpactKind::Parallelism, "parallelism-impact"),
    (ImpactKind::Latency, "latency-impact"),
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
    /// The point; of a part of it the point and the kind of operation or the fault.
    pub label: String,
    /// The kind of operation; `None` of all kinds together, where there are several, and of faults.
    pub op: Option<OpKind>,
    /// Whether it is of one of several kinds of operations.
    #[serde(skip)]
    pub is_part: bool,
    /// `iops`, `mean`, `p99`, `p99.9`; in a lab `link-bytes`; of a fault `drop`, `recovery`, `mean-factor`, `p99-factor`, `failed`; of an index of
    /// robustness `parallelism-impact`, `latency-impact`.
    pub metric: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Which way is up.
    pub better: Better,
    /// Figures, tests, verdict.
    pub comparison: Comparison,
    /// By what share the machine was slower for the second (faster below zero), where that may explain the change.
    pub machine_slower: Option<f64>,
}

/// What a metric is of, and its unit and direction.
struct Key {
    label: String,
    op: Option<OpKind>,
    is_part: bool,
    metric: &'static str,
    unit: &'static str,
    better: Better,
}

/// Metrics and what each is of.
#[derive(Default)]
struct Compared {
    metrics: Vec<Metric>,
    keys: Vec<Key>,
}

/// A figure of each complete run of two points.
struct Sides<'a> {
    points: [&'a PointSummary; 2],
    get: &'a dyn Fn(&RunSummary) -> Option<f64>,
    /// How alike runs are in each result; `None` where that is not looked at.
    alike: Option<[&'a CorrelatedFigure; 2]>,
    /// What the figure is made of; `None` where the machine's speed is no matter.
    of: Option<FigureKind>,
}

impl Compared {
    /// Adds a figure of each run.
    fn add(&mut self, key: Key, sides: &Sides<'_>) {
        let [a, b] = sides.points;
        let (first, second) = (values(a, sides.get), values(b, sides.get));
        let likeness = sides.alike.map(|alike| {
            let each = |figure: &CorrelatedFigure, point| {
                let places = figure.parts(point, sides.get);
                RunLikeness::of(places.iter().map(|(place, _)| *place), figure.correlation())
            };
            [each(alike[0], a), each(alike[1], b)]
        });
        let machine = sides.of.map_or_else(MachineAllowance::default, |of| {
            let of = match of {
                FigureKind::Tail(_) => {
                    FigureKind::Tail(Estimate::of(&first).map_or(0.0, |a| a.mean))
                }
                of => of,
            };
            // Of old results nothing is known of the machine, but that sessions differ.
            let unknown = MachineAllowance {
                session: SESSION,
                ..MachineAllowance::default()
            };
            MachineDifference::between(a, b).map_or(unknown, |difference| difference.allowance(of))
        });
        let name = format!("{} {}", key.label, key.metric);
        self.metrics.push(Metric {
            is_share: key.unit == "share",
            likeness: likeness.map_or([None; 2], |likeness| likeness.map(Some)),
            machine,
            ..Metric::new(name, key.metric, key.better, first, second)
        });
        self.keys.push(key);
    }

    /// Adds figures that are not of one run each.
    fn add_figures(&mut self, key: Key, a: Vec<f64>, b: Vec<f64>) {
        let name = format!("{} {}", key.label, key.metric);
        self.metrics.push(Metric {
            is_share: key.unit == "share",
            ..Metric::new(name, key.metric, key.better, a, b)
        });
        self.keys.push(key);
    }

    /// Says that the last metric is another side of an earlier one of the same point.
    fn is_other_side(&mut self, of: &str) {
        let label = self.keys.last().map(|key| &key.label);
        let other = self
            .keys
            .iter()
            .rposition(|key| Some(&key.label) == label && key.metric == of);
        if let Some(last) = self.metrics.last_mut() {
            last.one_with = other;
        }
    }
}

/// A figure of each complete run.
pub(crate) fn values(point: &PointSummary, get: &dyn Fn(&RunSummary) -> Option<f64>) -> Vec<f64> {
    complete(point).filter_map(get).collect()
}

/// A figure of the complete runs of two points that were made in the same rounds, in their order.
pub fn in_same_rounds(
    a: &PointSummary,
    b: &PointSummary,
    get: &dyn Fn(&RunSummary) -> Option<f64>,
) -> (Vec<f64>, Vec<f64>) {
    let pairs = complete(a).filter_map(|run| {
        let twin = complete(b).find(|twin| twin.repetition == run.repetition)?;
        Some((get(run)?, get(twin)?))
    });
    pairs.unzip()
}

/// When a point's requests are made.
fn arrival(summary: &Summary, point: &PointSummary) -> Option<ArrivalKind> {
    summary
        .experiment
        .workloads
        .get(&point.workload)
        .map(|workload| workload.arrival)
}

/// Shares of a run's time in which a job was measured that are as good as equal.
const SAME_SHARE: f64 = 0.01;

/// Whether rate and mean response time of a point say the same in both results (Little's law): a closed loop keeps as
/// many requests outstanding as its queue depth says, and so do several at once, if each is measured for the same share
/// of every run's time. A job that ends by its own pace ends the others' company sooner or later: two facts.
fn closed(results: [(&Summary, &PointSummary); 2]) -> bool {
    let mut shares: BTreeMap<&str, [f64; 2]> = BTreeMap::new();
    for (summary, point) in results {
        match arrival(summary, point) {
            Some(ArrivalKind::Closed) => continue,
            Some(ArrivalKind::Several) => {}
            _ => return false,
        }
        let mut jobs = summary
            .points
            .iter()
            .filter(|job| job.part_of.as_ref() == Some(&point.label))
            .peekable();
        if jobs.peek().is_none() {
            return false;
        }
        for job in jobs {
            if arrival(summary, job) != Some(ArrivalKind::Closed) {
                return false;
            }
            for run in complete(point) {
                let part = job
                    .runs
                    .iter()
                    .find(|part| part.repetition == run.repetition);
                let share = part.map_or(0.0, |part| part.measured_s / run.measured_s);
                let [least, most] = shares.entry(&job.label).or_insert([share; 2]);
                (*least, *most) = (least.min(share), most.max(share));
            }
        }
    }
    shares
        .values()
        .all(|[least, most]| most - least <= SAME_SHARE)
}

/// Every metric of every point that both have; and the labels that only one has.
///
/// A change smaller than `margin`, a share, is none.
pub fn compare_summaries(a: &Summary, b: &Summary, margin: f64) -> (Vec<Line>, Vec<String>) {
    let (compared, alone) = metrics(a, b);
    let comparisons = compare(&compared.metrics, margin);
    let lines = compared
        .keys
        .into_iter()
        .zip(comparisons)
        .map(|(key, comparison)| {
            let Key {
                label,
                op,
                is_part,
                metric,
                unit,
                better,
            } = key;
            let machine_slower = (comparison.verdict == Verdict::MachinesDiffered)
                .then(|| machine_slower(a, b, &label))
                .flatten();
            Line {
                label,
                op,
                is_part,
                metric,
                unit,
                better,
                comparison,
                machine_slower,
            }
        });
    (lines.collect(), alone)
}

/// What is compared, and the labels of points that only one has.
// Long because it lists all that is compared, in the order of the table.
fn metrics(a: &Summary, b: &Summary) -> (Compared, Vec<String>) {
    let mut compared = Compared::default();
    let mut alone = Vec::new();
    let alike: Vec<[CorrelatedFigure; 2]> = FIGURES
        .iter()
        .map(|figure| [a, b].map(|summary| CorrelatedFigure::of(&summary.points, figure.get)))
        .collect();
    let alike_of = |name: &str| {
        let place = FIGURES.iter().position(|figure| figure.name == name)?;
        Some([&alike[place][0], &alike[place][1]])
    };
    for point in &a.points {
        let Some(other) = b.points.iter().find(|other| other.label == point.label) else {
            alone.push(point.label.clone());
            continue;
        };
        let kinds = [by_kind::kinds(point), by_kind::kinds(other)];
        // Of a load that makes one kind its own figures are those of that kind.
        let single = match &kinds {
            [a, b] if a.len() == 1 && a == b => Some(a[0]),
            _ => None,
        };
        for RunFigure {
            name,
            unit,
            better,
            is_tail,
            get,
        } in FIGURES
        {
            let key = Key {
                label: point.label.clone(),
                op: single,
                is_part: false,
                metric: name,
                unit,
                better: *better,
            };
            let of = match (better, is_tail) {
                (Better::Higher, _) => FigureKind::Rate,
                (_, true) => FigureKind::Tail(0.0),
                (_, false) => FigureKind::Mean,
            };
            let sides = Sides {
                points: [point, other],
                get,
                alike: alike_of(name),
                of: Some(of),
            };
            compared.add(key, &sides);
            if *name == "mean" && closed([(a, point), (b, other)]) {
                compared.is_other_side("iops");
            }
        }
        if single.is_none() {
            let own = |op: &OpKind| {
                let job = only_job(a, point, *op);
                job.is_none() || job != only_job(b, other, *op)
            };
            let both = kinds[0]
                .iter()
                .copied()
                .filter(|op| kinds[1].contains(op))
                .filter(own);
            each_kind([point, other], both, &alike_of, &mut compared);
        }
        transfer(point, other, &mut compared);
        faults(point, other, &mut compared);
    }
    let only_b = b
        .points
        .iter()
        .filter(|point| a.points.iter().all(|other| other.label != point.label));
    alone.extend(only_b.map(|point| point.label.clone()));
    indexes(a, b, &mut compared);
    (compared, alone)
}

/// By what share the machine was slower for the second result's runs of a point or of a part of it.
fn machine_slower(a: &Summary, b: &Summary, label: &str) -> Option<f64> {
    let find = |summary: &Summary| {
        let is_it = |point: &PointSummary| {
            label
                .strip_prefix(point.label.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(", "))
        };
        summary.points.iter().position(is_it)
    };
    let (first, second) = (&a.points[find(a)?], &b.points[find(b)?]);
    Some(MachineDifference::between(first, second)?.slower())
}

fn complete(point: &PointSummary) -> impl Iterator<Item = &RunSummary> {
    point.runs.iter().filter(|run| run.is_complete())
}

/// The job that did all operations of a kind which several jobs did together: its response times are theirs.
fn only_job<'a>(summary: &'a Summary, all: &PointSummary, op: OpKind) -> Option<&'a str> {
    let is_part = |point: &&PointSummary| point.part_of.as_ref() == Some(&all.label);
    let mut jobs = summary
        .points
        .iter()
        .filter(is_part)
        .filter(|job| by_kind::kinds(job).contains(&op));
    match (jobs.next(), jobs.next()) {
        (Some(job), None) => Some(&job.label),
        _ => None,
    }
}

/// Adds the response times of these kinds of operations.
fn each_kind<'a>(
    points: [&PointSummary; 2],
    kinds: impl Iterator<Item = OpKind>,
    alike_of: &dyn Fn(&str) -> Option<[&'a CorrelatedFigure; 2]>,
    compared: &mut Compared,
) {
    for op in kinds {
        for KindFigure { name, get } in KIND_FIGURES {
            let label = format!("{}, {op}", points[0].label);
            let key = Key {
                label,
                op: Some(op),
                is_part: true,
                metric: name,
                unit: "us",
                better: Better::Lower,
            };
            let of = match *name {
                "mean" => FigureKind::Mean,
                _ => FigureKind::Tail(0.0),
            };
            let sides = Sides {
                points,
                get: &|run| get(run.op(op)?),
                alike: alike_of(name),
                of: Some(of),
            };
            compared.add(key, &sides);
        }
    }
}

/// Adds the bytes on links for each useful one, of points that both ran in a lab.
fn transfer(a: &PointSummary, b: &PointSummary, compared: &mut Compared) {
    let get = |run: &RunSummary| run.transfer.as_ref()?.per_useful_byte();
    if [a, b]
        .iter()
        .all(|point| complete(point).any(|run| get(run).is_some()))
    {
        let (label, op, better) = (a.label.clone(), None, Better::Lower);
        let key = Key {
            label,
            op,
            is_part: false,
            metric: LINK_BYTES,
            unit: "bytes/byte",
            better,
        };
        compared.add(
            key,
            &Sides {
                points: [a, b],
                get: &get,
                alike: None,
                of: None,
            },
        );
    }
}

/// Adds what the faults cost that both points have, each found by its place in the file and its name. What
/// neither side has anything to say of, or both say zero of, is no figure.
fn faults(a: &PointSummary, b: &PointSummary, compared: &mut Compared) {
    let known: BTreeSet<(u32, &str)> = names(a).intersection(&names(b)).copied().collect();
    for (index, name) in known {
        for FaultFigure {
            name: metric,
            unit,
            better,
            get,
        } in FAULT_FIGURES
        {
            let cost = |run: &RunSummary| {
                let fault = run.faults.iter().find(|fault| fault.index == index)?;
                get(fault.cost.as_ref()?)
            };
            let known = [a, b].map(|point| values(point, &cost));
            if known.iter().flatten().all(|value| *value == 0.0) {
                continue;
            }
            let label = format!("{}, fault {name}", a.label);
            let key = Key {
                label,
                op: None,
                is_part: false,
                metric,
                unit,
                better: *better,
            };
            let sides = Sides {
                points: [a, b],
                get: &cost,
                alike: None,
                of: None,
            };
            compared.add(key, &sides);
        }
    }
}

/// Adds the indexes of robustness that both have.
fn indexes(a: &Summary, b: &Summary, compared: &mut Compared) {
    fn of(summary: &Summary) -> impl Iterator<Item = &ImpactIndex> {
        summary.indexes.iter().flat_map(|indexes| &indexes.impacts)
    }
    for impact in of(a) {
        let label = impact.label();
        let same = |other: &&ImpactIndex| other.kind == impact.kind && other.label() == label;
        let Some(other) = of(b).find(same) else {
            continue;
        };
        let figure = INDEX_FIGURES.iter().find(|(kind, _)| *kind == impact.kind);
        let (_, metric) = figure.expect("every kind has a figure");
        let (op, is_part, better) = (impact.op, impact.op.is_some(), Better::Higher);
        let key = Key {
            label,
            op,
            is_part,
            metric,
            unit: "times",
            better,
        };
        compared.add_figures(
            key,
            impact.per_client.by_round.clone(),
            other.per_client.by_round.clone(),
        );
    }
}

fn names(point: &PointSummary) -> BTreeSet<(u32, &str)> {
    let faults = point.runs.iter().flat_map(|run| &run.faults);
    faults
        .map(|fault| (fault.index, fault.name.as_str()))
        .collect()
}

/// A condition for the exit status: `p99 worse by 10%`, of one kind of operation `write p99 worse by 10%`.
#[derive(Clone, Debug, PartialEq)]
pub struct FailIf {
    /// `None`: of all kinds together.
    op: Option<OpKind>,
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
    #[error("unknown metric {0}")]
    Metric(String),
    /// The word before the metric is no kind of operation.
    #[error("unknown kind of operation {0}")]
    Kind(String),
    /// The metric is not compared for each kind of operation.
    #[error(
        "{0} is compared only for all kinds of operations together; mean, p99 and impacts also for each kind"
    )]
    MetricOfKind(&'static str),
    /// What follows "by" is not a percentage from 0 up.
    #[error("'{0}' is not a percentage")]
    Percentage(String),
    /// A figure that is better the higher it is can fall by less than all of it.
    #[error("{0} cannot be worse by 100% or more, so this would never apply")]
    Never(&'static str),
}

fn all_metrics() -> impl Iterator<Item = &'static str> {
    let faults = FAULT_FIGURES.iter().map(|figure| figure.name);
    let indexes = INDEX_FIGURES.iter().map(|(_, name)| *name);
    FIGURES
        .iter()
        .map(|figure| figure.name)
        .chain([LINK_BYTES])
        .chain(faults)
        .chain(indexes)
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
        let alias = ALIASES
            .iter()
            .find(|(old, _)| old == metric)
            .map(|(_, new)| *new);
        let metric = all_metrics()
            .find(|name| *name == alias.unwrap_or(metric))
            .ok_or_else(|| wrong(ConditionMistake::Metric(metric.to_string())))?;
        let mut of_kinds = KIND_FIGURES
            .iter()
            .map(|figure| figure.name)
            .chain(INDEX_FIGURES.iter().map(|of| of.1));
        if op.is_some() && of_kinds.all(|name| name != metric) {
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
        let falls = FIGURES
            .iter()
            .any(|figure| figure.name == metric && figure.better == Better::Higher)
            || INDEX_FIGURES.iter().any(|(_, name)| *name == metric);
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
    /// Whether a line is judged by it.
    pub fn is_about(&self, line: &Line) -> bool {
        let op_is = match self.op {
            // Parts of a point have conditions of their own.
            None => !line.is_part,
            op => line.op == op,
        };
        line.metric == self.metric && op_is
    }

    /// Whether a line fulfils it: shown to be worse, and by more than that share.
    /// Where no verdict is possible the condition cannot be judged, which counts as failing: a gate
    /// that nobody can close is none.
    pub fn fails(&self, line: &Line) -> bool {
        if !self.is_about(line) {
            return false;
        }
        match (line.comparison.verdict, line.comparison.shown) {
            (Verdict::TooFewRuns, _) => true,
            // The condition has its own margin, of the same effect that the verdict is about.
            (_, Some(Verdict::Worse)) => line.comparison.effect.is_none_or(|effect| {
                let share = match effect.scale {
                    EffectScale::Ratio => effect.value - 1.0,
                    EffectScale::Difference => effect.value / effect.first.abs(),
                };
                let worse = match line.better {
                    Better::Higher => -share,
                    Better::Lower => share,
                };
                // From nothing to something is more than any share.
                worse > self.by || worse.is_nan()
            }),
            _ => false,
        }
    }
}

/// A change smaller than this share is none: `5%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin(pub f64);

impl Default for Margin {
    fn default() -> Margin {
        Margin(MARGIN)
    }
}

/// A margin that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a percentage from 0 to 100; write for example 5%")]
pub struct MarginError(String);

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::tests::{empty, op, point, run};

    fn line(metric: &'static str, better: Better, a: &[f64], b: &[f64]) -> Line {
        let metrics = [Metric::new(metric, metric, better, a.to_vec(), b.to_vec())];
        let comparison = compare(&metrics, 0.5).remove(0);
        let (label, op, machine_slower) = ("x".into(), None, None);
        Line {
            label,
            op,
            is_part: false,
            metric,
            unit: "us",
            better,
            comparison,
            machine_slower,
        }
    }

    #[test]
    fn margins_are_read() {
        assert_eq!("5%".parse(), Ok(Margin::default()));
        assert_eq!("2.5 %".parse(), Ok(Margin(0.025)));
        for text in ["5", "", "%", "-1%", "101%", "x%"] {
            assert_eq!(text.parse::<Margin>(), Err(MarginError(text.into())));
        }
    }

    #[test]
    fn conditions_are_read() {
        assert_eq!(
            "p99 worse by 10%".parse(),
            Ok(FailIf {
                op: None,
                metric: "p99",
                by: 0.1
            })
        );
        assert_eq!(
            "iops worse".parse(),
            Ok(FailIf {
                op: None,
                metric: "iops",
                by: 0.0
            })
        );
        assert_eq!(
            "depth worse by 5%".parse::<FailIf>(),
            "drop worse by 5%".parse()
        );
        let write = FailIf {
            op: Some(OpKind::Write),
            metric: "p99",
            by: 0.1,
        };
        assert_eq!("write p99 worse by 10%".parse(), Ok(write.clone()));
        assert_eq!(write.to_string(), "write p99 worse by 10%");
        let mistake = |text: &str| text.parse::<FailIf>().unwrap_err().kind;
        assert_eq!(mistake("p99 better"), ConditionMistake::Form);
        assert_eq!(mistake("p98 worse"), ConditionMistake::Metric("p98".into()));
        assert_eq!(
            mistake("p99 worse by 10"),
            ConditionMistake::Percentage("10".into())
        );
        assert_eq!(
            mistake("trims p99 worse"),
            ConditionMistake::Kind("trims".into())
        );
        assert_eq!(
            mistake("write drop worse"),
            ConditionMistake::MetricOfKind("drop")
        );
        assert_eq!(
            mistake("write iops worse"),
            ConditionMistake::MetricOfKind("iops")
        );
        for text in [
            "",
            "p98 worse",
            "p99 better",
            "p99 worse by 10",
            "p99 worse by",
            "p99 worse by -1%",
        ] {
            assert!(
                text.parse::<FailIf>()
                    .unwrap_err()
                    .to_string()
                    .contains("'p99 worse by 10%'"),
                "{text}"
            );
        }
    }

    /// A gate closes when something is shown to be worse by enough, and when nothing can be shown.
    #[test]
    fn gates_close() {
        let gate: FailIf = "p99 worse by 10%".parse().unwrap();
        let base = [100.0, 101.0, 99.0, 100.5];
        let times = |by: f64| base.map(|value| value * by);
        let check = |b: &[f64], fails| {
            assert_eq!(
                gate.fails(&line("p99", Better::Lower, &base, b)),
                fails,
                "{b:?}"
            );
        };
        check(&times(1.2), true);
        check(&times(1.05), false); // worse, but not by enough
        check(&times(0.5), false);
        check(&[150.0, 151.0], true); // too few runs to say
        assert!(
            !gate.fails(&line("iops", Better::Higher, &base, &times(0.5))),
            "another metric"
        );
    }

    /// The results of four runs, in which each kind of operation took this long.
    fn result(ops: &[(OpKind, f64)]) -> Summary {
        let ops = || ops.iter().map(|(kind, us)| op(*kind, 1000, *us)).collect();
        Summary {
            points: vec![point("disk w", (0..4).map(|_| run(ops())).collect())],
            ..empty()
        }
    }

    #[test]
    fn each_kind_of_a_mixed_load_has_lines_and_gates() {
        let before = result(&[(OpKind::Read, 100.0), (OpKind::Unmap, 300.0)]);
        let after = result(&[(OpKind::Read, 100.0), (OpKind::Unmap, 600.0)]);
        let (lines, _) = compare_summaries(&before, &after, MARGIN);
        let named: Vec<(&str, &str)> = lines
            .iter()
            .map(|line| (line.label.as_str(), line.metric))
            .collect();
        assert!(
            named.contains(&("disk w, unmap", "p99")) && named.contains(&("disk w, read", "mean"))
        );
        let failed = |gate: &str| {
            let gate: FailIf = gate.parse().unwrap();
            lines
                .iter()
                .filter(|line| gate.fails(line))
                .map(|line| line.label.as_str())
                .collect::<Vec<_>>()
        };
        assert_eq!(failed("unmap p99 worse by 10%"), ["disk w, unmap"]);
        assert_eq!(failed("read p99 worse by 10%"), Vec::<&str>::new());
        assert_eq!(
            failed("p99 worse by 10%"),
            Vec::<&str>::new(),
            "the total did not change"
        );
    }

    /// An index has a line, with rounds as its sample, and a gate of its own.
    #[test]
    fn indexes_have_lines_and_gates() {
        use crate::impact::{ImpactRatio, RobustnessIndexes};
        let with = |ratio: f64, clients: u32| {
            let by_round = vec![ratio, ratio * 1.01, ratio * 0.99, ratio];
            let per_client = ImpactRatio {
                by_round,
                ..ImpactRatio::default()
            };
            let impact = ImpactIndex {
                kind: ImpactKind::Parallelism,
                target: "disk".into(),
                workload: "w".into(),
                axes: BTreeMap::new(),
                op: None,
                at_once: clients,
                link_delay: None,
                per_client,
                aggregate: ImpactRatio::default(),
                rounds: 4,
                rounds_left_out: 0,
            };
            let indexes = Some(RobustnessIndexes {
                impacts: vec![impact],
                ..RobustnessIndexes::default()
            });
            Summary {
                indexes,
                ..result(&[(OpKind::Read, 100.0)])
            }
        };
        let worse = |a: &Summary, b: &Summary| {
            let (lines, _) = compare_summaries(a, b, MARGIN);
            let gate: FailIf = "parallelism-impact worse by 10%".parse().unwrap();
            let of: Vec<String> = lines
                .iter()
                .filter(|line| gate.fails(line))
                .map(|line| line.label.clone())
                .collect();
            of
        };
        assert_eq!(worse(&with(0.5, 4), &with(0.25, 4)), ["disk w, 4 clients"]);
        assert_eq!(worse(&with(0.5, 4), &with(0.5, 4)), Vec::<String>::new());
        assert_eq!(
            worse(&with(0.5, 4), &with(0.25, 2)),
            Vec::<String>::new(),
            "another number of clients"
        );
    }

    /// The results of four runs of jobs at once, each with its name and how long its operations took.
    fn jobs(jobs: &[(&str, &[(OpKind, f64)])]) -> Summary {
        let point_of = |label: &str, ops: &[(OpKind, f64)]| {
            let made = |variation: u32| {
                let us = |us: f64| us * (1.0 + f64::from(variation) * 0.001);
                run(ops
                    .iter()
                    .map(|(kind, took)| op(*kind, 1000, us(*took)))
                    .collect())
            };
            point(label, (0..4).map(made).collect())
        };
        let all: Vec<(OpKind, f64)> = jobs
            .iter()
            .flat_map(|(_, ops)| ops.iter().copied())
            .collect();
        let mut points = vec![point_of("disk mixed", &all)];
        points.extend(jobs.iter().map(|(name, ops)| PointSummary {
            part_of: Some("disk mixed".into()),
            ..point_of(&format!("disk mixed/{name}"), ops)
        }));
        Summary { points, ..empty() }
    }

    /// Rate and mean of jobs at once are one figure where each job is a closed loop for the same share of every run's
    /// time, and count as two where one is not.
    #[test]
    fn closed_loops_at_once_count_once() {
        use crate::experiment::WorkloadSummary;
        let made = |second: ArrivalKind| {
            let mut made = jobs(&[
                ("reader", &[(OpKind::Read, 100.0)]),
                ("writer", &[(OpKind::Write, 300.0)]),
            ]);
            let arrivals = [
                ("mixed", ArrivalKind::Several),
                ("reader", ArrivalKind::Closed),
                ("writer", second),
            ];
            for (point, (name, arrival)) in made.points.iter_mut().zip(arrivals) {
                point.workload = name.into();
                let workload = WorkloadSummary {
                    arrival,
                    ..WorkloadSummary::default()
                };
                made.experiment.workloads.insert(name.into(), workload);
                for (repetition, run) in point.runs.iter_mut().enumerate() {
                    run.repetition = repetition as u32;
                }
            }
            made
        };
        // Of all together: the place of the figure that the mean is one with.
        let check = |a: &Summary, b: &Summary, expected: Option<usize>| {
            let (compared, _) = metrics(a, b);
            let mean = compared
                .keys
                .iter()
                .position(|key| (key.label.as_str(), key.metric) == ("disk mixed", "mean"));
            assert_eq!(compared.metrics[mean.unwrap()].one_with, expected);
        };
        let closed = made(ArrivalKind::Closed);
        check(&closed, &closed, Some(0));
        check(&closed, &made(ArrivalKind::Open), None);
        // The writer ends by its own pace, once after half of the time.
        let mut ends = closed.clone();
        ends.points[2].runs[1].measured_s /= 2.0;
        check(&closed, &ends, None);
        // It starts late, but always as late.
        let mut late = closed.clone();
        late.points[2]
            .runs
            .iter_mut()
            .for_each(|run| run.measured_s /= 2.0);
        check(&late, &late, Some(0));
        check(&closed, &late, None);
    }

    /// What one job alone does is its own line; Holm's correction and gates count it once.
    #[test]
    fn what_one_job_does_is_not_repeated_for_all() {
        let made = |read: f64, write: f64| {
            jobs(&[
                ("reader", &[(OpKind::Read, read)]),
                ("writer", &[(OpKind::Write, write)]),
            ])
        };
        let (lines, _) = compare_summaries(&made(100.0, 300.0), &made(200.0, 300.0), MARGIN);
        let labels: BTreeSet<&str> = lines.iter().map(|line| line.label.as_str()).collect();
        assert_eq!(
            labels,
            ["disk mixed", "disk mixed/reader", "disk mixed/writer"].into()
        );
        assert_eq!(lines.len(), 3 * FIGURES.len());
        let gate: FailIf = "read p99 worse by 10%".parse().unwrap();
        let failed: Vec<&str> = lines
            .iter()
            .filter(|line| gate.fails(line))
            .map(|line| line.label.as_str())
            .collect();
        assert_eq!(failed, ["disk mixed/reader"], "{lines:#?}");
    }

    /// Two jobs that read have their lines and a third one, of all reads.
    #[test]
    fn what_several_jobs_do_is_told_for_all() {
        let one = jobs(&[
            ("reader", &[(OpKind::Read, 100.0)]),
            ("mixed", &[(OpKind::Read, 100.0), (OpKind::Write, 300.0)]),
        ]);
        let (lines, _) = compare_summaries(&one, &one, MARGIN);
        let has = |label: &str| lines.iter().any(|line| line.label == label);
        assert!(
            has("disk mixed, read")
                && has("disk mixed/mixed, read")
                && has("disk mixed/mixed, write")
        );
        assert!(!has("disk mixed, write"));
    }

    #[test]
    fn the_line_of_a_load_of_one_kind_is_that_kinds() {
        let (lines, _) = compare_summaries(
            &result(&[(OpKind::Write, 1.0)]),
            &result(&[(OpKind::Write, 2.0)]),
            MARGIN,
        );
        assert_eq!(lines.len(), FIGURES.len());
        for gate in ["p99 worse by 10%", "write p99 worse by 10%"] {
            let gate: FailIf = gate.parse().unwrap();
            assert_eq!(
                lines.iter().filter(|line| gate.fails(line)).count(),
                1,
                "{gate}"
            );
        }
        let reads: FailIf = "read p99 worse".parse().unwrap();
        assert!(!lines.iter().any(|line| reads.is_about(line)));
    }
}
