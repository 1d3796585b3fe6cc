//! Creates the tree of a load on the server, and removes it. One call at a time, on a separate
//! connection.
//!
//! ```text
//! brunt-7c5e…/w0/d0/f0 f1 … l     a worker's directories with their files, the same in all runs
//!            /w0/c0f/f0 f1 …      files that the first run creates, renames and removes
//!            /w0/c0d/d0 d1 …      directories that it makes and removes
//! ```
//!
//! The rule: only what this load created is removed; if a server lists more than that, removal
//! stops.

use std::sync::Arc;
use std::time::Instant;

use brunt_nfs::connect::random_xid;
use brunt_nfs::conversation::NfsConversation;
use brunt_nfs::url::NfsVersion;
use brunt_nfs::{NfsConnectError, NfsFolder};
use brunt_wire::FileData;
use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v3::{
    Args, CreateHow, DirOp, FileType, Procedure, ResultBody, Results, SetAttributes, StableHow,
    Status,
};
use brunt_wire::nfs::v4::FILE_HANDLE_BYTES_MAX;

use super::call::{DIR_MODE, FILE_MODE, address, name};
use super::op::NfsOp;
use super::settings::NfsSettings;
use crate::block::seeded::Pattern;
use crate::file_sizes::FileSizeSampler;

/// Maximum length of a handle, that of NFSv4 (RFC 8881, 3.1); NFSv3 handles are shorter.
const HANDLE_BYTES_MAX: usize = FILE_HANDLE_BYTES_MAX as usize;
/// Size of the WRITE calls that fill files, if the server accepts them.
const FILL_BYTES: u32 = 64 << 10;
/// Size of a reply that lists a directory.
const LIST_BYTES: u32 = 32 << 10;
/// Maximum depth of directories when the tree is removed.
pub(crate) const DEPTH_MAX: u32 = 4;
/// Maximum number of successive READDIR replies without names before removal fails.
const EMPTY_LISTS_MAX: u32 = 16;

/// Why the tree could not be created or removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NfsTreeError {
    /// The server doesn't answer, or broke the protocol.
    #[error(transparent)]
    Server(#[from] NfsConnectError),
    /// The server rejected a call.
    #[error(
        "{place}: {operation}: the server returned {}{}",
        .version.status_text(*.status),
        advice(*.status),
        operation = .procedure.name()
    )]
    Refused {
        place: String,
        version: NfsVersion,
        procedure: Procedure,
        status: Status,
    },
    /// The server lists removed files or more files than were created, or a listing doesn't end.
    #[error("{0}: the server lists more files than were created there")]
    Endless(String),
    /// A handle that is too long, or results of another call.
    #[error("{0}: {1}: the server's answer has no usable handle")]
    NoHandle(String, &'static str),
    /// The tree could not be removed, so it still exists.
    #[error("{place}{name} could not be removed; remove it by hand: {source}")]
    Left {
        place: String,
        name: String,
        source: Box<NfsTreeError>,
    },
    /// The run was stopped.
    #[error("interrupted while files were created on the server")]
    Stopped,
}

fn advice(status: Status) -> &'static str {
    match status.0 {
        1 | 13 => "; set a user with write permission in the URL: uid= and gid=",
        30 => "; the load creates a tree there, so the export has to be writable",
        _ => "",
    }
}

fn refused(folder: &NfsFolder, procedure: Procedure, status: Status) -> NfsTreeError {
    NfsTreeError::Refused {
        place: folder.name().to_string(),
        version: folder.version(),
        procedure,
        status,
    }
}

/// A file handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnedHandle {
    len: u8,
    bytes: [u8; HANDLE_BYTES_MAX],
}

impl OwnedHandle {
    pub(crate) fn of(handle: &[u8]) -> Option<OwnedHandle> {
        let mut bytes = [0; HANDLE_BYTES_MAX];
        bytes.get_mut(..handle.len())?.copy_from_slice(handle);
        Some(OwnedHandle {
            len: handle.len() as u8,
            bytes,
        })
    }

