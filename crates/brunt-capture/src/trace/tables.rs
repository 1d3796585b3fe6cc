//! The tables of a trace: what `docs/trace.md` shows and the files hold. Whoever writes a row
//! (`super::recorder`) or reads one ([`super::replay`]) follows this order of columns.
//!
//! The one rule: nothing is stored twice. `record_id` links what belongs to a call, `flow` says who
//! spoke to whom, `file` stands for a server's handle.

use brunt_lake::{Coding, Column, Table};

use crate::ledger::Ledger;

const RECORD: Column = Column::int("record_id", "The call it belongs to: `operations.record_id`.");
const FILE: Column = Column::int("file", "The file or directory: `handles.file`.").coded(Coding::Dictionary);

/// Who sends to whom.
pub const FLOWS: Table = Table {
    name: "flows",
    doc: "One row for each pair of endpoints and direction, when it is first seen. A flow that was quiet for \
          long may come again under another number.",
    columns: &[
        Column::int("flow", "Its number."),
        Column::int("protocol", "The transport's number: 6 TCP, 17 UDP, others as IANA lists them."),
        Column::text("source", "The sender's address; of calls, the client."),
        Column::int("source_port", "Its port; null where the protocol has none.").nullable(),
        Column::text("destination", "The receiver's address; of calls, the server."),
        Column::int("destination_port", "Its port; null where the protocol has none.").nullable(),
    ],
};

/// Packets.
pub const PACKETS: Table = Table {
    name: "packets",
    doc: "One row for each packet, in a part by flow and then in the order of capture.",
    columns: &[
        Column::int("time_ns", "When it was captured: nanoseconds since 1970."),
        Column::int("flow", "Who sent it to whom; null if it is no IP.").nullable(),
        Column::int("interface", "The interface's number in the capture."),
        Column::int("ring", "Which of the capture's pipelines took it."),
        Column::int(
            "source_mac",
            "The sender's MAC address, as a number of 48 bits; null where the link has none.",
        )
        .nullable(),
        Column::int("destination_mac", "The receiver's.").nullable(),
        Column::int("vlan", "The innermost VLAN's number; null without one.").nullable(),
        Column::int("wire_bytes", "Its length on the wire."),
        Column::int("missing_bytes", "How much of it a snap length cut."),
        Column::bool("is_fragment", "Whether it is a fragment of an IP packet."),
        Column::int("tcp_seq", "The sequence number of its first byte; null unless it is TCP.").nullable(),
        Column::int(
            "tcp_flags",
            "TCP's control bits: 1 FIN, 2 SYN, 4 RST, 8 PSH, 16 ACK; null unless it is TCP.",
        )
        .nullable(),
        Column::int("payload_bytes", "Bytes of data above TCP or UDP; null for other protocols.").nullable(),
        Column::bool("in_rpc", "Whether its data belongs to an RPC message whose header was found."),
    ],
};

