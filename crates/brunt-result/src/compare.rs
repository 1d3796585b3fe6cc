//! Compares two results point by point, and checks the conditions under which a build should fail. `brunt compare`
//! prints the comparison.
//!
//! The rule: only points with the same label are compared, and Holm's correction covers all metrics of all points,
//! because a reader looks at all of them; two metrics that express the same fact count once. Operations that only one
//! of several jobs performs appear in that job's line and are not repeated for all jobs together. If the runs of both
//! results took turns, they are compared in pairs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::OpKind;
use crate::by_kind;
use crate::correlated::CorrelatedFigure;
use crate::degradation::Degradation;
use crate::experiment::ArrivalKind;
use crate::impact::{ImpactIndex, ImpactKind};
use crate::noise::{FigureKind, MachineDifference, SESSION};
use crate::percentile::Percentile;
use crate::statistics::{
    Better, Comparison, EffectScale, Estimate, MARGIN, MachineAllowance, Metric, RunLikeness,
    Verdict, compare,
};
use crate::summary::{OpSummary, PointSummary, RunSummary, Summary};

/// A figure of a run that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunFigure {
    /// Requests per second.
    Iops,
    /// Mean response time.
    Mean,
    /// A percentile of the response time.
    Percentile(Percentile),
}

/// The percentiles that are always compared.
const PERCENTILES: [Percentile; 2] = [Percentile::P99, Percentile::P99_9];

impl RunFigure {
    /// The compared figures: those of every comparison, then these percentiles.
    pub(crate) fn all(more: &[Percentile]) -> Vec<RunFigure> {
        let more = more.iter().filter(|one| !PERCENTILES.contains(one));
        let percentiles = PERCENTILES.iter().chain(more).copied();
        [RunFigure::Iops, RunFigure::Mean]
            .into_iter()
            .chain(percentiles.map(RunFigure::Percentile))
            .collect()
    }

    /// The figures compared for each kind of operation, if a load makes several. Rates are left out: the workload fixes
    /// the kinds' shares, so all rates repeat `iops`, and each additional test would reduce the power of the others. For
    /// the same reason p99.9 is compared only if it was chosen.
    fn of_kinds(more: &[Percentile]) -> Vec<RunFigure> {
        let more = more.iter().filter(|one| **one != Percentile::P99);
        let percentiles = std::iter::once(&Percentile::P99).chain(more).copied();
        std::iter::once(RunFigure::Mean)
            .chain(percentiles.map(RunFigure::Percentile))
            .collect()
    }

