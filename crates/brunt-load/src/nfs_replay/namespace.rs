//! Derives from the calls of a trace which directories, files and links existed before its first call.
//!
//! Calls are considered in the order of their replies. What a name refers to is known from the first reply that says
//! so; a name that a call creates did not exist before. Replies of calls that ran at the same time may arrive in either
//! order, so a reply never contradicts one that it overlaps.
//!
//! The rule: even if a capture has gaps, each handle is one object, and an object without a known name is still an
//! object.

use std::collections::HashMap;

use brunt_trace::nfs::{NfsTrace, NfsTraceCall, NfsTraceName, NfsTraceSet};
use brunt_wire::nfs::v3::{FileType, Procedure, Status};

/// Represents the absence of an object, name or call.
pub(super) const NONE: u32 = u32::MAX;

const EXIST: u32 = 17;
const NOTEMPTY: u32 = 66;
/// The mode UNCHECKED of CREATE (RFC 1813, 3.3.8).
const UNCHECKED: u32 = 0;

/// The type of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ObjectKind {
    #[default]
    Unknown,
    File,
    Directory,
    Symlink,
    /// A device, socket or fifo.
    Special,
}

/// A file, directory or symbolic link that calls refer to.
#[derive(Clone, Debug, Default)]
pub(super) struct TracedObject {
    pub(super) kind: ObjectKind,
    /// Whether one of the object's handles was captured.
    pub(super) has_handle: bool,
    pub(super) is_root: bool,
    /// Whether a call of the trace created the object.
    pub(super) is_created: bool,
    /// Whether a call on one of the object's handles did not fail with NFS3ERR_STALE.
    pub(super) was_alive: bool,
    /// The directories that contained the object before the trace, each with the object's name there.
    pub(super) links: Vec<(u32, u32)>,
    /// Length before the trace.
    pub(super) size_bytes: Option<u64>,
    /// End of the data that was read before the object was changed: the length, if no reply contains it.
    pub(super) read_to: u64,
    pub(super) mode: Option<u32>,
    pub(super) owner: Option<(u32, u32)>,
    /// Target of a symbolic link.
    pub(super) target: Option<u32>,
    /// Whether the directory contains something that the trace does not name.
    pub(super) is_not_empty: bool,
    /// Whether data or length was changed, so that later observations don't show the object's state before the trace.
    is_changed: bool,
    /// The object that turned out to be the same as this one.
    same_as: Option<u32>,
    /// Current number of names in it.
    children: u32,
}

/// The objects of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallObjects {
    /// The object or directory on which it operates.
    pub(super) object: u32,
    /// LINK's directory, or RENAME's target directory.
    pub(super) other: u32,
    /// Current number of names in this directory.
    pub(super) result: u32,
    /// The object that it removes, or replaces with another file.
    pub(super) victim: u32,
}

impl CallObjects {
    const NONE: CallObjects = CallObjects {
        object: NONE,
        other: NONE,
        result: NONE,
        victim: NONE,
    };
}

/// The objects of a trace.
#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) objects: Vec<TracedObject>,
    /// The objects of each call of the trace.
    pub(super) calls: Vec<CallObjects>,
    /// Replies that contradict earlier ones, because calls between them were not captured.
    pub(super) contradictions: u64,
}

/// What a name refers to.
#[derive(Clone, Copy, Debug)]
struct NameState {
    /// `None` if the name refers to nothing.
    holds: Option<u32>,
    /// The end of the last call that showed this state.
    end_ns: i64,
}

