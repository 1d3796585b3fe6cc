//! Metrics of a running capture in the Prometheus format. Counters start at zero with the capture; names end in their
//! unit.

use brunt_capture::analysis::Quantiles;

use super::health::checksum_time;
use super::picture::Picture;
use crate::metrics::histogram::bounds;
use crate::metrics::{MetricKind, MetricsPage};

/// The metrics page for a snapshot.
pub fn page(picture: &Picture) -> String {
    let mut page = MetricsPage::default();
    ledger(&mut page, picture);
    live(&mut page, picture);
    moves(&mut page, picture);
    findings(&mut page, picture);
    health(&mut page, picture);
    operations(&mut page, picture);
    page.finish()
}

fn ledger(page: &mut MetricsPage, picture: &Picture) {
    let glance = &picture.glance;
    // The field names of the ledger describe the counters.
    if let Ok(serde_json::Value::Object(ledger)) = serde_json::to_value(&glance.ledger) {
        for (name, value) in &ledger {
            let (Some(value), words) = (value.as_u64(), name.replace('_', " ")) else {
                continue;
            };
            // Leave out a field about the trace, whose unit Prometheus doesn't use.
            if name == "restart_gap_ns" {
                continue;
            }
            if name == "calls_open" {
                page.single(
                    "brunt_capture_calls_open",
                    MetricKind::Gauge,
                    "Calls waiting for a reply.",
                    value,
                );
            } else {
                let help = format!("Loss ledger: {words} since the capture began.");
                page.single(
                    &format!("brunt_capture_{name}_total"),
                    MetricKind::Counter,
                    &help,
                    value,
                );
            }
        }
    }
}

fn live(page: &mut MetricsPage, picture: &Picture) {
    let live = &picture.live;
    page.single(
        "brunt_capture_packets_offered_total",
        MetricKind::Counter,
        "Packets that passed the filter.",
        live.counters.offered,
    );
    page.single(
        "brunt_capture_pool_waits_total",
        MetricKind::Counter,
        "Times that no parcel was free.",
        live.pool_waits,
    );
    page.single(
        "brunt_capture_card_losses_total",
        MetricKind::Counter,
        "Packets that the interfaces lost before they reached the ring.",
        live.card_losses,
    );
    page.single(
        "brunt_capture_kept_bytes",
        MetricKind::Gauge,
        "Bytes held for incomplete messages.",
        picture.glance.kept_bytes,
    );
    page.single(
        "brunt_capture_messages_total",
        MetricKind::Counter,
        "Parcels and queries handled by the parsers.",
        picture.messages,
    );
    page.metric(
        "brunt_capture_queued_parcels",
        MetricKind::Gauge,
        "Parcels waiting for a parser.",
    );
    for (index, queued) in picture.queued.iter().enumerate() {
        page.sample(
            "brunt_capture_queued_parcels",
            &[("parser", &index.to_string())],
            queued,
        );
    }
}

/// Parts being moved to an object store: the number waiting, and counters.
fn moves(page: &mut MetricsPage, picture: &Picture) {
    let Ok(serde_json::Value::Object(counts)) = serde_json::to_value(picture.moves) else {
        return;
    };
    for (name, value) in &counts {
        let (Some(value), words) = (value.as_u64(), name.replace('_', " ")) else {
            continue;
        };
        if name.ends_with("_waiting") {
            let help = format!("Move to an object store: {words} (closed, still on this machine).");
            page.single(
                &format!("brunt_capture_{name}"),
                MetricKind::Gauge,
                &help,
                value,
            );
        } else {
            let help = format!("Move to an object store: {words} since the capture began.");
            page.single(
                &format!("brunt_capture_move_{name}_total"),
                MetricKind::Counter,
                &help,
                value,
            );
        }
    }
}

