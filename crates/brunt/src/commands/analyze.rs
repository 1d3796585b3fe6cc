//! `brunt analyze`: reports on the storage traffic in a capture file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brunt_capture::analysis::report::is_understood;
use brunt_capture::survey::{Survey, survey};
use brunt_capture::trace::TraceRecorder;
use brunt_capture::trace::pcap::PacketTap;
use brunt_capture::{
    Analysis, AnalysisSet, FileShares, Ledger, Limits, ParallelError, Report, Shares, Sink,
    SourceError, run_file, run_file_parallel,
};
use brunt_report::capture::{self, Source};
use brunt_trace::{TraceError, TraceOpenError, TraceReading};

use super::capture::windows::{OpenWindows, WindowArgs, WindowContext, WindowsEnd};
use super::record::{KeepArgs, Keeper, Kind};
use crate::cli::{Done, Failure, Output};

/// Protocols listed for a capture that contains no known operations.
const SURVEY_ROWS: usize = 12;

/// Report on the NFS traffic in a capture: rates, latencies, hot files, findings
#[derive(clap::Args)]
pub struct Analyze {
    /// Capture file (pcap, pcapng or snoop; plain, or packed with gzip, zstd, xz, bzip2 or lz4), `-` for standard input,
    /// or the folder of a trace saved by `brunt capture --out`.
    file: PathBuf,
    /// Also write the report as one self-contained HTML page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Number of parser threads for a capture file; they share its connections. The thread that reads the file is not
    /// included.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,

    #[command(flatten)]
    analyses: AnalysisArgs,

    #[command(flatten)]
    windows: WindowArgs,
}

impl super::Subcommand for Analyze {
    const NAME: &'static str = "analyze";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt analyze nfs.pcap.zst", "print a report of a capture"),
        ("brunt analyze nfs.pcap --json", "the same as JSON"),
        ("brunt analyze DIR", "report on a saved trace"),
        (
            "brunt analyze nfs.pcap --html nfs.html",
            "write a page with charts",
        ),
        (
            "brunt analyze nfs.pcap --window 1h --reports DIR",
            "also write a report for each hour",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        let selected = self.analyses.selected()?;
        if self.file.is_dir() {
            if self.windows.is_used() {
                return Err(
                    Failure::usage("--window and --on-finding need a capture file")
                        .advise("use --window with `brunt capture --out`, which writes both"),
                );
            }
            return super::record::analyze(&self.file, selected, self.html.as_deref(), output);
        }
        report(
            &self.file,
            usize::from(self.workers),
            None,
            (&self.windows, selected),
            self.html.as_deref(),
            output,
        )
    }
}

/// Which analyses to run.
#[derive(clap::Args, Clone)]
pub struct AnalysisArgs {
    /// Run only these analyses: hot, profile, errors, duplicates, not_understood (rates and mix always run). Analyses
    /// that are not listed cost nothing and are absent from the report; checksums are computed only for duplicates or
    /// for a trace.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    analyses: Vec<String>,
}

impl AnalysisArgs {
    /// The analyses; all of them by default.
    pub fn selected(&self) -> Result<AnalysisSet, Failure> {
        if self.analyses.is_empty() {
            return Ok(AnalysisSet::default());
        }
        AnalysisSet::of(&self.analyses).map_err(|error| {
            let names: Vec<_> = AnalysisSet::optional().collect();
            Failure::usage(format!("--analyses: {error}"))
                .advise(format!("choose from {}", names.join(", ")))
        })
    }
}

/// The result of reading a capture file.
struct FileOutcome {
    end: WindowsEnd,
    recorders: Vec<TraceRecorder>,
    ledger: Ledger,
    /// Set if the file is damaged; the rest of it was not read.
    damage: Option<SourceError>,
    /// Bytes after the last complete packet.
    cut_bytes: usize,
    interrupted: bool,
}

