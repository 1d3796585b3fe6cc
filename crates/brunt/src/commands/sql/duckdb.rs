//! DuckDB: the program, or else its Python module. Views over lists of parts, then the statement.

use std::ffi::OsString;
use std::iter;

use brunt_lake::reader::SoundParts;
use brunt_lake::twins::twin_name;
use serde_json::Value;

use super::engine::{Answer, EngineError, PlanRead, SqlEngine, run};
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

/// Asks the program that BRUNT_DUCKDB names. Without one: the program `duckdb` if it reads nanoseconds, or the module,
/// or else the program as it is.
pub fn ask(lake: &Lake, statement: &str, explain: bool) -> Result<Answer, EngineError> {
    let preparation = preparation(lake);
    let (preparation, secret) = (&preparation[..], lake.secret.as_deref());
    let asked = if explain {
        format!("EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
    } else {
        statement.into()
    };
    let answer = match std::env::var_os("BRUNT_DUCKDB") {
        Some(program) => ask_program(&program, preparation, secret, &asked)?.ok_or_else(|| {
            let tried = format!(
                "BRUNT_DUCKDB names {}, which is not there",
                program.to_string_lossy()
            );
            EngineError::Missing {
                engine: SqlEngine::Duckdb,
                tried,
            }
        }),
        None => ask_any(preparation, secret, &asked, explain),
    }?;
    if !explain {
        return Ok(answer);
    }
    let mut read = PlanRead::default();
    answer
        .rows
        .iter()
        .flat_map(|row| &row.0)
        .for_each(|(name, value)| add(name, value, &mut read));
    read.bytes = read
        .bytes
        .or(answer.plan.as_ref().and_then(|plan| plan.bytes));
    Ok(Answer {
        plan: Some(read),
        ..answer
    })
}

fn ask_any(
    preparation: &[String],
    secret: Option<&str>,
    asked: &str,
    explain: bool,
) -> Result<Answer, EngineError> {
    let program = OsString::from(SqlEngine::Duckdb.name());
    let version = run(&program, &["--version"], "")?;
    let version = version.map(|ended| String::from_utf8_lossy(&ended.answer).into_owned());
    if version.as_deref().is_some_and(reads_nanoseconds)
        && let Some(answer) = ask_program(&program, preparation, secret, asked)?
    {
        return Ok(answer);
    }
    match python::ask_duckdb(preparation, secret, asked, explain) {
        Err(missing @ EngineError::Missing { .. }) => {
            // An older program is better than none.
            ask_program(&program, preparation, secret, asked)?.ok_or(missing)
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
    program: &OsString,
    preparation: &[String],
    secret: Option<&str>,
    asked: &str,
) -> Result<Option<Answer>, EngineError> {
    let mut script = String::from("SELECT version() AS version;\n");
    if let Some(secret) = secret {
        // These answer, too.
        script += &format!(".output /dev/null\nINSTALL httpfs; LOAD httpfs;\n{secret};\n.output\n");
    }
    preparation
        .iter()
        .for_each(|view| script += &format!("{view};\n"));
    script += asked;
    script += "\n;\n";
    // Nobody's own settings, and an end at the first mistake.
    let options = ["-init", "/dev/null", "-batch", "-bail", "-jsonlines"];
    let Some(ended) = run(program, &options, &script)? else {
        return Ok(None);
    };
    match ended.status {
        Some(0) => {
            let plan = Some(PlanRead {
                bytes: ended.bytes_read,
                ..PlanRead::default()
            });
            Answer::of(SqlEngine::Duckdb, &ended.answer)
                .map(|answer| Some(Answer { plan, ..answer }))
        }
        Some(_) => Err(EngineError::Refused {
            engine: SqlEngine::Duckdb,
            message: ended.message,
        }),
        None => {
            let status = "by a signal".to_string();
            Err(EngineError::Ended {
                engine: SqlEngine::Duckdb,
                status,
                message: ended.message,
            })
        }
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
            let row: super::super::rows::AnswerRow = serde_json::from_str(row).unwrap();
            let mut read = PlanRead::default();
            row.0
                .iter()
                .for_each(|(name, value)| add(name, value, &mut read));
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
