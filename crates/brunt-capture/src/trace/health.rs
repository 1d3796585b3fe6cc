//! The health of a live capture: the table `capture_health`. The capturing program measures it; a pipeline writes the
//! latest figures together with the counters.

use brunt_lake::{Column, Table};

use super::common::Common;
use super::rows::{Handle, Registry, Tabled};

/// The health of a live capture.
pub const HEALTH: Table = Table {
    name: "capture_health",
    doc: "Health of a live capture, about once per second. CPU times and bytes written count from the capture's start.",
    columns: &[
        Column::time("time", "Capture time."),
        Column::int("pipeline", "Pipeline of the capture that wrote the row."),
        Column::int(
            "reader_cpu_ns",
            "CPU time of the thread that reads the rings.",
        ),
        Column::int(
            "parsers_cpu_ns",
            "CPU time of the parsers, including checksums and analyses.",
        ),
        Column::int(
            "writers_cpu_ns",
            "CPU time of the threads that write this trace.",
        ),
        Column::int("other_cpu_ns", "CPU time of all other threads."),
        Column::int("compression_ns", "Time that the writer threads spent in zstd."),
        Column::int(
            "checksum_estimated_ns",
            "Time that the parsers spent on checksums: the number of blocks times the measured cost of one block.",
        ),
        Column::int(
            "ring_used_bytes",
            "Bytes in packet rings that held packets.",
        ),
        Column::int("ring_bytes", "Total bytes of the packet rings; 0 with AF_XDP."),
        Column::int("queued_parcels", "Parcels waiting for a parser."),
        Column::int(
            "memory_bytes",
            "Resident memory of the process; null if unknown.",
        )
        .nullable(),
        Column::int(
            "written_bytes",
            "Bytes written to storage; null if unknown.",
        )
        .nullable(),
        Column::text(
            "reader_cpus",
            "CPUs on which the thread that reads the rings may run, as listed by the kernel; null if unknown.",
        )
        .nullable(),
        Column::text(
            "parsers_cpus",
            "CPUs on which each parser may run, separated by semicolons; null if unknown.",
        )
        .nullable(),
        Column::text(
            "writers_cpus",
            "CPUs on which each thread that writes this trace may run, separated by semicolons; null if unknown.",
        )
        .nullable(),
    ],
};

/// The figures of a row.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // as in the table
pub struct TraceHealth {
    pub reader_cpu_ns: u64,
    pub parsers_cpu_ns: u64,
    pub writers_cpu_ns: u64,
    pub other_cpu_ns: u64,
    pub compression_ns: u64,
    pub checksum_estimated_ns: u64,
    pub ring_used_bytes: u64,
    pub ring_bytes: u64,
    pub queued_parcels: u64,
    pub memory_bytes: Option<u64>,
    pub written_bytes: Option<u64>,
    pub reader_cpus: Option<String>,
    pub parsers_cpus: Option<String>,
    pub writers_cpus: Option<String>,
}

struct HealthTable;

impl Tabled for HealthTable {
    const TABLE: &'static Table = &HEALTH;
    const REFERRED_TO: bool = true;
}

/// Writes the table.
pub struct HealthRows {
    table: Handle<HealthTable>,
}

impl HealthRows {
    pub fn register(registry: &mut Registry) -> HealthRows {
        HealthRows {
            table: registry.add(),
        }
    }

    pub fn record(&mut self, now_ns: u64, health: &TraceHealth, common: &mut Common) {
        let pipeline = common.pipeline as i64;
        let row = common.rows.row(self.table).int(now_ns as i64).int(pipeline);
        row.count(health.reader_cpu_ns)
            .count(health.parsers_cpu_ns)
            .count(health.writers_cpu_ns)
            .count(health.other_cpu_ns)
            .count(health.compression_ns)
            .count(health.checksum_estimated_ns)
            .count(health.ring_used_bytes)
            .count(health.ring_bytes)
            .count(health.queued_parcels)
            .count_or_null(health.memory_bytes)
            .count_or_null(health.written_bytes)
            .text_or_null(health.reader_cpus.as_deref())
            .text_or_null(health.parsers_cpus.as_deref())
            .text_or_null(health.writers_cpus.as_deref())
            .end();
    }
}
