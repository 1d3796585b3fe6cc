//! Child processes that the kernel kills when their parent ends, however the parent ends.
//!
//! A process can only request this for itself. So Brunt starts itself instead of the target program, makes the request,
//! and execs the target program: the kernel keeps the request across exec (prctl(2), PR_SET_PDEATHSIG), and none of our
//! code runs between fork and exec.

use std::env;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Holds the id of the parent to end with; the arguments are then a program and its arguments.
const MARK: &str = "BRUNT_ENDS_WITH";
/// Exit status if the program doesn't exist, as in shells and env(1).
pub const NOT_FOUND: u8 = 127;
/// Exit status if the system refuses to start it.
pub const NOT_STARTED: u8 = 126;

/// Why a process could not be bound to its parent.
#[derive(Debug, thiserror::Error)]
pub enum BoundError {
    /// The parent has already ended, so this process would outlive it.
    #[error("process {0}, which started this one, has ended")]
    ParentEnded(i32),
    /// The system refused the request.
    #[error("cannot make this process end with its parent: {0}")]
    Refused(#[from] io::Error),
}

/// Has the kernel end this process with its parent. Uses SIGKILL, the only signal that also ends a frozen process.
pub fn end_with(parent: i32) -> Result<(), BoundError> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    // The parent may have ended before the request was made.
    match getppid().map(Pid::as_raw_nonzero).map(i32::from) {
        Some(found) if found == parent => Ok(()),
        _ => Err(BoundError::ParentEnded(parent)),
    }
}

/// Starts a program that ends with this process. It leads a process group, so its own children can be ended with it.
/// Exit statuses [`NOT_FOUND`] and [`NOT_STARTED`] may mean that it didn't start; standard error then says why.
pub fn command(program: &OsStr) -> Command {
    // Not by its path: the file may have been replaced.
    let mut command = Command::new("/proc/self/exe");
    command
        .env(MARK, std::process::id().to_string())
        .arg(program)
        .process_group(0);
    command
}

/// Becomes the program named by the arguments, if this process was started for that. Returns an exit status on failure.
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
