//! `runs.jsonl`: the finished runs of an experiment that has not ended, one line per run. Adding a run costs the same
//! however many runs there were before. When the experiment ends, it writes the runs to `summary.json` and removes
//! this file.
//!
//! The rule: readers of a result get its summary from [`Summary::read`], which adds these runs. A last line without a
//! line break belongs to a run whose record was being written when the program or machine stopped; it is left out.

use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::estimates::estimate;
use crate::summary::{self, PointSummary, Summary, SummaryError, SummaryMistake};

/// Name of the file in a result's folder.
pub const FILE_NAME: &str = "runs.jsonl";

/// The first line.
#[derive(Serialize, Deserialize)]
struct Head {
    /// Half-width that the experiment aims for, as a share of the mean.
    precision: Option<f64>,
}

/// Any other line: a run, and each of its jobs.
#[derive(Serialize, Deserialize)]
struct LoggedRun {
    points: Vec<LoggedPoint>,
}

/// A point after a run has ended.
#[derive(Serialize, Deserialize)]
struct LoggedPoint {
    /// The point's index in the summary.
    index: usize,
    /// The point's figures over all runs so far, without estimates, and the run.
    point: PointSummary,
}

impl LoggedPoint {
    fn of(index: usize, point: &mut PointSummary) -> LoggedPoint {
        let runs = std::mem::take(&mut point.runs);
        let mut logged = PointSummary {
            requests_per_second: None,
            bytes_per_second: None,
            response_mean_us: None,
            response_p99_us: None,
            precision: None,
            sticky: None,
            ..point.clone()
        };
        logged.runs.extend(runs.last().cloned());
        point.runs = runs;
        LoggedPoint {
            index,
            point: logged,
        }
    }
}

/// Writes the file.
pub struct RunLog {
    file: File,
    path: PathBuf,
}

impl RunLog {
    /// Starts an empty log, whose name is on stable storage after the next [`Summary::write`]. `precision` is the
    /// half-width that the experiment aims for, as a share of the mean.
    ///
    /// # Errors
    /// The folder's file system is full or reports an error.
    pub fn create(folder: &Path, precision: Option<f64>) -> io::Result<RunLog> {
        let path = folder.join(FILE_NAME);
        let file = File::create(&path)?;
        let mut log = RunLog { file, path };
        log.append(&Head { precision })?;
        Ok(log)
    }

    /// Adds the last run of each of these points; the runs ended together. It is on stable storage when this returns.
    ///
    /// # Errors
    /// The folder's file system is full or reports an error.
    pub fn add(
        &mut self,
        indexes: impl Iterator<Item = usize>,
        points: &mut [PointSummary],
    ) -> io::Result<()> {
        let points = indexes.map(|index| LoggedPoint::of(index, &mut points[index]));
        let points = points.collect();
        self.append(&LoggedRun { points })
    }

    /// Removes the file, because the summary now has its runs.
    pub fn remove(self) {
        let _ = std::fs::remove_file(self.path);
    }

    /// Writes a line with a single call, because readers may read at any time.
    fn append(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(line).map_err(io::Error::other)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_data()
    }
}

/// Identifies the runs in a folder's results: differs after every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultVersion {
    changed: SystemTime,
    bytes: u64,
    /// Length of the log, if it exists.
    logged: Option<u64>,
}

impl ResultVersion {
    /// The folder's current version.
    ///
    /// # Errors
    /// There is no summary, or it cannot be read.
    pub fn of(folder: &Path) -> io::Result<ResultVersion> {
        let logged = folder.join(FILE_NAME).metadata().ok();
        let about = folder.join(summary::FILE_NAME).metadata()?;
        Ok(ResultVersion {
            changed: about.modified()?,
            bytes: about.len(),
            logged: logged.as_ref().map(Metadata::len),
        })
    }
}

