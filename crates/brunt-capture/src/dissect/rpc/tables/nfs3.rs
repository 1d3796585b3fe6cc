//! NFSv3 calls and replies beyond `operations`: the tables `setattrs`, `transfers`, `accesses`, `listings` and
//! `entries`, and rows for `names` and the attribute tables.

use brunt_lake::{Coding, Column, Table};
use brunt_wire::net::IpAddress;
use brunt_wire::nfs::v3::{self, CreateHow, NodeKind, ResultBody, SetAttributes, SetTime};

use super::attributes::{Attributes, AttributesOf};
use super::filesystems::Filesystems;
use super::time::nanos;
use crate::key::FileKey;
use crate::trace::common::{Common, FILE, RECORD};
use crate::trace::files::{Files, Named};
use crate::trace::rows::{Handle, Registry, Tabled};

/// Attributes set by calls.
pub const SETATTRS: Table = Table {
    name: "setattrs",
    doc: "One row for each call that sets attributes: SETATTR, CREATE, MKDIR, SYMLINK, MKNOD. Null means unchanged.",
    columns: &[
        RECORD,
        Column::int(
            "how",
            "CREATE: 0 unchecked, 1 guarded, 2 exclusive; null for others.",
        )
        .nullable(),
        Column::int(
            "kind",
            "MKNOD: the file type, as in `attributes`; null for others.",
        )
        .nullable(),
        Column::int("mode", "Permission bits.").nullable(),
        Column::int("uid", "Owner.").nullable(),
        Column::int("gid", "Group.").nullable(),
        Column::int("size_bytes", "Length.").nullable(),
        Column::int(
            "atime_how",
            "0 unchanged, 1 set to the server's time, 2 set to `atime`.",
        ),
        Column::time("atime", "Time of last access.").nullable(),
        Column::int(
            "mtime_how",
            "0 unchanged, 1 set to the server's time, 2 set to `mtime`.",
        ),
        Column::time("mtime", "Time of last change.").nullable(),
        Column::time(
            "guard_ctime",
            "SETATTR: the ctime that the file must have (sattrguard3).",
        )
        .nullable(),
        Column::int("verifier", "Exclusive CREATE: the verifier.")
            .coded(Coding::Plain)
            .nullable(),
        Column::int("device_major", "MKNOD: major device number.").nullable(),
        Column::int("device_minor", "MKNOD: minor device number.").nullable(),
    ],
};

/// Details of READ, WRITE and COMMIT.
pub const TRANSFERS: Table = Table {
    name: "transfers",
    doc: "One row for each READ, WRITE and COMMIT of NFSv3, with fields that are not in `operations`.",
    columns: &[
        RECORD,
        Column::int("stable", "WRITE: requested stability (0 unstable, 1 data, 2 file); null for others.")
            .nullable(),
        Column::int("committed", "WRITE: granted stability, with the same values as `stable`; null if it failed.")
            .nullable(),
        Column::int(
            "verifier",
            "WRITE, COMMIT: write verifier, which changes when the server restarts; null if it failed.",
        )
        .coded(Coding::Dictionary)
        .nullable(),
        Column::bool("eof", "READ: whether the end of the file was reached; null for others.").nullable(),
    ],
};

/// ACCESS calls.
pub const ACCESSES: Table = Table {
    name: "accesses",
    doc: "One row for each ACCESS of NFSv3. Bits: 1 read, 2 lookup, 4 modify, 8 extend, 16 delete, 32 execute.",
    columns: &[
        RECORD,
        Column::int("asked", "Requested bits."),
        Column::int("granted", "Granted bits; null if it failed.").nullable(),
    ],
};

