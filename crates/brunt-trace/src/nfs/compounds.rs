//! Translates the operations of NFSv4 compounds to NFSv3 calls, which replays work with.
//!
//! Each operation on a file or directory becomes a call; the calls of a compound follow each other, spread evenly
//! over the compound's duration. A GETATTR becomes a call only if its compound has no other call, because NFSv3
//! replies contain attributes anyway. SEQUENCE, and operations that only pass on handles, are part of the operation
//! that they serve. If one of them fails, so does the operation that needs it: NFSv3 has both in one call. Lock
//! operations (`locks`) have no NFSv3 procedure, but rows with their arguments.
//!
//! The rule: each operation of a compound becomes a call, is part of one, or is counted with the reason why not, so
//! that each compound adds something.

mod locks;

use std::collections::{BTreeMap, HashMap, HashSet};

use brunt_lake::Batch;

use self::locks::{LockOwners, StepLock};
use super::{
    NfsTrace, NfsTraceAttributes, NfsTraceCall, NfsTraceEntry, NfsTraceListing, NfsTraceLock,
    NfsTraceName, NfsTraceSet, RowsByCall, Texts, number, set_time,
};
use crate::tables::int;

/// Numbers of NFSv3's procedures (RFC 1813).
mod procedure {
    /// Represents lock operations, which NFSv3 doesn't have.
    pub const NULL: u32 = 0;
    pub const GETATTR: u32 = 1;
    pub const SETATTR: u32 = 2;
    pub const LOOKUP: u32 = 3;
    pub const ACCESS: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const READ: u32 = 6;
    pub const WRITE: u32 = 7;
    pub const CREATE: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const SYMLINK: u32 = 10;
    pub const MKNOD: u32 = 11;
    pub const REMOVE: u32 = 12;
    pub const RMDIR: u32 = 13;
    pub const RENAME: u32 = 14;
    pub const LINK: u32 = 15;
    pub const READDIR: u32 = 16;
    pub const READDIRPLUS: u32 = 17;
    pub const COMMIT: u32 = 21;
}

/// The root of the server, whose handle isn't in the trace.
const ROOT: i64 = i64::MIN;
/// File types, the same in both versions.
const DIRECTORY: u32 = 2;
const SYMLINK: u32 = 5;
/// NFS4ERR_NOTEMPTY.
const NOTEMPTY: u32 = 66;

/// Why an operation is not replayed.
const OPENING: &str =
    "NFSv4 OPEN and CLOSE of known files: the replaying client opens and closes files itself";
const SESSION: &str = "NFSv4 sessions and leases: the replaying client has its own";
const UNEXECUTED: &str =
    "NFSv4 operations that the server did not execute, because an earlier one failed";
const HANDLES: &str = "NFSv4 compounds that only set or return handles";
const UNREAD: &str = "NFSv4 compounds whose operations are not in the trace";
const UNKNOWN: &str = "NFSv4 operations with an undefined number";

/// A compound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compound {
    pub(super) record: i64,
    pub(super) start_ns: i64,
    pub(super) end_ns: Option<i64>,
    pub(super) client: u32,
    pub(super) caller: Option<u32>,
    /// The compound's status, if it was seen.
    pub(super) status: Option<u32>,
}

impl Compound {
    /// Whether the server has executed none of its operations.
    fn is_refused(&self, steps: &[&CompoundStep]) -> bool {
        let is_failed = self.status.is_some_and(|status| status != 0);
        is_failed && steps.iter().all(|step| step.status.is_none())
    }
}

/// An operation of a compound.
#[derive(Clone, Debug, Default)]
pub(super) struct CompoundStep {
    position: u32,
    operation: String,
    file: Option<i64>,
    offset_bytes: u64,
    asked_bytes: u32,
    moved_bytes: u64,
    status: Option<u32>,
    name: Option<u32>,
    new_name: Option<u32>,
    saved_file: Option<i64>,
    argument: Option<u32>,
    verifier: u64,
    cookie: u64,
    next_cookie: Option<u64>,
    lock: Option<StepLock>,
}

/// Attributes that an operation of a compound sets or returns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CompoundAttributes {
    position: u32,
    entry: Option<u32>,
    name: Option<u32>,
    by_client: bool,
    file: Option<i64>,
    file_type: Option<u32>,
    set: NfsTraceSet,
}

