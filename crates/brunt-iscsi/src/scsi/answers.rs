//! Commands that the logical unit answers without its medium: INQUIRY, mode pages, capacities, reports. Pure functions
//! of [`LogicalUnit`]'s state; called by the task set.

use brunt_block::device::Allocation;
use brunt_wire::scsi::cdb::{self, Cdb, op};
use brunt_wire::scsi::copy;
use brunt_wire::scsi::inquiry::{
    self, BlockLimits, Capacity, DeviceIdentification, Standard, page,
};
use brunt_wire::scsi::mode::{self, Descriptor, ModeSettings, PageControl};
use brunt_wire::scsi::opcodes::{self, Lookup};
use brunt_wire::scsi::unmap::{UnmapDescriptor, lba_status};

use super::command::Refused;
use super::lun::{Alua, UNMAP_DESCRIPTORS_MAX};
use super::replies::cut;
use super::{DataIn, LogicalUnit, Nexus};

pub(super) fn inquiry(unit: &LogicalUnit, nexus: &Nexus, cdb: &Cdb) -> Result<DataIn, Refused> {
    let allocation = cdb::list_length(cdb);
    let options = unit.options();
    if cdb[1] & 0x02 != 0 {
        return Err(Refused::field(1));
    }
    if cdb[1] & 1 == 0 {
        if cdb[2] != 0 {
            return Err(Refused::field(2));
        }
        let data = Standard {
            vendor: &options.vendor,
            product: &options.product,
            revision: &options.revision,
            removable: options.removable,
            third_party_copy: true,
            tpgs: options.alua.tpgs(),
        };
        return Ok(cut(inquiry::standard(&data), allocation));
    }
    let body = match cdb[2] {
        page::SUPPORTED => vec![
            page::SUPPORTED,
            page::UNIT_SERIAL_NUMBER,
            page::DEVICE_IDENTIFICATION,
            page::THIRD_PARTY_COPY,
            page::BLOCK_LIMITS,
            page::BLOCK_DEVICE_CHARACTERISTICS,
            page::LOGICAL_BLOCK_PROVISIONING,
        ],
        page::UNIT_SERIAL_NUMBER => options.serial.bytes().take(252).collect(),
        page::DEVICE_IDENTIFICATION => inquiry::device_identification(&DeviceIdentification {
            vendor: &options.vendor,
            serial: &options.serial,
            naa: unit.naa(),
            uuid: options.uuid,
            target_name: &options.target_name,
            target_port: nexus.target_port,
            alua: options.alua != Alua::Off,
        }),
        page::THIRD_PARTY_COPY => copy::vpd_third_party_copy(),
        page::BLOCK_LIMITS => limits(unit).encode(),
        page::BLOCK_DEVICE_CHARACTERISTICS => {
            inquiry::characteristics(options.rotational, options.thin)
        }
        page::LOGICAL_BLOCK_PROVISIONING => inquiry::provisioning(options.thin),
        _ => return Err(Refused::field(2)),
    };
    Ok(cut(inquiry::vpd(cdb[2], &body), allocation))
}

fn limits(unit: &LogicalUnit) -> BlockLimits {
    let thin = unit.options().thin;
    let shape = unit.shape();
    let physical = shape.physical_blocks();
    BlockLimits {
        maximum_compare_and_write: 255,
        optimal_granularity: physical as u16,
        maximum_transfer: shape.transfer_blocks_max,
        optimal_transfer: shape.transfer_blocks_max.min((1 << 20) / shape.block_bytes),
        maximum_unmap: if thin { u32::MAX } else { 0 },
        maximum_unmap_descriptors: if thin { UNMAP_DESCRIPTORS_MAX } else { 0 },
        optimal_unmap_granularity: if thin { physical } else { 0 },
        unmap_alignment: thin.then_some(0),
        maximum_write_same: shape.write_same_blocks_max(),
        maximum_atomic: shape.atomic_blocks_max(),
        atomic_alignment: if physical > 1 { physical } else { 0 },
        atomic_granularity: if physical > 1 { physical } else { 0 },
        maximum_atomic_with_boundary: 0,
        maximum_atomic_boundary: 0,
        write_same_non_zero: false,
    }
}

fn capacity(unit: &LogicalUnit) -> Capacity {
    let shape = unit.shape();
    let thin = unit.options().thin;
    Capacity {
        last_lba: unit.blocks().saturating_sub(1),
        block_bytes: shape.block_bytes,
        physical_exponent: shape.physical_blocks().ilog2() as u8,
        thin,
        unmapped_reads_zeros: thin,
    }
}

pub(super) fn read_capacity_10(unit: &LogicalUnit) -> DataIn {
    DataIn::Bytes(capacity(unit).encode_10().to_vec())
}

pub(super) fn read_capacity_16(unit: &LogicalUnit, cdb: &Cdb) -> DataIn {
    cut(capacity(unit).encode_16().to_vec(), cdb::be32(cdb, 10))
}