/// READDIR and READDIRPLUS calls.
pub const LISTINGS: Table = Table {
    name: "listings",
    doc: "One row for each READDIR and READDIRPLUS of NFSv3.",
    columns: &[
        RECORD,
        Column::int("cookie", "Cookie to continue from; 0 is the start.").coded(Coding::Plain),
        Column::int("verifier_asked", "The cookie verifier in the call.").coded(Coding::Dictionary),
        Column::int(
            "dir_bytes_max",
            "READDIRPLUS: maximum size of names and cookies (`dircount`); null for READDIR.",
        )
        .nullable(),
        Column::int("bytes_max", "Maximum size of the reply."),
        Column::int(
            "verifier",
            "The cookie verifier in the reply; null if it failed.",
        )
        .coded(Coding::Dictionary)
        .nullable(),
        Column::bool(
            "eof",
            "Whether the end of the directory was reached; null if it failed.",
        )
        .nullable(),
    ],
};

/// Directory entries.
pub const ENTRIES: Table = Table {
    name: "entries",
    doc: "One row for each entry in a READDIR or READDIRPLUS reply, in the server's order.",
    columns: &[
        RECORD,
        Column::int("entry", "Position in the reply, from 0."),
        Column::int("fileid", "File number within the file system."),
        Column::text("name", "Name of the entry, written as in `names`."),
        Column::int("cookie", "Cookie for continuing after the entry.").coded(Coding::Dictionary),
        FILE.nullable(),
    ],
};

struct SetattrsTable;

impl Tabled for SetattrsTable {
    const TABLE: &'static Table = &SETATTRS;
}

struct TransfersTable;

impl Tabled for TransfersTable {
    const TABLE: &'static Table = &TRANSFERS;
}

struct AccessesTable;

impl Tabled for AccessesTable {
    const TABLE: &'static Table = &ACCESSES;
}

struct ListingsTable;

impl Tabled for ListingsTable {
    const TABLE: &'static Table = &LISTINGS;
}

struct EntriesTable;

impl Tabled for EntriesTable {
    const TABLE: &'static Table = &ENTRIES;
}

/// The settings in a call: a row of `setattrs` without the attributes.
#[derive(Clone, Copy, Default)]
struct Setting<'a> {
    how: Option<i64>,
    kind: Option<i64>,
    guard: Option<&'a v3::NfsTime>,
    verifier: Option<u64>,
    device: Option<[u32; 2]>,
}

/// A row of `transfers` without the record id.
#[derive(Clone, Copy, Default)]
struct Transferred {
    stable: Option<i64>,
    committed: Option<i64>,
    verifier: Option<u64>,
    eof: Option<bool>,
}

/// A call with its reply.
pub struct Nfs3Exchange<'a> {
    pub id: i64,
    pub server: IpAddress,
    pub file: Option<FileKey>,
    pub args: Option<&'a v3::Args<'a>>,
    pub results: Option<&'a ResultBody<'a>>,
}

/// The files that a call and its reply refer to, by their numbers in the tables.
#[derive(Clone, Copy, Default)]
struct Subjects {
    /// The call's first handle: a file, or the directory of a name.
    file: Option<i64>,
    /// The file that a name led to, or that was created.
    found: Option<i64>,
    /// The second directory of RENAME and LINK.
    second: Option<i64>,
}

/// The NFSv3 tables of a pipeline.
pub struct Nfs3Tables {
    setattrs: Handle<SetattrsTable>,
    transfers: Handle<TransfersTable>,
    accesses: Handle<AccessesTable>,
    listings: Handle<ListingsTable>,
    entries: Handle<EntriesTable>,
    attributes: Attributes,
    filesystems: Filesystems,
}

impl Nfs3Tables {
    pub fn register(registry: &mut Registry) -> Nfs3Tables {
        Nfs3Tables {
            attributes: Attributes::register(registry),
            setattrs: registry.add(),
            transfers: registry.add(),
            accesses: registry.add(),
            listings: registry.add(),
            entries: registry.add(),
            filesystems: Filesystems::register(registry),
        }
    }

    /// Called when the rows written so far may be deleted: forgets all state, so that the rows are written again.
    pub fn forget(&mut self) {
        self.attributes.forget();
    }

    /// Writes deferred rows.
    pub fn settle(&mut self, common: &mut Common) {
        self.attributes.settle(common);
    }