/// Runs a file through one pipeline per worker, writes the requested recordings, and prints the analysis.
pub(super) fn report(
    file: &Path,
    workers: usize,
    keep: Option<&KeepArgs>,
    (windows, selected): (&WindowArgs, AnalysisSet),
    html: Option<&Path>,
    output: &Output,
) -> Done {
    let open = windows.open(output)?;
    let mut keeper = keep
        .map(|keep| keep.start(workers, Kind::File, output))
        .transpose()?;
    let mut outcome = read(
        file,
        workers,
        keeper.as_mut(),
        (windows, open, selected),
        output,
    )?;
    let (mut extra, failure) = match keeper {
        Some(keeper) => {
            let recorders = std::mem::take(&mut outcome.recorders);
            keeper.finish(recorders, &mut outcome.ledger, output)
        }
        None => (Vec::new(), None),
    };
    outcome.note(output);
    extra.append(&mut outcome.end.extra);
    let failure = failure.or(outcome.end.failure.take());
    let report = outcome.end.analysis.report(&outcome.ledger);
    if let Some(html) = html {
        write_page(&report, file, outcome.trouble(), html, output)?;
    }
    let is_empty = !is_understood(&report) && !outcome.interrupted && outcome.damage.is_none();
    // Pipes can't be read twice.
    let found = match is_empty && file.is_file() {
        true => survey(file, || output.is_interrupted()).ok(),
        false => None,
    };
    let contents = found.as_ref().map(serde_json::to_value);
    if let Some(contents) = contents.transpose().map_err(Failure::failed)? {
        extra.push(("contents", contents));
    }
    super::record::print(&report, extra, output)?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    match outcome.damage {
        Some(damage) => {
            Err(Failure::usage(damage)
                .advise("the report above covers everything before the damage"))
        }
        None if is_empty => {
            let name = crate::plain::file_label(file);
            Err(nothing_understood(&name, found.as_ref(), output))
        }
        None => Ok(()),
    }
}

/// Reads a file into the analyses and the requested recordings.
fn read(
    file: &Path,
    workers: usize,
    mut keeper: Option<&mut Keeper>,
    (windows, open, selected): (&WindowArgs, OpenWindows, AnalysisSet),
    output: &Output,
) -> Result<FileOutcome, Failure> {
    let tap = keeper.as_ref().and_then(|keeper| keeper.tap());
    let failed = keeper.as_ref().map(|keeper| keeper.watch());
    let stop = || output.is_interrupted() || failed.as_ref().is_some_and(|failed| failed());
    let recorders = keeper.as_mut().map(|keeper| keeper.recorders());
    let recorders = recorders.unwrap_or_default();
    let context = WindowContext {
        name: crate::plain::file_label(file),
        board: windows.board(output)?,
        dropped: Arc::default(),
    };
    let (windows, sinks) = open.start(analyses(&recorders, workers, selected), context)?;
    // Without recordings, run only the analyses, which need less of each packet.
    let (sinks, recorders, ledger, damage, cut_bytes) = if recorders.is_empty() {
        let read = run(file, sinks, tap, stop)?;
        let Shares { sinks, ledger } = read.shares;
        (sinks, recorders, ledger, read.damage, read.cut_bytes)
    } else {
        let sinks = sinks.into_iter().zip(recorders).collect();
        let read = run(file, sinks, tap, stop)?;
        let Shares { sinks, ledger } = read.shares;
        let (sinks, recorders) = sinks.into_iter().unzip();
        (sinks, recorders, ledger, read.damage, read.cut_bytes)
    };
    Ok(FileOutcome {
        end: windows.finish(sinks, &ledger),
        recorders,
        ledger,
        damage,
        cut_bytes,
        interrupted: output.is_interrupted(),
    })
}

/// Empty analyses, one per parser; with an anonymized trace, the report hides the same names as the trace.
pub(super) fn analyses(
    recorders: &[TraceRecorder],
    workers: usize,
    selected: AnalysisSet,
) -> Vec<Analysis> {
    let all: Vec<_> = match recorders {
        [] => (0..workers).map(|_| Analysis::new()).collect(),
        recorders => recorders.iter().map(TraceRecorder::analysis).collect(),
    };
    let all = all.into_iter();
    all.map(|analysis| analysis.running(selected)).collect()
}

