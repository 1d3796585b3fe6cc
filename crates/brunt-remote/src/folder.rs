//! The local side of a move: finds the parts in a folder, the lake they belong to, and the processes that are working
//! in the folder.
//!
//! A folder and its destination carry the same mark, a small file with a random number. So parts of two folders never
//! mix under one prefix, and a move that resumes after a crash recognizes its destination.

use std::collections::VecDeque;
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use brunt_core::FileLock;
use brunt_lake::catalog::CATALOG_FOLDER;

use crate::error::RemoteError;
use crate::mover::{PartSource, Waiting};

/// File name of the mark, in folders and below prefixes. Spark doesn't read files with such a name as data.
pub const MARK_NAME: &str = "_brunt-lake.json";
/// Maximum size of a mark.
pub(crate) const MARK_BYTES_MAX: usize = 4096;
/// Suffix of parts; a part that is still being written has a different one.
const PART_SUFFIX: &str = ".parquet";
/// Locked while parts are moved or written. The folder itself isn't locked, because readers of tables lock it.
const LOCK_NAME: &str = ".moves";
/// Locked while a lake is copied: one copy at a time.
const PUSH_LOCK_NAME: &str = ".pushes";
/// Exists in a folder if some of its parts may exist only in a store.
const MOVED_NAME: &str = ".moved";
/// Maximum depth of nested folders: tables, days, hours, servers.
const DEPTH_MAX: usize = 8;

/// A complete part in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPart {
    /// The file.
    pub path: PathBuf,
    /// Its path below the folder, with slashes: the last part of its key.
    pub relative: String,
    /// Its size.
    pub bytes: u64,
}

impl LocalPart {
    /// A file in a folder. `None` if its name isn't a valid key.
    pub fn new(folder: &Path, path: PathBuf, bytes: u64) -> Option<LocalPart> {
        let segments = path.strip_prefix(folder).ok()?.components();
        let segments: Option<Vec<&str>> = segments
            .map(|segment| segment.as_os_str().to_str())
            .collect();
        let relative = segments?.join("/");
        crate::address::is_safe_path(&relative).then_some(LocalPart {
            path,
            relative,
            bytes,
        })
    }
}

/// Whether this path below a lake is that of a complete part.
pub fn is_part(relative: &str) -> bool {
    relative.contains('/') && relative.ends_with(PART_SUFFIX)
}

/// The complete parts in a folder, ordered by name, and the files that have a part's name but can't be sent: symbolic
/// links, and names that aren't valid keys.
///
/// # Errors
/// The folder cannot be read or was compacted.
pub fn parts(folder: &Path) -> Result<(Vec<LocalPart>, Vec<PathBuf>), RemoteError> {
    if folder.join(CATALOG_FOLDER).exists() {
        return Err(RemoteError::Compacted {
            path: folder.to_path_buf(),
        });
    }
    let (mut parts, mut odd) = (Vec::new(), Vec::new());
    let mut folders = vec![(folder.to_path_buf(), 0)];
    while let Some((here, depth)) = folders.pop() {
        for entry in std::fs::read_dir(&here).map_err(RemoteError::io(&here))? {
            let entry = entry.map_err(RemoteError::io(&here))?;
            let (path, kind) = (
                entry.path(),
                entry.file_type().map_err(RemoteError::io(&here))?,
            );
            if kind.is_dir() && depth < DEPTH_MAX {
                folders.push((path, depth + 1));
                continue;
            }
            let is_named_so = path
                .extension()
                .is_some_and(|extension| extension == "parquet");
            if !is_named_so || depth == 0 {
                continue;
            }
            let bytes = entry.metadata().map_err(RemoteError::io(&path))?.len();
            match LocalPart::new(folder, path.clone(), bytes).filter(|_| kind.is_file()) {
                Some(part) => parts.push(part),
                None => odd.push(path),
            }
        }
    }
    parts.sort_by(|a, b| a.relative.cmp(&b.relative));
    odd.sort();
    Ok((parts, odd))
}

/// The parts of a folder without a writer, to be moved one by one.
#[derive(Debug)]
pub struct FolderSource {
    left: VecDeque<LocalPart>,
    bytes_left: u64,
}

impl FolderSource {
    /// All parts that exist now.
    pub fn new(parts: Vec<LocalPart>) -> FolderSource {
        let bytes_left = parts.iter().map(|part| part.bytes).sum();
        FolderSource {
            left: parts.into(),
            bytes_left,
        }
    }

    /// The remaining parts, in order.
    pub fn parts(&self) -> impl Iterator<Item = &LocalPart> {
        self.left.iter()
    }
}

impl PartSource for FolderSource {
    fn claim(&mut self) -> Option<LocalPart> {
        self.left.front().cloned()
    }