/// Appends a batch of the table of compounds' operations to `rows`.
pub(super) fn steps(batch: &Batch, texts: &mut Texts, rows: &mut Vec<(i64, CompoundStep)>) {
    let names = batch.texts("name").zip(batch.texts("new_name"));
    let operations = batch.texts("operation").zip(names).enumerate();
    for (row, (operation, (name, new_name))) in operations {
        let mut text =
            |column, text: &str| (!batch.is_null(column, row)).then(|| texts.number(text));
        let long = |column| int(batch, column, row).map(|value| value as u64);
        let step = CompoundStep {
            position: number(batch, "position", row).unwrap_or(0),
            operation: operation.to_string(),
            file: int(batch, "file", row),
            offset_bytes: long("offset_bytes").unwrap_or(0),
            asked_bytes: number(batch, "asked_bytes", row).unwrap_or(0),
            moved_bytes: long("moved_bytes").unwrap_or(0),
            status: number(batch, "status", row),
            name: text("name", name),
            new_name: text("new_name", new_name),
            saved_file: int(batch, "saved_file", row),
            argument: number(batch, "argument", row),
            verifier: long("verifier").unwrap_or(0),
            cookie: long("cookie").unwrap_or(0),
            next_cookie: long("next_cookie"),
            lock: StepLock::read(batch, row),
        };
        rows.push((batch.ints("record_id")[row], step));
    }
}

/// Appends a batch of the table of compounds' attributes to `rows`.
pub(super) fn attributes(
    batch: &Batch,
    texts: &mut Texts,
    rows: &mut Vec<(i64, CompoundAttributes)>,
) {
    let owners = batch.texts("owner").zip(batch.texts("owner_group"));
    let names = batch.texts("name").zip(owners).enumerate();
    for (row, (name, (owner, group))) in names {
        let number = |column| number(batch, column, row);
        let id = |column, text| (!batch.is_null(column, row)).then(|| id(text)).flatten();
        let attributes = CompoundAttributes {
            position: number("position").unwrap_or(0),
            entry: number("entry"),
            name: (!batch.is_null("name", row)).then(|| texts.number(name)),
            by_client: batch.bools("by_client")[row],
            file: int(batch, "file", row),
            file_type: number("file_type"),
            set: NfsTraceSet {
                mode: number("mode"),
                uid: id("owner", owner),
                gid: id("owner_group", group),
                size_bytes: int(batch, "size_bytes", row).map(|size| size as u64),
                atime: set_time(batch, row, "atime_how", "atime"),
                mtime: set_time(batch, row, "mtime_how", "mtime"),
                device: ["device_major", "device_minor"].map(|column| number(column).unwrap_or(0)),
                ..NfsTraceSet::default()
            },
        };
        rows.push((batch.ints("record_id")[row], attributes));
    }
}

/// The id of a user or group whose name is a number or root (RFC 8881, 5.9).
fn id(name: &str) -> Option<u32> {
    match name.split('@').next() {
        Some("root") => Some(0),
        _ => name.parse().ok(),
    }
}

/// Calls with the rows that belong to them.
#[derive(Debug, Default)]
pub(super) struct CompoundCalls {
    calls: Vec<NfsTraceCall>,
    names: Vec<(i64, NfsTraceName)>,
    attributes: Vec<(i64, NfsTraceAttributes)>,
    sets: Vec<(i64, NfsTraceSet)>,
    stable: Vec<(i64, u32)>,
    accesses: Vec<(i64, u32)>,
    listings: Vec<(i64, NfsTraceListing)>,
    entries: Vec<(i64, NfsTraceEntry)>,
    locks: Vec<(i64, NfsTraceLock)>,
    lock_owners: LockOwners,
    /// Operations that a client makes for itself, and operations without a counterpart in NFSv3, by reason.
    others: BTreeMap<String, u64>,
    without_counterpart: BTreeMap<String, u64>,
    /// The root's handle, once GETFH has returned it.
    root: Option<i64>,
    /// The file that a name in a directory led to last.
    leads_to: HashMap<(i64, u32), i64>,
    directories: HashSet<i64>,
    /// Number of handles that had to be invented.
    invented: i64,
}