    /// `iops`, `mean`, `p99.9`.
    pub(crate) fn name(self) -> MetricName {
        match self {
            RunFigure::Iops => "iops".into(),
            RunFigure::Mean => "mean".into(),
            RunFigure::Percentile(percentile) => percentile.to_string().into(),
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        match self {
            RunFigure::Iops => "requests/s",
            _ => "us",
        }
    }

    pub(crate) fn better(self) -> Better {
        match self {
            RunFigure::Iops => Better::Higher,
            _ => Better::Lower,
        }
    }

    fn kind(self) -> FigureKind {
        match self {
            RunFigure::Iops => FigureKind::Rate,
            RunFigure::Mean => FigureKind::Mean,
            RunFigure::Percentile(percentile) if percentile > Percentile::P50 => {
                FigureKind::Tail(0.0)
            }
            RunFigure::Percentile(_) => FigureKind::Mean,
        }
    }

    pub(crate) fn of_run(self, run: &RunSummary) -> Option<f64> {
        match self {
            RunFigure::Iops => Some(run.requests_per_second),
            RunFigure::Mean => Some(run.response?.mean_us),
            RunFigure::Percentile(percentile) => run.percentile_us(percentile),
        }
    }

    fn of_op(self, op: &OpSummary) -> Option<f64> {
        match self {
            RunFigure::Iops => None,
            RunFigure::Mean => Some(op.response?.mean_us),
            RunFigure::Percentile(percentile) => op.percentile_us(percentile),
        }
    }
}

/// The name of a compared figure.
pub type MetricName = Cow<'static, str>;

/// The figures compared for each fault that both results have. Both areas appear in tables only: a longer run has
/// a larger area.
#[rustfmt::skip]
const FAULT_FIGURES: &[FaultFigure] = &[
    FaultFigure { name: "drop", unit: "share", better: Better::Lower, get: |cost| Some(cost.drop) },
    FaultFigure { name: "recovery", unit: "s", better: Better::Lower, get: |cost| cost.recovered.seconds() },
    FaultFigure { name: "mean-factor", unit: "times", better: Better::Lower, get: |cost| cost.response_mean?.factor },
    FaultFigure { name: "p99-factor", unit: "times", better: Better::Lower, get: |cost| cost.response_p99?.factor },
    FaultFigure { name: "failed", unit: "share", better: Better::Lower, get: |cost| Some(cost.failed_share) },
];

/// The figure compared for links of a lab: bytes carried per byte that the load moved.
const LINK_BYTES: &str = "link-bytes";

/// The figures compared for each robustness index that both results have: each round's ratio of a client's mean.
const INDEX_FIGURES: &[(ImpactKind, &str)] = &[
    (ImpactKind::Parallelism, "parallelism-impact"),
    (ImpactKind::Latency, "latency-impact"),
];

/// The figure compared for points with a performability: each run's expected requests per second.
const EXPECTED: &str = "expected-iops";

/// A figure of a fault's effect on a run.
struct FaultFigure {
    name: &'static str,
    unit: &'static str,
    better: Better,
    get: fn(&Degradation) -> Option<f64>,
}

/// One metric of one point in both results.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Line {
    /// The point's label; for a part of a point, followed by the kind of operation or the fault.
    pub label: String,
    /// The kind of operation; `None` for faults, and for all kinds together if there are several.
    pub op: Option<OpKind>,
    /// Whether the line is about one of several kinds of operations.
    #[serde(skip)]
    pub is_part: bool,
    /// `iops`, `mean`, `p99`, `p99.9` and other percentiles; in a lab `link-bytes`; for a fault `drop`, `recovery`, `mean-factor`,
    /// `p99-factor`, `failed`; for a robustness index `parallelism-impact`, `latency-impact`; for a performability
    /// `expected-iops`.
    pub metric: MetricName,
    /// Unit of the figures.
    pub unit: &'static str,
    /// Which direction is better.
    pub better: Better,
    /// Figures, tests, verdict.
    pub comparison: Comparison,
    /// Share by which the machine was slower for the second result (negative if faster), if that may
    /// explain the change.
    pub machine_slower: Option<f64>,
}

/// Identifies a metric, with its unit and direction.
struct Key {
    label: String,
    op: Option<OpKind>,
    is_part: bool,
    metric: MetricName,
    unit: &'static str,
    better: Better,
}

/// Metrics and their keys.
#[derive(Default)]
struct Compared {
    /// The runs of both results took turns.
    paired: bool,
    metrics: Vec<Metric>,
    keys: Vec<Key>,
}

