//! Table `requests`, of workloads with `record_requests`.

use crate::RequestRecord;
use brunt_lake::{Batch, Coding, Column, Table};

use super::figures::OP;
use super::origin::RunOrigin;

/// Definition of the table; `doc` describes its rows.
pub const TABLE: Table = Table {
    name: "requests",
    doc: "One row for each request of workloads that have `record_requests = true`; empty otherwise. \
          Response time is `completed_ns - intended_ns`, service time `completed_ns - sent_ns`.",
    columns: &[
        Column::int("run", "The run."),
        Column::int(
            "trial",
            "The trial of a rate search, from 0; 0 in other runs.",
        ),
        Column::int("worker", "Worker that sent the request, from 0."),
        Column::int(
            "sequence",
            "Position in the worker's sequence; the same seed yields the same request.",
        ),
        Column::text("op", OP),
        Column::int("offset_bytes", "Offset on the device.").coded(Coding::Plain),
        Column::int("len_bytes", "How much.").coded(Coding::Dictionary),
        Column::int(
            "intended_ns",
            "When the request was due (open loop) or issued (closed loop), since the workers of the run started.",
        ),
        Column::int(
            "sent_ns",
            "When the request's last attempt was submitted to the device; null if it never was.",
        )
        .nullable(),
        Column::int(
            "completed_ns",
            "When the request's last attempt completed; null if it never did.",
        )
        .nullable(),
        Column::int("retries", "Retries."),
        Column::text(
            "status",
            "How the request ended: `good`, or the kind of error or loss.",
        ),
    ],
};

/// Adds requests of a run to the table.
pub fn append(rows: &mut Batch, moment: &RunOrigin, requests: &[RequestRecord]) {
    for request in requests {
        rows.row()
            .count(moment.run.into())
            .count(moment.trial.into())
            .count(request.worker.into())
            .count(request.index)
            .text(request.op.name())
            .count(request.offset)
            .count(request.len)
            .nanos_since(request.intended, moment.origin)
            .nanos_since_or_null(request.sent, moment.origin)
            .nanos_since_or_null(request.completed, moment.origin)
            .count(request.retries.into())
            .text(request.status.name())
            .end();
    }
}
