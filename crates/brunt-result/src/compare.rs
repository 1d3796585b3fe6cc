//! Compares two results point by point. `brunt compare` prints the comparison.
//!
//! The rule: only points with the same label are compared, and Holm's correction covers all metrics of all points,
//! because a reader looks at all of them; two metrics that express the same fact count once. Operations that only one
//! of several jobs performs appear in that job's line and are not repeated for all jobs together. If the runs of both
//! results took turns, they are compared in pairs.

mod conditions;
#[cfg(test)]
mod tests;

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
    Better, Comparison, Estimate, MachineAllowance, Metric, RunLikeness, Verdict, compare,
};
use crate::summary::{OpSummary, PointSummary, RunSummary, Summary};
use crate::transfer::RunTransfer;

pub use conditions::{ConditionError, ConditionMistake, FailIf, Margin, MarginError};

/// A figure of each run that comparisons may cover.
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
    /// The compared figures: the ones in every comparison, then these percentiles.
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

/// The figures compared for each fault that both results have. Lost requests and excess wait appear in tables only,
/// because they grow with a run's length.
#[rustfmt::skip]
const FAULT_FIGURES: &[FaultFigure] = &[
    FaultFigure { name: "drop", unit: "share", better: Better::Lower, get: |cost| Some(cost.drop) },
    FaultFigure { name: "recovery", unit: "s", better: Better::Lower, get: |cost| cost.recovered.seconds() },
    FaultFigure { name: "mean-factor", unit: "times", better: Better::Lower, get: |cost| cost.response_mean?.factor },
    FaultFigure { name: "p99-factor", unit: "times", better: Better::Lower, get: |cost| cost.response_p99?.factor },
    FaultFigure { name: "failed", unit: "share", better: Better::Lower, get: |cost| Some(cost.failed_share) },
];

/// The figures compared for links of a lab and interfaces of other hosts: bytes carried per byte that the load moved,
/// with and without idle traffic.
#[rustfmt::skip]
const LINK_FIGURES: &[LinkFigure] = &[
    ("link-bytes", RunTransfer::per_useful_byte),
    ("link-bytes-without-idle", RunTransfer::without_idle),
];

/// The name of a figure, and its value in a run.
type LinkFigure = (&'static str, fn(&RunTransfer) -> Option<f64>);

/// The figures compared for each robustness index that both results have: the ratio of a client's mean throughput in
/// each round.
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
    /// Whether the line covers only one kind of operation of a load with several.
    #[serde(skip)]
    pub is_part: bool,
    /// `iops`, `mean`, `p99`, `p99.9` and other percentiles; in a lab or with `interfaces` `link-bytes`; for a fault `drop`, `recovery`,
    /// `mean-factor`, `p99-factor`, `failed`; for a robustness index `parallelism-impact`, `latency-impact`; for
    /// performability `expected-iops`.
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
    /// Whether the runs of both results took turns.
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

/// The figure's value in each complete run of a point.
pub(crate) fn values(point: &PointSummary, get: &dyn Fn(&RunSummary) -> Option<f64>) -> Vec<f64> {
    complete(point).filter_map(get).collect()
}

/// The figure's values in complete runs of two points, paired by round, in order.
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
/// loop keeps its queue depth outstanding, and so do several loops together if each is measured for the same share
/// of every run. A job that ends at its own pace leaves the others running alone, so its rate and mean are different
/// facts.
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

/// Compares every metric of every point that both results have. Also returns the labels of points that only one of
/// them has.
///
/// A change smaller than the share `margin` counts as no change. Runs that took turns are compared in pairs. In
/// addition to the usual figures, the percentiles that either experiment chose and those in `asked` are compared.
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
        // If a load issues only one kind of operation, the point's figures are those of that kind.
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

/// The job that did all operations of a kind, so that the job's response times are those of the kind; `None` if
/// several jobs did some.
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

/// Adds link bytes per useful byte, for points that have them in both results.
fn transfer(a: &PointSummary, b: &PointSummary, compared: &mut Compared) {
    for (metric, figure) in LINK_FIGURES {
        let get = |run: &RunSummary| figure(run.transfer.as_ref()?);
        let is_known = |point: &&PointSummary| complete(point).any(|run| get(run).is_some());
        if ![a, b].iter().all(is_known) {
            continue;
        }
        let key = Key {
            label: a.label.clone(),
            op: None,
            is_part: false,
            metric: (*metric).into(),
            unit: "bytes/byte",
            better: Better::Lower,
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

/// Adds the expected throughput of a point if both results assume the same components and failures. If they don't,
/// the difference could come from the assumptions: nothing is compared, and the name of what can't be compared is
/// returned.
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
