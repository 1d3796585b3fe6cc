//! How fast are block traces read? A binary trace against `cat | wc -c` of the same file, a text trace against awk and,
//! where it is installed, DuckDB on one thread. Traces are made for the run.
//!
//! The one rule: every contestant reads all rows of the same file, and sums what it reads so that it has to.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use brunt_core::random::Random;
use brunt_result::statistics::{Ratio, interleaved};
use brunt_trace::{BlockRequest, TraceOp, TraceReader, format_named};
use serde_json::{Value, json};

use super::sample::median;
use crate::scratch::Scratch;
use crate::trace_file::{VSCSI, write_trace};
use crate::{BenchError, BenchResult, Console};

/// Reading of block traces against cat, awk and DuckDB
#[derive(Clone, Debug)]
pub struct TraceBench {
    /// Rows of each trace
    pub rows: u64,
    /// Runs of each contestant; under 4 the ratios' intervals are wide
    pub rounds: u32,
    /// Folder for the traces, 90 bytes a row; made and removed
    pub dir: PathBuf,
    /// A Python that may have DuckDB
    pub python: String,
}

/// A program that reads a trace.
struct Contestant {
    name: &'static str,
    /// The command; none for us.
    command: Option<Vec<String>>,
}

/// Reads in awk what we read: kinds, and sums of lengths and of times between rows.
const AWK: &str = "BEGIN { FS = \",\" } { t = $1; if ($4 == \"Read\") r += $6; else w += $6; o += $5; s += $7 } \
                   END { print NR, r, w, o, s }";

impl TraceBench {
    /// Measures and prints.
    ///
    /// # Errors
    /// The traces cannot be made or read, or a contestant fails.
    pub fn run(self, output: &dyn Console) -> BenchResult {
        let scratch = Scratch::new(Some(&self.dir), "trace")?;
        let (binary, text) = (scratch.join("trace.vscsi"), scratch.join("trace.csv"));
        write_trace(&binary, VSCSI, requests(self.rows))?;
        write_trace(&text, "msr", requests(self.rows))?;
        let path = |path: &Path| path.display().to_string();
        let program = |program: &str, arguments: &[&str]| {
            let arguments = arguments.iter().map(|argument| argument.to_string());
            Some(std::iter::once(program.to_string()).chain(arguments).collect())
        };
        let cat = format!("cat '{}' | wc -c", path(&binary));
        let mut of_text = vec![
            Contestant { name: "brunt", command: None },
            Contestant { name: "awk", command: program("awk", &[AWK, &path(&text)]) },
        ];
        let start = "import duckdb; c = duckdb.connect(); c.execute('set threads = 1')";
        let idle = program(&self.python, &["-c", start]).expect("a command");
        let has_duckdb = run("duckdb", &idle).is_ok();
        if has_duckdb {
            let query = format!(
                "{start}; c.execute(\"select count(*), sum(column5), sum(column4), min(column0), sum(column6), \
                 count(*) filter (column3 = 'Read') from read_csv('{}', header = false)\").fetchall()",
                path(&text)
            );
            of_text.push(Contestant { name: "duckdb", command: program(&self.python, &["-c", &query]) });
        } else {
            output.note(format_args!(
                "{} has no duckdb: not measured (tools/duckdb.sh --prepare gets one)",
                self.python
            ));
        }
        let of_binary = vec![
            Contestant { name: "brunt", command: None },
            Contestant { name: "cat | wc -c", command: program("sh", &["-c", &cat]) },
        ];
        let binary = self.measure(output, VSCSI, &binary, &of_binary)?;
        let text = self.measure(output, "msr", &text, &of_text)?;
        output.object(&json!({ "rows": self.rows, "rounds": self.rounds, "binary": binary, "text": text }));
        Ok(())
    }

