//! The transmission phase: requests and replies, in the three header styles. Used by the sessions in `brunt-store`.
//!
//! The one rule: a header is parsed without knowledge of the request; the session checks whether they match.

use super::NbdHeaders;
use super::STRING_BYTES_MAX;
use crate::{Cursor, Malformed, ParseError};

const REQUEST_MAGIC: u32 = 0x2560_9513;
const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Size of the longest header in either direction; for replies, this includes the offset in a content chunk.
pub const HEADER_BYTES_MAX: usize = 32 + 8;

/// Command flags.
pub mod command_flag {
    /// Reply only when the data is on stable storage.
    pub const FUA: u16 = 1;
    /// Don't create a hole.
    pub const NO_HOLE: u16 = 1 << 1;
    /// Reply with a single content chunk.
    pub const DF: u16 = 1 << 2;
    /// Reply with a single extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fail unless zeroing is faster than writing.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// The length field is the payload length (extended headers).
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

const FLAG_DONE: u16 = 1;

const TYPE_NONE: u16 = 0;
const TYPE_OFFSET_DATA: u16 = 1;
const TYPE_OFFSET_HOLE: u16 = 2;
const TYPE_BLOCK_STATUS: u16 = 5;
const TYPE_BLOCK_STATUS_EXT: u16 = 6;
const TYPE_ERROR_BIT: u16 = 1 << 15;
const TYPE_ERROR: u16 = TYPE_ERROR_BIT + 1;
const TYPE_ERROR_OFFSET: u16 = TYPE_ERROR_BIT + 2;

/// The command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdCommand {
    /// Reads data.
    Read,
    /// Writes data.
    Write,
    /// Disconnects; there is no reply.
    Disconnect,
    /// Makes completed writes durable.
    Flush,
    /// Discards data.
    Trim,
    /// Prefetches data that will be read.
    Cache,
    /// Writes zeros without transferring them.
    WriteZeroes,
    /// Queries the allocation status.
    BlockStatus,
    /// An unknown command.
    Other(u16),
}

impl NbdCommand {
    fn from_wire(code: u16) -> NbdCommand {
        match code {
            0 => NbdCommand::Read,
            1 => NbdCommand::Write,
            2 => NbdCommand::Disconnect,
            3 => NbdCommand::Flush,
            4 => NbdCommand::Trim,
            5 => NbdCommand::Cache,
            6 => NbdCommand::WriteZeroes,
            7 => NbdCommand::BlockStatus,
            other => NbdCommand::Other(other),
        }
    }

    fn to_wire(self) -> u16 {
        match self {
            NbdCommand::Read => 0,
            NbdCommand::Write => 1,
            NbdCommand::Disconnect => 2,
            NbdCommand::Flush => 3,
            NbdCommand::Trim => 4,
            NbdCommand::Cache => 5,
            NbdCommand::WriteZeroes => 6,
            NbdCommand::BlockStatus => 7,
            NbdCommand::Other(other) => other,
        }
    }
}

/// A request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdRequest {
    /// See [`command_flag`]. [`command_flag::PAYLOAD_LEN`] is added when a write is
    /// encoded, and removed when it is parsed.
    pub flags: u16,
    /// The command.
    pub command: NbdCommand,
    /// Identifies the request; repeated in the reply.
    pub cookie: u64,
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// An encoded header.
#[derive(Clone, Copy, Debug)]
pub struct NbdHeaderBytes {
    bytes: [u8; HEADER_BYTES_MAX],
    len: usize,
}

impl NbdHeaderBytes {
    fn new() -> NbdHeaderBytes {
        NbdHeaderBytes {
            bytes: [0; HEADER_BYTES_MAX],
            len: 0,
        }
    }

    fn put(mut self, bytes: &[u8]) -> NbdHeaderBytes {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        self
    }
}

impl std::ops::Deref for NbdHeaderBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl NbdRequest {
    /// Encodes the header.
    ///
    /// # Panics
    /// Panics if the length needs more than 32 bits and the headers are not extended.
    #[inline]
    pub fn encode(&self, headers: NbdHeaders) -> NbdHeaderBytes {
        let out = NbdHeaderBytes::new();
        let command = self.command.to_wire().to_be_bytes();
        let (cookie, offset) = (self.cookie.to_be_bytes(), self.offset.to_be_bytes());
        if headers == NbdHeaders::Extended {
            let carries = if self.command == NbdCommand::Write {
                command_flag::PAYLOAD_LEN
            } else {
                0
            };
            let flags = (self.flags | carries).to_be_bytes();
            return out
                .put(&EXTENDED_REQUEST_MAGIC.to_be_bytes())
                .put(&flags)
                .put(&command)
                .put(&cookie)
                .put(&offset)
                .put(&self.len.to_be_bytes());
        }
        let len = u32::try_from(self.len).expect("the length of a compact request fits in 32 bits");
        out.put(&REQUEST_MAGIC.to_be_bytes())
            .put(&self.flags.to_be_bytes())
            .put(&command)
            .put(&cookie)
            .put(&offset)
            .put(&len.to_be_bytes())
    }

