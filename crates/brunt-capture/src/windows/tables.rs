//! The tables of a capture's windows, one row per window and entry, for `brunt sql`: queries add hours up to days and
//! to the whole capture. Rows are written when a window ends, together with its report. The one rule: a capture that
//! continues in the same folder adds rows and records the time without capture; it changes no existing rows.

use std::path::Path;

use brunt_core::Nanos;
use brunt_lake::table::Coding;
use brunt_lake::{Column, LakeError, Table, TableWriter, WriterLock, WriterOptions, read_table};
use brunt_result::capture::{Ranking, Report};

use super::CaptureWindow;

const HOUR_NS: u64 = 3_600_000_000_000;

const FROM: Column = Column::time(
    "window_from",
    "When the window began: a multiple of its length since 1970.",
);

/// One row per window.
pub const WINDOWS: Table = Table {
    name: "windows",
    doc: "One row for each window of a capture. A window that was interrupted has several rows, which \
     have to be added up.",
    columns: &[
        FROM,
        Column::time("window_until", "When the next window begins."),
        Column::time("first", "Beginning of the time that was captured."),
        Column::time("last", "End of the time that was captured."),
        Column::int(
            "gap_before_ns",
            "Time without capture before this row if the capture was continued here, otherwise 0.",
        ),
        Column::int(
            "operations",
            "Operations that were answered or abandoned in this window.",
        ),
        Column::int("errors", "Replies with an error status."),
        Column::int("read_bytes", "Bytes of READ data."),
        Column::int("written_bytes", "Bytes of WRITE data."),
        Column::int("wire_bytes", "Bytes on the wire."),
        Column::int("packets", "Packets processed."),
        Column::int("packets_dropped", "Packets that the rings dropped."),
        Column::int(
            "operations_lost",
            "Replies without calls, records without headers, and calls that have no reply because of losses.",
        ),
        Column::int(
            "files",
            "Files and directories used; estimated beyond 65,536, with a standard error of 0.8 %. Null if the analysis `hot` was left out.",
        )
        .nullable(),
        Column::int("clients", "Clients; null as above.").nullable(),
        Column::int(
            "files_undercount",
            "A file's counts may be low by up to this weight, and no file missing from `window_hot` \
             had more; an operation, 16 KiB of data and 65.5 us of waiting each weigh 1. Null if the analysis \
             `hot` was left out.",
        )
        .nullable(),
        Column::int("findings", "Number of findings."),
        Column::int(
            "memory_bytes",
            "Resident memory of the process when the window ended.",
        )
        .nullable(),
    ],
};

/// One row per window and kind of operation.
pub const WINDOW_OPERATIONS: Table = Table {
    name: "window_operations",
    doc: "One row for each window and kind of operation.",
    columns: &[
        FROM,
        Column::text("operation", "The operation, as in `operations.operation`."),
        Column::int("calls", "Calls."),
        Column::int("replies", "Calls with a reply."),
        Column::int("errors", "Replies with an error status."),
        Column::int("bytes", "Bytes of file data."),
        Column::int("latency_sum_ns", "Sum of the latencies."),
        Column::int("p50_ns", "Median latency; null without replies.").nullable(),
        Column::int(
            "p99_ns",
            "The 99th percentile of the latency; null without replies.",
        )
        .nullable(),
        Column::int("max_ns", "The longest latency; null without replies.").nullable(),
    ],
};

/// Latency histograms that add up.
pub const WINDOW_LATENCIES: Table = Table {
    name: "window_latencies",
    doc: "Number of latencies by window, operation and bucket, which can be added up over windows.",
    columns: &[
        FROM,
        Column::text("operation", "The operation."),
        Column::int("up_to_ns", "The longest latency in the bucket. Each power of two has eight buckets of equal width.").coded(Coding::Delta),
        Column::int("count", "Number of latencies."),
    ],
};

/// The hottest entries of each window.
pub const WINDOW_HOT: Table = Table {
    name: "window_hot",
    doc: "The hottest files, directories, clients and client-file pairs of each window: the top 25 \
     each by operations, bytes and waiting time.",
    columns: &[
        FROM,
        Column::text("kind", "`file`, `directory`, `client` or `pair`.").coded(Coding::Dictionary),
        Column::text("name", "The path or address."),
        Column::int("operations", "Operations."),
        Column::int("bytes", "Bytes of file data."),
        Column::int(
            "time_ns",
            "Time spent waiting for replies, summed over operations.",
        ),
    ],
};

/// The findings of each window.
pub const WINDOW_FINDINGS: Table = Table {
    name: "window_findings",
    doc: "One row for each finding of a window.",
    columns: &[
        FROM,
        Column::text("kind", "Kind of finding."),
        Column::text("finding", "What was found, with its figures."),
        Column::text("advice", "What to do about it, or what it means."),
    ],
};

