//! Queries DuckDB through its command-line program, or else through its Python module. Creates views over lists of
//! parts, then runs the statement.

use std::ffi::{OsStr, OsString};
use std::iter;
use std::path::Path;

use brunt_lake::integer_times::twin_name;
use brunt_lake::reader::IntactParts;
use serde_json::Value;

use super::engine::{Answer, EngineCall, EngineError, SqlEngine, run};
use super::lake::{Lake, LakeColumn, LakeTable, plain};
use super::python;

/// Statements that run before the query and create a view for each table.
fn preparation(lake: &Lake) -> Vec<String> {
    // Without this, DuckDB shows a progress bar among the rows of queries that take several seconds.
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

/// A SELECT statement for the rows in a group of parts. Uses stored `_ns` columns as they are: DuckDB can skip parts
/// by a stored column, but not by a computed one.
fn rows_of(table: &LakeTable, group: &IntactParts) -> String {
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
    // The folders of a lake are named like partition columns, but their values must not become columns.
    let options = match group.not_in_all.is_empty() {
        true => "hive_partitioning = false",
        // `union_by_name` makes DuckDB read the footer of every part, so it is used only if columns differ.
        false => "hive_partitioning = false, union_by_name = true",
    };
    format!("SELECT {columns} FROM read_parquet([{parts}], {options})")
}

/// The script that DuckDB executes for a query.
pub struct DuckdbScript {
    /// Statement that gives DuckDB access to an object store, if the parts are in one.
    pub secret: Option<String>,
    /// Statements that create a view for each table and one for the query.
    pub preparation: Vec<String>,
    /// Produces the statement that writes the answer to a file, or the plan.
    pub last: LastStatement,
}

/// What the last statement of a script does.
pub enum LastStatement {
    /// A statement that returns, as its single value, the statement that writes the file.
    CopyStatement(String),
    /// A statement that returns the plan.
    Plan(String),
}

impl DuckdbScript {
    /// Builds a script for a statement on these tables that writes the answer to the file `rows`.
    fn new(
        lake: &Lake,
        statement: &str,
        rows: &Path,
        explain: bool,
        wide: WideIntegers,
    ) -> DuckdbScript {
        let mut preparation = preparation(lake);
        let last = if explain {
            LastStatement::Plan(format!("EXPLAIN (ANALYZE, FORMAT JSON) {statement}"))
        } else {
            // The line break is needed because the statement may end with a comment.
            preparation.push(format!(
                "CREATE TEMP VIEW brunt_answer AS SELECT * FROM (\n{statement}\n)"
            ));
            LastStatement::CopyStatement(copy_statement(rows, wide))
        };
        DuckdbScript {
            secret: lake.secret.clone(),
            preparation,
            last,
        }
    }
}

/// How 128-bit integers are written to the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WideIntegers {
    /// As numbers of up to 38 digits; DuckDB fails with 39.
    Numbers,
    /// As text with all digits.
    Texts,
}

/// Type used for 128-bit integers that are written as numbers.
const NUMBERS: &str = "DECIMAL(38,0)";

/// A statement that returns the statement that writes the answer. DuckDB would write 128-bit integers as
/// floating-point numbers, intervals without microseconds and times of day without their zone, and would reject a few
/// other types, so each is cast to a type that preserves the whole value.
fn copy_statement(rows: &Path, wide: WideIntegers) -> String {
    let wide = match wide {
        WideIntegers::Numbers => NUMBERS,
        WideIntegers::Texts => "VARCHAR",
    };
    let file = quoted(&rows.to_string_lossy());
    // Quoted as a whole, because the SELECT below returns this part of the statement as a string.
    let to = quoted(&format!(
        " FROM brunt_answer) TO {file} (FORMAT parquet, COMPRESSION zstd)"
    ));
    format!(
        "SELECT 'COPY (SELECT ' || string_agg(CASE WHEN fits = column_type THEN name \
         ELSE 'CAST(' || name || ' AS ' || fits || ') AS ' || name END, ', ') || {to} AS statement \
         FROM (SELECT '\"' || replace(column_name, '\"', '\"\"') || '\"' AS name, column_type, \
         CASE WHEN starts_with(column_type, 'UNION') THEN 'VARCHAR' ELSE \
         regexp_replace(regexp_replace(column_type, '\\bU?HUGEINT\\b', '{wide}', 'g'), \
         '\\b(INTERVAL|BIT|BIGNUM|TIME WITH TIME ZONE)\\b', 'VARCHAR', 'g') END AS fits \
         FROM (DESCRIBE brunt_answer))"
    )
}

