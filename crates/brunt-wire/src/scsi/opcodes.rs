//! The table of supported commands. REPORT SUPPORTED OPERATION CODES returns it, and the device server checks
//! reservations against it, so the two always agree.

use super::cdb::op;

/// Whether a command is allowed under another initiator's reservation (SPC-4, table 66;
/// SBC-3, table 12; SPC-2 for RESERVE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Allowed under persistent reservations and under RESERVE.
    Always,
    /// Allowed under any persistent reservation, but conflicts with RESERVE.
    Persistent,
    /// Allowed under the write-exclusive reservation types.
    Read,
    /// Conflicts with every reservation type.
    Write,
    /// The command has its own rules for reservations.
    Own,
}

/// Which logical units support a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All.
    All,
    /// Thinly provisioned units.
    Thin,
    /// Units with removable media.
    Removable,
    /// Units with asymmetric access.
    Alua,
    /// Units whose access states initiators may change.
    ExplicitAlua,
}

/// One command.
#[derive(Clone, Copy, Debug)]
pub struct CommandDescriptor {
    /// Operation code.
    pub opcode: u8,
    /// Service action, for codes that have one.
    pub service_action: Option<u8>,
    /// The command's name in the standard.
    pub name: &'static str,
    /// A mask of the CDB bits that are evaluated, as long as the CDB; its first byte is the opcode.
    pub usage: &'static [u8],
    /// Whether another initiator's reservation allows the command.
    pub access: Access,
    /// The logical units that support the command.
    pub which: Which,
    /// Nominal and recommended command timeouts in seconds (SPC-4, 6.27.4); zero means not reported.
    pub timeouts_s: (u32, u32),
}

const fn row(
    name: &'static str,
    usage: &'static [u8],
    access: Access,
    which: Which,
    timeouts_s: (u32, u32),
) -> CommandDescriptor {
    CommandDescriptor {
        opcode: usage[0],
        service_action: None,
        name,
        usage,
        access,
        which,
        timeouts_s,
    }
}

const fn action(
    name: &'static str,
    usage: &'static [u8],
    access: Access,
    which: Which,
    timeouts_s: (u32, u32),
) -> CommandDescriptor {
    let sa = usage[1] & 0x1f;
    CommandDescriptor {
        opcode: usage[0],
        service_action: Some(sa),
        name,
        usage,
        access,
        which,
        timeouts_s,
    }
}

const F: u8 = 0xff;
/// Control byte: NACA is not supported; the other bits are obsolete or vendor-specific.
const C: u8 = 0x00;
/// Ordinary commands complete within seconds; those that access much of the medium take longer.
const SHORT: (u32, u32) = (1, 30);
const LONG: (u32, u32) = (10, 300);
const ERASE: (u32, u32) = (60, 36_000);

use Access::{Always, Own, Persistent, Read, Write};
use Which::{All, Thin};

