//! The files that `brunt capture` writes in addition to its report: the trace as tables, and the packets themselves.
//! Also implements `brunt analyze DIR`, which reads the tables back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brunt_capture::analysis::report;
use brunt_capture::parallel::PARCELS_EACH;
use brunt_capture::trace::pcap::{PacketLane, PacketTap, PcapOptions, PcapStatus};
use brunt_capture::trace::{
    Anonymizer, OnFull, OnLag, TraceOptions, TraceRecorder, TraceStatus, is_trace, replay_selected,
};
use brunt_capture::{AnalysisSet, CpuList, Ledger};
use brunt_core::quantity::{Size, Span};
use brunt_remote::{FolderLock, LakeMark, MoveCounts};
use brunt_result::capture::Report;
use serde_json::Value;

use super::capture::places::{self, CpuSets};
use super::remote::{self, Destination, Movement};
use crate::cli::{Done, Failure, Output};

/// What to save from a capture.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "What to save")]
pub struct KeepArgs {
    /// Save the trace as Parquet tables in this folder (docs/trace.md describes them).
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Maximum size of the trace; when it is exceeded, the oldest parts of all tables are deleted and counted.
    #[arg(long, value_name = "SIZE", requires = "out")]
    keep: Option<Size>,

    /// Delete parts of the trace that were completed this long ago, and count them.
    #[arg(long, value_name = "TIME", requires = "out", conflicts_with = "read")]
    keep_age: Option<Span>,

    /// If --out already contains a trace, continue it: with the same --anonymize, with counters that add up, and with
    /// the time without capture in the ledger (restart_gap_ns).
    #[arg(long = "continue", requires = "out", conflicts_with = "to")]
    continues: bool,

    /// Start a new part of a table when its rows take up this much memory, or when there are 131072 of them.
    #[arg(long, value_name = "SIZE", requires = "out", default_value = "16MiB")]
    part_size: Size,

    /// Start a new part of a table when its first row is this old.
    #[arg(long, value_name = "TIME", requires = "out", default_value = "10m")]
    part_age: Span,

    /// Write rows to disk at least this often; a crash loses at most this much time.
    #[arg(long, value_name = "TIME", requires = "out", default_value = "10s")]
    flush: Span,

    /// Replace names, addresses, file handles and ids with pseudonyms: hashes keyed with this file (at least 16
    /// bytes). The same key produces the same pseudonyms.
    #[arg(
        long,
        value_name = "KEYFILE",
        requires = "out",
        conflicts_with = "pcap"
    )]
    anonymize: Option<PathBuf>,

    /// Upload each completed part to this address in an object store, verify the copy, and delete the local part. The
    /// capture never waits for the store: without a connection, parts stay in the local folder. Needs a build with
    /// support for object stores (docs/object-stores.md).
    #[arg(long, value_name = "s3://BUCKET/PREFIX", requires = "out")]
    to: Option<String>,

    /// At the end, wait at most this long for the remaining parts to be moved.
    #[arg(long, value_name = "TIME", requires = "to", default_value = "10m")]
    to_wait: Span,

    /// Leave these tables empty: for `brunt-bench capture --tables`, which measures their cost.
    #[arg(long, hide = true, value_name = "TABLE", requires = "out")]
    without: Vec<MergeableTable>,

    /// CPUs of the threads that write the trace and packet files; threads are assigned to the entries in turn:
    /// numbers and ranges such as 0-3,8, or NUMA nodes such as node1.
    #[arg(long, value_name = "CPUS")]
    writer_cpus: Option<CpuList>,

    /// What to do when the disk is full [default: stop].
    #[arg(long, value_name = "WHAT")]
    on_full: Option<Full>,

    /// Also save the packets to this file (pcap with nanosecond timestamps), truncated to --snap and ordered by time
    /// for any number of workers. If the disk falls behind a live capture by half the size of the rings, packets are
    /// omitted from the file and counted.
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,

    /// Start a new packet file before one exceeds this size; file numbers precede the extension.
    #[arg(long, value_name = "SIZE", requires = "pcap")]
    pcap_size: Option<Size>,

    /// Start a new packet file when the first packet of the current one is this old.
    #[arg(long, value_name = "TIME", requires = "pcap")]
    pcap_age: Option<Span>,

    /// Maximum total size of packet files; when it is exceeded, the oldest are deleted. Needs --pcap-size or
    /// --pcap-age.
    #[arg(long, value_name = "SIZE", requires = "pcap")]
    pcap_keep: Option<Size>,
}

