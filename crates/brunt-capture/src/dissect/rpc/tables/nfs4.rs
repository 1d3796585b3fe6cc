//! The content of NFSv4 compounds: the tables `compounds` and `compound_attributes`.

use brunt_lake::{Coding, Column, Table};
use brunt_wire::nfs::v4;
use twox_hash::XxHash3_64;

use super::last_written::LastWritten;
use crate::operation::Operation;
use crate::trace::common::{Common, FILE, RECORD};
use crate::trace::files::{Files, Named};
use crate::trace::rows::{Handle, Registry, Tabled, WrittenBy};

/// The operations of compounds.
pub const COMPOUNDS: Table = Table {
    name: "compounds",
    doc: "One row for each operation of an NFSv4 compound, as far as the compound could be parsed.",
    columns: &[
        RECORD,
        Column::int("position", "Position in the compound, from 0."),
        Column::text(
            "operation",
            "Name of the operation; UNKNOWN if its number is not defined. Operations after an unknown \
             one are not parsed.",
        ),
        FILE.nullable(),
        Column::int(
            "offset_bytes",
            "File offset; null if the operation has no offset.",
        )
        .nullable(),
        Column::int(
            "asked_bytes",
            "Requested bytes; null if the operation has no count.",
        )
        .nullable(),
        Column::int(
            "moved_bytes",
            "Transferred bytes of file data; null unless the operation transfers data.",
        )
        .nullable(),
        Column::int(
            "status",
            "Status of the operation; null if it was not executed or the reply was not captured.",
        )
        .nullable(),
        Column::text(
            "name",
            "The name in the call, written as in `names`; for RENAME, the old name. Null if the operation has no name.",
        )
        .nullable(),
        Column::text(
            "new_name",
            "RENAME: the new name. CREATE of a symbolic link, and READLINK: the link's target. Null for others.",
        )
        .nullable(),
        Column::int(
            "saved_file",
            "RENAME: the directory of the old name. LINK: the file. Both as `handles.file`; null for others.",
        )
        .nullable(),
        Column::int(
            "argument",
            "ACCESS: requested bits, as in `accesses`. WRITE: requested stability, as in `transfers`. \
             CREATE: the type, as in `attributes`. OPEN: how it creates the file: 0 unchecked, 1 guarded, 2 \
             exclusive, 3 exclusive with attributes. UNKNOWN: the operation's number. Null for others, and for \
             an OPEN that doesn't create.",
        )
        .nullable(),
        Column::int("verifier", "Exclusive OPEN: the verifier.")
            .coded(Coding::Plain)
            .nullable(),
        Column::int("cookie", "READDIR: cookie to continue from; 0 is the start.")
            .coded(Coding::Plain)
            .nullable(),
        Column::int(
            "next_cookie",
            "READDIR: cookie of the last entry in the reply; null if the reply has no entries.",
        )
        .coded(Coding::Plain)
        .nullable(),
        Column::int(
            "lock_type",
            "LOCK, LOCKT, LOCKU: 1 read, 2 write, 3 read and 4 write if the client waits. Null for \
             others.",
        )
        .nullable(),
        Column::int(
            "lock_bytes",
            "LOCK, LOCKT, LOCKU: length of the range; 9223372036854775807 means up to the end of the \
             file. Null for others.",
        )
        .nullable(),
        Column::int(
            "lock_owner",
            "LOCK, LOCKT: a hash of the lock owner's name; null if the call has a stateid instead.",
        )
        .coded(Coding::Plain)
        .nullable(),
        Column::int(
            "lock_state",
            "LOCK, LOCKU: a hash of the stateid of the owner's locks on the file, from the call or \
             otherwise from the reply. Null for others.",
        )
        .coded(Coding::Plain)
        .nullable(),
    ],
};

