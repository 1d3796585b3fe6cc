//! Decides whether 48 bytes can be a header, and finds candidates in a search. Called by [`super::frames`]. The one
//! rule: [`find`] stops at everything that [`is_search_worthy`] accepts; evidence beyond the header's own bytes is
//! judged elsewhere.

use brunt_wire::iscsi::pdu::{self, Bhs, FLAG_FINAL, Opcode, RESERVED_TAG};
use brunt_wire::scsi::cdb::{Transfer, op};

/// Limit on a plausible data segment: targets and initiators announce 256 KiB, and seldom 1 MiB or more.
const DATA_BYTES_MAX: usize = 8 << 20;
/// Limit on additional header segments, in four-byte words: a CDB of 260 bytes and a bidirectional length (11.2.2).
const AHS_WORDS_MAX: u8 = 66;
/// Limit on the data segment of non-I/O PDUs in a search: the default of MaxRecvDataSegmentLength (13.12).
const TEXT_BYTES_MAX: usize = 8 << 10;

/// Whether these 48 bytes can be a header where one is due. Reserved fields are not checked: libiscsi 1.19 leaves
/// bytes of an earlier, longer CDB after a shorter one.
pub fn is_possible(bhs: &Bhs) -> bool {
    bhs.opcode & 0x80 == 0
        && !matches!(bhs.kind(), Opcode::Other(_))
        && bhs.total_ahs_length <= AHS_WORDS_MAX
        && bhs.data_len() <= DATA_BYTES_MAX
}

/// Whether these 48 bytes may be a header: reserved fields are zero, and lengths are plausible.
pub fn is_credible(bhs: &Bhs) -> bool {
    let tail_is_zero = || {
        let cdb = pdu::ScsiCommand::view(bhs).cdb;
        let len = brunt_wire::scsi::cdb::length(cdb[0]);
        len.is_some_and(|len| cdb[usize::from(len)..].iter().all(|byte| *byte == 0))
    };
    is_credible_but_for_cdb(bhs) && (bhs.kind() != Opcode::ScsiCommand || tail_is_zero())
}

/// Like [`is_credible`], but doesn't check the bytes after a command's CDB.
pub fn is_credible_but_for_cdb(bhs: &Bhs) -> bool {
    if !is_possible(bhs) {
        return false;
    }
    let (b, tag) = (bhs.flags, bhs.initiator_task_tag.get());
    let no_ahs = bhs.total_ahs_length == 0;
    let tagged = tag != RESERVED_TAG;
    let lun = bhs.lun[2..] == [0; 6];
    match bhs.kind() {
        Opcode::ScsiCommand => {
            let command = pdu::ScsiCommand::view(bhs);
            b & 0x18 == 0
                && b & 0x07 <= 4
                && bhs.specific == [0; 2]
                && lun
                && tagged
                && bhs.data_len() as u64 <= u64::from(command.expected_data_transfer_length.get())
        }
        Opcode::DataOut => {
            let data = pdu::DataOut::view(bhs);
            b & 0x7f == 0
                && no_ahs
                && bhs.specific == [0; 2]
                && tagged
                && bhs.data_len() > 0
                && (data.reserved2, data.reserved3, data.reserved4) == ([0; 4], [0; 4], [0; 4])
        }
        Opcode::DataIn => {
            // In Data-In PDUs, the Linux target may set the LUN to all ones.
            let lun = lun || bhs.lun == [0xff; 8];
            no_ahs && tagged && b & 0x38 == 0 && bhs.specific[0] == 0 && lun
        }
        Opcode::R2t => {
            let r2t = pdu::R2t::view(bhs);
            b == FLAG_FINAL
                && no_ahs
                && tagged
                && bhs.data_len() == 0
                && r2t.desired_data_transfer_length.get() > 0
                && r2t.target_transfer_tag.get() != RESERVED_TAG
        }
        Opcode::ScsiResponse => no_ahs && tagged && b & 0xe1 == FLAG_FINAL && bhs.lun == [0; 8],
        Opcode::TaskManagementRequest | Opcode::TaskManagementResponse => {
            no_ahs && tagged && b & FLAG_FINAL != 0 && bhs.data_len() == 0
        }
        Opcode::NopOut | Opcode::NopIn => b == FLAG_FINAL && no_ahs && bhs.specific == [0; 2],
        Opcode::LoginRequest | Opcode::LoginResponse => {
            no_ahs && b & 0x30 == 0 && tagged && bhs.specific == [0; 2]
        }
        Opcode::TextRequest | Opcode::TextResponse => no_ahs && b & 0x3f == 0 && tagged,
        Opcode::LogoutRequest | Opcode::LogoutResponse => {
            no_ahs && b & FLAG_FINAL != 0 && bhs.data_len() == 0
        }
        Opcode::SnackRequest => no_ahs && b & 0xf0 == FLAG_FINAL && bhs.data_len() == 0,
        Opcode::AsyncMessage | Opcode::Reject => no_ahs && b == FLAG_FINAL && tag == RESERVED_TAG,
        Opcode::Other(_) => false,
    }
}