fn findings(page: &mut MetricsPage, picture: &Picture) {
    let kinds = &picture.found.kinds;
    let name = "brunt_capture_findings_total";
    page.metric(
        name,
        MetricKind::Counter,
        "Findings that appeared, each kind once per window.",
    );
    for (kind, (count, _)) in kinds {
        page.sample(name, &[("kind", kind)], count);
    }
    let name = "brunt_capture_finding_last_time_seconds";
    page.metric(
        name,
        MetricKind::Gauge,
        "When a finding of this kind last appeared, in seconds since 1970.",
    );
    for (kind, (_, time_ns)) in kinds {
        page.sample(name, &[("kind", kind)], *time_ns as f64 * 1e-9);
    }
    let Some(hook) = picture.found.hook else {
        return;
    };
    let counters = [
        ("runs", "Commands run for findings.", hook.runs),
        ("failed", "Commands for findings that failed.", hook.failed),
        (
            "skipped",
            "Findings for which no command was run, because earlier ones had not ended.",
            hook.skipped,
        ),
    ];
    for (name, help, value) in counters {
        page.single(
            &format!("brunt_capture_hook_{name}_total"),
            MetricKind::Counter,
            help,
            value,
        );
    }
}

/// The state of the capture itself.
fn health(page: &mut MetricsPage, picture: &Picture) {
    let health = &picture.health;
    let name = "brunt_capture_cpu_seconds_total";
    page.metric(
        name,
        MetricKind::Counter,
        "CPU time of the threads in each stage.",
    );
    for (stage, spent) in &health.cpu {
        page.sample(name, &[("stage", stage)], spent.as_secs_f64());
    }
    let checksums = checksum_time(picture.glance.ledger.blocks_summed);
    for (name, help, spent) in [
        (
            "compression",
            "Time that trace writers spent in zstd.",
            health.compression,
        ),
        (
            "checksum",
            "Time that parsers spent on checksums, estimated from the number of blocks.",
            checksums,
        ),
    ] {
        let name = format!("brunt_capture_{name}_seconds_total");
        page.metric(&name, MetricKind::Counter, help);
        page.sample(&name, &[], spent.as_secs_f64());
    }
    let gauges = [
        (
            "ring_used_bytes",
            "Bytes of the packet rings that hold packets.",
            Some(picture.live.ring_used_bytes),
        ),
        (
            "ring_bytes",
            "Bytes of packet rings.",
            Some(picture.live.ring_bytes),
        ),
        (
            "memory_bytes",
            "Resident memory of the process.",
            health.memory_bytes,
        ),
    ];
    for (name, help, value) in gauges {
        let name = format!("brunt_capture_{name}");
        page.metric(&name, MetricKind::Gauge, help);
        value
            .iter()
            .for_each(|value| page.sample(&name, &[], value));
    }
    let name = "brunt_capture_written_bytes_total";
    page.metric(
        name,
        MetricKind::Counter,
        "Bytes that the process has written to storage.",
    );
    health
        .written_bytes
        .iter()
        .for_each(|bytes| page.sample(name, &[], bytes));
}

fn operations(page: &mut MetricsPage, picture: &Picture) {
    let glance = &picture.glance;
    type Value = fn(&brunt_capture::analysis::OperationGlance) -> u64;
    let by_operation: [(&str, &str, Value); 3] = [
        ("brunt_nfs_operations_total", "Operations called.", |o| {
            o.calls
        }),
        ("brunt_nfs_errors_total", "Operations that failed.", |o| {
            o.errors
        }),
        (
            "brunt_nfs_data_bytes_total",
            "Bytes of file data transferred.",
            |o| o.bytes,
        ),
    ];
    for (name, help, value) in by_operation {
        page.metric(name, MetricKind::Counter, help);
        for operation in &glance.operations {
            page.sample(name, &[("operation", operation.name)], value(operation));
        }
    }
    let name = "brunt_nfs_latency_seconds";
    page.metric(
        name,
        MetricKind::Histogram,
        "From the call's first byte to the reply's.",
    );
    for operation in &glance.operations {
        let (labels, latency) = ([("operation", operation.name)], &operation.latency);
        let below = latency.counts_up_to(bounds());
        page.latencies(
            name,
            &labels,
            below,
            latency.count(),
            latency.sum_ns() as f64 * 1e-9,
        );
    }
}
