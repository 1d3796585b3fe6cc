//! Creates the tree that a replay needs, and checks it. A file in the tree records its state, so an interrupted
//! preparation continues, and a tree that a replay has changed is not mistaken for a new one.
//!
//! ```text
//! brunt-replay-5f0c…/preparing-5f0c… until everything is created and checked
//!                   /prepared-5f0c…    from then on
//!                   /replayed-5f0c…    from the first call of a replay on
//! ```
//!
//! The rule: nothing outside this directory is changed, and an existing entry that differs from what the trace needs is
//! an error.

use brunt_nfs::NfsFolder;
use brunt_wire::nfs::v3::{
    Args, CreateHow, DirOp, FileType, NodeKind, Procedure, ResultBody, Results, SetAttributes,
    Status,
};

use super::NfsReplayError;
use super::layout::{Planted, PlantedEntry, TreeLayout};
use super::namespace::NONE;
use crate::nfs::tree::{NfsTree, NfsTreeError, OwnedHandle, TreeMaker};

/// Number of connections that create files in parallel.
const MAKERS: usize = 4;
/// Modes of objects whose mode was not captured.
const DIR_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
/// Permissions that the replay's own user needs.
const DIR_OWN: u32 = 0o700;
const FILE_OWN: u32 = 0o600;
/// Permissions for everyone where the owner is not known, so that the trace's users are not denied access.
const DIR_ALL: u32 = 0o777;
const FILE_ALL: u32 = 0o666;

/// How a tree is prepared.
#[derive(Clone, Debug)]
pub(super) struct PrepareOptions {
    /// Name of the tree's directory.
    pub(super) name: String,
    /// Whether files get their length, but no data.
    pub(super) sparse: bool,
    /// Whether files get the owners in the trace.
    pub(super) as_traced: bool,
}

/// The state of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TreeState {
    Preparing,
    Prepared,
    Replayed,
}

impl TreeState {
    fn marker(self, digest: &str) -> String {
        let word = match self {
            TreeState::Preparing => "preparing",
            TreeState::Prepared => "prepared",
            TreeState::Replayed => "replayed",
        };
        format!("{word}-{digest}")
    }
}

/// A tree that has been prepared.
#[derive(Debug)]
pub(super) struct PreparedTree {
    base: OwnedHandle,
    digest: String,
    /// The target's handle of each object.
    pub(super) handles: Vec<(u32, OwnedHandle)>,
    /// Number of entries that already existed.
    pub(super) found: u64,
}

type IsStopped<'a> = &'a (dyn Fn() -> bool + Sync);

struct Preparer<'a> {
    folder: &'a NfsFolder,
    layout: &'a TreeLayout,
    options: &'a PrepareOptions,
    is_stopped: IsStopped<'a>,
    state: TreeState,
    base: OwnedHandle,
}

/// Creates the tree, or checks the one that exists.
///
/// # Errors
/// The server rejected a call, or the directory exists with other content.
pub(super) fn prepare(
    folder: &NfsFolder,
    layout: &TreeLayout,
    options: &PrepareOptions,
    is_stopped: IsStopped<'_>,
) -> Result<PreparedTree, NfsReplayError> {
    let mut maker = TreeMaker::new(folder, is_stopped)?;
    let digest = layout.digest(options.as_traced, options.sparse);
    let place = OwnedHandle::of(&folder.place().handle)
        .ok_or_else(|| NfsTreeError::NoHandle(folder.name().to_string(), "MNT"))?;
    let name = options.name.as_bytes();
    let (base, state) = match find(&mut maker, &place, name)? {
        None => {
            let base = maker.directory(&place, name)?;
            maker.file(&base, TreeState::Preparing.marker(&digest).as_bytes(), 0)?;
            (base, TreeState::Preparing)
        }
        Some((base, _)) => {
            let states = [
                TreeState::Preparing,
                TreeState::Prepared,
                TreeState::Replayed,
            ];
            let mut state = None;
            for known in states {
                if find(&mut maker, &base, known.marker(&digest).as_bytes())?.is_some() {
                    state = Some(known);
                }
            }
            match state {
                None => return Err(NfsReplayError::OtherContent(options.name.clone())),
                Some(TreeState::Replayed) => {
                    return Err(NfsReplayError::AlreadyReplayed(options.name.clone()));
                }
                Some(state) => (base, state),
            }
        }
    };
    let preparer = Preparer {
        folder,
        layout,
        options,
        is_stopped,
        state,
        base,
    };
    let (handles, found) = preparer.make(&mut maker)?;
    if state == TreeState::Preparing {
        mark(
            &mut maker,
            &base,
            [TreeState::Preparing, TreeState::Prepared],
            &digest,
        )?;
    }
    let objects = layout.entries.iter().map(|entry| entry.object).zip(handles);
    Ok(PreparedTree {
        base,
        digest,
        handles: objects.filter(|(object, _)| *object != NONE).collect(),
        found,
    })
}