/// The state of a compound while its operations are processed.
#[derive(Debug, Default)]
struct Walker {
    /// The client.
    client: u32,
    /// The current file and the saved one.
    current: Option<i64>,
    saved: Option<i64>,
    /// The row in `names` of the last name that led to a file; it gets the handle that GETFH returns.
    named: Option<usize>,
    /// GETATTRs that succeeded, with their files.
    getattrs: Vec<(CompoundStep, Option<i64>)>,
}

/// The server's progress in a compound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// No operation has failed.
    Executing,
    /// An operation that passes on a handle failed with this status, so the next operation that needs the handle
    /// fails with it.
    NoHandle(u32),
    /// An operation failed; the server stops there.
    Stopped,
}

impl CompoundCalls {
    /// Adds a compound. Compounds have to be added in the order of their times.
    pub(super) fn add(
        &mut self,
        compound: &Compound,
        mut steps: Vec<&CompoundStep>,
        attributes: &[&CompoundAttributes],
    ) {
        steps.sort_by_key(|step| step.position);
        if steps.is_empty() {
            return self.left_out(UNREAD);
        }
        let (first, counted) = (self.calls.len(), self.counted());
        let mut walker = Walker {
            client: compound.client,
            ..Walker::default()
        };
        let mut progress = match compound.is_refused(&steps) {
            true => Progress::Stopped,
            false => Progress::Executing,
        };
        for step in &steps {
            let list = attributes
                .iter()
                .filter(|list| list.position == step.position);
            let list: Vec<&CompoundAttributes> = list.copied().collect();
            progress = self.advance(progress, step, &list, &mut walker);
        }
        if self.calls.len() == first {
            for (step, file) in std::mem::take(&mut walker.getattrs) {
                self.call(procedure::GETATTR, &step, file);
            }
        }
        if self.calls.len() > first {
            self.observe(first, attributes);
            self.place(compound, first);
        } else if self.counted() == counted {
            self.left_out(match progress {
                _ if steps.iter().all(|step| is_session(&step.operation)) => SESSION,
                Progress::Executing => HANDLES,
                Progress::NoHandle(_) | Progress::Stopped => UNEXECUTED,
            });
        }
    }

    /// Adds the next operation of a compound.
    fn advance(
        &mut self,
        progress: Progress,
        step: &CompoundStep,
        list: &[&CompoundAttributes],
        walker: &mut Walker,
    ) -> Progress {
        let operation = step.operation.as_str();
        let is_part = operation == "SEQUENCE" || carries_handle(operation);
        match progress {
            Progress::Executing => {
                self.walk(step, list, walker);
                match step.status {
                    None | Some(0) => Progress::Executing,
                    Some(status) if carries_handle(operation) => Progress::NoHandle(status),
                    Some(_) => Progress::Stopped,
                }
            }
            Progress::NoHandle(_) if is_part => {
                // RENAME and LINK have two files.
                self.walk(step, list, walker);
                progress
            }
            Progress::NoHandle(status) => {
                let status = Some(status);
                let failed = CompoundStep {
                    status,
                    ..step.clone()
                };
                self.walk(&failed, list, walker);
                Progress::Stopped
            }
            // Attributes are part of the call that failed.
            Progress::Stopped if is_part || operation == "GETATTR" => progress,
            Progress::Stopped => {
                self.left_out(UNEXECUTED);
                progress
            }
        }
    }

    /// Number of operations that didn't become calls.
    fn counted(&self) -> u64 {
        let counts = self
            .others
            .values()
            .chain(self.without_counterpart.values());
        counts.sum()
    }

    /// Sets the clients and times of the calls since `first`, which belong to this compound.
    fn place(&mut self, compound: &Compound, first: usize) {
        let calls = &mut self.calls[first..];
        let count = calls.len() as i64;
        for (index, call) in (0..).zip(calls) {
            (call.client, call.caller) = (compound.client, compound.caller);
            call.start_ns = compound.start_ns;
            if let Some(end_ns) = compound.end_ns {
                let took = end_ns.saturating_sub(compound.start_ns);
                let at = |index: i64| compound.start_ns + took / count * index;
                (call.start_ns, call.end_ns) = (at(index), Some(at(index + 1)));
            }
        }
    }