/// Attributes in compounds.
pub const COMPOUND_ATTRIBUTES: Table = Table {
    name: "compound_attributes",
    doc: "One row for each list of file attributes (`fattr4`) in an NFSv4 compound: in replies, of \
     GETATTR and of READDIR entries; in calls, the attributes that SETATTR, CREATE and OPEN set. Attributes that \
     were not sent are null. GETATTR results are omitted if they equal those last reported for the file.",
    columns: &[
        RECORD,
        Column::int(
            "position",
            "Position of the operation in the compound: `compounds.position`.",
        ),
        Column::int(
            "entry",
            "READDIR: index of the entry, from 0; null for others.",
        )
        .nullable(),
        Column::text(
            "name",
            "READDIR: the entry's name, written as in `names`; null for others.",
        )
        .nullable(),
        Column::bool(
            "by_client",
            "True if set by the client, false if returned by the server.",
        ),
        FILE.nullable(),
        Column::int(
            "file_type",
            "As in `attributes`, plus 8 attribute directory and 9 named attribute; for CREATE, the \
             type of the new object.",
        )
        .nullable(),
        Column::int("mode", "Permission bits.").nullable(),
        Column::int("nlink", "Number of hard links.").nullable(),
        Column::text(
            "owner",
            "The owner as sent by the server, `user@domain` or a number.",
        )
        .nullable(),
        Column::text(
            "owner_group",
            "The group as sent by the server, `group@domain` or a number.",
        )
        .nullable(),
        Column::int("size_bytes", "File size.").nullable(),
        Column::int("used_bytes", "Space used on disk.").nullable(),
        Column::int("device_major", "Major device number of a device file.").nullable(),
        Column::int("device_minor", "Minor device number of a device file.").nullable(),
        Column::int("fsid_major", "File system id, major part.").nullable(),
        Column::int("fsid_minor", "File system id, minor part.").nullable(),
        Column::int("fileid", "File number within the file system.").nullable(),
        Column::int(
            "mounted_on_fileid",
            "At the root of a file system: file number of the directory it is mounted on.",
        )
        .nullable(),
        Column::int(
            "change",
            "Change attribute: its value differs whenever the file has changed.",
        )
        .nullable(),
        Column::int(
            "atime_how",
            "When set: 1 to the server's time, 2 to `atime`; null if returned by the server or unchanged.",
        )
        .nullable(),
        Column::time("atime", "Last access.").nullable(),
        Column::int(
            "mtime_how",
            "When set: 1 to the server's time, 2 to `mtime`; null if returned by the server or unchanged.",
        )
        .nullable(),
        Column::time("mtime", "Time of the last change to the data.").nullable(),
        Column::time("ctime", "Time of the last change to the attributes.").nullable(),
        Column::int(
            "error",
            "READDIR: why the entry has no attributes (`rdattr_error`).",
        )
        .nullable(),
        Column::int(
            "unparsed",
            "Number of the attribute at which parsing stopped because it is unknown or damaged.",
        )
        .nullable(),
    ],
};

/// The name used for operations with an undefined number.
const UNKNOWN: &str = "UNKNOWN";

struct CompoundsTable;

impl Tabled for CompoundsTable {
    const TABLE: &'static Table = &COMPOUNDS;
}

struct AttributesTable;

impl Tabled for AttributesTable {
    const TABLE: &'static Table = &COMPOUND_ATTRIBUTES;
    const BY: WrittenBy = WrittenBy::Bulk;
}

/// Describes where a list of attributes comes from: compound, operation and object.
#[derive(Clone, Copy)]
struct ListOf<'a> {
    id: i64,
    position: i64,
    /// For a READDIR entry: its index and its name.
    entry: Option<(i64, &'a [u8])>,
    /// The kind of object that CREATE creates.
    made: Option<v4::CreateKind<'a>>,
    /// Whether the client sets the attributes.
    set: bool,
    file: Option<i64>,
}

/// The compound tables of a pipeline.
pub struct Nfs4Tables {
    compounds: Handle<CompoundsTable>,
    attributes: Handle<AttributesTable>,
    /// A hash of the list last written for each file.
    last_written: LastWritten<u64>,
}

fn nanos(time: &v4::NfsTime) -> i64 {
    time.seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(time.nseconds.into())
}

/// The columns of a `settime4`: how it is set, and the time.
fn set_time(set: Option<v4::SetTime>) -> (Option<i64>, Option<i64>) {
    match set {
        None => (None, None),
        Some(v4::SetTime::ServerTime) => (Some(1), None),
        Some(v4::SetTime::ClientTime(time)) => (Some(2), Some(nanos(&time))),
    }
}

/// Further values of some operations, named like the columns of `compounds`.
#[derive(Clone, Copy, Default)]
struct StepDetail {
    argument: Option<i64>,
    verifier: Option<u64>,
    cookie: Option<u64>,
    next_cookie: Option<u64>,
}

