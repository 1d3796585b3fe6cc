//! Headers of requests and responses. Used by the session and connection code in `brunt-store`.
//!
//! The rule: a header is parsed without knowledge of the request; the session checks whether they match.

use crate::{Cursor, ParseError};

/// Size of a header in either direction.
pub const HEADER_BYTES: usize = 48;

/// SD_FLAG_CMD_*.
pub mod flag {
    /// The request carries data.
    pub const WRITE: u16 = 0x01;
    /// Create the object as a copy of another.
    pub const COW: u16 = 0x02;
    /// Use the server's object cache, if any: data is stable after FLUSH_VDI.
    pub const CACHE: u16 = 0x04;
    /// Bypass the object cache.
    pub const DIRECT: u16 = 0x08;
}

/// The operation of a request (SD_OP_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the protocol's own names
pub enum SheepdogOpcode {
    CreateAndWriteObj,
    ReadObj,
    WriteObj,
    LockVdi,
    ReleaseVdi,
    GetVdiInfo,
    FlushVdi,
    /// An unknown operation.
    Other(u8),
}

impl SheepdogOpcode {
    fn from_wire(code: u8) -> SheepdogOpcode {
        match code {
            0x01 => SheepdogOpcode::CreateAndWriteObj,
            0x02 => SheepdogOpcode::ReadObj,
            0x03 => SheepdogOpcode::WriteObj,
            0x12 => SheepdogOpcode::LockVdi,
            0x13 => SheepdogOpcode::ReleaseVdi,
            0x14 => SheepdogOpcode::GetVdiInfo,
            0x16 => SheepdogOpcode::FlushVdi,
            other => SheepdogOpcode::Other(other),
        }
    }

    fn to_wire(self) -> u8 {
        match self {
            SheepdogOpcode::CreateAndWriteObj => 0x01,
            SheepdogOpcode::ReadObj => 0x02,
            SheepdogOpcode::WriteObj => 0x03,
            SheepdogOpcode::LockVdi => 0x12,
            SheepdogOpcode::ReleaseVdi => 0x13,
            SheepdogOpcode::GetVdiInfo => 0x14,
            SheepdogOpcode::FlushVdi => 0x16,
            SheepdogOpcode::Other(other) => other,
        }
    }
}

/// The target of a request: the part of the header that depends on the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SheepdogSubject {
    /// An object, and an offset within it.
    Object {
        /// See [`super::data_object`] and [`super::inode_object`].
        object: u64,
        /// The object to copy when this one is created; 0 means none.
        cow_object: u64,
        /// Number of replicas of a created object.
        copies: u8,
        /// Offset in bytes within the object.
        offset: u32,
    },
    /// A VDI, identified by the name in the data or by its id.
    Vdi {
        /// Size in bytes.
        size_bytes: u64,
        /// RELEASE_VDI: the VDI to release.
        vdi: u32,
        /// A snapshot's number; 0 means the snapshot with the tag in the data or, without a tag, the disk itself.
        snapshot: u32,
    },
}

/// A request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SheepdogRequest {
    /// The operation.
    pub opcode: SheepdogOpcode,
    /// See [`flag`].
    pub flags: u16,
    /// Identifies the request; repeated in the response.
    pub id: u32,
    /// Length of the data that follows (with [`flag::WRITE`]) or is requested.
    pub data_len: u32,
    /// The request's target.
    pub subject: SheepdogSubject,
}

impl SheepdogRequest {
    /// Encodes the header.
    #[inline]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &[super::PROTOCOL_VERSION, self.opcode.to_wire()]);
        put(2, &self.flags.to_le_bytes());
        // Bytes 4 to 7 are the epoch, which the sheep fills in for its clients.
        put(8, &self.id.to_le_bytes());
        put(12, &self.data_len.to_le_bytes());
        match self.subject {
            SheepdogSubject::Object {
                object,
                cow_object,
                copies,
                offset,
            } => {
                put(16, &object.to_le_bytes());
                put(24, &cow_object.to_le_bytes());
                put(32, &[copies]);
                put(40, &offset.to_le_bytes());
            }
            SheepdogSubject::Vdi {
                size_bytes,
                vdi,
                snapshot,
            } => {
                put(16, &size_bytes.to_le_bytes());
                put(24, &vdi.to_le_bytes());
                put(32, &snapshot.to_le_bytes());
            }
        }
        bytes
    }

    /// Parses a header. The target of an unknown operation is parsed as an object.
    ///
    /// # Errors
    /// The header is incomplete, or has another protocol version.
    pub fn parse(bytes: &[u8]) -> Result<SheepdogRequest, ParseError> {
        let mut cur = Cursor::new(bytes);
        let header = cur.take(HEADER_BYTES)?;
        let mut cur = Cursor::new(header);
        if cur.u8()? != super::PROTOCOL_VERSION {
            return Err(cur.malformed(1, "request version is not 1"));
        }
        let opcode = SheepdogOpcode::from_wire(cur.u8()?);
        let flags = u16_le(&mut cur)?;
        cur.skip(4)?;
        let (id, data_len) = (u32_le(&mut cur)?, u32_le(&mut cur)?);
        let subject = match opcode {
            SheepdogOpcode::LockVdi | SheepdogOpcode::ReleaseVdi | SheepdogOpcode::GetVdiInfo => {
                let (size_bytes, vdi) = (u64_le(&mut cur)?, u32_le(&mut cur)?);
                cur.skip(4)?;
                SheepdogSubject::Vdi {
                    size_bytes,
                    vdi,
                    snapshot: u32_le(&mut cur)?,
                }
            }
            _ => {
                let (object, cow_object, copies) =
                    (u64_le(&mut cur)?, u64_le(&mut cur)?, cur.u8()?);
                cur.skip(7)?;
                SheepdogSubject::Object {
                    object,
                    cow_object,
                    copies,
                    offset: u32_le(&mut cur)?,
                }
            }
        };
        Ok(SheepdogRequest {
            opcode,
            flags,
            id,
            data_len,
            subject,
        })
    }
}