    /// The attributes in a compound's reply belong to its last call.
    fn observe(&mut self, first: usize, attributes: &[&CompoundAttributes]) {
        let Some(record) = self.calls[first..].last().map(|call| call.record) else {
            return;
        };
        for list in attributes.iter().filter(|list| !list.by_client) {
            let Some(file) = list.file else { continue };
            if list.file_type == Some(DIRECTORY) {
                self.directories.insert(file);
            }
            let seen = NfsTraceAttributes {
                file,
                file_type: list.file_type,
                mode: list.set.mode,
                uid: list.set.uid,
                gid: list.set.gid,
                size_bytes: list.set.size_bytes,
            };
            self.attributes.push((record, seen));
        }
    }

    /// Adds a call, and returns the number of its record.
    fn call(&mut self, procedure: u32, step: &CompoundStep, file: Option<i64>) -> i64 {
        // Negative, because NFSv3 calls have positive numbers.
        let record = -1 - self.calls.len() as i64;
        self.calls.push(NfsTraceCall {
            record,
            start_ns: 0,
            end_ns: None,
            client: 0,
            caller: None,
            procedure,
            status: step.status,
            file,
            offset_bytes: step.offset_bytes,
            asked_bytes: step.asked_bytes,
            moved_bytes: step.moved_bytes,
        });
        record
    }

    fn walk(&mut self, step: &CompoundStep, list: &[&CompoundAttributes], walker: &mut Walker) {
        // The row may lack the handle of the file that a name led to.
        let file = step.file.or(walker.current);
        match step.operation.as_str() {
            "PUTFH" => (walker.current, walker.named) = (step.file, None),
            "PUTROOTFH" | "PUTPUBFH" => {
                let root = self.root.unwrap_or(ROOT);
                (walker.current, walker.named) = (Some(root), None);
            }
            "SAVEFH" => walker.saved = walker.current,
            "RESTOREFH" => (walker.current, walker.named) = (walker.saved, None),
            "GETFH" => self.got_handle(step.file, walker),
            // Another call's reply has the attributes, but an error needs its own call.
            "GETATTR" => match step.status {
                None | Some(0) => walker.getattrs.push((step.clone(), file)),
                Some(_) => {
                    self.call(procedure::GETATTR, step, file);
                }
            },
            "LOOKUP" => self.named(procedure::LOOKUP, step, walker),
            "OPEN" => self.open(step, list, walker),
            "CREATE" => {
                let procedure = match step.argument {
                    Some(DIRECTORY) => procedure::MKDIR,
                    Some(SYMLINK) => procedure::SYMLINK,
                    _ => procedure::MKNOD,
                };
                self.named(procedure, step, walker);
                self.sets(step, list);
            }
            "LINK" => {
                let file = step.saved_file.or(walker.saved);
                let record = self.call(procedure::LINK, step, file);
                let made = file.filter(|_| step.status == Some(0));
                self.name(record, 0, (walker.current, step.name), made);
            }
            "RENAME" => self.rename(step, walker),
            "REMOVE" => self.remove(step, walker),
            "CLOSE" | "OPEN_CONFIRM" | "OPEN_DOWNGRADE" => self.left_out(OPENING),
            "SEQUENCE" => {}
            operation if is_session(operation) => self.left_out(SESSION),
            _ => self.of_a_file(step, list, file, walker),
        }
    }

    /// Adds an operation on the current file alone.
    fn of_a_file(
        &mut self,
        step: &CompoundStep,
        list: &[&CompoundAttributes],
        file: Option<i64>,
        walker: &mut Walker,
    ) {
        match step.operation.as_str() {
            "READ" => {
                self.call(procedure::READ, step, file);
            }
            "COMMIT" => {
                self.call(procedure::COMMIT, step, file);
            }
            "WRITE" => {
                let record = self.call(procedure::WRITE, step, file);
                let stable = step.argument.map(|stable| (record, stable));
                self.stable.extend(stable);
            }
            "ACCESS" => {
                let record = self.call(procedure::ACCESS, step, file);
                let asked = step.argument.map(|asked| (record, asked));
                self.accesses.extend(asked);
            }
            "SETATTR" => {
                self.call(procedure::SETATTR, step, file);
                self.sets(step, list);
            }
            "READLINK" => {
                let record = self.call(procedure::READLINK, step, file);
                let name = NfsTraceName {
                    position: 0,
                    directory: None,
                    name: None,
                    leads_to: None,
                    target: step.new_name,
                };
                self.names.push((record, name));
            }
            "READDIR" => self.list(step, list, file),
            "LOCK" | "LOCKT" | "LOCKU" => self.lock(step, file, walker),
            "UNKNOWN" => self.without_counterpart(UNKNOWN.to_string()),
            operation => {
                if operation == "LOOKUPP" {
                    (walker.current, walker.named) = (None, None);
                }
                self.without_counterpart(format!("NFSv4 {operation}: no counterpart in NFSv3"));
            }
        }
    }

