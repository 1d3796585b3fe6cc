//! NFSv3 file attributes: the tables `attributes` and `pre_op_attributes`. The one rule: attributes equal to those
//! last written for the same file are omitted.

use brunt_lake::{Column, Table};
use brunt_wire::nfs::v3::{self, Wcc};

use super::last_written::LastWritten;
use super::time::nanos;
use crate::trace::common::{Common, FILE, RECORD};
use crate::trace::rows::{Handle, Registry, Tabled, WrittenBy};

/// Attributes.
pub const ATTRIBUTES: Table = Table {
    name: "attributes",
    doc: "One row for each set of file attributes in a reply that differs from the set last reported \
     for the file; within a part, ordered by file and time.",
    columns: &[
        RECORD,
        FILE.nullable(),
        Column::int(
            "role",
            "The object described: 0 the operation's object, 1 its directory after the operation, 2 \
             RENAME's new directory, 3 a directory entry.",
        ),
        Column::int(
            "entry",
            "Index of the directory entry, from 0: `entries.entry`; null for other objects.",
        )
        .nullable(),
        Column::int(
            "file_type",
            "1 file, 2 directory, 3 block device, 4 character device, 5 symbolic link, 6 socket, 7 fifo.",
        ),
        Column::int("mode", "Permission bits."),
        Column::int("nlink", "Number of hard links."),
        Column::int("uid", "Owner."),
        Column::int("gid", "Group."),
        Column::int("size_bytes", "File size."),
        Column::int("used_bytes", "Space used on disk."),
        Column::int("device_major", "Major device number of a device file."),
        Column::int("device_minor", "Minor device number of a device file."),
        Column::int("fsid", "File system id."),
        Column::int("fileid", "File number within the file system."),
        Column::time("atime", "Last access."),
        Column::time("mtime", "Time of the last change to the data."),
        Column::time("ctime", "Time of the last change to the attributes."),
    ],
};

/// Attributes from before an operation.
pub const PRE_OP_ATTRIBUTES: Table = Table {
    name: "pre_op_attributes",
    doc: "One row for each set of attributes from before an operation (`wcc_attr`) that differs from \
     the set last reported for the file, which means that another client changed the file in between.",
    columns: &[
        RECORD,
        FILE.nullable(),
        Column::int(
            "role",
            "The object described: 0 the operation's object, 1 its directory, 2 RENAME's new \
             directory.",
        ),
        Column::int("size_bytes", "File size."),
        Column::time("mtime", "Time of the last change to the data."),
        Column::time("ctime", "Time of the last change to the attributes."),
    ],
};

struct AttributesTable;

impl Tabled for AttributesTable {
    const TABLE: &'static Table = &ATTRIBUTES;
    const BY: WrittenBy = WrittenBy::Bulk;
    const ORDER: Option<&'static str> = Some("fileid");
}

struct PreOpAttributesTable;

impl Tabled for PreOpAttributesTable {
    const TABLE: &'static Table = &PRE_OP_ATTRIBUTES;
    const BY: WrittenBy = WrittenBy::Bulk;
}

/// The object that a set of attributes belongs to, numbered as in column `role`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributesOf {
    Object = 0,
    Directory = 1,
    SecondDirectory = 2,
    Entry = 3,
}

/// Maximum attributes deferred before they are compared and written.
const SEEN_MAX: usize = 64;

/// Attributes in a reply, from before and after its operation.
#[derive(Clone, Copy, Debug)]
struct Seen {
    id: i64,
    role: AttributesOf,
    entry: Option<i64>,
    file: Option<i64>,
    before: Option<v3::PreOpAttributes>,
    after: Option<v3::Attributes>,
}

/// The attribute tables of a pipeline. Whether a row is written depends on the attributes last written for the file,
/// which are prefetched when the row is deferred.
pub struct Attributes {
    attributes: Handle<AttributesTable>,
    pre_op: Handle<PreOpAttributesTable>,
    last_written: LastWritten<v3::Attributes>,
    seen: Vec<Seen>,
}

impl Attributes {
    pub fn register(registry: &mut Registry) -> Attributes {
        Attributes {
            attributes: registry.add(),
            pre_op: registry.add(),
            last_written: LastWritten::new(),
            seen: Vec::with_capacity(SEEN_MAX),
        }
    }

