//! Table `histograms`: the data from which SQL computes percentiles of any combination of rows.
//!
//! Short intervals are combined into extents whose length grows with the run, up to a second. Otherwise an hour of 10
//! ms intervals would take half a gigabyte, and `intervals` already has the percentiles of each interval. With a
//! fixed length of one second, a run of two seconds would have only two extents, too few to show anything.

use std::time::Duration;

use crate::{Interval, OpFigures, OpKind};
use brunt_core::{Histogram, Nanos};
use brunt_lake::{Batch, Column, Table};

use super::figures::OP;
use super::origin::RunOrigin;

/// An extent ends when its length reaches the run's time so far divided by this, or [`EXTENT_ENOUGH`]. Extents thus
/// grow with the run: it has at most about a hundred more of them than seconds.
const EXTENTS: u32 = 20;
/// An extent of this length is always long enough.
const EXTENT_ENOUGH: Duration = Duration::from_secs(1);

/// Definition of the table; `doc` describes its rows.
pub const TABLE: Table = Table {
    name: "histograms",
    doc: "Latency histograms: one row for each extent of a run, operation and non-empty bucket. An \
     extent is one report interval, or as many as make up a twentieth of the time since the run's start, but at \
     most a second. Buckets are the same everywhere, at most 0.1 % wide, and may be added up over extents, \
     operations and runs. (Latencies beyond 2^43 ns, 2.4 hours, are in the last bucket.)",
    columns: &[
        Column::int("run", "The run."),
        Column::int(
            "trial",
            "The trial of a rate search, from 0; 0 in other runs.",
        ),
        Column::int(
            "start_ns",
            "Start of the extent, since the workers of the run started.",
        ),
        Column::int("end_ns", "End of the extent."),
        Column::text("op", OP),
        Column::int("low_ns", "Minimum latency of the bucket."),
        Column::int(
            "high_ns",
            "Maximum latency of the bucket, which is reported for percentiles within it.",
        ),
        Column::int("responses", "Requests with this response time."),
        Column::int("services", "Requests with this service time."),
    ],
};

/// Combines intervals.
#[derive(Default)]
pub struct Extent {
    /// Start and end; `None` if empty.
    span: Option<(Nanos, Nanos)>,
    /// Memory is reused across intervals and runs.
    ops: Vec<(OpKind, Times)>,
}

#[derive(Default)]
struct Times {
    response: Histogram,
    service: Histogram,
}

impl Times {
    fn add(&mut self, figures: &OpFigures) {
        self.response.merge(&figures.response);
        self.service.merge(&figures.service);
    }
}

impl Extent {
    /// Adds an interval, and writes the extent if it is long enough.
    pub fn add(&mut self, rows: &mut Batch, moment: &RunOrigin, interval: &Interval) {
        let start = self.span.map_or(interval.start, |(start, _)| start);
        self.span = Some((start, interval.end));
        for (kind, figures) in interval.figures.ops() {
            match self.ops.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, times)) => times.add(figures),
                None => {
                    let mut times = Times::default();
                    times.add(figures);
                    self.ops.push((kind, times));
                }
            }
        }
        let enough = (start.since(moment.origin) / EXTENTS).min(EXTENT_ENOUGH);
        if interval.end.since(start) >= enough {
            self.end(rows, moment);
        }
    }

    /// Writes the remaining intervals as the last extent.
    pub fn end(&mut self, rows: &mut Batch, moment: &RunOrigin) {
        let Some((start, end)) = self.span.take() else {
            return;
        };
        for (kind, times) in &mut self.ops {
            let (mut responses, mut services) = (
                times.response.buckets().peekable(),
                times.service.buckets().peekable(),
            );
            loop {
                let next =
                    |latency: Option<&(Nanos, u64)>| latency.map_or(Nanos::MAX, |(high, _)| *high);
                let high = next(responses.peek()).min(next(services.peek()));
                if high == Nanos::MAX {
                    break;
                }
                let count = |bucket: Option<(Nanos, u64)>| bucket.map_or(0, |(_, count)| count);
                let response = count(responses.next_if(|(at, _)| *at == high));
                let service = count(services.next_if(|(at, _)| *at == high));
                rows.row()
                    .count(moment.run.into())
                    .count(moment.trial.into())
                    .nanos_since(start, moment.origin)
                    .nanos_since(end, moment.origin)
                    .text(kind.name())
                    .count(times.response.bucket_low(high).0)
                    .count(high.0)
                    .count(response)
                    .count(service)
                    .end();
            }
            drop((responses, services));
            times.response.clear();
            times.service.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Figures;

    /// Intervals of 10 ms become extents that grow with the run up to a second; nothing is lost or counted twice.
    #[test]
    fn extents_add_up() {
        let (mut rows, mut extent) = (Batch::new(&TABLE), Extent::default());
        let moment = RunOrigin {
            run: 3,
            trial: 0,
            origin: Nanos(1000),
        };
        let (mut responses, mut services) = (0, 0);
        for index in 0..3000u64 {
            let mut figures = Figures::of_kinds(&[OpKind::Read, OpKind::Write]);
            for request in 0..1 + index % 4 {
                figures
                    .at(0)
                    .response
                    .record(Nanos(1000 * (request + 1) * 7));
                figures.at(0).service.record(Nanos(1000 * (request + 1)));
                figures.at(1).service.record(Nanos(500));
                (responses, services) = (responses + 1, services + 2);
            }
            let (start, end) = (1000 + index * 10_000_000, 1000 + (index + 1) * 10_000_000);
            let interval = Interval {
                index,
                start: Nanos(start),
                end: Nanos(end),
                figures,
                waiting: Histogram::default(),
            };
            extent.add(&mut rows, &moment, &interval);
        }
        extent.end(&mut rows, &moment);
        extent.end(&mut rows, &moment);
        assert_eq!(rows.ints("responses").iter().sum::<i64>(), responses);
        assert_eq!(rows.ints("services").iter().sum::<i64>(), services);
        let mut spans: Vec<(i64, i64)> = rows
            .ints("start_ns")
            .iter()
            .copied()
            .zip(rows.ints("end_ns").iter().copied())
            .collect();
        spans.dedup();
        assert!(
            spans.windows(2).all(|pair| pair[0].1 == pair[1].0),
            "{spans:?}"
        );
        assert_eq!((spans[0].0, spans[spans.len() - 1].1), (0, 30_000_000_000));
        let lengths: Vec<i64> = spans[..spans.len() - 1]
            .iter()
            .map(|(start, end)| (end - start) / 10_000_000)
            .collect();
        // At first every interval is an extent; a run of a second has more than twenty extents, one of 30 seconds
        // fewer than two hundred.
        assert_eq!(lengths[..20], [1; 20]);
        assert!(
            spans
                .iter()
                .filter(|(_, end)| *end <= 1_000_000_000)
                .count()
                > 40
        );
        assert!(lengths.is_sorted() && lengths.len() < 160, "{lengths:?}");
        assert_eq!(lengths[lengths.len() - 1], 100);
        let (low, high) = (rows.ints("low_ns"), rows.ints("high_ns"));
        assert!(low.iter().zip(high).all(|(low, high)| low <= high));
    }
}
