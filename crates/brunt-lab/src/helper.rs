//! Runs a second instance of this program for work that must not be done in the measuring process: filling memory
//! holds the locks of the address space for seconds, and every thread in that space waits.
//!
//! A program that uses [`crate::faults::MemoryHog`] calls [`serve_if_asked`] first in `main`. The rule: a helper ends
//! when its standard input is closed, so it also ends when the program that started it dies.

use std::env;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus};

use crate::faults::disk;
use crate::guard;
use crate::process::status_bytes;
use crate::service;
use crate::start_again::{MEMORY_MARK, start_again};
use crate::sys::{LockedMemory, is_hung_up, raise_priority};

/// The helper's first line, by which it is recognized; a program that doesn't call [`serve_if_asked`] prints
/// something else.
const HELLO: &str = "brunt memory helper";
/// Bytes locked at a time: a helper that is asked to end does so after locking at most this much.
const CHUNK_BYTES: usize = 16 << 20;
/// Lowest priority, so that the measured processes go first.
const NICE: i32 = 19;

/// Runs as a helper, guard, disk probe or service keeper if this process was
/// started as one, and returns the exit status.
pub fn serve_if_asked() -> Option<u8> {
    let others = guard::serve_if_asked().or_else(service::serve_if_asked);
    if let Some(status) = others.or_else(disk::serve_if_asked) {
        return Some(status);
    }
    let bytes = env::var(MEMORY_MARK).ok()?;
    let stdout = io::stdout();
    let mut say = |what: &dyn Display| writeln!(&stdout, "{what}").and_then(|()| (&stdout).flush());
    let done = say(&HELLO).and_then(|()| match bytes.parse() {
        Ok(bytes) => lock(bytes, &mut say),
        Err(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    });
    match done {
        Ok(()) => Some(0),
        Err(error) => {
            // The parent may be gone.
            let _ = say(&format_args!(
                "error {}",
                error.raw_os_error().unwrap_or(libc::EIO)
            ));
            Some(1)
        }
    }
}

/// Locks `bytes`, reports how many the kernel counts, and holds them until standard input ends.
fn lock(bytes: usize, say: &mut dyn FnMut(&dyn Display) -> io::Result<()>) -> io::Result<()> {
    // An error is ignored: the priority only lets the measured processes go first.
    let _ = raise_priority(NICE);
    let mut memory = LockedMemory::reserve(bytes)?;
    while memory.lock_more(CHUNK_BYTES)? {
        if is_hung_up(io::stdin())? {
            return Ok(());
        }
    }
    say(&format_args!("locked {}", locked("self").unwrap_or(0)))?;
    io::copy(&mut io::stdin(), &mut io::sink()).map(drop)
}

/// Bytes that a process has locked, according to the kernel.
fn locked(process: impl Display) -> Option<u64> {
    status_bytes(process, "VmLck:")
}

/// A process that holds locked memory. Dropping the helper ends its process.
#[derive(Debug)]
pub(crate) struct MemoryHelper {
    child: Child,
    /// The helper holds the memory as long as this is open.
    stdin: Option<ChildStdin>,
    reported_bytes: u64,
}

impl MemoryHelper {
    /// Starts a helper, and waits until it holds all memory.
    pub(crate) fn start(bytes: u64) -> io::Result<MemoryHelper> {
        let mut child = start_again(MEMORY_MARK, &bytes.to_string())?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("piped"));
        let mut helper = MemoryHelper {
            child,
            stdin,
            reported_bytes: 0,
        };
        helper.reported_bytes = hear(stdout)?;
        Ok(helper)
    }

    /// Bytes that the helper holds, according to the kernel.
    pub(crate) fn locked_bytes(&self) -> u64 {
        locked(self.child.id()).unwrap_or(self.reported_bytes)
    }

    /// The exit status, if the helper ended on its own or was killed.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Ends the helper, and waits until the helper and its memory are gone.
    pub(crate) fn end(mut self) -> io::Result<()> {
        self.stdin = None;
        self.child.wait().map(drop)
    }
}

impl Drop for MemoryHelper {
    fn drop(&mut self) {
        self.stdin = None;
        // Kills the helper in case it no longer reads its input.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the number of locked bytes that a helper reports.
fn hear(stdout: ChildStdout) -> io::Result<u64> {
    let mut lines = BufReader::new(stdout).lines();
    if lines.next().transpose()?.as_deref() != Some(HELLO) {
        return Err(io::Error::other("the restarted program is not a helper"));
    }
    let line = lines.next().transpose()?.unwrap_or_default();
    match line.split_once(' ') {
        Some(("locked", bytes)) => bytes.parse().map_err(io::Error::other),
        Some(("error", number)) => Err(number
            .parse()
            .map_or_else(io::Error::other, io::Error::from_raw_os_error)),
        _ => Err(io::Error::other(
            "the helper ended before it had locked its memory",
        )),
    }
}
