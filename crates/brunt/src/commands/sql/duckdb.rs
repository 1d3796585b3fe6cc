//! DuckDB: the program, or else its Python module. Views over lists of parts, then the statement.

use std::ffi::{OsStr, OsString};
use std::iter;
use std::path::Path;

use brunt_lake::reader::SoundParts;
use brunt_lake::twins::twin_name;
use serde_json::Value;

use super::engine::{Answer, EngineCall, EngineError, SqlEngine, run};
use super::lake::{Lake, LakeColumn, LakeTable, plain};
use super::python;

/// The statements that come before the question: they make a view of each table.
fn preparation(lake: &Lake) -> Vec<String> {
    // A question that takes seconds would have a progress bar among its rows.
    let quiet = "SET enable_progress_bar = false".to_string();
    iter::once(quiet)
        .chain(lake.tables.iter().map(view))
        .collect()
}

fn view(table: &LakeTable) -> String {
    let rows: Vec<_> = table
        .groups
        .iter()
        .map(|group| rows_of(table, group))
        .collect();
    let rows = if rows.is_empty() {
        table.no_rows()
    } else {
        rows.join(" UNION ALL ")
    };
    format!("CREATE VIEW \"{}\" AS {rows}", table.table.name)
}

/// A statement for the rows of a group. Twins are taken as they are stored: by them DuckDB leaves parts out, by what it computes
/// it does not.
fn rows_of(table: &LakeTable, group: &SoundParts) -> String {
    let (mut columns, mut twins) = (Vec::new(), Vec::new());
    for LakeColumn {
        name,
        is_time,
        absent,
    } in table.columns(group)
    {
        let twin = twin_name(name);
        twins.extend(is_time.then(|| match (&absent, group.has_twins) {
            (Some(_), _) => format!("CAST(NULL AS BIGINT) AS \"{twin}\""),
            (None, true) => format!("\"{twin}\""),
            (None, false) => format!("epoch_ns(\"{name}\") AS \"{twin}\""),
        }));
        columns.push(absent.unwrap_or_else(|| format!("\"{name}\"")));
    }
    columns.append(&mut twins);
    let parts = group
        .files
        .iter()
        .map(|part| format!("'{}'", plain(part).replace('\'', "''")));
    let (columns, parts) = (columns.join(", "), parts.collect::<Vec<_>>().join(", "));
    // Folders of a lake are named like columns, which the parts of its capture do not have.
    let options = match group.not_in_all.is_empty() {
        true => "hive_partitioning = false",
        // Every footer is read for that.
        false => "hive_partitioning = false, union_by_name = true",
    };
    format!("SELECT {columns} FROM read_parquet([{parts}], {options})")
}

/// What DuckDB executes for a question.
pub struct DuckdbScript {
    /// Opens an object store, where that is where the parts are.
    pub secret: Option<String>,
    /// Makes a view of each table, and one of the question.
    pub preparation: Vec<String>,
    /// Asks for the statement that writes the answer to a file, or for the plan.
    pub last: LastStatement,
}

/// What comes last in a script.
pub enum LastStatement {
    /// A statement whose one value is the statement that writes the file.
    CopyStatement(String),
    /// A statement that answers with the plan.
    Plan(String),
}

impl DuckdbScript {
    /// For a statement about these tables, with the answer in the file `rows`.
    fn new(lake: &Lake, statement: &str, rows: &Path, explain: bool) -> DuckdbScript {
        let mut preparation = preparation(lake);
        let last = if explain {
            LastStatement::Plan(format!("EXPLAIN (ANALYZE, FORMAT JSON) {statement}"))
        } else {
            // The statement may end with a comment.
            preparation.push(format!(
                "CREATE TEMP VIEW brunt_answer AS SELECT * FROM (\n{statement}\n)"
            ));
            LastStatement::CopyStatement(copy_statement(rows))
        };
        DuckdbScript {
            secret: lake.secret.clone(),
            preparation,
            last,
        }
    }
}

