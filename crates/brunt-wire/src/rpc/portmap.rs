//! The port mapper, version 2 (RFC 1833, 3), which maps a server's programs to ports. The one rule: only GETPORT is
//! implemented, because nothing else is needed.

use crate::{Cursor, ParseError, XdrWriter};

/// The port mapper's port.
pub const PORTMAP_PORT: u16 = 111;
/// The version of the protocol.
pub const PORTMAP_VERSION: u32 = 2;
/// The procedure GETPORT.
pub const PORTMAP_GETPORT: u32 = 3;
/// TCP, as the `prot` of a mapping.
pub const PORTMAP_TCP: u32 = 6;

/// `mapping`: a program and its port. In a GETPORT call the port is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortMapping {
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The IP protocol number of the transport.
    pub protocol: u32,
    /// The port.
    pub port: u32,
}

impl PortMapping {
    /// Appends the mapping to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut out = XdrWriter::new(out);
        for word in [self.program, self.version, self.protocol, self.port] {
            out.u32(word);
        }
    }

    /// Parses it.
    ///
    /// # Errors
    /// The mapping is truncated.
    pub fn parse(cur: &mut Cursor<'_>) -> Result<PortMapping, ParseError> {
        Ok(PortMapping {
            program: cur.u32()?,
            version: cur.u32()?,
            protocol: cur.u32()?,
            port: cur.u32()?,
        })
    }
}

/// Parses the results of GETPORT; `None` if the program is not registered.
///
/// # Errors
/// The results are truncated, or contain an invalid port number.
pub fn parse_port(cur: &mut Cursor<'_>) -> Result<Option<u16>, ParseError> {
    let port = cur.count(u16::MAX.into(), "port is larger than 65535")?;
    Ok((port > 0).then_some(port as u16))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Malformed;

    #[test]
    fn mappings_and_ports_are_parsed_back() {
        let mapping = PortMapping {
            program: 100_003,
            version: 3,
            protocol: PORTMAP_TCP,
            port: 2049,
        };
        let mut bytes = Vec::new();
        mapping.encode(&mut bytes);
        assert_eq!(PortMapping::parse(&mut Cursor::new(&bytes)), Ok(mapping));
        assert!(PortMapping::parse(&mut Cursor::new(&bytes[..15])).is_err());
        let check = |word: u32, expected| {
            assert_eq!(parse_port(&mut Cursor::new(&word.to_be_bytes())), expected);
        };
        check(0, Ok(None));
        check(2049, Ok(Some(2049)));
        check(
            65536,
            Err(Malformed::new(0, "port is larger than 65535").into()),
        );
    }
}