fn detail(step: &v4::CompoundStep<'_>) -> StepDetail {
    let none = StepDetail::default();
    let argument = |argument: u32| StepDetail {
        argument: Some(argument.into()),
        ..none
    };
    match step.args {
        v4::Args::Access { access } => argument(access),
        v4::Args::Write { stable, .. } => argument(stable.number()),
        v4::Args::Create { kind, .. } => argument(kind_number(kind)),
        v4::Args::Open { create, .. } => match create {
            v4::OpenCreate::No => none,
            v4::OpenCreate::Unchecked(_) => argument(0),
            v4::OpenCreate::Guarded(_) => argument(1),
            v4::OpenCreate::Exclusive(verifier, attributes) => StepDetail {
                verifier: Some(verifier),
                ..argument(2 + u32::from(attributes.is_some()))
            },
        },
        v4::Args::Readdir { cookie, .. } => {
            let last = match step.result.map(|result| result.body) {
                Some(v4::ResultBody::Readdir { entries, .. }) => entries.iter().last(),
                _ => None,
            };
            StepDetail {
                cookie: Some(cookie),
                next_cookie: last.map(|entry| entry.cookie),
                ..none
            }
        }
        v4::Args::Unknown(number) => argument(number),
        _ => none,
    }
}

/// The lock of LOCK, LOCKT or LOCKU.
#[derive(Clone, Copy)]
struct StepLock {
    kind: u32,
    bytes: u64,
    owner: Option<u64>,
    state: Option<u64>,
}

fn lock(step: &v4::CompoundStep<'_>) -> Option<StepLock> {
    let named = |owner: &[u8]| Some(XxHash3_64::oneshot(owner));
    // Leaves out the sequence number, which changes with each lock.
    let state_of = |stateid: &v4::Stateid| XxHash3_64::oneshot(&stateid[4..]);
    let granted = match step.result.map(|result| result.body) {
        Some(v4::ResultBody::State { stateid }) => Some(state_of(stateid)),
        _ => None,
    };
    let (kind, bytes, owner, state) = match step.args {
        v4::Args::Lock {
            kind,
            length,
            locker,
            ..
        } => match locker {
            v4::Locker::New { owner, .. } => (kind, length, named(owner), granted),
            v4::Locker::Old(held) => (kind, length, None, Some(state_of(held))),
        },
        v4::Args::Lockt {
            kind,
            length,
            owner,
            ..
        } => (kind, length, named(owner), None),
        v4::Args::Locku {
            kind,
            length,
            stateid,
            ..
        } => (kind, length, None, Some(state_of(stateid))),
        _ => return None,
    };
    Some(StepLock {
        kind,
        bytes,
        owner,
        state,
    })
}

/// The type of the object that CREATE creates, as in `attributes`.
fn kind_number(kind: v4::CreateKind<'_>) -> u32 {
    match kind {
        v4::CreateKind::Block(_) => 3,
        v4::CreateKind::Character(_) => 4,
        v4::CreateKind::Link(_) => 5,
        v4::CreateKind::Plain(kind) => kind,
    }
}

/// The names of an operation: RENAME's two names, or a name and the target of a symbolic link.
fn names<'a>(step: &v4::CompoundStep<'a>) -> [Option<&'a [u8]>; 2] {
    match step.args {
        v4::Args::Lookup { name }
        | v4::Args::Remove { name }
        | v4::Args::Link { name }
        | v4::Args::Secinfo { name } => [Some(name), None],
        v4::Args::Create { name, kind, .. } => match kind {
            v4::CreateKind::Link(target) => [Some(name), Some(target)],
            _ => [Some(name), None],
        },
        v4::Args::Open { claim, .. } => [claim.name(), None],
        v4::Args::Rename { from, to } => [Some(from), Some(to)],
        v4::Args::Readlink => match step.result.map(|result| result.body) {
            Some(v4::ResultBody::Readlink { target }) => [None, Some(target)],
            _ => [None, None],
        },
        _ => [None, None],
    }
}

impl Nfs4Tables {
    pub fn register(registry: &mut Registry) -> Nfs4Tables {
        Nfs4Tables {
            compounds: registry.add(),
            attributes: registry.add(),
            last_written: LastWritten::new(),
        }
    }

