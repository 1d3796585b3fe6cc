//! The handshake: greetings, options and their replies, in both directions. Used by the sessions in `brunt-store`.
//!
//! The one rule: bytes from a peer are accepted as a string only if they are UTF-8 without NUL, as the protocol
//! requires.

use super::{BLOCK_BYTES_MAX, STRING_BYTES_MAX};
use crate::{Cursor, Malformed, ParseError};

/// The first eight bytes that every server sends.
pub const INIT_PASSWD: u64 = 0x4e42_444d_4147_4943;
/// Follows [`INIT_PASSWD`] in a newstyle greeting, and begins every option.
pub const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
/// Follows [`INIT_PASSWD`] in an oldstyle greeting.
pub const CLISERV_MAGIC: u64 = 0x0000_4202_8186_1253;
/// Begins every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// Handshake flags. The client's flags use the same bits.
pub mod handshake_flag {
    /// Options other than EXPORT_NAME are supported.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// The reply to EXPORT_NAME omits the 124 zeros at its end.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Options.
pub mod option {
    /// Starts transmission; the reply cannot report an error.
    pub const EXPORT_NAME: u32 = 1;
    /// Ends the negotiation.
    pub const ABORT: u32 = 2;
    /// Lists all exports.
    pub const LIST: u32 = 3;
    /// Starts TLS.
    pub const STARTTLS: u32 = 5;
    /// Queries an export.
    pub const INFO: u32 = 6;
    /// Starts transmission.
    pub const GO: u32 = 7;
    /// Enables structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Lists the available metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Selects metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Enables extended headers.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Types of replies to options.
pub mod reply {
    /// Success.
    pub const ACK: u32 = 1;
    /// An export.
    pub const SERVER: u32 = 2;
    /// Information about an export.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Set in the types of all errors.
    pub const ERROR: u32 = 1 << 31;
    /// The option is unknown to the server.
    pub const ERR_UNSUP: u32 = ERROR + 1;
    /// Forbidden by the server's policy.
    pub const ERR_POLICY: u32 = ERROR + 2;
    /// The option is invalid.
    pub const ERR_INVALID: u32 = ERROR + 3;
    /// Not supported on this platform.
    pub const ERR_PLATFORM: u32 = ERROR + 4;
    /// TLS is required.
    pub const ERR_TLS_REQD: u32 = ERROR + 5;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = ERROR + 6;
    /// The server is shutting down.
    pub const ERR_SHUTDOWN: u32 = ERROR + 7;
    /// The client must request block sizes.
    pub const ERR_BLOCK_SIZE_REQD: u32 = ERROR + 8;
    /// The request is too large.
    pub const ERR_TOO_BIG: u32 = ERROR + 9;
    /// Extended headers are required.
    pub const ERR_EXT_HEADER_REQD: u32 = ERROR + 10;

