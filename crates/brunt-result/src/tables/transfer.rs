//! Table `transfer`: bytes on links while the load transferred its data.

use brunt_lake::{Batch, Column, Table};

use crate::degradation::PhaseKind;
use crate::event::RunInfo;
use crate::summary::RunSummary;
use crate::transfer::WayBytes;

/// See its doc.
pub const TABLE: Table = Table {
    name: "transfer",
    doc: "One row for each link of the lab and direction, for each run and each part that faults cut it into: the bytes \
          that the link carried while the load was measured ([indexes.md](indexes.md)).",
    columns: &[
        Column::int("run", "The run."),
        Column::text(
            "phase",
            "`before`, `during`, `between` or `after` the faults; null for the whole measured time.",
        )
        .nullable(),
        Column::text(
            "faults",
            "Faults in effect, joined by ` and `; null for the whole measured time.",
        )
        .nullable(),
        Column::text("link", "Name of the link."),
        Column::text("direction", "`there`, from its first host to its second, or `back`."),
        Column::bool(
            "delayed",
            "Whether the link has a delay at any point of the experiment, like links between sites.",
        ),
        Column::int("start_ns", "Start of the part, since measuring began."),
        Column::int("end_ns", "Its end."),
        Column::int("bytes", "Bytes that the sending host handed to the link, with Ethernet headers."),
        Column::int("useful_bytes", "Bytes that all requests of the run read and wrote in the same time."),
        Column::float(
            "idle_bytes_per_second",
            "What the direction carried before the run, without load; null without `idle` in `[lab]`.",
        )
        .nullable(),
    ],
};

/// A part of a run.
struct Stretch<'a> {
    phase: Option<(PhaseKind, &'a [String])>,
    start_s: f64,
    end_s: f64,
    useful_bytes: u64,
}

/// Bytes on the links during a run.
pub fn append(rows: &mut Batch, info: &RunInfo, run: &RunSummary) {
    let Some(transfer) = &run.transfer else {
        return;
    };
    let (start_s, end_s, useful_bytes) = (0.0, transfer.seconds, transfer.useful_bytes);
    let whole = Stretch {
        phase: None,
        start_s,
        end_s,
        useful_bytes,
    };
    for (name, link) in &transfer.links {
        append_link(rows, info, run, &whole, (name, link.bytes()));
    }
    for phase in &transfer.phases {
        let stretch = Stretch {
            phase: Some((phase.kind, &phase.faults)),
            start_s: phase.start_s,
            end_s: phase.end_s,
            useful_bytes: phase.useful_bytes,
        };
        for (name, bytes) in &phase.links {
            append_link(rows, info, run, &stretch, (name, *bytes));
        }
    }
}

fn append_link(
    rows: &mut Batch,
    info: &RunInfo,
    run: &RunSummary,
    of: &Stretch<'_>,
    (name, bytes): (&str, WayBytes),
) {
    let link = run
        .transfer
        .as_ref()
        .and_then(|transfer| transfer.links.get(name))
        .copied()
        .unwrap_or_default();
    let ways = [
        ("there", bytes.there, link.idle_there_bytes_per_second),
        ("back", bytes.back, link.idle_back_bytes_per_second),
    ];
    let faults = of.phase.map(|(_, faults)| faults.join(" and "));
    for (direction, bytes, idle) in ways {
        rows.row()
            .count(info.order.into())
            .text_or_null(of.phase.map(|(kind, _)| kind.name()))
            .text_or_null(faults.as_deref())
            .text(name)
            .text(direction)
            .bool(link.delayed)
            .int((of.start_s * 1e9).round() as i64)
            .int((of.end_s * 1e9).round() as i64)
            .count(bytes)
            .count(of.useful_bytes)
            .float_or_null(idle)
            .end();
    }
}
