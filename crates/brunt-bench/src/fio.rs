//! fio as a contestant: finds its version, runs it and parses its output. Used by benchmarks that compare Brunt with
//! it.
//!
//! The rule: fio's jobs run as threads. A forked job would call `setsid()`, and if `kernel.sched_autogroup_enabled`
//! is 1, each session gets its own share of the CPU, whereas Brunt shares one with a lab's links.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::BenchError;

/// The output of `fio --version`.
///
/// # Errors
/// fio is not installed.
pub fn version() -> Result<String, BenchError> {
    version_of(Path::new("fio"))
}

/// The output of `--version` of the fio at this path.
///
/// # Errors
/// There is no fio at this path.
pub fn version_of(program: &Path) -> Result<String, BenchError> {
    let output = Command::new(program).arg("--version").output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string())
        .map_err(|error| {
            BenchError::failed(format!("cannot run {}: {error}", program.display()))
                .advise("install it: apt-get install fio")
        })
}

/// Whether fio is installed and has this engine.
pub fn has_engine(name: &str) -> bool {
    let engines = Command::new("fio").arg("--enghelp").output();
    engines.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout)
            .split_whitespace()
            .any(|engine| engine == name)
    })
}

/// Runs a single job and returns its part of fio's output.
///
/// # Errors
/// fio cannot be run, or its output is not JSON.
pub fn run(arguments: &[String]) -> Result<Value, BenchError> {
    run_program(Path::new("fio"), arguments, &[])
}

/// Like [`run`], with the fio at this path and additional environment variables.
///
/// # Errors
/// fio cannot be run, or its output is not JSON.
pub fn run_program(
    program: &Path,
    arguments: &[String],
    environment: &[(&str, &Path)],
) -> Result<Value, BenchError> {
    let mut fio = Command::new(program);
    fio.args(["--name=x", "--thread", "--output-format=json"])
        .args(arguments)
        .envs(environment.iter().copied());
    Ok(answer_of(&mut fio)?["jobs"][0].clone())
}

/// Runs fio, or a program that prints the same JSON, and returns the JSON.
///
/// # Errors
/// The program cannot be run, or its output is not JSON.
pub fn answer_of(command: &mut Command) -> Result<Value, BenchError> {
    let output = command.stdin(Stdio::null()).output();
    let name = Path::new(command.get_program()).display().to_string();
    let output =
        output.map_err(|error| BenchError::failed(format!("cannot run {name}: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // Warnings may precede the JSON.
    serde_json::from_str(text.get(text.find('{').unwrap_or(0)..).unwrap_or("")).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        BenchError::failed(format!("{name}: {said}"))
    })
}
