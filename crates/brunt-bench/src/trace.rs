//! How fast are block traces read? Measures each format in turn: a binary trace compared with `cat | wc -c` on the
//! same file, a text trace with the fastest installed awk and, if available, DuckDB on one thread. Then reads long
//! traces through a pipe, to watch memory usage.
//!
//! The rule: every contestant reads all rows of the same file, and sums the values so that it has to parse them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use brunt_core::Size;
use brunt_result::statistics::{Ratio, interleaved};
use brunt_trace::format_named;
use brunt_trace::{ReadOptions, Summarizer, TraceReader};
use serde_json::{Value, json};

use super::sample::{median, memory_now, memory_peak};
use crate::peers::have;
use crate::scratch::Scratch;
use crate::trace_file::VSCSI;
use crate::trace_subject::{TextShape, TraceSubject, formats_named, options, write_to};
use crate::{BenchError, BenchResult, Console};

/// Goals relative to `cat`, awk and DuckDB.
const CAT_SHARE_MIN: f64 = 0.5;
const AWK_TIMES_MIN: f64 = 3.0;
const DUCKDB_TIMES_MIN: f64 = 1.0;
/// awk programs; the fastest one on a file is the one to beat. BusyBox awk is many times slower than these.
const AWKS: [&str; 3] = ["mawk", "gawk", "original-awk"];
/// Maximum memory growth between the first hundredth of a long trace and its end.
const GROWTH_BYTES_MAX: u64 = 8 << 20;

/// Reading block traces, compared with cat, awk and DuckDB
#[derive(Clone, Debug)]
pub struct TraceBench {
    /// Rows of each trace
    pub rows: u64,
    /// Runs per program; with fewer than 4, the ratios' confidence intervals are wide
    pub rounds: u32,
    /// Folder for the traces: one at a time, up to 150 bytes per row, removed afterwards
    pub dir: PathBuf,
    /// Python interpreter for DuckDB, used if it has the duckdb module
    pub python: String,
    /// Formats to measure; all if empty
    pub formats: Vec<String>,
    /// Rows of the long traces, binary and text; 0 for none
    pub long_rows: u64,
}

/// A program that reads a trace.
struct Contestant {
    name: &'static str,
    /// The command; `None` for our own reader.
    command: Option<Vec<String>>,
    /// Our reader has to be at least this many times as fast.
    goal: f64,
    /// Seconds that the command takes without a trace.
    idle: f64,
}

impl Contestant {
    fn new(name: &'static str, goal: f64, command: &[&str]) -> Contestant {
        let command = Some(command.iter().map(|word| word.to_string()).collect());
        Contestant {
            name,
            command,
            goal,
            idle: 0.0,
        }
    }

    fn is_awk(&self) -> bool {
        AWKS.contains(&self.name)
    }

    /// The command as typed in a shell.
    fn command_line(&self) -> Option<String> {
        let quoted = |word: &String| match word.contains([' ', '"', '|']) {
            true => format!("'{}'", word.replace('\'', "'\\''")),
            false => word.clone(),
        };
        let words: Vec<String> = self.command.as_ref()?.iter().map(quoted).collect();
        Some(format!("LC_ALL=C {}", words.join(" ")))
    }
}

/// Whether a goal was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GoalVerdict {
    /// The whole interval of the ratio is at or above the goal.
    Met,
    /// The interval contains the goal.
    Unclear,
    /// The whole interval is below the goal.
    Missed,
}

impl GoalVerdict {
    fn of(ratio: &Ratio, goal: f64) -> GoalVerdict {
        match () {
            () if ratio.low >= goal => GoalVerdict::Met,
            () if ratio.high < goal => GoalVerdict::Missed,
            () => GoalVerdict::Unclear,
        }
    }

    fn name(self) -> &'static str {
        match self {
            GoalVerdict::Met => "met",
            GoalVerdict::Unclear => "unclear",
            GoalVerdict::Missed => "missed",
        }
    }
}

/// The result for a format's goal against one contestant.
struct Judged {
    format: &'static str,
    against: &'static str,
    verdict: GoalVerdict,
}

