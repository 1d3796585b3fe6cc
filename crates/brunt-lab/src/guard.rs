//! Takes away what would outlive this process: a process of its own that waits until we say that there is nothing left to
//! do, or until we are gone, however that happens, and then undoes it.
//!
//! A program that uses it calls [`crate::helper::serve_if_asked`] first of all in `main`. The rule: a guard stands before the
//! fault is put in.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin};

use rustix::process::Signal;

use crate::helper::start_again;
use crate::netlink::Netlink;
use crate::process::{signal, started_ticks};
use crate::scratch;

/// Tells a process that it is a guard, and of what.
pub(crate) const MARK: &str = "BRUNT_GUARD";
/// Its first word; a program that does not look for [`MARK`] says something else.
const HELLO: &str = "brunt guard";
/// It has nothing left to do.
const DONE: &[u8] = b"done\n";

/// What is undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    /// A stopped process goes on: the one of this number that was started then.
    Thaw { pid: u32, started_ticks: u64 },
    /// An interface loses our queueing discipline.
    Qdisc { index: u32 },
    /// A folder goes with all that is in it.
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
                // Another process may have the number by now.
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

/// Does a guard's work if this process is one; the status to end with then.
pub(crate) fn serve_if_asked() -> Option<u8> {
    let undo = env::var(MARK).ok()?;
    println!("{HELLO}");
    let mut told = Vec::new();
    // Whatever is wrong with the input, nobody says that there is nothing to do.
    let _ = io::stdin().take(DONE.len() as u64).read_to_end(&mut told);
    if told == DONE {
        return Some(0);
    }
    let undone = Undo::read(&undo).map_or(Err(io::ErrorKind::InvalidInput.into()), Undo::run);
    Some(u8::from(undone.is_err()))
}

/// A guard that stands. Dropping it has it undo what it is for.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Guard {
    /// Starts one.
    pub fn start(undo: Undo) -> io::Result<Guard> {
        let mut child = start_again(MARK, &undo.written())?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("piped"));
        let mut guard = Guard { child, stdin };
        let mut hello = String::new();
        BufReader::new(stdout).read_line(&mut hello)?;
        if hello.trim_end() != HELLO {
            let _ = guard.child.kill();
            return Err(io::Error::other(
                "the program that was started again is no guard",
            ));
        }
        Ok(guard)
    }

    /// There is nothing left to undo.
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
    fn what_is_undone_survives_its_way() {
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

    /// A process whose number was given to another one is left alone, whatever state it is in.
    #[test]
    fn only_the_process_that_was_stopped_is_resumed() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let started = started_ticks(pid).unwrap();
        kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
        let is_stopped = || {
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .unwrap()
                .contains(") T ")
        };
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
