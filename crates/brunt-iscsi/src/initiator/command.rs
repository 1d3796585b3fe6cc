//! Translates block requests to SCSI commands, and defines the LUN properties needed for this.
//!
//! A request may take several commands: an unmap that is longer than the LUN's limit, or a write with forced unit
//! access on a LUN that has a volatile cache but no FUA bit (a SYNCHRONIZE CACHE follows). Pure. The one rule: a plan
//! depends only on the facts, the request and its progress, so that a command can be repeated after a reconnect.

use brunt_block::Op;
use brunt_wire::scsi::cdb::op;
use brunt_wire::scsi::unit_names::UnitNames;

/// A CDB and its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedCommand {
    /// The CDB, padded with zeros.
    pub cdb: [u8; 16],
    /// Direction of the data.
    pub direction: DataDirection,
    /// Length of the data (or of the parameter list) in bytes.
    pub data_len: u32,
    /// Source of the Data-Out.
    pub data: CommandData,
    /// Number of the request's bytes that the command covers.
    pub covers: u64,
}

/// Direction of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum DataDirection {
    None,
    In,
    Out,
}

/// The data that a command sends or receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandData {
    /// The caller's buffer, or no data.
    Caller,
    /// One block of zeros (WRITE SAME).
    ZeroBlock,
    /// A list with one block descriptor (UNMAP).
    UnmapList {
        /// First block.
        lba: u64,
        /// Number of blocks.
        count: u32,
    },
}

/// How blocks of a LUN can be unmapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnmapBy {
    /// Unmapping isn't supported.
    #[default]
    Nothing,
    /// UNMAP (LBPU).
    Unmap,
    /// WRITE SAME (16) with the UNMAP bit (LBPWS).
    WriteSame,
}

/// Properties of a LUN that affect requests. The properties are read when the LUN is opened and again after every
/// reconnect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Size of a logical block in bytes.
    pub block_bytes: u32,
    /// Size of the medium in bytes.
    pub size_bytes: u64,
    /// Size of a physical block in bytes.
    pub physical_block_bytes: u32,
    /// Longest READ or WRITE in bytes.
    pub transfer_bytes_max: u32,
    /// Longest UNMAP in blocks, never 0.
    pub unmap_blocks_max: u32,
    /// Longest WRITE SAME in blocks, never 0.
    pub write_same_blocks_max: u32,
    /// How blocks are unmapped.
    pub unmap_by: UnmapBy,
    /// Unmapped blocks read as zeros (LBPRZ).
    pub unmapped_reads_zeros: bool,
    /// The FUA bit is supported (DPOFUA).
    pub fua: bool,
    /// A volatile write cache is on (WCE).
    pub volatile_cache: bool,
    /// The medium is write-protected (WP).
    pub read_only: bool,
    /// T10 vendor identification.
    pub vendor: String,
    /// Product identification.
    pub product: String,
    /// Product revision level.
    pub revision: String,
    /// Unit serial number, if the LUN has one.
    pub serial: Option<String>,
    /// The LUN's names in the device identification page.
    pub names: UnitNames,
}

impl Facts {
    /// Whether a LUN with the facts `other` may be the same LUN. Names are ignored if either LUN has none, and UUIDs
    /// always, because a server of a memory LUN draws a new UUID each time it starts.
    pub fn may_be_same(&self, other: &Facts) -> bool {
        let stable = |facts: &Facts| -> Vec<String> {
            let names = facts.names.unique.iter().chain(&facts.names.local);
            let names = names.filter(|name| !name.starts_with("uuid."));
            names.cloned().collect()
        };
        let (mine, others) = (stable(self), stable(other));
        let share_a_name = mine.iter().any(|name| others.contains(name));
        let words = |facts: &Facts| {
            let (vendor, product) = (facts.vendor.clone(), facts.product.clone());
            (vendor, product, facts.serial.clone())
        };
        words(self) == words(other) && (share_a_name || mine.is_empty() || others.is_empty())
    }
}

/// Progress of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of bytes done.
    pub done: u64,
    /// Whether the flush that replaces a FUA bit was done.
    pub flushed: bool,
}