impl Summary {
    /// Reads the summary of a result, with the runs so far if the experiment hasn't ended, or was killed.
    ///
    /// # Errors
    /// There is no summary, it has another format, or a file is damaged; the error names the file.
    pub fn read(folder: &Path) -> Result<Summary, SummaryError> {
        // Read the log first. The log is removed once the summary has all runs, so if the summary were read first,
        // the runs could be missing from both.
        let log = read_log(folder)?;
        let mut summary = Summary::read_file(folder)?;
        if let Some(log) = log.filter(|_| !summary.complete) {
            add_logged(&mut summary, &log).map_err(|kind| SummaryError {
                path: folder.join(FILE_NAME),
                kind,
            })?;
        }
        Ok(summary)
    }
}

/// The log's text; `None` if the file doesn't exist.
fn read_log(folder: &Path) -> Result<Option<Vec<u8>>, SummaryError> {
    let path = folder.join(FILE_NAME);
    match std::fs::read(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SummaryError {
            path,
            kind: SummaryMistake::Io(error),
        }),
    }
}

/// Adds the log's runs, except those that the summary has, and estimates the figures of all points.
fn add_logged(summary: &mut Summary, log: &[u8]) -> Result<(), SummaryMistake> {
    let complete = log.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let mut lines = log[..complete].split(|byte| *byte == b'\n').enumerate();
    let last = log[..complete]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count();
    let damaged = |number: usize| {
        move |source| SummaryMistake::LoggedRun {
            line: number + 1,
            source,
        }
    };
    let Some((_, head)) = lines.next().filter(|(_, head)| !head.is_empty()) else {
        return Ok(());
    };
    let head: Head = serde_json::from_slice(head).map_err(damaged(0))?;
    let mut is_changed = false;
    for (number, line) in lines {
        let run: LoggedRun = match serde_json::from_slice(line) {
            Ok(run) => run,
            // After a power loss, the end of the line may be on disk without its beginning.
            Err(_) if number == last && line.contains(&0) => break,
            Err(error) => return Err(damaged(number)(error)),
        };
        for LoggedPoint { index, point } in run.points {
            let known = summary
                .points
                .get_mut(index)
                .ok_or(SummaryMistake::LoggedPoint {
                    line: number + 1,
                    index,
                })?;
            is_changed |= add_run(known, point);
        }
    }
    if is_changed {
        estimate(&mut summary.points, &summary.experiment, head.precision);
    }
    Ok(())
}