    fn without_counterpart(&mut self, why: String) {
        *self.without_counterpart.entry(why).or_default() += 1;
    }

    fn left_out(&mut self, why: &str) {
        *self.others.entry(why.to_string()).or_default() += 1;
    }

    fn name(
        &mut self,
        record: i64,
        position: u32,
        (directory, name): (Option<i64>, Option<u32>),
        leads_to: Option<i64>,
    ) {
        if let (Some(directory), Some(name), Some(file)) = (directory, name, leads_to) {
            self.leads_to.insert((directory, name), file);
        }
        let name = NfsTraceName {
            position,
            directory,
            name,
            leads_to,
            target: None,
        };
        self.names.push((record, name));
    }

    /// Adds a call with a name in the current directory. If it succeeds, the file that the name leads to becomes the
    /// current file.
    fn named(&mut self, procedure: u32, step: &CompoundStep, walker: &mut Walker) {
        let directory = walker.current.or(step.file);
        let record = self.call(procedure, step, directory);
        self.name(record, 0, (directory, step.name), None);
        let row = self.names.len() - 1;
        if procedure == procedure::SYMLINK {
            self.names[row].1.target = step.new_name;
        }
        (walker.current, walker.named) = (None, None);
        if step.status == Some(0)
            && let (Some(directory), Some(name)) = (directory, step.name)
        {
            // GETFH usually follows and returns the file's handle.
            let known = self.leads_to.get(&(directory, name)).copied();
            let file = known.filter(|_| procedure == procedure::LOOKUP);
            let file = file.unwrap_or_else(|| {
                self.invented += 1;
                ROOT + self.invented
            });
            self.names[row].1.leads_to = Some(file);
            if procedure == procedure::MKDIR {
                self.directories.insert(file);
            }
            (walker.current, walker.named) = (Some(file), Some(row));
        }
    }

    /// Records the handle of the current file, which GETFH returned.
    fn got_handle(&mut self, file: Option<i64>, walker: &mut Walker) {
        let Some(file) = file else { return };
        if let Some(row) = walker.named.take() {
            let named = &mut self.names[row].1;
            if let Some(before) = named.leads_to.replace(file)
                && self.directories.remove(&before)
            {
                self.directories.insert(file);
            }
            if let (Some(directory), Some(name)) = (named.directory, named.name) {
                self.leads_to.insert((directory, name), file);
            }
        }
        if walker.current == Some(ROOT) {
            self.root = Some(file);
        }
        walker.current = Some(file);
    }

    fn open(&mut self, step: &CompoundStep, list: &[&CompoundAttributes], walker: &mut Walker) {
        if step.name.is_none() {
            // An OPEN by handle.
            return self.left_out(OPENING);
        }
        let Some(how) = step.argument else {
            return self.named(procedure::LOOKUP, step, walker);
        };
        self.named(procedure::CREATE, step, walker);
        self.sets(step, list);
        if let Some((_, set)) = self.sets.last_mut() {
            // An exclusive CREATE in NFSv3 has no attributes.
            set.how = Some(if how == 3 { 1 } else { how });
            set.verifier = step.verifier;
        }
    }

    /// Records the attributes that the last call sets.
    fn sets(&mut self, step: &CompoundStep, list: &[&CompoundAttributes]) {
        let set = list.iter().find(|list| list.by_client);
        let mut set = set.map(|list| list.set).unwrap_or_default();
        if step.operation == "CREATE" {
            set.kind = step.argument;
        }
        if let Some(call) = self.calls.last() {
            self.sets.push((call.record, set));
        }
    }

    fn rename(&mut self, step: &CompoundStep, walker: &Walker) {
        let from = step.saved_file.or(walker.saved);
        let record = self.call(procedure::RENAME, step, from);
        let moved = match (from, step.name, step.status) {
            (Some(from), Some(name), Some(0)) => self.leads_to.remove(&(from, name)),
            _ => None,
        };
        self.name(record, 0, (from, step.name), None);
        self.name(record, 1, (walker.current, step.new_name), None);
        if let (Some(directory), Some(name), Some(file)) = (walker.current, step.new_name, moved) {
            self.leads_to.insert((directory, name), file);
        }
    }

