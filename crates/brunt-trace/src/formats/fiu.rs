//! Florida International University's traces of SRCMap and IODedup (Verma and others, FAST '10; Koller and
//! Rangaswami, FAST '10; SNIA IOTTA 391 and 411): `ts_ns pid process lba size W|R major minor MD5`, separated by
//! blanks. Times are in nanoseconds, addresses and sizes in blocks of 512 bytes. The MD5 covers 4096 bytes of the
//! data, or 512 in the home traces.

use super::{RowOutcome, TextRow, TextRows, word};
use crate::field::{content_hash, number};
use crate::format::Format;
use crate::record::{BlockRequest, Devices, TraceOp};

/// The format's table entry.
pub const FORMAT: Format = Format {
    name: "fiu",
    help: "FIU SRCMap, IODedup: ts_ns pid process lba size W|R major minor MD5",
    note: "blocks of 512 bytes; equal hashes mean equal contents; each major:minor becomes a device",
    checked: false,
    needs_op: false,
    needs_columns: false,
    takes: &[],
    example: b"89968195792462 20782 gzip 283193184 8 R 6 0 56f11b711d91a065a2b6458eca924523\n\
        89968195801713 20782 my prog 283193192 8 W 6 0 56f11b711d91a065a2b6458eca924523\n",
    decoder: |_| Box::new(TextRows::new(Fiu { name: Vec::new() })),
};

/// Hexadecimal digits of an MD5 hash.
const HASH_DIGITS: usize = 32;

struct Fiu {
    /// Buffer for a device's name during lookup.
    name: Vec<u8>,
}

impl TextRow for Fiu {
    fn row(&mut self, line: &[u8], devices: &mut Devices) -> RowOutcome {
        self.request(line, devices).into()
    }
}

/// Splits off the last word of a line.
fn last_word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii_end();
    let at = line.iter().rposition(|byte| matches!(byte, b' ' | b'\t'))?;
    Some((&line[..at], &line[at + 1..]))
}

/// Splits off the hash at the end of a line. Its length is fixed, so no search is needed.
fn hash_at_end(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (rest, hash) = line.split_at_checked(line.len().wrapping_sub(HASH_DIGITS))?;
    let (blank, rest) = rest.split_last()?;
    matches!(blank, b' ' | b'\t').then_some((rest, hash))
}

impl Fiu {
    fn request(&mut self, line: &[u8], devices: &mut Devices) -> Option<BlockRequest> {
        let (rest, hash) = hash_at_end(line)?;
        let (rest, minor) = last_word(rest)?;
        let (rest, major) = last_word(rest)?;
        let (rest, op) = last_word(rest)?;
        let (rest, size) = last_word(rest)?;
        let (rest, block) = last_word(rest)?;
        let (time, rest) = word(rest)?;
        // A process name may contain blanks, and is not used.
        let (process, _) = word(rest)?;
        number(process)?;
        let op = match op {
            b"R" => TraceOp::Read,
            b"W" => TraceOp::Write,
            _ => return None,
        };
        number(major)?;
        number(minor)?;
        let time_ns = number(time)?;
        let offset_bytes = number(block)?.checked_mul(512)?;
        let len_bytes = u32::try_from(number(size)?.checked_mul(512)?).ok()?;
        let content = Some(content_hash(hash)?);
        self.name.clear();
        self.name.extend_from_slice(major);
        self.name.push(b':');
        self.name.extend_from_slice(minor);
        let device = devices.index_of(&self.name)?;
        Some(BlockRequest {
            content,
            ..BlockRequest::new(time_ns, device, op, offset_bytes, len_bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read;

    /// The first row is from the archive, as quoted by its users.
    #[test]
    fn rows_of_the_publisher_are_parsed() {
        let (requests, devices, damaged) = read(&FORMAT, FORMAT.example);
        assert_eq!((damaged.len(), devices), (0, vec!["6:0".to_string()]));
        let first = BlockRequest {
            content: content_hash(b"56f11b711d91a065a2b6458eca924523"),
            ..BlockRequest::new(
                89_968_195_792_462,
                0,
                TraceOp::Read,
                283_193_184 * 512,
                4096,
            )
        };
        assert_eq!((requests.len(), requests[0]), (2, first));
        assert_eq!(
            (requests[1].op, requests[1].content),
            (TraceOp::Write, first.content)
        );
        let damaged =
            b"1 2 p 0 8 X 6 0 56f11b711d91a065a2b6458eca924523\n1 2 p 0 8 R 6 0 56f11b\n1 2 0 8 R\n";
        assert_eq!(read(&FORMAT, damaged).2, [1, 2, 3]);
    }
}
