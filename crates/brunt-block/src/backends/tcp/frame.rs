//! The frames of raw network requests: a storage protocol without commands, sessions or digests. The `tcp` device and
//! its sink use it to measure the network alone, with transfers the size of block requests (the role of netperf in
//! Aiken and Grunwald, 2003, section 2.1).
//!
//! Each message is a 16-byte [`Header`], optionally followed by a payload of arbitrary content:
//!
//! ```text
//! hello              first message in each direction: a magic number, a version, a limit
//! read, N bytes      header →            ← header and N bytes
//! write, N bytes     header and N bytes →            ← header
//! touch              header →            ← header     (a flush, an unmap: requests without data)
//! ```
//!
//! Answers arrive in the order of their requests and carry their tags. The one rule: a length over
//! [`TRANSFER_BYTES_MAX`] is malformed, regardless of the side that sends it.

/// Size of a header in bytes.
pub const HEADER_BYTES: usize = 16;
/// Maximum payload.
pub const TRANSFER_BYTES_MAX: u32 = 16 << 20;
/// The tag of a hello.
pub const MAGIC: u64 = u64::from_be_bytes(*b"BruntRaw");
/// The version of these frames.
pub const VERSION: u16 = 1;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// The first message in each direction; `len` is the largest payload that its sender accepts.
    Hello,
    /// Requests `len` bytes.
    Read,
    /// Carries `len` bytes.
    Write,
    /// Requests an answer without data; `len` is 0.
    Touch,
    /// The answer to a read, followed by `len` bytes.
    Data,
    /// The answer to a write or a touch; `len` is 0.
    Done,
}

impl FrameKind {
    const ALL: [FrameKind; 6] = [
        FrameKind::Hello,
        FrameKind::Read,
        FrameKind::Write,
        FrameKind::Touch,
        FrameKind::Data,
        FrameKind::Done,
    ];

    fn number(self) -> u8 {
        FrameKind::ALL
            .iter()
            .position(|kind| *kind == self)
            .expect("each kind of message is in the table") as u8
    }
}

/// Why bytes are not a valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Fewer than [`HEADER_BYTES`] bytes are available.
    #[error("a header has {HEADER_BYTES} bytes")]
    Incomplete,
    /// The bytes are invalid in this version.
    #[error("malformed at byte {offset}: expected {wanted}")]
    Malformed {
        /// Offset in the header, in bytes.
        offset: usize,
        /// What would be valid there.
        wanted: &'static str,
    },
}

/// A message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the message.
    pub kind: FrameKind,
    /// Length in bytes; [`FrameKind`] defines what it measures for each kind.
    pub len: u32,
    /// A request's identifier, repeated in its answer; [`MAGIC`] in a hello.
    pub tag: u64,
}

impl Header {
    /// The first message that each side sends.
    pub fn hello() -> Header {
        Header {
            kind: FrameKind::Hello,
            len: TRANSFER_BYTES_MAX,
            tag: MAGIC,
        }
    }

    /// Parses the header at the start of `bytes`.
    ///
    /// # Errors
    /// Fewer than 16 bytes are available, or they are invalid in this version.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, HeaderError> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(HeaderError::Incomplete);
        };
        let [kind, reserved, v0, v1, l0, l1, l2, l3, tag @ ..] = *bytes;
        let (version, len) = (
            u16::from_be_bytes([v0, v1]),
            u32::from_be_bytes([l0, l1, l2, l3]),
        );
        let tag = u64::from_be_bytes(tag);
        let malformed = |offset, wanted| Err(HeaderError::Malformed { offset, wanted });
        let Some(&kind) = FrameKind::ALL.get(usize::from(kind)) else {
            return malformed(0, "a message type from 0 to 5");
        };
        if version != VERSION || reserved != 0 {
            return malformed(1, "version 1 of raw network requests");
        }
        if len > TRANSFER_BYTES_MAX {
            return malformed(4, "a length of at most 16 MiB");
        }
        if len > 0 && matches!(kind, FrameKind::Touch | FrameKind::Done) {
            return malformed(4, "a length of 0, as there is no payload");
        }
        if kind == FrameKind::Hello && tag != MAGIC {
            return malformed(8, "the magic number of a hello");
        }
        Ok(Header { kind, len, tag })
    }

    /// Encodes the header.
    #[inline]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.kind.number();
        bytes[2..4].copy_from_slice(&VERSION.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.len.to_be_bytes());
        bytes[8..].copy_from_slice(&self.tag.to_be_bytes());
        bytes
    }

    /// Number of payload bytes after this header.
    pub fn payload_len(&self) -> usize {
        if matches!(self.kind, FrameKind::Write | FrameKind::Data) {
            self.len as usize
        } else {
            0
        }
    }

    /// The header of the answer to this request; `None` if this is not a request.
    pub fn answer(&self) -> Option<Header> {
        let (kind, len) = match self.kind {
            FrameKind::Read => (FrameKind::Data, self.len),
            FrameKind::Write | FrameKind::Touch => (FrameKind::Done, 0),
            FrameKind::Hello | FrameKind::Data | FrameKind::Done => return None,
        };
        Some(Header {
            kind,
            len,
            tag: self.tag,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Header> {
        let header = |kind, len| Header {
            kind,
            len,
            tag: 0x0102_0304_0506_0708,
        };
        vec![
            Header::hello(),
            header(FrameKind::Read, 4096),
            header(FrameKind::Write, TRANSFER_BYTES_MAX),
            header(FrameKind::Touch, 0),
            header(FrameKind::Data, 512),
            header(FrameKind::Done, 0),
        ]
    }

    /// An encoded header parses back to itself, and no prefix of it parses.
    #[test]
    fn encoded_headers_parse_back() {
        for header in all() {
            let bytes = header.encode();
            assert_eq!(Header::parse(&bytes), Ok(header));
            for end in 0..HEADER_BYTES {
                assert_eq!(Header::parse(&bytes[..end]), Err(HeaderError::Incomplete));
            }
        }
    }

    #[test]
    fn the_wire_format_does_not_change() {
        let write = Header {
            kind: FrameKind::Write,
            len: 0x1000,
            tag: 7,
        };
        assert_eq!(
            write.encode(),
            [2, 0, 0, 1, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 7]
        );
    }

    #[test]
    fn invalid_bytes_are_rejected_with_their_offset() {
        let check = |header: Header, at: usize, byte: u8, offset: usize| {
            let mut bytes = header.encode();
            bytes[at] = byte;
            match Header::parse(&bytes) {
                Err(HeaderError::Malformed { offset: found, .. }) => {
                    assert_eq!(found, offset, "{bytes:?}")
                }
                other => panic!("{bytes:?}: {other:?}"),
            }
        };
        check(Header::hello(), 0, 6, 0);
        check(Header::hello(), 1, 1, 1);
        check(Header::hello(), 3, 2, 1);
        check(Header::hello(), 4, 0x80, 4);
        check(Header::hello(), 15, 0, 8);
        check(
            Header {
                kind: FrameKind::Touch,
                len: 0,
                tag: 0,
            },
            7,
            1,
            4,
        );
    }

    #[test]
    fn every_request_has_an_answer_and_no_answer_has_one() {
        for header in all() {
            let is_request = matches!(
                header.kind,
                FrameKind::Read | FrameKind::Write | FrameKind::Touch
            );
            assert_eq!(header.answer().is_some(), is_request, "{header:?}");
            if let Some(answer) = header.answer() {
                assert_eq!((answer.tag, answer.answer()), (header.tag, None));
            }
        }
    }
}
