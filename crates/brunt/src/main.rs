//! The command line: arguments, progress, exit codes. Contains no storage logic.
//!
//! Start reading at [`commands`]: each command is one file and one line in its table. [`cli`] contains what commands
//! share: `--json`, errors with advice, exit status, Ctrl-C.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)] // `cli::Output` survives a closed pipe; `println!` panics.

mod bound;
mod bridge_capture;
mod cli;
mod commands;
mod dashboard;
mod devices;
mod host_figures;
mod lab;
mod live;
mod lone_run;
mod metrics;
mod plain;

fn main() -> std::process::ExitCode {
    if let Some(status) = bound::guard_if_asked() {
        return std::process::ExitCode::from(status);
    }
    if let Some(status) = brunt_lab::helper::serve_if_asked() {
        return std::process::ExitCode::from(status);
    }
    cli::main()
}
