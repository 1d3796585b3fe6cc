//! RPC record marks, headers and credentials.

use super::Xid;
use crate::{Cursor, ParseError};

/// Bytes of a record mark (RFC 5531, 11).
pub const MARK_BYTES: usize = 4;
/// Maximum body of an `opaque_auth` (RFC 5531, 8.2).
pub(super) const AUTH_BYTES_MAX: u32 = 400;
/// Maximum length of the machine name in AUTH_SYS (RFC 5531, appendix A).
pub const MACHINE_NAME_BYTES_MAX: u32 = 255;
/// Maximum number of groups in AUTH_SYS (RFC 5531, appendix A).
pub const GROUPS_MAX: u32 = 16;

/// Precedes each fragment of a record on TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordMark {
    /// Length in bytes of the fragment that follows.
    pub len: u32,
    /// Whether this is the record's last fragment.
    pub last: bool,
}

impl RecordMark {
    /// Parses a mark.
    #[inline]
    pub fn from_bytes(bytes: [u8; MARK_BYTES]) -> RecordMark {
        let word = u32::from_be_bytes(bytes);
        RecordMark {
            len: word & 0x7fff_ffff,
            last: word >> 31 == 1,
        }
    }

    /// The mark on the wire.
    ///
    /// # Panics
    /// Panics if the fragment is longer than 2^31 - 1 bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; MARK_BYTES] {
        assert!(
            self.len < 1 << 31,
            "the length of a fragment fits in 31 bits"
        );
        (u32::from(self.last) << 31 | self.len).to_be_bytes()
    }
}

/// The authentication flavor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthFlavor {
    /// AUTH_NONE.
    #[default]
    None,
    /// AUTH_SYS: a uid and gids.
    Sys,
    /// AUTH_SHORT.
    Short,
    /// RPCSEC_GSS (RFC 2203), usually Kerberos.
    Gss,
    /// RPC_AUTH_TLS (RFC 9289).
    Tls,
    /// Another flavor.
    Other(u32),
}

impl AuthFlavor {
    /// Converts from the number on the wire.
    #[inline]
    pub const fn from_number(number: u32) -> AuthFlavor {
        match number {
            0 => AuthFlavor::None,
            1 => AuthFlavor::Sys,
            2 => AuthFlavor::Short,
            6 => AuthFlavor::Gss,
            7 => AuthFlavor::Tls,
            other => AuthFlavor::Other(other),
        }
    }

    /// The number on the wire.
    #[inline]
    pub const fn number(self) -> u32 {
        match self {
            AuthFlavor::None => 0,
            AuthFlavor::Sys => 1,
            AuthFlavor::Short => 2,
            AuthFlavor::Gss => 6,
            AuthFlavor::Tls => 7,
            AuthFlavor::Other(other) => other,
        }
    }

    /// Whether the number is within a range that IANA has assigned in its registry of RPC authentication flavors.
    pub const fn is_assigned(self) -> bool {
        matches!(
            self.number(),
            0..=7 | 30_001 | 200_000..=200_255 | 300_000..=300_255 | 390_000..=390_255
        )
    }
}

/// Flavor and body of a credential or verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpaqueAuth<'a> {
    /// The flavor of the body.
    pub flavor: AuthFlavor,
    /// The body, of at most 400 bytes.
    pub body: &'a [u8],
}

/// The caller's identity in AUTH_SYS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SysCredentials<'a> {
    /// The caller's host name, as claimed by the caller.
    pub machine_name: &'a [u8],
    /// The effective user.
    pub uid: u32,
    /// The effective group.
    pub gid: u32,
    /// Supplementary groups, as big-endian words.
    pub groups: &'a [u8],
}

/// The header of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcCall<'a> {
    /// The transaction id, which the reply repeats.
    pub xid: Xid,
    /// The program called: [`super::PROGRAM_NFS`], ...
    pub program: u32,
    /// The program's version.
    pub version: u32,
    /// The procedure called.
    pub procedure: u32,
    /// The caller's identity.
    pub credentials: OpaqueAuth<'a>,
    /// The proof of the identity.
    pub verifier: OpaqueAuth<'a>,
    /// Offset of the arguments in bytes from the start of the message.
    pub body_at: usize,
}

/// The layout of a call's header, without its bytes. Kept with a copy of the message, so that the header need not be
/// parsed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallLayout {
    xid: Xid,
    program: u32,
    version: u32,
    procedure: u32,
    flavors: [AuthFlavor; 2],
    lens: [u16; 2],
    body_at: u16,
}

