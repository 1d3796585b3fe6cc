//! The columns of a captured trace that a replay of NFS traffic needs. docs/trace.md describes them.
//!
//! The rule: types are those that brunt-capture writes.

use brunt_lake::{Column, Table};

const RECORD: Column = Column::int("record_id", "The call's number.");
const FILE: Column = Column::int("file", "Its file.").nullable();

/// All tables.
#[cfg(test)]
pub(super) const ALL: [Table; 15] = [
    OPERATIONS,
    FLOWS,
    NAMES,
    RPC_CALLS,
    CALLERS,
    CALLER_GROUPS,
    SETATTRS,
    TRANSFERS,
    ACCESSES,
    LISTINGS,
    ENTRIES,
    ATTRIBUTES,
    PRE_OP_ATTRIBUTES,
    COMPOUNDS,
    COMPOUND_ATTRIBUTES,
];

pub(super) const OPERATIONS: Table = Table {
    name: "operations",
    doc: "Operations of a captured trace.",
    columns: &[
        RECORD,
        Column::text("protocol", "Its protocol."),
        Column::int("flow", "Client and server."),
        Column::time("request_first", "When the request was seen."),
        Column::int("latency_ns", "Time to the reply's first byte.").nullable(),
        Column::int(
            "reply_span_ns",
            "Time from the reply's first byte to its last.",
        )
        .nullable(),
        Column::int("status", "Status; 0 is success.").nullable(),
        FILE,
        Column::int("offset_bytes", "Offset in the file.").nullable(),
        Column::int("asked_bytes", "Requested bytes.").nullable(),
        Column::int("moved_bytes", "Bytes transferred by the operation."),
    ],
};

pub(super) const FLOWS: Table = Table {
    name: "flows",
    doc: "Pairs of endpoints.",
    columns: &[
        Column::int("flow", "Its number."),
        Column::text("source", "The client's address."),
    ],
};

pub(super) const NAMES: Table = Table {
    name: "names",
    doc: "Names in calls.",
    columns: &[
        RECORD,
        Column::int("position", "1 for RENAME's new name."),
        FILE,
        Column::text("name", "The name.").nullable(),
        Column::int("leads_to", "The file in the reply.").nullable(),
        Column::text("target", "Target of a symbolic link.").nullable(),
    ],
};

pub(super) const RPC_CALLS: Table = Table {
    name: "rpc_calls",
    doc: "Headers of calls.",
    columns: &[
        RECORD,
        Column::int("program", "RPC number of the program."),
        Column::int("version", "The program's version."),
        Column::int("procedure", "The procedure's number."),
        Column::int("caller", "AUTH_SYS credentials.").nullable(),
    ],
};

pub(super) const CALLERS: Table = Table {
    name: "callers",
    doc: "AUTH_SYS credentials.",
    columns: &[
        Column::int("caller", "Its number."),
        Column::text("machine_name", "The machine's name."),
        Column::int("uid", "The user."),
        Column::int("gid", "The group."),
    ],
};

pub(super) const CALLER_GROUPS: Table = Table {
    name: "caller_groups",
    doc: "Further groups.",
    columns: &[
        Column::int("caller", "The caller."),
        Column::int("position", "Its place in the list."),
        Column::int("gid", "The group."),
    ],
};

pub(super) const SETATTRS: Table = Table {
    name: "setattrs",
    doc: "Attributes that calls set.",
    columns: &[
        RECORD,
        Column::int("how", "CREATE's mode.").nullable(),
        Column::int("kind", "MKNOD's type.").nullable(),
        Column::int("mode", "Permission bits.").nullable(),
        Column::int("uid", "Owner.").nullable(),
        Column::int("gid", "Group.").nullable(),
        Column::int("size_bytes", "Length.").nullable(),
        Column::int("atime_how", "1: the server's clock, 2: `atime`."),
        Column::time("atime", "Time of last access.").nullable(),
        Column::int("mtime_how", "1: the server's clock, 2: `mtime`."),
        Column::time("mtime", "Time of last change.").nullable(),
        Column::time("guard_ctime", "Required ctime of the file.").nullable(),
        Column::int("verifier", "Of an exclusive CREATE.").nullable(),
        Column::int("device_major", "MKNOD of devices.").nullable(),
        Column::int("device_minor", "MKNOD of devices.").nullable(),
    ],
};

