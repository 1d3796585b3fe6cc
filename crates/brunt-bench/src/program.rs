//! Finds the program under test, `brunt`, which is not the program that measures.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::error::BenchError;

/// The path of `brunt`, which is in the same folder as this program. If `cargo run` started this program, `brunt` is
/// built first with the same profile, so that the measured version is up to date.
///
/// # Errors
/// `brunt` doesn't exist, or cannot be built.
pub fn brunt() -> Result<PathBuf, BenchError> {
    static FOUND: OnceLock<Result<PathBuf, BenchError>> = OnceLock::new();
    FOUND.get_or_init(find).clone()
}

fn find() -> Result<PathBuf, BenchError> {
    let own = std::env::current_exe()
        .map_err(|error| BenchError::failed(format!("cannot find this program: {error}")))?;
    let folder = own.parent().unwrap_or(&own);
    let release = folder.file_name().is_some_and(|name| name == "release");
    let build = match release {
        true => "cargo build --release -p brunt",
        false => "cargo build -p brunt",
    };
    let is_cargo_run = std::env::var("CARGO_PKG_NAME").is_ok_and(|name| name == "brunt-bench");
    if let Some(cargo) = std::env::var_os("CARGO").filter(|_| is_cargo_run) {
        let built = Command::new(cargo)
            .args(build.split(' ').skip(1))
            .arg("--quiet")
            .arg("--manifest-path")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
            .status();
        if !built.is_ok_and(|status| status.success()) {
            return Err(BenchError::failed(format!("{build} failed")));
        }
    }
    let program = folder.join("brunt");
    match program.exists() {
        true => Ok(program),
        false => Err(
            BenchError::usage(format!("{} does not exist", program.display()))
                .advise(format!("build the program to measure: {build}")),
        ),
    }
}