/// One figure in each complete run of two points.
struct Sides<'a> {
    points: [&'a PointSummary; 2],
    get: &'a dyn Fn(&RunSummary) -> Option<f64>,
    /// Correlation of runs in each result; `None` if not taken into account.
    alike: Option<[&'a CorrelatedFigure; 2]>,
    /// Kind of figure; `None` if the machine's speed doesn't affect it.
    of: Option<FigureKind>,
}

impl Compared {
    /// Adds a figure that each run has.
    fn add(&mut self, key: Key, sides: &Sides<'_>) {
        let [a, b] = sides.points;
        let (first, second) = match self.paired {
            true => in_same_rounds(a, b, sides.get),
            false => (values(a, sides.get), values(b, sides.get)),
        };
        let alike = sides.alike.filter(|_| !self.paired);
        let likeness = alike.map(|alike| {
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
            // Old results record nothing about the machine, so only the difference between sessions is known.
            let unknown = MachineAllowance {
                session: SESSION,
                ..MachineAllowance::default()
            };
            MachineDifference::between(a, b).map_or(unknown, |difference| difference.allowance(of))
        });
        let name = format!("{} {}", key.label, key.metric);
        self.metrics.push(Metric {
            paired: self.paired,
            is_share: key.unit == "share",
            likeness: likeness.map_or([None; 2], |likeness| likeness.map(Some)),
            machine,
            ..Metric::new(name, key.metric.clone(), key.better, first, second)
        });
        self.keys.push(key);
    }

    /// Adds figures that don't correspond to runs one to one.
    fn add_figures(&mut self, key: Key, a: Vec<f64>, b: Vec<f64>) {
        let name = format!("{} {}", key.label, key.metric);
        self.metrics.push(Metric {
            is_share: key.unit == "share",
            ..Metric::new(name, key.metric.clone(), key.better, a, b)
        });
        self.keys.push(key);
    }

    /// Marks the last metric as expressing the same fact as an earlier one of the same point.
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

/// The figure in each complete run.
pub(crate) fn values(point: &PointSummary, get: &dyn Fn(&RunSummary) -> Option<f64>) -> Vec<f64> {
    complete(point).filter_map(get).collect()
}

/// The figure in complete runs of two points, paired by round, in order.
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

/// How a point's requests are issued.
fn arrival(summary: &Summary, point: &PointSummary) -> Option<ArrivalKind> {
    summary
        .experiment
        .workloads
        .get(&point.workload)
        .map(|workload| workload.arrival)
}

/// Shares of run time in which a job was measured count as equal if they differ by less than this.
const SAME_SHARE: f64 = 0.01;

/// Whether the rate and mean response time of a point express the same fact in both results (Little's law). A closed
/// loop keeps its queue depth outstanding, and so do several loops together if each is measured for the same share of
/// every run. A job that ends at its own pace leaves the others running alone, so its rate and mean are two facts.
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

/// Compares every metric of every point that both results have. Also returns the labels of points that only one has.
///
/// A change smaller than the share `margin` counts as no change. Runs that took turns are compared in pairs. In addition to the usual figures, percentiles that
/// either experiment chose are compared, and those that are `asked` for.
pub fn compare_summaries(
    a: &Summary,
    b: &Summary,
    margin: f64,
    asked: &[Percentile],
) -> (Vec<Line>, Vec<String>) {
    let chosen = [a, b].into_iter().flat_map(|of| &of.experiment.percentiles);
    let more: BTreeSet<Percentile> = chosen.chain(asked).copied().collect();
    let (compared, alone) = metrics(a, b, &Vec::from_iter(more));
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

/// The compared metrics, and the labels of points that only one result has.
// Long because it lists all metrics in the order of the table.
fn metrics(a: &Summary, b: &Summary, more: &[Percentile]) -> (Compared, Vec<String>) {
    let mut compared = Compared {
        paired: a.took_turns_with(b),
        ..Compared::default()
    };
    let mut alone = Vec::new();
    let figures = RunFigure::all(more);
    let alike: Vec<[CorrelatedFigure; 2]> = figures
        .iter()
        .map(|figure| {
            let figure = *figure;
            [a, b].map(|of| CorrelatedFigure::of(&of.points, move |run| figure.of_run(run)))
        })
        .collect();
    let alike_of = |figure: RunFigure| {
        let place = figures.iter().position(|known| *known == figure)?;
        Some([&alike[place][0], &alike[place][1]])
    };
    for point in &a.points {
        let Some(other) = b.points.iter().find(|other| other.label == point.label) else {
            alone.push(point.label.clone());
            continue;
        };
        let kinds = [by_kind::kinds(point), by_kind::kinds(other)];
        // If a load makes one kind of operation, its own figures are those of that kind.
        let single = match &kinds {
            [a, b] if a.len() == 1 && a == b => Some(a[0]),
            _ => None,
        };
        for figure in &figures {
            let get = |run: &RunSummary| figure.of_run(run);
            if is_too_rare(*figure, [point, other]) {
                continue;
            }
            let key = Key {
                label: point.label.clone(),
                op: single,
                is_part: false,
                metric: figure.name(),
                unit: figure.unit(),
                better: figure.better(),
            };
            let sides = Sides {
                points: [point, other],
                get: &get,
                alike: alike_of(*figure),
                of: Some(figure.kind()),
            };
            compared.add(key, &sides);
            if *figure == RunFigure::Mean && closed([(a, point), (b, other)]) {
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
            each_kind([point, other], both, more, &alike_of, &mut compared);
        }
        transfer(point, other, &mut compared);
        faults(point, other, &mut compared);
        alone.extend(expected(point, other, &mut compared));
    }
    let only_b = b
        .points
        .iter()
        .filter(|point| a.points.iter().all(|other| other.label != point.label));
    alone.extend(only_b.map(|point| point.label.clone()));
    indexes(a, b, &mut compared);
    (compared, alone)
}

/// Whether a percentile needs more requests than the runs of a side have, so that no number of runs would help.
fn is_too_rare(figure: RunFigure, points: [&PointSummary; 2]) -> bool {
    let has = |point, figure: RunFigure| !values(point, &|run| figure.of_run(run)).is_empty();
    matches!(figure, RunFigure::Percentile(_))
        && points
            .iter()
            .any(|point| has(point, RunFigure::Mean) && !has(point, figure))
}

/// Share by which the machine was slower for the second result's runs of a point or part of a point.
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

/// The job that did all operations of a kind, so that the kind's response times are that job's; `None` if several did.
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

/// Adds response times of these kinds of operations.
fn each_kind<'a>(
    points: [&PointSummary; 2],
    kinds: impl Iterator<Item = OpKind>,
    more: &[Percentile],
    alike_of: &dyn Fn(RunFigure) -> Option<[&'a CorrelatedFigure; 2]>,
    compared: &mut Compared,
) {
    for op in kinds {
        for figure in RunFigure::of_kinds(more) {
            let get = |run: &RunSummary| figure.of_op(run.op(op)?);
            let is_known = |point: &&PointSummary| !values(point, &get).is_empty();
            if figure != RunFigure::Mean && !points.iter().all(is_known) {
                continue;
            }
            let key = Key {
                label: format!("{}, {op}", points[0].label),
                op: Some(op),
                is_part: true,
                metric: figure.name(),
                unit: figure.unit(),
                better: figure.better(),
            };
            let sides = Sides {
                points,
                get: &get,
                alike: alike_of(figure),
                of: Some(figure.kind()),
            };
            compared.add(key, &sides);
        }
    }
}

/// Adds link bytes per useful byte, for points that ran in a lab in both results.
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
            metric: LINK_BYTES.into(),
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

/// Adds the effects of faults that both points have, matched by index and name. A figure that is missing or zero on
/// both sides is left out.
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
                metric: (*metric).into(),
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

/// Adds the expected throughput of a point if both results assume the same components and failures. Otherwise a difference
/// would be one of assumptions: returns what can't be compared.
fn expected(a: &PointSummary, b: &PointSummary, compared: &mut Compared) -> Option<String> {
    let label = format!("{}, over years", a.label);
    let (first, second) = match (&a.performability, &b.performability) {
        (None, None) => return None,
        (Some(first), Some(second)) if first.system.components == second.system.components => {
            (first, second)
        }
        _ => return Some(format!("{label} (with these components and times)")),
    };
    let key = Key {
        label,
        op: None,
        is_part: false,
        metric: EXPECTED.into(),
        unit: "requests/s",
        better: Better::Higher,
    };
    compared.add_figures(key, first.by_run.clone(), second.by_run.clone());
    None
}

/// Adds the robustness indexes that both results have.
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
            metric: (*metric).into(),
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

/// A condition for the exit status: `p99 worse by 10%`, or for one kind of operation `write p99 worse by 10%`.
#[derive(Clone, Debug, PartialEq)]
pub struct FailIf {
    /// `None`: all kinds together.
    op: Option<OpKind>,
    metric: MetricName,
    /// As a share: 0.1 for 10 %.
    by: f64,
}

/// Older names of metrics, still accepted in conditions.
const ALIASES: &[(&str, &str)] = &[("depth", "drop")];

/// An invalid condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{kind}; write for example 'p99 worse by 10%'; metrics are {}",
    known_metrics()
)]
pub struct ConditionError {
    /// What is wrong.
    pub kind: ConditionMistake,
}

/// What is wrong with a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionMistake {
    /// Not of the form "METRIC worse", optionally followed by "by PERCENT".
    #[error("not a condition")]
    Form,
    /// The metric isn't compared.
    #[error("unknown metric {0}")]
    Metric(String),
    /// The word before the metric isn't a kind of operation.
    #[error("unknown kind of operation {0}")]
    Kind(String),
    /// The metric isn't compared by kind of operation.
    #[error(
        "{0} is compared only for all kinds of operations together; mean, percentiles and impacts also for each kind"
    )]
    MetricOfKind(MetricName),
    /// What follows "by" is not a percentage from 0 up.
    #[error("'{0}' is not a percentage")]
    Percentage(String),
    /// A figure for which higher is better can't fall by 100 % or more.
    #[error("{0} cannot be worse by 100% or more, so this would never apply")]
    Never(MetricName),
}