/// Calls with their replies.
pub const OPERATIONS: Table = Table {
    name: "operations",
    doc: "One row for each RPC call with its reply, in the order in which they were complete. What only some \
          procedures have stands in the other tables.",
    columns: &[
        Column::int("record_id", "Counts calls in the order in which they were seen."),
        Column::int("call_time_ns", "When the call's first byte was seen: nanoseconds since 1970."),
        Column::int("latency_ns", "From the call's first byte to the reply's; null if no reply was seen.")
            .nullable(),
        Column::int("flow", "The call's flow: its source is the client, its destination the server."),
        Column::int("xid", "What pairs call and reply.").coded(Coding::Delta),
        Column::int("program", "RPC's number of the program: 100003 NFS, 100005 MOUNT."),
        Column::int("version", "The program's version."),
        Column::int("procedure", "The procedure's number."),
        Column::text("operation", "Its name; of an NFSv4 compound, that of the operation it is about."),
        Column::int(
            "rpc_status",
            "How RPC answered: 0 ran, 1 to 5 an `accept_stat`, 6 version mismatch, 7 refused \
              credentials; null if no reply was seen.",
        )
        .nullable(),
        Column::int(
            "status",
            "The procedure's own status, 0 is success; null if it has none or it was not seen.",
        )
        .nullable(),
        Column::int("auth", "The credentials' flavour: 0 none, 1 AUTH_SYS, 6 RPCSEC_GSS."),
        Column::int("uid", "The caller's user; null without AUTH_SYS.").nullable(),
        Column::int("gid", "The caller's group; null without AUTH_SYS.").nullable(),
        Column::int("caller", "All that AUTH_SYS says of the caller: `callers.caller`; null without it.")
            .nullable(),
        FILE.nullable(),
        Column::int("direction", "0 reads data, 1 writes data; null for everything else.").nullable(),
        Column::int("offset_bytes", "Where in the file; null if the procedure has no offset.").nullable(),
        Column::int("asked_bytes", "Bytes that the caller asked for; null if the procedure has no count.")
            .nullable(),
        Column::int("moved_bytes", "Bytes of file data that moved."),
        Column::int("outstanding", "Calls that waited for replies when this one was made, itself included."),
        Column::int("missing_bytes", "Bytes of READ or WRITE data that lay in holes."),
        Column::bool("call_whole", "Whether every byte of the call was seen."),
        Column::bool("reply_whole", "Whether every byte of the reply was seen."),
        Column::int("call_at_bytes", "Where in the data of its packet the call's header begins."),
        Column::int("call_header_bytes", "Length of the call's RPC header."),
        Column::int("call_bytes", "Length of the call with its header."),
        Column::int(
            "reply_at_bytes",
            "Where in the data of its packet the reply's header begins; null without one.",
        )
        .nullable(),
        Column::int("reply_header_bytes", "Length of the reply's RPC header; null without one.").nullable(),
        Column::int("reply_bytes", "Length of the reply with its header; null without one.").nullable(),
    ],
};

/// Handles.
pub const HANDLES: Table = Table {
    name: "handles",
    doc: "One row for each file handle of a server when it is first seen; in long captures some come again.",
    columns: &[
        Column::int("file", "A hash of server and handle: stands for the file in other tables.")
            .coded(Coding::Plain),
        Column::text("server", "The server's address."),
        Column::text("handle", "The handle's bytes in hexadecimal.").coded(Coding::Delta),
    ],
};

/// Names in calls.
pub const NAMES: Table = Table {
    name: "names",
    doc: "One row for each name in a call: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, LINK, MOUNT, \
          READLINK, and NFSv4's; RENAME has two.",
    columns: &[
        RECORD,
        Column::int("position", "0, and 1 for RENAME's new name; of NFSv4 compounds, the operation's place."),
        FILE.nullable(),
        Column::text(
            "name",
            "The name in that directory; MOUNT's path. A backslash is doubled, and bytes that are no \
              UTF-8 are written as `\\xNN`. Null for READLINK.",
        )
        .coded(Coding::Delta)
        .nullable(),
        Column::int("leads_to", "The file that the name leads to, if the reply told: `handles.file`.")
            .coded(Coding::Dictionary)
            .nullable(),
        Column::text("target", "What a symbolic link says (SYMLINK, READLINK), written as names are.")
            .nullable(),
    ],
};

/// Attributes.
pub const ATTRIBUTES: Table = Table {
    name: "attributes",
    doc: "One row for each set of file attributes in a reply, in a part by file and then in order.",
    columns: &[
        RECORD,
        Column::int(
            "role",
            "Whose: 0 the object, 1 its directory after the operation, 2 RENAME's new directory, 3 an entry \
              of a directory.",
        ),
        Column::int("entry", "Which entry, from 0: `entries.entry`; null otherwise.").nullable(),
        Column::int(
            "file_type",
            "1 file, 2 directory, 3 block device, 4 character device, 5 symbolic link, 6 socket, 7 fifo.",
        ),
        Column::int("mode", "Permission bits."),
        Column::int("nlink", "Hard links."),
        Column::int("uid", "Owner."),
        Column::int("gid", "Group."),
        Column::int("size_bytes", "Length of the file."),
        Column::int("used_bytes", "Room it takes."),
        Column::int("device_major", "Of device files."),
        Column::int("device_minor", "Of device files."),
        Column::int("fsid", "File system."),
        Column::int("fileid", "Its number in the file system."),
        Column::int("atime_ns", "Last access: nanoseconds since 1970."),
        Column::int("mtime_ns", "Last change of the data."),
        Column::int("ctime_ns", "Last change of the attributes."),
    ],
};