    /// Parses a request; returns it with the length of its header and the number of payload bytes that follow.
    ///
    /// # Errors
    /// The request is incomplete, or is not a request in this style.
    pub fn parse(
        bytes: &[u8],
        headers: NbdHeaders,
    ) -> Result<(NbdRequest, usize, u64), ParseError> {
        let mut cur = Cursor::new(bytes);
        let extended = headers == NbdHeaders::Extended;
        let magic = if extended {
            EXTENDED_REQUEST_MAGIC
        } else {
            REQUEST_MAGIC
        };
        if cur.u32()? != magic {
            return Err(cur.malformed(4, "request does not begin with its magic"));
        }
        let (mut flags, command) = (cur.u16()?, NbdCommand::from_wire(cur.u16()?));
        let (cookie, offset) = (cur.u64()?, cur.u64()?);
        let len = if extended {
            cur.u64()?
        } else {
            cur.u32()?.into()
        };
        let payload = match (extended, command) {
            (true, _) if flags & command_flag::PAYLOAD_LEN != 0 => len,
            (true, NbdCommand::Write) => {
                return Err(Malformed::new(
                    4,
                    "extended NBD_CMD_WRITE without NBD_CMD_FLAG_PAYLOAD_LEN",
                )
                .into());
            }
            (false, NbdCommand::Write) => len,
            _ => 0,
        };
        if extended && command == NbdCommand::Write {
            flags &= !command_flag::PAYLOAD_LEN;
        }
        Ok((
            NbdRequest {
                flags,
                command,
                cookie,
                offset,
                len,
            },
            cur.at(),
            payload,
        ))
    }
}

/// A reply's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdReply {
    /// A complete reply. Data follows if this is the reply to a read and the error is 0.
    Simple {
        /// See [`super::errno`]; 0 means success.
        error: u32,
        /// The request's cookie.
        cookie: u64,
    },
    /// One part of a reply.
    Chunk {
        /// Whether this is the last chunk of the reply to its request.
        done: bool,
        /// The request's cookie.
        cookie: u64,
        /// The request's offset, which extended headers repeat.
        offset: Option<u64>,
        /// The chunk's content.
        chunk: NbdChunk,
    },
}

/// The content of a chunk. Only the header is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdChunk {
    /// Nothing.
    None,
    /// This many bytes of data follow.
    Data {
        /// The offset of the data in the export.
        offset: u64,
        /// At least 1.
        len: u32,
    },
    /// A hole follows, which takes this many bytes on the wire: [`parse_hole`].
    Hole(u32),
    /// Extents follow: [`parse_block_status`].
    BlockStatus {
        /// Whether the numbers have 64 bits.
        wide: bool,
        /// Number of bytes that follow.
        len: u32,
    },
    /// An error follows: [`parse_error`].
    Error {
        /// Whether an offset follows; `None` for an unknown kind of error.
        offset: Option<bool>,
        /// Number of bytes that follow.
        len: u32,
    },
    /// An unknown type of chunk, with this many bytes.
    Other(u16, u32),
}

