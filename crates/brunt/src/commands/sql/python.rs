//! Runs engines through their Python modules, with a bundled script that receives the query as JSON on standard
//! input.

use std::ffi::OsString;

use serde_json::{Value, json};

use super::duckdb::{DuckdbScript, LastStatement};
use super::engine::{Answer, EngineCall, EngineError, SqlEngine, run};
use super::lake::{Lake, LakeColumn, plain};

const SCRIPT: &str = include_str!("engine.py");
/// Exit statuses of the script.
const MISSING: i32 = 10;
const REFUSED: i32 = 11;
const UNREACHABLE: i32 = 12;

/// Queries DuckDB's Python module.
pub fn ask_duckdb(script: &DuckdbScript, call: &EngineCall<'_>) -> Result<Answer, EngineError> {
    let (copy, plan) = match &script.last {
        LastStatement::CopyStatement(statement) => (Some(statement), None),
        LastStatement::Plan(statement) => (None, Some(statement)),
    };
    let request = json!({ "secret": script.secret, "preparation": script.preparation, "copy": copy, "plan": plan });
    ask(
        SqlEngine::Duckdb,
        "`duckdb` is not on the PATH, and",
        &request,
        call,
    )
}

/// Queries a Spark Connect server at `at`.
pub fn ask_spark(
    lake: &Lake,
    statement: &str,
    at: &str,
    call: &EngineCall<'_>,
) -> Result<Answer, EngineError> {
    let tables = lake.tables.iter().map(|table| {
        let groups = table.groups.iter().map(|group| {
            let columns: Vec<_> = table
                .columns(group)
                .map(
                    |LakeColumn {
                         name,
                         is_time,
                         absent,
                     }| json!([name, is_time, absent]),
                )
                .collect();
            let parts: Vec<_> = group.files.iter().map(|part| plain(part)).collect();
            json!({ "columns": columns, "has_twins": group.has_twins, "parts": parts,
                    "differ": !group.not_in_all.is_empty() })
        });
        let groups = groups.collect::<Vec<_>>();
        json!({ "name": table.table.name, "groups": groups, "no_rows": table.no_rows() })
    });
    let request = json!({ "at": at, "tables": tables.collect::<Vec<_>>(), "statement": statement,
                          "rows": call.rows });
    ask(SqlEngine::Spark, "its client is missing:", &request, call)
}

fn ask(
    engine: SqlEngine,
    tried: &str,
    request: &Value,
    call: &EngineCall<'_>,
) -> Result<Answer, EngineError> {
    // Pass the script as a file, so that process listings stay short.
    let script = call.scratch.path().join("engine.py");
    std::fs::write(&script, SCRIPT).map_err(|source| EngineError::Io {
        path: script.display().to_string(),
        source,
    })?;
    let python = std::env::var_os("BRUNT_PYTHON").unwrap_or_else(|| OsString::from("python3"));
    let name = python.to_string_lossy();
    let Some(ended) = run(
        &python,
        &[script.as_os_str(), engine.name().as_ref()],
        &request.to_string(),
        call.output,
    )?
    else {
        return Err(EngineError::Missing {
            engine,
            tried: format!("{tried} {name} was not found"),
        });
    };
    let message = ended.message;
    match ended.status {
        Some(0) => Answer::of(engine, &ended.printed, &call.rows),
        Some(MISSING) => Err(EngineError::Missing {
            engine,
            tried: format!("{tried} {name} says: {message}"),
        }),
        Some(REFUSED) => Err(EngineError::Refused { engine, message }),
        Some(UNREACHABLE) => Err(EngineError::Unreachable(message)),
        status => {
            let status = status.map_or("by a signal".into(), |status| {
                format!("exit status {status}")
            });
            Err(EngineError::Ended {
                engine,
                status,
                message,
            })
        }
    }
}
