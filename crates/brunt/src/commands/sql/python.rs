//! Engines by their Python modules: one shipped script, which gets what to ask as JSON on its standard input.

use std::ffi::OsString;

use brunt_lake::ColumnKind;
use serde_json::{Value, json};

use super::engine::{Answer, EngineError, SqlEngine, run};
use super::lake::{Lake, plain};

const SCRIPT: &str = include_str!("engine.py");
/// Exit statuses of the script.
const MISSING: i32 = 10;
const REFUSED: i32 = 11;
const UNREACHABLE: i32 = 12;

/// Asks DuckDB's module.
pub fn ask_duckdb(views: &[String], statement: &str, explain: bool) -> Result<Answer, EngineError> {
    let request = json!({ "views": views, "statement": statement, "explain": explain });
    ask(SqlEngine::Duckdb, "there is no program `duckdb` on the PATH, and", &request)
}

/// Asks a Spark Connect server at `at`.
pub fn ask_spark(lake: &Lake, statement: &str, at: &str) -> Result<Answer, EngineError> {
    let tables = lake.tables.iter().map(|table| {
        let columns = table.table.columns.iter();
        let columns: Vec<_> = columns
            .filter(|column| !table.in_none.contains(&column.name))
            .map(|column| json!([column.name, column.kind == ColumnKind::Time]))
            .collect();
        let parts: Vec<_> = table.parts.iter().map(|part| plain(part)).collect();
        json!({ "name": table.table.name, "columns": columns, "parts": parts, "no_rows": table.no_rows(),
                "lacking": table.lacking(), "differ": !table.not_in_all.is_empty() })
    });
    let request = json!({ "at": at, "tables": tables.collect::<Vec<_>>(), "statement": statement });
    ask(SqlEngine::Spark, "its client is missing:", &request)
}

fn ask(engine: SqlEngine, tried: &str, request: &Value) -> Result<Answer, EngineError> {
    let python = std::env::var_os("BRUNT_PYTHON").unwrap_or_else(|| OsString::from("python3"));
    let name = python.to_string_lossy();
    let Some(ended) = run(&python, &["-c", SCRIPT, engine.name()], &request.to_string())? else {
        return Err(EngineError::Missing { engine, tried: format!("{tried} there is no program {name}") });
    };
    let message = ended.message;
    match ended.status {
        Some(0) => Answer::of(engine, &ended.answer),
        Some(MISSING) => {
            Err(EngineError::Missing { engine, tried: format!("{tried} {name} says: {message}") })
        }
        Some(REFUSED) => Err(EngineError::Refused { engine, message }),
        Some(UNREACHABLE) => Err(EngineError::Unreachable(message)),
        status => {
            let status = status.map_or("by a signal".into(), |status| format!("exit status {status}"));
            Err(EngineError::Ended { engine, status, message })
        }
    }
}