impl RpcCall<'_> {
    /// Whether a message of `message_len` bytes that parses as this call is likely to be a call: NTP and CAPWAP
    /// packets may begin with the same words.
    pub fn is_credible(&self, message_len: usize) -> bool {
        // By convention, procedure 0 takes no arguments (RFC 5531, 12.1); only RPCSEC_GSS sends tokens with it
        // (RFC 2203, 5.2.2).
        let takes_arguments = self.procedure != 0 || self.credentials.flavor == AuthFlavor::Gss;
        self.credentials.flavor.is_assigned()
            && self.verifier.flavor.is_assigned()
            && (takes_arguments || message_len <= self.body_at)
    }

    /// The layout of the header. A header has at most 40 bytes and two bodies of 400 bytes, so 16 bits are enough.
    #[inline]
    pub fn layout(&self) -> CallLayout {
        CallLayout {
            xid: self.xid,
            program: self.program,
            version: self.version,
            procedure: self.procedure,
            flavors: [self.credentials.flavor, self.verifier.flavor],
            lens: [
                self.credentials.body.len() as u16,
                self.verifier.body.len() as u16,
            ],
            body_at: self.body_at as u16,
        }
    }
}

impl CallLayout {
    /// Restores the header from a copy of the message from which it was parsed; `None` if the copy is too short.
    #[inline]
    pub fn of<'a>(&self, message: &'a [u8]) -> Option<RpcCall<'a>> {
        let [credentials_len, verifier_len] = self.lens.map(usize::from);
        let header = message.get(..usize::from(self.body_at))?;
        let verifier_at = CREDENTIALS_AT + credentials_len.next_multiple_of(4) + 8;
        let body = |at: usize, len: usize| header.get(at..at + len);
        Some(RpcCall {
            xid: self.xid,
            program: self.program,
            version: self.version,
            procedure: self.procedure,
            credentials: OpaqueAuth {
                flavor: self.flavors[0],
                body: body(CREDENTIALS_AT, credentials_len)?,
            },
            verifier: OpaqueAuth {
                flavor: self.flavors[1],
                body: body(verifier_at, verifier_len)?,
            },
            body_at: usize::from(self.body_at),
        })
    }
}

/// Whether the server executed the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // the RFC's own names
pub enum ReplyStatus {
    Success,
    ProgUnavail,
    ProgMismatch,
    ProcUnavail,
    GarbageArgs,
    SystemErr,
    /// The message was denied: RPC version mismatch.
    RpcMismatch,
    /// The message was denied: the credentials were not accepted (an `auth_stat`).
    AuthError(u32),
}

/// The header of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcReply<'a> {
    /// The call's xid.
    pub xid: Xid,
    /// The outcome.
    pub status: ReplyStatus,
    /// The server's verifier; `None` if the message was denied.
    pub verifier: Option<OpaqueAuth<'a>>,
    /// Offset of the results in bytes from the start of the message.
    pub body_at: usize,
}

/// A message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcMessage<'a> {
    /// A call.
    Call(RpcCall<'a>),
    /// A reply.
    Reply(RpcReply<'a>),
}

/// Parses the header at the start of a message (after the record mark).
///
/// # Errors
/// The message is truncated, or is not RPC.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<RpcMessage<'_>, ParseError> {
    if let Some(call) = plain_call(bytes) {
        Ok(RpcMessage::Call(call))
    } else if let Some(reply) = plain_reply(bytes) {
        Ok(RpcMessage::Reply(reply))
    } else {
        parse_any(bytes)
    }
}

/// Offset of the credentials' body, after the fixed words of a call.
const CREDENTIALS_AT: usize = 32;

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The opaque at `at`; returns its body, and the offset after its padding.
#[inline(always)]
fn whole_auth(bytes: &[u8], flavor: u32, len: u32, at: usize) -> Option<(OpaqueAuth<'_>, usize)> {
    if len > AUTH_BYTES_MAX {
        return None;
    }
    let body = bytes.get(at..at + len as usize)?;
    Some((
        OpaqueAuth {
            flavor: AuthFlavor::from_number(flavor),
            body,
        },
        at + (len as usize).next_multiple_of(4),
    ))
}

/// Fast path for a complete and ordinary call, as almost all are: one bounds check per part of the header instead of
/// one per word. All others are left to [`parse`], which reports errors.
// Always inlined, like `plain_reply`, so that the parts never leave the registers; a copy through memory would have
// to wait for each store.
#[inline(always)]
pub fn plain_call(bytes: &[u8]) -> Option<RpcCall<'_>> {
    let fixed = bytes.first_chunk::<CREDENTIALS_AT>()?;
    if word(fixed, 4) != 0 || word(fixed, 8) != 2 {
        return None;
    }
    let (credentials, at) = whole_auth(bytes, word(fixed, 24), word(fixed, 28), CREDENTIALS_AT)?;
    let lead = bytes.get(at..)?.first_chunk::<8>()?;
    let (verifier, body_at) = whole_auth(bytes, word(lead, 0), word(lead, 4), at + 8)?;
    (body_at <= bytes.len()).then_some(RpcCall {
        xid: Xid(word(fixed, 0)),
        program: word(fixed, 12),
        version: word(fixed, 16),
        procedure: word(fixed, 20),
        credentials,
        verifier,
        body_at,
    })
}