    pub fn record(&mut self, of: &Nfs3Exchange<'_>, files: &mut Files, common: &mut Common) {
        let subjects = of
            .args
            .map_or_else(Subjects::default, |args| subjects(of, args, files, common));
        if let Some(args) = of.args {
            self.record_args(of, args, &subjects, files, common);
        }
        if let Some(results) = of.results {
            self.record_results(of, results, &subjects, files, common);
            self.filesystems.record(of.id, results, common);
        }
    }

    /// Records the attributes and entries in a reply.
    fn record_results(
        &mut self,
        of: &Nfs3Exchange<'_>,
        results: &ResultBody<'_>,
        subjects: &Subjects,
        files: &mut Files,
        common: &mut Common,
    ) {
        let (id, to) = (of.id, &mut self.attributes);
        let Subjects {
            file,
            found,
            second,
        } = *subjects;
        match results {
            ResultBody::Empty => {}
            ResultBody::Failed { attributes, wcc } => {
                to.record(id, AttributesOf::Object, None, file, *attributes, common);
                self.record_failed(of, wcc, subjects, common);
            }
            ResultBody::Getattr { attributes } => {
                let after = Some(*attributes);
                to.record(id, AttributesOf::Object, None, file, after, common);
            }
            ResultBody::Access { attributes, .. }
            | ResultBody::Readlink { attributes, .. }
            | ResultBody::Read { attributes, .. }
            | ResultBody::Fsstat { attributes, .. }
            | ResultBody::Fsinfo { attributes, .. }
            | ResultBody::Pathconf { attributes, .. } => {
                to.record(id, AttributesOf::Object, None, file, *attributes, common);
            }
            ResultBody::Lookup {
                attributes, dir, ..
            } => {
                to.record(id, AttributesOf::Object, None, found, *attributes, common);
                to.record(id, AttributesOf::Directory, None, file, *dir, common);
            }
            ResultBody::Created {
                attributes, dir, ..
            } => {
                to.record(id, AttributesOf::Object, None, found, *attributes, common);
                to.record_wcc(id, AttributesOf::Directory, file, dir, common);
            }
            ResultBody::Link { attributes, dir } => {
                to.record(id, AttributesOf::Object, None, file, *attributes, common);
                to.record_wcc(id, AttributesOf::Directory, second, dir, common);
            }
            ResultBody::Write { wcc, .. } | ResultBody::Commit { wcc, .. } => {
                to.record_wcc(id, AttributesOf::Object, file, wcc, common);
            }
            ResultBody::Changed { wcc } => {
                let role = match of.args {
                    None | Some(v3::Args::Setattr { .. }) => AttributesOf::Object,
                    Some(_) => AttributesOf::Directory,
                };
                to.record_wcc(id, role, file, wcc, common);
            }
            ResultBody::Rename { from, to: other } => {
                to.record_wcc(id, AttributesOf::Directory, file, from, common);
                to.record_wcc(id, AttributesOf::SecondDirectory, second, other, common);
            }
            ResultBody::Readdir { dir, entries, .. } => {
                to.record(id, AttributesOf::Object, None, file, *dir, common);
                self.record_entries(of, entries, files, common);
            }
        }
    }

    /// Records the entries of a listing, with their attributes.
    fn record_entries(
        &mut self,
        of: &Nfs3Exchange<'_>,
        entries: &v3::Entries<'_>,
        files: &mut Files,
        common: &mut Common,
    ) {
        for (index, entry) in (0..).zip(entries.iter()) {
            let file = entry
                .handle
                .map(|handle| files.handle(of.server, handle, common));
            self.entry(of.id, index, &entry, file, common);
            self.attributes.record(
                of.id,
                AttributesOf::Entry,
                Some(index),
                file,
                entry.attributes,
                common,
            );
        }
    }

