//! Processes that end with the one that started them, however that ends.
//!
//! A process can only ask for that itself. So this program is started in place of another one, asks, and becomes the
//! other: the kernel keeps the request across exec (prctl(2), PR_SET_PDEATHSIG), and no code of ours runs between fork
//! and exec.

use std::env;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Tells a process which one it ends with, and that its arguments are a program and that program's arguments.
const MARK: &str = "BRUNT_ENDS_WITH";
/// Exit status if there is no such program, as of shells and of env(1).
pub const NOT_FOUND: u8 = 127;
/// Exit status if the system refuses to start it.
pub const NOT_STARTED: u8 = 126;

/// Why a process is not bound to its parent.
#[derive(Debug, thiserror::Error)]
pub enum BoundError {
    /// It would live on.
    #[error("process {0}, which started this one, has ended")]
    ParentEnded(i32),
    /// The system refuses.
    #[error("this process cannot be ended with the one that started it: {0}")]
    Refused(#[from] io::Error),
}

/// Has the kernel end this process with its parent. SIGKILL, because a frozen process takes no other.
pub fn end_with(parent: i32) -> Result<(), BoundError> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    // It may have ended before that was asked.
    match getppid().map(Pid::as_raw_nonzero).map(i32::from) {
        Some(found) if found == parent => Ok(()),
        _ => Err(BoundError::ParentEnded(parent)),
    }
}

/// Starts a program that ends with this process. It leads a process group, so that whatever it starts can be ended with
/// it. Exit statuses [`NOT_FOUND`] and [`NOT_STARTED`] may mean that it did not start; standard error says why then.
pub fn command(program: &OsStr) -> Command {
    // Not by its path: the file may have been replaced.
    let mut command = Command::new("/proc/self/exe");
    command
        .env(MARK, std::process::id().to_string())
        .arg(program)
        .process_group(0);
    command
}

/// Becomes the program that the arguments name, if this process was started for that; returns the exit status if that
/// fails.
pub fn exec_if_asked() -> Option<u8> {
    let parent = env::var(MARK).ok()?;
    let mut words = env::args_os().skip(1);
    let program = words.next()?;
    let bound = match parent.parse() {
        Ok(parent) => end_with(parent),
        Err(_) => Err(io::Error::from(ErrorKind::InvalidInput).into()),
    };
    let error = match bound {
        Ok(()) => Command::new(&program).args(words).env_remove(MARK).exec(),
        Err(error) => io::Error::other(error),
    };
    let _ = writeln!(io::stderr(), "{}: {error}", program.to_string_lossy());
    Some(match error.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_STARTED,
    })
}
