//! The procedures of NFSv3 on the names and attributes of the null server.
//!
//! The rule: a failed call changes nothing.

use brunt_wire::FileData;
use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v3::{
    Args, Attributes, CreateHow, DirOp, Entries, Entry, FileType, NfsTime, NodeKind, Procedure,
    ResultBody, Results, SetAttributes, SetTime, StableHow, Status, Wcc,
};

use super::TRANSFER_BYTES_MAX;
use super::nodes::{Body, Directory, NAME_BYTES_MAX, Node, NodeId, Nodes};

/// Maximum length of a file.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Size of the file system, for FSSTAT.
const TOTAL_BYTES: u64 = 1 << 50;
const TOTAL_FILES: u64 = 1 << 21;
/// All rights of ACCESS (RFC 1813, 3.3.4).
const ACCESS_ALL: u32 = 0x3f;
/// FSINFO: hard links, symbolic links, the same properties for all files, settable times.
const PROPERTIES: u32 = 0x1b;
/// Bytes of a READDIR reply in addition to its entries: status, attributes, verifier, and the end of the list.
const LISTING_BYTES: usize = 4 + 88 + 8 + 8;

/// Executes calls.
#[derive(Debug)]
pub(super) struct Procedures {
    pub(super) nodes: Nodes,
    /// The entries of the last listing.
    listing: Vec<u8>,
}

/// What a READDIR or READDIRPLUS asks for.
struct Ask {
    cookie: u64,
    /// Maximum length of the names, cookies and ids (`dir_bytes_max`) and of the whole results (`bytes_max`).
    dir_bytes_max: u32,
    bytes_max: u32,
    plus: bool,
}

impl Procedures {
    pub(super) fn new(instance: u64) -> Procedures {
        Procedures {
            nodes: Nodes::new(instance),
            listing: Vec::new(),
        }
    }