    /// Called when the rows written so far may be deleted: forgets all state, so that the rows are written again.
    pub fn forget(&mut self) {
        self.last_written.forget();
    }

    /// Whether a list is stored. Lists that a client sets are always stored, and so are those of entries, which make
    /// up the directory listing.
    fn is_stored(
        &mut self,
        of: &ListOf<'_>,
        list: &v4::FileAttributes<'_>,
        common: &Common,
    ) -> bool {
        let Some(file) = of.file.filter(|_| !of.set) else {
            return true;
        };
        let mask = XxHash3_64::oneshot(list.mask.as_bytes());
        let now = XxHash3_64::oneshot_with_seed(mask, list.values);
        self.last_written.is_news(file, &now) || of.entry.is_some() || common.repeats_attributes
    }

    pub fn record(
        &mut self,
        operation: &Operation<'_>,
        call: &v4::CompoundArgs<'_>,
        reply: Option<&v4::CompoundResults<'_>>,
        files: &mut Files,
        common: &mut Common,
    ) {
        let id = common.number(operation.record_id);
        let server = operation.peers.server.address;
        for (position, step) in (0..).zip(v4::Walk::new(call, reply)) {
            let op = step.args.op();
            let place = match (step.args, step.result.map(|result| result.body)) {
                (v4::Args::Putfh { object }, _) => Some(object),
                (_, Some(v4::ResultBody::Getfh { object })) => Some(object),
                _ => step.current.handle(),
            };
            let file = place.map(|handle| files.handle(server, handle, common));
            let saved = match op {
                Some(v4::Op::Rename | v4::Op::Link) => step.saved.handle(),
                _ => None,
            };
            let saved = saved.map(|handle| files.handle(server, handle, common));
            self.record_step((id, position, op), &step, (file, saved), common);
            let of = ListOf {
                id,
                position,
                entry: None,
                made: None,
                set: true,
                file,
            };
            self.record_set(&of, &step.args, common);
            let of = ListOf { set: false, ..of };
            match step.result.map(|result| result.body) {
                Some(v4::ResultBody::Getattr { attributes }) => {
                    self.record_attributes(&of, &attributes, common);
                }
                Some(v4::ResultBody::Readdir { entries, .. }) => {
                    for (index, entry) in (0..).zip(entries.iter()) {
                        let handle = entry.attributes.parse().handle;
                        let file = handle.map(|handle| files.handle(server, handle, common));
                        let of = ListOf {
                            entry: Some((index, entry.name)),
                            file,
                            ..of
                        };
                        self.record_attributes(&of, &entry.attributes, common);
                    }
                }
                _ => {}
            }
        }
        // The names that the operation reveals.
        let mut position = 0;
        operation.each_name(&mut |file, parent, name| {
            let leads_to = Some(common.hide.file(file));
            let directory = parent.map(|parent| common.hide.file(parent));
            let named = Named {
                id,
                position,
                directory,
                name: Some(name),
                leads_to,
                target: None,
            };
            files.name(&named, common);
            position += 1;
        });
    }

    fn record_step(
        &mut self,
        (id, position, op): (i64, i64, Option<v4::Op>),
        step: &v4::CompoundStep<'_>,
        (file, saved): (Option<i64>, Option<i64>),
        common: &mut Common,
    ) {
        let (offset, asked) = match step.args {
            v4::Args::Read { offset, count, .. } | v4::Args::Commit { offset, count } => {
                (Some(offset), Some(u64::from(count)))
            }
            v4::Args::Write { offset, data, .. } => (Some(offset), Some(u64::from(data.len))),
            v4::Args::Lock { offset, .. }
            | v4::Args::Lockt { offset, .. }
            | v4::Args::Locku { offset, .. } => (Some(offset), None),
            v4::Args::Readdir { max_count, .. } => (None, Some(u64::from(max_count))),
            _ => (None, None),
        };
        let [name, new_name] = names(step);
        let (detail, lock) = (detail(step), lock(step));
        let moved = match step.result.map(|result| result.body) {
            Some(v4::ResultBody::Read { data, .. }) => Some(u64::from(data.len)),
            Some(v4::ResultBody::Write { count, .. }) => Some(u64::from(count)),
            _ => None,
        };
        let Common { rows, hide, .. } = common;
        let row = rows
            .row(self.compounds)
            .int(id)
            .int(position)
            .text(op.map_or(UNKNOWN, v4::Op::name))
            .int_or_null(file)
            .count_or_null(offset)
            .count_or_null(asked)
            .count_or_null(moved)
            .int_or_null(step.result.map(|result| result.status.0.into()));
        let row = hide.put(row, name);
        hide.put(row, new_name)
            .int_or_null(saved)
            .int_or_null(detail.argument)
            .int_or_null(detail.verifier.map(|verifier| hide.number(verifier)))
            .int_or_null(detail.cookie.map(|cookie| hide.number(cookie)))
            .int_or_null(detail.next_cookie.map(|cookie| hide.number(cookie)))
            .int_or_null(lock.map(|lock| lock.kind.into()))
            .count_or_null(lock.map(|lock| lock.bytes))
            .int_or_null(lock.and_then(|lock| Some(hide.number(lock.owner?))))
            .int_or_null(lock.and_then(|lock| Some(hide.number(lock.state?))))
            .end();
    }