/// All commands, ordered by opcode and service action.
#[rustfmt::skip]
pub const OPCODES: &[CommandDescriptor] = &[
    row("TEST UNIT READY", &[op::TEST_UNIT_READY, 0, 0, 0, 0, C], Persistent, All, SHORT),
    row("REQUEST SENSE", &[op::REQUEST_SENSE, 1, 0, 0, F, C], Always, All, SHORT),
    row("READ(6)", &[op::READ_6, 0x1f, F, F, F, C], Read, All, SHORT),
    row("WRITE(6)", &[op::WRITE_6, 0x1f, F, F, F, C], Write, All, SHORT),
    row("INQUIRY", &[op::INQUIRY, 1, F, F, F, C], Always, All, SHORT),
    row("MODE SELECT(6)", &[op::MODE_SELECT_6, 0x11, 0, 0, F, C], Write, All, SHORT),
    row("RESERVE(6)", &[op::RESERVE_6, 0, 0, 0, 0, C], Own, All, SHORT),
    row("RELEASE(6)", &[op::RELEASE_6, 0, 0, 0, 0, C], Own, All, SHORT),
    row("MODE SENSE(6)", &[op::MODE_SENSE_6, 0x08, F, F, F, C], Write, All, SHORT),
    row("START STOP UNIT", &[op::START_STOP_UNIT, 1, 0, 0x0f, 0xf7, C], Own, All, LONG),
    row("PREVENT ALLOW MEDIUM REMOVAL", &[op::PREVENT_ALLOW_MEDIUM_REMOVAL, 0, 0, 0, 3, C], Own, Which::Removable, SHORT),
    row("READ CAPACITY(10)", &[op::READ_CAPACITY_10, 0, 0, 0, 0, 0, 0, 0, 0, C], Persistent, All, SHORT),
    row("READ(10)", &[op::READ_10, 0x18, F, F, F, F, 0, F, F, C], Read, All, SHORT),
    row("WRITE(10)", &[op::WRITE_10, 0x18, F, F, F, F, 0, F, F, C], Write, All, SHORT),
    row("WRITE AND VERIFY(10)", &[op::WRITE_AND_VERIFY_10, 0x16, F, F, F, F, 0, F, F, C], Write, All, LONG),
    row("VERIFY(10)", &[op::VERIFY_10, 0x16, F, F, F, F, 0, F, F, C], Read, All, LONG),
    row("PRE-FETCH(10)", &[op::PRE_FETCH_10, 0x02, F, F, F, F, 0, F, F, C], Read, All, SHORT),
    row("SYNCHRONIZE CACHE(10)", &[op::SYNCHRONIZE_CACHE_10, 0x02, F, F, F, F, 0, F, F, C], Write, All, LONG),
    row("READ DEFECT DATA(10)", &[op::READ_DEFECT_DATA_10, 0, 0x1f, 0, 0, 0, 0, F, F, C], Read, All, SHORT),
    row("WRITE SAME(10)", &[op::WRITE_SAME_10, 0x18, F, F, F, F, 0, F, F, C], Write, All, LONG),
    row("UNMAP", &[op::UNMAP, 1, 0, 0, 0, 0, 0, F, F, C], Write, Thin, LONG),
    action("SANITIZE, overwrite", &[op::SANITIZE, 0xa0 | op::SA_SANITIZE_OVERWRITE, 0, 0, 0, 0, 0, F, F, C], Write, All, ERASE),
    action("SANITIZE, block erase", &[op::SANITIZE, 0xa0 | op::SA_SANITIZE_BLOCK_ERASE, 0, 0, 0, 0, 0, F, F, C], Write, Thin, ERASE),
    action("SANITIZE, cryptographic erase", &[op::SANITIZE, 0xa0 | op::SA_SANITIZE_CRYPTOGRAPHIC_ERASE, 0, 0, 0, 0, 0, F, F, C], Write, Thin, ERASE),
    action("SANITIZE, exit failure mode", &[op::SANITIZE, 0x80 | op::SA_SANITIZE_EXIT_FAILURE_MODE, 0, 0, 0, 0, 0, F, F, C], Write, All, SHORT),
    row("MODE SELECT(10)", &[op::MODE_SELECT_10, 0x11, 0, 0, 0, 0, 0, F, F, C], Write, All, SHORT),
    row("RESERVE(10)", &[op::RESERVE_10, 0, 0, 0, 0, 0, 0, 0, 0, C], Own, All, SHORT),
    row("RELEASE(10)", &[op::RELEASE_10, 0, 0, 0, 0, 0, 0, 0, 0, C], Own, All, SHORT),
    row("MODE SENSE(10)", &[op::MODE_SENSE_10, 0x18, F, F, 0, 0, 0, F, F, C], Write, All, SHORT),
    action("PERSISTENT RESERVE IN, read keys", &[op::PERSISTENT_RESERVE_IN, 0, 0, 0, 0, 0, 0, F, F, C], Persistent, All, SHORT),
    action("PERSISTENT RESERVE IN, read reservation", &[op::PERSISTENT_RESERVE_IN, 1, 0, 0, 0, 0, 0, F, F, C], Persistent, All, SHORT),
    action("PERSISTENT RESERVE IN, report capabilities", &[op::PERSISTENT_RESERVE_IN, 2, 0, 0, 0, 0, 0, F, F, C], Persistent, All, SHORT),
    action("PERSISTENT RESERVE IN, read full status", &[op::PERSISTENT_RESERVE_IN, 3, 0, 0, 0, 0, 0, F, F, C], Persistent, All, SHORT),
    action("PERSISTENT RESERVE OUT, register", &[op::PERSISTENT_RESERVE_OUT, 0, 0, 0, 0, F, F, F, F, C], Persistent, All, SHORT),
    action("PERSISTENT RESERVE OUT, reserve", &[op::PERSISTENT_RESERVE_OUT, 1, F, 0, 0, F, F, F, F, C], Persistent, All, SHORT),
    action("PERSISTENT RESERVE OUT, release", &[op::PERSISTENT_RESERVE_OUT, 2, F, 0, 0, F, F, F, F, C], Persistent, All, SHORT),
    action("PERSISTENT RESERVE OUT, clear", &[op::PERSISTENT_RESERVE_OUT, 3, 0, 0, 0, F, F, F, F, C], Persistent, All, SHORT),
    action("PERSISTENT RESERVE OUT, preempt", &[op::PERSISTENT_RESERVE_OUT, 4, F, 0, 0, F, F, F, F, C], Persistent, All, SHORT),
    action("PERSISTENT RESERVE OUT, preempt and abort", &[op::PERSISTENT_RESERVE_OUT, 5, F, 0, 0, F, F, F, F, C], Persistent, All, SHORT),
    action("PERSISTENT RESERVE OUT, register and ignore existing key", &[op::PERSISTENT_RESERVE_OUT, 6, 0, 0, 0, F, F, F, F, C], Persistent, All, SHORT),
    action("PERSISTENT RESERVE OUT, register and move", &[op::PERSISTENT_RESERVE_OUT, 7, 0, 0, 0, F, F, F, F, C], Persistent, All, SHORT),
    action("EXTENDED COPY (LID1)", &[op::EXTENDED_COPY, 0, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, C], Write, All, LONG),
    action("RECEIVE COPY STATUS (LID1)", &[op::RECEIVE_COPY_RESULTS, op::SA_COPY_STATUS, F, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, C], Write, All, SHORT),
    action("RECEIVE COPY OPERATING PARAMETERS", &[op::RECEIVE_COPY_RESULTS, op::SA_OPERATING_PARAMETERS, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, C], Write, All, SHORT),
    row("READ(16)", &[op::READ_16, 0x18, F, F, F, F, F, F, F, F, F, F, F, F, 0, C], Read, All, SHORT),
    row("COMPARE AND WRITE", &[op::COMPARE_AND_WRITE, 0x18, F, F, F, F, F, F, F, F, 0, 0, 0, F, 0, C], Write, All, SHORT),
    row("WRITE(16)", &[op::WRITE_16, 0x18, F, F, F, F, F, F, F, F, F, F, F, F, 0, C], Write, All, SHORT),
    row("ORWRITE(16)", &[op::ORWRITE_16, 0x18, F, F, F, F, F, F, F, F, F, F, F, F, 0, C], Write, All, SHORT),
    row("WRITE AND VERIFY(16)", &[op::WRITE_AND_VERIFY_16, 0x16, F, F, F, F, F, F, F, F, F, F, F, F, 0, C], Write, All, LONG),
    row("VERIFY(16)", &[op::VERIFY_16, 0x16, F, F, F, F, F, F, F, F, F, F, F, F, 0, C], Read, All, LONG),
    row("PRE-FETCH(16)", &[op::PRE_FETCH_16, 0x02, F, F, F, F, F, F, F, F, F, F, F, F, 0, C], Read, All, SHORT),
    row("SYNCHRONIZE CACHE(16)", &[op::SYNCHRONIZE_CACHE_16, 0x02, F, F, F, F, F, F, F, F, F, F, F, F, 0, C], Write, All, LONG),
    row("WRITE SAME(16)", &[op::WRITE_SAME_16, 0x19, F, F, F, F, F, F, F, F, F, F, F, F, 0, C], Write, All, LONG),
    row("WRITE ATOMIC(16)", &[op::WRITE_ATOMIC_16, 0x18, F, F, F, F, F, F, F, F, 0, 0, F, F, 0, C], Write, All, SHORT),
    action("READ CAPACITY(16)", &[op::SERVICE_ACTION_IN_16, op::SA_READ_CAPACITY_16, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, C], Persistent, All, SHORT),
    action("GET LBA STATUS", &[op::SERVICE_ACTION_IN_16, op::SA_GET_LBA_STATUS, F, F, F, F, F, F, F, F, F, F, F, F, 0, C], Read, All, SHORT),
    row("REPORT LUNS", &[op::REPORT_LUNS, 0, F, 0, 0, 0, F, F, F, F, 0, C], Always, All, SHORT),
    action("REPORT TARGET PORT GROUPS", &[op::MAINTENANCE_IN, 0xe0 | op::SA_REPORT_TARGET_PORT_GROUPS, 0, 0, 0, 0, F, F, F, F, 0, C], Always, Which::Alua, SHORT),
    action("REPORT SUPPORTED OPERATION CODES", &[op::MAINTENANCE_IN, op::SA_REPORT_SUPPORTED_OPERATION_CODES, 0x87, F, F, F, F, F, F, F, 0, C], Read, All, SHORT),
    action("REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS", &[op::MAINTENANCE_IN, op::SA_REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS, 0x80, 0, 0, 0, F, F, F, F, 0, C], Read, All, SHORT),
    action("SET TARGET PORT GROUPS", &[op::MAINTENANCE_OUT, op::SA_SET_TARGET_PORT_GROUPS, 0, 0, 0, 0, F, F, F, F, 0, C], Persistent, Which::ExplicitAlua, SHORT),
    row("READ(12)", &[op::READ_12, 0x18, F, F, F, F, F, F, F, F, 0, C], Read, All, SHORT),
    row("WRITE(12)", &[op::WRITE_12, 0x18, F, F, F, F, F, F, F, F, 0, C], Write, All, SHORT),
    row("WRITE AND VERIFY(12)", &[op::WRITE_AND_VERIFY_12, 0x16, F, F, F, F, F, F, F, F, 0, C], Write, All, LONG),
    row("VERIFY(12)", &[op::VERIFY_12, 0x16, F, F, F, F, F, F, F, F, 0, C], Read, All, LONG),
    row("READ DEFECT DATA(12)", &[op::READ_DEFECT_DATA_12, 0x1f, 0, 0, 0, 0, F, F, F, F, 0, C], Read, All, SHORT),
];

