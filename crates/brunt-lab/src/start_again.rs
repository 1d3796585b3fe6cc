//! Starts another instance of this program in a certain role, and defines the environment variables that give a
//! process its role. The module of each role contains what its process does; [`crate::helper::serve_if_asked`]
//! selects it.
//!
//! The rule: a process with a role doesn't start others.

use std::env;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Marks a process that holds memory; the value is the number of bytes to lock.
pub(crate) const MEMORY_MARK: &str = "BRUNT_LOCK_BYTES";
/// Marks a process as a guard; the value is what to undo.
pub(crate) const GUARD_MARK: &str = "BRUNT_GUARD";
/// Marks a process as a disk probe; the value is the folder it writes to.
pub(crate) const DISK_PROBE_MARK: &str = "BRUNT_DISK_PROBE";

/// Starts this program in the role of `mark`, with its input and output piped.
pub(crate) fn start_again(mark: &str, value: &str) -> io::Result<Child> {
    // A program that doesn't call `helper::serve_if_asked` would run normally and start another helper.
    if [MEMORY_MARK, GUARD_MARK, DISK_PROBE_MARK]
        .iter()
        .any(|mark| env::var_os(mark).is_some())
    {
        return Err(io::Error::other(
            "this process is a helper and cannot start others",
        ));
    }
    // This doesn't use the program's path: if the program was copied to a host, its file has already been removed.
    Command::new("/proc/self/exe")
        .env(mark, value)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // Ctrl-C and the end of a session only reach the program, which ends its helpers and undoes its faults.
        .process_group(0)
        .spawn()
}
