//! EXTENDED COPY (LID1) with block-to-block segments (counted in blocks, or in bytes with offsets), and its
//! description in RECEIVE COPY RESULTS and the third-party copy VPD page (SPC-4, 6.4, 6.19, 6.20, 7.8.17).

use super::cdb::{be16, be32, be64, op};
use super::sense::{Sense, key};

/// Maximum number of targets in one list. RECEIVE COPY RESULTS reports this limit and those below.
pub const TARGETS_MAX: u16 = 8;
/// Maximum number of segment descriptors in one list.
pub const SEGMENTS_MAX: u16 = 64;
/// Maximum total bytes of both descriptor lists: 8 * 32 + 64 * 28.
pub const LIST_BYTES_MAX: u32 = 2048;
/// Maximum bytes per segment.
pub const SEGMENT_BYTES_MAX: u32 = 256 << 20;

const TARGET_DESCRIPTOR: u8 = 0xe4;
const TARGET_DESCRIPTOR_BYTES: usize = 32;
const BLOCK_TO_BLOCK: u8 = 0x02;
const BLOCK_TO_BLOCK_BYTES: usize = 28;
const BLOCK_TO_BLOCK_OFFSET: u8 = 0x0a;
const BLOCK_TO_BLOCK_OFFSET_BYTES: usize = 32;
const HEADER_BYTES: usize = 16;

/// An identification descriptor of a logical unit (E4h).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyTarget {
    /// The designator as in VPD page 83h: a byte with CODE SET, a byte with ASSOCIATION and DESIGNATOR TYPE, a
    /// reserved byte, the length, and the designator itself.
    pub designator: Vec<u8>,
    /// The block length that the initiator assumes, in bytes.
    pub block_bytes: u32,
}

/// The amount of data that a segment copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyAmount {
    /// Number of blocks of the source (02h, DC zero).
    SourceBlocks(u16),
    /// Number of blocks of the destination (02h, DC one).
    DestinationBlocks(u16),
    /// Bytes, starting at byte offsets into the first blocks of source and destination (0Ah).
    Bytes {
        /// Number of bytes.
        bytes: u32,
        /// Offset within the source's first block.
        source_offset: u16,
        /// Offset within the destination's first block.
        destination_offset: u16,
    },
}

/// A block-to-block segment (02h or 0Ah).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySegment {
    /// Index of the source in the list's targets.
    pub source: u16,
    /// Index of the destination in the list's targets.
    pub destination: u16,
    /// The amount of data.
    pub amount: CopyAmount,
    /// The first block to read.
    pub source_lba: u64,
    /// The first block to write.
    pub destination_lba: u64,
}

/// A parameter list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyList {
    /// LIST IDENTIFIER; `None` if LIST ID USAGE specifies that the list has none.
    pub id: Option<u8>,
    /// The targets, in list order.
    pub targets: Vec<CopyTarget>,
    /// The segments, in list order.
    pub segments: Vec<CopySegment>,
}

fn illegal(asc: u8, ascq: u8, byte: usize) -> Sense {
    Sense::new(key::ILLEGAL_REQUEST, asc, ascq).with_field(false, byte as u16, None)
}

const PARAMETER_LIST_LENGTH_ERROR: Sense = Sense::new(key::ILLEGAL_REQUEST, 0x1a, 0x00);

/// Parses a parameter list.
///
/// # Errors
/// Returns the sense data for the response; in that case, nothing has been copied.
pub fn parse(list: &[u8]) -> Result<CopyList, Sense> {
    if list.len() < HEADER_BYTES {
        return Err(PARAMETER_LIST_LENGTH_ERROR);
    }
    // LIST ID USAGE 11b: no identifier; the field must be zero.
    let id = match list[1] >> 3 & 3 {
        3 if list[0] != 0 => return Err(illegal(0x26, 0x00, 0)),
        3 => None,
        0 | 2 => Some(list[0]),
        _ => return Err(illegal(0x26, 0x00, 1)),
    };
    let target_bytes = usize::from(be16(list, 2));
    let segment_bytes = be32(list, 8) as usize;
    let inline_bytes = be32(list, 12) as usize;
    if target_bytes as u64 + segment_bytes as u64 > u64::from(LIST_BYTES_MAX) {
        return Err(PARAMETER_LIST_LENGTH_ERROR);
    }
    if inline_bytes != 0 {
        // 26/0B: INLINE DATA LENGTH EXCEEDED; block-to-block segments need no inline data.
        return Err(illegal(0x26, 0x0b, 12));
    }
    let start = HEADER_BYTES + target_bytes;
    if list.len() < start + segment_bytes {
        return Err(PARAMETER_LIST_LENGTH_ERROR);
    }
    let targets = parse_targets(&list[HEADER_BYTES..start], HEADER_BYTES)?;
    let segments = parse_segments(&list[start..start + segment_bytes], start)?;
    Ok(CopyList {
        id,
        targets,
        segments,
    })
}