    fn delete(&mut self, part: &LocalPart) -> io::Result<()> {
        std::fs::remove_file(&part.path)
    }

    fn done(&mut self, part: &LocalPart) {
        if self.left.front() == Some(part) {
            self.left.pop_front();
            self.bytes_left -= part.bytes;
        }
    }

    fn waiting(&self) -> Waiting {
        Waiting {
            parts: self.left.len() as u64,
            bytes: self.bytes_left,
        }
    }
}

/// A file's size, modification time and inode, to detect whether it is still the file that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
    inode: u64,
}

impl Stamp {
    pub fn of(path: &Path) -> io::Result<Stamp> {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(path)?;
        Ok(Stamp {
            bytes: metadata.len(),
            modified: metadata.modified().ok(),
            inode: metadata.ino(),
        })
    }
}

/// Identifies the lake that parts belong to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LakeMark {
    /// A random number in hexadecimal.
    pub lake: String,
}

impl LakeMark {
    /// The mark of a folder, if it has one.
    ///
    /// # Errors
    /// The mark cannot be read.
    pub fn read(folder: &Path) -> Result<Option<LakeMark>, RemoteError> {
        let path = folder.join(MARK_NAME);
        match std::fs::read(&path) {
            Ok(bytes) => LakeMark::parse(&bytes, || path.display().to_string()).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(RemoteError::io(&path)(error)),
        }
    }

    /// The mark of a folder, which is created if it doesn't exist.
    ///
    /// # Errors
    /// The mark cannot be read or written.
    pub fn read_or_make(folder: &Path) -> Result<LakeMark, RemoteError> {
        if let Some(mark) = LakeMark::read(folder)? {
            return Ok(mark);
        }
        let mut number = [0; 16];
        getrandom::fill(&mut number)
            .map_err(|error| RemoteError::io(folder)(io::Error::other(error)))?;
        let mark = LakeMark {
            lake: format!("{:032x}", u128::from_be_bytes(number)),
        };
        mark.write(folder)?;
        Ok(mark)
    }

    /// Durably marks a folder. The store is marked next, and its mark must not outlive the folder's.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn write(&self, folder: &Path) -> Result<(), RemoteError> {
        let (path, open) = (
            folder.join(MARK_NAME),
            folder.join(format!("{MARK_NAME}.open")),
        );
        let write = || {
            let mut file = File::create(&open)?;
            file.write_all(&self.to_bytes())?;
            file.sync_all()?;
            std::fs::rename(&open, &path)?;
            File::open(folder)?.sync_all()
        };
        write().map_err(RemoteError::io(&path))
    }

    pub(crate) fn parse(
        bytes: &[u8],
        place: impl FnOnce() -> String,
    ) -> Result<LakeMark, RemoteError> {
        let mark: Option<LakeMark> = serde_json::from_slice(bytes).ok();
        let is_number = |mark: &LakeMark| {
            mark.lake.len() == 32 && mark.lake.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        mark.filter(is_number)
            .ok_or_else(|| RemoteError::Mark { place: place() })
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        format!("{{\"lake\": \"{}\"}}\n", self.lake).into_bytes()
    }
}

/// Records that parts of a folder may exist only in a store from now on, so that reading only the folder would miss
/// them.
///
/// # Errors
/// The folder cannot be written to.
pub fn note_moved(folder: &Path) -> Result<(), RemoteError> {
    let path = folder.join(MOVED_NAME);
    let note = || {
        File::create(&path)?.sync_all()?;
        File::open(folder)?.sync_all()
    };
    note().map_err(RemoteError::io(&path))
}

/// Whether [`note_moved`] was called and the parts have not all been fetched since.
pub fn is_moved(folder: &Path) -> bool {
    folder.join(MOVED_NAME).exists()
}

/// Records that all parts are in the folder again.
pub(crate) fn forget_moved(folder: &Path) -> Result<(), RemoteError> {
    let path = folder.join(MOVED_NAME);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(RemoteError::io(&path)(error)),
        _ => Ok(()),
    }
}

/// Keeps other processes out of a folder while parts are written or moved there. Released when the process ends.
#[derive(Debug)]
pub struct FolderLock(
    #[allow(dead_code, reason = "the lock is held until dropped")] Option<FileLock>,
);

impl FolderLock {
    /// Takes the lock for adding or removing parts, which excludes all other processes.
    ///
    /// # Errors
    /// The folder is in use, or doesn't exist.
    pub fn exclusive(folder: &Path) -> Result<FolderLock, RemoteError> {
        FolderLock::take(folder, FileLock::try_exclusive)
    }

    /// Takes the lock for working alongside other holders of a shared lock while no parts are moved, as a capture
    /// without moves or a compaction does.
    ///
    /// # Errors
    /// As for [`FolderLock::exclusive`].
    pub fn shared(folder: &Path) -> Result<FolderLock, RemoteError> {
        FolderLock::take(folder, FileLock::try_shared)
    }