impl TraceBench {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// The traces cannot be generated or read, or a contestant fails.
    pub fn run(self, output: &dyn Console) -> BenchResult {
        let formats = formats_named(&self.formats)?;
        let duckdb = self.duckdb();
        if duckdb.is_none() {
            output.note(format_args!(
                "{} has no duckdb module: DuckDB is not measured (install one with \
                 tools/duckdb.sh --prepare)",
                self.python
            ));
        }
        let (mut answers, mut judged) = (Vec::new(), Vec::new());
        for format in formats {
            let scratch = Scratch::new(Some(&self.dir), "trace")?;
            let subject = TraceSubject::make(format, self.rows, &scratch)?;
            let contestants = self.contestants(&subject, duckdb);
            answers.push(self.measure(output, &subject, &contestants, &mut judged)?);
        }
        summarize(output, &judged);
        let mut long = Vec::new();
        if self.long_rows > 0 {
            for format in [VSCSI, "msr"] {
                long.push(self.long(output, format)?);
            }
        }
        output.object(
            &json!({ "rows": self.rows, "rounds": self.rounds, "formats": answers, "long": long }),
        );
        Ok(())
    }

    /// The startup time of Python and DuckDB in seconds, which is subtracted from their times; `None` if they are not
    /// installed.
    fn duckdb(&self) -> Option<f64> {
        let command = [
            self.python.clone(),
            "-c".into(),
            "import duckdb; duckdb.connect()".into(),
        ];
        run("duckdb", &command).ok()?;
        let began = Instant::now();
        run("duckdb", &command).ok()?;
        Some(began.elapsed().as_secs_f64())
    }

    fn contestants(&self, subject: &TraceSubject, duckdb: Option<f64>) -> Vec<Contestant> {
        let path = subject.path.display().to_string();
        let mut all = vec![Contestant {
            name: "brunt",
            command: None,
            goal: 1.0,
            idle: 0.0,
        }];
        let Some(shape) = TextShape::of(subject.format.name) else {
            let cat = format!("cat '{path}' | wc -c");
            all.push(Contestant::new(
                "cat | wc -c",
                CAT_SHARE_MIN,
                &["sh", "-c", &cat],
            ));
            return all;
        };
        let awks = AWKS.into_iter().filter(|awk| have(awk));
        all.extend(
            awks.map(|awk| Contestant::new(awk, AWK_TIMES_MIN, &[awk, &shape.awk(), &path])),
        );
        if let (Some(idle), Some(query)) = (duckdb, shape.duckdb(&subject.path)) {
            let text = format!(
                "import duckdb; c = duckdb.connect(); c.execute('set threads = 1'); c.execute(\"{query}\").fetchall()"
            );
            let duckdb = Contestant::new("duckdb", DUCKDB_TIMES_MIN, &[&self.python, "-c", &text]);
            all.push(Contestant { idle, ..duckdb });
        }
        all
    }