/// A statement whose value is the statement that writes the answer. DuckDB would write integers of 128 bits as
/// floating-point numbers, intervals without microseconds and times of day without their zone, and would refuse a few
/// other types: each is cast to a type that holds all of it. An integer of more than 38 digits is an error.
fn copy_statement(rows: &Path) -> String {
    let file = quoted(&rows.to_string_lossy());
    // The statement is itself a text in SQL.
    let to = quoted(&format!(
        " FROM brunt_answer) TO {file} (FORMAT parquet, COMPRESSION zstd)"
    ));
    format!(
        "SELECT 'COPY (SELECT ' || string_agg(CASE WHEN fits = column_type THEN name \
         ELSE 'CAST(' || name || ' AS ' || fits || ') AS ' || name END, ', ') || {to} AS statement \
         FROM (SELECT '\"' || replace(column_name, '\"', '\"\"') || '\"' AS name, column_type, \
         CASE WHEN starts_with(column_type, 'UNION') THEN 'VARCHAR' ELSE \
         regexp_replace(regexp_replace(column_type, '\\bU?HUGEINT\\b', 'DECIMAL(38,0)', 'g'), \
         '\\b(INTERVAL|BIT|BIGNUM|TIME WITH TIME ZONE)\\b', 'VARCHAR', 'g') END AS fits \
         FROM (DESCRIBE brunt_answer))"
    )
}

/// A text as SQL has it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A text as the program's own commands have it.
fn dot_quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Asks the program that BRUNT_DUCKDB names. Without one: the program `duckdb` if it reads nanoseconds, or the module,
/// or else the program as it is.
pub fn ask(
    lake: &Lake,
    statement: &str,
    explain: bool,
    call: &EngineCall<'_>,
) -> Result<Answer, EngineError> {
    let script = DuckdbScript::new(lake, statement, &call.rows, explain);
    match std::env::var_os("BRUNT_DUCKDB") {
        Some(program) => ask_program(&program, &script, call)?.ok_or_else(|| {
            let tried = format!(
                "BRUNT_DUCKDB names {}, which does not exist",
                program.to_string_lossy()
            );
            EngineError::Missing {
                engine: SqlEngine::Duckdb,
                tried,
            }
        }),
        None => ask_any(&script, call),
    }
}

fn ask_any(script: &DuckdbScript, call: &EngineCall<'_>) -> Result<Answer, EngineError> {
    let program = OsString::from(SqlEngine::Duckdb.name());
    let version = run(&program, &["--version".as_ref()], "", call.output)?;
    let version = version.map(|ended| String::from_utf8_lossy(&ended.printed).into_owned());
    if version.as_deref().is_some_and(reads_nanoseconds)
        && let Some(answer) = ask_program(&program, script, call)?
    {
        return Ok(answer);
    }
    match python::ask_duckdb(script, call) {
        Err(missing @ EngineError::Missing { .. }) => {
            // An older program is better than none.
            ask_program(&program, script, call)?.ok_or(missing)
        }
        answer => answer,
    }
}

/// Whether a version, as `v1.5.6 (…)` or `2.0.0`, reads times as they are stored.
pub fn reads_nanoseconds(version: &str) -> bool {
    let major = version.trim_start_matches('v').split('.').next();
    major
        .and_then(|major| major.parse::<u32>().ok())
        .is_some_and(|major| major >= 2)
}