    /// Records a failed call's attributes: those of LINK's file and directory, RENAME's two directories, or the
    /// single object.
    fn record_failed(
        &mut self,
        of: &Nfs3Exchange<'_>,
        wcc: &[v3::Wcc<'_>; 2],
        subjects: &Subjects,
        common: &mut Common,
    ) {
        let Subjects { file, second, .. } = *subjects;
        let object = matches!(
            of.args,
            Some(v3::Args::Setattr { .. } | v3::Args::Write { .. } | v3::Args::Commit { .. })
        );
        let is_link = matches!(of.args, Some(v3::Args::Link { .. }));
        let role = if object {
            AttributesOf::Object
        } else {
            AttributesOf::Directory
        };
        self.attributes.record_wcc(
            of.id,
            role,
            if is_link { second } else { file },
            &wcc[0],
            common,
        );
        let is_rename = matches!(of.args, Some(v3::Args::Rename { .. }));
        let role = if is_rename {
            AttributesOf::SecondDirectory
        } else {
            AttributesOf::Directory
        };
        self.attributes
            .record_wcc(of.id, role, second, &wcc[1], common);
    }

    fn entry(
        &mut self,
        id: i64,
        index: i64,
        entry: &v3::Entry<'_>,
        file: Option<i64>,
        common: &mut Common,
    ) {
        let Common { rows, hide, .. } = common;
        let (fileid, cookie) = (hide.number(entry.fileid), hide.number(entry.cookie));
        let name = hide.word(entry.name, rows.words(self.entries));
        let line = rows
            .line(self.entries)
            .int(id)
            .int(index)
            .int(fileid)
            .int(name);
        line.int(cookie).int_or_null(file).end();
    }

    /// Records the arguments of calls, except names.
    fn record_args(
        &mut self,
        of: &Nfs3Exchange<'_>,
        args: &v3::Args<'_>,
        subjects: &Subjects,
        files: &mut Files,
        common: &mut Common,
    ) {
        let (id, results) = (of.id, of.results);
        match *args {
            v3::Args::Setattr {
                ref attributes,
                guard,
                ..
            } => {
                let setting = Setting {
                    guard,
                    ..Setting::default()
                };
                self.setattr(id, attributes, &setting, common);
            }
            v3::Args::Access { access, .. } => self.access(id, access, results, common),
            v3::Args::Read { .. } | v3::Args::Write { .. } | v3::Args::Commit { .. } => {
                self.transfer(id, transferred(args, results), common);
            }
            v3::Args::Readdir {
                cookie,
                cookie_verifier,
                count,
                ..
            } => {
                self.listing(id, cookie, cookie_verifier, None, count, results, common);
            }
            v3::Args::Readdirplus {
                cookie,
                cookie_verifier,
                dir_count,
                max_count,
                ..
            } => {
                let (verifier, dirs) = (cookie_verifier, Some(dir_count));
                self.listing(id, cookie, verifier, dirs, max_count, results, common);
            }
            v3::Args::Null
            | v3::Args::Getattr { .. }
            | v3::Args::Fsstat { .. }
            | v3::Args::Fsinfo { .. }
            | v3::Args::Pathconf { .. } => {}
            _ => {
                let named = Named {
                    id,
                    directory: subjects.file,
                    leads_to: subjects.found,
                    ..Named::default()
                };
                self.record_names(of, args, named, subjects.second, files, common);
            }
        }
    }

    /// Records the names in a call, and the attributes that it sets on the object it creates.
    fn record_names(
        &mut self,
        of: &Nfs3Exchange<'_>,
        args: &v3::Args<'_>,
        named: Named<'_>,
        second: Option<i64>,
        files: &mut Files,
        common: &mut Common,
    ) {
        let id = of.id;
        match *args {
            v3::Args::Lookup { what } => files.name(&named.as_called(what.name), common),
            v3::Args::Readlink { .. } => {
                let target = match of.results {
                    Some(ResultBody::Readlink { target, .. }) => Some(*target),
                    _ => None,
                };
                let read = Named {
                    id,
                    target,
                    ..Named::default()
                };
                files.name(&read, common);
            }
            v3::Args::Create { place, .. }
            | v3::Args::Mkdir { place, .. }
            | v3::Args::Mknod { place, .. } => {
                files.name(&named.as_called(place.name), common);
                self.record_created(id, args, common);
            }
            v3::Args::Symlink { place, target, .. } => {
                let link = Named {
                    target: Some(target),
                    ..named.as_called(place.name)
                };
                files.name(&link, common);
                self.record_created(id, args, common);
            }
            v3::Args::Remove { object } | v3::Args::Rmdir { object } => {
                files.name(&named.as_gone(object.name), common);
            }
            v3::Args::Rename { from, to } => {
                files.name(&named.as_gone(from.name), common);
                let renamed = Named {
                    id,
                    position: 1,
                    directory: second,
                    name: Some(to.name),
                    ..Named::default()
                };
                files.name(&renamed, common);
            }
            v3::Args::Link { link, .. } => {
                let linked = Named {
                    id,
                    directory: second,
                    name: Some(link.name),
                    ..Named::default()
                };
                files.name(&linked, common);
            }
            _ => unreachable!("only calls with names reach this point"),
        }
    }

    /// Records the attributes that a call sets on the object it creates.
    fn record_created(&mut self, id: i64, args: &v3::Args<'_>, common: &mut Common) {
        let none = SetAttributes::default();
        match args {
            v3::Args::Create { how, .. } => {
                let (how, set, verifier) = match how {
                    CreateHow::Unchecked(set) => (0, set, None),
                    CreateHow::Guarded(set) => (1, set, None),
                    CreateHow::Exclusive(verifier) => (2, &none, Some(*verifier)),
                };
                let setting = Setting {
                    how: Some(how),
                    verifier,
                    ..Setting::default()
                };
                self.setattr(id, set, &setting, common);
            }
            v3::Args::Mkdir { attributes, .. } | v3::Args::Symlink { attributes, .. } => {
                self.setattr(id, attributes, &Setting::default(), common);
            }
            v3::Args::Mknod { what, .. } => {
                let (kind, set, device) = match what {
                    NodeKind::Device(kind, set, device) => (kind, set, Some(*device)),
                    NodeKind::Pipe(kind, set) => (kind, set, None),
                    NodeKind::Other(kind) => (kind, &none, None),
                };
                let setting = Setting {
                    kind: Some(file_type(*kind)),
                    device,
                    ..Setting::default()
                };
                self.setattr(id, set, &setting, common);
            }
            _ => unreachable!("only calls that create something reach this point"),
        }
    }

    fn access(
        &mut self,
        id: i64,
        access: u32,
        results: Option<&ResultBody<'_>>,
        common: &mut Common,
    ) {
        let granted = match results {
            Some(ResultBody::Access { access, .. }) => Some(i64::from(*access)),
            _ => None,
        };
        let line = common.rows.line(self.accesses).int(id);
        line.int(access.into()).int_or_null(granted).end();
    }

    fn transfer(&mut self, id: i64, transferred: Transferred, common: &mut Common) {
        let verifier = transferred
            .verifier
            .map(|verifier| common.hide.number(verifier));
        let line = common
            .rows
            .line(self.transfers)
            .int(id)
            .int_or_null(transferred.stable);
        let line = line
            .int_or_null(transferred.committed)
            .int_or_null(verifier);
        line.bool_or_null(transferred.eof).end();
    }

    fn setattr(
        &mut self,
        id: i64,
        set: &SetAttributes<'_>,
        setting: &Setting<'_>,
        common: &mut Common,
    ) {
        let time = |time: &SetTime<'_>| match time {
            SetTime::DontChange => (0, None),
            SetTime::ServerTime => (1, None),
            SetTime::ClientTime(time) => (2, Some(nanos(time))),
        };
        let (atime, mtime) = (time(&set.atime), time(&set.mtime));
        let hide = &common.hide;
        let uid = set.uid.map(|uid| hide.number(uid.into()));
        let gid = set.gid.map(|gid| hide.number(gid.into()));
        let verifier = setting.verifier.map(|verifier| hide.number(verifier));
        common
            .rows
            .line(self.setattrs)
            .int(id)
            .int_or_null(setting.how)
            .int_or_null(setting.kind)
            .int_or_null(set.mode.map(i64::from))
            .int_or_null(uid)
            .int_or_null(gid)
            .int_or_null(set.size.map(|size| size as i64))
            .int(atime.0)
            .int_or_null(atime.1)
            .int(mtime.0)
            .int_or_null(mtime.1)
            .int_or_null(setting.guard.map(nanos))
            .int_or_null(verifier)
            .int_or_null(setting.device.map(|device| device[0].into()))
            .int_or_null(setting.device.map(|device| device[1].into()))
            .end();
    }

