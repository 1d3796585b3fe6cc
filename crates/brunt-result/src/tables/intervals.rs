//! Tables `intervals` and `interval_ops`.

use crate::Interval;
use brunt_core::Histogram;
use brunt_lake::{Batch, Column, Row, Table, columns};

use super::figures::{COST, DONE, LOST, OP, TIMES, all_done, cost, done, lost, times};
use super::origin::RunOrigin;

const WHEN: &[Column] = &[
    Column::int("run", "The run."),
    Column::int(
        "trial",
        "The trial of a rate search, from 0; 0 in other runs.",
    ),
    Column::int("interval", "Number of the interval in the run, from 0."),
    Column::int(
        "start_ns",
        "Start of the interval, since the workers of the run started; ramp-up comes before the first one.",
    ),
    Column::int(
        "end_ns",
        "End of the interval; the last one may be shorter, or longer if requests were still outstanding.",
    ),
];

const IN_FLIGHT: &[Column] = &[Column::float(
    "in_flight",
    "Mean number of requests in flight. Requests count even before they complete, so a stalled device shows its depth.",
)];

/// Columns of outstanding requests; null in rows written by versions that did not record them.
const WAITING: &[Column] = &[
    Column::int(
        "waiting",
        "Requests, sent or not, that were due by the interval's end and not answered. For a replay, \
         only those that a worker has taken.",
    )
    .nullable(),
    Column::float("waiting_mean_ns", "Mean time since outstanding requests were due.").nullable(),
    Column::int("waiting_max_ns", "Age of the oldest outstanding request.").nullable(),
];

/// Definition of the table; `doc` describes its rows.
pub const TABLE: Table = Table {
    name: "intervals",
    doc: "One row for each report interval of a run, for all workers and operations together. A \
     request belongs to the interval in which it completed.",
    columns: &columns::<41>(&[WHEN, DONE, LOST, IN_FLIGHT, TIMES, COST, WAITING]),
};

/// Definition of the table; `doc` describes its rows.
pub const OPS: Table = Table {
    name: "interval_ops",
    doc: "One row for each report interval of a run and kind of operation attempted in it, for all workers together.",
    columns: &columns::<24>(&[WHEN, &[Column::text("op", OP)], DONE, TIMES]),
};

/// Fills both tables; `scratch` is reused for the times of all kinds of operations together.
pub fn append(
    all: &mut Batch,
    ops: &mut Batch,
    moment: &RunOrigin,
    interval: &Interval,
    scratch: &mut [Histogram; 2],
) {
    let figures = &interval.figures;
    let [response, service] = scratch;
    response.clear();
    service.clear();
    for (_, op) in figures.ops() {
        response.merge(&op.response);
        service.merge(&op.service);
    }
    let row = lost(
        all_done(begin(all, moment, interval), figures),
        &figures.counts,
    );
    let row = row.float(interval.in_flight());
    let waiting = &interval.waiting;
    cost(times(row, response, service), &figures.cost)
        .count(waiting.count())
        .float_or_null(waiting.mean())
        .count_or_null(waiting.max().map(|nanos| nanos.0))
        .end();
    for (kind, op) in figures.ops() {
        if !op.is_empty() {
            let row = done(begin(ops, moment, interval).text(kind.name()), op);
            times(row, &op.response, &op.service).end();
        }
    }
}

fn begin<'a>(rows: &'a mut Batch, moment: &RunOrigin, interval: &Interval) -> Row<'a> {
    rows.row()
        .count(moment.run.into())
        .count(moment.trial.into())
        .count(interval.index)
        .nanos_since(interval.start, moment.origin)
        .nanos_since(interval.end, moment.origin)
}
