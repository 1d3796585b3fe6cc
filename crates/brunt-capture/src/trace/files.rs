//! Files and their names: the tables `handles` and `names`, for all protocols. The one rule: a handle's row is
//! written before the first row that refers to it.

use brunt_core::byte_text;
use brunt_lake::{Coding, Column, Table};
use brunt_wire::net::IpAddress;
use brunt_wire::nfs::FileHandle;
use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::common::{Common, FILE, RECORD};
use super::rows::{Handle, Registry, Tabled};
use crate::key::FileKey;

/// File handles.
pub const HANDLES: Table = Table {
    name: "handles",
    doc: "One row for each file handle of a server, written when the handle is first seen; in long \
     captures, some handles are repeated.",
    columns: &[
        Column::int(
            "file",
            "Hash of server and handle; identifies the file in other tables.",
        )
        .coded(Coding::Plain),
        Column::text("server", "The server's address."),
        Column::text("handle", "The handle's bytes in hexadecimal.").coded(Coding::Delta),
    ],
};

/// Names in calls.
pub const NAMES: Table = Table {
    name: "names",
    doc: "One row for each name in a call: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, \
     LINK, MOUNT, READLINK, and NFSv4's operations; RENAME has two rows.",
    columns: &[
        RECORD,
        Column::int(
            "position",
            "0, or 1 for RENAME's new name; for NFSv4 compounds, the position \
            of the operation.",
        ),
        FILE.nullable(),
        Column::text(
            "name",
            "The name in that directory; for MOUNT, the path. Backslashes are doubled, and bytes \
             that are not UTF-8 are written as `\\xNN`. Null for READLINK.",
        )
        .coded(Coding::Delta)
        .nullable(),
        Column::int(
            "leads_to",
            "The file that the name refers to, if the reply contains it: `handles.file`.",
        )
        .coded(Coding::Dictionary)
        .nullable(),
        Column::text(
            "target",
            "Target of a symbolic link (SYMLINK, READLINK), written as in \
            `name`.",
        )
        .nullable(),
    ],
};

/// Maximum handles remembered as written; when it is reached, all are forgotten and written again.
const HANDLES_MAX: usize = 1 << 20;
/// Maximum handles deferred before a batched lookup.
const SEEN_MAX: usize = 64;

struct Handles;

impl Tabled for Handles {
    const TABLE: &'static Table = &HANDLES;
    const REFERRED_TO: bool = true;
}

struct NamesTable;

impl Tabled for NamesTable {
    const TABLE: &'static Table = &NAMES;
}

/// A row of `names`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Named<'a> {
    pub id: i64,
    pub position: i64,
    pub directory: Option<i64>,
    pub name: Option<&'a [u8]>,
    pub leads_to: Option<i64>,
    /// The target of a symbolic link.
    pub target: Option<&'a [u8]>,
}

impl<'a> Named<'a> {
    /// This row, with a name.
    #[inline]
    pub fn as_called(self, name: &'a [u8]) -> Named<'a> {
        Named {
            name: Some(name),
            ..self
        }
    }

    /// This row, with a name that the operation has removed, so it refers to no file.
    #[inline]
    pub fn as_gone(self, name: &'a [u8]) -> Named<'a> {
        Named {
            name: Some(name),
            leads_to: None,
            ..self
        }
    }
}

/// The file tables of a pipeline.
pub struct Files {
    handles: Handle<Handles>,
    names: Handle<NamesTable>,
    known: HashSet<u64, FixedState>,
    /// The server of the handle written last, and the server's address as it appears in the table.
    server: Option<(IpAddress, String)>,
    /// Deferred handles, which are looked up in batches because that is faster.
    seen: Vec<Seen>,
    seen_bytes: Vec<u8>,
}

/// A deferred handle.
#[derive(Clone, Copy, Debug)]
struct Seen {
    file: FileKey,
    server: IpAddress,
    /// Where the handle ends in `seen_bytes`.
    end: usize,
    is_written: bool,
}

impl Files {
    pub fn register(registry: &mut Registry) -> Files {
        Files {
            handles: registry.add(),
            names: registry.add(),
            known: HashSet::with_hasher(FixedState::default()),
            server: None,
            seen: Vec::with_capacity(SEEN_MAX),
            seen_bytes: Vec::new(),
        }
    }

    /// Called when the rows written so far may be deleted: forgets all handles, so that they are written again.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    /// The number of a handle; if the handle is new, its row is written later.
    #[inline]
    pub fn handle(
        &mut self,
        server: IpAddress,
        handle: FileHandle<'_>,
        common: &mut Common,
    ) -> i64 {
        self.handle_of(FileKey::new(server, handle), server, handle, common)
    }

    /// Like `handle`, for callers that already know the key.
    #[inline]
    pub fn handle_of(
        &mut self,
        file: FileKey,
        server: IpAddress,
        handle: FileHandle<'_>,
        common: &mut Common,
    ) -> i64 {
        if self.seen.len() >= SEEN_MAX {
            self.settle(common);
        }
        self.seen_bytes.extend_from_slice(handle.0);
        self.seen.push(Seen {
            file,
            server,
            end: self.seen_bytes.len(),
            is_written: false,
        });
        common.hide.file(file)
    }

    /// Writes rows for the deferred handles that are new. Must be called before rows are sent.
    pub fn settle(&mut self, common: &mut Common) {
        // Back-to-back lookups overlap their memory latencies.
        for seen in &mut self.seen {
            seen.is_written = self.known.contains(&seen.file.0);
        }
        let (seen, bytes) = (
            std::mem::take(&mut self.seen),
            std::mem::take(&mut self.seen_bytes),
        );
        let mut start = 0;
        for seen in &seen {
            if !seen.is_written {
                self.tell(seen, FileHandle(&bytes[start..seen.end]), common);
            }
            start = seen.end;
        }
        // Clears the buffers but keeps their memory.
        (self.seen, self.seen_bytes) = (seen, bytes);
        self.seen.clear();
        self.seen_bytes.clear();
    }

    #[cold]
    fn tell(&mut self, seen: &Seen, handle: FileHandle<'_>, common: &mut Common) {
        if self.known.len() >= HANDLES_MAX {
            self.known.clear();
        }
        // An earlier deferred handle may belong to the same file.
        if !self.known.insert(seen.file.0) {
            return;
        }
        let (server, known) = (seen.server, common.hide.file(seen.file));
        // A capture has few servers, so caching the last one is enough.
        if self
            .server
            .as_ref()
            .is_none_or(|(known, _)| *known != server)
        {
            self.server = Some((server, common.hide.address(server)));
        }
        let hex = match &common.hide.key {
            Some(_) => format!("{known:016x}"),
            None => {
                let mut hex = String::with_capacity(2 * handle.0.len());
                byte_text::hexadecimal(handle.0, &mut hex);
                hex
            }
        };
        let Some((_, server)) = &self.server else {
            return;
        };
        common
            .rows
            .row(self.handles)
            .int(known)
            .text(server)
            .text(&hex)
            .end();
    }

    /// Writes a row for a name.
    pub fn name(&mut self, named: &Named<'_>, common: &mut Common) {
        let Common { rows, hide, .. } = common;
        let words = rows.words(self.names);
        let name = named.name.map(|name| hide.word(name, words));
        let target = named.target.map(|target| hide.word(target, words));
        rows.line(self.names)
            .int(named.id)
            .int(named.position)
            .int_or_null(named.directory)
            .int_or_null(name)
            .int_or_null(named.leads_to)
            .int_or_null(target)
            .end();
    }
}