    /// Records the attributes that the client sets.
    fn record_set(&mut self, of: &ListOf<'_>, args: &v4::Args<'_>, common: &mut Common) {
        match args {
            v4::Args::Create {
                kind, attributes, ..
            } => {
                self.record_attributes(
                    &ListOf {
                        made: Some(*kind),
                        ..*of
                    },
                    attributes,
                    common,
                );
            }
            v4::Args::Setattr { attributes, .. }
            | v4::Args::Open {
                create:
                    v4::OpenCreate::Unchecked(attributes)
                    | v4::OpenCreate::Guarded(attributes)
                    | v4::OpenCreate::Exclusive(_, Some(attributes)),
                ..
            } => self.record_attributes(of, attributes, common),
            _ => {}
        }
    }

    fn record_attributes(
        &mut self,
        of: &ListOf<'_>,
        list: &v4::FileAttributes<'_>,
        common: &mut Common,
    ) {
        if !self.is_stored(of, list, common) {
            return;
        }
        let found = list.parse();
        let (kind, device) = match of.made {
            None => (found.kind, found.rawdev),
            Some(made) => (
                Some(kind_number(made)),
                match made {
                    v4::CreateKind::Block(device) | v4::CreateKind::Character(device) => {
                        Some(device)
                    }
                    v4::CreateKind::Link(_) | v4::CreateKind::Plain(_) => None,
                },
            ),
        };
        let Common {
            rows,
            hide: pseudonyms,
            ..
        } = common;
        let hide = |number: Option<u64>| number.map(|number| pseudonyms.number(number));
        let number = |value: Option<u32>| value.map(i64::from);
        let (atime_how, atime_set) = set_time(found.time_access_set);
        let (mtime_how, mtime_set) = set_time(found.time_modify_set);
        let row = rows.row(self.attributes);
        let row = row
            .int(of.id)
            .int(of.position)
            .int_or_null(of.entry.map(|(index, _)| index));
        let row = pseudonyms
            .put(row, of.entry.map(|(_, name)| name))
            .bool(of.set)
            .int_or_null(of.file);
        let row = row
            .int_or_null(number(kind))
            .int_or_null(number(found.mode));
        let row = row.int_or_null(number(found.numlinks));
        let row = pseudonyms.put(row, found.owner);
        pseudonyms
            .put(row, found.owner_group)
            .count_or_null(found.size)
            .count_or_null(found.space_used)
            .int_or_null(device.map(|device| device[0].into()))
            .int_or_null(device.map(|device| device[1].into()))
            .int_or_null(hide(found.fsid.map(|fsid| fsid[0])))
            .int_or_null(hide(found.fsid.map(|fsid| fsid[1])))
            .int_or_null(hide(found.fileid))
            .int_or_null(hide(found.mounted_on_fileid))
            .int_or_null(found.change.map(|change| change as i64))
            .int_or_null(atime_how)
            .int_or_null(found.time_access.as_ref().map(nanos).or(atime_set))
            .int_or_null(mtime_how)
            .int_or_null(found.time_modify.as_ref().map(nanos).or(mtime_set))
            .int_or_null(found.time_metadata.as_ref().map(nanos))
            .int_or_null(number(found.rdattr_error))
            .int_or_null(number(found.unparsed))
            .end();
    }
}