/// Quotes a string for SQL.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Quotes a string for the program's dot commands.
fn dot_quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Runs the program named by BRUNT_DUCKDB, if set. By default, runs the program `duckdb` if it supports nanoseconds,
/// otherwise the module, otherwise the program anyway.
pub fn ask(
    lake: &Lake,
    statement: &str,
    explain: bool,
    call: &EngineCall<'_>,
) -> Result<Answer, EngineError> {
    let ask = |wide| {
        let script = DuckdbScript::new(lake, statement, &call.rows, explain, wide);
        ask_script(&script, call)
    };
    match ask(WideIntegers::Numbers) {
        // This is rare: sums of 64-bit integers are 128 bits wide, but don't reach 39 digits.
        Err(EngineError::Refused { message, .. }) if is_too_wide(&message) => {
            ask(WideIntegers::Texts)
        }
        answer => answer,
    }
}

/// Whether DuckDB failed because a 128-bit integer has too many digits.
fn is_too_wide(message: &str) -> bool {
    message.contains("Conversion Error") && message.contains(NUMBERS)
}

fn ask_script(script: &DuckdbScript, call: &EngineCall<'_>) -> Result<Answer, EngineError> {
    match std::env::var_os("BRUNT_DUCKDB") {
        Some(program) => ask_program(&program, script, call)?.ok_or_else(|| {
            let tried = format!(
                "BRUNT_DUCKDB names {}, which does not exist",
                program.to_string_lossy()
            );
            EngineError::Missing {
                engine: SqlEngine::Duckdb,
                tried,
            }
        }),
        None => ask_any(script, call),
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

/// Whether a version, such as `v1.5.6 (…)` or `2.0.0`, reads times in nanoseconds, as they are stored.
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
        // These statements also print output, which isn't part of the answer.
        text += &format!(".output /dev/null\nINSTALL httpfs; LOAD httpfs;\n{secret};\n.output\n");
    }
    for statement in &script.preparation {
        text += &format!("{statement};\n");
    }
    text += &match &script.last {
        LastStatement::Plan(plan) => format!("{plan}\n;\n"),
        LastStatement::CopyStatement(statement) => {
            let file = dot_quoted(&call.scratch.path().join("copy.sql"));
            // `.once` writes a file, because `.read` needs one.
            format!(".mode list\n.headers off\n.once {file}\n{statement};\n.read {file}\n")
        }
    };
    // Ignore the user's settings, and stop at the first error.
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

/// What DuckDB read for a query.
#[derive(Clone, Debug, Default)]
pub struct PlanRead {
    /// Number of table scans.
    pub scans: u64,
    /// Number of files opened by the scans, in total.
    pub parts: u64,
    /// Bytes read; `None` if the system doesn't report them.
    pub bytes: Option<u64>,
}

impl PlanRead {
    /// Extracts the figures from the printed plan.
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

/// Adds the number of files that were opened according to a plan. The program prints the plan as it is, the module as
/// text in a row; the plan's structure differs between versions. The bytes read are taken from the script's counters,
/// because versions 1.5.5 and 1.5.6 report far too few.
fn add(name: &str, value: &Value, read: &mut PlanRead) {
    match value {
        Value::String(text) if name == "analyzed_plan" => {
            if let Ok(plan) = serde_json::from_str(text) {
                add("", &plan, read);
            }
        }
        // Numbers in a scan's extra information are given as strings.
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

    /// Plans of both versions, which contain the same values in different places.
    #[test]
    fn plans_of_both_versions_yield_the_same_counts() {
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
    fn nanoseconds_are_read_from_version_2_on() {
        assert!(reads_nanoseconds("2.0.0") && reads_nanoseconds("v10.1"));
        assert!(!reads_nanoseconds("v1.5.6 (Variegata) abc") && !reads_nanoseconds(""));
    }
}