pub(super) const TRANSFERS: Table = Table {
    name: "transfers",
    doc: "READ, WRITE and COMMIT.",
    columns: &[
        RECORD,
        Column::int("stable", "WRITE: requested stability.").nullable(),
    ],
};

pub(super) const ACCESSES: Table = Table {
    name: "accesses",
    doc: "ACCESS.",
    columns: &[RECORD, Column::int("asked", "Requested bits.")],
};

pub(super) const LISTINGS: Table = Table {
    name: "listings",
    doc: "READDIR and READDIRPLUS.",
    columns: &[
        RECORD,
        Column::int("cookie", "Where it continues."),
        Column::int("dir_bytes_max", "Maximum bytes of names and cookies.").nullable(),
        Column::int("bytes_max", "Maximum size of the reply."),
    ],
};

pub(super) const ENTRIES: Table = Table {
    name: "entries",
    doc: "Entries of directories.",
    columns: &[
        RECORD,
        Column::int("entry", "Its place in the reply."),
        Column::text("name", "Its name."),
        Column::int("cookie", "Where to continue after it."),
        FILE,
    ],
};

pub(super) const ATTRIBUTES: Table = Table {
    name: "attributes",
    doc: "Attributes in replies.",
    columns: &[
        RECORD,
        FILE,
        Column::int("file_type", "Its type."),
        Column::int("mode", "Permission bits."),
        Column::int("uid", "Owner."),
        Column::int("gid", "Group."),
        Column::int("size_bytes", "Length of the file."),
    ],
};

pub(super) const PRE_OP_ATTRIBUTES: Table = Table {
    name: "pre_op_attributes",
    doc: "Attributes before calls.",
    columns: &[
        RECORD,
        FILE,
        Column::int("size_bytes", "Length of the file."),
    ],
};

pub(super) const COMPOUNDS: Table = Table {
    name: "compounds",
    doc: "Operations of NFSv4 compounds.",
    columns: &[
        RECORD,
        Column::int("position", "Its place in the compound."),
        Column::text("operation", "Its name."),
        FILE,
        Column::int("offset_bytes", "Offset in the file.").nullable(),
        Column::int("asked_bytes", "Requested bytes.").nullable(),
        Column::int("moved_bytes", "Bytes moved.").nullable(),
        Column::int("status", "Status; 0 is success.").nullable(),
        Column::text("name", "The name in the call.").nullable(),
        Column::text("new_name", "RENAME's new name, or a link's target.").nullable(),
        Column::int("saved_file", "Of RENAME and LINK.").nullable(),
        Column::int("argument", "Bits, stability, type or mode.").nullable(),
        Column::int("verifier", "Of an exclusive OPEN.").nullable(),
        Column::int("cookie", "Where a READDIR continues.").nullable(),
        Column::int("next_cookie", "Where its reply ends.").nullable(),
        Column::int("lock_type", "Of LOCK, LOCKT and LOCKU.").nullable(),
        Column::int("lock_bytes", "Length of the range.").nullable(),
        Column::int("lock_owner", "A hash of the owner's name.").nullable(),
        Column::int("lock_state", "A hash of the locks' stateid.").nullable(),
    ],
};

pub(super) const COMPOUND_ATTRIBUTES: Table = Table {
    name: "compound_attributes",
    doc: "Attributes in NFSv4 compounds.",
    columns: &[
        RECORD,
        Column::int("position", "The operation's place in the compound."),
        Column::int("entry", "READDIR: the entry.").nullable(),
        Column::text("name", "READDIR: its name.").nullable(),
        Column::bool("by_client", "Whether the client sets them."),
        FILE,
        Column::int("file_type", "Its type.").nullable(),
        Column::int("mode", "Permission bits.").nullable(),
        Column::text("owner", "Owner.").nullable(),
        Column::text("owner_group", "Group.").nullable(),
        Column::int("size_bytes", "Length of the file.").nullable(),
        Column::int("device_major", "Of devices.").nullable(),
        Column::int("device_minor", "Of devices.").nullable(),
        Column::int("atime_how", "1: the server's clock, 2: `atime`.").nullable(),
        Column::time("atime", "Time of last access.").nullable(),
        Column::int("mtime_how", "1: the server's clock, 2: `mtime`.").nullable(),
        Column::time("mtime", "Time of last change.").nullable(),
    ],
};