/// Records in the tree that a replay is about to change it.
///
/// # Errors
/// The server did not rename the marker.
pub(super) fn begin(folder: &NfsFolder, tree: &PreparedTree) -> Result<(), NfsReplayError> {
    let mut maker = TreeMaker::new(folder, &|| false)?;
    let states = [TreeState::Prepared, TreeState::Replayed];
    Ok(mark(&mut maker, &tree.base, states, &tree.digest)?)
}

/// Removes the tree, unless it has more than this many names or levels.
///
/// # Errors
/// The server rejected a call, or the tree exceeds a limit.
pub(super) fn remove(
    folder: &NfsFolder,
    name: &str,
    (names_max, depth_max): (u64, u32),
) -> Result<(), NfsReplayError> {
    Ok(NfsTree::remove(folder, name, names_max, depth_max)?)
}

fn mark(
    maker: &mut TreeMaker<'_>,
    base: &OwnedHandle,
    [from, to]: [TreeState; 2],
    digest: &str,
) -> Result<(), NfsTreeError> {
    let [from, to] = [from.marker(digest), to.marker(digest)];
    let at = |name| DirOp {
        dir: base.as_handle(),
        name,
    };
    let rename = Args::Rename {
        from: at(from.as_bytes()),
        to: at(to.as_bytes()),
    };
    maker.call(&rename).map(drop)
}

/// An entry's attributes on the server.
#[derive(Clone, Copy, Debug)]
struct FoundEntry {
    kind: FileType,
    size_bytes: u64,
}

/// Looks a name up; `None` if it doesn't exist.
fn find(
    maker: &mut TreeMaker<'_>,
    dir: &OwnedHandle,
    name: &[u8],
) -> Result<Option<(OwnedHandle, FoundEntry)>, NfsTreeError> {
    let what = DirOp {
        dir: dir.as_handle(),
        name,
    };
    let lookup = Args::Lookup { what };
    let handle = match maker.ask(&lookup)? {
        Results {
            body: ResultBody::Lookup { object, .. },
            ..
        } => OwnedHandle::of(object.0),
        Results {
            status: Status::NOENT,
            ..
        } => return Ok(None),
        Results { status, .. } => return Err(maker.refused(Procedure::Lookup, status)),
    };
    let handle = handle.ok_or_else(|| maker.no_handle(Procedure::Lookup))?;
    Ok(Some((handle, inspect(maker, &handle)?)))
}

fn inspect(maker: &mut TreeMaker<'_>, handle: &OwnedHandle) -> Result<FoundEntry, NfsTreeError> {
    let object = handle.as_handle();
    match maker.call(&Args::Getattr { object })? {
        ResultBody::Getattr { attributes } => Ok(FoundEntry {
            kind: attributes.kind(),
            size_bytes: attributes.size.get(),
        }),
        _ => Err(maker.no_handle(Procedure::Getattr)),
    }
}

