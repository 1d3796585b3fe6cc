//! Writes pcapng blocks (draft-ietf-opsawg-pcapng): a section, its interfaces by name, and packets with their
//! interfaces.
//!
//! The rule: times are in nanoseconds, and everything is in this machine's byte order, which the section header
//! records.

use brunt_wire::pcap::LinkType;

const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const OPTION_COMMENT: u16 = 1;
const OPTION_NAME: u16 = 2;
const OPTION_RESOLUTION: u16 = 9;
/// Size of a packet block without the packet.
const PACKET_BLOCK_BYTES: usize = 32;

/// Size of a packet block with `captured` bytes of the packet.
pub(super) fn packet_bytes(captured: usize) -> usize {
    PACKET_BLOCK_BYTES + captured.next_multiple_of(4)
}

/// Starts a section in which all packets have the same link type.
pub(super) fn begin(into: &mut Vec<u8>, link: LinkType, snap_bytes: u32, interfaces: &[String]) {
    block(into, SECTION, |into| {
        words(into, [BYTE_ORDER, 1]);
        // The section's length is not known before its end.
        into.extend_from_slice(&u64::MAX.to_ne_bytes());
    });
    for name in interfaces {
        block(into, INTERFACE, |into| {
            words(into, [link.number(), snap_bytes]);
            option(into, OPTION_NAME, name.as_bytes());
            option(into, OPTION_RESOLUTION, &[9]);
            words(into, [0]);
        });
    }
}

/// Adds a packet, with a comment if there is one.
pub(super) fn packet(
    into: &mut Vec<u8>,
    [interface, wire_len]: [u32; 2],
    time_ns: u64,
    bytes: &[u8],
    comment: Option<&str>,
) {
    block(into, ENHANCED_PACKET, |into| {
        let (high, low) = ((time_ns >> 32) as u32, time_ns as u32);
        words(into, [interface, high, low, bytes.len() as u32, wire_len]);
        padded(into, bytes);
        if let Some(comment) = comment {
            // The length of an option has 16 bits.
            let mut end = comment.len().min(usize::from(u16::MAX));
            while !comment.is_char_boundary(end) {
                end -= 1;
            }
            option(into, OPTION_COMMENT, &comment.as_bytes()[..end]);
            words(into, [0]);
        }
    });
}

/// Writes a block, with its length at both ends.
fn block(into: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = into.len();
    words(into, [kind, 0]);
    body(into);
    let length = ((into.len() - start + 4) as u32).to_ne_bytes();
    into[start + 4..start + 8].copy_from_slice(&length);
    into.extend_from_slice(&length);
}

fn option(into: &mut Vec<u8>, code: u16, value: &[u8]) {
    into.extend_from_slice(&code.to_ne_bytes());
    into.extend_from_slice(&(value.len() as u16).to_ne_bytes());
    padded(into, value);
}

fn padded(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend_from_slice(bytes);
    into.resize(into.len().next_multiple_of(4), 0);
}

fn words<const N: usize>(into: &mut Vec<u8>, words: [u32; N]) {
    words
        .iter()
        .for_each(|word| into.extend_from_slice(&word.to_ne_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block has the length that it states, for packets of any length.
    #[test]
    fn a_block_has_its_stated_length() {
        for length in 0..9 {
            let mut written = Vec::new();
            packet(&mut written, [1, 3], 2, &vec![7; length], None);
            assert_eq!(written.len(), packet_bytes(length));
            let stated = |written: &[u8]| u32::from_ne_bytes(*written[4..].first_chunk().unwrap());
            assert_eq!(stated(&written) as usize, written.len());
            let mut commented = Vec::new();
            packet(&mut commented, [1, 3], 2, &vec![7; length], Some("hello"));
            // The option's header, its padded text, and the end of options.
            assert_eq!(commented.len(), written.len() + 4 + 8 + 4);
            assert_eq!(stated(&commented) as usize, commented.len());
        }
    }
}
