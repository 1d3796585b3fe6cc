//! Reads bytes from an untrusted sender. All parsers of captured traffic read and borrow through it. The one rule: a
//! length is checked against its named limit before it is used; a truncated message is [`ParseError::Incomplete`],
//! never malformed.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::Malformed;

/// Why parsing stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The input is truncated: at least this many bytes, counted from its start, are needed.
    #[error("message truncated: {0} bytes are needed")]
    Incomplete(usize),
    /// The bytes violate the protocol.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// File data inside a message: its position, length and the available bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileData<'a> {
    /// Offset of the data in bytes from the start of the message.
    pub at: usize,
    /// Bytes of data in the message as sent.
    pub len: u32,
    /// The available bytes: all of the data, only its beginning, or none if the data was handled elsewhere.
    pub bytes: &'a [u8],
}

/// A read position in `bytes`. Reads XDR (RFC 4506): big-endian, padded to four bytes.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The position at which file data was elided from `bytes`, if it was.
    elided_at: usize,
}

type Result<T> = std::result::Result<T, ParseError>;

impl<'a> Cursor<'a> {
    /// Starts at the beginning of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor {
            bytes,
            at: 0,
            elided_at: usize::MAX,
        }
    }

    /// Starts at the beginning of a message whose file data, including padding, was elided at `at`; the rest of the
    /// message follows directly.
    #[inline]
    pub fn with_elided_data(bytes: &'a [u8], at: usize) -> Cursor<'a> {
        Cursor {
            bytes,
            at: 0,
            elided_at: at,
        }
    }

    /// Number of bytes consumed.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// The bytes that have not been consumed yet.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// An error at the position `back` bytes before the current one.
    #[inline]
    pub fn malformed(&self, back: usize, what: &'static str) -> ParseError {
        Malformed::new(self.at.saturating_sub(back), what).into()
    }

    /// Consumes the next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        match self.bytes[self.at..].get(..count) {
            Some(bytes) => {
                self.at += count;
                Ok(bytes)
            }
            None => Err(ParseError::Incomplete(self.at.saturating_add(count))),
        }
    }

    /// Skips `count` bytes.
    #[inline]
    pub fn skip(&mut self, count: usize) -> Result<()> {
        self.take(count).map(|_| ())
    }

    /// Consumes the next bytes as a wire struct.
    #[inline]
    pub fn view<T: FromBytes + KnownLayout + Immutable + Unaligned>(&mut self) -> Result<&'a T> {
        match T::ref_from_prefix(&self.bytes[self.at..]) {
            Ok((view, _)) => {
                self.at += size_of::<T>();
                Ok(view)
            }
            Err(_) => Err(ParseError::Incomplete(self.at + size_of::<T>())),
        }
    }

    /// Reads one byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    /// Reads 16 bits, big-endian.
    #[inline]
    pub fn u16(&mut self) -> Result<u16> {
        let b = self.take(2)?;
        Ok(u16::from_be_bytes([b[0], b[1]]))
    }

    /// Reads 32 bits, big-endian.
    #[inline]
    pub fn u32(&mut self) -> Result<u32> {
        let b = self.take(4)?;
        Ok(u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// Reads 64 bits, big-endian.
    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        let b = self.take(8)?;
        Ok(u64::from_be_bytes([
            b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7],
        ]))
    }

    /// Reads an XDR boolean. Any value other than zero and one is malformed (RFC 4506, 4.4).
    #[inline]
    pub fn boolean(&mut self) -> Result<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed(4, "boolean is neither 0 nor 1")),
        }
    }

    /// Reads a count of at most `max`.
    #[inline]
    pub fn count(&mut self, max: u32, what: &'static str) -> Result<u32> {
        let count = self.u32()?;
        if count > max {
            return Err(self.malformed(4, what));
        }
        Ok(count)
    }

    /// Reads a variable-length opaque of at most `max` bytes, with its padding.
    #[inline]
    pub fn opaque(&mut self, max: u32, what: &'static str) -> Result<&'a [u8]> {
        let len = self.count(max, what)? as usize;
        let bytes = self.take(len)?;
        self.skip(padding(len))?;
        Ok(bytes)
    }

    /// Reads file data: like an opaque, but it may be elided or truncated. If it is truncated, everything after it is
    /// missing, too.
    #[inline]
    pub fn data(&mut self, max: u32, what: &'static str) -> Result<FileData<'a>> {
        let len = self.count(max, what)?;
        let at = self.at;
        if at == self.elided_at {
            return Ok(FileData {
                at,
                len,
                bytes: &[],
            });
        }
        let rest = &self.bytes[at..];
        let bytes = &rest[..rest.len().min(len as usize)];
        self.at = at + rest.len().min(len as usize + padding(len as usize));
        Ok(FileData { at, len, bytes })
    }
}

/// Number of zero bytes that pad an XDR opaque of `len` bytes.
#[inline]
pub const fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Truncated input is `Incomplete` with the number of bytes needed; an excessive length is `Malformed` at the
    /// right position.
    #[test]
    fn too_short_is_incomplete_and_too_long_is_malformed() {
        let bytes = [0, 0, 0, 5, b'h', b'e', b'l', b'l', b'o', 0, 0, 0, 9];
        let mut cur = Cursor::new(&bytes);
        assert_eq!(cur.opaque(8, "name").unwrap(), b"hello");
        assert_eq!(cur.rest(), [9]);
        assert_eq!(cur.u32(), Err(ParseError::Incomplete(16)));
        assert_eq!(
            Cursor::new(&bytes).opaque(4, "name"),
            Err(ParseError::Malformed(Malformed::new(0, "name")))
        );
        for end in 0..12 {
            assert!(
                matches!(Cursor::new(&bytes[..end]).opaque(8, "name"), Err(ParseError::Incomplete(n)) if n > end)
            );
        }
    }

    /// Data may be complete, truncated or elided; its position and length are still known.
    #[test]
    fn position_and_length_of_truncated_data_are_known() {
        let bytes = [0, 0, 0, 3, 1, 2, 3, 0, 7, 7, 7, 7];
        let mut cur = Cursor::new(&bytes);
        assert_eq!(
            cur.data(64, "data").unwrap(),
            FileData {
                at: 4,
                len: 3,
                bytes: &[1, 2, 3]
            }
        );
        assert_eq!(cur.u32().unwrap(), 0x0707_0707);
        let mut cur = Cursor::new(&bytes[..6]);
        assert_eq!(
            cur.data(64, "data").unwrap(),
            FileData {
                at: 4,
                len: 3,
                bytes: &[1, 2]
            }
        );
        assert!(cur.u32().is_err());
        let elided = [0, 0, 0, 3, 7, 7, 7, 7];
        let mut cur = Cursor::with_elided_data(&elided, 4);
        assert_eq!(
            cur.data(64, "data").unwrap(),
            FileData {
                at: 4,
                len: 3,
                bytes: &[]
            }
        );
        assert_eq!(cur.u32().unwrap(), 0x0707_0707);
    }
}