/// The next command of a request; `None` if it is complete.
pub fn next(
    facts: &Facts,
    what: Op,
    offset: u64,
    len: u64,
    force_unit_access: bool,
    progress: Progress,
) -> Option<PlannedCommand> {
    let block = u64::from(facts.block_bytes);
    let lba = (offset + progress.done) / block;
    let left = (len - progress.done) / block;
    if what == Op::Flush {
        return (!progress.flushed).then(|| synchronize_cache(offset / block, len / block));
    }
    if left == 0 {
        let flush_instead = force_unit_access && facts.volatile_cache && !progress.flushed;
        // UNMAP and WRITE SAME have no FUA bit.
        let has_bit = facts.fua && what == Op::Write;
        return (flush_instead && !has_bit && what != Op::Read)
            .then(|| synchronize_cache(offset / block, len / block));
    }
    let fua = force_unit_access && facts.fua && facts.volatile_cache;
    match what {
        Op::Read => Some(transfer(
            [op::READ_10, op::READ_16],
            DataDirection::In,
            lba,
            left,
            block,
            false,
        )),
        Op::Write => Some(transfer(
            [op::WRITE_10, op::WRITE_16],
            DataDirection::Out,
            lba,
            left,
            block,
            fua,
        )),
        Op::WriteZeroes => Some(write_same(facts, lba, left, false)),
        Op::Unmap if facts.unmap_by == UnmapBy::WriteSame => {
            Some(write_same(facts, lba, left, true))
        }
        Op::Unmap => {
            let count = left.min(u64::from(facts.unmap_blocks_max)) as u32;
            let mut cdb = [0; 16];
            cdb[0] = op::UNMAP;
            cdb[7..9].copy_from_slice(&(UNMAP_LIST_BYTES as u16).to_be_bytes());
            Some(PlannedCommand {
                cdb,
                direction: DataDirection::Out,
                data_len: UNMAP_LIST_BYTES as u32,
                data: CommandData::UnmapList { lba, count },
                covers: u64::from(count) * block,
            })
        }
        Op::Flush => unreachable!("handled above"),
    }
}

/// A header and one descriptor (SBC-3, 5.28.2).
pub const UNMAP_LIST_BYTES: usize = 24;

/// The parameter list of an UNMAP.
pub fn unmap_list(lba: u64, count: u32) -> [u8; UNMAP_LIST_BYTES] {
    let mut list = [0; UNMAP_LIST_BYTES];
    list[1] = 22; // UNMAP DATA LENGTH: number of bytes that follow
    list[3] = 16; // UNMAP BLOCK DESCRIPTOR DATA LENGTH
    list[8..16].copy_from_slice(&lba.to_be_bytes());
    list[16..20].copy_from_slice(&count.to_be_bytes());
    list
}

fn transfer(
    codes: [u8; 2],
    direction: DataDirection,
    lba: u64,
    blocks: u64,
    block: u64,
    fua: bool,
) -> PlannedCommand {
    let mut cdb = [0; 16];
    cdb[1] = if fua { 0x08 } else { 0 };
    match (u32::try_from(lba), u16::try_from(blocks)) {
        (Ok(lba), Ok(blocks)) => {
            cdb[0] = codes[0];
            cdb[2..6].copy_from_slice(&lba.to_be_bytes());
            cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
        }
        _ => {
            cdb[0] = codes[1];
            cdb[2..10].copy_from_slice(&lba.to_be_bytes());
            cdb[10..14].copy_from_slice(&(blocks as u32).to_be_bytes());
        }
    }
    let bytes = blocks * block;
    PlannedCommand {
        cdb,
        direction,
        data_len: bytes as u32,
        data: CommandData::Caller,
        covers: bytes,
    }
}