    /// Executes a call of this user and group.
    pub(super) fn perform(
        &mut self,
        args: &Args<'_>,
        caller: impl Fn() -> (u32, u32),
        now: NfsTime,
    ) -> Results<'_> {
        let procedure = args.procedure();
        self.nodes.now = now;
        match self.body(args, caller) {
            Ok(body) => Results {
                status: Status::OK,
                body,
            },
            Err(status) => Results {
                status,
                body: match procedure {
                    Procedure::Null | Procedure::Getattr => ResultBody::Empty,
                    _ => ResultBody::Failed {
                        attributes: None,
                        wcc: [Wcc::default(); 2],
                    },
                },
            },
        }
    }

    /// Executes a call.
    fn body(
        &mut self,
        args: &Args<'_>,
        caller: impl Fn() -> (u32, u32),
    ) -> Result<ResultBody<'_>, Status> {
        match *args {
            Args::Null => Ok(ResultBody::Empty),
            Args::Getattr { object } => Ok(ResultBody::Getattr {
                attributes: &self.node(object)?.attributes,
            }),
            Args::Setattr {
                object,
                attributes,
                guard,
            } => self.set_attributes(object, &attributes, guard),
            Args::Lookup { what } => {
                let dir = self.nodes.find(what.dir)?;
                let found = self.nodes.node(self.nodes.look_up(dir, what.name)?);
                Ok(ResultBody::Lookup {
                    object: FileHandle(&found.handle),
                    attributes: Some(&found.attributes),
                    dir: Some(&self.nodes.node(dir).attributes),
                })
            }
            Args::Access { object, access } => Ok(ResultBody::Access {
                attributes: Some(&self.node(object)?.attributes),
                access: access & ACCESS_ALL,
            }),
            Args::Readlink { symlink } => self.read_link(symlink),
            Args::Read {
                file,
                offset,
                count,
            } => self.read(file, offset, count),
            Args::Write {
                file,
                offset,
                count,
                stable,
                data,
            } => self.write(file, (offset, count), stable, data),
            Args::Commit { file, .. } => {
                let id = self.regular(file)?;
                Ok(ResultBody::Commit {
                    wcc: self.after(id),
                    verifier: self.nodes.instance,
                })
            }
            Args::Fsstat { root } => self.statistics(root),
            Args::Fsinfo { root } => self.limits(root),
            Args::Pathconf { object } => self.path_limits(object),
            _ => self.change_or_list(args, caller),
        }
    }

    /// [`Procedures::body`] of the procedures that create, remove or list names.
    fn change_or_list(
        &mut self,
        args: &Args<'_>,
        caller: impl Fn() -> (u32, u32),
    ) -> Result<ResultBody<'_>, Status> {
        match *args {
            Args::Create { place, how } => self.create_file(place, &how, caller()),
            Args::Mkdir { place, attributes } => {
                let body = Body::Directory(Directory::default());
                self.create(place, body, FileType::Directory, &attributes, caller())
            }
            Args::Symlink {
                place,
                attributes,
                target,
            } => {
                let body = Body::Symlink(target.into());
                self.create(place, body, FileType::Symlink, &attributes, caller())
            }
            Args::Mknod { place, what } => self.make_node(place, &what, caller()),
            Args::Remove { object } => self.remove(object, false),
            Args::Rmdir { object } => self.remove(object, true),
            Args::Rename { from, to } => self.rename(from, to),
            Args::Link { file, link } => self.hard_link(file, link),
            Args::Readdir {
                dir, cookie, count, ..
            } => {
                let ask = Ask {
                    cookie,
                    dir_bytes_max: count,
                    bytes_max: count,
                    plus: false,
                };
                self.list(dir, &ask)
            }
            Args::Readdirplus {
                dir,
                cookie,
                dir_count,
                max_count,
                ..
            } => {
                let ask = Ask {
                    cookie,
                    dir_bytes_max: dir_count,
                    bytes_max: max_count,
                    plus: true,
                };
                self.list(dir, &ask)
            }
            _ => unreachable!("the other procedures are executed by `body`"),
        }
    }

    fn read_link(&self, symlink: FileHandle<'_>) -> Result<ResultBody<'_>, Status> {
        match self.node(symlink)? {
            Node {
                body: Body::Symlink(target),
                attributes,
                ..
            } => Ok(ResultBody::Readlink {
                attributes: Some(attributes),
                target,
            }),
            _ => Err(Status::INVAL),
        }
    }

    #[inline]
    fn node(&self, handle: FileHandle<'_>) -> Result<&Node, Status> {
        Ok(self.nodes.node(self.nodes.find(handle)?))
    }

    fn regular(&self, handle: FileHandle<'_>) -> Result<NodeId, Status> {
        let id = self.nodes.find(handle)?;
        match self.nodes.node(id).body {
            Body::File => Ok(id),
            Body::Directory(_) => Err(Status::ISDIR),
            _ => Err(Status::INVAL),
        }
    }

    fn after(&self, id: NodeId) -> Wcc<'_> {
        Wcc {
            before: None,
            after: Some(&self.nodes.node(id).attributes),
        }
    }

    // ---- attributes and data

    /// Applies attributes, except a size.
    fn apply(&mut self, id: NodeId, set: &SetAttributes<'_>) {
        let now = self.nodes.now;
        let Attributes {
            mode,
            uid,
            gid,
            atime,
            mtime,
            ..
        } = &mut self.nodes.node_mut(id).attributes;
        for (value, new) in [(mode, set.mode), (uid, set.uid), (gid, set.gid)] {
            if let Some(new) = new {
                *value = new.into();
            }
        }
        for (time, new) in [(atime, set.atime), (mtime, set.mtime)] {
            match new {
                SetTime::DontChange => {}
                SetTime::ServerTime => *time = now,
                SetTime::ClientTime(new) => *time = *new,
            }
        }
    }

    fn set_size(&mut self, id: NodeId, size: u64) {
        self.nodes.changed(id);
        let attributes = &mut self.nodes.node_mut(id).attributes;
        (attributes.size, attributes.used) = (size.into(), size.into());
    }

    /// Checks that a node can have this size.
    fn check_size(&self, id: NodeId, set: &SetAttributes<'_>) -> Result<(), Status> {
        match (&self.nodes.node(id).body, set.size) {
            (_, None) => Ok(()),
            (Body::File, Some(size)) if size > FILE_BYTES_MAX => Err(Status::FBIG),
            (Body::File, Some(_)) => Ok(()),
            (Body::Directory(_), Some(_)) => Err(Status::ISDIR),
            _ => Err(Status::INVAL),
        }
    }

    fn set_attributes(
        &mut self,
        object: FileHandle<'_>,
        set: &SetAttributes<'_>,
        guard: Option<&NfsTime>,
    ) -> Result<ResultBody<'_>, Status> {
        let id = self.nodes.find(object)?;
        if guard.is_some_and(|ctime| *ctime != self.nodes.node(id).attributes.ctime) {
            return Err(Status::NOT_SYNC);
        }
        self.check_size(id, set)?;
        if let Some(size) = set.size {
            self.set_size(id, size);
        }
        self.nodes.changed_attributes(id);
        self.apply(id, set);
        Ok(ResultBody::Changed {
            wcc: self.after(id),
        })
    }

    fn read(
        &self,
        file: FileHandle<'_>,
        offset: u64,
        count: u32,
    ) -> Result<ResultBody<'_>, Status> {
        let attributes = &self.nodes.node(self.regular(file)?).attributes;
        let left = attributes.size.get().saturating_sub(offset);
        let len = left.min(count.min(TRANSFER_BYTES_MAX).into()) as u32;
        Ok(ResultBody::Read {
            attributes: Some(attributes),
            count: len,
            eof: u64::from(len) == left,
            data: FileData {
                at: 0,
                len,
                bytes: &[],
            },
        })
    }

    fn write(
        &mut self,
        file: FileHandle<'_>,
        (offset, count): (u64, u32),
        stable: StableHow,
        data: FileData<'_>,
    ) -> Result<ResultBody<'_>, Status> {
        let id = self.regular(file)?;
        if count != data.len {
            return Err(Status::INVAL);
        }
        let end = offset.checked_add(count.into());
        let end = end
            .filter(|end| *end <= FILE_BYTES_MAX)
            .ok_or(Status::FBIG)?;
        if count > 0 {
            let size = self.nodes.node(id).attributes.size.get();
            self.set_size(id, size.max(end));
        }
        Ok(ResultBody::Write {
            wcc: self.after(id),
            count,
            // No data is kept, so any stability is fine. Returning the requested stability lets clients send COMMIT
            // for unstable writes.
            committed: stable,
            verifier: self.nodes.instance,
        })
    }

    // ---- names

    fn create(
        &mut self,
        place: DirOp<'_>,
        body: Body,
        kind: FileType,
        set: &SetAttributes<'_>,
        (uid, gid): (u32, u32),
    ) -> Result<ResultBody<'_>, Status> {
        let dir = self.nodes.find(place.dir)?;
        let size = match body {
            Body::File => set.size.unwrap_or(0),
            _ => 0,
        };
        if size > FILE_BYTES_MAX {
            return Err(Status::FBIG);
        }
        let id = self.nodes.create(dir, place.name, body, kind)?;
        let mode = match kind {
            FileType::Directory => 0o755,
            FileType::Symlink => 0o777,
            _ => 0o644,
        };
        let usual = SetAttributes {
            mode: Some(mode),
            uid: Some(uid),
            gid: Some(gid),
            ..SetAttributes::default()
        };
        self.apply(id, &usual);
        self.apply(id, set);
        if size > 0 {
            self.set_size(id, size);
        }
        Ok(self.created(id, dir))
    }

    fn created(&self, id: NodeId, dir: NodeId) -> ResultBody<'_> {
        let node = self.nodes.node(id);
        ResultBody::Created {
            object: Some(FileHandle(&node.handle)),
            attributes: Some(&node.attributes),
            dir: self.after(dir),
        }
    }

    fn create_file(
        &mut self,
        place: DirOp<'_>,
        how: &CreateHow<'_>,
        caller: (u32, u32),
    ) -> Result<ResultBody<'_>, Status> {
        let dir = self.nodes.find(place.dir)?;
        let (set, verifier) = match how {
            CreateHow::Unchecked(set) | CreateHow::Guarded(set) => (*set, None),
            CreateHow::Exclusive(verifier) => (SetAttributes::default(), Some(*verifier)),
        };
        if let Ok(found) = self.nodes.look_up(dir, place.name) {
            let node = self.nodes.node(found);
            let is_again = match how {
                CreateHow::Unchecked(_) => matches!(node.body, Body::File),
                CreateHow::Guarded(_) => false,
                CreateHow::Exclusive(_) => node.verifier == verifier,
            };
            if !is_again {
                return Err(Status::EXIST);
            }
            self.check_size(found, &set)?;
            if let Some(size) = set.size {
                self.set_size(found, size);
            }
            return Ok(self.created(found, dir));
        }
        self.create(place, Body::File, FileType::Regular, &set, caller)?;
        let id = self.nodes.look_up(dir, place.name)?;
        self.nodes.node_mut(id).verifier = verifier;
        Ok(self.created(id, dir))
    }

    fn make_node(
        &mut self,
        place: DirOp<'_>,
        what: &NodeKind<'_>,
        caller: (u32, u32),
    ) -> Result<ResultBody<'_>, Status> {
        let (kind, set, device) = match what {
            NodeKind::Device(kind, set, device) => (*kind, set, *device),
            NodeKind::Pipe(kind, set) => (*kind, set, [0; 2]),
            NodeKind::Other(_) => return Err(Status::BADTYPE),
        };
        self.create(place, Body::Special, kind, set, caller)?;
        let dir = self.nodes.find(place.dir)?;
        let id = self.nodes.look_up(dir, place.name)?;
        self.nodes.node_mut(id).attributes.rdev = device.map(Into::into);
        Ok(self.created(id, dir))
    }

    /// Checks that a name can be removed or replaced.
    fn check_remove(&self, dir: NodeId, name: &[u8], directory: bool) -> Result<(), Status> {
        if matches!(name, b"." | b"..") {
            return Err(Status::INVAL);
        }
        let node = self.nodes.node(self.nodes.look_up(dir, name)?);
        match &node.body {
            Body::Directory(_) if !directory => Err(Status::ISDIR),
            Body::Directory(found) if !found.order.is_empty() => Err(Status::NOTEMPTY),
            Body::Directory(_) => Ok(()),
            _ if directory => Err(Status::NOTDIR),
            _ => Ok(()),
        }
    }

    fn remove(&mut self, object: DirOp<'_>, directory: bool) -> Result<ResultBody<'_>, Status> {
        let dir = self.nodes.find(object.dir)?;
        self.check_remove(dir, object.name, directory)?;
        self.nodes.unlink(dir, object.name);
        Ok(ResultBody::Changed {
            wcc: self.after(dir),
        })
    }

    fn rename(&mut self, from: DirOp<'_>, to: DirOp<'_>) -> Result<ResultBody<'_>, Status> {
        let (source, target) = (self.nodes.find(from.dir)?, self.nodes.find(to.dir)?);
        let is_dot = |name: &[u8]| matches!(name, b"." | b"..");
        if is_dot(from.name) || is_dot(to.name) {
            return Err(Status::INVAL);
        }
        let id = self.nodes.look_up(source, from.name)?;
        let is_directory = self.nodes.node(id).is_directory();
        if is_directory && self.nodes.is_below(target, id) {
            return Err(Status::INVAL);
        }
        let replaced = match self.nodes.look_up(target, to.name) {
            Ok(found) if found == id => None,
            Ok(_) => {
                self.check_remove(target, to.name, is_directory)?;
                Some(true)
            }
            Err(Status::NOENT) => {
                self.nodes.check_new(target, to.name)?;
                Some(false)
            }
            Err(status) => return Err(status),
        };
        // Both names refer to the same file: nothing happens (RFC 1813, 3.3.14).
        if let Some(replaced) = replaced {
            if replaced {
                self.nodes.unlink(target, to.name);
            }
            // Add the new name first: it may not fit, and a node without a name would be removed.
            self.nodes.link(target, to.name, id)?;
            self.nodes.detach(source, from.name);
            self.nodes.changed_attributes(id);
        }
        Ok(ResultBody::Rename {
            from: self.after(source),
            to: self.after(target),
        })
    }

    fn hard_link(
        &mut self,
        file: FileHandle<'_>,
        link: DirOp<'_>,
    ) -> Result<ResultBody<'_>, Status> {
        let (id, dir) = (self.nodes.find(file)?, self.nodes.find(link.dir)?);
        if self.nodes.node(id).is_directory() {
            return Err(Status::ISDIR);
        }
        self.nodes.check_new(dir, link.name)?;
        self.nodes.link(dir, link.name, id)?;
        self.nodes.changed_attributes(id);
        Ok(ResultBody::Link {
            attributes: Some(&self.nodes.node(id).attributes),
            dir: self.after(dir),
        })
    }

    // ---- listings and limits

    fn list(&mut self, dir: FileHandle<'_>, ask: &Ask) -> Result<ResultBody<'_>, Status> {
        let Procedures { nodes, listing } = self;
        let id = nodes.find(dir)?;
        let node = nodes.node(id);
        let directory = node.directory()?;
        let dots = [
            (1, &b"."[..], id),
            (2, &b".."[..], NodeId(directory.parent)),
        ];
        let names = directory.order.range(ask.cookie.saturating_add(1)..);
        let names = names.map(|(cookie, (name, id))| (*cookie, &**name, *id));
        let all = dots.into_iter().filter(|(at, ..)| *at > ask.cookie);
        let bytes_max = ask.bytes_max.min(TRANSFER_BYTES_MAX) as usize;
        let mut left = bytes_max.saturating_sub(LISTING_BYTES);
        let mut dir_left = ask.dir_bytes_max as usize;
        let (mut entries, mut eof) = (Vec::new(), true);
        for (cookie, name, id) in all.chain(names) {
            let node = nodes.node(id);
            let dir_bytes = 8 + 4 + name.len().next_multiple_of(4) + 8;
            let plus_bytes = match ask.plus {
                true => 88 + 8 + node.handle.len(),
                false => 0,
            };
            let is_first = entries.is_empty();
            let bytes = 4 + dir_bytes + plus_bytes;
            if bytes > left || (dir_bytes > dir_left && !is_first) {
                eof = false;
                break;
            }
            (left, dir_left) = (left - bytes, dir_left.saturating_sub(dir_bytes));
            entries.push(Entry {
                fileid: id.0,
                name,
                cookie,
                attributes: ask.plus.then_some(&node.attributes),
                handle: ask.plus.then_some(FileHandle(&node.handle)),
            });
        }
        if entries.is_empty() && !eof {
            return Err(Status::TOOSMALL);
        }
        let entries = Entries::of(&entries, ask.plus, listing);
        Ok(ResultBody::Readdir {
            dir: Some(&node.attributes),
            cookie_verifier: 0,
            entries: entries.expect("names and handles are short"),
            eof,
        })
    }

    fn statistics(&self, root: FileHandle<'_>) -> Result<ResultBody<'_>, Status> {
        let attributes = Some(&self.node(root)?.attributes);
        let free_files = TOTAL_FILES.saturating_sub(self.nodes.count());
        Ok(ResultBody::Fsstat {
            attributes,
            total_bytes: TOTAL_BYTES,
            free_bytes: TOTAL_BYTES,
            available_bytes: TOTAL_BYTES,
            total_files: TOTAL_FILES,
            free_files,
            available_files: free_files,
            invariant_sec: 0,
        })
    }

    fn path_limits(&self, object: FileHandle<'_>) -> Result<ResultBody<'_>, Status> {
        Ok(ResultBody::Pathconf {
            attributes: Some(&self.node(object)?.attributes),
            link_max: u32::MAX,
            name_max: NAME_BYTES_MAX,
            no_trunc: true,
            chown_restricted: false,
            case_insensitive: false,
            case_preserving: true,
        })
    }

    fn limits(&self, root: FileHandle<'_>) -> Result<ResultBody<'_>, Status> {
        Ok(ResultBody::Fsinfo {
            attributes: Some(&self.node(root)?.attributes),
            read_max: TRANSFER_BYTES_MAX,
            read_preferred: TRANSFER_BYTES_MAX,
            read_multiple: 4096,
            write_max: TRANSFER_BYTES_MAX,
            write_preferred: TRANSFER_BYTES_MAX,
            write_multiple: 4096,
            dir_preferred: 64 << 10,
            file_size_max: FILE_BYTES_MAX,
            time_delta: NfsTime {
                seconds: 0.into(),
                nseconds: 1.into(),
            },
            properties: PROPERTIES,
        })
    }
}