    /// All contestants take turns to read the trace; returns the seconds that each took. A peer that fails is
    /// omitted, and the other figures are still reported.
    fn turns<'a>(
        &self,
        output: &dyn Console,
        subject: &TraceSubject,
        contestants: &'a [Contestant],
    ) -> Result<(Vec<&'a Contestant>, Vec<Vec<f64>>), BenchError> {
        let mut seconds = vec![Some(Vec::new()); contestants.len()];
        for (index, _) in interleaved(contestants.len(), self.rounds as usize, 1) {
            if output.is_interrupted() {
                return Err(BenchError::interrupted("interrupted"));
            }
            let (contestant, Some(took)) = (&contestants[index], &mut seconds[index]) else {
                continue;
            };
            let began = Instant::now();
            match &contestant.command {
                None => read(subject)?,
                Some(command) => {
                    if let Err(error) = run(contestant.name, command) {
                        output.note(format_args!("{}: left out, {error}", subject.format.name));
                        seconds[index] = None;
                        continue;
                    }
                }
            }
            took.push((began.elapsed().as_secs_f64() - contestant.idle).max(1e-6));
        }
        let there = contestants.iter().zip(seconds);
        Ok(there
            .filter_map(|(contestant, took)| Some((contestant, took?)))
            .unzip())
    }

    fn measure(
        &self,
        output: &dyn Console,
        subject: &TraceSubject,
        contestants: &[Contestant],
        judged: &mut Vec<Judged>,
    ) -> Result<Value, BenchError> {
        let name = subject.format.name;
        let (contestants, seconds) = self.turns(output, subject, contestants)?;
        // Of several awks, the fastest is the one to beat.
        let awks = contestants
            .iter()
            .zip(&seconds)
            .filter(|(contestant, _)| contestant.is_awk());
        let fastest_awk = awks.min_by(|(_, a), (_, b)| median(a).total_cmp(&median(b)));
        let to_beat = fastest_awk.map(|(awk, _)| awk.name);
        let mut answers = Vec::new();
        for (contestant, took) in contestants.iter().zip(&seconds) {
            let middle = median(took);
            let (rows, rate) = (
                subject.requests as f64 / middle / 1e6,
                subject.bytes as f64 / middle / 1e6,
            );
            // Our reader's speed as a multiple of this contestant's.
            let ratio = contestant
                .command
                .as_ref()
                .and_then(|_| Ratio::of(&seconds[0], took, 1));
            let counts = !contestant.is_awk() || to_beat == Some(contestant.name);
            let verdict = ratio
                .as_ref()
                .map(|ratio| GoalVerdict::of(ratio, contestant.goal));
            let verdict = verdict.filter(|_| counts);
            judged.extend(verdict.map(|verdict| Judged {
                format: name,
                against: contestant.name,
                verdict,
            }));
            let shown = match &ratio {
                Some(ratio) => comparison(ratio, contestant, verdict),
                None if subject.repeated => "; an example's rows, repeated".into(),
                None => String::new(),
            };
            output.line(format_args!(
                "{name:<13} {:<12} {rows:8.2} M rows/s {rate:9.1} MB/s{shown}",
                contestant.name
            ));
            let command = contestant.command_line();
            if let Some(command) = &command {
                output.line(format_args!("{:13} {command}", ""));
            }
            let ratio = ratio.map(|ratio| {
                json!({
                    "ratio": ratio.ratio, "low": ratio.low, "high": ratio.high, "goal": contestant.goal,
                    "verdict": verdict.map(GoalVerdict::name),
                })
            });
            answers.push(json!({
                "name": contestant.name, "rows_per_s": rows * 1e6, "bytes_per_s": rate * 1e6,
                "command": command, "brunt_is_faster_by": ratio,
            }));
        }
        Ok(json!({ "format": name, "repeated": subject.repeated, "contestants": answers }))
    }

    /// Reads a long trace, generated on the fly. Measures how fast `brunt trace info`'s figures are computed, and how
    /// much memory that takes.
    fn long(&self, output: &dyn Console, format: &'static str) -> Result<Value, BenchError> {
        let rows = self.long_rows;
        let (from, to) = std::io::pipe().map_err(BenchError::failed)?;
        let maker = std::thread::spawn(move || write_to(Box::new(to), format, rows));
        let options = ReadOptions {
            format: format_named(format),
            strict: true,
            ..ReadOptions::default()
        };
        let reader = TraceReader::from_reader_with("a pipe".into(), Box::new(from), &options);
        let (mut reader, mut summarizer) =
            (reader.map_err(BenchError::failed)?, Summarizer::default());
        let began = Instant::now();
        let (mut early, mut peak) = (None, 0);
        while let Some(requests) = reader.next_requests().map_err(BenchError::failed)? {
            summarizer.add(requests);
            if output.is_interrupted() {
                return Err(BenchError::interrupted("interrupted"));
            }
            let read = reader.ledger().requests;
            if early.is_none() && read >= rows / 100 {
                early = memory_now();
            }
            peak = peak.max(memory_now().unwrap_or(0));
        }
        maker
            .join()
            .map_err(|_| BenchError::failed("the thread that generates the trace panicked"))??;
        let seconds = began.elapsed().as_secs_f64();
        let info = summarizer.finish(&reader);
        assert_eq!(info.ledger.requests, rows, "all rows were read");
        let growth = early.map(|early| peak.saturating_sub(early));
        let grown = growth.map_or("-".to_string(), |bytes| Size(bytes).to_string());
        let met = if growth.is_some_and(|bytes| bytes <= GROWTH_BYTES_MAX) {
            ""
        } else {
            ", which exceeds the maximum"
        };
        output.line(format_args!(
            "{format:<13} {} M rows through a pipe, all figures of `trace info`: {:.2} M rows/s; \
             resident memory grew by {grown} after the first hundredth{met}; peak {}",
            rows / 1_000_000,
            rows as f64 / seconds / 1e6,
            Size(peak)
        ));
        Ok(json!({
            "format": format, "rows": rows, "seconds": seconds, "memory_growth_bytes": growth,
            "memory_peak_bytes": memory_peak(),
        }))
    }
}