/// Fast path for the header of an accepted, successful reply; `None` leaves the reply to [`parse`].
#[inline(always)]
pub fn plain_reply(bytes: &[u8]) -> Option<RpcReply<'_>> {
    let fixed = bytes.first_chunk::<20>()?;
    if word(fixed, 4) != 1 || word(fixed, 8) != 0 {
        return None;
    }
    let (verifier, at) = whole_auth(bytes, word(fixed, 12), word(fixed, 16), 20)?;
    let accepted = u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?);
    (accepted == 0).then_some(RpcReply {
        xid: Xid(word(fixed, 0)),
        status: ReplyStatus::Success,
        verifier: Some(verifier),
        body_at: at + 4,
    })
}

#[cold]
fn parse_any(bytes: &[u8]) -> Result<RpcMessage<'_>, ParseError> {
    let mut cur = Cursor::new(bytes);
    let xid = Xid(cur.u32()?);
    match cur.u32()? {
        0 => call(cur, xid).map(RpcMessage::Call),
        1 => reply(cur, xid).map(RpcMessage::Reply),
        _ => Err(cur.malformed(4, "message type is neither CALL (0) nor REPLY (1)")),
    }
}

#[inline]
fn call<'a>(mut cur: Cursor<'a>, xid: Xid) -> Result<RpcCall<'a>, ParseError> {
    if cur.u32()? != 2 {
        return Err(cur.malformed(4, "RPC version is not 2"));
    }
    let (program, version, procedure) = (cur.u32()?, cur.u32()?, cur.u32()?);
    let credentials = auth(&mut cur)?;
    let verifier = auth(&mut cur)?;
    Ok(RpcCall {
        xid,
        program,
        version,
        procedure,
        credentials,
        verifier,
        body_at: cur.at(),
    })
}

#[inline]
fn reply<'a>(mut cur: Cursor<'a>, xid: Xid) -> Result<RpcReply<'a>, ParseError> {
    match cur.u32()? {
        0 => {
            let verifier = Some(auth(&mut cur)?);
            let status = match cur.u32()? {
                0 => ReplyStatus::Success,
                1 => ReplyStatus::ProgUnavail,
                2 => ReplyStatus::ProgMismatch,
                3 => ReplyStatus::ProcUnavail,
                4 => ReplyStatus::GarbageArgs,
                5 => ReplyStatus::SystemErr,
                _ => return Err(cur.malformed(4, "accept_stat is not 0 to 5")),
            };
            Ok(RpcReply {
                xid,
                status,
                verifier,
                body_at: cur.at(),
            })
        }
        1 => {
            let status = match cur.u32()? {
                0 => ReplyStatus::RpcMismatch,
                1 => ReplyStatus::AuthError(cur.u32()?),
                _ => return Err(cur.malformed(4, "reject_stat is neither 0 nor 1")),
            };
            Ok(RpcReply {
                xid,
                status,
                verifier: None,
                body_at: cur.at(),
            })
        }
        _ => Err(cur.malformed(4, "reply_stat is neither 0 nor 1")),
    }
}

#[inline]
fn auth<'a>(cur: &mut Cursor<'a>) -> Result<OpaqueAuth<'a>, ParseError> {
    let flavor = AuthFlavor::from_number(cur.u32()?);
    Ok(OpaqueAuth {
        flavor,
        body: cur.opaque(AUTH_BYTES_MAX, "credentials longer than 400 bytes")?,
    })
}

impl<'a> OpaqueAuth<'a> {
    /// The caller's AUTH_SYS identity; `None` for other flavors and damaged bodies.
    pub fn sys(&self) -> Option<SysCredentials<'a>> {
        if self.flavor != AuthFlavor::Sys {
            return None;
        }
        let read = || -> Result<SysCredentials<'a>, ParseError> {
            let mut cur = Cursor::new(self.body);
            cur.skip(4)?;
            let machine_name =
                cur.opaque(MACHINE_NAME_BYTES_MAX, "machine name longer than 255 bytes")?;
            let (uid, gid) = (cur.u32()?, cur.u32()?);
            let count = cur.count(GROUPS_MAX, "AUTH_SYS with more than 16 groups")?;
            Ok(SysCredentials {
                machine_name,
                uid,
                gid,
                groups: cur.take(count as usize * 4)?,
            })
        };
        read().ok()
    }

    /// The RPCSEC_GSS service (RFC 2203, 5.3.1): 1 none, 2 integrity, 3 privacy.
    pub fn gss_service(&self) -> Option<u32> {
        if self.flavor != AuthFlavor::Gss {
            return None;
        }
        // version, procedure, sequence number, service
        Some(u32::from_be_bytes(*self.body.get(12..)?.first_chunk()?))
    }
}