fn ask_program(
    program: &OsStr,
    script: &DuckdbScript,
    call: &EngineCall<'_>,
) -> Result<Option<Answer>, EngineError> {
    let mut text = String::from("SELECT version() AS version;\n");
    if let Some(secret) = &script.secret {
        // These answer, too.
        text += &format!(".output /dev/null\nINSTALL httpfs; LOAD httpfs;\n{secret};\n.output\n");
    }
    for statement in &script.preparation {
        text += &format!("{statement};\n");
    }
    text += &match &script.last {
        LastStatement::Plan(plan) => format!("{plan}\n;\n"),
        LastStatement::CopyStatement(statement) => {
            let file = dot_quoted(&call.scratch.path().join("copy.sql"));
            // Its `.read` wants a file, and `.once` writes one.
            format!(".mode list\n.headers off\n.once {file}\n{statement};\n.read {file}\n")
        }
    };
    // No settings of the user, and an end at the first mistake.
    let options = ["-init", "/dev/null", "-batch", "-bail", "-jsonlines"].map(OsStr::new);
    let Some(ended) = run(program, &options, &text, call.output)? else {
        return Ok(None);
    };
    let engine = SqlEngine::Duckdb;
    match ended.status {
        Some(0) => {
            let answer = Answer::of(engine, &ended.printed, &call.rows)?;
            Ok(Some(Answer {
                bytes_read: ended.bytes_read,
                ..answer
            }))
        }
        Some(_) => Err(EngineError::Refused {
            engine,
            message: ended.message,
        }),
        None => Err(EngineError::Ended {
            engine,
            status: "by a signal".to_string(),
            message: ended.message,
        }),
    }
}

/// What DuckDB read for a question.
#[derive(Clone, Debug, Default)]
pub struct PlanRead {
    /// Scans of tables.
    pub scans: u64,
    /// Files that they opened, together.
    pub parts: u64,
    /// Bytes that were read; none where the system does not say.
    pub bytes: Option<u64>,
}

impl PlanRead {
    /// By the plan that was printed.
    pub fn of(answer: &Answer) -> PlanRead {
        let mut read = PlanRead::default();
        answer
            .printed
            .iter()
            .for_each(|plan| add("", plan, &mut read));
        read.bytes = read.bytes.or(answer.bytes_read);
        read
    }
}

/// Adds what a plan says was opened. The program prints the plan as it is, the module in a row, as text; versions differ in
/// where in the plan things stand. How many bytes were read is what the script has counted: versions 1.5.5 and 1.5.6 say far
/// too few.
fn add(name: &str, value: &Value, read: &mut PlanRead) {
    match value {
        Value::String(text) if name == "analyzed_plan" => {
            if let Ok(plan) = serde_json::from_str(text) {
                add("", &plan, read);
            }
        }
        // Numbers of a scan's extra information stand in texts.
        Value::String(files) if name == "Total Files Read" => {
            read.scans += 1;
            read.parts += files.parse().unwrap_or(0);
        }
        Value::Number(bytes) if name == "bytes_read" => read.bytes = bytes.as_u64(),
        Value::Array(values) => values.iter().for_each(|value| add("", value, read)),
        Value::Object(fields) => fields
            .iter()
            .for_each(|(name, value)| add(name, value, read)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plans of both versions, in which the same stands elsewhere.
    #[test]
    fn plans() {
        let scan = r#"[{"extra_info":{"Total Files Read":"3"}},{"extra_info":{},"children":[{"extra_info":{"Total Files Read":"2"}}]}]"#;
        let of = |row: &str| {
            let mut read = PlanRead::default();
            add("", &serde_json::from_str(row).unwrap(), &mut read);
            (read.scans, read.parts, read.bytes)
        };
        let row = format!(r#"{{"total_bytes_read":77,"extra_info":{{}},"children":{scan}}}"#);
        assert_eq!(of(&row), (2, 5, None));
        let plan = format!(r#"{{"io":{{"total_bytes_read":78}},"operator":{scan}}}"#);
        assert_eq!(
            of(&serde_json::json!({ "analyzed_plan": plan }).to_string()),
            (2, 5, None)
        );
        assert_eq!(of(r#"{"bytes_read":79}"#), (0, 0, Some(79)));
    }

    #[test]
    fn versions() {
        assert!(reads_nanoseconds("2.0.0") && reads_nanoseconds("v10.1"));
        assert!(!reads_nanoseconds("v1.5.6 (Variegata) abc") && !reads_nanoseconds(""));
    }
}
