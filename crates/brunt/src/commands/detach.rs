//! `brunt run --detach`: runs the experiment in a second process, in a new session, so that nothing that happens to
//! the terminal affects it. Called by `run` before it opens anything.
//!
//! The rule: mistakes are still reported in the terminal. This process waits until the other one has started or
//! failed, and reports the outcome.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use brunt_result::summary;
use brunt_study::results::ClaimedFolder;
use brunt_web::api::{OUTPUT_FILE, PROGRESS_FILE};
use rustix::process::{Pid, Signal, kill_process, setsid};
use serde_json::json;

use crate::cli::{Done, Failure, Output};

/// How often to check whether the other process has started.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs the experiment given on the command line in a process that outlives the terminal, with results in `folder`.
pub(super) fn start(claimed: ClaimedFolder, output: &Output) -> Done {
    let failed = |what: &str, error: io::Error| Failure::failed(format!("{what}: {error}"));
    let folder = &claimed.path().to_path_buf();
    let file = |name: &str| {
        let path = folder.join(name);
        private_file(&path).map_err(|error| failed(&path.display().to_string(), error))
    };
    let (stdout, stderr) = (file(OUTPUT_FILE)?, file(PROGRESS_FILE)?);
    let program =
        std::env::current_exe().map_err(|error| failed("cannot find this program", error))?;
    let mut child = Command::new(program)
        .args(arguments(std::env::args_os().skip(1), folder))
        // Pass on the folder's lock, which that process holds for as long as it lives.
        .stdin(claimed.hand_over().map_or_else(Stdio::null, Stdio::from))
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .map_err(|error| failed("cannot start a second process of this program", error))?;
    wait_for_begin(&mut child, folder, output)?;
    let pid = child.id();
    output.line(format_args!(
        "process {pid} runs the experiment; 'kill {pid}' ends it like Ctrl-C"
    ));
    output.line(format_args!(
        "results in {}; output goes to {OUTPUT_FILE} in that folder, progress to {PROGRESS_FILE}",
        folder.display()
    ));
    output.object(&json!({
        "pid": pid,
        "folder": folder,
        "output": folder.join(OUTPUT_FILE),
        "progress": folder.join(PROGRESS_FILE),
    }));
    Ok(())
}

/// Creates or truncates a file that only its owner can read: progress includes the live page's address and token.
fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).mode(0o600).open(path)?;
    // Restrict the permissions of an existing file before anything is written to it.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.set_len(0)?;
    Ok(file)
}

/// Called in the new process: detaches it from the terminal.
pub(super) fn leave_terminal() {
    // Ignore the error: setsid fails only for the leader of a process group, and a newly started process isn't one.
    let _ = setsid();
}

/// The arguments for the other process, which writes to `folder`.
fn arguments(given: impl Iterator<Item = OsString>, folder: &Path) -> Vec<OsString> {
    let given: Vec<OsString> = given.collect();
    let names_folder = |word: &OsString| {
        let word = word.as_encoded_bytes();
        word.starts_with(b"--out=") || word == b"--out" || word.starts_with(b"-o")
    };
    let has_folder = given.iter().any(names_folder);
    let changed = given.into_iter().map(|word| {
        if word == "--detach" {
            "--detached".into()
        } else {
            word
        }
    });
    let mut arguments: Vec<OsString> = changed.collect();
    if !has_folder {
        arguments.extend(["--out".into(), folder.into()]);
    }
    arguments
}

/// Waits until the experiment's summary exists; it is written once everything is open.
fn wait_for_begin(child: &mut Child, folder: &Path, output: &Output) -> Done {
    loop {
        // The order matters: a short experiment may end between the two checks.
        let ended = child.try_wait().map_err(Failure::failed)?;
        if folder.join(summary::FILE_NAME).exists() {
            return Ok(());
        }
        if let Some(status) = ended {
            let progress = std::fs::read_to_string(folder.join(PROGRESS_FILE)).unwrap_or_default();
            let what = format!(
                "the experiment did not start ({status}): {}",
                progress.trim()
            );
            return Err(if status.code() == Some(2) {
                Failure::usage(what)
            } else {
                Failure::failed(what)
            });
        }
        if output.is_interrupted() {
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::TERM);
            }
            return Err(Failure::failed(
                "interrupted before the experiment started; the process was stopped",
            ));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_process_gets_the_same_command() {
        let check = |given: &[&str], expected: &[&str]| {
            let found = arguments(given.iter().map(OsString::from), Path::new("x.results"));
            assert_eq!(
                found,
                expected.iter().map(OsString::from).collect::<Vec<_>>()
            );
        };
        check(
            &["run", "x.toml", "--detach"],
            &["run", "x.toml", "--detached", "--out", "x.results"],
        );
        check(
            &["run", "--out", "y", "x.toml", "--detach"],
            &["run", "--out", "y", "x.toml", "--detached"],
        );
        check(
            &["run", "-o", "y", "x.toml", "--detach"],
            &["run", "-o", "y", "x.toml", "--detached"],
        );
        check(
            &["run", "--detach", "--out=y", "x.toml"],
            &["run", "--detached", "--out=y", "x.toml"],
        );
    }
}