/// Attributes before an operation.
pub const BEFORE: Table = Table {
    name: "before",
    doc: "One row for each set of attributes as they were before an operation (`wcc_attr`).",
    columns: &[
        RECORD,
        Column::int("role", "Whose: 0 the object, 1 its directory, 2 RENAME's new directory."),
        Column::int("size_bytes", "Length of the file."),
        Column::int("mtime_ns", "Last change of the data: nanoseconds since 1970."),
        Column::int("ctime_ns", "Last change of the attributes."),
    ],
};

/// What is set.
pub const CHANGES: Table = Table {
    name: "changes",
    doc: "One row for each call that sets attributes: SETATTR, CREATE, MKDIR, SYMLINK, MKNOD. Null is left alone.",
    columns: &[
        RECORD,
        Column::int("how", "CREATE: 0 unchecked, 1 guarded, 2 exclusive; null for others.").nullable(),
        Column::int("kind", "MKNOD: the file type, as in `attributes`; null for others.").nullable(),
        Column::int("mode", "Permission bits.").nullable(),
        Column::int("uid", "Owner.").nullable(),
        Column::int("gid", "Group.").nullable(),
        Column::int("size_bytes", "Length.").nullable(),
        Column::int("atime_how", "0 left alone, 1 the server's clock, 2 `atime_ns`."),
        Column::int("atime_ns", "Time of last access.").nullable(),
        Column::int("mtime_how", "0 left alone, 1 the server's clock, 2 `mtime_ns`."),
        Column::int("mtime_ns", "Time of last change.").nullable(),
        Column::int("guard_ctime_ns", "SETATTR: only if the ctime is this.").nullable(),
        Column::int("verifier", "Exclusive CREATE: what makes it so.").coded(Coding::Plain).nullable(),
        Column::int("device_major", "MKNOD of devices.").nullable(),
        Column::int("device_minor", "MKNOD of devices.").nullable(),
    ],
};

/// READ, WRITE, COMMIT.
pub const TRANSFERS: Table = Table {
    name: "transfers",
    doc: "One row for each READ, WRITE and COMMIT of NFSv3: what `operations` does not say.",
    columns: &[
        RECORD,
        Column::int("stable", "WRITE: what was asked, 0 unstable, 1 data, 2 file; null for others.")
            .nullable(),
        Column::int("committed", "WRITE: what was done, likewise; null if it failed.").nullable(),
        Column::int("verifier", "WRITE, COMMIT: changes when the server forgets; null if it failed.")
            .coded(Coding::Dictionary)
            .nullable(),
        Column::bool("eof", "READ: whether the file ends there; null for others.").nullable(),
    ],
};

/// ACCESS.
pub const ACCESSES: Table = Table {
    name: "accesses",
    doc: "One row for each ACCESS of NFSv3. Bits: 1 read, 2 lookup, 4 modify, 8 extend, 16 delete, 32 execute.",
    columns: &[
        RECORD,
        Column::int("asked", "What was asked."),
        Column::int("granted", "What was granted; null if it failed.").nullable(),
    ],
};

/// READDIR, READDIRPLUS.
pub const LISTINGS: Table = Table {
    name: "listings",
    doc: "One row for each READDIR and READDIRPLUS of NFSv3.",
    columns: &[
        RECORD,
        Column::int("cookie", "Where to go on; 0 is the start.").coded(Coding::Plain),
        Column::int("verifier_asked", "The cookie's verifier in the call.").coded(Coding::Dictionary),
        Column::int("dir_bytes_max", "READDIRPLUS: bytes of names and cookies; null for READDIR.").nullable(),
        Column::int("bytes_max", "Bytes of the reply that the caller takes."),
        Column::int("verifier", "The verifier in the reply; null if it failed.")
            .coded(Coding::Dictionary)
            .nullable(),
        Column::bool("eof", "Whether the directory ends there; null if it failed.").nullable(),
    ],
};

/// Directory entries.
pub const ENTRIES: Table = Table {
    name: "entries",
    doc: "One row for each entry in a READDIR or READDIRPLUS reply, in the server's order.",
    columns: &[
        RECORD,
        Column::int("entry", "Its place in the reply, from 0."),
        Column::int("fileid", "The file's number in the file system."),
        Column::text("name", "Its name, written as in `names`."),
        Column::int("cookie", "Where to go on after it.").coded(Coding::Dictionary),
        FILE.nullable(),
    ],
};