/// `--on-full`.
#[derive(clap::ValueEnum, Clone, Copy)]
enum Full {
    /// Stop with an error; everything written so far is kept.
    Stop,
    /// Wait until there is space, then continue.
    Wait,
}

/// Tables that `--without` leaves empty: aggregates of other tables, whose rows can be added or merged.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq)]
#[value(rename_all = "snake_case")]
enum MergeableTable {
    LatencyHistograms,
    Sketches,
}

impl KeepArgs {
    /// Starts the requested recordings, for `workers` parsers.
    pub(super) fn start(
        &self,
        workers: usize,
        kind: Kind,
        output: &Output,
    ) -> Result<Keeper, Failure> {
        if self.on_full.is_some() && self.out.is_none() && self.pcap.is_none() {
            return Err(Failure::usage("--on-full needs --out or --pcap"));
        }
        if self.writer_cpus.is_some() && self.out.is_none() && self.pcap.is_none() {
            return Err(Failure::usage("--writer-cpus needs --out or --pcap"));
        }
        let destination = self.destination(output)?;
        let recorders = self.recorders(workers, output)?;
        let lane = self.lane(kind, output)?;
        let presence = match (destination, &self.out, recorders.first()) {
            (Some(destination), _, Some(recorder)) => {
                Presence::Moves(destination.start(recorder.parts(), output)?)
            }
            (None, Some(folder), Some(_)) => {
                Presence::Writes(FolderLock::shared(folder).map_err(remote::failure)?)
            }
            _ => Presence::None,
        };
        Ok(Keeper {
            status: recorders.first().map(TraceRecorder::status),
            recorders,
            lane,
            presence,
            keep: self.clone(),
        })
    }

    /// The destination for the trace's parts, if they are to be moved. Called before the trace is created.
    fn destination(&self, output: &Output) -> Result<Option<Destination>, Failure> {
        let Some(folder) = &self.out else {
            return Ok(None);
        };
        let was_moved = LakeMark::read(folder).map_err(remote::failure)?.is_some();
        if was_moved || (self.to.is_some() && is_trace(folder)) {
            let what = if was_moved {
                "contains the marker of a trace that was moved"
            } else {
                "already contains a trace"
            };
            return Err(Failure::usage(format!("{}: {what}", folder.display()))
                .advise("choose another folder with --out"));
        }
        self.to
            .as_deref()
            .map(|to| Destination::open(folder, to, output))
            .transpose()
    }

    fn writer_cpus(&self) -> Result<CpuSets, Failure> {
        places::resolve("--writer-cpus", self.writer_cpus.as_ref())
    }

    /// Starts the packet files, if requested.
    fn lane(&self, kind: Kind, output: &Output) -> Result<Option<PacketLane>, Failure> {
        let Some(path) = &self.pcap else {
            return Ok(None);
        };
        if self.pcap_keep.is_some() && self.pcap_size.is_none() && self.pcap_age.is_none() {
            return Err(Failure::usage(
                "--pcap-keep deletes whole files: set their size with --pcap-size or their age with --pcap-age",
            ));
        }
        let (tell, stop) = (output.clone(), output.clone());
        let mut options = PcapOptions {
            size_max: self.pcap_size.map(|size| size.0),
            age_max: self.pcap_age.map(|age| age.0),
            keep_bytes: self.pcap_keep.map(|keep| keep.0),
            cpus: self.writer_cpus()?.concat(),
            on_full: self.on_full.map_or_else(OnFull::default, OnFull::from),
            tell: Arc::new(move |what| tell.note(what)),
            stop: Arc::new(move || stop.is_interrupted()),
            ..PcapOptions::new(path.clone())
        };
        let (on_lag, parcels) = match kind {
            Kind::File => (OnLag::Wait, PARCELS_EACH),
            Kind::Live {
                snap_bytes,
                parcels,
            } => {
                options.snap_bytes = snap_bytes;
                (OnLag::Drop, (parcels / 2).max(1))
            }
        };
        PacketLane::start(options, on_lag, parcels)
            .map(Some)
            .map_err(|error| failed_pcap(path, &error))
    }