/// Whether a search may stop at a credible header. Text, login and NOP PDUs have few reserved fields, but are short
/// in practice: accepting a long one found inside data could skip megabytes. Commands with additional headers (a CDB
/// of more than 16 bytes, bidirectional data) are accepted only where a header is due: searching for them would cost
/// a third more.
pub fn is_search_worthy(bhs: &Bhs) -> bool {
    let is_io = matches!(
        bhs.kind(),
        Opcode::ScsiCommand | Opcode::DataOut | Opcode::DataIn | Opcode::R2t | Opcode::ScsiResponse
    );
    bhs.total_ahs_length == 0 && (is_io || bhs.data_len() <= TEXT_BYTES_MAX)
}

/// Whether a command reads or writes blocks of a common block size.
pub fn is_consistent(bhs: &Bhs) -> bool {
    let command = pdu::ScsiCommand::view(bhs);
    let blocks = match command.cdb[0] {
        op::READ_10 | op::READ_12 | op::READ_16 | op::WRITE_10 | op::WRITE_12 | op::WRITE_16 => {
            Transfer::decode(&command.cdb).blocks
        }
        _ => return false,
    };
    let bytes = command.expected_data_transfer_length.get();
    let is_length = |bytes| matches!(bytes, 512 | 520 | 528 | 2048 | 4096 | 4160 | 8192);
    blocks > 0 && bytes.is_multiple_of(blocks) && is_length(bytes / blocks)
}

/// Bytes skipped at once if no header begins in them, and the bytes after them that are needed to decide.
const BLOCK_BYTES: usize = 64;
const AHEAD_BYTES: usize = 4;

/// Whether a header may begin at one of the words of a block, judging by the first, second and fifth byte at each
/// word; false positives are possible. Headers accepted in a search have no additional headers, and a NOP's first
/// bytes are not zero. Written so that the compiler compares several words at once.
#[inline]
fn any_word_may_begin(block: &[u8; BLOCK_BYTES + AHEAD_BYTES]) -> bool {
    let (firsts, seconds) = (
        block[..BLOCK_BYTES].as_chunks::<4>().0,
        block[AHEAD_BYTES..].as_chunks::<4>().0,
    );
    let mut any = 0;
    for (first, second) in firsts.iter().zip(seconds) {
        // The lowest byte is the opcode, the next the flags.
        let (first, second) = (u32::from_le_bytes(*first), u32::from_le_bytes(*second));
        any |= u32::from((first & 0x80) | (second & 0xff) == 0) & u32::from(first & 0xffff != 0);
    }
    any != 0
}

/// Like [`any_word_may_begin`], but checks every byte of a block.
#[inline]
fn any_byte_may_begin(block: &[u8; BLOCK_BYTES + AHEAD_BYTES]) -> bool {
    let mut any = 0;
    for place in 0..BLOCK_BYTES {
        let (opcode, flags, words) = (block[place], block[place + 1], block[place + 4]);
        any |= u8::from((opcode & 0x80) | words == 0) & u8::from(opcode | flags != 0);
    }
    any != 0
}

/// Whether a header may begin with these bytes; missing bytes are not checked.
pub fn may_begin(bytes: &[u8]) -> bool {
    let opcode = Opcode::from_byte(bytes[0]);
    if bytes[0] & 0x80 != 0 || matches!(opcode, Opcode::Other(_)) {
        return false;
    }
    let flags = bytes.get(1).is_none_or(|flags| match opcode {
        Opcode::ScsiCommand => flags & 0x18 == 0,
        Opcode::NopOut | Opcode::NopIn => *flags == FLAG_FINAL,
        _ => true,
    });
    flags && bytes.get(4).is_none_or(|words| *words == 0)
}

