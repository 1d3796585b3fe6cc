//! A point's figures by kind of operation, over its complete runs: the rows below a point in the terminal's
//! table, on the report page and in comparisons.
//!
//! The rule: a load of only reads or only writes has no such rows, because they would repeat its own.

use crate::OpKind;
use crate::statistics::Estimate;
use crate::summary::{Latencies, OpSummary, PointSummary, RunSummary};

/// One kind of operation over the complete runs of a point. Each figure is a mean over runs with its 95 % interval;
/// `None` where no run has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KindOverRuns {
    /// Kind of operation.
    pub op: OpKind,
    /// Requests per second.
    pub requests_per_second: Option<Estimate>,
    /// Bytes per second; `None` also for kinds that move no data.
    pub bytes_per_second: Option<Estimate>,
    /// Mean response time, over runs.
    pub response_mean_us: Option<Estimate>,
    /// 99th percentile of the response time, over runs.
    pub response_p99_us: Option<Estimate>,
    /// Each run's p99 of the service time.
    pub service_p99_us: Option<Estimate>,
}

/// The kinds of operations that were done in complete runs of a point, in the order that the load states.
pub fn kinds(point: &PointSummary) -> Vec<OpKind> {
    let mut kinds = Vec::new();
    for op in complete(point).flat_map(|run| &run.ops).filter(|op| op.completed > 0) {
        if !kinds.contains(&op.op) {
            kinds.push(op.op);
        }
    }
    kinds
}

/// The figures of each kind; none where the point's own row says it all.
pub fn over_runs(point: &PointSummary) -> Vec<KindOverRuns> {
    let kinds = kinds(point);
    if matches!(kinds[..], [] | [OpKind::Read] | [OpKind::Write]) {
        return Vec::new();
    }
    let wider = wider(point);
    let figures = |op: OpKind| {
        let over = |get: fn(&OpSummary, &RunSummary) -> Option<f64>| {
            let runs = complete(point).filter_map(|run| get(run.op(op)?, run));
            let estimate = Estimate::of(&runs.collect::<Vec<f64>>())?;
            let end = |end: f64| estimate.mean + (end - estimate.mean) * wider;
            Some(Estimate { low: estimate.low.map(end), high: estimate.high.map(end), ..estimate })
        };
        KindOverRuns {
            op,
            requests_per_second: over(|op, run| Some(run.requests_per_second_of(op))),
            bytes_per_second: over(|op, run| Some(run.bytes_per_second_of(op))).filter(|_| op.moves_bytes()),
            response_mean_us: over(|op, _| latency(op.response, |times| times.mean_us)),
            response_p99_us: over(|op, _| latency(op.response, |times| times.p99_us)),
            service_p99_us: over(|op, _| latency(op.service, |times| times.p99_us)),
        }
    };
    kinds.into_iter().map(figures).collect()
}

/// How many times as wide the interval of a point's rate is as that of independent runs (the machine drifted).
fn wider(point: &PointSummary) -> f64 {
    let rates: Vec<f64> = complete(point).map(|run| run.requests_per_second).collect();
    let half = |estimate: Option<Estimate>| estimate.and_then(|estimate| estimate.relative_half_width());
    match (half(point.requests_per_second), half(Estimate::of(&rates))) {
        (Some(told), Some(independent)) if independent > 0.0 => (told / independent).max(1.0),
        _ => 1.0,
    }
}

fn complete(point: &PointSummary) -> impl Iterator<Item = &RunSummary> {
    point.runs.iter().filter(|run| run.is_complete())
}

fn latency(times: Option<Latencies>, get: fn(&Latencies) -> f64) -> Option<f64> {
    times.as_ref().map(get)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stopped;
    use crate::summary::tests::{op, point, run};

    fn of(ops: &[(OpKind, u64)]) -> PointSummary {
        let ops = || ops.iter().map(|(kind, completed)| op(*kind, *completed, 100.0)).collect();
        point("disk w", vec![run(ops()), run(ops())])
    }

    #[test]
    fn plain_loads_have_no_rows_by_kind() {
        assert_eq!(over_runs(&of(&[])), []);
        assert_eq!(over_runs(&of(&[(OpKind::Read, 10)])), []);
        assert_eq!(over_runs(&of(&[(OpKind::Read, 0), (OpKind::Write, 10)])), []);
    }

    #[test]
    fn each_kind_that_was_done_has_a_row() {
        let mut point = of(&[(OpKind::Read, 60), (OpKind::Unmap, 20), (OpKind::Flush, 0)]);
        let mut interrupted = run(vec![op(OpKind::Write, 1000, 1.0)]);
        interrupted.stopped = Stopped::Interrupted;
        point.runs.push(interrupted);
        let rows = over_runs(&point);
        assert_eq!(rows.iter().map(|row| row.op).collect::<Vec<_>>(), [OpKind::Read, OpKind::Unmap]);
        // Of two runs that were measured for two seconds each.
        let mean = |estimate: Option<Estimate>| estimate.map(|estimate| (estimate.mean, estimate.runs));
        assert_eq!(mean(rows[0].requests_per_second), Some((30.0, 2)));
        assert_eq!(mean(rows[0].bytes_per_second), Some((30.0 * 4096.0, 2)));
        assert_eq!(mean(rows[1].requests_per_second), Some((10.0, 2)));
        assert_eq!(rows[1].bytes_per_second, None, "an unmap moves no data");
        assert_eq!(mean(rows[1].response_p99_us), Some((100.0, 2)));
        assert_eq!(over_runs(&of(&[(OpKind::Create, 1)])).len(), 1, "a row says what was created");
    }
}