    #[allow(clippy::too_many_arguments)] // the parts of a row
    fn listing(
        &mut self,
        id: i64,
        cookie: u64,
        asked: u64,
        names_max: Option<u32>,
        max: u32,
        results: Option<&ResultBody<'_>>,
        common: &mut Common,
    ) {
        let answer = match results {
            Some(ResultBody::Readdir {
                cookie_verifier,
                eof,
                ..
            }) => Some((*cookie_verifier, *eof)),
            _ => None,
        };
        let hide = &common.hide;
        let (cookie, asked) = (hide.number(cookie), hide.number(asked));
        let verifier = answer.map(|(verifier, _)| hide.number(verifier));
        common
            .rows
            .line(self.listings)
            .int(id)
            .int(cookie)
            .int(asked)
            .int_or_null(names_max.map(i64::from))
            .int(max.into())
            .int_or_null(verifier)
            .bool_or_null(answer.map(|(_, eof)| eof))
            .end();
    }
}

/// The files of a call; records handles that are new.
fn subjects(
    of: &Nfs3Exchange<'_>,
    args: &v3::Args<'_>,
    files: &mut Files,
    common: &mut Common,
) -> Subjects {
    let found = match of.results {
        Some(
            ResultBody::Created {
                object: Some(object),
                ..
            }
            | ResultBody::Lookup { object, .. },
        ) => Some(files.handle(of.server, *object, common)),
        _ => None,
    };
    let first = args.handle().zip(of.file);
    let file = first.map(|(handle, file)| files.handle_of(file, of.server, handle, common));
    let second = match *args {
        v3::Args::Rename { to, .. } => Some(files.handle(of.server, to.dir, common)),
        v3::Args::Link { link, .. } => Some(files.handle(of.server, link.dir, common)),
        _ => None,
    };
    Subjects {
        file,
        found,
        second,
    }
}