    /// Called when the rows written so far may be deleted: forgets all state, so that the rows are written again.
    pub fn forget(&mut self) {
        self.last_written.forget();
    }

    /// Defers an object's attributes, if the reply has them. `settle` writes them if they changed, and always if the
    /// file is unknown.
    #[inline]
    pub fn record(
        &mut self,
        id: i64,
        role: AttributesOf,
        entry: Option<i64>,
        file: Option<i64>,
        after: Option<&v3::Attributes>,
        common: &mut Common,
    ) {
        if after.is_some() {
            self.defer(
                Seen {
                    id,
                    role,
                    entry,
                    file,
                    before: None,
                    after: after.copied(),
                },
                common,
            );
        }
    }

    /// Defers the attributes from before and after an operation.
    #[inline]
    pub fn record_wcc(
        &mut self,
        id: i64,
        role: AttributesOf,
        file: Option<i64>,
        wcc: &Wcc<'_>,
        common: &mut Common,
    ) {
        let (before, after) = (wcc.before.copied(), wcc.after.copied());
        if before.is_some() || after.is_some() {
            self.defer(
                Seen {
                    id,
                    role,
                    entry: None,
                    file,
                    before,
                    after,
                },
                common,
            );
        }
    }

    #[inline]
    fn defer(&mut self, seen: Seen, common: &mut Common) {
        if self.seen.len() >= SEEN_MAX {
            self.settle(common);
        }
        if let Some(file) = seen.file {
            self.last_written.prefetch(file);
        }
        self.seen.push(seen);
    }

    /// Writes rows for the deferred attributes that changed. Must be called before rows are sent.
    pub fn settle(&mut self, common: &mut Common) {
        let mut seen = std::mem::take(&mut self.seen);
        for seen in &seen {
            if let Some(before) = &seen.before
                && (common.repeats_attributes || !self.repeats_last_written(seen.file, before))
            {
                self.before_row(seen, before, common);
            }
            let Some(after) = &seen.after else { continue };
            let is_news = seen
                .file
                .is_none_or(|file| self.last_written.is_news(file, after));
            if is_news || common.repeats_attributes {
                self.row(seen, after, common);
            }
        }
        // Clears the buffer but keeps its memory.
        seen.clear();
        self.seen = seen;
    }

    #[inline]
    fn row(&self, seen: &Seen, a: &v3::Attributes, common: &mut Common) {
        let hide = &common.hide;
        let owner = [
            hide.number(a.uid.get().into()),
            hide.number(a.gid.get().into()),
        ];
        let places = [hide.number(a.fsid.get()), hide.number(a.fileid.get())];
        common
            .rows
            .line(self.attributes)
            .int(seen.id)
            .int_or_null(seen.file)
            .int(seen.role as i64)
            .int_or_null(seen.entry)
            .int(a.file_type.get().into())
            .int(a.mode.get().into())
            .int(a.nlink.get().into())
            .int(owner[0])
            .int(owner[1])
            .int(a.size.get() as i64)
            .int(a.used.get() as i64)
            .int(a.rdev[0].get().into())
            .int(a.rdev[1].get().into())
            .int(places[0])
            .int(places[1])
            .int(nanos(&a.atime))
            .int(nanos(&a.mtime))
            .int(nanos(&a.ctime))
            .end();
    }

    #[inline]
    fn before_row(&self, seen: &Seen, before: &v3::PreOpAttributes, common: &mut Common) {
        common
            .rows
            .line(self.pre_op)
            .int(seen.id)
            .int_or_null(seen.file)
            .int(seen.role as i64)
            .int(before.size.get() as i64)
            .int(nanos(&before.mtime))
            .int(nanos(&before.ctime))
            .end();
    }

    /// Whether attributes from before an operation equal those last written for the file.
    #[inline]
    fn repeats_last_written(&self, file: Option<i64>, before: &v3::PreOpAttributes) -> bool {
        let last = file.and_then(|file| self.last_written.of(file));
        last.is_some_and(|last| {
            (last.size, last.mtime, last.ctime) == (before.size, before.mtime, before.ctime)
        })
    }
}