impl Namespace {
    pub(super) fn of(trace: &NfsTrace) -> Namespace {
        let mut observer = Observer {
            trace,
            objects: Vec::new(),
            files: HashMap::new(),
            names: HashMap::new(),
            contradictions: 0,
        };
        for root in &trace.roots {
            let root = observer.object_of(*root);
            let object = &mut observer.objects[root as usize];
            (object.is_root, object.kind) = (true, ObjectKind::Directory);
            object.was_alive = true;
        }
        let mut order: Vec<u32> = (0..trace.calls.len() as u32).collect();
        order.sort_by_key(|index| {
            let call = &trace.calls[*index as usize];
            (call.end_ns.unwrap_or(call.start_ns), *index)
        });
        let mut calls = vec![CallObjects::NONE; trace.calls.len()];
        for index in order {
            calls[index as usize] = observer.see(&trace.calls[index as usize]);
        }
        for objects in &mut calls {
            let CallObjects {
                object,
                other,
                result,
                victim,
            } = objects;
            for id in [object, other, result, victim] {
                *id = observer.find(*id);
            }
        }
        for id in 0..observer.objects.len() {
            let mut links = std::mem::take(&mut observer.objects[id].links);
            for (directory, _) in &mut links {
                *directory = observer.find(*directory);
            }
            observer.objects[id].links = links;
        }
        Namespace {
            objects: observer.objects,
            calls,
            contradictions: observer.contradictions,
        }
    }

    /// Returns true if the object had to exist before the first call.
    pub(super) fn is_initial(&self, id: u32) -> bool {
        let object = &self.objects[id as usize];
        object.same_as.is_none()
            && !object.is_created
            && (object.was_alive || !object.links.is_empty())
    }
}

struct Observer<'a> {
    trace: &'a NfsTrace,
    objects: Vec<TracedObject>,
    files: HashMap<i64, u32>,
    /// Keyed by directory and name.
    names: HashMap<(u32, u32), NameState>,
    contradictions: u64,
}