    /// Adds a REMOVE or RMDIR: NFSv4 has one operation for both.
    fn remove(&mut self, step: &CompoundStep, walker: &Walker) {
        let held = match (walker.current, step.name, step.status) {
            (Some(directory), Some(name), Some(0)) => self.leads_to.remove(&(directory, name)),
            (Some(directory), Some(name), _) => self.leads_to.get(&(directory, name)).copied(),
            _ => None,
        };
        let is_directory = held.is_some_and(|file| self.directories.contains(&file));
        let procedure = match is_directory || step.status == Some(NOTEMPTY) {
            true => procedure::RMDIR,
            false => procedure::REMOVE,
        };
        let record = self.call(procedure, step, walker.current);
        self.name(record, 0, (walker.current, step.name), None);
    }

    fn list(&mut self, step: &CompoundStep, list: &[&CompoundAttributes], file: Option<i64>) {
        let has_handles = list.iter().any(|entry| entry.file.is_some());
        let procedure = match has_handles {
            true => procedure::READDIRPLUS,
            false => procedure::READDIR,
        };
        let record = self.call(procedure, step, file);
        let listing = NfsTraceListing {
            cookie: step.cookie,
            dir_bytes_max: step.asked_bytes,
            bytes_max: step.asked_bytes,
        };
        self.listings.push((record, listing));
        for list in list {
            let (Some(entry), Some(name)) = (list.entry, list.name) else {
                continue;
            };
            if let (Some(directory), Some(found)) = (file, list.file) {
                self.leads_to.insert((directory, name), found);
            }
            let entry = NfsTraceEntry {
                entry,
                name,
                // Only the last entry's cookie matters: another call may continue there.
                cookie: step.next_cookie.unwrap_or(0),
                file: list.file,
            };
            self.entries.push((record, entry));
        }
    }

    /// Adds the calls to the trace's NFSv3 calls.
    pub(super) fn into_trace(self, trace: &mut NfsTrace) {
        let is_used = |root: i64| self.calls.iter().any(|call| call.file == Some(root));
        let roots = self.root.into_iter().chain([ROOT]);
        for root in roots.filter(|root| is_used(*root)) {
            if !trace.roots.contains(&root) {
                trace.roots.push(root);
            }
        }
        trace.calls.extend(self.calls);
        trace.names.extend(self.names);
        trace.attributes.extend(self.attributes);
        trace.sets.extend(self.sets);
        trace.stable.extend(self.stable);
        trace.accesses.extend(self.accesses);
        trace.listings.extend(self.listings);
        trace.entries.extend(self.entries);
        trace.locks.extend(self.locks);
        trace
            .entries
            .0
            .sort_by_key(|(record, row)| (*record, row.entry));
        for (why, count) in self.others {
            *trace.others.entry(why).or_default() += count;
        }
        trace.without_counterpart = self.without_counterpart;
    }
}

impl<R> RowsByCall<R> {
    fn extend(&mut self, rows: Vec<(i64, R)>) {
        self.0.extend(rows);
        self.0.sort_by_key(|(record, _)| *record);
    }
}

/// Whether an operation only sets, saves or returns a handle for others.
fn carries_handle(operation: &str) -> bool {
    matches!(
        operation,
        "PUTFH" | "PUTROOTFH" | "PUTPUBFH" | "SAVEFH" | "RESTOREFH" | "GETFH"
    )
}

/// Whether an operation sets up or maintains a client's session or lease.
fn is_session(operation: &str) -> bool {
    matches!(
        operation,
        "SEQUENCE"
            | "EXCHANGE_ID"
            | "CREATE_SESSION"
            | "DESTROY_SESSION"
            | "DESTROY_CLIENTID"
            | "RECLAIM_COMPLETE"
            | "BIND_CONN_TO_SESSION"
            | "BACKCHANNEL_CTL"
            | "SETCLIENTID"
            | "SETCLIENTID_CONFIRM"
            | "RENEW"
            | "TEST_STATEID"
            | "FREE_STATEID"
            | "RELEASE_LOCKOWNER"
    )
}

#[cfg(test)]
mod tests;