/// The names of figures other than response times and rates.
fn other_metrics() -> impl Iterator<Item = &'static str> {
    let faults = FAULT_FIGURES.iter().map(|figure| figure.name);
    let indexes = INDEX_FIGURES.iter().map(|(_, name)| *name);
    [LINK_BYTES, EXPECTED]
        .into_iter()
        .chain(faults)
        .chain(indexes)
}

fn known_metrics() -> String {
    let others: Vec<&str> = other_metrics().collect();
    format!(
        "iops, mean, percentiles such as p99.9, {}",
        others.join(", ")
    )
}

/// The name of a metric, which may be an older one.
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
    /// The percentile that it is about, if it is about one.
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

    /// Whether a line fulfils the condition: it is shown to be worse by more than that share. A line without a verdict
    /// also fails, because the condition can't be checked: a gate must not pass for lack of data.
    pub fn fails(&self, line: &Line) -> bool {
        if !self.is_about(line) {
            return false;
        }
        match (line.comparison.verdict, line.comparison.shown) {
            (Verdict::TooFewRuns, _) => true,
            // The condition has its own margin, applied to the same effect as the verdict.
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
            metric: metric.into(),
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
                metric: "p99".into(),
                by: 0.1
            })
        );
        assert_eq!(
            "iops worse".parse(),
            Ok(FailIf {
                op: None,
                metric: "iops".into(),
                by: 0.0
            })
        );
        assert_eq!(
            "depth worse by 5%".parse::<FailIf>(),
            "drop worse by 5%".parse()
        );
        let write = FailIf {
            op: Some(OpKind::Write),
            metric: "p99".into(),
            by: 0.1,
        };
        assert_eq!("write p99 worse by 10%".parse(), Ok(write.clone()));
        assert_eq!(write.to_string(), "write p99 worse by 10%");
        let mistake = |text: &str| text.parse::<FailIf>().unwrap_err().kind;
        assert_eq!(mistake("p99 better"), ConditionMistake::Form);
        assert_eq!(
            mistake("p101 worse"),
            ConditionMistake::Metric("p101".into())
        );
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
            ConditionMistake::MetricOfKind("drop".into())
        );
        assert_eq!(
            mistake("write iops worse"),
            ConditionMistake::MetricOfKind("iops".into())
        );
        for text in [
            "",
            "p101 worse",
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

    /// A gate fails if something is shown to be sufficiently worse, and if nothing can be shown.
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

    /// The result of four runs in which each kind of operation took this long.
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
        let (lines, _) = compare_summaries(&before, &after, MARGIN, &[]);
        let named: Vec<(&str, &str)> = lines
            .iter()
            .map(|line| (line.label.as_str(), &*line.metric))
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

    /// Percentiles that an experiment chose or a condition names have lines, of all kinds together and of each.
    #[test]
    fn any_percentile_that_both_results_have_is_compared() {
        let p95 = Percentile::named("p95").unwrap();
        let with = |us: f64, chosen: &[Percentile]| {
            let mut result = result(&[(OpKind::Read, 100.0), (OpKind::Write, 100.0)]);
            result.experiment.percentiles = chosen.to_vec();
            for run in &mut result.points[0].runs {
                run.response_percentiles_us = [(p95, us)].into();
                for op in &mut run.ops {
                    op.response_percentiles_us = [(p95, us)].into();
                }
            }
            result
        };
        let failed = |chosen: &[Percentile], asked: &[Percentile], gate: &str| {
            let gate: FailIf = gate.parse().unwrap();
            let (a, b) = (with(100.0, chosen), with(200.0, chosen));
            let (lines, _) = compare_summaries(&a, &b, MARGIN, asked);
            let about: Vec<&Line> = lines.iter().filter(|line| gate.is_about(line)).collect();
            (about.len(), about.iter().all(|line| gate.fails(line)))
        };
        assert_eq!(failed(&[p95], &[], "p95 worse by 10%"), (1, true));
        assert_eq!(failed(&[], &[p95], "p95 worse by 10%"), (1, true));
        assert_eq!(failed(&[p95], &[], "write p95 worse by 10%"), (1, true));
        assert_eq!(failed(&[], &[], "p95 worse by 10%"), (0, true));
        // In every result, with enough requests; not with too few.
        let (p90, p99_99) = (Percentile::P90, Percentile::P99_99);
        assert_eq!(failed(&[], &[p90], "p90 worse by 10%"), (1, false));
        assert_eq!(failed(&[], &[p99_99], "p99.99 worse by 10%"), (0, true));
        let gate: FailIf = "p99.90 worse".parse().unwrap();
        assert_eq!(gate.percentile(), Some(Percentile::P99_9));
    }

    /// An index has its own line, with rounds as its sample, and its own gate.
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
            let (lines, _) = compare_summaries(a, b, MARGIN, &[]);
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

    /// The result of four runs of concurrent jobs, each given by its name and how long its operations took.
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

    /// Rate and mean of concurrent jobs count as one figure if each job is a closed loop for the same share of every
    /// run, and as two otherwise.
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
        // Finds the figure that the mean of all jobs together is tied to.
        let check = |a: &Summary, b: &Summary, expected: Option<usize>| {
            let (compared, _) = metrics(a, b, &[]);
            let mean = compared
                .keys
                .iter()
                .position(|key| (key.label.as_str(), &*key.metric) == ("disk mixed", "mean"));
            assert_eq!(compared.metrics[mean.unwrap()].one_with, expected);
        };
        let closed = made(ArrivalKind::Closed);
        check(&closed, &closed, Some(0));
        check(&closed, &made(ArrivalKind::Open), None);
        // The writer ends at its own pace, in one run after half of the time.
        let mut ends = closed.clone();
        ends.points[2].runs[1].measured_s /= 2.0;
        check(&closed, &ends, None);
        // The job starts late, but by the same time in every run.
        let mut late = closed.clone();
        late.points[2]
            .runs
            .iter_mut()
            .for_each(|run| run.measured_s /= 2.0);
        check(&late, &late, Some(0));
        check(&closed, &late, None);
    }

    /// Operations of only one job have one line, so Holm's correction and gates count them once.
    #[test]
    fn what_one_job_does_is_not_repeated_for_all() {
        let made = |read: f64, write: f64| {
            jobs(&[
                ("reader", &[(OpKind::Read, read)]),
                ("writer", &[(OpKind::Write, write)]),
            ])
        };
        let (lines, _) = compare_summaries(&made(100.0, 300.0), &made(200.0, 300.0), MARGIN, &[]);
        let labels: BTreeSet<&str> = lines.iter().map(|line| line.label.as_str()).collect();
        assert_eq!(
            labels,
            ["disk mixed", "disk mixed/reader", "disk mixed/writer"].into()
        );
        assert_eq!(lines.len(), 3 * RunFigure::all(&[]).len());
        let gate: FailIf = "read p99 worse by 10%".parse().unwrap();
        let failed: Vec<&str> = lines
            .iter()
            .filter(|line| gate.fails(line))
            .map(|line| line.label.as_str())
            .collect();
        assert_eq!(failed, ["disk mixed/reader"], "{lines:#?}");
    }

    /// Two jobs that read each have a line, and there is a third line for all reads.
    #[test]
    fn what_several_jobs_do_is_told_for_all() {
        let one = jobs(&[
            ("reader", &[(OpKind::Read, 100.0)]),
            ("mixed", &[(OpKind::Read, 100.0), (OpKind::Write, 300.0)]),
        ]);
        let (lines, _) = compare_summaries(&one, &one, MARGIN, &[]);
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
            &[],
        );
        assert_eq!(lines.len(), RunFigure::all(&[]).len());
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
