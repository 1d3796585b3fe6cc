//! Computes the robustness indexes from the points of an experiment that sweeps `clients` or `link_delay`. A study puts
//! them into its summary; [`crate::impact`] defines the data.
//!
//! ```text
//! ParallelismImpactRatio(X) = mean throughput of a client with X at once / of the same clients one after another
//! LatencyImpactRatio        = mean throughput of a client with a delay   / without
//! ```
//!
//! A client is a host of a workload; without hosts, it is the process that runs the experiment. The aggregate is the
//! total throughput of all clients of a run: X clients together are compared with one client alone.
//!
//! The rule: a round counts only if all runs of both sides were complete and every client took part in all of its
//! runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use brunt_core::Span;

use crate::OpKind;
use crate::by_kind::kinds;
use crate::impact::{
    CLIENTS_AXIS, CLIENTS_JOINT, ClientEvenness, ClientThroughput, DELAY_AXIS, ImpactIndex,
    ImpactKind, ImpactRatio, NoInterval, ON_AXIS, RobustnessIndexes, RunLeftOut,
};
use crate::statistics::{Estimate, crossed_ratio};
use crate::summary::{PointSummary, RunSummary};

/// Client name of a workload without hosts.
const LOCAL: &str = "local";
/// Seed of the bootstraps.
const SEED: u64 = 17;

/// The indexes over all points; `None` if neither clients nor delays are swept.
pub fn robustness(points: &[PointSummary]) -> Option<RobustnessIndexes> {
    let mut found = RobustnessIndexes::default();
    let mut notes = BTreeSet::new();
    for group in groups(points) {
        let counts = values(&group, CLIENTS_AXIS);
        let delays = values(&group, DELAY_AXIS);
        let (by_clients, by_delay) = (!counts.is_empty(), delays.len() > 1);
        if !by_clients && !by_delay {
            continue;
        }
        if by_clients && !counts.iter().any(|count| count == "1") {
            notes.insert(
                "no ParallelismImpactRatio without clients = 1: add 1 to clients under [sweep]"
                    .into(),
            );
        }
        let none = delays.iter().find(|delay| is_none(delay));
        if by_delay && none.is_none() {
            notes.insert(
                "no LatencyImpactRatio without a delay of 0: add \"0\" to link_delay under [sweep]"
                    .into(),
            );
        }
        let ops = ops(&group);
        for delay in or_none(&delays) {
            let alone = cell(&group, Some("1"), delay);
            for count in counts
                .iter()
                .filter(|count| *count != "1" && !alone.is_empty())
            {
                let both = [&alone[..], &cell(&group, Some(count), delay)];
                found
                    .impacts
                    .extend(impacts(ImpactKind::Parallelism, both, &ops));
            }
        }
        for count in or_none(&counts) {
            for delay in delays.iter().filter(|delay| Some(*delay) != none) {
                let Some(none) = none else { continue };
                let both = [
                    &cell(&group, count, Some(none))[..],
                    &cell(&group, count, Some(delay)),
                ];
                found
                    .impacts
                    .extend(impacts(ImpactKind::Latency, both, &ops));
            }
        }
        for delay in or_none(&delays) {
            for count in or_none(&counts) {
                let points = cell(&group, count, delay);
                found
                    .evenness
                    .extend(ops.iter().filter_map(|op| evenness(&points, *op)));
            }
        }
        for point in &group {
            found.clients.extend(clients_of(point, &ops));
            found
                .left_out
                .extend(point.runs.iter().filter_map(|run| left_out(point, run)));
        }
    }
    found.notes = notes.into_iter().collect();
    let is_empty = found.clients.is_empty() && found.notes.is_empty();
    (!is_empty).then_some(found)
}

/// Groups of points that differ only in clients and delay, in order.
fn groups(points: &[PointSummary]) -> Vec<Vec<&PointSummary>> {
    let key = |point: &PointSummary| {
        let mut axes = point.axes.clone();
        axes.retain(|axis, _| ![CLIENTS_AXIS, ON_AXIS, DELAY_AXIS].contains(&axis.as_str()));
        (point.target.clone(), point.workload.clone(), axes)
    };
    let mut found = Vec::<(_, Vec<&PointSummary>)>::new();
    // Jobs are left out: a job's clients share the storage with the clients of other jobs.
    for point in points.iter().filter(|point| point.part_of.is_none()) {
        let key = key(point);
        match found.iter_mut().find(|(of, _)| *of == key) {
            Some((_, group)) => group.push(point),
            None => found.push((key, vec![point])),
        }
    }
    found.into_iter().map(|(_, group)| group).collect()
}

