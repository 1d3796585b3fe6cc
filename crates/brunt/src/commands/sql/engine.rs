//! Runs an engine as a separate process: it reads a script and writes a Parquet file; if it doesn't, its exit status
//! says why. The rule: the user can fix anything that is missing or wrong, so it is reported with advice and exit
//! status 2.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use brunt_lake::LakeError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};
use serde_json::Value;

use super::scratch::SqlScratch;
use crate::bound;
use crate::cli::{Failure, Output};

/// An engine that can answer queries.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlEngine {
    /// DuckDB, on this machine.
    Duckdb,
    /// Spark or Sail, at an address, through Spark Connect.
    Spark,
}

impl SqlEngine {
    /// The engine's name, also used in requests to the Python script.
    pub fn name(self) -> &'static str {
        match self {
            SqlEngine::Duckdb => "duckdb",
            SqlEngine::Spark => "spark",
        }
    }
}

impl fmt::Display for SqlEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why the query failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The program or module doesn't exist.
    #[error("{engine} is not installed: {tried}")]
    Missing {
        /// The engine.
        engine: SqlEngine,
        /// What was tried to find it, for the message.
        tried: String,
    },
    /// Nothing answers at the address.
    #[error("no Spark Connect server responds: {0}")]
    Unreachable(String),
    /// The engine rejected the statement, or could not read a part.
    #[error("{engine} rejected the statement: {message}")]
    Refused {
        /// The engine.
        engine: SqlEngine,
        /// The engine's message.
        message: String,
    },
    /// The engine started but ended in some other way.
    #[error("{engine} exited without an answer ({status}): {message}")]
    Ended {
        /// The engine.
        engine: SqlEngine,
        /// How the engine ended.
        status: String,
        /// The engine's message.
        message: String,
    },
    /// The first line of output isn't the engine's version.
    #[error("{engine} printed something other than its version: {source}")]
    NoVersion {
        /// The engine.
        engine: SqlEngine,
        /// The error of the JSON parser.
        source: serde_json::Error,
    },
    /// The file written by the engine can't be read.
    #[error("cannot read {engine}'s answer: {source}")]
    Unreadable {
        /// The engine.
        engine: SqlEngine,
        /// The reason.
        source: LakeError,
    },
    /// The engine's process could not be started.
    #[error("cannot run {program}: {message}")]
    NotStarted {
        /// The program.
        program: String,
        /// The system's error message.
        message: String,
    },
    /// Waiting for the engine, or writing its script, failed.
    #[error("{path}: {source}")]
    Io {
        /// The program or file concerned.
        path: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The user interrupted before the end.
    #[error("interrupted before the whole answer was printed")]
    Interrupted,
}

impl EngineError {
    /// Converts the error to a failure with advice.
    pub fn into_failure(self) -> Failure {
        let advice = match &self {
            EngineError::Missing {
                engine: SqlEngine::Duckdb,
                ..
            } => {
                "install it with `pip install duckdb` or from duckdb.org, or set BRUNT_DUCKDB or BRUNT_PYTHON"
            }
            EngineError::Missing {
                engine: SqlEngine::Spark,
                ..
            } => {
                "install the client with `pip install pyspark-client`, in the server's version, or \
                 set BRUNT_PYTHON to a Python that has it"
            }
            EngineError::Unreachable(_) => {
                "start one, for example `sail spark server --port 50051`, and give its address with --at"
            }
            EngineError::Refused { .. } => {
                "docs/trace.md and docs/results.md describe tables and columns"
            }
            EngineError::NotStarted { .. } => "check that it is executable",
            EngineError::Ended { .. }
            | EngineError::NoVersion { .. }
            | EngineError::Unreadable { .. } => {
                return Failure::failed(&self)
                    .advise("try a smaller query to see whether memory or time ran out");
            }
            EngineError::Io { .. } | EngineError::Interrupted => return Failure::failed(&self),
        };
        Failure::usage(&self).advise(advice)
    }
}

/// An engine's answer.
#[derive(Debug)]
pub struct Answer {
    /// The engine that answered.
    pub engine: SqlEngine,
    /// The engine's version.
    pub version: String,
    /// The Parquet file with the rows, in the engine's order; doesn't exist if a plan was requested.
    pub rows: PathBuf,
    /// The lines of output after the version: the plan, if requested.
    pub printed: Vec<Value>,
    /// Bytes read by the engine's process; `None` if the system doesn't report them.
    pub bytes_read: Option<u64>,
}

impl Answer {
    /// Creates an answer from the engine's output, whose first line is the version as JSON, and from the file with
    /// the rows.
    pub fn of(engine: SqlEngine, printed: &[u8], rows: &Path) -> Result<Answer, EngineError> {
        let lines = serde_json::Deserializer::from_slice(printed).into_iter::<Value>();
        let mut lines = lines
            .collect::<Result<Vec<_>, _>>()
            .map_err(|source| EngineError::NoVersion { engine, source })?;
        let version = match lines.is_empty() {
            true => Value::Null,
            false => lines.remove(0),
        };
        let version = version["version"].as_str().unwrap_or_default();
        Ok(Answer {
            engine,
            version: version.trim_start_matches('v').to_string(),
            rows: rows.to_path_buf(),
            printed: lines,
            bytes_read: None,
        })
    }

    /// The engine and its version.
    pub fn engine_name(&self) -> String {
        format!("{} {}", self.engine, self.version)
    }

