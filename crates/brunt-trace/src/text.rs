//! Converts a file's text to UTF-8: removes a byte order mark, and converts UTF-16. Used by [`crate::stream`].
//!
//! The rule: a file without a byte order mark is left as it is, unless it begins as only UTF-16 does: with
//! [`UNMARKED_BYTES`] of ASCII characters, each next to a zero byte.

use std::io::{self, Cursor, Read};

/// Bytes of UTF-16 read at a time.
const PIECE_BYTES: usize = 8 << 10;
/// Bytes that show UTF-16 without a byte order mark. Fewer may begin a binary file.
const UNMARKED_BYTES: usize = 16;

/// The same text as UTF-8, without a byte order mark.
pub(crate) fn as_utf8(mut input: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let mut head = Vec::with_capacity(UNMARKED_BYTES);
    (&mut input)
        .take(UNMARKED_BYTES as u64)
        .read_to_end(&mut head)?;
    let (unit, mark): (fn([u8; 2]) -> u16, usize) = match head.as_slice() {
        [0xef, 0xbb, 0xbf, rest @ ..] => {
            return Ok(Box::new(Cursor::new(rest.to_vec()).chain(input)));
        }
        // Require an ASCII character after the mark: its two bytes alone may begin a binary file.
        [0xff, 0xfe, 1..=0x7f, 0, ..] => (u16::from_le_bytes, 2),
        [0xfe, 0xff, 0, 1..=0x7f, ..] => (u16::from_be_bytes, 2),
        head if is_ascii(head, u16::from_le_bytes) => (u16::from_le_bytes, 0),
        head if is_ascii(head, u16::from_be_bytes) => (u16::from_be_bytes, 0),
        _ => return Ok(Box::new(Cursor::new(head).chain(input))),
    };
    Ok(Box::new(Utf16 {
        input: Box::new(Cursor::new(head[mark..].to_vec()).chain(input)),
        unit,
        units: Vec::new(),
        text: Vec::new(),
        used: 0,
    }))
}

/// Whether all of a file's first bytes are characters of ASCII text in UTF-16.
fn is_ascii(head: &[u8], unit: fn([u8; 2]) -> u16) -> bool {
    let (pairs, _) = head.as_chunks::<2>();
    let is_text = |pair: &[u8; 2]| matches!(unit(*pair), 0x20..=0x7e | 0x09 | 0x0a | 0x0d);
    head.len() == UNMARKED_BYTES && pairs.iter().all(is_text)
}

struct Utf16 {
    input: Box<dyn Read + Send>,
    unit: fn([u8; 2]) -> u16,
    /// The first half of a surrogate pair, until the second one arrives.
    units: Vec<u16>,
    text: Vec<u8>,
    used: usize,
}

impl Read for Utf16 {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.used == self.text.len() {
            let mut bytes = Vec::with_capacity(PIECE_BYTES);
            (&mut self.input)
                .take(PIECE_BYTES as u64)
                .read_to_end(&mut bytes)?;
            if bytes.is_empty() && self.units.is_empty() {
                return Ok(0);
            }
            let (pairs, odd) = bytes.as_chunks::<2>();
            self.units
                .extend(pairs.iter().map(|pair| (self.unit)(*pair)));
            if !odd.is_empty() {
                self.units.push(u16::from(b'?'));
            }
            let is_half = |unit: &u16| (0xd800..0xdc00).contains(unit);
            let half = self
                .units
                .pop_if(|unit| is_half(unit) && bytes.len() == PIECE_BYTES);
            let text: String = char::decode_utf16(self.units.drain(..))
                .map(|char| char.unwrap_or(char::REPLACEMENT_CHARACTER))
                .collect();
            self.units.extend(half);
            (self.text, self.used) = (text.into_bytes(), 0);
        }
        let count = into.len().min(self.text.len() - self.used);
        into[..count].copy_from_slice(&self.text[self.used..self.used + count]);
        self.used += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_the_same_in_each_encoding() {
        let text = "0,8,512,r,0.5 😀ü\n".repeat(2000);
        let units: Vec<u16> = text.encode_utf16().collect();
        let bytes = |mark: u16, order: fn(u16) -> [u8; 2]| -> Vec<u8> {
            std::iter::once(mark)
                .chain(units.iter().copied())
                .flat_map(order)
                .collect()
        };
        for encoded in [
            text.clone().into_bytes(),
            [b"\xef\xbb\xbf", text.as_bytes()].concat(),
            bytes(0xfeff, u16::to_le_bytes),
            bytes(0xfeff, u16::to_be_bytes),
            bytes(0xfeff, u16::to_le_bytes)[2..].to_vec(),
            bytes(0xfeff, u16::to_be_bytes)[2..].to_vec(),
        ] {
            let mut read = String::new();
            as_utf8(Box::new(Cursor::new(encoded)))
                .unwrap()
                .read_to_string(&mut read)
                .unwrap();
            assert!(read == text);
        }
        for short in [
            &b""[..],
            b"\xff",
            b"\xff\xfe\x01\x02\x03",
            b"R",
            b"1\x002\x00\0\0\0\x003\x00\0\0\x001\0\0",
        ] {
            let mut read = Vec::new();
            as_utf8(Box::new(Cursor::new(short)))
                .unwrap()
                .read_to_end(&mut read)
                .unwrap();
            assert_eq!(read, short);
        }
    }
}