    /// Starts the trace, if requested.
    fn recorders(&self, workers: usize, output: &Output) -> Result<Vec<TraceRecorder>, Failure> {
        let Some(folder) = &self.out else {
            return Ok(Vec::new());
        };
        let anonymizer = self
            .anonymize
            .as_deref()
            .map(Anonymizer::from_file)
            .transpose();
        let (tell, stop) = (output.clone(), output.clone());
        let options = TraceOptions {
            bytes_max: usize::try_from(self.part_size.0).unwrap_or(usize::MAX),
            age_max: self.flush.0,
            part_age_max: self.part_age.0,
            keep_bytes: self.keep.map(|keep| keep.0),
            cpus: self.writer_cpus()?,
            keep_age: self.keep_age.map(|age| age.0),
            lists_parts: self.to.is_some(),
            on_full: self.on_full.map_or_else(OnFull::default, OnFull::from),
            anonymizer: anonymizer.map_err(Failure::usage)?,
            latency_histograms: !self.without.contains(&MergeableTable::LatencyHistograms),
            sketches: !self.without.contains(&MergeableTable::Sketches),
            tell: Arc::new(move |what| tell.note(what)),
            stop: Arc::new(move || stop.is_interrupted()),
            ..TraceOptions::default()
        };
        if self.continues && is_trace(folder) {
            return TraceRecorder::continue_shared(folder, &options, workers).map_err(|error| {
                Failure::usage(error).advise("or choose another folder with --out")
            });
        }
        TraceRecorder::create_shared(folder, &options, workers)
            .map_err(|error| Failure::usage(error).advise("choose another folder with --out"))
    }
}

impl From<Full> for OnFull {
    fn from(full: Full) -> OnFull {
        match full {
            Full::Stop => OnFull::Stop,
            Full::Wait => OnFull::Wait,
        }
    }
}

/// Where the packets come from.
pub(super) enum Kind {
    /// A file, whose reader waits for the disk.
    File,
    /// Live traffic, which can't wait; at most `parcels` parcels are in flight.
    Live { snap_bytes: u32, parcels: usize },
}

/// The recordings of a capture.
pub(super) struct Keeper {
    recorders: Vec<TraceRecorder>,
    status: Option<TraceStatus>,
    lane: Option<PacketLane>,
    presence: Presence,
    keep: KeepArgs,
}

/// How a capture uses its trace folder; the folder's lock keeps conflicting commands away.
enum Presence {
    None,
    Writes(#[allow(dead_code, reason = "held until the trace is finished")] FolderLock),
    Moves(Movement),
}

impl Keeper {
    /// The recorders of the trace, one per parser; none without `--out`. Return them to [`Keeper::finish`].
    pub(super) fn recorders(&mut self) -> Vec<TraceRecorder> {
        std::mem::take(&mut self.recorders)
    }

    /// The tap that passes packets to the packet files.
    pub(super) fn tap(&self) -> Option<PacketTap> {
        self.lane.as_ref().map(PacketLane::tap)
    }

    /// Returns a check that becomes true when a file can no longer be written, which ends the capture.
    pub(super) fn watch(&self) -> impl Fn() -> bool + use<> {
        let (status, lane) = (
            self.status.clone(),
            self.lane.as_ref().map(PacketLane::status),
        );
        move || {
            status.as_ref().is_some_and(TraceStatus::has_failed)
                || lane.as_ref().is_some_and(PcapStatus::has_failed)
        }
    }

    /// The state of the trace, if there is one.
    pub(super) fn status(&self) -> Option<&TraceStatus> {
        self.status.as_ref()
    }

    /// Counts of the parts moved to an object store, if parts are moved.
    pub(super) fn moves(&self) -> Option<MoveCounts> {
        match &self.presence {
            Presence::Moves(movement) => Some(movement.counts()),
            Presence::None | Presence::Writes(_) => None,
        }
    }