/// FSSTAT, FSINFO, PATHCONF.
pub const FILESYSTEMS: Table = Table {
    name: "filesystems",
    doc: "One row for each FSSTAT, FSINFO and PATHCONF of NFSv3 that went well; what the procedure does not say is null.",
    columns: &[
        RECORD,
        Column::int("total_bytes", "FSSTAT.").nullable(),
        Column::int("free_bytes", "FSSTAT.").nullable(),
        Column::int("available_bytes", "FSSTAT: to this user.").nullable(),
        Column::int("total_files", "FSSTAT.").nullable(),
        Column::int("free_files", "FSSTAT.").nullable(),
        Column::int("available_files", "FSSTAT: to this user.").nullable(),
        Column::int("invariant_s", "FSSTAT: how long this holds.").nullable(),
        Column::int("read_max_bytes", "FSINFO.").nullable(),
        Column::int("read_preferred_bytes", "FSINFO.").nullable(),
        Column::int("read_multiple_bytes", "FSINFO.").nullable(),
        Column::int("write_max_bytes", "FSINFO.").nullable(),
        Column::int("write_preferred_bytes", "FSINFO.").nullable(),
        Column::int("write_multiple_bytes", "FSINFO.").nullable(),
        Column::int("readdir_preferred_bytes", "FSINFO.").nullable(),
        Column::int("file_size_max_bytes", "FSINFO.").nullable(),
        Column::int("time_delta_ns", "FSINFO: what times are multiples of.").nullable(),
        Column::int(
            "properties",
            "FSINFO: bits, 1 hard links, 2 symbolic links, 8 homogeneous, 16 can set times.",
        )
        .nullable(),
        Column::int("link_max", "PATHCONF.").nullable(),
        Column::int("name_max", "PATHCONF.").nullable(),
        Column::bool("no_trunc", "PATHCONF: long names are refused.").nullable(),
        Column::bool("chown_restricted", "PATHCONF.").nullable(),
        Column::bool("case_insensitive", "PATHCONF.").nullable(),
        Column::bool("case_preserving", "PATHCONF.").nullable(),
    ],
};

/// Sums of blocks.
pub const CHECKSUMS: Table = Table {
    name: "checksums",
    doc: "One row for each block of 512 bytes at a multiple of 512 in its file that was read or written as a whole.",
    columns: &[
        Column::int("record_id", "The READ or WRITE; null if its call came again.").nullable(),
        FILE,
        Column::bool("write", "Whether it went to the server."),
        Column::int("offset_bytes", "Where in the file."),
        Column::int("sum", "XXH3 of the block, 64 bits.").coded(Coding::Plain),
    ],
};

/// The operations of compounds.
pub const COMPOUNDS: Table = Table {
    name: "compounds",
    doc: "One row for each operation of an NFSv4 compound, as far as the compound could be read.",
    columns: &[
        RECORD,
        Column::int("position", "Its place in the compound, from 0."),
        Column::text("operation", "Its name."),
        FILE.nullable(),
        Column::int("offset_bytes", "Where in the file; null if it has no offset.").nullable(),
        Column::int("asked_bytes", "Bytes that it is about; null if it has no count.").nullable(),
        Column::int("moved_bytes", "Bytes of file data that moved; null unless it moves data.").nullable(),
        Column::int("status", "How it went; null if it was not run or the reply was not seen.").nullable(),
    ],
};