    /// Takes the lock for copying the folder's lake, which others may compact in the meantime; held together with
    /// [`FolderLock::shared`].
    ///
    /// # Errors
    /// As for [`FolderLock::exclusive`].
    pub fn pushing(folder: &Path) -> Result<FolderLock, RemoteError> {
        FolderLock::take_named(folder, PUSH_LOCK_NAME, FileLock::try_exclusive)
    }

    fn take(
        folder: &Path,
        lock: impl FnOnce(File) -> Result<FileLock, TryLockError>,
    ) -> Result<FolderLock, RemoteError> {
        FolderLock::take_named(folder, LOCK_NAME, lock)
    }

    fn take_named(
        folder: &Path,
        name: &str,
        lock: impl FnOnce(File) -> Result<FileLock, TryLockError>,
    ) -> Result<FolderLock, RemoteError> {
        let path = folder.join(name);
        let file = match File::options().create(true).append(true).open(&path) {
            Ok(file) => file,
            // If nothing can be written, nothing can be moved either.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                return Ok(FolderLock(None));
            }
            Err(error) => return Err(RemoteError::io(&path)(error)),
        };
        match lock(file) {
            Ok(lock) => Ok(FolderLock(Some(lock))),
            Err(TryLockError::WouldBlock) => Err(RemoteError::Busy {
                path: folder.to_path_buf(),
            }),
            // No locks on this file system: a mover checks each file before deleting it anyway.
            Err(TryLockError::Error(_)) => Ok(FolderLock(None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A process that inherited the open file, such as a forked child until it calls exec, doesn't hold the lock.
    #[test]
    fn a_lock_ends_with_its_holder() {
        let folder = TempDir::new().unwrap();
        let lock = FolderLock::exclusive(folder.path()).unwrap();
        assert!(FolderLock::exclusive(folder.path()).is_err());
        let _child = lock
            .0
            .as_ref()
            .expect("a file system with locks")
            .try_clone()
            .unwrap();
        drop(lock);
        FolderLock::exclusive(folder.path()).unwrap();
    }

    #[test]
    fn only_complete_parts_are_found() {
        let folder = TempDir::new().unwrap();
        let put = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        };
        for name in [
            "operations/part-000001.parquet",
            "operations/part-000000.parquet",
            "operations/date=2026-11-25/part-000000.parquet",
            "operations/part-000002.parquet.open",
            "stray.parquet",
            "summary.json",
            MARK_NAME,
        ] {
            put(name);
        }
        std::os::unix::fs::symlink(
            "part-000000.parquet",
            folder.path().join("operations/link.parquet"),
        )
        .unwrap();
        let (parts, odd) = parts(folder.path()).unwrap();
        let names: Vec<_> = parts.iter().map(|part| part.relative.as_str()).collect();
        assert_eq!(
            names,
            [
                "operations/date=2026-11-25/part-000000.parquet",
                "operations/part-000000.parquet",
                "operations/part-000001.parquet"
            ]
        );
        assert_eq!(
            parts[1].bytes,
            "operations/part-000000.parquet".len() as u64
        );
        assert_eq!(odd, [folder.path().join("operations/link.parquet")]);
        put("_catalog/v00000001.json");
        let refused = super::parts(folder.path());
        assert!(
            matches!(refused, Err(RemoteError::Compacted { .. })),
            "{refused:?}"
        );
    }

    #[test]
    fn a_mark_stays_and_a_broken_one_is_named() {
        let folder = TempDir::new().unwrap();
        assert_eq!(LakeMark::read(folder.path()).unwrap(), None);
        let mark = LakeMark::read_or_make(folder.path()).unwrap();
        assert_eq!(LakeMark::read_or_make(folder.path()).unwrap(), mark);
        std::fs::write(folder.path().join(MARK_NAME), "{\"lake\": 3}").unwrap();
        let refused = LakeMark::read_or_make(folder.path());
        assert!(
            matches!(refused, Err(RemoteError::Mark { .. })),
            "{refused:?}"
        );
    }

    #[test]
    fn moving_parts_excludes_all_other_processes() {
        let folder = TempDir::new().unwrap();
        let capture = FolderLock::shared(folder.path()).unwrap();
        let compaction = FolderLock::shared(folder.path()).unwrap();
        assert!(matches!(
            FolderLock::exclusive(folder.path()),
            Err(RemoteError::Busy { .. })
        ));
        drop((capture, compaction));
        let _mover = FolderLock::exclusive(folder.path()).unwrap();
        assert!(matches!(
            FolderLock::shared(folder.path()),
            Err(RemoteError::Busy { .. })
        ));
    }
}
