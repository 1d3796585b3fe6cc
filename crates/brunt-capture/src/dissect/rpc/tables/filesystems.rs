//! Properties of whole NFSv3 file systems: the table `filesystems`.

use brunt_lake::{Column, Row, Table};
use brunt_wire::nfs::v3::ResultBody;

use super::time::nanos;
use crate::trace::common::{Common, RECORD};
use crate::trace::rows::{Handle, Registry, Tabled};

/// Results of FSSTAT, FSINFO and PATHCONF.
pub const FILESYSTEMS: Table = Table {
    name: "filesystems",
    doc: "One row for each successful FSSTAT, FSINFO and PATHCONF of NFSv3; fields of other procedures are null.",
    columns: &[
        RECORD,
        Column::int("total_bytes", "FSSTAT.").nullable(),
        Column::int("free_bytes", "FSSTAT.").nullable(),
        Column::int("available_bytes", "FSSTAT: bytes available to this user.").nullable(),
        Column::int("total_files", "FSSTAT.").nullable(),
        Column::int("free_files", "FSSTAT.").nullable(),
        Column::int("available_files", "FSSTAT: files available to this user.").nullable(),
        Column::int(
            "invariant_s",
            "FSSTAT: how long these values are expected to stay valid.",
        )
        .nullable(),
        Column::int("read_max_bytes", "FSINFO.").nullable(),
        Column::int("read_preferred_bytes", "FSINFO.").nullable(),
        Column::int("read_multiple_bytes", "FSINFO.").nullable(),
        Column::int("write_max_bytes", "FSINFO.").nullable(),
        Column::int("write_preferred_bytes", "FSINFO.").nullable(),
        Column::int("write_multiple_bytes", "FSINFO.").nullable(),
        Column::int("readdir_preferred_bytes", "FSINFO.").nullable(),
        Column::int("file_size_max_bytes", "FSINFO.").nullable(),
        Column::int("time_delta_ns", "FSINFO: granularity of times.").nullable(),
        Column::int(
            "properties",
            "FSINFO: bits, 1 hard links, 2 symbolic links, 8 homogeneous, 16 can set times.",
        )
        .nullable(),
        Column::int("link_max", "PATHCONF.").nullable(),
        Column::int("name_max", "PATHCONF.").nullable(),
        Column::bool(
            "no_trunc",
            "PATHCONF: whether names that are too long are rejected.",
        )
        .nullable(),
        Column::bool("chown_restricted", "PATHCONF.").nullable(),
        Column::bool("case_insensitive", "PATHCONF.").nullable(),
        Column::bool("case_preserving", "PATHCONF.").nullable(),
    ],
};

struct FilesystemsTable;

impl Tabled for FilesystemsTable {
    const TABLE: &'static Table = &FILESYSTEMS;
}

/// The columns after the record id: numbers, then flags; each procedure fills only its own.
type Columns = ([Option<u64>; 19], [Option<bool>; 4]);

/// FSSTAT's columns come first, then FSINFO's, then PATHCONF's.
const FSINFO_AT: usize = 7;
const PATHCONF_AT: usize = 17;

/// The file system table of a pipeline.
pub struct Filesystems {
    table: Handle<FilesystemsTable>,
}

impl Filesystems {
    pub fn register(registry: &mut Registry) -> Filesystems {
        Filesystems {
            table: registry.add(),
        }
    }

    /// Writes a row for the results of FSSTAT, FSINFO and PATHCONF; ignores other procedures.
    pub fn record(&mut self, id: i64, results: &ResultBody<'_>, common: &mut Common) {
        let (ints, flags) = match results {
            ResultBody::Fsstat { .. } => fsstat(results),
            ResultBody::Fsinfo { .. } => fsinfo(results),
            ResultBody::Pathconf { .. } => pathconf(results),
            _ => return,
        };
        let row = ints
            .into_iter()
            .fold(common.rows.row(self.table).int(id), Row::count_or_null);
        flags.into_iter().fold(row, Row::bool_or_null).end();
    }
}

fn fsstat(results: &ResultBody<'_>) -> Columns {
    let (mut ints, flags) = Columns::default();
    if let ResultBody::Fsstat {
        total_bytes,
        free_bytes,
        available_bytes,
        total_files,
        free_files,
        available_files,
        invariant_sec,
        ..
    } = *results
    {
        let rooms = [
            total_bytes,
            free_bytes,
            available_bytes,
            total_files,
            free_files,
            available_files,
        ];
        ints[..6].copy_from_slice(&rooms.map(Some));
        ints[6] = Some(invariant_sec.into());
    }
    (ints, flags)
}

fn fsinfo(results: &ResultBody<'_>) -> Columns {
    let (mut ints, flags) = Columns::default();
    if let ResultBody::Fsinfo {
        read_max,
        read_preferred,
        read_multiple,
        write_max,
        write_preferred,
        write_multiple,
        dir_preferred,
        file_size_max,
        ref time_delta,
        properties,
        ..
    } = *results
    {
        let sizes = [
            read_max,
            read_preferred,
            read_multiple,
            write_max,
            write_preferred,
            write_multiple,
            dir_preferred,
        ];
        let (of_sizes, rest) = ints[FSINFO_AT..PATHCONF_AT].split_at_mut(sizes.len());
        of_sizes.copy_from_slice(&sizes.map(|size| Some(size.into())));
        rest.copy_from_slice(
            &[file_size_max, nanos(time_delta) as u64, properties.into()].map(Some),
        );
    }
    (ints, flags)
}

fn pathconf(results: &ResultBody<'_>) -> Columns {
    let (mut ints, mut flags) = Columns::default();
    if let ResultBody::Pathconf {
        link_max,
        name_max,
        no_trunc,
        chown_restricted,
        case_insensitive,
        case_preserving,
        ..
    } = *results
    {
        ints[PATHCONF_AT..].copy_from_slice(&[Some(link_max.into()), Some(name_max.into())]);
        flags = [
            no_trunc,
            chown_restricted,
            case_insensitive,
            case_preserving,
        ]
        .map(Some);
    }
    (ints, flags)
}