/// Attributes in compounds.
pub const COMPOUND_ATTRIBUTES: Table = Table {
    name: "compound_attributes",
    doc: "One row for each list of file attributes (`fattr4`) in an NFSv4 compound: in replies GETATTR's and \
          those of READDIR's entries, in calls what SETATTR, CREATE and OPEN set. What was not sent is null.",
    columns: &[
        RECORD,
        Column::int("position", "The operation's place in the compound: `compounds.position`."),
        Column::int("entry", "READDIR: which entry, from 0; null for others.").nullable(),
        Column::text("name", "READDIR: the entry's name, written as in `names`; null for others.").nullable(),
        Column::bool("by_client", "Whether the client sets them; otherwise the server tells them."),
        FILE.nullable(),
        Column::int(
            "file_type",
            "As in `attributes`, and 8 attribute directory, 9 named attribute; what CREATE makes.",
        )
        .nullable(),
        Column::int("mode", "Permission bits.").nullable(),
        Column::int("nlink", "Hard links.").nullable(),
        Column::text("owner", "The owner as the server writes it, `user@domain` or a number.").nullable(),
        Column::text("owner_group", "The group likewise.").nullable(),
        Column::int("size_bytes", "Length of the file.").nullable(),
        Column::int("used_bytes", "Room it takes.").nullable(),
        Column::int("device_major", "Of device files.").nullable(),
        Column::int("device_minor", "Of device files.").nullable(),
        Column::int("fsid_major", "File system.").nullable(),
        Column::int("fsid_minor", "File system, second half.").nullable(),
        Column::int("fileid", "Its number in the file system.").nullable(),
        Column::int(
            "mounted_on_fileid",
            "At the root of a file system: the number of the directory under it.",
        )
        .nullable(),
        Column::int("change", "Changes whenever the file does.").nullable(),
        Column::int("atime_how", "Set: 1 the server's clock, 2 `atime_ns`; null if told or left alone.")
            .nullable(),
        Column::int("atime_ns", "Last access: nanoseconds since 1970.").nullable(),
        Column::int("mtime_how", "Set: 1 the server's clock, 2 `mtime_ns`; null if told or left alone.")
            .nullable(),
        Column::int("mtime_ns", "Last change of the data.").nullable(),
        Column::int("ctime_ns", "Last change of the attributes.").nullable(),
        Column::int("error", "READDIR: why the entry has no attributes (`rdattr_error`).").nullable(),
        Column::int(
            "unparsed",
            "The number of the attribute at which reading ended, because it is not known or damaged.",
        )
        .nullable(),
    ],
};

/// Who called.
pub const CALLERS: Table = Table {
    name: "callers",
    doc: "One row for each set of AUTH_SYS credentials when a parser first sees it; in long captures some come again.",
    columns: &[
        Column::int("caller", "Its number."),
        Column::text("machine_name", "What the caller's machine calls itself, written as in `names`."),
        Column::int("uid", "The user."),
        Column::int("gid", "The group."),
        Column::int("group_count", "How many further groups there are: rows of `caller_groups`."),
    ],
};

/// The further groups of who called.
pub const CALLER_GROUPS: Table = Table {
    name: "caller_groups",
    doc: "One row for each further group of AUTH_SYS credentials.",
    columns: &[
        Column::int("caller", "Whose: `callers.caller`."),
        Column::int("position", "Its place in the list, from 0."),
        Column::int("gid", "The group."),
    ],
};

/// The capture's own statistics.
pub const STATISTICS: Table = Table {
    name: "statistics",
    doc: "The capture's own counters, once a second of its time, at its start and at its end. Each row counts since \
          the start; the last one is the loss ledger.",
    columns: &Ledger::COLUMNS,
};

/// What [`NOTES`] says of this order of tables and columns.
pub const VERSION: i64 = 2;

/// All of them.
pub const TABLES: [&Table; 20] = [
    &PACKETS,
    &CHECKSUMS,
    &ATTRIBUTES,
    &BEFORE,
    &OPERATIONS,
    &FLOWS,
    &HANDLES,
    &NAMES,
    &CHANGES,
    &TRANSFERS,
    &ACCESSES,
    &LISTINGS,
    &ENTRIES,
    &FILESYSTEMS,
    &COMPOUNDS,
    &COMPOUND_ATTRIBUTES,
    &CALLERS,
    &CALLER_GROUPS,
    &STATISTICS,
    &NOTES,
];

/// What a trace is.
pub const NOTES: Table = Table {
    name: "trace",
    doc: "One row: what a reader has to know before the rest.",
    columns: &[
        Column::int("version", "2; a reader of another version asks for it."),
        Column::text("program", "What wrote it."),
        Column::bool("anonymous", "Whether names, addresses and ids are pseudonyms."),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Every description is good, and no table is there twice.
    #[test]
    fn descriptions() {
        for (index, table) in TABLES.iter().enumerate() {
            assert_eq!(table.mistakes(), Vec::<String>::new());
            assert!(TABLES[..index].iter().all(|before| before.name != table.name));
        }
    }
}