    /// The name of the reply type in the NBD specification.
    pub fn name(kind: u32) -> &'static str {
        match kind {
            ACK => "NBD_REP_ACK",
            SERVER => "NBD_REP_SERVER",
            INFO => "NBD_REP_INFO",
            META_CONTEXT => "NBD_REP_META_CONTEXT",
            ERR_UNSUP => "NBD_REP_ERR_UNSUP",
            ERR_POLICY => "NBD_REP_ERR_POLICY",
            ERR_INVALID => "NBD_REP_ERR_INVALID",
            ERR_PLATFORM => "NBD_REP_ERR_PLATFORM",
            ERR_TLS_REQD => "NBD_REP_ERR_TLS_REQD",
            ERR_UNKNOWN => "NBD_REP_ERR_UNKNOWN",
            ERR_SHUTDOWN => "NBD_REP_ERR_SHUTDOWN",
            ERR_BLOCK_SIZE_REQD => "NBD_REP_ERR_BLOCK_SIZE_REQD",
            ERR_TOO_BIG => "NBD_REP_ERR_TOO_BIG",
            ERR_EXT_HEADER_REQD => "NBD_REP_ERR_EXT_HEADER_REQD",
            _ => "an unknown reply",
        }
    }
}

/// Types of information about an export.
pub mod info {
    /// Size and flags.
    pub const EXPORT: u16 = 0;
    /// The export's canonical name.
    pub const NAME: u16 = 1;
    /// A description.
    pub const DESCRIPTION: u16 = 2;
    /// Block sizes.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Size of the longest greeting, which is the oldstyle one: two magic numbers, size, flags, zeros.
pub const OLDSTYLE_BYTES: usize = 8 + 8 + 8 + 4 + 124;
/// Size of a newstyle greeting.
pub const GREETING_BYTES: usize = 8 + 8 + 2;
/// Size of an option's header.
pub const OPTION_BYTES: usize = 8 + 4 + 4;
/// Size of an option reply's header.
pub const OPTION_REPLY_BYTES: usize = 8 + 4 + 4 + 4;
/// Number of zeros after the reply to EXPORT_NAME.
pub const ZEROES_BYTES: usize = 124;

/// A server's greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdGreeting {
    /// Oldstyle: all information at once, without negotiation.
    Oldstyle {
        /// Size of the only export, in bytes.
        size_bytes: u64,
        /// Transmission flags.
        flags: u16,
    },
    /// Newstyle: options follow.
    Newstyle {
        /// See [`handshake_flag`].
        flags: u16,
    },
}

impl NbdGreeting {
    /// Parses a greeting; returns it with its length.
    ///
    /// # Errors
    /// The greeting is incomplete, or the peer is not an NBD server.
    pub fn parse(bytes: &[u8]) -> Result<(NbdGreeting, usize), ParseError> {
        let mut cur = Cursor::new(bytes);
        if cur.u64()? != INIT_PASSWD {
            return Err(cur.malformed(8, "greeting does not begin with NBDMAGIC"));
        }
        let greeting = match cur.u64()? {
            IHAVEOPT => NbdGreeting::Newstyle { flags: cur.u16()? },
            CLISERV_MAGIC => {
                let size_bytes = cur.u64()?;
                // Both flag fields of the newstyle greeting in one; the lower half contains the export's flags.
                let flags = cur.u32()? as u16;
                cur.skip(ZEROES_BYTES)?;
                NbdGreeting::Oldstyle { size_bytes, flags }
            }
            _ => {
                return Err(cur.malformed(
                    8,
                    "neither IHAVEOPT nor the oldstyle magic follows NBDMAGIC",
                ));
            }
        };
        Ok((greeting, cur.at()))
    }

    /// The greeting's bytes on the wire.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = INIT_PASSWD.to_be_bytes().to_vec();
        match *self {
            NbdGreeting::Newstyle { flags } => {
                bytes.extend(IHAVEOPT.to_be_bytes());
                bytes.extend(flags.to_be_bytes());
            }
            NbdGreeting::Oldstyle { size_bytes, flags } => {
                bytes.extend(CLISERV_MAGIC.to_be_bytes());
                bytes.extend(size_bytes.to_be_bytes());
                bytes.extend(u32::from(flags).to_be_bytes());
                bytes.resize(OLDSTYLE_BYTES, 0);
            }
        }
        bytes
    }
}

/// Encodes an option as a client sends it.
pub fn encode_option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = IHAVEOPT.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Parses an option's header; returns the option and the number of data bytes that follow.
///
/// # Errors
/// The header is incomplete, or is not an option's.
pub fn parse_option(bytes: &[u8]) -> Result<(u32, u32), ParseError> {
    let mut cur = Cursor::new(bytes);
    if cur.u64()? != IHAVEOPT {
        return Err(cur.malformed(8, "option does not begin with IHAVEOPT"));
    }
    Ok((cur.u32()?, cur.u32()?))
}

/// The header of a reply to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdOptionReply {
    /// The option that this reply answers.
    pub option: u32,
    /// See [`reply`].
    pub kind: u32,
    /// Number of data bytes that follow.
    pub len: u32,
}