    pub(crate) fn as_handle(&self) -> FileHandle<'_> {
        FileHandle(&self.bytes[..usize::from(self.len)])
    }
}

/// A worker's part of the tree.
#[derive(Debug)]
pub(crate) struct WorkerTree {
    root: OwnedHandle,
    pub(crate) directories: Vec<OwnedHandle>,
    /// The files of the first directory, then those of the second, and so on.
    pub(crate) files: Vec<OwnedHandle>,
    /// One symbolic link per directory, if READLINK is used.
    pub(crate) links: Vec<OwnedHandle>,
    files_of_directory: usize,
}

impl WorkerTree {
    /// Returns the directory of a file, and the file's number in that directory.
    pub(crate) fn place_of(&self, file: usize) -> (usize, usize) {
        (
            file / self.files_of_directory,
            file % self.files_of_directory,
        )
    }
}

/// The directories in which a worker creates names during a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunFolder {
    pub(crate) files: OwnedHandle,
    pub(crate) directories: OwnedHandle,
}

/// The tree of a load.
#[derive(Debug)]
pub(crate) struct NfsTree {
    pub(crate) name: String,
    pub(crate) workers: Vec<Arc<WorkerTree>>,
}

impl NfsTree {
    /// Creates the tree, all workers' parts in parallel.
    pub(crate) fn make(
        folder: &NfsFolder,
        settings: &NfsSettings,
        workers: u32,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<NfsTree, NfsTreeError> {
        let mut maker = TreeMaker::new(folder, stop)?;
        let name = format!("brunt-{:08x}{:08x}", random_xid().0, random_xid().0);
        let place = OwnedHandle::of(&folder.place().handle)
            .ok_or_else(|| NfsTreeError::NoHandle(folder.name().to_string(), "MNT"))?;
        let base = maker.directory(&place, name.as_bytes())?;
        let parts: Vec<Result<WorkerTree, NfsTreeError>> = std::thread::scope(|scope| {
            let part = |worker| {
                scope.spawn(move || TreeMaker::new(folder, stop)?.worker(&base, settings, worker))
            };
            let threads: Vec<_> = (0..workers).map(part).collect();
            let joined = threads.into_iter().map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            joined.collect()
        });
        let parts: Result<Vec<WorkerTree>, NfsTreeError> = parts.into_iter().collect();
        match parts {
            Ok(parts) => Ok(NfsTree {
                name,
                workers: parts.into_iter().map(Arc::new).collect(),
            }),
            Err(error) => {
                // The reason why the tree could not be created matters more than an error while removing it.
                let _ = NfsTree::remove(folder, &name, most(settings, workers, 0), DEPTH_MAX);
                Err(error)
            }
        }
    }

    /// Removes a tree that had at most this many entries, in directories at most this deep.
    pub(crate) fn remove(
        folder: &NfsFolder,
        name: &str,
        entries_max: u64,
        depth_max: u32,
    ) -> Result<(), NfsTreeError> {
        NfsTree::try_to_remove(folder, name, (entries_max, depth_max)).map_err(|error| {
            NfsTreeError::Left {
                place: folder.name().to_string(),
                name: name.to_string(),
                source: Box::new(error),
            }
        })
    }

    fn try_to_remove(
        folder: &NfsFolder,
        name: &str,
        (entries_max, depth_max): (u64, u32),
    ) -> Result<(), NfsTreeError> {
        let mut maker = TreeMaker::new(folder, &|| false)?;
        maker.left = entries_max;
        let place = OwnedHandle::of(&folder.place().handle)
            .ok_or_else(|| NfsTreeError::NoHandle(folder.name().to_string(), "MNT"))?;
        let (base, _) = maker.look_up(&place, name.as_bytes())?;
        maker.clear(&base, depth_max)?;
        maker.remove_entry(&place, name.as_bytes(), true)
    }
}

/// Returns the maximum number of entries in a tree after this many runs: a run leaves at most twice its initial
/// number of names, plus those in flight.
pub(crate) fn most(settings: &NfsSettings, workers: u32, runs: u64) -> u64 {
    let names = 4 * u64::from(settings.names) + 2 * u64::from(brunt_nfs::calls::DEPTH_MAX);
    let worker = settings.files_of_worker() + 2 * u64::from(settings.directories) + 1;
    u64::from(workers) * (worker + runs * (names + 2)) + 1
}

/// Creates and removes files, one call at a time.
pub(crate) struct TreeMaker<'a> {
    folder: &'a NfsFolder,
    nfs: NfsConversation,
    stop: &'a (dyn Fn() -> bool + Sync),
    name: Vec<u8>,
    data: Vec<u8>,
    /// How many more entries may be removed.
    left: u64,
}