impl NbdReply {
    /// Parses a reply; returns it with the length of its header, which includes the offset of [`NbdChunk::Data`].
    ///
    /// # Errors
    /// The reply is incomplete, or is not a reply in this style.
    #[inline]
    pub fn parse(bytes: &[u8], headers: NbdHeaders) -> Result<(NbdReply, usize), ParseError> {
        let mut cur = Cursor::new(bytes);
        match (cur.u32()?, headers) {
            (SIMPLE_REPLY_MAGIC, NbdHeaders::Simple | NbdHeaders::Structured) => {
                let reply = NbdReply::Simple {
                    error: cur.u32()?,
                    cookie: cur.u64()?,
                };
                return Ok((reply, cur.at()));
            }
            (STRUCTURED_REPLY_MAGIC, NbdHeaders::Structured) => {}
            (EXTENDED_REPLY_MAGIC, NbdHeaders::Extended) => {}
            _ => return Err(cur.malformed(4, "reply does not begin with its magic")),
        }
        let (flags, kind, cookie) = (cur.u16()?, cur.u16()?, cur.u64()?);
        let (offset, len) = match headers {
            NbdHeaders::Extended => {
                let (offset, len) = (cur.u64()?, cur.u64()?);
                let len = u32::try_from(len).map_err(|_| {
                    ParseError::from(Malformed::new(24, "payload of 4 GiB or more"))
                })?;
                (Some(offset), len)
            }
            _ => (None, cur.u32()?),
        };
        let chunk = match kind {
            TYPE_NONE if len == 0 && flags & FLAG_DONE != 0 => NbdChunk::None,
            TYPE_NONE => {
                return Err(cur.malformed(
                    0,
                    "NBD_REPLY_TYPE_NONE is not empty, or lacks NBD_REPLY_FLAG_DONE",
                ));
            }
            TYPE_OFFSET_DATA if len < 9 => {
                return Err(cur.malformed(0, "NBD_REPLY_TYPE_OFFSET_DATA without data"));
            }
            TYPE_OFFSET_DATA => NbdChunk::Data {
                offset: cur.u64()?,
                len: len - 8,
            },
            TYPE_OFFSET_HOLE if len == HOLE_BYTES => NbdChunk::Hole(len),
            TYPE_OFFSET_HOLE => {
                return Err(cur.malformed(0, "NBD_REPLY_TYPE_OFFSET_HOLE is not 12 bytes long"));
            }
            TYPE_BLOCK_STATUS => NbdChunk::BlockStatus { wide: false, len },
            TYPE_BLOCK_STATUS_EXT => NbdChunk::BlockStatus { wide: true, len },
            TYPE_ERROR => NbdChunk::Error {
                offset: Some(false),
                len,
            },
            TYPE_ERROR_OFFSET => NbdChunk::Error {
                offset: Some(true),
                len,
            },
            kind if kind & TYPE_ERROR_BIT != 0 => NbdChunk::Error { offset: None, len },
            kind => NbdChunk::Other(kind, len),
        };
        Ok((
            NbdReply::Chunk {
                done: flags & FLAG_DONE != 0,
                cookie,
                offset,
                chunk,
            },
            cur.at(),
        ))
    }

    /// Encodes the header as a server sends it, without the content that follows. `offset` is the offset in the
    /// chunk's request.
    ///
    /// # Panics
    /// Panics if a chunk is encoded with simple headers, or a simple reply with extended headers.
    #[inline]
    pub fn encode(&self, headers: NbdHeaders) -> NbdHeaderBytes {
        let out = NbdHeaderBytes::new();
        let (done, cookie, offset, chunk) = match *self {
            NbdReply::Simple { error, cookie } => {
                assert!(
                    headers != NbdHeaders::Extended,
                    "with extended headers, all replies are extended"
                );
                return out
                    .put(&SIMPLE_REPLY_MAGIC.to_be_bytes())
                    .put(&error.to_be_bytes())
                    .put(&cookie.to_be_bytes());
            }
            NbdReply::Chunk {
                done,
                cookie,
                offset,
                chunk,
            } => (done, cookie, offset, chunk),
        };
        assert!(
            headers != NbdHeaders::Simple,
            "chunks need structured replies or extended headers"
        );
        let (kind, len) = match chunk {
            NbdChunk::None => (TYPE_NONE, 0),
            NbdChunk::Data { len, .. } => (TYPE_OFFSET_DATA, len + 8),
            NbdChunk::Hole(len) => (TYPE_OFFSET_HOLE, len),
            NbdChunk::BlockStatus { wide: false, len } => (TYPE_BLOCK_STATUS, len),
            NbdChunk::BlockStatus { wide: true, len } => (TYPE_BLOCK_STATUS_EXT, len),
            NbdChunk::Error {
                offset: Some(true),
                len,
            } => (TYPE_ERROR_OFFSET, len),
            NbdChunk::Error { len, .. } => (TYPE_ERROR, len),
            NbdChunk::Other(kind, len) => (kind, len),
        };
        let extended = headers == NbdHeaders::Extended;
        let magic = if extended {
            EXTENDED_REPLY_MAGIC
        } else {
            STRUCTURED_REPLY_MAGIC
        };
        let out = out
            .put(&magic.to_be_bytes())
            .put(&u16::from(done).to_be_bytes())
            .put(&kind.to_be_bytes())
            .put(&cookie.to_be_bytes());
        let out = match extended {
            true => out
                .put(&offset.unwrap_or(0).to_be_bytes())
                .put(&u64::from(len).to_be_bytes()),
            false => out.put(&len.to_be_bytes()),
        };
        match chunk {
            NbdChunk::Data { offset, .. } => out.put(&offset.to_be_bytes()),
            _ => out,
        }
    }
}

