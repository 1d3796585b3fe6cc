//! Reports on a capture's windows: when a window ends, its report is written as JSON, as a page and as rows of
//! tables, on the thread that collects windows. The rule: a failure to write a window's report is counted and makes
//! the command fail at its end, but stops neither the capture nor the capture's report.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use brunt_capture::windows::tables::{WindowFacts, WindowTables, WindowTablesError};
use brunt_capture::{Analysis, CaptureWindow, Ledger, WindowCollector, WindowedAnalysis};
use brunt_core::quantity::Span;
use brunt_core::units::{counted, format_duration};
use brunt_lake::LakeError;
use brunt_report::capture::{self, Source};
use brunt_report::format::date_time;
use brunt_result::capture::Report;
use serde_json::{Value, json};

use super::findings::FindingBoard;
use super::health;
use crate::cli::{Failure, Output};

const SECOND_NS: u64 = 1_000_000_000;

/// Options for windows, and for what to do with findings.
#[derive(clap::Args, Clone, Default)]
#[command(next_help_heading = "Windows and findings")]
pub struct WindowArgs {
    /// Also report on each window of this length, such as 1h or 1d: findings, hot files, clients and rates start from
    /// zero in each window. Windows begin at multiples of their length since 1970 (UTC).
    #[arg(long, value_name = "TIME")]
    window: Option<Span>,

    /// Write each window's report to this folder when the window ends, as JSON and as a page, and its figures as
    /// tables for `brunt sql`. A capture restarted with the same folder continues there and reports the gap.
    #[arg(long, value_name = "DIR", requires = "window")]
    reports: Option<PathBuf>,

    /// Run this shell command for each finding when it appears, with the finding as JSON on standard input. The capture
    /// never waits for it; findings that appear while 16 others wait for the command are skipped and counted.
    #[arg(long, value_name = "COMMAND")]
    on_finding: Option<String>,
}

/// Facts about the running capture that its windows need.
#[derive(Clone)]
pub struct WindowContext {
    /// Name of the file or of the interfaces.
    pub name: String,
    /// The board on which findings are announced.
    pub board: FindingBoard,
    /// Packets that the rings have dropped so far.
    pub dropped: Arc<AtomicU64>,
}

/// The windows of a running capture, if there are any.
pub struct CaptureWindows {
    collector: Option<WindowCollector>,
    outcome: Arc<Mutex<Outcome>>,
    context: WindowContext,
}

#[derive(Default)]
struct Outcome {
    windows: u64,
    not_written: u64,
    error: Option<String>,
}

/// The windows of a capture that has not started, and the tables for their figures.
pub struct OpenWindows {
    width: Option<Span>,
    folder: Option<PathBuf>,
    tables: Option<WindowTables>,
}

/// What remains when a capture's windows have ended.
pub struct WindowsEnd {
    /// The analyses of the whole capture.
    pub analysis: Analysis,
    /// Additions to the capture's report.
    pub extra: Vec<(&'static str, Value)>,
    /// Set if a window's report could not be written.
    pub failure: Option<Failure>,
}

impl WindowArgs {
    /// Creates the board for the findings.
    pub fn board(&self, output: &Output) -> Result<FindingBoard, Failure> {
        FindingBoard::new(self.on_finding.as_deref(), output)
    }

    /// Whether any of these options was given.
    pub fn is_used(&self) -> bool {
        self.window.is_some() || self.on_finding.is_some()
    }