/// Parses the target descriptors, which start at offset `start` in their list.
fn parse_targets(descriptors: &[u8], start: usize) -> Result<Vec<CopyTarget>, Sense> {
    let mut targets = Vec::new();
    let mut at = 0;
    while at < descriptors.len() {
        let place = start + at;
        if descriptors[at] != TARGET_DESCRIPTOR {
            return Err(illegal(0x26, 0x07, place));
        }
        let Some(d) = descriptors.get(at..at + TARGET_DESCRIPTOR_BYTES) else {
            return Err(PARAMETER_LIST_LENGTH_ERROR);
        };
        if targets.len() == usize::from(TARGETS_MAX) {
            return Err(illegal(0x26, 0x06, place));
        }
        // Only block devices are supported. LU ID TYPE and NUL, in the bits above the type, have been obsolete since
        // SPC-4.
        if d[1] & 0x1f != 0 {
            return Err(illegal(0x26, 0x00, place + 1));
        }
        let length = usize::from(d[7]);
        if length > 20 {
            return Err(illegal(0x26, 0x00, place + 7));
        }
        targets.push(CopyTarget {
            designator: d[4..8 + length].to_vec(),
            block_bytes: be32(d, 28) & 0x00ff_ffff,
        });
        at += TARGET_DESCRIPTOR_BYTES;
    }
    Ok(targets)
}

/// Parses the segment descriptors, which start at offset `start` in their list.
fn parse_segments(descriptors: &[u8], start: usize) -> Result<Vec<CopySegment>, Sense> {
    let mut segments = Vec::new();
    let mut at = 0;
    while at < descriptors.len() {
        let place = start + at;
        let bytes = match descriptors[at] {
            BLOCK_TO_BLOCK => BLOCK_TO_BLOCK_BYTES,
            BLOCK_TO_BLOCK_OFFSET => BLOCK_TO_BLOCK_OFFSET_BYTES,
            _ => return Err(illegal(0x26, 0x09, place)),
        };
        let Some(d) = descriptors.get(at..at + bytes) else {
            return Err(PARAMETER_LIST_LENGTH_ERROR);
        };
        if segments.len() == usize::from(SEGMENTS_MAX) {
            return Err(illegal(0x26, 0x08, place));
        }
        if usize::from(be16(d, 2)) != bytes - 4 {
            return Err(illegal(0x26, 0x00, place + 2));
        }
        let amount = match (bytes, d[1] & 0x02 != 0) {
            (BLOCK_TO_BLOCK_OFFSET_BYTES, _) => CopyAmount::Bytes {
                bytes: be32(d, 8),
                source_offset: be16(d, 28),
                destination_offset: be16(d, 30),
            },
            (_, false) => CopyAmount::SourceBlocks(be16(d, 10)),
            (_, true) => CopyAmount::DestinationBlocks(be16(d, 10)),
        };
        segments.push(CopySegment {
            source: be16(d, 4),
            destination: be16(d, 6),
            amount,
            source_lba: be64(d, 12),
            destination_lba: be64(d, 20),
        });
        at += bytes;
    }
    Ok(segments)
}

