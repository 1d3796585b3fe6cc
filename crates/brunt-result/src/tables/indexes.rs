//! Tables `indexes` and `clients`: the robustness indexes, and the throughput of each client.

use std::collections::BTreeMap;

use brunt_lake::{Batch, Column, Table};

use crate::impact::{CLIENTS_AXIS, ImpactIndex, ImpactKind, ImpactRatio, ON_AXIS};
use crate::summary::Summary;

/// Definition of the table; `doc` describes its rows.
pub const TABLE: Table = Table {
    name: "indexes",
    doc: "One row for each index of robustness and each target, workload and set of values that it \
     describes, written when the experiment ends: how much throughput is left with many clients at once, or with \
     a link delay ([indexes.md](indexes.md)).",
    columns: &[
        Column::text("index", "`parallelism` or `latency`."),
        Column::text("target", "Name of the target."),
        Column::text("workload", "Name of the workload."),
        Column::text(
            "axes",
            "Values of the other axes, which are the same on both sides, as in labels.",
        ),
        Column::text("op", "Kind of operation; null for all kinds together.").nullable(),
        Column::int("at_once", "Clients at once."),
        Column::text(
            "link_delay",
            "For `latency`: the delay, which is compared with no delay.",
        )
        .nullable(),
        Column::text(
            "of",
            "`client`: ratio of a client's mean throughput; `all`: ratio of the throughput of all clients together.",
        ),
        Column::float("ratio", "The ratio; null if it has no interval.").nullable(),
        Column::float("low", "Lower end of the ratio's 95 % interval.").nullable(),
        Column::float("high", "Upper end of the ratio's 95 % interval.").nullable(),
        Column::text("missing", "Why the ratio has no interval.").nullable(),
        Column::int(
            "clients",
            "Number of clients that the interval covers; with 1, it covers rounds only.",
        ),
        Column::int("rounds", "Rounds that count."),
        Column::int(
            "rounds_left_out",
            "Rounds in which a run was incomplete or a client took no part.",
        ),
    ],
};

/// Definition of the table; `doc` describes its rows.
pub const CLIENTS: Table = Table {
    name: "clients",
    doc: "One row for each client of each point of an experiment that has indexes of robustness, and for each of its kinds \
          of operations, written when the experiment ends: each client's own throughput.",
    columns: &[
        Column::text(
            "client",
            "Name of the client's host; `local` for the process that ran the experiment.",
        ),
        Column::text("target", "Name of the target."),
        Column::text("workload", "Name of the workload."),
        Column::text("axes", "Values of the point's axes, as in labels."),
        Column::int("at_once", "Number of concurrent clients, if that is swept.").nullable(),
        Column::text("company", "Names of the concurrent clients, joined by `+`.").nullable(),
        Column::text("op", "Kind of operation; null for all kinds together.").nullable(),
        Column::float(
            "bytes_per_second",
            "Mean throughput over runs; null if no run counts.",
        )
        .nullable(),
        Column::float("low", "Lower end of the 95 % interval; null with one run.").nullable(),
        Column::float("high", "Upper end of the 95 % interval; null with one run.").nullable(),
        Column::int("runs", "Runs that count."),
    ],
};

/// Adds all indexes of an experiment to both tables.
pub fn append(indexes: &mut Batch, clients: &mut Batch, summary: &Summary) {
    let Some(found) = &summary.indexes else {
        return;
    };
    for impact in &found.impacts {
        for (of, ratio) in [("client", &impact.per_client), ("all", &impact.aggregate)] {
            append_ratio(indexes, impact, of, ratio);
        }
    }
    for client in &found.clients {
        let rate = client.bytes_per_second;
        let at_once = client
            .axes
            .get(CLIENTS_AXIS)
            .and_then(|count| count.parse().ok());
        clients
            .row()
            .text(&client.client)
            .text(&client.target)
            .text(&client.workload)
            .text(&joined(&client.axes))
            .count_or_null(at_once)
            .text_or_null(client.axes.get(ON_AXIS).map(String::as_str))
            .text_or_null(client.op.map(|op| op.name()))
            .float_or_null(rate.map(|rate| rate.mean))
            .float_or_null(rate.and_then(|rate| rate.low))
            .float_or_null(rate.and_then(|rate| rate.high))
            .count(rate.map_or(0, |rate| rate.runs as u64))
            .end();
    }
}

fn append_ratio(indexes: &mut Batch, impact: &ImpactIndex, of: &str, ratio: &ImpactRatio) {
    let kind = match impact.kind {
        ImpactKind::Parallelism => "parallelism",
        ImpactKind::Latency => "latency",
    };
    let interval = ratio.interval;
    indexes
        .row()
        .text(kind)
        .text(&impact.target)
        .text(&impact.workload)
        .text(&joined(&impact.axes))
        .text_or_null(impact.op.map(|op| op.name()))
        .count(impact.at_once.into())
        .text_or_null(impact.link_delay.as_deref())
        .text(of)
        .float_or_null(interval.map(|interval| interval.ratio))
        .float_or_null(interval.map(|interval| interval.low))
        .float_or_null(interval.map(|interval| interval.high))
        .text_or_null(ratio.missing.map(|missing| missing.describe()))
        .count(ratio.clients.into())
        .count(impact.rounds.into())
        .count(impact.rounds_left_out.into())
        .end();
}

/// `block_size=4k link_delay=10ms`
fn joined(axes: &BTreeMap<String, String>) -> String {
    axes.iter()
        .map(|(axis, value)| format!("{axis}={value}"))
        .collect::<Vec<String>>()
        .join(" ")
}
