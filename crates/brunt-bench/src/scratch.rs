//! A folder for the files of a measurement, used by every bench that writes any. The one rule: it is removed with its
//! owner, also when the measurement fails.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::BenchError;

/// A folder that is removed with its owner.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new folder of the bench called `bench`, in `parent` or among the system's temporary files.
    ///
    /// # Errors
    /// It cannot be made there.
    pub fn new(parent: Option<&Path>, bench: &str) -> Result<Scratch, BenchError> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let name = format!("brunt-bench-{bench}-{}", std::process::id());
        let made = fs::create_dir_all(&parent).and_then(|()| unused(&parent, &name));
        // Programs that are measured may run in folders of their own.
        let made = made.and_then(|folder| folder.canonicalize());
        made.map(Scratch)
            .map_err(|error| BenchError::usage(format!("{}: {error}", parent.join(name).display())))
    }

    /// A path in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Makes a folder of this name, or of one with a number where an earlier process with the same id has left its own: in a
/// process namespace ids begin anew each time.
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
    unreachable!("a folder has no room for so many others")
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is left to the system's cleaning.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_its_owner_and_never_takes_another_ones_folder() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(Some(parent.path()), "x").unwrap();
        fs::write(scratch.join("file"), "x").unwrap();
        let other = Scratch::new(Some(parent.path()), "x").unwrap();
        assert!(scratch.join("file").exists() && !other.join("file").exists());
        drop((scratch, other));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
