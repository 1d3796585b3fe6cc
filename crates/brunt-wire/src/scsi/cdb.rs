//! Command descriptor blocks: the fields shared by the commands of a direct-access device. The device server uses it
//! for every command, so nothing here allocates. The one rule: a CDB is padded to 16 bytes once, and fields are read
//! only from there.

/// A CDB, padded with zeros.
pub type Cdb = [u8; 16];

/// Pads (or truncates) a CDB from the transport. No supported command is longer than 16 bytes, so nothing relevant is
/// lost.
#[inline]
pub fn pad(bytes: &[u8]) -> Cdb {
    if let Some(first) = bytes.first_chunk::<16>() {
        return *first;
    }
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    cdb
}

/// Big-endian 16 bits at `at`; zero if they are not within `bytes`.
#[inline]
pub fn be16(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |b| u16::from_be_bytes(*b))
}

/// Big-endian 32 bits at `at`; zero if they are not within `bytes`.
#[inline]
pub fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |b| u32::from_be_bytes(*b))
}

/// Big-endian 64 bits at `at`; zero if they are not within `bytes`.
#[inline]
pub fn be64(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |b| u64::from_be_bytes(*b))
}

/// Operation codes (SPC-4, annex E.3.1).
#[allow(missing_docs)] // the standard's own names
pub mod op {
    pub const TEST_UNIT_READY: u8 = 0x00;
    pub const REQUEST_SENSE: u8 = 0x03;
    pub const READ_6: u8 = 0x08;
    pub const WRITE_6: u8 = 0x0a;
    pub const INQUIRY: u8 = 0x12;
    pub const MODE_SELECT_6: u8 = 0x15;
    pub const RESERVE_6: u8 = 0x16;
    pub const RELEASE_6: u8 = 0x17;
    pub const MODE_SENSE_6: u8 = 0x1a;
    pub const START_STOP_UNIT: u8 = 0x1b;
    pub const PREVENT_ALLOW_MEDIUM_REMOVAL: u8 = 0x1e;
    pub const READ_CAPACITY_10: u8 = 0x25;
    pub const READ_10: u8 = 0x28;
    pub const WRITE_10: u8 = 0x2a;
    pub const WRITE_AND_VERIFY_10: u8 = 0x2e;
    pub const VERIFY_10: u8 = 0x2f;
    pub const PRE_FETCH_10: u8 = 0x34;
    pub const SYNCHRONIZE_CACHE_10: u8 = 0x35;
    pub const READ_DEFECT_DATA_10: u8 = 0x37;
    pub const WRITE_SAME_10: u8 = 0x41;
    pub const UNMAP: u8 = 0x42;
    pub const SANITIZE: u8 = 0x48;
    pub const MODE_SELECT_10: u8 = 0x55;
    pub const RESERVE_10: u8 = 0x56;
    pub const RELEASE_10: u8 = 0x57;
    pub const MODE_SENSE_10: u8 = 0x5a;
    pub const PERSISTENT_RESERVE_IN: u8 = 0x5e;
    pub const PERSISTENT_RESERVE_OUT: u8 = 0x5f;
    pub const EXTENDED_COPY: u8 = 0x83;
    pub const RECEIVE_COPY_RESULTS: u8 = 0x84;
    pub const READ_16: u8 = 0x88;
    pub const COMPARE_AND_WRITE: u8 = 0x89;
    pub const WRITE_16: u8 = 0x8a;
    pub const ORWRITE_16: u8 = 0x8b;
    pub const WRITE_AND_VERIFY_16: u8 = 0x8e;
    pub const VERIFY_16: u8 = 0x8f;
    pub const PRE_FETCH_16: u8 = 0x90;
    pub const SYNCHRONIZE_CACHE_16: u8 = 0x91;
    pub const WRITE_SAME_16: u8 = 0x93;
    pub const WRITE_ATOMIC_16: u8 = 0x9c;
    pub const SERVICE_ACTION_IN_16: u8 = 0x9e;
    pub const REPORT_LUNS: u8 = 0xa0;
    pub const MAINTENANCE_IN: u8 = 0xa3;
    pub const MAINTENANCE_OUT: u8 = 0xa4;
    pub const READ_12: u8 = 0xa8;
    pub const WRITE_12: u8 = 0xaa;
    pub const WRITE_AND_VERIFY_12: u8 = 0xae;
    pub const VERIFY_12: u8 = 0xaf;
    pub const READ_DEFECT_DATA_12: u8 = 0xb7;