impl NbdOptionReply {
    /// Parses a reply's header.
    ///
    /// # Errors
    /// The header is incomplete, or is not a reply's.
    pub fn parse(bytes: &[u8]) -> Result<NbdOptionReply, ParseError> {
        let mut cur = Cursor::new(bytes);
        if cur.u64()? != OPTION_REPLY_MAGIC {
            return Err(cur.malformed(8, "option reply does not begin with its magic"));
        }
        Ok(NbdOptionReply {
            option: cur.u32()?,
            kind: cur.u32()?,
            len: cur.u32()?,
        })
    }

    /// Encodes a reply with its data.
    pub fn encode(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        bytes
    }

    /// Whether the reply is an error.
    pub fn is_error(&self) -> bool {
        self.kind & reply::ERROR != 0
    }
}

/// The size constraints of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdBlockSizes {
    /// All offsets and lengths must be multiples of this; a power of two.
    pub minimum: u32,
    /// Multiples of this avoid read-modify-write cycles; a power of two.
    pub preferred: u32,
    /// Maximum payload of one read or write.
    pub payload_max: u32,
}

/// One piece of information about an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdInfo {
    /// Size in bytes, and [`super::export_flag`].
    Export(u64, u16),
    /// The export's canonical name.
    Name(String),
    /// A description.
    Description(String),
    /// Block sizes.
    BlockSizes(NbdBlockSizes),
    /// An unknown type of information.
    Other(u16),
}

impl NbdInfo {
    /// Parses the data of a [`reply::INFO`].
    ///
    /// # Errors
    /// The data is invalid for this type of information.
    pub fn parse(bytes: &[u8]) -> Result<NbdInfo, ParseError> {
        let mut cur = Cursor::new(bytes);
        let read = match cur.u16()? {
            info::EXPORT => NbdInfo::Export(cur.u64()?, cur.u16()?),
            info::NAME => return Ok(NbdInfo::Name(string(cur.rest(), 2)?)),
            info::DESCRIPTION => return Ok(NbdInfo::Description(string(cur.rest(), 2)?)),
            info::BLOCK_SIZE => {
                let (minimum, preferred, payload_max) = (cur.u32()?, cur.u32()?, cur.u32()?);
                if !minimum.is_power_of_two() || minimum > BLOCK_BYTES_MAX {
                    return Err(
                        cur.malformed(12, "minimum block size is not a power of two up to 65536")
                    );
                }
                if !preferred.is_power_of_two() || preferred < minimum {
                    return Err(cur.malformed(
                        8,
                        "preferred block size is not a power of two, or is less than the minimum",
                    ));
                }
                // On some servers, the maximum payload is less than the preferred size; it only has to be at least
                // one block.
                if payload_max < minimum {
                    return Err(cur.malformed(4, "maximum payload is smaller than a block"));
                }
                NbdInfo::BlockSizes(NbdBlockSizes {
                    minimum,
                    preferred,
                    payload_max,
                })
            }
            other => return Ok(NbdInfo::Other(other)),
        };
        match cur.rest() {
            [] => Ok(read),
            _ => Err(cur.malformed(0, "excess data after this information")),
        }
    }

    /// Encodes the data; empty for `Other`.
    pub fn encode(&self) -> Vec<u8> {
        let head = |kind: u16| kind.to_be_bytes().to_vec();
        match self {
            NbdInfo::Export(size_bytes, flags) => [
                head(info::EXPORT),
                size_bytes.to_be_bytes().to_vec(),
                flags.to_be_bytes().to_vec(),
            ]
            .concat(),
            NbdInfo::Name(name) => [head(info::NAME), name.as_bytes().to_vec()].concat(),
            NbdInfo::Description(text) => {
                [head(info::DESCRIPTION), text.as_bytes().to_vec()].concat()
            }
            NbdInfo::BlockSizes(sizes) => {
                let numbers = [sizes.minimum, sizes.preferred, sizes.payload_max];
                let numbers: Vec<u8> = numbers
                    .iter()
                    .flat_map(|number| number.to_be_bytes())
                    .collect();
                [head(info::BLOCK_SIZE), numbers].concat()
            }
            NbdInfo::Other(_) => Vec::new(),
        }
    }
}