impl Observer<'_> {
    /// Returns the object that this one turned out to be.
    fn find(&self, mut id: u32) -> u32 {
        while id != NONE
            && let Some(same) = self.objects[id as usize].same_as
        {
            id = same;
        }
        id
    }

    fn at(&mut self, id: u32) -> &mut TracedObject {
        &mut self.objects[id as usize]
    }

    fn new_object(&mut self, kind: ObjectKind) -> u32 {
        self.objects.push(TracedObject {
            kind,
            ..TracedObject::default()
        });
        self.objects.len() as u32 - 1
    }

    fn object_of(&mut self, file: i64) -> u32 {
        if let Some(id) = self.files.get(&file) {
            return self.find(*id);
        }
        let id = self.new_object(ObjectKind::Unknown);
        self.at(id).has_handle = true;
        self.files.insert(file, id);
        id
    }

    /// Returns what a name refers to, if that is known.
    fn state(&self, name: (u32, u32)) -> Option<NameState> {
        let state = *self.names.get(&name)?;
        Some(NameState {
            holds: state.holds.map(|id| self.find(id)),
            ..state
        })
    }

    fn set(&mut self, name: (u32, u32), holds: Option<u32>, call: &NfsTraceCall) {
        let end_ns = call.end_ns.unwrap_or(call.start_ns);
        let before = self.names.insert(name, NameState { holds, end_ns });
        let had = before.is_some_and(|state| state.holds.is_some());
        let directory = self.at(name.0);
        match (had, holds.is_some()) {
            (false, true) => directory.children += 1,
            (true, false) => directory.children = directory.children.saturating_sub(1),
            _ => {}
        }
    }

    /// Adds a name that existed before the trace.
    fn set_initial(&mut self, name: (u32, u32), id: u32, call: &NfsTraceCall) {
        self.at(id).links.push(name);
        self.set(name, Some(id), call);
    }

    /// Adds an object that existed before the trace, of which only the name is known.
    fn initial_named(&mut self, name: (u32, u32), kind: ObjectKind, call: &NfsTraceCall) -> u32 {
        let id = self.new_object(kind);
        self.set_initial(name, id, call);
        id
    }

    /// Records that a reply shows the name, and possibly its handle, to exist.
    fn sees_name(&mut self, name: (u32, u32), file: Option<i64>, call: &NfsTraceCall) -> u32 {
        let known = file.map(|file| self.object_of(file));
        let Some(state) = self.state(name) else {
            return match known {
                // The object was created under another name: the call that moved it here was not captured.
                Some(id) if self.objects[id as usize].is_created => {
                    self.contradictions += 1;
                    self.set(name, Some(id), call);
                    id
                }
                Some(id) => {
                    self.set_initial(name, id, call);
                    id
                }
                None => self.initial_named(name, ObjectKind::Unknown, call),
            };
        };
        match (state.holds, known) {
            (Some(held), None) => held,
            (Some(held), Some(id)) if held == id => id,
            // Until now, only the name of this object was known.
            (Some(held), Some(id)) if !self.objects[held as usize].has_handle => {
                self.unite(held, id);
                id
            }
            (_, known) => {
                let id = known.unwrap_or_else(|| self.new_object(ObjectKind::Unknown));
                if call.start_ns > state.end_ns {
                    self.contradictions += 1;
                    self.set(name, Some(id), call);
                }
                id
            }
        }
    }

    /// Records that a reply shows the name not to exist.
    fn sees_no_name(&mut self, name: (u32, u32), call: &NfsTraceCall) {
        match self.state(name) {
            None => self.set(name, None, call),
            Some(state) if state.holds.is_some() && call.start_ns > state.end_ns => {
                self.contradictions += 1;
                self.set(name, None, call);
            }
            Some(_) => {}
        }
    }

    /// Identifies an object that was known only by its name as this one.
    fn unite(&mut self, named: u32, id: u32) {
        let known = std::mem::take(self.at(named));
        self.at(named).same_as = Some(id);
        let object = self.at(id);
        object.is_created |= known.is_created;
        object.links.extend(known.links);
        object.target = object.target.or(known.target);
        object.is_not_empty |= known.is_not_empty;
        if object.kind == ObjectKind::Unknown {
            object.kind = known.kind;
        }
    }

    /// Records that a call has created the name.
    fn creates(
        &mut self,
        name: (u32, u32),
        kind: ObjectKind,
        (file, may_exist): (Option<i64>, bool),
        call: &NfsTraceCall,
    ) -> u32 {
        let known = file.and_then(|file| self.files.get(&file)).copied();
        let known = known.map(|id| self.find(id));
        let state = self.state(name);
        if let Some(held) = state.and_then(|state| state.holds) {
            if may_exist {
                return self.sees_name(name, file, call);
            }
            // A concurrent call has already observed it.
            let is_overlapped = state.is_some_and(|state| call.start_ns <= state.end_ns);
            if is_overlapped && (known.is_none() || known == Some(held)) {
                let object = self.at(held);
                object.links.retain(|link| *link != name);
                object.is_created = true;
                if let Some(file) = file {
                    let id = self.object_of(file);
                    if id != held {
                        self.unite(held, id);
                    }
                    return id;
                }
                return held;
            }
            self.contradictions += 1;
        }
        if may_exist && state.is_none() && known.is_some() {
            return self.sees_name(name, file, call);
        }
        let id = match file {
            Some(file) => self.object_of(file),
            None => self.new_object(kind),
        };
        let object = self.at(id);
        object.kind = kind;
        object.is_created |= object.links.is_empty();
        self.set(name, Some(id), call);
        id
    }

    /// Records that a call has removed the name; returns what the name referred to.
    fn removes(&mut self, name: (u32, u32), kind: ObjectKind, call: &NfsTraceCall) -> u32 {
        let held = self.state(name).and_then(|state| state.holds);
        let id = match held {
            Some(id) => id,
            // The name didn't exist before: the call that created it was not captured, or its reply comes later.
            None if self.names.contains_key(&name) => {
                self.contradictions += 1;
                self.new_object(ObjectKind::Unknown)
            }
            None => self.initial_named(name, ObjectKind::Unknown, call),
        };
        let object = self.at(id);
        if object.kind == ObjectKind::Unknown {
            object.kind = kind;
        }
        self.set(name, None, call);
        id
    }

    /// Records what a call and its reply show, and returns the call's objects.
    fn see(&mut self, call: &NfsTraceCall) -> CallObjects {
        let mut objects = CallObjects::NONE;
        let Some(procedure) = Procedure::from_number(call.procedure) else {
            return objects;
        };
        let trace = self.trace;
        if let Some(file) = call.file {
            objects.object = self.object_of(file);
            // Without a reply, the call may have succeeded.
            let is_alive = call.status != Some(Status::STALE.0);
            self.at(objects.object).was_alive |= is_alive;
        }
        let names = trace.names.of(call.record);
        let set = trace.sets.first(call.record).copied().unwrap_or_default();
        self.see_names(call, procedure, names, &set, &mut objects);
        if call.status == Some(Status::OK.0) {
            self.see_kind(procedure, objects.object);
            if trace.locks.first(call.record).is_some() {
                self.see_kind(Procedure::Read, objects.object);
            }
            for entry in trace.entries.of(call.record) {
                let is_dot = matches!(trace.texts[entry.name as usize].as_ref(), b"." | b"..");
                if !is_dot && objects.object != NONE {
                    self.sees_name((objects.object, entry.name), entry.file, call);
                }
            }
        }
        self.see_attributes(call, procedure, &objects);
        let changes = match procedure {
            Procedure::Write => true,
            Procedure::Setattr => set.size_bytes.is_some(),
            _ => false,
        };
        if changes && objects.object != NONE && call.status == Some(Status::OK.0) {
            self.at(objects.object).is_changed = true;
        }
        if procedure == Procedure::Create && set.size_bytes.is_some() && objects.result != NONE {
            self.at(objects.result).is_changed = true;
        }
        objects
    }

    fn see_kind(&mut self, procedure: Procedure, id: u32) {
        let kind = match procedure {
            Procedure::Read | Procedure::Write | Procedure::Commit => ObjectKind::File,
            Procedure::Readlink => ObjectKind::Symlink,
            Procedure::Lookup
            | Procedure::Create
            | Procedure::Mkdir
            | Procedure::Symlink
            | Procedure::Mknod
            | Procedure::Remove
            | Procedure::Rmdir
            | Procedure::Rename
            | Procedure::Readdir
            | Procedure::Readdirplus => ObjectKind::Directory,
            _ => return,
        };
        if id != NONE && self.objects[id as usize].kind == ObjectKind::Unknown {
            self.at(id).kind = kind;
        }
    }

    fn see_names<'n>(
        &mut self,
        call: &NfsTraceCall,
        procedure: Procedure,
        mut names: impl Iterator<Item = &'n NfsTraceName>,
        set: &NfsTraceSet,
        objects: &mut CallObjects,
    ) {
        let Some(first) = names.next() else { return };
        let status = call.status;
        let is_ok = status == Some(Status::OK.0);
        if procedure == Procedure::Readlink {
            if let (true, Some(target), id) = (is_ok, first.target, objects.object)
                && id != NONE
            {
                self.at(id).target = Some(target);
            }
            return;
        }
        let directory = first.directory.map(|file| self.object_of(file));
        let (Some(directory), Some(name)) = (directory, first.name) else {
            return;
        };
        if matches!(self.trace.texts[name as usize].as_ref(), b"." | b"..") {
            objects.result = first.leads_to.map_or(NONE, |file| self.object_of(file));
            return;
        }
        let name = (directory, name);
        match procedure {
            Procedure::Lookup if is_ok => {
                objects.result = self.sees_name(name, first.leads_to, call);
            }
            Procedure::Lookup | Procedure::Remove | Procedure::Rmdir
                if status == Some(Status::NOENT.0) =>
            {
                self.sees_no_name(name, call);
            }
            Procedure::Create | Procedure::Mkdir | Procedure::Symlink | Procedure::Mknod => {
                objects.result = self.see_creation(name, first, (procedure, set), call);
            }
            Procedure::Remove if is_ok => {
                objects.victim = self.removes(name, ObjectKind::File, call);
            }
            Procedure::Rmdir if is_ok => {
                objects.victim = self.removes(name, ObjectKind::Directory, call);
            }
            Procedure::Rmdir if status == Some(NOTEMPTY) => {
                let id = self.sees_name(name, None, call);
                let object = self.at(id);
                object.kind = ObjectKind::Directory;
                object.is_not_empty |= object.children == 0;
            }
            Procedure::Rename => {
                let second = names.next();
                self.see_rename(call, name, second, objects);
            }
            Procedure::Link => {
                objects.other = directory;
                self.at(directory).kind = ObjectKind::Directory;
                match status {
                    Some(EXIST) => drop(self.sees_name(name, None, call)),
                    Some(0) if objects.object != NONE => {
                        self.set(name, Some(objects.object), call);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn see_creation(
        &mut self,
        name: (u32, u32),
        named: &NfsTraceName,
        (procedure, set): (Procedure, &NfsTraceSet),
        call: &NfsTraceCall,
    ) -> u32 {
        let kind = match procedure {
            Procedure::Create => ObjectKind::File,
            Procedure::Mkdir => ObjectKind::Directory,
            Procedure::Symlink => ObjectKind::Symlink,
            _ => ObjectKind::Special,
        };
        let may_exist = procedure == Procedure::Create && set.how == Some(UNCHECKED);
        match call.status {
            Some(0) => {
                let id = self.creates(name, kind, (named.leads_to, may_exist), call);
                self.at(id).target = named.target.or(self.objects[id as usize].target);
                id
            }
            Some(EXIST) => {
                self.sees_name(name, None, call);
                NONE
            }
            _ => NONE,
        }
    }

    fn see_rename(
        &mut self,
        call: &NfsTraceCall,
        from: (u32, u32),
        to: Option<&NfsTraceName>,
        objects: &mut CallObjects,
    ) {
        let Some(NfsTraceName {
            directory: Some(directory),
            name: Some(name),
            ..
        }) = to
        else {
            return;
        };
        let to = (self.object_of(*directory), *name);
        objects.other = to.0;
        match call.status {
            Some(0) => {
                let id = self.removes(from, ObjectKind::Unknown, call);
                let replaced = self.state(to).and_then(|state| state.holds);
                objects.victim = replaced.filter(|replaced| *replaced != id).unwrap_or(NONE);
                self.at(to.0).kind = ObjectKind::Directory;
                self.set(to, Some(id), call);
            }
            Some(2) if self.state(from).is_none() => self.sees_no_name(from, call),
            _ => {}
        }
    }

    /// Records the attributes in a reply.
    fn see_attributes(&mut self, call: &NfsTraceCall, procedure: Procedure, objects: &CallObjects) {
        let trace = self.trace;
        for before in trace.sizes_before.of(call.record) {
            let id = self.object_of(before.file);
            let object = self.at(id);
            if !object.is_changed {
                object.size_bytes = object.size_bytes.or(Some(before.size_bytes));
            }
        }
        let written_to = call.offset_bytes.saturating_add(call.moved_bytes);
        for seen in trace.attributes.of(call.record) {
            let id = self.object_of(seen.file);
            let is_object = id == objects.object;
            let object = self.at(id);
            object.was_alive = true;
            if let Some(file_type) = seen.file_type {
                object.kind = match FileType::from_number(file_type) {
                    FileType::Regular => ObjectKind::File,
                    FileType::Directory => ObjectKind::Directory,
                    FileType::Symlink => ObjectKind::Symlink,
                    _ => ObjectKind::Special,
                };
            }
            if !(is_object && procedure == Procedure::Setattr) {
                object.mode = object.mode.or(seen.mode);
                object.owner = object.owner.or(seen.uid.zip(seen.gid));
            }
            // A WRITE that may have extended it, or a SETATTR, invalidates its earlier length.
            let is_as_before = match procedure {
                Procedure::Write if is_object => {
                    seen.size_bytes.is_some_and(|size| written_to < size)
                }
                Procedure::Setattr if is_object => false,
                _ => true,
            };
            if is_as_before && !object.is_changed {
                object.size_bytes = object.size_bytes.or(seen.size_bytes);
            }
        }
        let is_read = procedure == Procedure::Read && call.status == Some(Status::OK.0);
        if is_read && objects.object != NONE {
            let object = self.at(objects.object);
            if !object.is_changed {
                object.read_to = object.read_to.max(written_to);
            }
        }
    }
}