/// A response's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SheepdogResponse {
    /// The request's id.
    pub id: u32,
    /// Length of the data that follows.
    pub data_len: u32,
    /// See [`super::result`].
    pub result: u32,
    /// The VDI found by LOCK_VDI or GET_VDI_INFO.
    pub vdi: u32,
}

impl SheepdogResponse {
    /// Parses a header. The version is ignored, because sheep respond with their own.
    ///
    /// # Errors
    /// The header is incomplete.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<SheepdogResponse, ParseError> {
        let header = Cursor::new(bytes).take(HEADER_BYTES)?;
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        Ok(SheepdogResponse {
            id: word(8),
            data_len: word(12),
            result: word(16),
            vdi: word(24),
        })
    }

    /// Encodes a response as a sheep sends it.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = super::PROTOCOL_VERSION;
        for (at, value) in [
            (8, self.id),
            (12, self.data_len),
            (16, self.result),
            (24, self.vdi),
        ] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }
}

fn u16_le(cur: &mut Cursor<'_>) -> Result<u16, ParseError> {
    Ok(cur.u16()?.swap_bytes())
}

pub(super) fn u32_le(cur: &mut Cursor<'_>) -> Result<u32, ParseError> {
    Ok(cur.u32()?.swap_bytes())
}

pub(super) fn u64_le(cur: &mut Cursor<'_>) -> Result<u64, ParseError> {
    Ok(cur.u64()?.swap_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_cut(parsed: Result<impl std::fmt::Debug, ParseError>) -> bool {
        matches!(parsed, Err(ParseError::Incomplete(HEADER_BYTES)))
    }

    #[test]
    fn requests_survive_a_round_trip_and_truncated_ones_are_incomplete() {
        for code in 0..=u8::MAX {
            let opcode = SheepdogOpcode::from_wire(code);
            assert_eq!(opcode.to_wire(), code);
            let subject = match opcode {
                SheepdogOpcode::LockVdi
                | SheepdogOpcode::ReleaseVdi
                | SheepdogOpcode::GetVdiInfo => SheepdogSubject::Vdi {
                    size_bytes: 1 << 40,
                    vdi: 7,
                    snapshot: 3,
                },
                _ => SheepdogSubject::Object {
                    object: 9 << 32,
                    cow_object: 8 << 32,
                    copies: 3,
                    offset: 512,
                },
            };
            let request = SheepdogRequest {
                opcode,
                flags: flag::WRITE,
                id: 77,
                data_len: 4096,
                subject,
            };
            let bytes = request.encode();
            assert_eq!(SheepdogRequest::parse(&bytes), Ok(request));
            for end in 0..bytes.len() {
                assert!(
                    is_cut(SheepdogRequest::parse(&bytes[..end])),
                    "cut at {end}"
                );
            }
        }
        assert!(matches!(
            SheepdogRequest::parse(&[2; HEADER_BYTES]),
            Err(ParseError::Malformed(_))
        ));
    }

    #[test]
    fn responses_survive_a_round_trip() {
        let response = SheepdogResponse {
            id: 77,
            data_len: 4096,
            result: 0x1a,
            vdi: 0xab_cdef,
        };
        let bytes = response.encode();
        assert_eq!(SheepdogResponse::parse(&bytes), Ok(response));
        for end in 0..bytes.len() {
            assert!(
                is_cut(SheepdogResponse::parse(&bytes[..end])),
                "cut at {end}"
            );
        }
    }
}