/// Encodes the data of GO and INFO: the export and the requested information.
pub fn encode_go(export: &str, wanted: &[u16]) -> Vec<u8> {
    let mut bytes = (export.len() as u32).to_be_bytes().to_vec();
    bytes.extend(export.as_bytes());
    bytes.extend((wanted.len() as u16).to_be_bytes());
    bytes.extend(wanted.iter().flat_map(|kind| kind.to_be_bytes()));
    bytes
}

/// Parses the data of GO and INFO.
///
/// # Errors
/// The lengths are inconsistent, or the name is not a valid string.
pub fn parse_go(bytes: &[u8]) -> Result<(String, Vec<u16>), ParseError> {
    let mut cur = Cursor::new(bytes);
    let export = counted_string(&mut cur)?;
    let count = usize::from(cur.u16()?);
    if cur.rest().len() != 2 * count {
        return Err(cur.malformed(
            2,
            "number of information requests does not match the length",
        ));
    }
    let wanted = cur
        .rest()
        .chunks_exact(2)
        .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
        .collect();
    Ok((export, wanted))
}

/// Encodes the data of SET_META_CONTEXT and LIST_META_CONTEXT.
pub fn encode_meta_query(export: &str, queries: &[&str]) -> Vec<u8> {
    let mut bytes = (export.len() as u32).to_be_bytes().to_vec();
    bytes.extend(export.as_bytes());
    bytes.extend((queries.len() as u32).to_be_bytes());
    for query in queries {
        bytes.extend((query.len() as u32).to_be_bytes());
        bytes.extend(query.as_bytes());
    }
    bytes
}

/// Parses the data of SET_META_CONTEXT and LIST_META_CONTEXT: the export and the queries. The length of the option's
/// data limits the number of queries.
///
/// # Errors
/// The lengths are inconsistent, or a string is invalid.
pub fn parse_meta_query(bytes: &[u8]) -> Result<(String, Vec<String>), ParseError> {
    let mut cur = Cursor::new(bytes);
    let export = counted_string(&mut cur)?;
    let count = cur.u32()? as usize;
    // Each query has a four-byte length field.
    if count > cur.rest().len() / 4 {
        return Err(cur.malformed(4, "number of queries does not match the length"));
    }
    let queries = (0..count)
        .map(|_| counted_string(&mut cur))
        .collect::<Result<_, _>>()?;
    match cur.rest() {
        [] => Ok((export, queries)),
        _ => Err(cur.malformed(0, "excess data after the last query")),
    }
}

/// Parses the data of a [`reply::META_CONTEXT`]: id and name.
///
/// # Errors
/// The data is too short, or the name is not a valid string.
pub fn parse_meta_context(bytes: &[u8]) -> Result<(u32, String), ParseError> {
    let mut cur = Cursor::new(bytes);
    let number = cur.u32()?;
    Ok((number, string(cur.rest(), 4)?))
}

/// Parses the data of a [`reply::SERVER`]: name and description of an export.
///
/// # Errors
/// The lengths are inconsistent, or a string is invalid.
pub fn parse_server(bytes: &[u8]) -> Result<(String, String), ParseError> {
    let mut cur = Cursor::new(bytes);
    let name = counted_string(&mut cur)?;
    let at = cur.at();
    Ok((name, string(cur.rest(), at)?))
}

/// Encodes the data of a [`reply::SERVER`].
pub fn encode_server(name: &str, description: &str) -> Vec<u8> {
    let mut bytes = (name.len() as u32).to_be_bytes().to_vec();
    bytes.extend(name.as_bytes());
    bytes.extend(description.as_bytes());
    bytes
}

fn counted_string(cur: &mut Cursor<'_>) -> Result<String, ParseError> {
    let len = cur.count(STRING_BYTES_MAX as u32, "string longer than 4096 bytes")? as usize;
    let at = cur.at();
    string(cur.take(len)?, at)
}