impl FileOutcome {
    /// Prints notes on what limits the report.
    fn note(&self, output: &Output) {
        if self.cut_bytes > 0 {
            output.note(format_args!(
                "the file ends {} bytes into a packet: it is truncated",
                self.cut_bytes
            ));
        }
        if self.interrupted {
            output.note("interrupted: the report covers everything read so far");
        }
    }

    /// What limits the report, in sentences for the page.
    fn trouble(&self) -> Vec<String> {
        let mut trouble = Vec::new();
        if self.interrupted {
            trouble.push("Interrupted: this covers everything read until then.".to_string());
        }
        if self.cut_bytes > 0 {
            trouble.push(format!(
                "The file ends {} bytes into a packet: it is truncated.",
                self.cut_bytes
            ));
        }
        let damage = self.damage.iter();
        trouble.extend(
            damage.map(|damage| format!("{damage}; this covers everything before the damage.")),
        );
        trouble
    }
}

/// Describes the contents of a capture without known operations.
fn nothing_understood(name: &str, found: Option<&Survey>, output: &Output) -> Failure {
    let failure = Failure::failed(format!("{name}: no NFSv3, NFSv4 or iSCSI operations"));
    let Some(found) = found else {
        return failure.advise("pass a file instead of a pipe to see what it contains");
    };
    output.line("\nWhat it contains instead");
    for row in found.protocols.iter().take(SURVEY_ROWS) {
        output.line(format_args!("  {row}"));
    }
    for (call, count) in &found.rpc_calls {
        output.line(format_args!("  {count} RPC calls of {call}"));
    }
    failure.advise(match found.protocols.first() {
        Some(most) => format!("most of its bytes belong to {}", most.name),
        None => "it holds no packets".into(),
    })
}

/// Runs a file through one parser per sink; a single parser needs no extra thread.
fn run<S: Sink + Send + 'static>(
    file: &Path,
    mut sinks: Vec<S>,
    tap: Option<PacketTap>,
    stop: impl FnMut() -> bool,
) -> Result<FileShares<S>, Failure> {
    let mistake = |error: SourceError| {
        let format = match &error {
            SourceError::NoCapture { .. } => trace_format(file),
            SourceError::Io { .. } | SourceError::Damaged { .. } => None,
        };
        Failure::usage(error).advise(match format {
            Some(format) => format!(
                "it looks like a block trace ({format}): try 'brunt trace info {}'",
                file.display()
            ),
            None => "check the file with `capinfos` or `tcpdump -r`".into(),
        })
    };
    if sinks.len() == 1 && tap.is_none() {
        let outcome = run_file(file, sinks.remove(0), Limits::default(), stop).map_err(mistake)?;
        let shares = Shares {
            sinks: vec![outcome.sink],
            ledger: outcome.ledger,
        };
        return Ok(FileShares {
            shares,
            damage: outcome.damage,
            cut_bytes: outcome.cut_bytes,
        });
    }
    run_file_parallel(file, sinks, Limits::default(), tap, stop).map_err(|error| match error {
        ParallelError::Source(error) => mistake(error),
        error => Failure::failed(error),
    })
}

/// The format of a block trace, if the file is one. Pipes can't be read twice.
fn trace_format(file: &Path) -> Option<&'static str> {
    if !file.is_file() {
        return None;
    }
    match TraceReading::default().open(&[file.to_path_buf()], None) {
        Ok(reader) => Some(reader.format().name),
        Err(TraceOpenError::Trace(TraceError::NoOperation { format, .. })) => Some(format),
        Err(_) => None,
    }
}

/// Writes the report as a page; `trouble` describes problems while reading the capture.
pub(super) fn write_page(
    report: &Report,
    file: &Path,
    trouble: Vec<String>,
    html: &Path,
    output: &Output,
) -> Done {
    let name = crate::plain::file_label(file);
    let source = Source {
        name,
        version: env!("CARGO_PKG_VERSION").to_string(),
        trouble,
    };
    std::fs::write(
        html,
        brunt_report::html::render(&capture::page(report, &source)),
    )
    .map_err(|error| Failure::failed(format!("{}: {error}", html.display())))?;
    output.line(format_args!("\nreport in {}", html.display()));
    Ok(())
}