    /// A note on the limitations of this engine version.
    pub fn note(&self) -> Option<String> {
        let cuts =
            self.engine == SqlEngine::Duckdb && !super::duckdb::reads_nanoseconds(&self.version);
        cuts.then(|| {
            format!(
                "{} reads times in microseconds; version 2 reads them in nanoseconds",
                self.engine_name()
            )
        })
    }
}

/// What a query needs, independent of the engine.
pub struct EngineCall<'a> {
    /// The file to which the answer is written.
    pub rows: PathBuf,
    /// A folder for temporary files.
    pub scratch: &'a SqlScratch,
    /// Checks whether the user has interrupted.
    pub output: &'a Output,
}

/// The outcome of a process.
pub struct Ended {
    /// The exit status; `None` after a signal.
    pub status: Option<i32>,
    /// The standard output.
    pub printed: Vec<u8>,
    /// The standard error, without surrounding white space.
    pub message: String,
    /// Bytes that the process read, from files and other sources; `None` if the system doesn't report them.
    pub bytes_read: Option<u64>,
}

/// Runs a program with this input until it ends or the user interrupts; `None` if the program doesn't exist. The
/// program also ends when this process does.
pub fn run(
    program: &OsStr,
    arguments: &[&OsStr],
    input: &str,
    output: &Output,
) -> Result<Option<Ended>, EngineError> {
    let io = |source| EngineError::Io {
        path: program.to_string_lossy().into_owned(),
        source,
    };
    let mut child = bound::command(program)
        .args(arguments)
        // Print calendar times as stored, and prevent library warnings from hiding an error.
        .env("TZ", "UTC")
        .env("PYTHONWARNINGS", "ignore")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(io)?;
    let mut stdin = child.stdin.take().expect("piped");
    let mut stdout = child.stdout.take().expect("piped");
    let mut stderr = child.stderr.take().expect("piped");
    let (mut printed, mut message) = (Vec::new(), Vec::new());
    let waited = std::thread::scope(|scope| {
        // Ignore errors: a program that ends early reports the reason itself.
        scope.spawn(move || stdin.write_all(input.as_bytes()));
        let read = scope.spawn(|| stdout.read_to_end(&mut printed));
        let errors = scope.spawn(|| stderr.read_to_end(&mut message));
        let waited = wait(&child, output);
        if !matches!(waited, Ok(true)) {
            end(&child);
        }
        let read = read.join().expect("the reader does not panic");
        let errors = errors.join().expect("the reader does not panic");
        read.and(errors).and(waited)
    });
    let bytes_read = bytes_read(&child);
    let status = child.wait().map_err(io)?.code();
    if !waited.map_err(io)? {
        return Err(EngineError::Interrupted);
    }
    let message = String::from_utf8_lossy(&message).trim().to_string();
    match status.and_then(|status| u8::try_from(status).ok()) {
        Some(bound::NOT_FOUND) => Ok(None),
        Some(bound::NOT_STARTED) => Err(EngineError::NotStarted {
            program: program.to_string_lossy().into_owned(),
            message,
        }),
        _ => Ok(Some(Ended {
            status,
            printed,
            message,
            bytes_read,
        })),
    }
}

/// Waits until a child has ended, without reaping it; `false` if the user interrupts first.
fn wait(child: &Child, output: &Output) -> io::Result<bool> {
    let descriptor = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    // A signal interrupts the poll unless another thread handles it.
    let look = Timespec {
        tv_sec: 0,
        tv_nsec: 100_000_000,
    };
    while !output.is_interrupted() {
        match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&look)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// Ends a child and its own children: with SIGTERM, on which the Spark script makes the server cancel the query, and
/// with SIGKILL if that takes too long.
fn end(child: &Child) {
    const GRACE: Duration = Duration::from_secs(2);
    let group = Pid::from_child(child);
    let _ = kill_process_group(group, Signal::TERM);
    let begun = Instant::now();
    let is_over = || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        !matches!(waitid(WaitId::Pid(group), options), Ok(None))
    };
    while begun.elapsed() < GRACE && !is_over() {
        std::thread::sleep(Duration::from_millis(5));
    }
    // Do this even if the child has ended: its own children may still run.
    let _ = kill_process_group(group, Signal::KILL);
}

/// Bytes that an exited child read with system calls; the kernel keeps the count until the child is reaped.
fn bytes_read(child: &Child) -> Option<u64> {
    waitid(
        WaitId::Pid(Pid::from_child(child)),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    )
    .ok()?;
    let counters = std::fs::read_to_string(format!("/proc/{}/io", child.id())).ok()?;
    counters
        .lines()
        .find_map(|line| line.strip_prefix("rchar: "))?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first line is the version; a truncated line is an error.
    #[test]
    fn the_version_is_printed_first() {
        let of = |printed: &[u8]| Answer::of(SqlEngine::Duckdb, printed, Path::new("rows"));
        let answer = of(b"{\"version\":\"v1.5.6\"}\n{\"plan\":1}\n").unwrap();
        assert_eq!(
            (answer.engine_name().as_str(), answer.printed.len()),
            ("duckdb 1.5.6", 1)
        );
        assert!(answer.note().is_some());
        let answer = of(b"{\"version\":\"v2.0.0\"}\n").unwrap();
        assert!(answer.note().is_none() && answer.printed.is_empty());
        assert!(matches!(
            of(b"{\"version\":\"v2.0.0\"}\n{\"a\":"),
            Err(EngineError::NoVersion { .. })
        ));
    }
}