    /// Writes the remaining data at the end of a capture. Returns additions to the report, and errors.
    pub(super) fn finish(
        self,
        recorders: Vec<TraceRecorder>,
        ledger: &mut Ledger,
        output: &Output,
    ) -> (Extra, Option<Failure>) {
        let (mut extra, mut failure) = (Vec::new(), None);
        // Finish the packet files first, because the trace ends with the ledger.
        if let (Some(lane), Some(path)) = (self.lane, &self.keep.pcap) {
            let (summary, error) = lane.finish(ledger);
            failure = error.map(|error| failed_pcap(path, &error));
            output.note(format_args!(
                "{}: {} packets in {} file{}, {} bytes",
                path.display(),
                summary.packets,
                summary.files,
                if summary.files == 1 { "" } else { "s" },
                summary.bytes
            ));
            if summary.packets_lost > 0 {
                output.note(format_args!(
                    "{} packets are missing from the packet file because the disk was full",
                    summary.packets_lost
                ));
            }
            extra.push(("pcap", serde_json::to_value(summary).unwrap_or_default()));
        }
        if !recorders.is_empty() {
            let folder = self.keep.out.as_deref().unwrap_or(Path::new("."));
            let trouble = finish_trace(recorders, folder, ledger, &mut extra, output);
            failure = failure.or(trouble);
        }
        if let Presence::Moves(movement) = self.presence {
            let (counts, trouble) = movement.finish(self.keep.to_wait.0, output);
            extra.push(("moved", serde_json::to_value(counts).unwrap_or_default()));
            failure = failure.or(trouble);
        }
        (extra, failure)
    }
}

/// Additional entries of the report.
type Extra = Vec<(&'static str, Value)>;

fn finish_trace(
    recorders: Vec<TraceRecorder>,
    folder: &Path,
    ledger: &mut Ledger,
    extra: &mut Extra,
    output: &Output,
) -> Option<Failure> {
    let (summary, error) = TraceRecorder::finish_shared(recorders, ledger);
    output.note(format_args!(
        "{}: {} rows in {} parts, {} bytes: {:.1} times smaller than the packets on the wire",
        folder.display(),
        summary.rows,
        summary.parts,
        summary.bytes,
        ledger.wire_bytes as f64 / summary.bytes.max(1) as f64
    ));
    if summary.parts_deleted > 0 {
        output.note(format_args!(
            "the oldest {} parts, with {} rows, were deleted to stay within --keep and --keep-age",
            summary.parts_deleted, summary.rows_deleted
        ));
    }
    if summary.rows_lost > 0 {
        output.note(format_args!(
            "{} rows are missing from the trace because the disk was full",
            summary.rows_lost
        ));
    }
    extra.push(("trace", serde_json::to_value(summary).unwrap_or_default()));
    error.map(|error| Failure::failed(error).advise("the report covers everything read so far"))
}

fn failed_pcap(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", path.display()))
        .advise("choose another file with --pcap")
}

/// Analyzes a stored trace.
pub fn analyze(folder: &Path, selected: AnalysisSet, html: Option<&Path>, output: &Output) -> Done {
    let replayed = replay_selected(folder, selected).map_err(Failure::usage)?;
    for note in &replayed.notes {
        output.note(format_args!("{}: {note}", folder.display()));
    }
    let report = replayed.analysis.report(&replayed.ledger);
    if let Some(html) = html {
        super::analyze::write_page(&report, folder, replayed.notes, html, output)?;
    }
    let is_understood = report::is_understood(&report);
    let unread = replayed.damaged.first().filter(|_| !is_understood).cloned();
    let damaged =
        (!replayed.damaged.is_empty()).then(|| ("damaged_parts", replayed.damaged.into()));
    print(&report, damaged.into_iter().collect(), output)?;
    if let Some(unread) = unread {
        return Err(
            Failure::failed(format!("no operations could be read: {unread}")).advise(format!(
                "'brunt lake check {}' lists all damaged parts",
                folder.display()
            )),
        );
    }
    // This is not a failure: the capture may have ended before its first operation.
    if !is_understood {
        output.note(format_args!(
            "{}: no NFSv3, NFSv4 or iSCSI operations in this trace",
            folder.display()
        ));
    }
    Ok(())
}

pub(super) fn print(report: &Report, extra: Extra, output: &Output) -> Done {
    for line in report::text(report).lines() {
        output.line(line);
    }
    let mut value = serde_json::to_value(report).map_err(Failure::failed)?;
    if let Value::Object(fields) = &mut value {
        fields.extend(
            extra
                .into_iter()
                .map(|(name, value)| (name.to_string(), value)),
        );
    }
    output.object(&value);
    if report.valid {
        Ok(())
    } else {
        Err(Failure::failed(
            "the ledger does not add up: the report is invalid",
        ))
    }
}