    fn measure(
        &self,
        output: &dyn Console,
        format: &'static str,
        path: &Path,
        contestants: &[Contestant],
    ) -> Result<Value, BenchError> {
        let mut seconds = vec![Vec::new(); contestants.len()];
        // What Python and DuckDB take to start is not theirs to answer for.
        let idle = if contestants.iter().any(|contestant| contestant.name == "duckdb") {
            let began = Instant::now();
            run("duckdb", &[self.python.clone(), "-c".into(), "import duckdb; duckdb.connect()".into()])?;
            began.elapsed().as_secs_f64()
        } else {
            0.0
        };
        for (index, _) in interleaved(contestants.len(), self.rounds as usize, 1) {
            if output.is_interrupted() {
                return Err(BenchError::failed("interrupted"));
            }
            let began = Instant::now();
            match &contestants[index].command {
                None => self.read(format, path)?,
                Some(command) => run(contestants[index].name, command)?,
            }
            let off = if contestants[index].name == "duckdb" { idle } else { 0.0 };
            seconds[index].push((began.elapsed().as_secs_f64() - off).max(1e-6));
        }
        let bytes = std::fs::metadata(path).map_err(BenchError::failed)?.len() as f64;
        let mut answers = Vec::new();
        for (contestant, took) in contestants.iter().zip(&seconds) {
            let (name, middle) = (contestant.name, median(took));
            let (rows, rate) = (self.rows as f64 / middle / 1e6, bytes / middle / 1e6);
            // How many times as fast as this one we are.
            let ratio = contestant.command.as_ref().and_then(|_| Ratio::of(&seconds[0], took, 1));
            let shown = ratio.map_or_else(String::new, |ratio| {
                format!("; brunt is {:.2} ({:.2} to {:.2}) times as fast", ratio.ratio, ratio.low, ratio.high)
            });
            output.line(format_args!("{format:<7} {name:<12} {rows:8.2} M rows/s {rate:9.1} MB/s{shown}"));
            let ratio =
                ratio.map(|ratio| json!({ "ratio": ratio.ratio, "low": ratio.low, "high": ratio.high }));
            answers.push(json!({ "name": name, "rows_per_s": rows * 1e6, "bytes_per_s": rate * 1e6, "brunt_is_faster_by": ratio }));
        }
        Ok(json!(answers))
    }

    fn read(&self, format: &str, path: &Path) -> BenchResult {
        let mut reader = TraceReader::open(path, format_named(format), true).map_err(BenchError::failed)?;
        let (mut rows, mut bytes) = (0u64, 0u64);
        while let Some(requests) = reader.next_requests().map_err(BenchError::failed)? {
            rows += requests.len() as u64;
            bytes += requests.iter().map(|request| u64::from(request.len_bytes)).sum::<u64>();
        }
        assert!(rows == self.rows && bytes >= rows * 512, "all rows were read");
        Ok(())
    }
}

/// Reads and writes of one device at random times and places.
fn requests(rows: u64) -> impl Iterator<Item = BlockRequest> {
    let (mut random, mut time_ns) = (Random::new(1), 0);
    (0..rows).map(move |_| {
        time_ns += random.below(2000) * 1000;
        let op = if random.chance(0.6) { TraceOp::Read } else { TraceOp::Write };
        let (offset, bytes) = (random.below(1 << 30) * 512, 512 * (1 + random.below(128)) as u32);
        let response_ns = Some(random.below(100_000) * 100);
        BlockRequest { response_ns, ..BlockRequest::new(time_ns, 0, op, offset, bytes) }
    })
}

fn run(name: &str, command: &[String]) -> BenchResult {
    let answer = Command::new(&command[0]).args(&command[1..]).stdout(Stdio::null()).output();
    let answer = answer.map_err(|error| BenchError::failed(format!("cannot run {name}: {error}")))?;
    if answer.status.success() {
        return Ok(());
    }
    Err(BenchError::failed(format!("{name} failed: {}", String::from_utf8_lossy(&answer.stderr))))
}
