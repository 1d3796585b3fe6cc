//! Table `transfer`: bytes on links while the load transferred its data.

use brunt_lake::{Batch, Column, Table};

use crate::degradation::PhaseKind;
use crate::event::RunInfo;
use crate::summary::RunSummary;
use crate::transfer::{InterfaceTraffic, LinkTraffic, WayBytes};

/// Definition of the table; `doc` describes its rows.
pub const TABLE: Table = Table {
    name: "transfer",
    doc: "Bytes carried while the load was measured: one row for each run, link of the lab or \
     interface of another host, direction, and part into which faults divide the run ([indexes.md](indexes.md)).",
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
        Column::text("link", "Name of the link, or `HOST:INTERFACE`."),
        Column::text(
            "direction",
            "`there`, from the link's first host to its second, or `back`; for an interface `sent` \
             or, for whole runs, `received`.",
        ),
        Column::bool(
            "delayed",
            "Whether the link has a delay at any point of the experiment, like links between sites.",
        ),
        Column::int("start_ns", "Start of the part, since measuring began."),
        Column::int("end_ns", "End of the part."),
        Column::int(
            "bytes",
            "Bytes that the sending host passed to the link, with Ethernet headers, or bytes that the \
             interface counted.",
        ),
        Column::int("useful_bytes", "Bytes that all requests of the run read and wrote during the part."),
        Column::float(
            "idle_bytes_per_second",
            "Bytes per second that the direction carried before the run, without load; null without \
             `idle` in `[lab]` or `host_idle`.",
        )
        .nullable(),
        Column::int("error_bytes", "How far `bytes` may be off; null if unknown.").nullable(),
        Column::float(
            "idle_error_bytes_per_second",
            "How far `idle_bytes_per_second` may be off; null if unknown.",
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

/// A direction of a link or an interface.
#[derive(Default)]
struct Way<'a> {
    name: &'a str,
    direction: &'static str,
    delayed: bool,
    bytes: u64,
    error: Option<u64>,
    idle: Option<f64>,
    idle_error: Option<f64>,
}

/// Adds the bytes on links and at interfaces during a run.
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
        append_link(rows, info, &whole, name, link, link.bytes());
    }
    for (name, interface) in &transfer.interfaces {
        let error = Some(interface.sent_error_bytes);
        let sent = sent(name, interface, interface.sent_bytes, error);
        let received = Way {
            name,
            direction: "received",
            bytes: interface.received_bytes,
            ..Way::default()
        };
        append_way(rows, info, &whole, &sent);
        append_way(rows, info, &whole, &received);
    }
    for phase in &transfer.phases {
        let stretch = Stretch {
            phase: Some((phase.kind, &phase.faults)),
            start_s: phase.start_s,
            end_s: phase.end_s,
            useful_bytes: phase.useful_bytes,
        };
        for (name, bytes) in &phase.links {
            let link = transfer.links.get(name).copied().unwrap_or_default();
            append_link(rows, info, &stretch, name, &link, *bytes);
        }
        for (name, bytes) in &phase.interfaces {
            let interface = transfer.interfaces.get(name).copied().unwrap_or_default();
            append_way(rows, info, &stretch, &sent(name, &interface, *bytes, None));
        }
    }
}

fn sent<'a>(
    name: &'a str,
    interface: &InterfaceTraffic,
    bytes: u64,
    error: Option<u64>,
) -> Way<'a> {
    Way {
        name,
        direction: "sent",
        delayed: false,
        bytes,
        error,
        idle: interface.idle_sent_bytes_per_second,
        idle_error: interface.idle_sent_error_bytes_per_second,
    }
}

fn append_link(
    rows: &mut Batch,
    info: &RunInfo,
    of: &Stretch<'_>,
    name: &str,
    link: &LinkTraffic,
    bytes: WayBytes,
) {
    let ways = [
        ("there", bytes.there, link.idle_there_bytes_per_second),
        ("back", bytes.back, link.idle_back_bytes_per_second),
    ];
    for (direction, bytes, idle) in ways {
        let way = Way {
            name,
            direction,
            delayed: link.delayed,
            bytes,
            idle,
            ..Way::default()
        };
        append_way(rows, info, of, &way);
    }
}

fn append_way(rows: &mut Batch, info: &RunInfo, of: &Stretch<'_>, way: &Way<'_>) {
    let faults = of.phase.map(|(_, faults)| faults.join(" and "));
    rows.row()
        .count(info.order.into())
        .text_or_null(of.phase.map(|(kind, _)| kind.name()))
        .text_or_null(faults.as_deref())
        .text(way.name)
        .text(way.direction)
        .bool(way.delayed)
        .int((of.start_s * 1e9).round() as i64)
        .int((of.end_s * 1e9).round() as i64)
        .count(way.bytes)
        .count(of.useful_bytes)
        .float_or_null(way.idle)
        .count_or_null(way.error)
        .float_or_null(way.idle_error)
        .end();
}
