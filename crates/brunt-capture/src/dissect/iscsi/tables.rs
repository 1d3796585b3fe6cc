//! The iSCSI tables in a trace: the requests of SCSI commands, and when their data was transferred. Called by the
//! recorder for each iSCSI operation, after its row in `operations` was written.

use brunt_core::byte_text;
use brunt_lake::{Coding, Column, Table};
use brunt_wire::iscsi::pdu::{code, lun_number};
use brunt_wire::nfs::FileHandle;

use super::commands;
use super::id::IscsiId;
use super::task::{Scsi, ScsiTask, handle_of, name_of};
use crate::dissect::OwnTables;
use crate::operation::Operation;
use crate::trace::common::{Common, FILE, RECORD};
use crate::trace::files::{Files, Named};
use crate::trace::rows::{Handle, Registry, Tabled};

/// Commands.
pub const SCSI_COMMANDS: Table = Table {
    name: "scsi_commands",
    doc: "One row for each SCSI command and task management function over iSCSI. Times are nanoseconds after the \
          request's first byte; latency and status are in `operations`.",
    columns: &[
        RECORD,
        Column::int(
            "session",
            "The session: a hash of both names and the initiator's ISID; null if the login was not captured.",
        )
        .coded(Coding::Dictionary)
        .nullable(),
        FILE,
        Column::int(
            "lun",
            "The logical unit number; null for multi-level LUNs.",
        )
        .nullable(),
        Column::text("cdb", "The CDB in hexadecimal; null for task management.").nullable(),
        Column::int(
            "function",
            "The task management function (RFC 7143, 11.5.1); null for \
            commands.",
        )
        .nullable(),
        Column::int(
            "referenced_tag",
            "The referenced task tag; null for commands.",
        )
        .nullable(),
        Column::int(
            "aborted_by",
            "`record_id` of the task management function that aborted the command; null if it was \
             not aborted.",
        )
        .nullable(),
        Column::int(
            "task_attribute",
            "Task attribute: 0 untagged, 1 simple, 2 ordered, 3 head of queue, 4 ACA.",
        )
        .nullable(),
        Column::int(
            "lba",
            "The first logical block; null for commands without blocks.",
        )
        .nullable(),
        Column::int(
            "blocks",
            "Number of logical blocks; null for commands without blocks.",
        )
        .nullable(),
        Column::int(
            "block_bytes",
            "Logical block size in bytes, derived from the transfer; for UNMAP and WRITE SAME, from \
             earlier commands or the capacity of the logical unit. Null if neither was captured, and for \
             commands without blocks.",
        )
        .nullable(),
        Column::int(
            "extents",
            "Number of rows in `scsi_extents`; null for all commands except UNMAP, and if the list was not captured.",
        )
        .nullable(),
        Column::int(
            "expected_bytes",
            "The expected data transfer length; null for task \
            management.",
        )
        .nullable(),
        Column::int("data_out_bytes", "Captured bytes sent to the target."),
        Column::int("data_in_bytes", "Captured bytes sent by the target."),
        Column::int(
            "first_data_ns",
            "Time of the first data byte; null without data.",
        )
        .nullable(),
        Column::int(
            "last_data_ns",
            "Time of the last data byte; null without data.",
        )
        .nullable(),
        Column::int("r2ts", "Number of captured R2Ts."),
        Column::int("first_r2t_ns", "Time of the first R2T; null if there was none.").nullable(),
        Column::int(
            "response",
            "The iSCSI response code (0: completed at target); null without a response.",
        )
        .nullable(),
        Column::int("sense_key", "The sense key; null without sense data.").nullable(),
        Column::int("asc", "The additional sense code; null without sense data.").nullable(),
        Column::int(
            "ascq",
            "The additional sense code qualifier; null without sense data.",
        )
        .nullable(),
        Column::int(
            "residual_bytes",
            "Residual count: expected bytes that were not transferred; if negative, bytes that \
             exceeded the expected length. Null without a residual.",
        )
        .nullable(),
    ],
};

/// Extents freed by UNMAP.
pub const SCSI_EXTENTS: Table = Table {
    name: "scsi_extents",
    doc: "One row for each extent of an UNMAP command. The block size is in `scsi_commands`.",
    columns: &[
        RECORD,
        Column::int("lba", "The extent's first logical block."),
        Column::int("blocks", "The number of logical blocks in the extent.")
            .coded(Coding::Dictionary),
    ],
};

struct ExtentsTable;

impl Tabled for ExtentsTable {
    const TABLE: &'static Table = &SCSI_EXTENTS;
}