/// Distinct values of an axis, in order.
fn values(group: &[&PointSummary], axis: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for value in group.iter().filter_map(|point| point.axes.get(axis)) {
        if !found.contains(value) {
            found.push(value.clone());
        }
    }
    found
}

/// All values of an axis, or a single `None` if the axis is not swept.
fn or_none(values: &[String]) -> Vec<Option<&str>> {
    if values.is_empty() {
        vec![None]
    } else {
        values.iter().map(|value| Some(value.as_str())).collect()
    }
}

fn is_none(delay: &str) -> bool {
    delay
        .parse::<Span>()
        .is_ok_and(|delay| delay.0 == Duration::ZERO)
}

/// The points with this number of concurrent clients and this delay.
fn cell<'a>(
    group: &[&'a PointSummary],
    count: Option<&str>,
    delay: Option<&str>,
) -> Vec<&'a PointSummary> {
    let is = |point: &PointSummary, axis: &str, value: Option<&str>| {
        value.is_none() || point.axes.get(axis).map(String::as_str) == value
    };
    let wanted =
        |point: &&&PointSummary| is(point, CLIENTS_AXIS, count) && is(point, DELAY_AXIS, delay);
    group.iter().filter(wanted).copied().collect()
}

/// All kinds of operations together, followed by each kind if several move bytes.
fn ops(group: &[&PointSummary]) -> Vec<Option<OpKind>> {
    let mut found: Vec<OpKind> = Vec::new();
    for kind in group
        .iter()
        .flat_map(|point| kinds(point))
        .filter(|kind| kind.moves_bytes())
    {
        if !found.contains(&kind) {
            found.push(kind);
        }
    }
    let each = if found.len() > 1 { found } else { Vec::new() };
    std::iter::once(None)
        .chain(each.into_iter().map(Some))
        .collect()
}

/// The clients of a point, in order.
fn clients(point: &PointSummary) -> Vec<String> {
    if let Some(on) = point.axes.get(ON_AXIS) {
        return on.split(CLIENTS_JOINT).map(str::to_string).collect();
    }
    // Every run lists all hosts, including lost ones.
    match point.runs.iter().find(|run| !run.hosts.is_empty()) {
        Some(run) => run.hosts.iter().map(|host| host.name.clone()).collect(),
        None => vec![LOCAL.to_string()],
    }
}

/// Why a run is left out; `None` if it isn't.
fn left_out(point: &PointSummary, run: &RunSummary) -> Option<RunLeftOut> {
    let took_part = |client: &String| {
        let mut hosts = run.hosts.iter().filter(|host| host.name == *client);
        hosts.any(|host| host.lost.is_none() && host.began_us.is_some())
    };
    let mut absent = clients(point);
    absent.retain(|client| client != LOCAL && !took_part(client));
    (!absent.is_empty() || !run.is_complete()).then(|| RunLeftOut {
        point: point.label.clone(),
        repetition: run.repetition,
        absent,
    })
}

/// The run of a round, if it counts.
fn run_of(point: &PointSummary, round: u32) -> Option<&RunSummary> {
    point
        .runs
        .iter()
        .find(|run| run.repetition == round)
        .filter(|run| left_out(point, run).is_none())
}

/// Throughput of a client in a run that counts.
fn throughput(run: &RunSummary, client: &str, op: Option<OpKind>) -> f64 {
    match run.hosts.iter().find(|host| host.name == client) {
        Some(host) => op.map_or(host.bytes_per_second, |op| {
            host.ops
                .iter()
                .find(|rate| rate.op == op)
                .map_or(0.0, |rate| rate.bytes_per_second)
        }),
        None => together(run, op),
    }
}

/// Throughput of all clients in a run.
fn together(run: &RunSummary, op: Option<OpKind>) -> f64 {
    match op {
        Some(op) => run.op(op).map_or(0.0, |op| run.bytes_per_second_of(op)),
        None => run.bytes_per_second,
    }
}