/// Prints how many goals were met, and which were missed.
fn summarize(output: &dyn Console, judged: &[Judged]) {
    let of = |verdict: GoalVerdict| -> Vec<String> {
        let these = judged.iter().filter(|one| one.verdict == verdict);
        these
            .map(|one| format!("{} against {}", one.format, one.against))
            .collect()
    };
    let met = of(GoalVerdict::Met).len();
    output.line(format_args!("goals met: {met} of {}", judged.len()));
    for verdict in [GoalVerdict::Missed, GoalVerdict::Unclear] {
        let these = of(verdict);
        if !these.is_empty() {
            output.line(format_args!("  {}: {}", verdict.name(), these.join(", ")));
        }
    }
}

fn read(subject: &TraceSubject) -> BenchResult {
    let options = ReadOptions {
        format: Some(subject.format),
        strict: true,
        options: options(),
        ..ReadOptions::default()
    };
    let mut reader =
        TraceReader::open_with(Path::new(&subject.path), &options).map_err(BenchError::failed)?;
    let (mut rows, mut sums) = (0u64, [0u64; 3]);
    while let Some(requests) = reader.next_requests().map_err(BenchError::failed)? {
        rows += requests.len() as u64;
        for request in requests {
            sums[0] = sums[0].wrapping_add(request.len_bytes.into());
            sums[1] = sums[1].wrapping_add(request.offset_bytes);
            sums[2] = sums[2].wrapping_add(request.time_ns);
        }
    }
    std::hint::black_box(sums);
    assert_eq!(
        rows, subject.requests,
        "all rows of {} were read",
        subject.format.name
    );
    Ok(())
}

fn run(name: &str, command: &[String]) -> BenchResult {
    let answer = Command::new(&command[0])
        .args(&command[1..])
        .env("LC_ALL", "C")
        .stdout(Stdio::null())
        .output();
    let answer =
        answer.map_err(|error| BenchError::failed(format!("cannot run {name}: {error}")))?;
    if answer.status.success() {
        return Ok(());
    }
    Err(BenchError::failed(format!(
        "{name} failed: {}",
        String::from_utf8_lossy(&answer.stderr)
    )))
}

/// How many times as fast our reader is as this contestant, and whether that reaches the goal.
fn comparison(ratio: &Ratio, contestant: &Contestant, verdict: Option<GoalVerdict>) -> String {
    let goal = verdict.map_or("; another awk is faster".to_string(), |verdict| {
        format!(", goal {}: {}", contestant.goal, verdict.name())
    });
    let Ratio { ratio, low, high } = ratio;
    format!("; brunt is {ratio:.2} ({low:.2} to {high:.2}) times as fast{goal}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_judged_by_the_interval() {
        let check = |low: f64, high: f64, expected| {
            assert_eq!(
                GoalVerdict::of(
                    &Ratio {
                        ratio: 3.1,
                        low,
                        high
                    },
                    3.0
                ),
                expected,
                "{low} to {high}"
            );
        };
        check(3.0, 3.2, GoalVerdict::Met);
        check(2.9, 3.2, GoalVerdict::Unclear);
        check(2.5, 2.99, GoalVerdict::Missed);
    }

    #[test]
    fn a_command_can_be_typed_again() {
        let awk = Contestant::new(
            "mawk",
            3.0,
            &["mawk", "{ print \"it's\" }", "/dev/shm/x.csv"],
        );
        let expected = "LC_ALL=C mawk '{ print \"it'\\''s\" }' /dev/shm/x.csv";
        assert_eq!(
            (awk.command_line().as_deref(), awk.is_awk()),
            (Some(expected), true)
        );
    }
}
