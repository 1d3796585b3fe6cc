//! This program started again for work that must not be done in the process that measures: filling memory holds the
//! locks of its own address space for seconds, and every thread in that space waits.
//!
//! A program that uses [`crate::faults::MemoryHog`] calls [`serve_if_asked`] first of all in `main`. The rule: a helper
//! ends when the program that started it closes its standard input, so also when that program dies.

use std::env;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use crate::faults::disk;
use crate::guard;
use crate::process::status_bytes;
use crate::service;
use crate::sys::{LockedMemory, is_hung_up, raise_priority};

/// Tells a process that it is a helper, and how many bytes to lock.
const MARK: &str = "BRUNT_LOCK_BYTES";
/// Its first word; a program that does not call [`serve_if_asked`] says something else.
const HELLO: &str = "brunt memory helper";
/// Locked at a time, in bytes: a helper that is to end does so after this much.
const CHUNK_BYTES: usize = 16 << 20;
/// Least priority of all: what is measured goes first.
const NICE: i32 = 19;

/// Does a helper's work if this process is one, or a guard's, a disk probe's, or that of a service's keeper; the status to
/// end with then.
pub fn serve_if_asked() -> Option<u8> {
    let others = guard::serve_if_asked().or_else(service::serve_if_asked);
    if let Some(status) = others.or_else(disk::serve_if_asked) {
        return Some(status);
    }
    let bytes = env::var(MARK).ok()?;
    let stdout = io::stdout();
    let mut say = |what: &dyn Display| writeln!(&stdout, "{what}").and_then(|()| (&stdout).flush());
    let done = say(&HELLO).and_then(|()| match bytes.parse() {
        Ok(bytes) => lock(bytes, &mut say),
        Err(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    });
    match done {
        Ok(()) => Some(0),
        Err(error) => {
            // Nobody may be there to hear it.
            let _ = say(&format_args!(
                "error {}",
                error.raw_os_error().unwrap_or(libc::EIO)
            ));
            Some(1)
        }
    }
}

/// Locks so many bytes, says how many the kernel counts, and holds them until standard input ends.
fn lock(bytes: usize, say: &mut dyn FnMut(&dyn Display) -> io::Result<()>) -> io::Result<()> {
    // Refused only where priorities mean nothing.
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

/// Bytes that a process has locked, as the kernel counts.
fn locked(process: impl Display) -> Option<u64> {
    status_bytes(process, "VmLck:")
}

/// Starts this program again for what `mark` stands for, with its input and output piped.
pub(crate) fn start_again(mark: &str, value: &str) -> io::Result<Child> {
    // A program that does not call `serve_if_asked` would do its work again, and start the next one.
    if [MARK, guard::MARK, disk::MARK]
        .iter()
        .any(|mark| env::var_os(mark).is_some())
    {
        return Err(io::Error::other(
            "this process is a helper and starts no others",
        ));
    }
    // Not by its path: the file of a program that was copied to a host is removed already.
    Command::new("/proc/self/exe")
        .env(mark, value)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // Ctrl-C and the end of a session are for the program, which ends its helpers, and whose faults are undone.
        .process_group(0)
        .spawn()
}

/// A process that holds locked memory. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct MemoryHelper {
    child: Child,
    /// It holds the memory as long as this is open.
    stdin: Option<ChildStdin>,
    reported_bytes: u64,
}

impl MemoryHelper {
    /// Starts one, and waits until it holds all.
    pub(crate) fn start(bytes: u64) -> io::Result<MemoryHelper> {
        let mut child = start_again(MARK, &bytes.to_string())?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("piped"));
        let mut helper = MemoryHelper {
            child,
            stdin,
            reported_bytes: 0,
        };
        helper.reported_bytes = hear(stdout)?;
        Ok(helper)
    }

    /// Bytes that it holds, by the kernel's count.
    pub(crate) fn locked_bytes(&self) -> u64 {
        locked(self.child.id()).unwrap_or(self.reported_bytes)
    }

    /// How it ended, if somebody else ended it.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Has it end, and waits until it is gone with all that it held.
    pub(crate) fn end(mut self) -> io::Result<()> {
        self.stdin = None;
        self.child.wait().map(drop)
    }
}

impl Drop for MemoryHelper {
    fn drop(&mut self) {
        self.stdin = None;
        // One that does not look at its input any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The bytes that a helper says it has locked.
fn hear(stdout: ChildStdout) -> io::Result<u64> {
    let mut lines = BufReader::new(stdout).lines();
    if lines.next().transpose()?.as_deref() != Some(HELLO) {
        return Err(io::Error::other(
            "the program that was started again is no helper",
        ));
    }
    let line = lines.next().transpose()?.unwrap_or_default();
    match line.split_once(' ') {
        Some(("locked", bytes)) => bytes.parse().map_err(io::Error::other),
        Some(("error", number)) => Err(number
            .parse()
            .map_or_else(io::Error::other, io::Error::from_raw_os_error)),
        _ => Err(io::Error::other(
            "the helper ended before it held its memory",
        )),
    }
}
