//! `brunt sql`: queries the tables of a trace or of results with an external engine: DuckDB on this machine, or Spark
//! or Sail, which may use many machines. Brunt finds the parts, checks that it supports their format version, and
//! prints the answer.
//! ```text
//!   lake ──parts──► statements ──► duckdb program, or Python with an engine ──Parquet──► table, JSON or CSV
//! ```
//!
//! The rule: an engine is a separate process that receives text; none of its code is linked.

mod duckdb;
mod engine;
mod lake;
mod print;
mod python;
mod remote;
mod scratch;
mod tables;

use std::path::{Path, PathBuf};

use brunt_capture::trace::lake::VERIFIED_MAX;
use brunt_capture::trace::questions::{QUESTIONS, TraceQuestion};
use brunt_capture::windows::questions::WINDOW_QUESTIONS;
use brunt_core::input::InputFile;
use brunt_core::units::counted;
use brunt_lake::foreign::ForeignRows;
use brunt_remote::RemoteAddress;
use serde_json::json;

use crate::cli::{Done, Failure, Output};
use duckdb::PlanRead;
use engine::{Answer, EngineCall, EngineError, SqlEngine};
use lake::{Lake, WantedTables};
use print::AnswerForm;
use scratch::SqlScratch;

/// Query the tables of a trace or of results with SQL, in DuckDB, Spark or Sail
#[derive(clap::Args)]
pub struct Sql {
    /// Folder of a trace (`brunt capture --out`) or of results (`brunt run`), or the address of an object store,
    /// s3://BUCKET/PREFIX (DuckDB with its extension httpfs).
    #[arg(required_unless_present = "list")]
    folder: Option<PathBuf>,