/// Size of a hole on the wire.
pub const HOLE_BYTES: u32 = 12;
/// Maximum size of an error: number, length, message, offset.
pub const ERROR_BYTES_MAX: u32 = 4 + 2 + STRING_BYTES_MAX as u32 + 8;

/// Parses a hole's offset and its non-zero length.
///
/// # Errors
/// The data is incomplete, or the length is zero.
pub fn parse_hole(bytes: &[u8]) -> Result<(u64, u32), ParseError> {
    let mut cur = Cursor::new(bytes);
    match (cur.u64()?, cur.u32()?) {
        (_, 0) => Err(cur.malformed(4, "hole of length 0")),
        hole => Ok(hole),
    }
}

/// Encodes a hole, for [`parse_hole`].
pub fn encode_hole(offset: u64, len: u32) -> Vec<u8> {
    [offset.to_be_bytes().to_vec(), len.to_be_bytes().to_vec()].concat()
}

/// Parses an error's number and message; ignores the rest. Invalid and control characters in the message are
/// replaced.
///
/// # Errors
/// The lengths are inconsistent, or the number is zero.
pub fn parse_error(bytes: &[u8]) -> Result<(u32, String), ParseError> {
    let mut cur = Cursor::new(bytes);
    let error = cur.u32()?;
    if error == 0 {
        return Err(cur.malformed(4, "error chunk with error 0"));
    }
    let len = usize::from(cur.u16()?);
    if len > STRING_BYTES_MAX {
        return Err(cur.malformed(2, "string longer than 4096 bytes"));
    }
    let text = String::from_utf8_lossy(cur.take(len)?);
    Ok((
        error,
        text.chars()
            .map(|one| if one.is_control() { ' ' } else { one })
            .collect(),
    ))
}

/// Encodes an error, for [`parse_error`].
pub fn encode_error(error: u32, message: &str) -> Vec<u8> {
    let len = (message.len() as u16).to_be_bytes();
    [&error.to_be_bytes()[..], &len, message.as_bytes()].concat()
}

/// A metadata context's id, and its extents: length and state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdExtents {
    /// The context's id.
    pub context: u32,
    /// Length (in bytes, not zero) and flags of each extent.
    pub extents: Vec<(u64, u64)>,
}

/// Parses the extents of a chunk.
///
/// # Errors
/// The lengths are inconsistent, or there are no extents.
pub fn parse_block_status(bytes: &[u8], wide: bool) -> Result<NbdExtents, ParseError> {
    let mut cur = Cursor::new(bytes);
    let context = cur.u32()?;
    let each = if wide { 16 } else { 8 };
    if wide && u64::from(cur.u32()?) * 16 != cur.rest().len() as u64 {
        return Err(cur.malformed(4, "number of extents does not match the length"));
    }
    if cur.rest().is_empty() || !cur.rest().len().is_multiple_of(each) {
        return Err(cur.malformed(0, "no extent, or a partial one"));
    }
    let mut extents = Vec::with_capacity(cur.rest().len() / each);
    while !cur.rest().is_empty() {
        let extent = if wide {
            (cur.u64()?, cur.u64()?)
        } else {
            (cur.u32()?.into(), cur.u32()?.into())
        };
        if extent.0 == 0 {
            return Err(cur.malformed(each, "extent of length 0"));
        }
        extents.push(extent);
    }
    Ok(NbdExtents { context, extents })
}