fn write_same(facts: &Facts, lba: u64, left: u64, unmap: bool) -> PlannedCommand {
    let count = left.min(u64::from(facts.write_same_blocks_max));
    let mut cdb = [0; 16];
    cdb[0] = op::WRITE_SAME_16;
    cdb[1] = if unmap { 0x08 } else { 0 };
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&(count as u32).to_be_bytes());
    PlannedCommand {
        cdb,
        direction: DataDirection::Out,
        data_len: facts.block_bytes,
        data: CommandData::ZeroBlock,
        covers: count * u64::from(facts.block_bytes),
    }
}

/// 0 blocks means "to the end" (SBC-3, 5.22), which is also used if the length doesn't fit in the field.
fn synchronize_cache(lba: u64, blocks: u64) -> PlannedCommand {
    let mut cdb = [0; 16];
    match (u32::try_from(lba), u16::try_from(blocks)) {
        (Ok(lba), Ok(blocks)) => {
            cdb[0] = op::SYNCHRONIZE_CACHE_10;
            cdb[2..6].copy_from_slice(&lba.to_be_bytes());
            cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
        }
        _ => {
            cdb[0] = op::SYNCHRONIZE_CACHE_16;
            cdb[2..10].copy_from_slice(&lba.to_be_bytes());
            cdb[10..14].copy_from_slice(&u32::try_from(blocks).unwrap_or(0).to_be_bytes());
        }
    }
    PlannedCommand {
        cdb,
        direction: DataDirection::None,
        data_len: 0,
        data: CommandData::Caller,
        covers: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            block_bytes: 512,
            size_bytes: 1 << 50,
            transfer_bytes_max: 1 << 20,
            unmap_blocks_max: 100,
            write_same_blocks_max: 1000,
            unmap_by: UnmapBy::Unmap,
            fua: true,
            volatile_cache: true,
            ..Facts::default()
        }
    }

    #[test]
    fn a_lun_with_another_name_is_not_the_same() {
        let named = |vendor: &str, unique: &[&str], local: &[&str]| {
            let texts = |names: &[&str]| names.iter().map(ToString::to_string).collect();
            let (unique, local) = (texts(unique), texts(local));
            Facts {
                vendor: vendor.into(),
                names: UnitNames { unique, local },
                ..facts()
            }
        };
        let naa = named("LIO-ORG", &["naa.6001"], &[]);
        assert!(naa.may_be_same(&naa));
        assert!(naa.may_be_same(&named("LIO-ORG", &["naa.6001"], &["t10.x"])));
        assert!(!naa.may_be_same(&named("LIO-ORG", &["naa.6002"], &[])));
        assert!(!naa.may_be_same(&named("LIO-ORG", &[], &["naa.3001"])));
        assert!(!naa.may_be_same(&named("IET", &["naa.6001"], &[])));
        // An unknown value counts as equal.
        assert!(naa.may_be_same(&named("LIO-ORG", &[], &[])));
        // Another process that serves the same memory LUN has another UUID.
        let memory = |uuid: &str| named("BRUNT", &[uuid], &["naa.3001"]);
        assert!(memory("uuid.1").may_be_same(&memory("uuid.2")));
        let other_serial = Facts {
            serial: Some("2".into()),
            ..naa.clone()
        };
        assert!(!naa.may_be_same(&other_serial));
    }

    /// Returns all commands of a request.
    fn all(facts: &Facts, what: Op, offset: u64, len: u64, fua: bool) -> Vec<PlannedCommand> {
        let mut progress = Progress::default();
        let mut commands = Vec::new();
        while let Some(command) = next(facts, what, offset, len, fua, progress) {
            progress.done += command.covers;
            progress.flushed |= command.covers == 0;
            commands.push(command);
            assert!(commands.len() < 100, "no end");
        }
        commands
    }

    /// CDBs follow SBC-3; short ones are used if the address fits.
    #[test]
    fn cdbs_follow_the_standard_and_are_short_if_possible() {
        let check = |what, offset, len, fua, expected: &[&[u8]]| {
            let commands = all(&facts(), what, offset, len, fua);
            let cdbs: Vec<&[u8]> = commands
                .iter()
                .zip(expected)
                .map(|(c, e)| &c.cdb[..e.len()])
                .collect();
            assert_eq!(cdbs, expected, "{what:?} {offset} {len} {fua}");
            assert_eq!(commands.len(), expected.len());
        };
        check(
            Op::Read,
            512,
            4096,
            false,
            &[&[0x28, 0, 0, 0, 0, 1, 0, 0, 8, 0]],
        );
        check(
            Op::Write,
            512,
            4096,
            true,
            &[&[0x2a, 8, 0, 0, 0, 1, 0, 0, 8, 0]],
        );
        check(
            Op::Read,
            1 << 41,
            512,
            true,
            &[&[0x88, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]],
        );
        check(
            Op::Write,
            0,
            65536 * 512,
            false,
            &[&[0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]],
        );
        check(
            Op::Flush,
            0,
            0,
            false,
            &[&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0]],
        );
        check(
            Op::Flush,
            1 << 41,
            512,
            false,
            &[&[0x91, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]],
        );
        check(
            Op::Unmap,
            0,
            150 * 512,
            false,
            &[
                &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0],
                &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0],
            ],
        );
        check(
            Op::WriteZeroes,
            0,
            512,
            true,
            &[
                &[0x93, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0],
                &[0x35, 0, 0, 0, 0, 0, 0, 0, 1, 0],
            ],
        );
    }

    /// Forced unit access works without the FUA bit, and costs nothing if there is no volatile cache.
    #[test]
    fn forced_unit_access_works_without_the_fua_bit() {
        let check = |fua, volatile_cache, codes: &[u8]| {
            let facts = Facts {
                fua,
                volatile_cache,
                ..facts()
            };
            let commands = all(&facts, Op::Write, 0, 512, true);
            assert_eq!(commands.iter().map(|c| c.cdb[0]).collect::<Vec<_>>(), codes);
            assert_eq!(commands[0].cdb[1] & 0x08 != 0, fua && volatile_cache);
        };
        check(true, true, &[0x2a]);
        check(false, true, &[0x2a, 0x35]);
        check(true, false, &[0x2a]);
        check(false, false, &[0x2a]);
    }

    /// Long unmaps are split into pieces that cover exactly the range.
    #[test]
    fn long_unmaps_are_split_into_pieces_that_cover_the_range() {
        let commands = all(&facts(), Op::Unmap, 512 * 7, 250 * 512, false);
        let extents: Vec<(u64, u32)> = commands
            .iter()
            .map(|c| match c.data {
                CommandData::UnmapList { lba, count } => (lba, count),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(extents, [(7, 100), (107, 100), (207, 50)]);
        let list = unmap_list(7, 100);
        let parsed: Vec<_> = brunt_wire::scsi::unmap::parse(&list).unwrap().collect();
        assert_eq!(parsed.len(), 1);
        let by_write_same = Facts {
            unmap_by: UnmapBy::WriteSame,
            ..facts()
        };
        let commands = all(&by_write_same, Op::Unmap, 0, 1500 * 512, false);
        assert_eq!(commands.len(), 2);
        assert!(
            commands
                .iter()
                .all(|c| c.cdb[0] == 0x93 && c.cdb[1] == 8 && c.data == CommandData::ZeroBlock)
        );
    }

    /// Of the names that Brunt's own target reports, only the UUID is globally unique.
    #[test]
    fn only_the_uuid_of_our_own_target_is_unique() {
        use brunt_wire::scsi::inquiry::{DeviceIdentification, device_identification, vpd};
        let check = |naa, uuid, expected: &[&str]| {
            let body = device_identification(&DeviceIdentification {
                vendor: "BRUNT",
                serial: &"s".repeat(200),
                naa,
                uuid,
                target_name: "iqn.2026-11.io.brunt:t0",
                target_port: 1,
                alua: true,
            });
            let page = vpd(0x83, &body);
            // The initiator reads only this much of the page.
            let page = &page[..page.len().min(256)];
            assert_eq!(UnitNames::parse(page).unique, expected);
        };
        let local = [0x30, 0, 0, 0, 0, 0, 0, 1];
        let uuid = Some([0xab; 16]);
        check(local, None, &[]);
        check(local, uuid, &["uuid.1000abababababababababababababababab"]);
    }
}