    /// Name of an analysis (see --list), or a SELECT statement over the tables, in the engine's dialect; `-` reads
    /// the statement from standard input. Each time column has a counterpart with `_ns` appended to its name:
    /// nanoseconds since 1970.
    #[arg(
        required_unless_present_any = ["list", "tables", "statement_file"],
        value_name = "NAME|STATEMENT",
        allow_hyphen_values = true
    )]
    question: Option<String>,

    /// Read the statement from a file; `-` is standard input.
    #[arg(
        short = 'f',
        long = "file",
        value_name = "FILE",
        id = "statement_file",
        conflicts_with = "question"
    )]
    file: Option<PathBuf>,

    /// List the analyses; with --json, also their statements.
    #[arg(long, exclusive = true)]
    list: bool,

    /// List the folder's tables with their sizes; with --json, also their columns.
    #[arg(long, conflicts_with_all = ["question", "statement_file", "explain", "csv", "parquet", "at"])]
    tables: bool,

    /// Print the rows as comma-separated values, preceded by a line of column names. Null is an empty field, an empty
    /// text is `""`.
    #[arg(long, conflicts_with_all = ["explain", "parquet"])]
    csv: bool,

    /// Write the rows to a Parquet file instead of printing them.
    #[arg(long, value_name = "FILE", conflicts_with = "explain")]
    parquet: Option<PathBuf>,

    /// Run the query, but print how many parts and bytes the engine read for it (DuckDB only).
    #[arg(long)]
    explain: bool,

    /// First compare the tables of the query with their checksums, even above 1 GiB. Engines don't do this: they may
    /// answer from changed bytes.
    #[arg(long)]
    verify: bool,

    /// Engine to use: `duckdb` runs the program $BRUNT_DUCKDB, or else `duckdb` or the Python module of that name;
    /// `spark` queries a Spark Connect server, Spark or Sail, through Python's pyspark ($BRUNT_PYTHON is the
    /// interpreter).
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
            "show operations, errors and latencies of a trace",
        ),
        (
            "brunt sql DIR 'select flow, count(*) from operations group by flow'",
            "your own query",
        ),
        ("brunt sql DIR --tables", "list the tables"),
        (
            "brunt sql DIR -f question.sql --csv > answer.csv",
            "run a statement from a file, and save the rows for a spreadsheet",
        ),
        (
            "brunt sql DIR mix --parquet mix.parquet",
            "write the rows to a file for other programs",
        ),
        (
            "brunt sql DIR files --explain",
            "show how many parts and bytes the analysis reads",
        ),
        (
            "brunt sql s3://lake/all mix",
            "run the analysis on a lake in an object store",
        ),
        (
            "brunt sql DIR mix --engine spark --at 127.0.0.1:15002",
            "run the analysis in Spark or Sail",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        let Some(folder) = &self.folder else {
            list(output);
            return Ok(());
        };
        if self.csv && output.is_json() {
            return Err(
                Failure::usage("--csv and --json cannot be combined").advise("omit one of them")
            );
        }
        let scratch = SqlScratch::make()?;
        if self.tables {
            let wanted = WantedTables {
                statement: None,
                is_of_traces: false,
                verify_up_to: None,
            };
            tables::print(&self.open(folder, &wanted, &scratch, output)?, output);
            return Ok(());
        }
        let question = self.question()?;
        let named = named(&question)?;
        let statement = named
            .map_or(question.as_str(), |question| question.sql)
            .trim()
            .trim_end_matches(';');
        let wanted = WantedTables {
            statement: Some(statement),
            is_of_traces: named
                .is_some_and(|named| QUESTIONS.iter().any(|question| question.name == named.name)),
            verify_up_to: Some(if self.verify { u64::MAX } else { VERIFIED_MAX }),
        };
        let lake = self.open(folder, &wanted, &scratch, output)?;
        // Next to the requested file, so that it can be renamed once it is complete.
        let rows = match &self.parquet {
            Some(file) => open_name(file),
            None => scratch.path().join("rows.parquet"),
        };
        let call = EngineCall {
            rows,
            scratch: &scratch,
            output,
        };
        let answered = self.ask(&lake, statement, &call);
        if answered.is_err() && self.parquet.is_some() {
            let _ = std::fs::remove_file(&call.rows);
        }
        let answer = answered?;
        if let Some(note) = answer.note() {
            output.note(note);
        }
        let form = if self.csv {
            AnswerForm::Csv
        } else {
            AnswerForm::Rows
        };
        match &self.parquet {
            _ if self.explain => explain(&lake, &answer, output),
            Some(file) => keep(&answer, file, output)?,
            None => {
                print::print(&answer, form, scratch, output).map_err(EngineError::into_failure)?;
            }
        }
        Ok(())
    }
}

impl Sql {
    /// The name of an analysis or a statement, whether given as an argument or in a file.
    fn question(&self) -> Result<String, Failure> {
        let file = match (&self.file, self.question.as_deref()) {
            (Some(file), _) => file.as_path(),
            (None, Some("-")) => Path::new("-"),
            (None, question) => return Ok(question.unwrap_or_default().to_string()),
        };
        let input = match file == Path::new("-") {
            true => InputFile::stdin(),
            false => InputFile::open(file),
        };
        let label = crate::plain::file_label(file);
        let text = input
            .and_then(std::io::read_to_string)
            .map_err(|error| Failure::usage(format!("{label}: {error}")))?;
        match text.trim().is_empty() {
            true => Err(Failure::usage(format!("{label} contains no statement"))),
            false => Ok(text),
        }
    }

    fn open(
        &self,
        folder: &Path,
        wanted: &WantedTables<'_>,
        scratch: &SqlScratch,
        output: &Output,
    ) -> Result<Lake, Failure> {
        let address = folder
            .to_str()
            .filter(|folder| RemoteAddress::is_remote(folder));
        let lake = match address {
            Some(_) if self.engine == SqlEngine::Spark => {
                return Err(Failure::usage(
                    "--engine spark reads only folders; object stores need DuckDB",
                )
                .advise(
                    "or query views of s3a:// paths on the server: see docs/object-stores.md",
                ));
            }
            Some(address) => remote::open(address, wanted, scratch.path(), output)?,
            None => Lake::open(folder, wanted).map_err(|error| error.into_failure())?,
        };
        for note in &lake.notes {
            output.note(format_args!("{}: {note}", folder.display()));
        }
        Ok(lake)
    }

