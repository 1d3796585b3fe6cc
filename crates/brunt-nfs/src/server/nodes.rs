//! The names and attributes of the null server: files without data, directories, links.
//!
//! The rule: all nodes and names together have at most `MEMORY_BYTES_MAX`; beyond that, nothing more is created.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v3::{Attributes, FileType, NfsTime, Status};

use super::{DISK, DISK_BYTES, EXPORT};

/// Maximum memory for nodes and names.
const MEMORY_BYTES_MAX: usize = 512 << 20;
/// Memory of a node, and of a name without its text, which is in two maps.
const NODE_BYTES: usize = 256;
const NAME_BYTES: usize = 160;
/// Additional memory of a directory: its maps have room for several names.
const DIRECTORY_BYTES: usize = 512;
/// Maximum length of a name.
pub(super) const NAME_BYTES_MAX: u32 = 255;
/// Bytes of a handle.
const HANDLE_BYTES: usize = 16;
/// The first cookie of a directory's entries, after those of `.` and `..`.
const FIRST_COOKIE: u64 = 3;

/// Identifies a node by its place in the table and the number of times that this place was used. Also the node's
/// `fileid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId(pub(super) u64);

impl NodeId {
    fn index(self) -> usize {
        self.0 as u32 as usize
    }
}

/// The type of a node.
#[derive(Debug)]
pub(super) enum Body {
    /// No node: its place is free.
    Free,
    Directory(Directory),
    File,
    Symlink(Box<[u8]>),
    Special,
}

#[derive(Debug, Default)]
pub(super) struct Directory {
    names: HashMap<Arc<[u8]>, (NodeId, u64)>,
    /// The names by cookie: in the order of their creation, so that cookies stay valid.
    pub(super) order: BTreeMap<u64, (Arc<[u8]>, NodeId)>,
    last_cookie: u64,
    pub(super) parent: u64,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) attributes: Attributes,
    pub(super) body: Body,
    pub(super) handle: [u8; HANDLE_BYTES],
    /// The verifier of an exclusive CREATE.
    pub(super) verifier: Option<u64>,
}

impl Node {
    pub(super) fn id(&self) -> NodeId {
        NodeId(self.attributes.fileid.get())
    }

    pub(super) fn directory(&self) -> Result<&Directory, Status> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Status::NOTDIR),
        }
    }

    pub(super) fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }
}

/// The table of nodes.
#[derive(Debug)]
pub(super) struct Nodes {
    /// Identifies this server in its handles and is its write verifier: handles of an earlier server are stale.
    pub(super) instance: u64,
    nodes: Vec<Node>,
    free: Vec<u32>,
    used_bytes: usize,
    pub(super) root: NodeId,
    /// The time of the current call.
    pub(super) now: NfsTime,
}

/// The current time, or the moment after `before` if that is later, so that every change is visible in the times.
fn later(before: NfsTime, now: NfsTime) -> NfsTime {
    let nanos = |time: NfsTime| (u64::from(time.seconds.get()), time.nseconds.get());
    if nanos(now) > nanos(before) {
        return now;
    }
    let (seconds, nseconds) = match before.nseconds.get() {
        999_999_999.. => (before.seconds.get().wrapping_add(1), 0),
        nseconds => (before.seconds.get(), nseconds + 1),
    };
    NfsTime {
        seconds: seconds.into(),
        nseconds: nseconds.into(),
    }
}

impl Nodes {
    /// The root, the exported directory, and its file.
    pub(super) fn new(instance: u64) -> Nodes {
        let mut nodes = Nodes {
            instance,
            nodes: Vec::new(),
            free: Vec::new(),
            used_bytes: 0,
            root: NodeId(0),
            now: NfsTime::default(),
        };
        let fits = "a new table has room";
        let directory = || Body::Directory(Directory::default());
        nodes.root = nodes.add(directory(), FileType::Directory).expect(fits);
        let (root, name) = (nodes.root, &EXPORT.as_bytes()[1..]);
        nodes.node_mut(root).attributes.nlink = 2.into();
        let export = nodes
            .create(root, name, directory(), FileType::Directory)
            .expect(fits);
        let disk = nodes.create(export, DISK.as_bytes(), Body::File, FileType::Regular);
        let disk = nodes.node_mut(disk.expect(fits));
        (disk.attributes.size, disk.attributes.used) = (DISK_BYTES.into(), DISK_BYTES.into());
        nodes
    }