    /// Checks the options and opens the tables, before anything else is created.
    pub fn open(&self, output: &Output) -> Result<OpenWindows, Failure> {
        if self.window.is_some_and(|width| width.0.as_secs() < 1) {
            return Err(Failure::usage("--window must be at least 1s"));
        }
        let tables = self.reports.as_deref().map(WindowTables::open).transpose();
        let tables = tables.map_err(|error| {
            Failure::usage(error).advise("choose another folder with --reports")
        })?;
        if let Some(before_ns) = tables.as_ref().and_then(WindowTables::continues_after_ns) {
            output.note(format_args!(
                "continuing after a capture that ended {}",
                date_time((before_ns / SECOND_NS) as i64)
            ));
        }
        Ok(OpenWindows {
            width: self.window,
            folder: self.reports.clone(),
            tables,
        })
    }
}

impl OpenWindows {
    /// Starts collecting windows if requested. Returns the parsers' sinks.
    pub fn start(
        self,
        analyses: Vec<Analysis>,
        context: WindowContext,
    ) -> Result<(CaptureWindows, Vec<WindowedAnalysis>), Failure> {
        let outcome = Arc::new(Mutex::new(Outcome::default()));
        let mut windows = CaptureWindows {
            collector: None,
            outcome: Arc::clone(&outcome),
            context: context.clone(),
        };
        let Some(width) = self.width else {
            return Ok((
                windows,
                analyses.into_iter().map(WindowedAnalysis::whole).collect(),
            ));
        };
        let mut reporter = Reporter {
            folder: self.folder,
            tables: self.tables,
            context,
            dropped_before: 0,
            outcome,
        };
        let each = move |window: &CaptureWindow| reporter.report(window);
        let (collector, sinks) = WindowCollector::start(width.0, analyses, each)
            .map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))?;
        windows.collector = Some(collector);
        Ok((windows, sinks))
    }
}

impl CaptureWindows {
    /// Waits for the reports on the last windows. `ledger` is that of the whole capture.
    pub fn finish(self, sinks: Vec<WindowedAnalysis>, ledger: &Ledger) -> WindowsEnd {
        let board = &self.context.board;
        let mut sinks = sinks.into_iter().map(WindowedAnalysis::into_analysis);
        let mut analysis = sinks.next().unwrap_or_default();
        sinks.for_each(|sink| analysis.merge(sink));
        let is_windowed = self.collector.is_some();
        if let Some(collector) = self.collector {
            analysis = collector.finish();
        } else if board.has_hook() {
            let report = analysis.report(ledger);
            board.add(None, end_ns(&report), &report.findings);
        }
        let mut end = WindowsEnd {
            analysis,
            extra: Vec::new(),
            failure: None,
        };
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if is_windowed {
            let counts = json!({ "reported": outcome.windows, "not_written": outcome.not_written });
            end.extra.push(("windows", counts));
        }
        if let Some(hook) = board.finish() {
            let counts =
                json!({ "runs": hook.runs, "failed": hook.failed, "skipped": hook.skipped });
            end.extra.push(("hook", counts));
            if hook.failed + hook.skipped > 0 {
                board.note(format_args!(
                    "the --on-finding command failed {} of {} times, and {} findings were skipped",
                    hook.failed, hook.runs, hook.skipped
                ));
            }
        }
        end.failure = outcome.error.as_ref().map(|error| {
            let what = counted(outcome.not_written as usize, "window report");
            Failure::failed(format!("{what} not written: {error}"))
        });
        end
    }
}

/// Writes the reports.
struct Reporter {
    folder: Option<PathBuf>,
    tables: Option<WindowTables>,
    context: WindowContext,
    dropped_before: u64,
    outcome: Arc<Mutex<Outcome>>,
}

impl Reporter {
    fn report(&mut self, window: &CaptureWindow) {
        let dropped = self.context.dropped.load(Ordering::Relaxed);
        let facts = WindowFacts {
            packets_dropped: dropped - std::mem::replace(&mut self.dropped_before, dropped),
            memory_bytes: health::memory_bytes(),
        };
        let mut ledger = window.ledger.clone();
        ledger.packets_dropped += facts.packets_dropped;
        let report = window.analysis.report(&ledger);
        let end_ns = end_ns(&report);
        let from_ns = window.span.from_ns;
        self.context
            .board
            .add(Some(from_ns), end_ns, &report.findings);
        self.context.board.note(line(window, &report, &facts));
        let written = self.write(window, &report, &facts);
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.windows += 1;
        if let Err(error) = written {
            self.context
                .board
                .note(format_args!("window report not written: {error}"));
            outcome.not_written += 1;
            outcome.error.get_or_insert(error.to_string());
        }
    }

