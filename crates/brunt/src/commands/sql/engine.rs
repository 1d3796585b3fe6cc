//! An engine as another process: a script goes in, lines of JSON come out, and its exit status says why it gave no
//! answer. The one rule: whatever is missing or mistaken is the user's to mend, so it is exit status 2 with advice.

use std::ffi::OsString;
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde_json::Value;

use super::rows::AnswerRow;
use crate::cli::Failure;

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
    /// It answered something that is no answer.
    #[error("{engine} answered what is no line of JSON: {source}")]
    Unreadable {
        /// Which engine.
        engine: SqlEngine,
        /// Where it is none.
        source: serde_json::Error,
    },
    /// The system does not start it.
    #[error("{program} cannot be run: {source}")]
    Io {
        /// The program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
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
            EngineError::Io { .. } => "check that it may be executed",
            EngineError::Ended { .. } | EngineError::Unreadable { .. } => {
                return Failure::failed(&self)
                    .advise("run it with a smaller question to see what it lacks");
            }
        };
        Failure::usage(&self).advise(advice)
    }
}

/// What an engine read.
#[derive(Clone, Debug, Default)]
pub struct PlanRead {
    /// Scans of tables.
    pub scans: u64,
    /// Files that they opened, together.
    pub parts: u64,
    /// Bytes that were read; none where the engine does not count them.
    pub bytes: Option<u64>,
}

/// What an engine answered.
#[derive(Debug)]
pub struct Answer {
    /// Who answered.
    pub engine: SqlEngine,
    /// Its version.
    pub version: String,
    /// The rows, in its order.
    pub rows: Vec<AnswerRow>,
    /// What it read: all of it if that was asked; otherwise at most the bytes.
    pub plan: Option<PlanRead>,
}

impl Answer {
    /// An answer from the lines of an engine: its version first, then the rows.
    pub fn of(engine: SqlEngine, lines: &[u8]) -> Result<Answer, EngineError> {
        let unreadable = |source| EngineError::Unreadable { engine, source };
        let mut rows = serde_json::Deserializer::from_slice(lines).into_iter::<AnswerRow>();
        let first = rows.next().transpose().map_err(unreadable)?;
        let version = first
            .and_then(|row| row.0.into_iter().next())
            .map(|(_, value)| value);
        let version = version.as_ref().and_then(Value::as_str).unwrap_or("");
        let version = version.trim_start_matches('v').to_string();
        let rows: Vec<AnswerRow> = rows.collect::<Result<_, _>>().map_err(unreadable)?;
        Ok(Answer {
            engine,
            version,
            rows,
            plan: None,
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

/// How a process ended.
pub struct Ended {
    /// Its exit status; none after a signal.
    pub status: Option<i32>,
    /// Its standard output.
    pub answer: Vec<u8>,
    /// Its standard error, without blanks around it.
    pub message: String,
    /// Bytes that it read, of files and otherwise; none where the system does not say.
    pub bytes_read: Option<u64>,
}

/// Runs a program with this input; `None` if there is no such program.
pub fn run(
    program: &OsString,
    arguments: &[&str],
    input: &str,
) -> Result<Option<Ended>, EngineError> {
    let io = |source| EngineError::Io {
        program: program.to_string_lossy().into_owned(),
        source,
    };
    let child = Command::new(program)
        .args(arguments)
        // Calendar times are printed as they are stored, and no library's warning hides an error.
        .env("TZ", "UTC")
        .env("PYTHONWARNINGS", "ignore")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        child => child.map_err(io)?,
    };
    let mut stdin = child.stdin.take().expect("piped");
    let mut stdout = child.stdout.take().expect("piped");
    let mut stderr = child.stderr.take().expect("piped");
    let (mut answer, mut message) = (Vec::new(), Vec::new());
    // While it answers, it may still have to read.
    let read = std::thread::scope(|scope| {
        // One that ends early says why in its own words.
        scope.spawn(move || stdin.write_all(input.as_bytes()));
        let errors = scope.spawn(|| stderr.read_to_end(&mut message));
        stdout
            .read_to_end(&mut answer)
            .and(errors.join().expect("reading does not panic"))
    });
    read.map_err(io)?;
    let bytes_read = bytes_read(&child);
    let status = child.wait().map_err(io)?.code();
    let message = String::from_utf8_lossy(&message).trim().to_string();
    Ok(Some(Ended {
        status,
        answer,
        message,
        bytes_read,
    }))
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

    /// The first line is the version; what is cut is an error, not an answer.
    #[test]
    fn answers() {
        let answer = Answer::of(
            SqlEngine::Duckdb,
            b"{\"version\":\"v1.5.6\"}\n{\"b\":1,\"a\":null}\n",
        )
        .unwrap();
        assert_eq!(
            (answer.engine_name().as_str(), answer.rows.len()),
            ("duckdb 1.5.6", 1)
        );
        assert!(
            answer
                .note()
                .is_some_and(|note| note.contains("microseconds"))
        );
        assert_eq!(answer.rows[0].0[0].0, "b", "columns stay in their order");
        let answer = Answer::of(SqlEngine::Duckdb, b"{\"version\":\"v2.0.0\"}\n").unwrap();
        assert!(answer.note().is_none() && answer.rows.is_empty());
        assert!(matches!(
            Answer::of(SqlEngine::Duckdb, b"{\"version\":\"v2.0.0\"}\n{\"a\":"),
            Err(EngineError::Unreadable { .. })
        ));
    }
}