fn string(bytes: &[u8], at: usize) -> Result<String, ParseError> {
    if bytes.len() > STRING_BYTES_MAX {
        return Err(Malformed::new(at, "string longer than 4096 bytes").into());
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text.to_string()),
        _ => Err(Malformed::new(at, "string is not UTF-8, or contains NUL").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole<T: std::fmt::Debug + PartialEq>(
        bytes: &[u8],
        expected: T,
        parse: impl Fn(&[u8]) -> Result<T, ParseError>,
    ) {
        assert_eq!(parse(bytes), Ok(expected));
        for end in 0..bytes.len() {
            assert!(parse(&bytes[..end]).is_err(), "cut at {end}");
        }
    }

    /// Encoded messages parse back to the same values, and truncated ones are incomplete.
    #[test]
    fn messages_survive_a_round_trip() {
        let new = NbdGreeting::Newstyle { flags: 3 };
        whole(&new.encode(), (new, GREETING_BYTES), NbdGreeting::parse);
        let old = NbdGreeting::Oldstyle {
            size_bytes: 7 << 30,
            flags: 0x25,
        };
        whole(&old.encode(), (old, OLDSTYLE_BYTES), NbdGreeting::parse);
        whole(
            &encode_option(option::GO, b"")[..],
            (option::GO, 0),
            parse_option,
        );
        let reply = NbdOptionReply {
            option: 7,
            kind: reply::ERR_UNKNOWN,
            len: 0,
        };
        assert!(reply.is_error());
        whole(
            &NbdOptionReply::encode(7, reply::ERR_UNKNOWN, b""),
            reply,
            NbdOptionReply::parse,
        );
        whole(
            &encode_go("disk", &[3, 1]),
            ("disk".to_string(), vec![3, 1]),
            parse_go,
        );
        let query = encode_meta_query("d", &["base:allocation", "x-y:"]);
        let queries = vec!["base:allocation".to_string(), "x-y:".to_string()];
        whole(&query, ("d".to_string(), queries), parse_meta_query);
        let export = NbdInfo::Export(1 << 40, 0x1ff);
        whole(&export.encode(), export, NbdInfo::parse);
        let sizes = NbdInfo::BlockSizes(NbdBlockSizes {
            minimum: 1,
            preferred: 4096,
            payload_max: 1 << 25,
        });
        whole(&sizes.encode(), sizes, NbdInfo::parse);
        assert_eq!(
            parse_server(&encode_server("a", "b c")),
            Ok(("a".to_string(), "b c".to_string()))
        );
    }

    /// The bytes that nbdkit 1.32 sends ("nbdkit null 1M", read from its socket).
    #[test]
    fn bytes_sent_by_nbdkit_are_parsed() {
        let greeting = b"NBDMAGICIHAVEOPT\0\x03";
        assert_eq!(
            NbdGreeting::parse(greeting),
            Ok((NbdGreeting::Newstyle { flags: 3 }, 18))
        );
        let ack = b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x08\0\0\0\x01\0\0\0\0";
        assert_eq!(
            NbdOptionReply::parse(ack),
            Ok(NbdOptionReply {
                option: 8,
                kind: reply::ACK,
                len: 0
            })
        );
    }

    #[test]
    fn protocol_violations_are_malformed() {
        let bad = |result: Result<NbdInfo, ParseError>| {
            assert!(matches!(result, Err(ParseError::Malformed(_))))
        };
        let sizes = |minimum: u32, preferred: u32, payload_max: u32| {
            NbdInfo::parse(
                &NbdInfo::BlockSizes(NbdBlockSizes {
                    minimum,
                    preferred,
                    payload_max,
                })
                .encode(),
            )
        };
        bad(sizes(3, 4096, 1 << 20));
        bad(sizes(0, 4096, 1 << 20));
        bad(sizes(1 << 17, 1 << 17, 1 << 20));
        bad(sizes(4096, 512, 1 << 20));
        bad(sizes(4096, 4096, 100));
        bad(NbdInfo::parse(b"\0\x01a\0b"));
        bad(NbdInfo::parse(b"\0\x01\xff\xfe"));
        bad(NbdInfo::parse(&[&[0, 2][..], &[b'x'; 4097]].concat()));
        assert!(NbdGreeting::parse(b"SSH-2.0-OpenSSH_").is_err());
        assert!(parse_go(&[0xff; 64]).is_err());
        assert!(parse_meta_query(&[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]).is_err());
    }
}
