//! `brunt sql`: questions to the tables of a trace or of results, answered by an engine that somebody else made: DuckDB
//! on this machine, Spark or Sail on many. Brunt finds the parts, checks that they are of its version, and prints.
//!
//! ```text
//!   lake ──parts──► statements ──► duckdb program, or Python with an engine ──rows──► table or JSON
//! ```
//!
//! The one rule: an engine is another process and is given text; nothing of it is linked.

mod duckdb;
mod engine;
mod lake;
mod python;
mod remote;
mod rows;

use std::path::PathBuf;

use brunt_capture::trace::questions::{QUESTIONS, TraceQuestion};
use brunt_remote::RemoteAddress;
use serde_json::{Map, Value, json};

use crate::cli::{Done, Failure, Output};
use engine::{Answer, EngineError, SqlEngine};
use lake::Lake;

/// Query the tables of a trace or of results with SQL, in DuckDB, Spark or Sail
#[derive(clap::Args)]
pub struct Sql {
    /// Folder of a trace (`brunt capture --out`) or of results (`brunt run`), or an object store's address, s3://BUCKET/PREFIX
    /// (DuckDB with its extension httpfs).
    #[arg(required_unless_present = "list")]
    folder: Option<PathBuf>,

    /// Name of an analysis (see --list), or a SELECT statement over the tables, in the engine's dialect. Each column of
    /// times has a twin with the same name and `_ns`: nanoseconds since 1970.
    #[arg(
        required_unless_present = "list",
        value_name = "NAME|STATEMENT",
        allow_hyphen_values = true
    )]
    question: Option<String>,

    /// List the analyses; with --json, also their statements.
    #[arg(long, exclusive = true)]
    list: bool,

    /// Answer the question, but print how many parts and bytes the engine read for it (DuckDB only).
    #[arg(long)]
    explain: bool,

    /// Engine to use: `duckdb` runs the program $BRUNT_DUCKDB, or else `duckdb` or the Python module of that name;
    /// `spark` asks a Spark Connect server, Spark or Sail, through Python's pyspark ($BRUNT_PYTHON is the interpreter).
    #[arg(long, value_enum, default_value = "duckdb")]
    engine: SqlEngine,

    /// Address of the Spark Connect server, which must see the folder under the same path.
    #[arg(long, value_name = "HOST:PORT", required_if_eq("engine", "spark"))]
    at: Option<String>,
}

impl super::Subcommand for Sql {
    const NAME: &'static str = "sql";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt sql --list", "list the analyses"),
        (
            "brunt sql DIR mix",
            "operations, errors and latencies of a trace",
        ),
        (
            "brunt sql DIR 'select flow, count(*) from operations group by flow'",
            "a question of your own",
        ),
        (
            "brunt sql DIR files --explain",
            "how many parts and bytes that reads",
        ),
        (
            "brunt sql s3://lake/all mix",
            "the same of a lake in an object store",
        ),
        (
            "brunt sql DIR mix --engine spark --at 127.0.0.1:15002",
            "the same in Spark or Sail",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        let (Some(folder), Some(question)) = (&self.folder, &self.question) else {
            list(output);
            return Ok(());
        };
        let named = named(question)?;
        let statement = named
            .map_or(question.as_str(), |question| question.sql)
            .trim()
            .trim_end_matches(';');
        let address = folder
            .to_str()
            .filter(|folder| RemoteAddress::is_remote(folder));
        let lake = match address {
            Some(_) if self.engine == SqlEngine::Spark => {
                return Err(Failure::usage(
                    "--engine spark reads folders; a store only DuckDB reads here",
                )
                .advise("give the server's own views of s3a:// paths: docs/object-stores.md"));
            }
            Some(address) => remote::open(address, statement, named.is_some(), output)?,
            None => Lake::open(folder, statement, named.is_some())
                .map_err(|error| error.into_failure())?,
        };
        for note in &lake.notes {
            output.note(format_args!("{}: {note}", folder.display()));
        }
        let answer = match (self.engine, &self.at) {
            (SqlEngine::Duckdb, Some(_)) => {
                return Err(
                    Failure::usage("--at is the address of a Spark Connect server")
                        .advise("add --engine spark, or leave --at out"),
                );
            }
            (SqlEngine::Duckdb, None) => duckdb::ask(&lake, statement, self.explain),
            (SqlEngine::Spark, _) if self.explain => {
                return Err(
                    Failure::usage("--explain measures what DuckDB reads").advise(
                        "leave out --engine spark; Spark's own page shows what its executors read",
                    ),
                );
            }
            (SqlEngine::Spark, at) => {
                python::ask_spark(&lake, statement, at.as_deref().unwrap_or_default())
            }
        };
        let answer = answer.map_err(EngineError::into_failure)?;
        if let Some(note) = answer.note() {
            output.note(note);
        }
        if self.explain {
            explain(&lake, &answer, output)
        } else {
            print(&answer, output)
        }
        Ok(())
    }
}

/// The analysis that is meant, if it is one and no statement.
fn named(question: &str) -> Result<Option<&'static TraceQuestion>, Failure> {
    if question.trim().contains(char::is_whitespace) {
        return Ok(None);
    }
    match QUESTIONS.iter().find(|known| known.name == question.trim()) {
        Some(known) => Ok(Some(known)),
        None => {
            let names: Vec<_> = QUESTIONS.iter().map(|known| known.name).collect();
            Err(
                Failure::usage(format!("there is no analysis {question:?}")).advise(format!(
                    "give a SELECT statement, or one of {}",
                    names.join(", ")
                )),
            )
        }
    }
}

fn list(output: &Output) {
    let width = QUESTIONS
        .iter()
        .map(|question| question.name.len())
        .max()
        .unwrap_or(0);
    for question in QUESTIONS {
        output.line(format_args!(
            "{:<width$}  {}",
            question.name,
            question.help()
        ));
    }
    let all = QUESTIONS.iter().map(
        |question| json!({ "name": question.name, "help": question.help(), "sql": question.sql }),
    );
    output.object(&json!({ "analyses": all.collect::<Vec<_>>() }));
}

fn print(answer: &Answer, output: &Output) {
    for line in rows::lines(&answer.rows) {
        output.line(line);
    }
    let rows = answer
        .rows
        .iter()
        .map(|row| Value::Object(row.0.iter().cloned().collect::<Map<_, _>>()));
    output.object(&json!({ "engine": answer.engine_name(), "rows": rows.collect::<Vec<_>>() }));
}

/// What the engine read, against what there is.
fn explain(lake: &Lake, answer: &Answer, output: &Output) {
    let (parts, bytes) = (lake.parts(), lake.bytes());
    let read = answer.plan.clone().unwrap_or_default();
    let names: Vec<_> = lake.tables.iter().map(|table| table.table.name).collect();
    let share = |read: u64| 100.0 * read as f64 / bytes.max(1) as f64;
    output.line(format_args!("tables      {}", names.join(", ")));
    output.line(format_args!(
        "parts       {parts}, opened {} times in {} scans",
        read.parts, read.scans
    ));
    match read.bytes {
        Some(read) => output.line(format_args!(
            "bytes       {read} of {bytes} were read ({:.1} %)",
            share(read)
        )),
        None => output.line(format_args!(
            "bytes       {bytes}; the system does not say how many were read"
        )),
    }
    output.line(format_args!("engine      {}", answer.engine_name()));
    output.object(&json!({
        "engine": answer.engine_name(),
        "tables": names,
        "parts": parts,
        "parts_opened": read.parts,
        "scans": read.scans,
        "bytes": bytes,
        "bytes_read": read.bytes,
    }));
}