/// Encodes extents, for [`parse_block_status`]. Lengths of more than 32 bits are clamped.
pub fn encode_block_status(status: &NbdExtents, wide: bool) -> Vec<u8> {
    let mut bytes = status.context.to_be_bytes().to_vec();
    if wide {
        bytes.extend((status.extents.len() as u32).to_be_bytes());
    }
    for &(len, flags) in &status.extents {
        if wide {
            bytes.extend(len.to_be_bytes());
            bytes.extend(flags.to_be_bytes());
        } else {
            bytes.extend(u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend((flags as u32).to_be_bytes());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLES: [NbdHeaders; 3] = [
        NbdHeaders::Simple,
        NbdHeaders::Structured,
        NbdHeaders::Extended,
    ];

    #[test]
    fn requests_survive_a_round_trip_and_truncated_ones_are_incomplete() {
        for headers in STYLES {
            for code in 0..9 {
                let command = NbdCommand::from_wire(code);
                let request = NbdRequest {
                    flags: 1,
                    command,
                    cookie: 7 << 40,
                    offset: 1 << 50,
                    len: 4096,
                };
                let bytes = request.encode(headers);
                let payload = if command == NbdCommand::Write {
                    4096
                } else {
                    0
                };
                assert_eq!(
                    NbdRequest::parse(&bytes, headers),
                    Ok((request, bytes.len(), payload))
                );
                for end in 0..bytes.len() {
                    let cut = NbdRequest::parse(&bytes[..end], headers);
                    assert!(
                        matches!(cut, Err(ParseError::Incomplete(_))),
                        "cut at {end}: {cut:?}"
                    );
                }
            }
        }
        assert!(NbdRequest::parse(&[0; 40], NbdHeaders::Simple).is_err());
    }

    /// Checks every header style in which the reply exists.
    #[test]
    fn replies_survive_a_round_trip_and_truncated_ones_are_incomplete() {
        let chunks = [
            NbdChunk::None,
            NbdChunk::Data {
                offset: 1 << 41,
                len: 65536,
            },
            NbdChunk::Hole(12),
            NbdChunk::BlockStatus {
                wide: false,
                len: 12,
            },
            NbdChunk::BlockStatus {
                wide: true,
                len: 24,
            },
            NbdChunk::Error {
                offset: Some(false),
                len: 6,
            },
            NbdChunk::Error {
                offset: Some(true),
                len: 14,
            },
            NbdChunk::Other(9, 3),
        ];
        let mut all = vec![(
            NbdReply::Simple {
                error: 5,
                cookie: 9,
            },
            NbdHeaders::Simple,
        )];
        for chunk in chunks {
            let reply = |offset| NbdReply::Chunk {
                done: true,
                cookie: 9,
                offset,
                chunk,
            };
            all.push((reply(None), NbdHeaders::Structured));
            all.push((reply(Some(512)), NbdHeaders::Extended));
        }
        for (reply, headers) in all {
            let bytes = reply.encode(headers);
            assert_eq!(NbdReply::parse(&bytes, headers), Ok((reply, bytes.len())));
            for end in 0..bytes.len() {
                let cut = NbdReply::parse(&bytes[..end], headers);
                assert!(
                    matches!(cut, Err(ParseError::Incomplete(_))),
                    "cut at {end}: {cut:?}"
                );
            }
        }
    }

    /// Payloads survive a round trip; protocol violations are malformed.
    #[test]
    fn payloads_survive_a_round_trip() {
        assert_eq!(parse_hole(&encode_hole(512, 4096)), Ok((512, 4096)));
        assert!(parse_hole(&encode_hole(512, 0)).is_err());
        assert_eq!(
            parse_error(&encode_error(5, "bad\nsector")),
            Ok((5, "bad sector".to_string()))
        );
        assert!(parse_error(&encode_error(0, "")).is_err());
        assert!(matches!(
            parse_error(&[0, 0, 0, 5, 0, 9, b'x']),
            Err(ParseError::Incomplete(_))
        ));
        for wide in [false, true] {
            let status = NbdExtents {
                context: 3,
                extents: vec![(4096, 0), (1 << 20, 3)],
            };
            let bytes = encode_block_status(&status, wide);
            assert_eq!(parse_block_status(&bytes, wide), Ok(status));
            for end in 0..bytes.len() {
                let cut = parse_block_status(&bytes[..end], wide);
                assert!(
                    cut.is_err() || cut.unwrap().extents.len() == 1,
                    "cut at {end}"
                );
            }
        }
        assert!(parse_block_status(&[0; 12], false).is_err());
    }

    /// Contradictory chunks, and headers of a different style, are malformed.
    #[test]
    fn contradictory_chunks_are_malformed() {
        let structured = |kind: u16, flags: u16, len: u32| {
            let mut bytes = STRUCTURED_REPLY_MAGIC.to_be_bytes().to_vec();
            bytes.extend(flags.to_be_bytes());
            bytes.extend(kind.to_be_bytes());
            bytes.extend([0; 8]);
            bytes.extend(len.to_be_bytes());
            bytes.extend([0; 8]);
            NbdReply::parse(&bytes, NbdHeaders::Structured)
        };
        for (kind, flags, len) in [(0, 0, 0), (0, 1, 4), (1, 1, 8), (2, 1, 11)] {
            assert!(
                matches!(structured(kind, flags, len), Err(ParseError::Malformed(_))),
                "{kind}"
            );
        }
        let simple = NbdReply::Simple {
            error: 0,
            cookie: 1,
        }
        .encode(NbdHeaders::Simple);
        assert!(NbdReply::parse(&simple, NbdHeaders::Extended).is_err());
        assert!(NbdReply::parse(&simple, NbdHeaders::Structured).is_ok());
    }
}