    /// Number of nodes.
    pub(super) fn count(&self) -> u64 {
        (self.nodes.len() - self.free.len()) as u64
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }

    /// The node of a handle.
    #[inline]
    pub(super) fn find(&self, handle: FileHandle<'_>) -> Result<NodeId, Status> {
        let known = || {
            let (instance, id) = handle.0.split_first_chunk::<8>()?;
            if u64::from_be_bytes(*instance) != self.instance {
                return None;
            }
            let id = NodeId(u64::from_be_bytes(id.try_into().ok()?));
            let node = self.nodes.get(id.index())?;
            (node.id() == id && !matches!(node.body, Body::Free)).then_some(id)
        };
        known().ok_or(Status::STALE)
    }

    /// A name in a directory, including `.` and `..`.
    pub(super) fn look_up(&self, dir: NodeId, name: &[u8]) -> Result<NodeId, Status> {
        let directory = self.node(dir).directory()?;
        match name {
            b"." => Ok(dir),
            b".." => Ok(NodeId(directory.parent)),
            name if name.len() > NAME_BYTES_MAX as usize => Err(Status::NAMETOOLONG),
            name => {
                let found = directory.names.get(name);
                found.map(|(id, _)| *id).ok_or(Status::NOENT)
            }
        }
    }

    /// The node of an absolute path.
    pub(super) fn walk(&self, path: &[u8]) -> Result<NodeId, Status> {
        let names = path.split(|byte| *byte == b'/');
        let mut names = names.filter(|name| !name.is_empty());
        names.try_fold(self.root, |dir, name| self.look_up(dir, name))
    }

    /// Counts additional memory as used, unless that would exceed the limit.
    fn charge(&mut self, bytes: usize) -> Result<(), Status> {
        let sum = self.used_bytes + bytes;
        if sum > MEMORY_BYTES_MAX {
            return Err(Status::NOSPC);
        }
        self.used_bytes = sum;
        Ok(())
    }

    fn body_bytes(body: &Body) -> usize {
        match body {
            Body::Symlink(target) => NODE_BYTES + target.len(),
            Body::Directory(_) => NODE_BYTES + DIRECTORY_BYTES,
            _ => NODE_BYTES,
        }
    }

    /// Adds a node without a name.
    fn add(&mut self, mut body: Body, kind: FileType) -> Result<NodeId, Status> {
        self.charge(Self::body_bytes(&body))?;
        let (index, generation) = match self.free.pop() {
            Some(index) => {
                let before = self.nodes[index as usize].id().0 >> 32;
                (index, (before as u32).wrapping_add(1).max(1))
            }
            None => (self.nodes.len() as u32, 1),
        };
        let id = NodeId(u64::from(generation) << 32 | u64::from(index));
        let (mode, nlink, size) = match &mut body {
            Body::Directory(directory) => {
                (directory.parent, directory.last_cookie) = (id.0, FIRST_COOKIE - 1);
                (0o777, 1_u32, 4096_u64)
            }
            Body::Symlink(target) => (0o777, 0, target.len() as u64),
            _ => (0o666, 0, 0),
        };
        let mut handle = [0; HANDLE_BYTES];
        handle[..8].copy_from_slice(&self.instance.to_be_bytes());
        handle[8..].copy_from_slice(&id.0.to_be_bytes());
        let node = Node {
            attributes: Attributes {
                file_type: kind.number().into(),
                mode: mode.into(),
                nlink: nlink.into(),
                size: size.into(),
                used: size.into(),
                fsid: self.instance.into(),
                fileid: id.0.into(),
                atime: self.now,
                mtime: self.now,
                ctime: self.now,
                ..Attributes::default()
            },
            body,
            handle,
            verifier: None,
        };
        match self.nodes.get_mut(index as usize) {
            Some(place) => *place = node,
            None => self.nodes.push(node),
        }
        Ok(id)
    }

