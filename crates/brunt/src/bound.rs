//! Starts programs that end when their parent does, however it ends, along with everything they started.
//!
//! The kernel's PR_SET_PDEATHSIG (prctl(2)) covers only the direct child, which may be a script that starts the real
//! program. So Brunt starts itself as a guard process in between: the guard leads a process group, starts the program
//! in it, and kills the group when Brunt ends.

use std::env;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpgrp, getpid, getppid, kill_current_process_group, pidfd_open,
    set_parent_process_death_signal,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Environment variable with the id of the parent process; this process ends when the parent does. If set, the
/// arguments are the program to run and its arguments.
const MARK: &str = "BRUNT_ENDS_WITH";
/// Exit status if the program doesn't exist, as used by shells and env(1).
pub const NOT_FOUND: u8 = 127;
/// Exit status if the program can't be started.
pub const NOT_STARTED: u8 = 126;

/// Why a process could not be bound to its parent.
#[derive(Debug, thiserror::Error)]
pub enum BoundError {
    /// The parent has already ended, so this process would outlive it.
    #[error("process {0}, which started this one, has ended")]
    ParentEnded(i32),
    /// A system call failed.
    #[error("cannot tie this process to its parent: {0}")]
    Refused(#[from] io::Error),
}

/// Asks the kernel to kill this process when its parent ends. With SIGKILL, because no other signal ends a frozen
/// process.
pub fn end_with(parent: i32) -> Result<(), BoundError> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    // The parent may have ended before the call above.
    match getppid().map(Pid::as_raw_nonzero).map(i32::from) {
        Some(found) if found == parent => Ok(()),
        _ => Err(BoundError::ParentEnded(parent)),
    }
}

/// Starts a program that ends with this process, as does everything it starts in its process group. The returned
/// child is the group's guard, and exits with the program's status. Exit statuses [`NOT_FOUND`] and [`NOT_STARTED`]
/// may mean that the program didn't start; standard error then says why.
pub fn command(program: &OsStr) -> Command {
    // Use /proc/self/exe, not the path: the file may have been replaced.
    let mut command = Command::new("/proc/self/exe");
    command
        .env(MARK, std::process::id().to_string())
        .arg(program)
        .process_group(0);
    command
}

/// Runs as a guard if this process was started as one. Returns the exit status.
pub fn guard_if_asked() -> Option<u8> {
    let parent = env::var(MARK).ok()?;
    let mut words = env::args_os().skip(1);
    let program = words.next()?;
    let parent = parent.parse().ok().and_then(Pid::from_raw);
    let guarded = match parent {
        Some(parent) => guard(parent, Command::new(&program).args(words)),
        None => Err(io::Error::from(ErrorKind::InvalidInput)),
    };
    let error = match guarded {
        Ok(status) => return Some(status),
        Err(error) => error,
    };
    let _ = writeln!(io::stderr(), "{}: {error}", program.to_string_lossy());
    Some(match error.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_STARTED,
    })
}

/// Runs a program and exits with its status; kills this process's group when the parent has ended.
fn guard(parent: Pid, command: &mut Command) -> io::Result<u8> {
    // Signals to the group are meant for the program, so the guard ignores them. It uses handlers, because unlike
    // SIG_IGN the program doesn't inherit them.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    let above = pidfd_open(parent, PidfdFlags::empty())?;
    if getppid() != Some(parent) {
        // The parent has ended, and its id may have been reused: the descriptor may refer to another process.
        let parent = parent.as_raw_nonzero().get();
        return Err(io::Error::other(BoundError::ParentEnded(parent)));
    }
    let mut child = command.env_remove(MARK).spawn()?;
    let below = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    loop {
        let mut ends = [&above, &below].map(|end| PollFd::new(end, PollFlags::IN));
        match poll(&mut ends, None) {
            Ok(_) if !ends[1].revents().is_empty() => break,
            Ok(_) => {
                let _ = child.kill();
                if getpgrp() == getpid() {
                    kill_current_process_group(Signal::KILL)?;
                }
                break;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let status = child.wait()?;
    if let Some(signal) = status.signal() {
        signal_hook::low_level::emulate_default_handler(signal)?;
    }
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(NOT_STARTED))
}