/// Throughput of each client of a point.
fn clients_of(point: &PointSummary, ops: &[Option<OpKind>]) -> Vec<ClientThroughput> {
    let counted: Vec<&RunSummary> = point
        .runs
        .iter()
        .filter(|run| left_out(point, run).is_none())
        .collect();
    let of = |client: &String, op: Option<OpKind>| {
        let rates: Vec<f64> = counted
            .iter()
            .map(|run| throughput(run, client, op))
            .collect();
        ClientThroughput {
            client: client.clone(),
            target: point.target.clone(),
            workload: point.workload.clone(),
            axes: point.axes.clone(),
            op,
            bytes_per_second: Estimate::of(&rates),
        }
    };
    let clients = clients(point);
    ops.iter()
        .flat_map(|op| clients.iter().map(move |client| of(client, *op)))
        .collect()
}

/// How evenly the clients of these points share the throughput; each point has a group of clients that work at once.
/// `None` for clients that work alone.
fn evenness(points: &[&PointSummary], op: Option<OpKind>) -> Option<ClientEvenness> {
    let first = *points.first()?;
    let at_once = clients(first).len();
    if at_once < 2 {
        return None;
    }
    let rounds: BTreeSet<u32> = points
        .iter()
        .flat_map(|point| &point.runs)
        .map(|run| run.repetition)
        .collect();
    let of_round = |round: u32| {
        let of_point = |point: &&PointSummary| {
            let run = run_of(point, round)?;
            let clients = clients(point);
            let rates = clients.iter().map(|client| throughput(run, client, op));
            jain(&rates.collect::<Vec<f64>>())
        };
        let found: Option<Vec<f64>> = points.iter().map(of_point).collect();
        found.map(|found| mean(found.into_iter()))
    };
    let by_round: Vec<f64> = rounds.into_iter().filter_map(of_round).collect();
    let index = Estimate::of(&by_round).map(|index| Estimate {
        high: index.high.map(|high| high.min(1.0)),
        ..index
    });
    Some(ClientEvenness {
        target: first.target.clone(),
        workload: first.workload.clone(),
        axes: shared_axes(first, points),
        op,
        at_once: at_once as u32,
        index,
    })
}

/// Jain's index of fairness; `None` if nothing was moved.
fn jain(rates: &[f64]) -> Option<f64> {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(sum, squares), rate| {
        (sum + rate, squares + rate * rate)
    });
    (squares > 0.0).then(|| sum * sum / (rates.len() as f64 * squares))
}

/// The indexes that compare two cells: first the reference, then the changed one.
fn impacts(
    kind: ImpactKind,
    both: [&[&PointSummary]; 2],
    ops: &[Option<OpKind>],
) -> Vec<ImpactIndex> {
    let sides = ImpactSides::of(both);
    let index = |sides: ImpactSides<'_>| ops.iter().map(|op| sides.index(kind, *op)).collect();
    sides.map_or(Vec::new(), index)
}

/// The two cells that are compared, and the clients and rounds of them that count.
struct ImpactSides<'a> {
    /// The first changed point, as a representative of all changed points.
    first: &'a PointSummary,
    /// The points of the reference, and the changed ones.
    sides: [Vec<&'a PointSummary>; 2],
    /// The clients of the changed points.
    names: Vec<String>,
    /// The rounds that the ratio includes.
    rounds: Vec<u32>,
    /// Number of rounds that the ratio does not include.
    rounds_left_out: usize,
    /// The axes on which all points have the same value.
    axes: BTreeMap<String, String>,
}