impl<'a> TreeMaker<'a> {
    pub(crate) fn new(
        folder: &'a NfsFolder,
        stop: &'a (dyn Fn() -> bool + Sync),
    ) -> Result<TreeMaker<'a>, NfsTreeError> {
        Ok(TreeMaker {
            folder,
            nfs: folder.converse(folder.timeout())?,
            stop,
            name: Vec::new(),
            data: Vec::new(),
            left: 0,
        })
    }

    /// Sends a call, and returns its status and results.
    pub(crate) fn ask(&mut self, args: &Args<'_>) -> Result<Results<'_>, NfsTreeError> {
        if (self.stop)() {
            return Err(NfsTreeError::Stopped);
        }
        self.nfs
            .set_deadline(Instant::now() + self.folder.timeout());
        Ok(self.nfs.nfs(args)?)
    }

    /// Sends a call that has to succeed.
    pub(crate) fn call(&mut self, args: &Args<'_>) -> Result<ResultBody<'_>, NfsTreeError> {
        let folder = self.folder;
        match self.ask(args)? {
            Results {
                status: Status::OK,
                body,
            } => Ok(body),
            Results { status, .. } => Err(refused(folder, args.procedure(), status)),
        }
    }

    pub(crate) fn refused(&self, procedure: Procedure, status: Status) -> NfsTreeError {
        refused(self.folder, procedure, status)
    }

    pub(crate) fn no_handle(&self, procedure: Procedure) -> NfsTreeError {
        NfsTreeError::NoHandle(self.folder.name().to_string(), procedure.name())
    }

    /// Sends a call that creates `name` in `dir`, and returns its handle.
    pub(crate) fn create(
        &mut self,
        args: &Args<'_>,
        place: DirOp<'_>,
    ) -> Result<OwnedHandle, NfsTreeError> {
        let made = match self.call(args)? {
            ResultBody::Created { object, .. } => {
                object.and_then(|object| OwnedHandle::of(object.0))
            }
            _ => None,
        };
        match made {
            Some(handle) => Ok(handle),
            // The handle is optional (RFC 1813, 3.3.8).
            None => {
                let Some(dir) = OwnedHandle::of(place.dir.0) else {
                    return Err(self.no_handle(args.procedure()));
                };
                self.look_up(&dir, place.name).map(|(handle, _)| handle)
            }
        }
    }

    /// Looks a name up; returns its handle, and whether it is a directory.
    fn look_up(
        &mut self,
        dir: &OwnedHandle,
        name: &[u8],
    ) -> Result<(OwnedHandle, bool), NfsTreeError> {
        let what = DirOp {
            dir: dir.as_handle(),
            name,
        };
        let found = match self.call(&Args::Lookup { what })? {
            ResultBody::Lookup { object, .. } => OwnedHandle::of(object.0),
            _ => None,
        };
        let handle = found.ok_or_else(|| self.no_handle(Procedure::Lookup))?;
        let getattr = Args::Getattr {
            object: handle.as_handle(),
        };
        match self.call(&getattr)? {
            ResultBody::Getattr { attributes } => {
                Ok((handle, attributes.kind() == FileType::Directory))
            }
            _ => Err(self.no_handle(Procedure::Getattr)),
        }
    }

    pub(crate) fn directory(
        &mut self,
        dir: &OwnedHandle,
        name: &[u8],
    ) -> Result<OwnedHandle, NfsTreeError> {
        let place = DirOp {
            dir: dir.as_handle(),
            name,
        };
        let attributes = SetAttributes {
            mode: Some(DIR_MODE),
            ..SetAttributes::default()
        };
        self.create(&Args::Mkdir { place, attributes }, place)
    }

    pub(crate) fn file(
        &mut self,
        dir: &OwnedHandle,
        name: &[u8],
        bytes: u64,
    ) -> Result<OwnedHandle, NfsTreeError> {
        let place = DirOp {
            dir: dir.as_handle(),
            name,
        };
        let how = CreateHow::Guarded(SetAttributes {
            mode: Some(FILE_MODE),
            size: (bytes > 0).then_some(bytes),
            ..SetAttributes::default()
        });
        self.create(&Args::Create { place, how }, place)
    }

    fn link(&mut self, dir: &OwnedHandle) -> Result<OwnedHandle, NfsTreeError> {
        let place = DirOp {
            dir: dir.as_handle(),
            name: b"l",
        };
        let link = Args::Symlink {
            place,
            attributes: SetAttributes::default(),
            target: b"f0",
        };
        self.create(&link, place)
    }

    /// Creates a worker's part.
    fn worker(
        mut self,
        base: &OwnedHandle,
        settings: &NfsSettings,
        worker: u32,
    ) -> Result<WorkerTree, NfsTreeError> {
        let files = settings.files_of_worker();
        let sizes = FileSizeSampler::new(&settings.file_size, worker);
        let is_filled = settings.mix.read + settings.mix.write > 0.0;
        let root = self.numbered_directory(base, 'w', worker.into())?;
        let mut tree = WorkerTree {
            root,
            directories: Vec::with_capacity(settings.directories as usize),
            files: Vec::with_capacity(files as usize),
            links: Vec::new(),
            files_of_directory: settings.files as usize,
        };
        for directory in 0..settings.directories {
            let dir = self.numbered_directory(&root, 'd', directory.into())?;
            for file in 0..settings.files {
                let number = tree.files.len() as u64;
                let file_bytes = sizes.size_of(number);
                let bytes = if is_filled { 0 } else { file_bytes };
                let file = self.numbered_file(&dir, file.into(), bytes)?;
                if is_filled {
                    self.fill(&file, worker.into(), address(number, 0), file_bytes)?;
                }
                tree.files.push(file);
            }
            if settings.makes(NfsOp::Readlink) {
                tree.links.push(self.link(&dir)?);
            }
            tree.directories.push(dir);
        }
        Ok(tree)
    }

    fn numbered_directory(
        &mut self,
        dir: &OwnedHandle,
        letter: char,
        number: u64,
    ) -> Result<OwnedHandle, NfsTreeError> {
        let mut text = std::mem::take(&mut self.name);
        name(&mut text, letter, number);
        let made = self.directory(dir, &text);
        self.name = text;
        made
    }

    fn numbered_file(
        &mut self,
        dir: &OwnedHandle,
        number: u64,
        bytes: u64,
    ) -> Result<OwnedHandle, NfsTreeError> {
        let mut text = std::mem::take(&mut self.name);
        name(&mut text, 'f', number);
        let made = self.file(dir, &text, bytes);
        self.name = text;
        made
    }

    /// Fills a file with data that follows from a seed and the file's address in the tree.
    pub(crate) fn fill(
        &mut self,
        file: &OwnedHandle,
        seed: u64,
        address: u64,
        bytes: u64,
    ) -> Result<(), NfsTreeError> {
        let step = FILL_BYTES.min(self.folder.place().write_bytes_max);
        let mut data = std::mem::take(&mut self.data);
        data.resize(step as usize, 0);
        let mut offset = 0;
        while offset < bytes {
            let count = (bytes - offset).min(step.into()) as u32;
            let part = &mut data[..count as usize];
            Pattern::Seeded(seed).fill((address + offset) / 512 * 512, part);
            let write = Args::Write {
                file: file.as_handle(),
                offset,
                count,
                stable: StableHow::Unstable,
                data: FileData {
                    at: 0,
                    len: count,
                    bytes: part,
                },
            };
            let moved = match self.call(&write)? {
                ResultBody::Write { count, .. } => count,
                _ => 0,
            };
            if moved == 0 || moved > count {
                return Err(self.no_handle(Procedure::Write));
            }
            offset += u64::from(moved);
        }
        self.data = data;
        // This COMMIT keeps the server from writing the data to its disk while the load runs.
        self.call(&Args::Commit {
            file: file.as_handle(),
            offset: 0,
            count: 0,
        })?;
        Ok(())
    }

    /// Creates the directories in which a worker creates and removes names in its next run, with their initial names.
    pub(crate) fn run_folder(
        mut self,
        tree: &WorkerTree,
        settings: &NfsSettings,
        run: u64,
    ) -> Result<RunFolder, NfsTreeError> {
        let files = self.directory(&tree.root, format!("c{run}f").as_bytes())?;
        let directories = self.directory(&tree.root, format!("c{run}d").as_bytes())?;
        for number in 0..u64::from(settings.names) {
            if settings.makes(NfsOp::Create) {
                self.numbered_file(&files, number, 0)?;
            }
            if settings.makes(NfsOp::Mkdir) {
                self.numbered_directory(&directories, 'd', number)?;
            }
        }
        Ok(RunFolder { files, directories })
    }

    /// Removes everything in a directory.
    fn clear(&mut self, dir: &OwnedHandle, depth: u32) -> Result<(), NfsTreeError> {
        loop {
            let names = self.list(dir)?;
            if names.is_empty() {
                return Ok(());
            }
            for name in names {
                let endless = || NfsTreeError::Endless(self.folder.name().to_string());
                self.left = self.left.checked_sub(1).ok_or_else(endless)?;
                let (entry, is_directory) = self.look_up(dir, &name)?;
                if is_directory {
                    let deeper = depth.checked_sub(1);
                    let deeper = deeper
                        .ok_or_else(|| NfsTreeError::Endless(self.folder.name().to_string()))?;
                    self.clear(&entry, deeper)?;
                }
                self.remove_entry(dir, &name, is_directory)?;
            }
        }
    }

    fn remove_entry(
        &mut self,
        dir: &OwnedHandle,
        name: &[u8],
        is_directory: bool,
    ) -> Result<(), NfsTreeError> {
        let object = DirOp {
            dir: dir.as_handle(),
            name,
        };
        let args = match is_directory {
            true => Args::Rmdir { object },
            false => Args::Remove { object },
        };
        self.call(&args).map(|_| ())
    }

    /// Returns the first names of a directory; none if it is empty.
    fn list(&mut self, dir: &OwnedHandle) -> Result<Vec<Vec<u8>>, NfsTreeError> {
        let (mut cookie, mut cookie_verifier) = (0, 0);
        for _ in 0..EMPTY_LISTS_MAX {
            let readdir = Args::Readdir {
                dir: dir.as_handle(),
                cookie,
                cookie_verifier,
                count: LIST_BYTES,
            };
            let ResultBody::Readdir {
                entries,
                cookie_verifier: verifier,
                eof,
                ..
            } = self.call(&readdir)?
            else {
                return Err(self.no_handle(Procedure::Readdir));
            };
            let names = entries
                .iter()
                .filter(|entry| !matches!(entry.name, b"." | b".."));
            let names: Vec<Vec<u8>> = names.map(|entry| entry.name.to_vec()).collect();
            if !names.is_empty() || eof {
                return Ok(names);
            }
            cookie = entries.iter().last().map_or(cookie, |entry| entry.cookie);
            cookie_verifier = verifier;
        }
        Err(NfsTreeError::Endless(self.folder.name().to_string()))
    }
}
