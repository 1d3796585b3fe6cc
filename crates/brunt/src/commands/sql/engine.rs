//! An engine as another process: a script goes in, the answer is a Parquet file, and the exit status says why there is
//! none. The rule: whatever is missing or mistaken can be mended by the user, so it is exit status 2 with advice.

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

/// An engine that is asked.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlEngine {
    /// On this machine.
    Duckdb,
    /// At an address, by Spark Connect.
    Spark,
}

impl SqlEngine {
    /// What it is called, also to the script that asks it by its Python module.
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

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No such program or module.
    #[error("{engine} is not installed: {tried}")]
    Missing {
        /// Which engine.
        engine: SqlEngine,
        /// What was looked for.
        tried: String,
    },
    /// Nobody answers at the address.
    #[error("no Spark Connect server answers: {0}")]
    Unreachable(String),
    /// It did not like the statement, or could not read a part.
    #[error("{engine} refuses the statement: {message}")]
    Refused {
        /// Which engine.
        engine: SqlEngine,
        /// What it says.
        message: String,
    },
    /// It was started and ended in another way.
    #[error("{engine} ended without an answer ({status}): {message}")]
    Ended {
        /// Which engine.
        engine: SqlEngine,
        /// How it ended.
        status: String,
        /// What it says.
        message: String,
    },
    /// What it printed first is not its version.
    #[error("{engine} printed something other than its version: {source}")]
    NoVersion {
        /// Which engine.
        engine: SqlEngine,
        /// Where it is no JSON.
        source: serde_json::Error,
    },
    /// The file that it wrote cannot be read.
    #[error("the answer of {engine} cannot be read: {source}")]
    Unreadable {
        /// Which engine.
        engine: SqlEngine,
        /// Why.
        source: LakeError,
    },
    /// The system does not start it.
    #[error("{program} cannot be run: {message}")]
    NotStarted {
        /// The program.
        program: String,
        /// What the system says.
        message: String,
    },
    /// The system does not let us wait for it, or write the script for it.
    #[error("{path}: {source}")]
    Io {
        /// The program or file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The user did not want to wait for the rest.
    #[error("interrupted before the whole answer was printed")]
    Interrupted,
}

impl EngineError {
    /// With what to do about it.
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
                "install the client with `pip install pyspark-client`, in the server's version, or set BRUNT_PYTHON to \
                 the Python that has it"
            }
            EngineError::Unreachable(_) => {
                "start one, for example `sail spark server --port 50051`, and give its address with --at"
            }
            EngineError::Refused { .. } => {
                "docs/trace.md and docs/results.md describe tables and columns"
            }
            EngineError::NotStarted { .. } => "check that it may be executed",
            EngineError::Ended { .. }
            | EngineError::NoVersion { .. }
            | EngineError::Unreadable { .. } => {
                return Failure::failed(&self)
                    .advise("run it with a smaller question to see what it lacks");
            }
            EngineError::Io { .. } | EngineError::Interrupted => return Failure::failed(&self),
        };
        Failure::usage(&self).advise(advice)
    }
}

/// What an engine answered.
#[derive(Debug)]
pub struct Answer {
    /// Who answered.
    pub engine: SqlEngine,
    /// Its version.
    pub version: String,
    /// The Parquet file with the rows, in the engine's order; not there if it was asked for its plan.
    pub rows: PathBuf,
    /// What the engine printed behind its version: the plan, if that was asked for.
    pub printed: Vec<Value>,
    /// Bytes that its process read; none where the system does not say.
    pub bytes_read: Option<u64>,
}

impl Answer {
    /// An answer from what an engine printed, its version first as a line of JSON, and the file with the rows.
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

    /// Who answered, with the version.
    pub fn engine_name(&self) -> String {
        format!("{} {}", self.engine, self.version)
    }

    /// What the user should know of this engine.
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

/// What every engine needs to be asked.
pub struct EngineCall<'a> {
    /// The file for the answer.
    pub rows: PathBuf,
    /// A folder for other files.
    pub scratch: &'a SqlScratch,
    /// Whether the user interrupts.
    pub output: &'a Output,
}

/// How a process ended.
pub struct Ended {
    /// Its exit status; none after a signal.
    pub status: Option<i32>,
    /// Its standard output.
    pub printed: Vec<u8>,
    /// Its standard error, without blanks around it.
    pub message: String,
    /// Bytes that it read, of files and otherwise; none where the system does not say.
    pub bytes_read: Option<u64>,
}

/// Runs a program with this input, until it ends or the user interrupts; `None` if there is no such program. It ends
/// with this process, too.
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
        // Calendar times are printed as they are stored, and no library's warning hides an error.
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
        // One that ends early says why in its own words.
        scope.spawn(move || stdin.write_all(input.as_bytes()));
        let read = scope.spawn(|| stdout.read_to_end(&mut printed));
        let errors = scope.spawn(|| stderr.read_to_end(&mut message));
        let waited = wait(&child, output);
        if !matches!(waited, Ok(true)) {
            end(&child);
        }
        let read = read.join().expect("reading does not panic");
        let errors = errors.join().expect("reading does not panic");
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

/// Waits until a child has ended, which it stays to be asked about; `false` if the user interrupts first.
fn wait(child: &Child, output: &Output) -> io::Result<bool> {
    let descriptor = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    // A signal ends a poll, unless another thread took it.
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

/// Ends a child and what it has started: by SIGTERM, at which the script for Spark has the server end the question, and
/// by SIGKILL if that takes too long.
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
    // Also if the child has ended: its own children may not have.
    let _ = kill_process_group(group, Signal::KILL);
}

/// What a child that is ending has read with system calls; the system knows it until somebody asks how it ended.
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

    /// The first line is the version; a line that is cut is an error.
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