/// Adds a logged run to its point, unless the point already has it. Returns whether it was added.
fn add_run(known: &mut PointSummary, logged: PointSummary) -> bool {
    let has = |order| known.runs.iter().any(|run| run.order == order);
    if logged.runs.iter().all(|run| has(run.order)) {
        return false;
    }
    let before = std::mem::replace(known, logged).runs;
    known.runs.splice(0..0, before);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpKind;
    use crate::summary::RunSummary;
    use crate::summary::tests::{empty, op, point, run};

    /// The `order`th run of an experiment; `order` determines its rate.
    fn made(order: u32) -> RunSummary {
        let completed = u64::from(1000 + order % 3);
        RunSummary {
            order,
            ..run(vec![op(OpKind::Read, completed, 1.0)])
        }
    }

    /// An experiment of two points that was stopped after `runs` runs, which are in its log and in the returned value.
    fn stopped(folder: &Path, runs: u32) -> Summary {
        let mut summary = Summary {
            complete: false,
            points: vec![point("a", Vec::new()), point("b", Vec::new())],
            ..empty()
        };
        let mut log = RunLog::create(folder, Some(0.01)).unwrap();
        summary.write(folder).unwrap();
        for order in 0..runs {
            let index = order as usize % 2;
            let point = &mut summary.points[index];
            point.runs.push(made(order));
            point.notes = vec![format!("after run {order}")];
            log.add(index..index + 1, &mut summary.points).unwrap();
        }
        estimate(&mut summary.points, &summary.experiment, Some(0.01));
        summary
    }

    #[test]
    fn an_unfinished_result_has_every_logged_run_and_its_estimates() {
        for runs in [0, 1, 2, 7] {
            let folder = tempfile::tempdir().unwrap();
            let expected = match runs {
                // Without a run, nothing is estimated.
                0 => {
                    stopped(folder.path(), 0);
                    Summary::read_file(folder.path()).unwrap()
                }
                runs => stopped(folder.path(), runs),
            };
            assert_eq!(Summary::read(folder.path()).unwrap(), expected);
            assert!(runs < 7 || expected.points[0].precision.unwrap().half_width.is_some());
        }
    }

    /// However much of the last line was written, exactly the runs before it are read.
    #[test]
    fn a_torn_last_line_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        let before = {
            let elsewhere = tempfile::tempdir().unwrap();
            stopped(elsewhere.path(), 4)
        };
        stopped(folder.path(), 5);
        let whole = std::fs::read(&path).unwrap();
        let last = whole[..whole.len() - 1]
            .iter()
            .rposition(|byte| *byte == b'\n')
            .unwrap()
            + 1;
        for end in last..whole.len() {
            std::fs::write(&path, &whole[..end]).unwrap();
            assert_eq!(
                Summary::read(folder.path()).unwrap(),
                before,
                "cut at {end}"
            );
        }
        // After a power loss, the line's blocks may have been allocated but not written.
        let zeros = [&whole[..last], &vec![0; whole.len() - last]].concat();
        std::fs::write(&path, zeros).unwrap();
        assert_eq!(Summary::read(folder.path()).unwrap(), before);
        // Only the second of two blocks was written.
        let middle = last.midpoint(whole.len());
        let second = [&whole[..last], &vec![0; middle - last], &whole[middle..]].concat();
        std::fs::write(&path, second).unwrap();
        assert_eq!(Summary::read(folder.path()).unwrap(), before);
        for end in 0..last.min(40) {
            std::fs::write(&path, &whole[..end]).unwrap();
            let read = Summary::read(folder.path()).unwrap();
            assert!(read.points.iter().all(|point| point.runs.is_empty()));
        }
    }

    /// A program that ended between writing the summary and removing the log leaves both; a version of Brunt without
    /// a log left only the summary.
    #[test]
    fn runs_that_the_summary_has_are_not_added_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut summary = stopped(folder.path(), 5);
        summary.trouble = Some("interrupted".into());
        summary.write(folder.path()).unwrap();
        assert_eq!(Summary::read(folder.path()).unwrap(), summary);
        std::fs::remove_file(folder.path().join(FILE_NAME)).unwrap();
        assert_eq!(Summary::read(folder.path()).unwrap(), summary);
    }

    #[test]
    fn a_damaged_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        stopped(folder.path(), 3);
        let text = std::fs::read_to_string(&path).unwrap();
        let check = |text: String, expected: &str| {
            std::fs::write(&path, text).unwrap();
            let error = Summary::read(folder.path()).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert!(
                error.advice().contains("delete line 3"),
                "{}",
                error.advice()
            );
        };
        check(
            text.replacen("\"index\":1", "index", 1),
            "runs.jsonl: line 3: not a run",
        );
        check(
            text.replacen("\"index\":1", "\"index\":2", 1),
            "line 3: a run of point 2, which summary.json does not have",
        );
    }

    #[test]
    fn every_run_is_another_version() {
        let folder = tempfile::tempdir().unwrap();
        assert!(ResultVersion::of(folder.path()).is_err());
        let mut summary = stopped(folder.path(), 2);
        let before = ResultVersion::of(folder.path()).unwrap();
        assert_eq!(ResultVersion::of(folder.path()).unwrap(), before);
        let mut log = RunLog {
            file: File::options()
                .append(true)
                .open(folder.path().join(FILE_NAME))
                .unwrap(),
            path: folder.path().join(FILE_NAME),
        };
        log.add(0..1, &mut summary.points).unwrap();
        assert_ne!(ResultVersion::of(folder.path()).unwrap(), before);
    }

    /// A line doesn't grow with the number of runs before it.
    #[test]
    fn a_line_has_one_run() {
        let folder = tempfile::tempdir().unwrap();
        stopped(folder.path(), 200);
        let text = std::fs::read_to_string(folder.path().join(FILE_NAME)).unwrap();
        let bytes: Vec<usize> = text.lines().skip(1).map(str::len).collect();
        assert_eq!(bytes.len(), 200);
        assert!(bytes[199] < bytes[0] + 100, "{bytes:?}");
    }
}
