//! A point's figures by kind of operation, over its complete runs: the rows below a point in the terminal's
//! table, on the report page and in comparisons.
//!
//! The rule: a load of only reads or only writes has no such rows, because they would repeat the point's row.

use crate::OpKind;
use crate::correlated::CorrelatedFigure;
use crate::statistics::Estimate;
use crate::summary::{Latencies, OpSummary, PointSummary, RunSummary};

/// One kind of operation over the complete runs of a point. Each figure is a mean over runs with its 95 % interval;
/// `None` if no run has the figure.
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

/// The kinds of operations performed in complete runs of a point, in the load's order.
pub fn kinds(point: &PointSummary) -> Vec<OpKind> {
    let mut kinds = Vec::new();
    for op in complete(point)
        .flat_map(|run| &run.ops)
        .filter(|op| op.completed > 0)
    {
        if !kinds.contains(&op.op) {
            kinds.push(op.op);
        }
    }
    kinds
}

/// Estimates the rows of all points of a result.
pub struct KindEstimates {
    requests_per_second: CorrelatedFigure,
    bytes_per_second: CorrelatedFigure,
    response_mean_us: CorrelatedFigure,
    response_p99_us: CorrelatedFigure,
    service_p99_us: CorrelatedFigure,
}

impl KindEstimates {
    /// Prepares the estimates for all points of a result.
    pub fn of(points: &[PointSummary]) -> KindEstimates {
        let figure = |get: fn(&RunSummary) -> Option<f64>| CorrelatedFigure::of(points, get);
        KindEstimates {
            requests_per_second: figure(|run| Some(run.requests_per_second)),
            bytes_per_second: figure(|run| Some(run.bytes_per_second)),
            response_mean_us: figure(|run| latency(run.response, |times| times.mean_us)),
            response_p99_us: figure(|run| latency(run.response, |times| times.p99_us)),
            service_p99_us: figure(|run| latency(run.service, |times| times.p99_us)),
        }
    }

    /// The figures of each kind of operation of a point; empty if the point's own row already shows them.
    pub fn over_runs(&self, point: &PointSummary) -> Vec<KindOverRuns> {
        let kinds = kinds(point);
        if matches!(kinds[..], [] | [OpKind::Read] | [OpKind::Write]) {
            return Vec::new();
        }
        let figures = |op: OpKind| {
            let over = |figure: &CorrelatedFigure,
                        get: fn(&OpSummary, &RunSummary) -> Option<f64>| {
                figure.estimate_part(point, |run| get(run.op(op)?, run))
            };
            let bytes = over(&self.bytes_per_second, |op, run| {
                Some(run.bytes_per_second_of(op))
            });
            KindOverRuns {
                op,
                requests_per_second: over(&self.requests_per_second, |op, run| {
                    Some(run.requests_per_second_of(op))
                }),
                bytes_per_second: bytes.filter(|_| op.moves_bytes()),
                response_mean_us: over(&self.response_mean_us, |op, _| {
                    latency(op.response, |t| t.mean_us)
                }),
                response_p99_us: over(&self.response_p99_us, |op, _| {
                    latency(op.response, |t| t.p99_us)
                }),
                service_p99_us: over(&self.service_p99_us, |op, _| {
                    latency(op.service, |t| t.p99_us)
                }),
            }
        };
        kinds.into_iter().map(figures).collect()
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
        let ops = || {
            ops.iter()
                .map(|(kind, completed)| op(*kind, *completed, 100.0))
                .collect()
        };
        point("disk w", vec![run(ops()), run(ops())])
    }

    fn over_runs(point: &PointSummary) -> Vec<KindOverRuns> {
        KindEstimates::of(std::slice::from_ref(point)).over_runs(point)
    }

    /// For operations that only one of several jobs performs, the job's row and the row of all jobs have the same
    /// interval.
    #[test]
    fn a_jobs_figures_have_one_interval() {
        // Rates alternate, and the p99 grows from run to run: the two figures are correlated differently.
        let runs = |ops: &[OpKind], later: u32| {
            let made = |index: u32| {
                let us = 100.0 + f64::from(index * index);
                let count = 1000 + u64::from(index % 2) * 100;
                let made = ops.iter().map(|kind| op(*kind, count, us)).collect();
                RunSummary {
                    repetition: index,
                    order: index * 3 + later,
                    ..run(made)
                }
            };
            (0..6).map(made).collect()
        };
        let job = |name: &str, op: OpKind, later: u32| PointSummary {
            part_of: Some("disk mixed".into()),
            ..point(name, runs(&[op], later))
        };
        let mut points = vec![
            point("disk mixed", runs(&[OpKind::Read, OpKind::Write], 0)),
            job("disk mixed/reader", OpKind::Read, 1),
            job("disk mixed/writer", OpKind::Write, 2),
        ];
        let rate = CorrelatedFigure::of(&points, |run| Some(run.requests_per_second));
        let p99 = CorrelatedFigure::of(&points, |run| Some(run.response?.p99_us));
        assert!(p99.correlation().of_neighbours() > rate.correlation().of_neighbours() + 0.1);
        // Makes estimates as a study does.
        for point in &mut points {
            point.requests_per_second = rate.estimate(point);
            point.response_p99_us = p99.estimate(point);
        }
        let of_all = KindEstimates::of(&points).over_runs(&points[0]);
        for (kind, job) in of_all.iter().zip(&points[1..]) {
            assert_eq!(kind.response_p99_us, job.response_p99_us, "{}", job.label);
            let (kind, job) = (
                kind.requests_per_second.unwrap(),
                job.requests_per_second.unwrap(),
            );
            assert!((kind.mean - job.mean).abs() < 1e-9 * job.mean);
            assert!((kind.high.unwrap() - job.high.unwrap()).abs() < 1e-9 * job.mean);
        }
    }

    #[test]
    fn plain_loads_have_no_rows_by_kind() {
        assert_eq!(over_runs(&of(&[])), []);
        assert_eq!(over_runs(&of(&[(OpKind::Read, 10)])), []);
        assert_eq!(
            over_runs(&of(&[(OpKind::Read, 0), (OpKind::Write, 10)])),
            []
        );
    }

    #[test]
    fn each_kind_that_was_done_has_a_row() {
        let mut point = of(&[(OpKind::Read, 60), (OpKind::Unmap, 20), (OpKind::Flush, 0)]);
        let mut interrupted = run(vec![op(OpKind::Write, 1000, 1.0)]);
        interrupted.stopped = Stopped::Interrupted;
        point.runs.push(interrupted);
        let rows = over_runs(&point);
        assert_eq!(
            rows.iter().map(|row| row.op).collect::<Vec<_>>(),
            [OpKind::Read, OpKind::Unmap]
        );
        // The figures are means of two runs that were measured for two seconds each.
        let mean =
            |estimate: Option<Estimate>| estimate.map(|estimate| (estimate.mean, estimate.runs));
        assert_eq!(mean(rows[0].requests_per_second), Some((30.0, 2)));
        assert_eq!(mean(rows[0].bytes_per_second), Some((30.0 * 4096.0, 2)));
        assert_eq!(mean(rows[1].requests_per_second), Some((10.0, 2)));
        assert_eq!(rows[1].bytes_per_second, None, "an unmap moves no data");
        assert_eq!(mean(rows[1].response_p99_us), Some((100.0, 2)));
        assert_eq!(
            over_runs(&of(&[(OpKind::Create, 1)])).len(),
            1,
            "a row says what was created"
        );
    }
}
