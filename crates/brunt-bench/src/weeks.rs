//! `brunt-bench weeks`: does a weeks-long capture keep its memory bounded, and do its windows add up? Small
//! operations with timestamps spread over weeks go through a pipe to `brunt capture` as fast as it takes them; each
//! day uses different files.
//!
//! The rule: the windows' figures are those that the program under test wrote, and their sum is compared with what
//! was sent.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use brunt_core::quantity::Span;
use serde_json::{Value, json};

use crate::capture::{CaptureBursts, compose_bursts};
use crate::program;
use crate::scratch::Scratch;
use crate::{BenchError, BenchResult, Console};

const DAY_NS: u64 = 86_400_000_000_000;
/// One burst per minute of capture time.
const BURST_NS: u64 = 60_000_000_000;
/// Number of files in the built-in capture that get variants.
const BUILT_IN_FILES: u64 = 16;
/// Maximum ratio of peak memory in the second half to that in the first.
const GROWTH_MAX: f64 = 1.1;

/// Weeks-long captures in compressed time: memory use and figures per window
#[derive(Clone, Debug)]
pub struct WeeksBench {
    /// Days of capture time.
    pub days: u32,
    /// Operations in total.
    pub operations: u64,
    /// Files per day.
    pub files: u64,
    /// Length of a window.
    pub window: Span,
    /// Parsers.
    pub workers: u16,
    /// Also store the trace, and keep at most this many bytes of it.
    pub keep: Option<u64>,
    /// Write the capture to this file instead.
    pub make: Option<PathBuf>,
    /// Folder for reports and traces [default: the system's temporary folder].
    pub folder: Option<PathBuf>,
}

impl WeeksBench {
    fn bursts(&self) -> CaptureBursts {
        let every_day = DAY_NS / BURST_NS;
        let count = u64::from(self.days) * every_day;
        // If there are few operations, use fewer bursts rather than bursts without calls.
        let count = count.min(self.operations / 20).max(u64::from(self.days));
        CaptureBursts {
            count,
            every_ns: u64::from(self.days) * DAY_NS / count,
            calls: self.operations / count,
            files: (self.files / BUILT_IN_FILES).clamp(1, u64::from(u32::MAX)) as u32,
            files_for: count / u64::from(self.days),
        }
    }

    /// Runs the capture and prints its windows.
    ///
    /// # Errors
    /// The program fails, its windows don't add up, or its memory grows.
    pub fn run(self, output: &dyn Console) -> BenchResult {
        let bursts = self.bursts();
        if let Some(path) = &self.make {
            let file = std::fs::File::create(path)
                .map_err(|error| BenchError::failed(format!("{}: {error}", path.display())))?;
            let calls = compose_bursts(file, &bursts, || output.is_interrupted())?;
            output.line(format_args!("{}: {calls} calls", path.display()));
            output.object(&json!({ "path": path, "calls": calls }));
            return Ok(());
        }
        let scratch = Scratch::new(self.folder.as_deref(), "weeks")?;
        let reports = scratch.path().join("reports");
        let begun = Instant::now();
        let (sent, report) =
            self.capture(&bursts, &reports, &scratch.path().join("trace"), output)?;
        let seconds = begun.elapsed().as_secs_f64();
        let windows = windows(&reports)?;
        for window in &windows {
            output.line(format_args!(
                "{:<20} {:>12} operations  {:>9} files  {:>6.1} MiB",
                window["name"].as_str().unwrap_or_default(),
                window["operations"].to_string(),
                window["files"].to_string(),
                window["memory_bytes"].as_f64().unwrap_or(0.0) / f64::from(1 << 20),
            ));
        }
        let seen: u64 = windows
            .iter()
            .filter_map(|window| window["operations"].as_u64())
            .sum();
        let whole = report["operations"].as_u64().unwrap_or(0);
        output.line(format_args!(
            "{sent} operations sent, {seen} in {} windows, {whole} in the whole report; {:.0} operations/s",
            windows.len(),
            sent as f64 / seconds
        ));
        output.object(&json!({
            "operations_sent": sent, "operations": whole, "seconds": seconds, "windows": windows,
        }));
        if seen != sent || whole != sent {
            return Err(BenchError::failed(
                "the windows don't add up to the packets sent",
            ));
        }
        flat(&windows)
    }

    fn capture(
        &self,
        bursts: &CaptureBursts,
        reports: &Path,
        trace: &Path,
        output: &dyn Console,
    ) -> Result<(u64, Value), BenchError> {
        let mut command = Command::new(program::brunt()?);
        command
            .args(["--json", "capture", "-r", "-", "--window"])
            .arg(self.window.to_string())
            .arg("--workers")
            .arg(self.workers.to_string())
            .arg("--reports")
            .arg(reports);
        if let Some(keep) = self.keep {
            command
                .arg("--out")
                .arg(trace)
                .arg("--keep")
                .arg(keep.to_string());
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(BenchError::failed)?;
        let to = child.stdin.take().expect("it is piped");
        let sent = compose_bursts(to, bursts, || output.is_interrupted());
        let ended = child.wait_with_output().map_err(BenchError::failed)?;
        let report = serde_json::from_slice(&ended.stdout)
            .map_err(|error| BenchError::failed(format!("brunt capture: {error}")))?;
        if !ended.status.success() {
            return Err(BenchError::failed(format!(
                "brunt capture: {}",
                ended.status
            )));
        }
        Ok((sent?, report))
    }
}

/// The figures in each window's report, in order.
fn windows(folder: &Path) -> Result<Vec<Value>, BenchError> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(BenchError::failed)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .collect();
    files.sort();
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).map_err(BenchError::failed)?;
        let report: Value = serde_json::from_str(&text).map_err(BenchError::failed)?;
        Ok(json!({
            "name": path.file_stem().map(|name| name.to_string_lossy()),
            "operations": report["operations"],
            "files": report["files"]["count"],
            "memory_bytes": report["window"]["memory_bytes"],
        }))
    };
    files.iter().map(read).collect()
}

/// Checks that memory is known and doesn't grow in the second half; in the first half, the tables of the whole
/// capture fill up.
fn flat(windows: &[Value]) -> BenchResult {
    let memory = |window: &Value| window["memory_bytes"].as_f64().unwrap_or(0.0);
    let (first, second) = windows.split_at(windows.len() / 2);
    let most = |half: &[Value]| half.iter().map(memory).fold(0.0, f64::max);
    let (first, second) = (most(first), most(second));
    match first > 0.0 && second > 0.0 && second <= first * GROWTH_MAX {
        true => Ok(()),
        false => Err(BenchError::failed(format!(
            "memory grew from {first:.0} bytes in the first half to {second:.0} in the second"
        ))),
    }
}