/// The inputs of a sizing tool, by window and server.
pub const WINDOW_SERVERS: Table = Table {
    name: "window_servers",
    doc: "One row for each window and server, with the inputs of sizing tools. A transfer is a \
     successful read or write.",
    columns: &[
        FROM,
        Column::text(
            "server",
            "The server's address; null for all servers beyond the first 64, which are counted together.",
        )
        .nullable(),
        Column::int("operations", "All operations."),
        Column::int(
            "metadata_operations",
            "Operations that don't read or write data.",
        ),
        Column::int("reads", "READ transfers."),
        Column::int("sequential_reads", "READ transfers that are sequential."),
        Column::int("read_bytes", "Bytes of READ transfers."),
        Column::int("writes", "WRITE transfers."),
        Column::int("sequential_writes", "WRITE transfers that are sequential."),
        Column::int("written_bytes", "Bytes of WRITE transfers."),
        Column::time(
            "first",
            "When the first transfer was requested; null if there is none.",
        )
        .nullable(),
        Column::time(
            "last",
            "When the last transfer was requested; null if there is none.",
        )
        .nullable(),
        Column::int(
            "peak_per_s",
            "The peak number of transfers requested in one second of the clock.",
        ),
        Column::int(
            "random_read_working_set_bytes",
            "Distinct bytes touched by non-sequential reads, in blocks of 4 KiB; estimated, with a standard error of 0.8 %.",
        ),
    ],
};

/// All tables of windows.
pub const TABLES: [&Table; 6] = [
    &WINDOWS,
    &WINDOW_OPERATIONS,
    &WINDOW_LATENCIES,
    &WINDOW_HOT,
    &WINDOW_FINDINGS,
    &WINDOW_SERVERS,
];

/// The data for a row of [`WINDOWS`] that isn't part of the window.
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowFacts {
    /// Packets that the rings dropped.
    pub packets_dropped: u64,
    /// Resident memory of the process, if the system reports it.
    pub memory_bytes: Option<u64>,
}

/// Why a window's rows could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WindowTablesError {
    /// The tables cannot be read or written.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// The window begins before the end of one that an earlier capture wrote, so its operations would count twice.
    #[error("the folder already has windows of this time: choose another folder")]
    Overlap,
}

/// Writes the tables.
pub struct WindowTables {
    writers: [TableWriter; TABLES.len()],
    /// The end of the last window that an earlier capture wrote here.
    before_ns: Option<u64>,
    /// The hour up to which everything was written and synced.
    synced_hour: Option<u64>,
    _lock: WriterLock,
}

impl std::fmt::Debug for WindowTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WindowTables").finish_non_exhaustive()
    }
}

/// Whether a folder contains tables of windows.
pub fn is_windows(folder: &Path) -> bool {
    brunt_lake::reader::parts(folder, &WINDOWS).is_ok_and(|parts| !parts.is_empty())
}

impl WindowTables {
    /// Opens the tables in `folder` (created if missing), after the rows of earlier captures.
    ///
    /// # Errors
    /// Another capture is writing there, or the folder cannot be read or written.
    pub fn open(folder: &Path) -> Result<WindowTables, LakeError> {
        std::fs::create_dir_all(folder).map_err(|source| LakeError::Io {
            path: folder.to_path_buf(),
            source,
        })?;
        let lock = WriterLock::take(folder)?;
        let mut before_ns = None;
        if is_windows(folder) {
            read_table(folder, &WINDOWS, |rows| {
                let last = rows.ints("last").iter().map(|last| *last as u64).max();
                before_ns = before_ns.max(last);
            })?;
        }
        let open = |table| TableWriter::resume(folder, table, WriterOptions::default());
        Ok(WindowTables {
            writers: [
                open(TABLES[0])?,
                open(TABLES[1])?,
                open(TABLES[2])?,
                open(TABLES[3])?,
                open(TABLES[4])?,
                open(TABLES[5])?,
            ],
            before_ns,
            synced_hour: None,
            _lock: lock,
        })
    }

    /// When the capture that this one continues ended, in nanoseconds since 1970; `None` if the folder was empty, or
    /// once a window has been written.
    pub fn continues_after_ns(&self) -> Option<u64> {
        self.before_ns
    }

