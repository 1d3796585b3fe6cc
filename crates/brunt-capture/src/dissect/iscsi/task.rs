//! A task with its response: the iSCSI-specific part of an operation. Filled in by `tasks.rs`, read by tables.

use brunt_wire::iscsi::pdu::{ScsiCommand, lun_number};
use brunt_wire::nfs::FileHandle;
use brunt_wire::scsi::sense::Sense;
use brunt_wire::scsi::unmap::UnmapDescriptor;

use super::commands;
use crate::key::{FileKey, Message, Peers};

/// A task with its response: the iSCSI-specific part of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Scsi<'a> {
    /// The request, and the data that moved.
    pub task: &'a ScsiTask,
    /// The response; `None` if none was captured.
    pub answer: Option<&'a TaskAnswer>,
    /// Its session.
    pub session: ScsiSession<'a>,
}

/// Data of a task in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskData {
    /// When the first PDU with data (or the first captured bytes of it) was captured.
    pub first_ns: Option<u64>,
    /// When the last PDU with data (or the last captured bytes of it) was captured.
    pub last_ns: Option<u64>,
    /// Bytes captured.
    pub bytes: u32,
    /// Bytes lost in gaps.
    pub missing: u32,
}

impl TaskData {
    /// Adds bytes.
    pub fn add(&mut self, bytes: usize, time_ns: u64) {
        // Reordered packets arrive here in stream order, with later times than the bytes after them.
        self.first_ns = Some(self.first_ns.map_or(time_ns, |first| first.min(time_ns)));
        self.last_ns = self.last_ns.max(Some(time_ns));
        self.bytes = self.bytes.saturating_add(bytes as u32);
    }
}

/// A command or a task management function.
#[derive(Clone, Debug)]
pub struct ScsiTask {
    /// The task's number among all operations.
    pub record_id: u64,
    /// The initiator and the target.
    pub peers: Peers,
    /// The initiator task tag.
    pub tag: u32,
    /// The request's PDU.
    pub request: Message,
    /// The LUN field.
    pub lun: [u8; 8],
    /// Flags and CDB; `None` for task management.
    pub command: Option<ScsiCommand>,
    /// The task management function, and the referenced task tag.
    pub function: Option<(u8, u32)>,
    /// The key of the logical unit.
    pub file: FileKey,
    /// Whether this task is the first to reveal the logical unit's name.
    pub has_new_name: bool,
    /// Data from the initiator.
    pub out: TaskData,
    /// Data to the initiator.
    pub into: TaskData,
    /// Number of R2Ts.
    pub r2ts: u32,
    /// When the first R2T was captured.
    pub first_r2t_ns: Option<u64>,
    /// The logical unit's block size, if earlier commands or its capacity revealed it.
    pub unit_block_bytes: Option<u32>,
    /// The extents that UNMAP frees; `None` until the whole list was captured, and for other commands.
    pub extents: Option<Vec<UnmapDescriptor>>,
    /// Tasks outstanding when this one arrived, including this one.
    pub outstanding: u32,
    /// The task's session: [`ScsiSession::number`].
    pub session: Option<u64>,
    /// The `record_id` of the task management function that aborted this task.
    pub aborted_by: Option<u64>,
}

impl ScsiTask {
    /// The block size: the requested bytes divided by the requested blocks. For UNMAP, the logical unit's block size;
    /// also for WRITE SAME, which sends one block, if it is known.
    pub fn block_bytes(&self) -> Option<u32> {
        let command = self.command.as_ref()?;
        let bytes = command.expected_data_transfer_length.get();
        if commands::is_unmap(&command.cdb) {
            return self.unit_block_bytes;
        }
        if commands::is_write_same(&command.cdb) {
            return self
                .unit_block_bytes
                .or(Some(bytes).filter(|bytes| *bytes >= 512));
        }
        commands::direction(&command.cdb)?;
        let (_, blocks) = commands::blocks(&command.cdb)?;
        (blocks > 0 && bytes % blocks == 0)
            .then(|| bytes / blocks)
            .filter(|bytes| *bytes >= 512)
    }

    /// Offset of the task's data on the logical unit, in bytes.
    pub fn offset(&self) -> Option<u64> {
        let command = self.command.as_ref()?;
        commands::direction(&command.cdb)?;
        let (lba, _) = commands::blocks(&command.cdb)?;
        lba.checked_mul(self.block_bytes()?.into())
    }
}

/// The response to a task.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskAnswer {
    /// The PDU with the status.
    pub message: Message,
    /// The SCSI status; `None` for task management, and for commands that did not complete at the target.
    pub status: Option<u8>,
    /// The iSCSI response code.
    pub response: u8,
    /// Sense data, which describes the error.
    pub sense: Option<Sense>,
    /// Expected bytes that were not transferred; negative if the command would have transferred more than expected.
    pub residual: Option<i64>,
}

/// The session of a connection, as far as it was captured.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScsiSession<'a> {
    /// A hash of the initiator's name, the initiator's part of the session id (ISID), and the target's name.
    pub number: Option<u64>,
    /// The target's name.
    pub target: Option<&'a str>,
}

/// The file handle that represents a logical unit.
pub fn handle_of(lun: [u8; 8], target: Option<&str>) -> Vec<u8> {
    let mut handle = target.unwrap_or_default().as_bytes().to_vec();
    handle.extend(lun);
    handle
}

/// The file key of a logical unit.
pub fn file_of(peers: &Peers, lun: [u8; 8], target: Option<&str>) -> FileKey {
    FileKey::new(peers.server.address, FileHandle(&handle_of(lun, target)))
}

/// The name of a logical unit.
pub fn name_of(lun: [u8; 8], target: Option<&str>) -> String {
    let target = target.unwrap_or("unknown target");
    match lun_number(lun) {
        Some(number) => format!("{target}/{number}"),
        None => format!("{target}/{:016x}", u64::from_be_bytes(lun)),
    }
}