/// The first multiple of `step`, which is 4 or 1, at which a header may begin in `bytes`; if there is none, the first
/// multiple beyond `bytes`.
pub fn find(bytes: &[u8], step: usize) -> usize {
    assert!(
        matches!(step, 1 | 4),
        "headers are searched at every byte or every word, not every {step} bytes"
    );
    let mut at = 0;
    while at < bytes.len() {
        // In random data, one block in 32 is examined closely: the whole search takes 1.4 instructions per byte.
        if let Some(block) = bytes[at..].first_chunk() {
            let any = if step == 4 {
                any_word_may_begin(block)
            } else {
                any_byte_may_begin(block)
            };
            if !any {
                at += BLOCK_BYTES;
                continue;
            }
        }
        let end = bytes.len().min(at + BLOCK_BYTES);
        if let Some(found) = (at..end)
            .step_by(step)
            .find(|place| may_begin(&bytes[*place..]))
        {
            return found;
        }
        at += BLOCK_BYTES;
    }
    bytes.len().next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use brunt_core::random::Random;
    use brunt_wire::iscsi::pdu::BHS_BYTES;

    use super::*;

    /// A header with these bytes and a task tag.
    fn header(parts: &[(usize, &[u8])]) -> [u8; BHS_BYTES] {
        let mut bytes = [0; BHS_BYTES];
        bytes[16..20].copy_from_slice(&[0, 0, 1, 2]);
        parts
            .iter()
            .for_each(|(at, part)| bytes[*at..*at + part.len()].copy_from_slice(part));
        bytes
    }

    fn credible() -> Vec<[u8; BHS_BYTES]> {
        let read: &[(usize, &[u8])] =
            &[(22, &[2, 0]), (32, &[op::READ_10, 0, 0, 0, 0, 0, 0, 0, 1])];
        vec![
            header(&[&[(0, &[0x01, 0xc1][..])], read].concat()),
            header(&[&[(0, &[0x41, 0xc4][..])], read].concat()),
            header(&[(0, &[0x00, FLAG_FINAL])]),
            header(&[(0, &[0x40, FLAG_FINAL])]),
            header(&[(0, &[0x20, FLAG_FINAL])]),
            header(&[(0, &[0x05, 0, 0, 0, 0, 0, 0, 1])]),
            header(&[(0, &[0x25, 0x81])]),
            header(&[(0, &[0x25, 0x81]), (8, &[0xff; 8])]),
            header(&[(0, &[0x21, FLAG_FINAL])]),
            header(&[(0, &[0x31, FLAG_FINAL]), (46, &[2, 0])]),
            header(&[(0, &[0x43, 0x87, 0, 0, 0, 0, 1])]),
        ]
    }

    /// A header is found at any offset, and before it the search stops only at possible headers.
    #[test]
    fn every_credible_header_is_found() {
        let mut random = Random::new(7);
        for bhs in credible() {
            let header = Bhs::peek(&bhs).unwrap();
            assert!(is_credible(header) && is_search_worthy(header), "{bhs:x?}");
            for place in (0..200).chain([1000, 1001, 1002, 1003]) {
                for (step, kind) in [(1, 0), (4, 1), (1, 1), (4, 2)] {
                    let place = if step == 4 { place * 4 } else { place };
                    let mut bytes = vec![0u8; place + BHS_BYTES];
                    match kind {
                        0 => random.fill(&mut bytes),
                        1 => bytes.fill(b'q'),
                        _ => {}
                    }
                    bytes[place..].copy_from_slice(&bhs);
                    let mut at = 0;
                    loop {
                        at += find(&bytes[at..], step);
                        assert!(
                            at <= place,
                            "{step} {kind}: {place} was passed over for {at}"
                        );
                        assert!(may_begin(&bytes[at..]));
                        if at == place {
                            break;
                        }
                        at += step;
                    }
                }
            }
        }
    }

    /// Skipping by blocks finds the same offsets as checking each offset.
    #[test]
    fn skipping_by_blocks_finds_the_same_offsets() {
        let mut random = Random::new(8);
        for round in 0..2000 {
            let mut bytes = vec![0; random.below(300) as usize];
            random.fill(&mut bytes);
            // Byte values that occur in headers, so that some are found.
            bytes
                .iter_mut()
                .for_each(|byte| *byte &= [0xff, 0x3f, 0x81, 0x47][round % 4]);
            for step in [1, 4] {
                let expected = (0..bytes.len())
                    .step_by(step)
                    .find(|at| may_begin(&bytes[*at..]));
                assert_eq!(
                    find(&bytes, step),
                    expected.unwrap_or(bytes.len().next_multiple_of(step))
                );
            }
        }
    }
}