    /// Writes a window with its report. Afterwards, its rows are in files, which are synced once an hour.
    ///
    /// # Errors
    /// The window overlaps one of an earlier capture, or it cannot be written; in the latter case, the rows are kept,
    /// and the next call writes them, too.
    pub fn write(
        &mut self,
        window: &CaptureWindow,
        report: &Report,
        facts: &WindowFacts,
    ) -> Result<(), WindowTablesError> {
        if self.before_ns.is_some_and(|end| report.start_ns < end) {
            return Err(WindowTablesError::Overlap);
        }
        let from = window.span.from_ns as i64;
        self.window(window, report, facts);
        self.operations(from, window, report);
        let rankings = [
            ("file", &report.files),
            ("directory", &report.directories),
            ("client", &report.clients),
            ("pair", &report.pairs),
        ];
        for (kind, ranking) in rankings {
            if let Some(ranking) = ranking {
                self.hot(from, kind, ranking);
            }
        }
        self.servers(from, window);
        let [.., findings, _] = &mut self.writers;
        for finding in &report.findings {
            let row = findings.rows().row().int(from).text(&finding.kind);
            row.text(&finding.text).text(&finding.advice).end();
        }
        let hour = window.span.until_ns / HOUR_NS;
        let is_synced = self.synced_hour == Some(hour);
        self.writers.iter_mut().try_for_each(|writer| {
            writer.commit(Nanos(0))?;
            match is_synced {
                true => writer.flush(),
                false => writer.rotate(),
            }
        })?;
        self.synced_hour = Some(hour);
        Ok(())
    }

    /// Closes the tables.
    ///
    /// # Errors
    /// The remaining rows cannot be written.
    pub fn finish(mut self) -> Result<(), LakeError> {
        let mut writers = self.writers.iter_mut();
        writers.try_for_each(|writer| writer.finish().map(drop))
    }

    fn window(&mut self, window: &CaptureWindow, report: &Report, facts: &WindowFacts) {
        let first_ns = report.start_ns;
        let last_ns = first_ns + (report.duration_s * 1e9).round() as u64;
        let gap_ns = self
            .before_ns
            .take()
            .map(|before| first_ns.saturating_sub(before));
        let sum = |of: fn(&brunt_result::capture::IntervalRow) -> u64| {
            report.intervals.iter().map(of).sum::<u64>()
        };
        let ledger = &window.ledger;
        self.writers[0]
            .rows()
            .row()
            .int(window.span.from_ns as i64)
            .int(window.span.until_ns as i64)
            .int(first_ns as i64)
            .int(last_ns as i64)
            .count(gap_ns.unwrap_or(0))
            .count(report.operations)
            .count(report.by_operation.iter().map(|row| row.errors).sum())
            .count(sum(|row| row.read_bytes))
            .count(sum(|row| row.write_bytes))
            .count(ledger.wire_bytes)
            .count(ledger.packets)
            .count(facts.packets_dropped)
            .count(ledger.replies_unmatched + ledger.records_lost + ledger.replies_lost)
            .count_or_null(report.files.as_ref().map(|files| files.count))
            .count_or_null(report.clients.as_ref().map(|clients| clients.count))
            .count_or_null(report.files.as_ref().map(|files| files.undercount_max))
            .count(report.findings.len() as u64)
            .count_or_null(facts.memory_bytes)
            .end();
    }

    fn operations(&mut self, from: i64, window: &CaptureWindow, report: &Report) {
        let [_, operations, latencies, ..] = &mut self.writers;
        for row in &report.by_operation {
            let latency = row.latency.as_ref();
            operations
                .rows()
                .row()
                .int(from)
                .text(&row.name)
                .count(row.calls)
                .count(row.replies)
                .count(row.errors)
                .count(row.bytes)
                .count(window.analysis.latency_sum_ns(&row.name))
                .count_or_null(latency.map(|latency| latency.p50_ns))
                .count_or_null(latency.map(|latency| latency.p99_ns))
                .count_or_null(latency.map(|latency| latency.max_ns))
                .end();
            for (up_to_ns, count) in window.analysis.latency_buckets(&row.name) {
                let row = latencies.rows().row().int(from).text(&row.name);
                row.count(up_to_ns).count(count).end();
            }
        }
    }

    fn servers(&mut self, from: i64, window: &CaptureWindow) {
        let [.., servers] = &mut self.writers;
        if !window.analysis.selected().has("profile") {
            return;
        }
        let figures = window.analysis.profile();
        for (address, of) in figures.servers.iter() {
            let counts = of.counts();
            let (first, last) = of.times.span().unzip();
            let row = servers.rows().row().int(from);
            row.text_or_null(address.map(|address| address.to_string()).as_deref())
                .count(of.operations())
                .count(of.metadata)
                .count(counts.reads.count)
                .count(counts.reads.sequential)
                .count(counts.reads.bytes)
                .count(counts.writes.count)
                .count(counts.writes.sequential)
                .count(counts.writes.bytes)
                .count_or_null(first)
                .count_or_null(last)
                .count(counts.peak_per_s)
                .count(counts.random_read_working_set_bytes)
                .end();
        }
    }

    fn hot(&mut self, from: i64, kind: &str, ranking: &Ranking) {
        let [_, _, _, hot, ..] = &mut self.writers;
        for entry in &ranking.top {
            let row = hot.rows().row().int(from).text(kind).text(&entry.name);
            let row = row.count(entry.operations).count(entry.bytes);
            row.count(entry.time_ns).end();
        }
    }
}