struct CommandsTable;

impl Tabled for CommandsTable {
    const TABLE: &'static Table = &SCSI_COMMANDS;
}

/// Both tables.
pub struct IscsiTables {
    commands: Handle<CommandsTable>,
    extents: Handle<ExtentsTable>,
}

impl OwnTables<IscsiId> for IscsiTables {
    fn register(registry: &mut Registry) -> IscsiTables {
        IscsiTables {
            commands: registry.add(),
            extents: registry.add(),
        }
    }

    fn record(
        &mut self,
        operation: &Operation<'_>,
        own: &Scsi<'_>,
        files: &mut Files,
        common: &mut Common,
    ) {
        let Scsi {
            task,
            answer,
            session,
        } = own;
        let id = common.number(operation.record_id);
        let aborted_by = task.aborted_by.map(|record_id| common.number(record_id));
        let handle = handle_of(task.lun, session.target);
        let server = operation.peers.server.address;
        let file = files.handle_of(task.file, server, FileHandle(&handle), common);
        if task.has_new_name {
            let name = name_of(task.lun, session.target);
            let named = Named {
                id,
                leads_to: Some(file),
                ..Named::default()
            };
            files.name(&named.as_called(name.as_bytes()), common);
        }
        let command = task.command.as_ref();
        let cdb = command.map(|command| self.cdb(&command.cdb, common));
        let blocks = command.and_then(|command| commands::blocks(&command.cdb));
        let since = |ns: Option<u64>| ns.map(|ns| ns.saturating_sub(task.request.first_ns) as i64);
        let (first, last) = moved(task);
        let sense = answer.and_then(|answer| answer.sense);
        let attribute = |flags: u8| i64::from(flags & code::command::ATTR_MASK);
        let expected = command.map(|command| command.expected_data_transfer_length.get());
        common
            .rows
            .line(self.commands)
            .int(id)
            .int_or_null(session.number.map(|number| common.hide.number(number)))
            .int(file)
            .int_or_null(lun_number(task.lun).map(i64::from))
            .int_or_null(cdb)
            .int_or_null(task.function.map(|(function, _)| function.into()))
            .int_or_null(task.function.map(|(_, tag)| tag.into()))
            .int_or_null(aborted_by)
            .int_or_null(command.map(|command| attribute(command.flags)))
            .int_or_null(blocks.map(|(lba, _)| lba as i64))
            .int_or_null(blocks.map(|(_, blocks)| blocks.into()))
            .int_or_null(task.block_bytes().map(i64::from))
            .int_or_null(task.extents.as_ref().map(|extents| extents.len() as i64))
            .int_or_null(expected.map(i64::from))
            .int(task.out.bytes.into())
            .int(task.into.bytes.into())
            .int_or_null(since(first))
            .int_or_null(since(last))
            .int(task.r2ts.into())
            .int_or_null(since(task.first_r2t_ns))
            .int_or_null(answer.map(|answer| answer.response.into()))
            .int_or_null(sense.map(|sense| sense.key.into()))
            .int_or_null(sense.map(|sense| sense.asc.into()))
            .int_or_null(sense.map(|sense| sense.ascq.into()))
            .int_or_null(answer.and_then(|answer| answer.residual))
            .end();
        self.record_extents(id, task, common);
    }
}

impl IscsiTables {
    /// The dictionary number of a CDB in hexadecimal.
    fn cdb(&self, cdb: &[u8; 16], common: &mut Common) -> i64 {
        let len = brunt_wire::scsi::cdb::length(cdb[0]).unwrap_or(16);
        let mut hex = String::with_capacity(32);
        byte_text::hexadecimal(&cdb[..usize::from(len)], &mut hex);
        common.rows.words(self.commands).text(&hex)
    }

    fn record_extents(&self, id: i64, task: &ScsiTask, common: &mut Common) {
        for extent in task.extents.iter().flatten() {
            common
                .rows
                .line(self.extents)
                .int(id)
                .int(extent.lba as i64)
                .int(extent.blocks.into())
                .end();
        }
    }
}

/// When the first and the last of a task's data was captured, in either direction.
#[inline]
fn moved(task: &ScsiTask) -> (Option<u64>, Option<u64>) {
    match (task.out.first_ns, task.into.first_ns) {
        (None, _) => (task.into.first_ns, task.into.last_ns),
        (_, None) => (task.out.first_ns, task.out.last_ns),
        (one, other) => (one.min(other), task.out.last_ns.max(task.into.last_ns)),
    }
}