    /// Creates a node with a name.
    pub(super) fn create(
        &mut self,
        dir: NodeId,
        name: &[u8],
        body: Body,
        kind: FileType,
    ) -> Result<NodeId, Status> {
        self.check_new(dir, name)?;
        let id = self.add(body, kind)?;
        if let Err(status) = self.link(dir, name, id) {
            self.release(id);
            return Err(status);
        }
        Ok(id)
    }

    /// Checks that a name can be created in a directory.
    pub(super) fn check_new(&self, dir: NodeId, name: &[u8]) -> Result<(), Status> {
        let directory = self.node(dir).directory()?;
        if matches!(name, b"." | b"..") || directory.names.contains_key(name) {
            return Err(Status::EXIST);
        }
        match name {
            name if name.len() > NAME_BYTES_MAX as usize => Err(Status::NAMETOOLONG),
            name if name.is_empty() || name.contains(&b'/') || name.contains(&0) => {
                Err(Status::INVAL)
            }
            _ => Ok(()),
        }
    }

    /// Gives a node a new name.
    pub(super) fn link(&mut self, dir: NodeId, name: &[u8], id: NodeId) -> Result<(), Status> {
        self.charge(NAME_BYTES + name.len())?;
        let is_directory = self.node(id).is_directory();
        let Body::Directory(directory) = &mut self.node_mut(dir).body else {
            return Err(Status::NOTDIR);
        };
        let name: Arc<[u8]> = name.into();
        directory.last_cookie += 1;
        let cookie = directory.last_cookie;
        directory.names.insert(Arc::clone(&name), (id, cookie));
        directory.order.insert(cookie, (name, id));
        self.add_links(id, 1);
        if is_directory {
            // `..` is a link to the parent.
            self.add_links(dir, 1);
            if let Body::Directory(moved) = &mut self.node_mut(id).body {
                moved.parent = dir.0;
            }
        }
        self.changed(dir);
        Ok(())
    }

    /// Removes a name, and its node if no other name remains.
    pub(super) fn unlink(&mut self, dir: NodeId, name: &[u8]) {
        let id = self.detach(dir, name);
        let last = match self.node(id).is_directory() {
            true => 1,
            false => 0,
        };
        match self.node(id).attributes.nlink.get() <= last {
            true => self.release(id),
            false => self.changed_attributes(id),
        }
    }

    /// Removes a name, but not its node.
    pub(super) fn detach(&mut self, dir: NodeId, name: &[u8]) -> NodeId {
        let Body::Directory(directory) = &mut self.node_mut(dir).body else {
            unreachable!("names are in directories")
        };
        let (id, cookie) = directory.names.remove(name).expect("a name that was found");
        directory.order.remove(&cookie);
        let len = directory.names.len();
        if len < directory.names.capacity() / 8 {
            directory.names.shrink_to(2 * len);
        }
        self.used_bytes -= NAME_BYTES + name.len();
        self.add_links(id, -1);
        if self.node(id).is_directory() {
            self.add_links(dir, -1);
        }
        self.changed(dir);
        id
    }

    fn release(&mut self, id: NodeId) {
        let node = self.node_mut(id);
        let body = std::mem::replace(&mut node.body, Body::Free);
        self.used_bytes -= Self::body_bytes(&body);
        self.free.push(id.index() as u32);
    }

    fn add_links(&mut self, id: NodeId, more: i32) {
        let attributes = &mut self.node_mut(id).attributes;
        attributes.nlink = attributes.nlink.get().wrapping_add_signed(more).into();
    }

    /// Whether `below` is `above`, or in a directory below it.
    pub(super) fn is_below(&self, mut below: NodeId, above: NodeId) -> bool {
        loop {
            if below == above {
                return true;
            }
            match self.node(below).directory() {
                Ok(directory) if below != self.root => below = NodeId(directory.parent),
                _ => return false,
            }
        }
    }

    /// Records that the contents of a node have changed.
    pub(super) fn changed(&mut self, id: NodeId) {
        self.changed_attributes(id);
        let attributes = &mut self.node_mut(id).attributes;
        attributes.mtime = attributes.ctime;
    }

    /// Records that the attributes of a node have changed.
    pub(super) fn changed_attributes(&mut self, id: NodeId) {
        let now = self.now;
        let attributes = &mut self.node_mut(id).attributes;
        attributes.ctime = later(attributes.ctime, now);
    }
}
