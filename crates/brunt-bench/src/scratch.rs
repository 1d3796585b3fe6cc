//! A folder for the files of a measurement, used by every benchmark that writes files.
//!
//! The rule: the folder is removed on drop, even if the measurement fails or is interrupted.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::BenchError;
use crate::cleanup::Temporary;

/// A folder that is removed on drop.
pub struct Scratch(Temporary);

impl Scratch {
    /// Creates a folder for the benchmark `bench`, in `parent` or in the system's temporary folder.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn new(parent: Option<&Path>, bench: &str) -> Result<Scratch, BenchError> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let name = format!("brunt-bench-{bench}-{}", std::process::id());
        let made = fs::create_dir_all(&parent).and_then(|()| unused(&parent, &name));
        // Absolute, because programs under test may run in other working directories.
        let made = made.and_then(|folder| folder.canonicalize());
        made.map(|folder| Scratch(Temporary::new(folder)))
            .map_err(|error| BenchError::usage(format!("{}: {error}", parent.join(name).display())))
    }

    /// A path in the folder.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Creates a folder with this name. A number is appended if an earlier process with the same PID has left one behind:
/// in a PID namespace, PIDs start over each time.
fn unused(parent: &Path, name: &str) -> io::Result<PathBuf> {
    let mut folder = parent.join(name);
    for number in 2.. {
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                folder = parent.join(format!("{name}-{number}"));
            }
            other => return other.map(|()| folder),
        }
    }
    unreachable!("more subfolders than a folder can have")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_folder_is_removed_and_never_shared() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(Some(parent.path()), "x").unwrap();
        fs::write(scratch.join("file"), "x").unwrap();
        let other = Scratch::new(Some(parent.path()), "x").unwrap();
        assert!(scratch.join("file").exists() && !other.join("file").exists());
        drop((scratch, other));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