/// The result of looking up an opcode and service action for a logical unit with certain features.
pub enum Lookup {
    /// The matching row.
    Found(&'static CommandDescriptor),
    /// The opcode is known, but this service action is not.
    NoSuchAction,
    /// The opcode is unknown.
    NoSuchCode,
}

/// Looks up the row for a CDB.
pub fn lookup(cdb: &[u8; 16], has: impl Fn(Which) -> bool) -> Lookup {
    let mut known = false;
    for row in OPCODES
        .iter()
        .filter(|row| row.opcode == cdb[0] && has(row.which))
    {
        match row.service_action {
            None => return Lookup::Found(row),
            Some(action) if action == cdb[1] & 0x1f => return Lookup::Found(row),
            Some(_) => known = true,
        }
    }
    if known {
        Lookup::NoSuchAction
    } else {
        Lookup::NoSuchCode
    }
}

fn push_timeouts(out: &mut Vec<u8>, row: &CommandDescriptor) {
    out.extend_from_slice(&[0x00, 0x0a, 0, 0]);
    out.extend_from_slice(&row.timeouts_s.0.to_be_bytes());
    out.extend_from_slice(&row.timeouts_s.1.to_be_bytes());
}

/// The all_commands parameter data (SPC-4, 6.27.2), with timeouts if `rctd`.
pub fn report_all(has: impl Fn(Which) -> bool, rctd: bool) -> Vec<u8> {
    let mut out = vec![0; 4];
    for row in OPCODES.iter().filter(|row| has(row.which)) {
        out.extend_from_slice(&[row.opcode, 0, 0, row.service_action.unwrap_or(0), 0]);
        out.push(u8::from(rctd) << 1 | u8::from(row.service_action.is_some()));
        out.extend_from_slice(&(row.usage.len() as u16).to_be_bytes());
        if rctd {
            push_timeouts(&mut out, row);
        }
    }
    let length = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

/// The one_command parameter data (SPC-4, 6.27.3); `None` as `row` means that the command is not supported.
pub fn report_one(row: Option<&CommandDescriptor>, rctd: bool) -> Vec<u8> {
    let Some(row) = row else {
        return vec![0, 0x01, 0, 0];
    };
    let mut out = vec![0, 0x03 | u8::from(rctd) << 7];
    out.extend_from_slice(&(row.usage.len() as u16).to_be_bytes());
    out.extend_from_slice(row.usage);
    if rctd {
        push_timeouts(&mut out, row);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::cdb;

    /// Rows are ordered and unique, and their usage maps are as long as the CDBs of their groups.
    #[test]
    fn rows_are_ordered_unique_and_as_long_as_their_group() {
        for pair in OPCODES.windows(2) {
            let id = |row: &CommandDescriptor| (row.opcode, row.service_action);
            assert!(
                id(&pair[0]) < id(&pair[1]),
                "{} before {}",
                pair[0].name,
                pair[1].name
            );
        }
        for row in OPCODES {
            assert_eq!(
                Some(row.usage.len()),
                cdb::length(row.opcode).map(usize::from),
                "{}",
                row.name
            );
        }
    }

    /// Every row is found by means of its own usage map, and reports have the lengths that they state.
    #[test]
    fn every_row_is_found_by_its_usage_map() {
        for row in OPCODES {
            let mut cdb = cdb::pad(row.usage);
            cdb[1] = row.service_action.unwrap_or(0);
            assert!(
                matches!(lookup(&cdb, |_| true), Lookup::Found(found) if found.name == row.name)
            );
            assert_eq!(report_one(Some(row), true).len(), 4 + row.usage.len() + 12);
        }
        assert!(matches!(
            lookup(&cdb::pad(&[0x48, 0x09]), |_| true),
            Lookup::NoSuchAction
        ));
        assert!(matches!(
            lookup(&cdb::pad(&[0x42]), |which| which == Which::All),
            Lookup::NoSuchCode
        ));
        assert_eq!(report_all(|_| true, false).len(), 4 + 8 * OPCODES.len());
        assert_eq!(report_all(|_| true, true).len(), 4 + 20 * OPCODES.len());
    }
}