    /// Service actions of SERVICE ACTION IN(16) and MAINTENANCE IN.
    pub const SA_READ_CAPACITY_16: u8 = 0x10;
    pub const SA_GET_LBA_STATUS: u8 = 0x12;
    pub const SA_REPORT_TARGET_PORT_GROUPS: u8 = 0x0a;
    pub const SA_SET_TARGET_PORT_GROUPS: u8 = 0x0a;
    pub const SA_REPORT_SUPPORTED_OPERATION_CODES: u8 = 0x0c;
    pub const SA_REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS: u8 = 0x0d;
    /// Service actions of SANITIZE.
    pub const SA_SANITIZE_OVERWRITE: u8 = 0x01;
    pub const SA_SANITIZE_BLOCK_ERASE: u8 = 0x02;
    pub const SA_SANITIZE_CRYPTOGRAPHIC_ERASE: u8 = 0x03;
    pub const SA_SANITIZE_EXIT_FAILURE_MODE: u8 = 0x1f;
    /// Service actions of RECEIVE COPY RESULTS.
    pub const SA_COPY_STATUS: u8 = 0x00;
    pub const SA_OPERATING_PARAMETERS: u8 = 0x03;
}

/// Length of a command's CDB, determined by its group (SPC-4, 4.2.5.1); `None` for groups without a fixed length.
pub const fn length(opcode: u8) -> Option<u8> {
    match opcode >> 5 {
        0 => Some(6),
        1 | 2 => Some(10),
        4 => Some(16),
        5 => Some(12),
        _ => None,
    }
}

/// The fields shared by READ, WRITE, VERIFY and similar commands: blocks and flags (SBC-3, 5.8 on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// First block.
    pub lba: u64,
    /// Number of blocks. Zero in READ(6) and WRITE(6), which means 256, is already resolved.
    pub blocks: u32,
    /// RDPROTECT, WRPROTECT, VRPROTECT, ORPROTECT.
    pub protect: u8,
    /// Disable page out.
    pub dpo: bool,
    /// Force unit access.
    pub fua: bool,
    /// Byte check: 0 to 3 (VERIFY and WRITE AND VERIFY).
    pub byte_check: u8,
    /// Byte 1 as received, for flags that only some commands have.
    pub flags: u8,
}

impl Transfer {
    /// Decodes the fields according to the opcode's group.
    #[inline]
    pub fn decode(cdb: &Cdb) -> Transfer {
        let (lba, blocks) = match cdb[0] >> 5 {
            0 => {
                let lba = u32::from_be_bytes([0, cdb[1] & 0x1f, cdb[2], cdb[3]]);
                let blocks = if cdb[4] == 0 { 256 } else { u32::from(cdb[4]) };
                return Transfer {
                    lba: u64::from(lba),
                    blocks,
                    protect: 0,
                    dpo: false,
                    fua: false,
                    byte_check: 0,
                    flags: 0,
                };
            }
            1 | 2 => (u64::from(be32(cdb, 2)), u32::from(be16(cdb, 7))),
            5 => (u64::from(be32(cdb, 2)), be32(cdb, 6)),
            _ => (be64(cdb, 2), be32(cdb, 10)),
        };
        Transfer {
            lba,
            blocks,
            protect: cdb[1] >> 5,
            dpo: cdb[1] & 0x10 != 0,
            fua: cdb[1] & 0x08 != 0,
            byte_check: cdb[1] >> 1 & 3,
            flags: cdb[1],
        }
    }
}

/// The allocation or parameter list length of a CDB, whose position depends on the group: byte 4 of 6-byte CDBs (two
/// bytes from byte 3 for INQUIRY), then bytes 7-8, 6-9, 10-13.
pub fn list_length(cdb: &Cdb) -> u32 {
    match (cdb[0], cdb[0] >> 5) {
        (op::INQUIRY, _) => u32::from(be16(cdb, 3)),
        (_, 0) => u32::from(cdb[4]),
        (_, 1 | 2) => u32::from(be16(cdb, 7)),
        (_, 5) => be32(cdb, 6),
        _ => be32(cdb, 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each group's fields are at the offsets that SBC-3 defines.
    #[test]
    fn fields_of_each_group_are_at_the_standards_offsets() {
        let check = |bytes: &[u8], lba, blocks, protect, fua| {
            let t = Transfer::decode(&pad(bytes));
            assert_eq!(
                (t.lba, t.blocks, t.protect, t.fua),
                (lba, blocks, protect, fua),
                "{bytes:x?}"
            );
        };
        check(&[0x08, 0xff, 0x12, 0x34, 0, 0], 0x1f_1234, 256, 0, false);
        check(&[0x0a, 0, 0, 1, 7, 0], 1, 7, 0, false);
        check(
            &[0x28, 0x28, 0, 1, 2, 3, 0, 0, 9, 0],
            0x0001_0203,
            9,
            1,
            true,
        );
        check(
            &[0xa8, 0, 0, 0, 0, 3, 0, 1, 0, 0, 0, 0],
            3,
            0x1_0000,
            0,
            false,
        );
        check(
            &[0x88, 0xe8, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0],
            1 << 56 | 2,
            5,
            7,
            true,
        );
    }

    #[test]
    fn a_truncated_cdb_is_decoded_without_a_panic() {
        for opcode in 0..=255u8 {
            let mut cdb = [0xff; 16];
            cdb[0] = opcode;
            for end in 0..=16 {
                let cdb = pad(&cdb[..end]);
                let _ = (Transfer::decode(&cdb), list_length(&cdb), length(cdb[0]));
            }
        }
    }
}