pub(super) fn mode_sense(
    unit: &LogicalUnit,
    settings: &ModeSettings,
    cdb: &Cdb,
) -> Result<DataIn, Refused> {
    let ten = cdb[0] == op::MODE_SENSE_10;
    let (control, specific) = (cdb[2] >> 6, {
        // WP and DPOFUA: READ and WRITE accept the DPO and FUA bits.
        let protected = unit.write_protected(settings);
        u8::from(protected) << 7 | 0x10
    });
    let (control, settings) = match control {
        0 => (PageControl::Current, *settings),
        1 => (PageControl::Changeable, *settings),
        2 => (PageControl::Default, unit.default_settings()),
        // SAVING PARAMETERS NOT SUPPORTED
        _ => return Err(Refused::illegal(0x39, 0x00)),
    };
    let pages = mode::pages(cdb[2] & 0x3f, cdb[3], &settings, control).ok_or(Refused::field(2))?;
    let descriptor = match (cdb[1] & 0x08 != 0, ten && cdb[1] & 0x10 != 0) {
        (true, _) => Descriptor::None,
        (false, true) => Descriptor::Long,
        (false, false) => Descriptor::Short,
    };
    let shape = unit.shape();
    let list = mode::sense_list(
        ten,
        specific,
        descriptor,
        unit.blocks(),
        shape.block_bytes,
        &pages,
    );
    Ok(cut(list, cdb::list_length(cdb)))
}

pub(super) fn supported_opcodes(unit: &LogicalUnit, cdb: &Cdb) -> Result<DataIn, Refused> {
    let allocation = cdb::be32(cdb, 6);
    let rctd = cdb[2] & 0x80 != 0;
    let (opcode, action) = (cdb[3], cdb::be16(cdb, 4));
    let has = |which| unit.has(which);
    let with_actions = opcodes::OPCODES
        .iter()
        .any(|row| row.opcode == opcode && row.service_action.is_some() && has(row.which));
    let find = |action: u16| {
        let mut wanted = [0; 16];
        wanted[0] = opcode;
        wanted[1] = u8::try_from(action).ok().filter(|action| *action < 0x20)?;
        match opcodes::lookup(&wanted, has) {
            Lookup::Found(row) => Some(row),
            _ => None,
        }
    };
    let known = with_actions || find(0).is_some();
    let answer = match cdb[2] & 7 {
        0 => opcodes::report_all(has, rctd),
        1 if with_actions => return Err(Refused::field(2)),
        1 => opcodes::report_one(find(0), rctd),
        2 if known && !with_actions => return Err(Refused::field(2)),
        2 => opcodes::report_one(find(action), rctd),
        // Accepts commands with and without service actions: the requested action matters only for opcodes that have
        // service actions.
        3 if with_actions => opcodes::report_one(find(action), rctd),
        3 => opcodes::report_one(find(0).filter(|_| action == 0), rctd),
        _ => return Err(Refused::field(2)),
    };
    Ok(cut(answer, allocation))
}

pub(super) fn supported_task_management(cdb: &Cdb) -> Result<DataIn, Refused> {
    let allocation = cdb::be32(cdb, 6);
    if allocation < 4 {
        return Err(Refused::field(6));
    }
    // ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET, TARGET RESET.
    let mut answer = vec![0xda, 0, 0, 0];
    if cdb[2] & 0x80 != 0 {
        answer[3] = 0x0c;
        answer.resize(16, 0);
    }
    Ok(cut(answer, allocation))
}

/// Maximum number of descriptors in an answer, whatever the allocation length.
const LBA_STATUS_DESCRIPTORS_MAX: usize = 1024;

pub(super) fn get_lba_status(unit: &LogicalUnit, cdb: &Cdb) -> Result<DataIn, Refused> {
    let allocation = cdb::be32(cdb, 10);
    let start = cdb::be64(cdb, 2);
    let blocks = unit.blocks();
    if start >= blocks {
        return Err(Refused::OUT_OF_RANGE);
    }
    let room = (allocation.saturating_sub(8) / 16).max(1) as usize;
    let block_bytes = u64::from(unit.shape().block_bytes);
    let mut extents: Vec<(UnmapDescriptor, u8)> = Vec::new();
    let mut at = start;
    while at < blocks && extents.len() <= room.min(LBA_STATUS_DESCRIPTORS_MAX) {
        let known = unit
            .options()
            .thin
            .then(|| unit.backend().allocation(at * block_bytes))
            .flatten();
        let (status, run) = match known {
            // A partially deallocated block is reported as mapped.
            Some((Allocation::Deallocated, bytes)) if bytes >= block_bytes => {
                (1, bytes / block_bytes)
            }
            Some((_, bytes)) => (0, bytes.div_ceil(block_bytes).max(1)),
            None => (0, blocks - at),
        };
        let run = run.min(blocks - at);
        match extents.last_mut() {
            Some((last, same))
                if *same == status && u64::from(last.blocks) + run <= u64::from(u32::MAX) =>
            {
                last.blocks += run as u32;
                at += run;
            }
            _ => {
                let run = run.min(u64::from(u32::MAX));
                extents.push((
                    UnmapDescriptor {
                        lba: at,
                        blocks: run as u32,
                    },
                    status,
                ));
                at += run;
            }
        }
    }
    // The loop collects one extra extent, so that the last reported one is complete.
    extents.truncate(room.min(LBA_STATUS_DESCRIPTORS_MAX));
    Ok(cut(lba_status(&extents), allocation))
}

pub(super) fn read_defect_data(cdb: &Cdb) -> DataIn {
    if cdb[0] == op::READ_DEFECT_DATA_10 {
        return cut(vec![0, cdb[2] & 0x1f, 0, 0], cdb::list_length(cdb));
    }
    cut(
        vec![0, cdb[1] & 0x1f, 0, 0, 0, 0, 0, 0],
        cdb::list_length(cdb),
    )
}