impl Preparer<'_> {
    /// Returns the handle of the directory with this index, or of the top of the tree.
    fn parent(&self, handles: &[OwnedHandle], parent: u32) -> OwnedHandle {
        handles.get(parent as usize).copied().unwrap_or(self.base)
    }

    /// Creates all entries; returns their handles in order, and the number of entries that already existed.
    fn make(&self, maker: &mut TreeMaker<'_>) -> Result<(Vec<OwnedHandle>, u64), NfsReplayError> {
        let entries = &self.layout.entries;
        let mut handles = vec![self.base; entries.len()];
        let mut found = 0;
        for (index, entry) in entries.iter().enumerate() {
            if entry.what == Planted::Directory {
                let parent = self.parent(&handles, entry.parent);
                let (handle, existed) = self.entry(maker, entry, &parent)?;
                (handles[index], found) = (handle, found + u64::from(existed));
            }
        }
        let others = (0..entries.len()).filter(|index| entries[*index].what != Planted::Directory);
        let others: Vec<usize> = others.collect();
        let part = others.len().div_ceil(MAKERS).max(1);
        let made: Vec<Result<Vec<_>, NfsReplayError>> = std::thread::scope(|scope| {
            let make = |part: &'_ [usize]| {
                let mut maker = TreeMaker::new(self.folder, self.is_stopped)?;
                let make = |index: &usize| {
                    let entry = &entries[*index];
                    let parent = self.parent(&handles, entry.parent);
                    Ok((*index, self.entry(&mut maker, entry, &parent)?))
                };
                part.iter().map(make).collect()
            };
            let threads: Vec<_> = others
                .chunks(part)
                .map(|part| scope.spawn(move || make(part)))
                .collect();
            let joined = threads.into_iter().map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            joined.collect()
        });
        for part in made {
            for (index, (handle, existed)) in part? {
                (handles[index], found) = (handle, found + u64::from(existed));
            }
        }
        self.finish(maker, &handles)?;
        Ok((handles, found))
    }

    /// Adds hard links, then sets the modes of directories, which may forbid creating entries in them.
    fn finish(
        &self,
        maker: &mut TreeMaker<'_>,
        handles: &[OwnedHandle],
    ) -> Result<(), NfsReplayError> {
        let entries = &self.layout.entries;
        for link in &self.layout.links {
            let dir = self.parent(handles, link.parent);
            if find(maker, &dir, &link.name)?.is_some() {
                continue;
            }
            self.only_if_preparing(&link.name)?;
            let args = Args::Link {
                file: handles[link.entry as usize].as_handle(),
                link: DirOp {
                    dir: dir.as_handle(),
                    name: &link.name,
                },
            };
            maker.call(&args)?;
        }
        if self.state == TreeState::Preparing {
            let directories = entries.iter().zip(handles).rev();
            for (entry, handle) in directories.filter(|(entry, _)| entry.what == Planted::Directory)
            {
                self.set_attributes(maker, entry, handle)?;
            }
        }
        Ok(())
    }

    fn only_if_preparing(&self, name: &[u8]) -> Result<(), NfsReplayError> {
        match self.state {
            TreeState::Preparing => Ok(()),
            _ => Err(self.differs(name, "is missing")),
        }
    }

    fn differs(&self, name: &[u8], how: &str) -> NfsReplayError {
        NfsReplayError::Differs {
            tree: self.options.name.clone(),
            name: String::from_utf8_lossy(name).into_owned(),
            how: how.to_string(),
        }
    }

    /// Creates an entry unless it exists, and checks it. Returns its handle, and whether it existed.
    fn entry(
        &self,
        maker: &mut TreeMaker<'_>,
        entry: &PlantedEntry,
        parent: &OwnedHandle,
    ) -> Result<(OwnedHandle, bool), NfsReplayError> {
        let known = find(maker, parent, &entry.name)?;
        let existed = known.is_some();
        let handle = match known {
            Some((handle, _)) => handle,
            None => {
                self.only_if_preparing(&entry.name)?;
                self.create(maker, entry, parent)?
            }
        };
        if let Planted::File { size_bytes } = entry.what {
            let len = known.map_or(0, |(_, found)| found.size_bytes);
            if self.state == TreeState::Preparing && len < size_bytes && !self.options.sparse {
                let seed = u64::from(entry.object);
                maker.fill(&handle, seed, 0, size_bytes)?;
            }
        }
        if self.state == TreeState::Preparing && entry.what != Planted::Directory {
            self.set_attributes(maker, entry, &handle)?;
        }
        self.check(maker, entry, &handle)?;
        Ok((handle, existed))
    }

    fn check(
        &self,
        maker: &mut TreeMaker<'_>,
        entry: &PlantedEntry,
        handle: &OwnedHandle,
    ) -> Result<(), NfsReplayError> {
        let found = inspect(maker, handle)?;
        let wanted = match &entry.what {
            Planted::Directory => FileType::Directory,
            Planted::File { .. } => FileType::Regular,
            Planted::Symlink { .. } => FileType::Symlink,
            Planted::Fifo => FileType::Fifo,
        };
        if found.kind != wanted {
            return Err(self.differs(&entry.name, "has another type"));
        }
        if let Planted::File { size_bytes } = entry.what
            && found.size_bytes != size_bytes
        {
            let how = format!("has {} bytes instead of {size_bytes}", found.size_bytes);
            return Err(self.differs(&entry.name, &how));
        }
        Ok(())
    }

    fn create(
        &self,
        maker: &mut TreeMaker<'_>,
        entry: &PlantedEntry,
        parent: &OwnedHandle,
    ) -> Result<OwnedHandle, NfsReplayError> {
        let place = DirOp {
            dir: parent.as_handle(),
            name: &entry.name,
        };
        let mode = |mode| SetAttributes {
            mode: Some(mode),
            ..SetAttributes::default()
        };
        let args = match &entry.what {
            Planted::Directory => Args::Mkdir {
                place,
                attributes: mode(DIR_MODE),
            },
            Planted::File { size_bytes } => Args::Create {
                place,
                how: CreateHow::Guarded(SetAttributes {
                    size: (self.options.sparse && *size_bytes > 0).then_some(*size_bytes),
                    ..mode(FILE_MODE)
                }),
            },
            Planted::Symlink { target } => Args::Symlink {
                place,
                attributes: SetAttributes::default(),
                target,
            },
            Planted::Fifo => Args::Mknod {
                place,
                what: NodeKind::Pipe(FileType::Fifo, mode(FILE_MODE)),
            },
        };
        Ok(maker.create(&args, place)?)
    }

    /// Sets mode and owner.
    fn set_attributes(
        &self,
        maker: &mut TreeMaker<'_>,
        entry: &PlantedEntry,
        handle: &OwnedHandle,
    ) -> Result<(), NfsReplayError> {
        if matches!(entry.what, Planted::Symlink { .. }) && !self.options.as_traced {
            return Ok(());
        }
        let as_traced = self.options.as_traced;
        let (own, all) = match entry.what {
            Planted::Directory => (DIR_OWN, DIR_ALL),
            _ => (FILE_OWN, FILE_ALL),
        };
        let owner = entry.owner.filter(|_| as_traced);
        let mode = match (&entry.what, entry.mode) {
            (Planted::Symlink { .. }, _) => None,
            (_, Some(mode)) if as_traced => Some(mode & 0o7777),
            (_, Some(mode)) => Some(mode & 0o7777 | own),
            (_, None) => as_traced.then_some(all),
        };
        if mode.is_none() && owner.is_none() {
            return Ok(());
        }
        // Changing the owner clears mode bits, so the mode is set last.
        let owners = owner.map(|(uid, gid)| SetAttributes {
            uid: Some(uid),
            gid: Some(gid),
            ..SetAttributes::default()
        });
        let modes = mode.map(|mode| SetAttributes {
            mode: Some(mode),
            ..SetAttributes::default()
        });
        for attributes in [owners, modes].into_iter().flatten() {
            maker.call(&Args::Setattr {
                object: handle.as_handle(),
                attributes,
                guard: None,
            })?;
        }
        Ok(())
    }
}