/// The RECEIVE COPY RESULTS data for service action OPERATING PARAMETERS.
pub fn operating_parameters() -> Vec<u8> {
    let mut out = vec![0; 44];
    out[4] = 1; // SNLID
    out[8..10].copy_from_slice(&TARGETS_MAX.to_be_bytes());
    out[10..12].copy_from_slice(&SEGMENTS_MAX.to_be_bytes());
    out[12..16].copy_from_slice(&LIST_BYTES_MAX.to_be_bytes());
    out[16..20].copy_from_slice(&SEGMENT_BYTES_MAX.to_be_bytes());
    // No inline data, no held data, no stream devices.
    out[34..36].copy_from_slice(&1u16.to_be_bytes()); // total concurrent copies
    out[36] = 1; // maximum concurrent copies
    out[37] = 12; // data segment granularity: 4 KiB
    out[43] = 3; // implemented descriptor types follow
    out.extend_from_slice(&[BLOCK_TO_BLOCK, BLOCK_TO_BLOCK_OFFSET, TARGET_DESCRIPTOR]);
    let length = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

/// The RECEIVE COPY RESULTS data for service action COPY STATUS.
pub fn copy_status(failed: bool, segments: u16, bytes: u64) -> Vec<u8> {
    let mut out = vec![0, 0, 0, 8, if failed { 0x02 } else { 0x01 }];
    out.extend_from_slice(&segments.to_be_bytes());
    // Uses units of 1 MiB if the byte count exceeds 32 bits (SPC-4, table 256).
    let (units, count) = match u32::try_from(bytes) {
        Ok(bytes) => (0, bytes),
        Err(_) => (2, u32::try_from(bytes >> 20).unwrap_or(u32::MAX)),
    };
    out.push(units);
    out.extend_from_slice(&count.to_be_bytes());
    out
}

/// Body of the third-party copy VPD page: supported commands, parameter data, supported
/// descriptors, copy identifiers, general copy operations.
pub fn vpd_third_party_copy() -> Vec<u8> {
    fn descriptor(kind: u16, mut body: Vec<u8>) -> Vec<u8> {
        body.resize(body.len().next_multiple_of(4), 0);
        let mut out = kind.to_be_bytes().to_vec();
        out.extend_from_slice(&(body.len() as u16).to_be_bytes());
        out.append(&mut body);
        out
    }
    let commands = [
        &[op::EXTENDED_COPY, 1, 0x00][..],
        &[
            op::RECEIVE_COPY_RESULTS,
            2,
            op::SA_COPY_STATUS,
            op::SA_OPERATING_PARAMETERS,
        ][..],
    ]
    .concat();
    let mut supported = vec![commands.len() as u8];
    supported.extend_from_slice(&commands);
    let mut parameters = vec![0; 4];
    parameters.extend_from_slice(&TARGETS_MAX.to_be_bytes());
    parameters.extend_from_slice(&SEGMENTS_MAX.to_be_bytes());
    parameters.extend_from_slice(&LIST_BYTES_MAX.to_be_bytes());
    parameters.extend_from_slice(&[0; 8]);
    let mut general = Vec::new();
    general.extend_from_slice(&1u32.to_be_bytes());
    general.extend_from_slice(&1u32.to_be_bytes());
    general.extend_from_slice(&SEGMENT_BYTES_MAX.to_be_bytes());
    general.extend_from_slice(&[12, 0]);
    general.resize(0x20, 0);
    [
        descriptor(0x0001, supported),
        descriptor(0x0004, parameters),
        descriptor(
            0x0008,
            vec![3, BLOCK_TO_BLOCK, BLOCK_TO_BLOCK_OFFSET, TARGET_DESCRIPTOR],
        ),
        descriptor(0x8001, general),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(targets: usize, segments: usize) -> Vec<u8> {
        let mut list = vec![0; 16];
        list[0] = 9;
        list[2..4].copy_from_slice(&((targets * 32) as u16).to_be_bytes());
        list[8..12].copy_from_slice(&((segments * 28) as u32).to_be_bytes());
        for _ in 0..targets {
            let mut d = vec![0; 32];
            d[0] = TARGET_DESCRIPTOR;
            d[4..16].copy_from_slice(&[1, 3, 0, 8, 0x30, 1, 2, 3, 4, 5, 6, 7]);
            d[30] = 2;
            list.extend_from_slice(&d);
        }
        for _ in 0..segments {
            let mut d = vec![0; 28];
            d[0] = BLOCK_TO_BLOCK;
            d[3] = 24;
            d[11] = 5;
            d[19] = 6;
            d[27] = 7;
            list.extend_from_slice(&d);
        }
        list
    }

    /// A complete list is parsed; a list truncated at any byte is a length error.
    #[test]
    fn a_list_cut_anywhere_is_a_length_error() {
        let whole = list(2, 1);
        let parsed = parse(&whole).unwrap();
        assert_eq!((parsed.id, parsed.targets.len()), (Some(9), 2));
        assert_eq!(parsed.targets[0].block_bytes, 512);
        let s = parsed.segments[0];
        assert_eq!(
            (s.amount, s.source_lba, s.destination_lba),
            (CopyAmount::SourceBlocks(5), 6, 7)
        );
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]).unwrap_err().asc, 0x1a, "cut at {end}");
        }
    }

    /// Each exceeded limit and each unknown descriptor has its own sense code.
    #[test]
    fn each_exceeded_limit_has_its_own_sense_code() {
        let check = |list: Vec<u8>, asc, ascq| {
            let sense = parse(&list).unwrap_err();
            assert_eq!(
                (sense.key, sense.asc, sense.ascq),
                (key::ILLEGAL_REQUEST, asc, ascq)
            );
        };
        check(list(9, 1), 0x26, 0x06);
        check(list(1, 65), 0x26, 0x08);
        check(list(9, 65), 0x1a, 0x00);
        let changed = |byte: usize, value| {
            let mut list = list(1, 1);
            list[byte] = value;
            list
        };
        check(changed(16, 0xe0), 0x26, 0x07);
        check(changed(48, 0x03), 0x26, 0x09);
        check(changed(17, 0x01), 0x26, 0x00);
        check(changed(23, 21), 0x26, 0x00);
        check(changed(51, 23), 0x26, 0x00);
        check(changed(15, 1), 0x26, 0x0b);
    }

    /// Replies contain their own length, and the lengths of the VPD descriptors add up to the page's length.
    #[test]
    fn replies_contain_their_own_length() {
        let parameters = operating_parameters();
        assert_eq!(be32(&parameters, 0) as usize, parameters.len() - 4);
        assert_eq!(copy_status(false, 1, 512)[4..], [1, 0, 1, 0, 0, 0, 2, 0]);
        assert_eq!(copy_status(true, 1, 1 << 40)[7..], [2, 0, 16, 0, 0]);
        let body = vpd_third_party_copy();
        let mut at = 0;
        while at < body.len() {
            at += 4 + usize::from(be16(&body, at + 2));
        }
        assert_eq!(at, body.len());
    }
}
