//! Ends an interrupted benchmark whose current step takes too long: a measurement, a capture being generated, a peer
//! that doesn't answer.
//!
//! Started once by `brunt-bench`. The rule: a benchmark that checks [`crate::Console::is_interrupted`] in time ends by
//! itself; otherwise the processes that it started are killed and its files removed here, so that nothing is left
//! behind.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use brunt_lab::faults::kill_below;
use rustix::process::{getpid, set_child_subreaper};

/// How long a benchmark may take to end by itself after an interruption.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it may take once the programs that it was waiting for are gone.
const PATIENCE_ALONE: Duration = Duration::from_millis(500);
/// Interval between checks of the interruption flag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of attempts at removal, because the benchmark may still be writing.
const ROUNDS_MAX: usize = 20;

/// Files and folders that are removed when the program ends early.
static OURS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Locked for writing once no more programs may be started.
static STARTING: RwLock<()> = RwLock::new(());

/// Starts a program alongside this one.
pub(crate) trait Start {
    /// Like `spawn`, but blocks forever once this program is being ended: a program started then would be left behind.
    fn start(&mut self) -> io::Result<Child>;
}

impl Start for Command {
    fn start(&mut self) -> io::Result<Child> {
        let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
        self.spawn()
    }
}

/// A file or folder that is removed on drop, or when the program is ended by this module.
#[derive(Debug)]
pub(crate) struct Temporary(PathBuf);

impl Temporary {
    /// Registers a path for removal; it may not exist yet.
    pub fn new(path: PathBuf) -> Temporary {
        ours().insert(path.clone());
        Temporary(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // If this fails, removal is left to the system's cleanup.
        remove(&self.0);
        ours().remove(&self.0);
    }
}

fn ours() -> std::sync::MutexGuard<'static, BTreeSet<PathBuf>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remove(path: &Path) {
    let _ = match path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
}

/// Starts the thread that waits for an interruption. If the benchmark hasn't ended some time later, the thread kills
/// everything that this process has started. If that doesn't end the benchmark either, it removes the benchmark's files
/// and calls `end`, which ends the program.
///
/// # Errors
/// The thread cannot be created.
pub fn end_if_interrupted(
    interrupted: std::sync::Arc<AtomicBool>,
    end: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    // Processes whose parent has ended, such as daemons, become our children rather than the system's.
    let _ = set_child_subreaper(Some(getpid()));
    let wait = move || {
        while !interrupted.load(Ordering::Relaxed) {
            std::thread::sleep(POLL_INTERVAL);
        }
        std::thread::sleep(PATIENCE);
        // A thread that doesn't expect its programs to be killed would end this process with the exit status for a
        // bug.
        std::panic::set_hook(Box::new(|_| {
            loop {
                std::thread::park();
            }
        }));
        kill_below(std::process::id());
        std::thread::sleep(PATIENCE_ALONE);
        let _starting = STARTING.write().unwrap_or_else(PoisonError::into_inner);
        kill_below(std::process::id());
        remove_all();
        end();
    };
    std::thread::Builder::new()
        .name("ending".into())
        .spawn(wait)
        .map(drop)
}

/// Removes everything temporary; repeatedly, because the benchmark may still be writing.
fn remove_all() {
    for _ in 0..ROUNDS_MAX {
        let paths: Vec<PathBuf> = ours()
            .iter()
            .filter(|path| path.exists())
            .cloned()
            .collect();
        if paths.is_empty() {
            return;
        }
        paths.iter().for_each(|path| remove(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = Temporary::new(folder.path().join("file"));
        let inner = Temporary::new(folder.path().join("inner"));
        fs::write(file.path(), "x").unwrap();
        fs::create_dir(inner.path()).unwrap();
        fs::write(inner.path().join("file"), "x").unwrap();
        let paths = [file.path().to_path_buf(), inner.path().to_path_buf()];
        assert!(paths.iter().all(|path| ours().contains(path)));
        drop((file, inner));
        assert!(
            paths
                .iter()
                .all(|path| !path.exists() && !ours().contains(path))
        );
    }
}