    fn write(
        &mut self,
        window: &CaptureWindow,
        report: &Report,
        facts: &WindowFacts,
    ) -> Result<(), WindowTablesError> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let gap_ns = self
            .tables
            .as_ref()
            .and_then(WindowTables::continues_after_ns);
        let gap_ns = gap_ns.map(|before_ns| report.start_ns.saturating_sub(before_ns));
        // Write the rows before the files, so that every window that has files also has rows.
        if let Some(tables) = &mut self.tables {
            tables.write(window, report, facts)?;
        }
        let name = file_name(folder, window.span.from_ns);
        let mut value = serde_json::to_value(report).unwrap_or_default();
        value["window"] = json!({
            "from_ns": window.span.from_ns,
            "until_ns": window.span.until_ns,
            "gap_before_ns": gap_ns,
            "memory_bytes": facts.memory_bytes,
        });
        put(
            &folder.join(format!("{name}.json")),
            &format!("{value:#}\n"),
        )?;
        let source = Source {
            name: format!("{}, {}", self.context.name, span_text(window)),
            version: env!("CARGO_PKG_VERSION").to_string(),
            trouble: gap_ns.iter().map(|gap| gap_text(*gap)).collect(),
        };
        let page = brunt_report::html::render(&capture::page(report, &source));
        Ok(put(&folder.join(format!("{name}.html")), &page)?)
    }
}

/// The time of the last packet.
fn end_ns(report: &Report) -> u64 {
    report.start_ns + (report.duration_s * 1e9) as u64
}

fn gap_text(gap_ns: u64) -> String {
    let gap = format_duration(std::time::Duration::from_nanos(gap_ns));
    format!(
        "No report covers the {gap} before this: the capture was not running, or was killed before the window ended."
    )
}

/// The name of a window's files, without extension; further parts of the same window get a number.
fn file_name(folder: &Path, from_ns: u64) -> String {
    let time = date_time((from_ns / SECOND_NS) as i64);
    let name = time
        .trim_end_matches(" UTC")
        .replace(' ', "T")
        .replace(':', "-");
    let is_free = |name: &String| !folder.join(format!("{name}.json")).exists();
    let parts = (2..).map(|part| format!("{name}.{part}"));
    let mut names = std::iter::once(name.clone()).chain(parts);
    names.find(is_free).expect("the numbers do not end")
}

/// Writes a file; it gets its final name once it is complete and synced.
fn put(path: &Path, text: &str) -> Result<(), LakeError> {
    let open = path.with_extension("open");
    let write = || {
        let mut file = File::create(&open)?;
        file.write_all(text.as_bytes())?;
        file.sync_data()
    };
    write()
        .and_then(|()| std::fs::rename(&open, path))
        .map_err(|source| LakeError::Io {
            path: path.to_path_buf(),
            source,
        })
}

fn span_text(window: &CaptureWindow) -> String {
    let width = std::time::Duration::from_nanos(window.span.until_ns - window.span.from_ns);
    let from = date_time((window.span.from_ns / SECOND_NS) as i64);
    format!("{} from {from}", format_duration(width))
}

/// A window's report as a line of text.
fn line(window: &CaptureWindow, report: &Report, facts: &WindowFacts) -> String {
    let errors: u64 = report.by_operation.iter().map(|row| row.errors).sum();
    let rate = report.operations_per_s.unwrap_or(0.0);
    let memory = facts.memory_bytes.map_or_else(String::new, |bytes| {
        format!(", memory {}", brunt_core::units::format_size(bytes))
    });
    let seen = match (&report.files, &report.clients) {
        (Some(files), Some(clients)) => {
            format!(" {} files, {} clients,", files.count, clients.count)
        }
        _ => String::new(),
    };
    format!(
        "window of {}: {} operations, {rate:.0} op/s, {errors} errors,{seen} {}; {} packets dropped{memory}",
        span_text(window),
        report.operations,
        counted(report.findings.len(), "finding"),
        facts.packets_dropped,
    )
}
