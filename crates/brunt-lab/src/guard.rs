//! Cleans up faults that would outlive this process. A separate process waits until it is dismissed, or until this
//! process ends for any reason; in the latter case it undoes the fault.
//!
//! A program that uses the guard calls [`crate::helper::serve_if_asked`] first in `main`. The rule: the guard runs
//! before the fault is injected.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin};

use rustix::process::Signal;

use crate::netlink::Netlink;
use crate::process::{signal, started_ticks};
use crate::scratch;
use crate::start_again::{GUARD_MARK, start_again};

/// The guard's first line; a program that ignores [`GUARD_MARK`] prints something else.
const HELLO: &str = "brunt guard";
/// Dismisses the guard.
const DONE: &[u8] = b"done\n";

/// The fault to undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    /// Resumes the stopped process with this PID and start time.
    Thaw { pid: u32, started_ticks: u64 },
    /// Removes our queueing discipline from an interface.
    Qdisc { index: u32 },
    /// Removes a folder and everything in it.
    Folder { path: String },
}

impl Undo {
    fn written(&self) -> String {
        match self {
            Undo::Thaw { pid, started_ticks } => format!("thaw {pid} {started_ticks}"),
            Undo::Qdisc { index } => format!("qdisc {index} 0"),
            Undo::Folder { path } => format!("folder {path}"),
        }
    }

    fn read(text: &str) -> Option<Undo> {
        if let Some(path) = text.strip_prefix("folder ") {
            return Some(Undo::Folder {
                path: path.to_string(),
            });
        }
        let mut words = text.split(' ');
        let (what, first, second) = (words.next()?, words.next()?, words.next()?);
        let first = first.parse().ok()?;
        match what {
            "thaw" => Some(Undo::Thaw {
                pid: first,
                started_ticks: second.parse().ok()?,
            }),
            "qdisc" => Some(Undo::Qdisc { index: first }),
            _ => None,
        }
    }

    fn run(self) -> io::Result<()> {
        match self {
            Undo::Thaw {
                pid,
                started_ticks: started,
            } => {
                // Another process may have reused the PID, so the start time is compared.
                match started_ticks(pid) == Some(started) {
                    true => Ok(signal(pid, Signal::CONT)?),
                    false => Ok(()),
                }
            }
            Undo::Qdisc { index } => Netlink::open()?.remove_own_qdisc(index),
            Undo::Folder { path } => scratch::remove(Path::new(&path)),
        }
    }
}

/// Runs as a guard if this process was started as one, and returns the exit status.
pub(crate) fn serve_if_asked() -> Option<u8> {
    let undo = env::var(GUARD_MARK).ok()?;
    println!("{HELLO}");
    let mut told = Vec::new();
    // Invalid input doesn't dismiss the guard.
    let _ = io::stdin().take(DONE.len() as u64).read_to_end(&mut told);
    if told == DONE {
        return Some(0);
    }
    let undone = Undo::read(&undo).map_or(Err(io::ErrorKind::InvalidInput.into()), Undo::run);
    Some(u8::from(undone.is_err()))
}

/// A running guard. Dropping the guard makes it undo the fault.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Guard {
    /// Starts a guard.
    pub fn start(undo: Undo) -> io::Result<Guard> {
        let mut child = start_again(GUARD_MARK, &undo.written())?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("piped"));
        let mut guard = Guard { child, stdin };
        let mut hello = String::new();
        BufReader::new(stdout).read_line(&mut hello)?;
        if hello.trim_end() != HELLO {
            let _ = guard.child.kill();
            return Err(io::Error::other("the restarted program is not a guard"));
        }
        Ok(guard)
    }

    /// Ends the guard without undoing anything.
    pub fn dismiss(mut self) {
        if let Some(mut stdin) = self.stdin.take() {
            let _ = stdin.write_all(DONE);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{Pid, kill_process};

    use super::*;

    #[test]
    fn an_undo_order_round_trips() {
        let folder = Undo::Folder {
            path: "/tmp/two words".into(),
        };
        for undo in [
            Undo::Thaw {
                pid: 7,
                started_ticks: u64::MAX,
            },
            Undo::Qdisc { index: 3 },
            folder,
        ] {
            assert_eq!(Undo::read(&undo.written()), Some(undo));
        }
        assert_eq!(Undo::read("thaw x 1"), None);
        assert_eq!(Undo::read("reboot 1 1"), None);
    }

    /// A process that has reused the PID is left alone, whatever its state.
    #[test]
    fn a_process_with_a_reused_pid_is_not_resumed() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let started = started_ticks(pid).unwrap();
        kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
        let is_stopped = || brunt_core::ProcessStat::read(pid).unwrap().state == 'T';
        while !is_stopped() {
            std::thread::yield_now();
        }
        Undo::Thaw {
            pid,
            started_ticks: started + 1,
        }
        .run()
        .unwrap();
        assert!(is_stopped());
        Undo::Thaw {
            pid,
            started_ticks: started,
        }
        .run()
        .unwrap();
        assert!(!is_stopped());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