impl<'a> ImpactSides<'a> {
    /// `None` without a changed point.
    fn of([reference, changed]: [&[&'a PointSummary]; 2]) -> Option<ImpactSides<'a>> {
        let first = *changed.first()?;
        let mut names: Vec<String> = Vec::new();
        for client in changed.iter().flat_map(|point| clients(point)) {
            if !names.contains(&client) {
                names.push(client);
            }
        }
        // Use only reference points with clients of the other side: a nearby client is not a valid reference for a
        // distant one.
        let has =
            |point: &&&PointSummary| clients(point).iter().any(|client| names.contains(client));
        let reference: Vec<&PointSummary> = reference.iter().filter(has).copied().collect();
        let everyone = [&reference[..], changed].concat();
        let made: BTreeSet<u32> = everyone
            .iter()
            .flat_map(|point| &point.runs)
            .map(|run| run.repetition)
            .collect();
        let counts = |round: &u32| everyone.iter().all(|point| run_of(point, *round).is_some());
        let rounds: Vec<u32> = made.iter().copied().filter(counts).collect();
        Some(ImpactSides {
            first,
            axes: shared_axes(first, &everyone),
            sides: [reference, changed.to_vec()],
            names,
            rounds_left_out: made.len() - rounds.len(),
            rounds,
        })
    }

    fn index(&self, kind: ImpactKind, op: Option<OpKind>) -> ImpactIndex {
        let by_round = |of: &dyn Fn(u32) -> f64| -> Vec<f64> {
            self.rounds.iter().map(|round| of(*round)).collect()
        };
        let of_clients = self.sides.each_ref().map(|side| -> Vec<Vec<f64>> {
            let row = |name: &String| by_round(&|round| mean_of(side, name, round, op));
            self.names.iter().map(row).collect()
        });
        let of_all = self
            .sides
            .each_ref()
            .map(|side| vec![by_round(&|round| mean_together(side, round, op))]);
        ImpactIndex {
            kind,
            target: self.first.target.clone(),
            workload: self.first.workload.clone(),
            axes: self.axes.clone(),
            op,
            at_once: clients(self.first).len() as u32,
            link_delay: (kind == ImpactKind::Latency)
                .then(|| self.first.axes.get(DELAY_AXIS).cloned())
                .flatten(),
            per_client: ratio(&of_clients),
            aggregate: ratio(&of_all),
            rounds: self.rounds.len() as u32,
            rounds_left_out: self.rounds_left_out as u32,
        }
    }
}

/// The axes of a point that have the same value at all points, without the clients' names.
fn shared_axes(first: &PointSummary, everyone: &[&PointSummary]) -> BTreeMap<String, String> {
    let is_shared = |(axis, value): &(&String, &String)| {
        let same = |point: &&PointSummary| point.axes.get(*axis) == Some(*value);
        *axis != ON_AXIS && everyone.iter().all(same)
    };
    first
        .axes
        .iter()
        .filter(is_shared)
        .map(|(axis, value)| (axis.clone(), value.clone()))
        .collect()
}

/// Mean throughput of a client in a round that counts, over the points of one side that include it.
fn mean_of(side: &[&PointSummary], client: &str, round: u32, op: Option<OpKind>) -> f64 {
    let has = |point: &&&PointSummary| clients(point).iter().any(|name| name == client);
    mean(
        side.iter()
            .filter(has)
            .filter_map(|point| Some(throughput(run_of(point, round)?, client, op))),
    )
}

/// Mean aggregate throughput of one side in a round that counts.
fn mean_together(side: &[&PointSummary], round: u32, op: Option<OpKind>) -> f64 {
    mean(
        side.iter()
            .filter_map(|point| Some(together(run_of(point, round)?, op))),
    )
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count.max(1))
}

/// The ratio of the changed to the reference throughputs, by client and round.
fn ratio([reference, changed]: &[Vec<Vec<f64>>; 2]) -> ImpactRatio {
    let interval = crossed_ratio(reference, changed, SEED);
    let missing = match (interval, reference.first().map_or(0, Vec::len)) {
        (Some(_), _) => None,
        (None, 0) => Some(NoInterval::NoRound),
        (None, 1) => Some(NoInterval::OneRound),
        (None, _) => Some(NoInterval::NothingMoved),
    };
    let of_round = |rows: &[Vec<f64>], round: usize| mean(rows.iter().map(|row| row[round]));
    let rounds = 0..reference.first().map_or(0, Vec::len);
    let by_round = rounds.map(|round| of_round(changed, round) / of_round(reference, round));
    let by_round = by_round.filter(|ratio| ratio.is_finite()).collect();
    ImpactRatio {
        interval,
        clients: reference.len() as u32,
        by_round,
        missing,
    }
}

#[cfg(test)]
mod tests;