    fn ask(&self, lake: &Lake, statement: &str, call: &EngineCall<'_>) -> Result<Answer, Failure> {
        let answer = match (self.engine, &self.at) {
            (SqlEngine::Duckdb, Some(_)) => {
                return Err(
                    Failure::usage("--at is the address of a Spark Connect server")
                        .advise("add --engine spark, or omit --at"),
                );
            }
            (SqlEngine::Duckdb, None) => duckdb::ask(lake, statement, self.explain, call),
            (SqlEngine::Spark, _) if self.explain => {
                return Err(
                    Failure::usage("--explain measures what DuckDB reads").advise(
                        "omit --engine spark; Spark's own page shows what its executors read",
                    ),
                );
            }
            (SqlEngine::Spark, at) => {
                python::ask_spark(lake, statement, at.as_deref().unwrap_or_default(), call)
            }
        };
        answer.map_err(EngineError::into_failure)
    }
}

/// The name of a file until it is complete.
fn open_name(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.open", std::process::id()));
    // Make it absolute, because the engine may run in another folder.
    let open = file.with_file_name(name);
    std::path::absolute(&open).unwrap_or(open)
}

/// Moves the file with the rows to its final name.
fn keep(answer: &Answer, file: &Path, output: &Output) -> Done {
    let rows = ForeignRows::open(&answer.rows).map(|rows| rows.rows_count());
    std::fs::rename(&answer.rows, file)
        .map_err(|error| Failure::failed(format!("{}: {error}", file.display())))?;
    let rows = rows.map_err(Failure::failed)?;
    output.line(format_args!(
        "{} in {}",
        counted(rows as usize, "row"),
        file.display()
    ));
    output.object(&json!({ "engine": answer.engine_name(), "file": file, "rows_count": rows }));
    Ok(())
}

/// The analysis that the query names; `None` if it is a statement.
fn named(question: &str) -> Result<Option<&'static TraceQuestion>, Failure> {
    if question.trim().contains(char::is_whitespace) {
        return Ok(None);
    }
    match all_named().find(|known| known.name == question.trim()) {
        Some(known) => Ok(Some(known)),
        None => {
            let names: Vec<_> = all_named().map(|known| known.name).collect();
            Err(
                Failure::usage(format!("unknown analysis {question:?}")).advise(format!(
                    "write a SELECT statement, or one of {}",
                    names.join(", ")
                )),
            )
        }
    }
}

/// The analyses of traces, then those of windows.
fn all_named() -> impl Iterator<Item = &'static TraceQuestion> {
    QUESTIONS.iter().chain(WINDOW_QUESTIONS)
}

fn list(output: &Output) {
    let width = all_named()
        .map(|question| question.name.len())
        .max()
        .unwrap_or(0);
    for question in all_named() {
        output.line(format_args!(
            "{:<width$}  {}",
            question.name,
            question.help()
        ));
    }
    let all = all_named().map(
        |question| json!({ "name": question.name, "help": question.help(), "sql": question.sql }),
    );
    output.object(&json!({ "analyses": all.collect::<Vec<_>>() }));
}

/// Prints what the engine read, and the total that it could have read.
fn explain(lake: &Lake, answer: &Answer, output: &Output) {
    let (parts, bytes) = (lake.parts(), lake.bytes());
    let read = PlanRead::of(answer);
    let names: Vec<_> = lake.tables.iter().map(|table| table.table.name).collect();
    output.line(format_args!("tables      {}", names.join(", ")));
    output.line(format_args!(
        "parts       {parts}, opened {} times in {} scans",
        read.parts, read.scans
    ));
    match read.bytes {
        Some(read) => output.line(format_args!(
            "bytes       {bytes} stored, {read} read, counting repeated reads"
        )),
        None => output.line(format_args!(
            "bytes       {bytes} stored; the system does not report how many were read"
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