/// The transfer properties of READ, WRITE and COMMIT.
fn transferred(args: &v3::Args<'_>, results: Option<&ResultBody<'_>>) -> Transferred {
    let mut row = Transferred::default();
    if let v3::Args::Write { stable, .. } = args {
        row.stable = Some(*stable as i64);
    }
    match (args, results) {
        (v3::Args::Read { .. }, Some(ResultBody::Read { eof, .. })) => row.eof = Some(*eof),
        (
            v3::Args::Write { .. },
            Some(ResultBody::Write {
                committed,
                verifier,
                ..
            }),
        ) => {
            (row.committed, row.verifier) = (Some(*committed as i64), Some(*verifier));
        }
        (v3::Args::Commit { .. }, Some(ResultBody::Commit { verifier, .. })) => {
            row.verifier = Some(*verifier)
        }
        _ => {}
    }
    row
}

fn file_type(kind: v3::FileType) -> i64 {
    match kind {
        v3::FileType::Regular => 1,
        v3::FileType::Directory => 2,
        v3::FileType::BlockDevice => 3,
        v3::FileType::CharacterDevice => 4,
        v3::FileType::Symlink => 5,
        v3::FileType::Socket => 6,
        v3::FileType::Fifo => 7,
        v3::FileType::Other(other) => other.into(),
    }
}
