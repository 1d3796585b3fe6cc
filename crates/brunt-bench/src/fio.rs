//! fio as a contestant: its version, and a run with its answer. Used by the benches that measure against it.
//!
//! The rule: jobs are threads. A forked job calls `setsid()`, and where `kernel.sched_autogroup_enabled` is 1, each session
//! has its own share of the CPU; Brunt shares one with a lab's links.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::BenchError;

/// What `fio --version` says.
///
/// # Errors
/// fio is not installed.
pub fn version() -> Result<String, BenchError> {
    let said = Command::new("fio").arg("--version").output();
    said.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_string())
        .map_err(|error| {
            BenchError::failed(format!("cannot run fio: {error}"))
                .advise("install it: apt-get install fio")
        })
}

/// Whether fio is there and has an engine.
pub fn has_engine(name: &str) -> bool {
    let engines = Command::new("fio").arg("--enghelp").output();
    engines.is_ok_and(|said| {
        String::from_utf8_lossy(&said.stdout)
            .split_whitespace()
            .any(|engine| engine == name)
    })
}

/// Runs one job and gives what fio says of it.
///
/// # Errors
/// fio cannot be run, or its answer is no JSON.
pub fn run(arguments: &[String]) -> Result<Value, BenchError> {
    run_with(arguments, &[])
}

/// The same with variables of its environment.
///
/// # Errors
/// As for [`run`].
pub fn run_with(arguments: &[String], environment: &[(&str, &Path)]) -> Result<Value, BenchError> {
    let mut fio = Command::new("fio");
    fio.args(["--name=x", "--thread", "--output-format=json"])
        .args(arguments)
        .envs(environment.iter().copied());
    let said = fio.output();
    let said = said.map_err(|error| BenchError::failed(format!("cannot run fio: {error}")))?;
    let text = String::from_utf8_lossy(&said.stdout);
    // Warnings may come before the answer.
    let answer: Value = serde_json::from_str(text.get(text.find('{').unwrap_or(0)..).unwrap_or(""))
        .map_err(|_| {
            BenchError::failed(format!("fio: {}", String::from_utf8_lossy(&said.stderr)))
        })?;
    Ok(answer["jobs"][0].clone())
}
