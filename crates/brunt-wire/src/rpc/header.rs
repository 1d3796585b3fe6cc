//! The headers themselves.

use super::Xid;
use crate::{Cursor, ParseError};

/// Bytes of a record mark (RFC 5531, 11).
pub const MARK_BYTES: usize = 4;
/// The body of an `opaque_auth` (RFC 5531, 8.2).
const AUTH_BYTES_MAX: u32 = 400;
/// The longest machine name and the most groups of AUTH_SYS (RFC 5531, appendix A).
const MACHINE_NAME_BYTES_MAX: u32 = 255;
const GROUPS_MAX: u32 = 16;

/// What stands before each fragment of a record on TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordMark {
    /// Bytes of the fragment that follows.
    pub len: u32,
    /// Whether the record ends with it.
    pub last: bool,
}

impl RecordMark {
    /// Reads a mark.
    #[inline]
    pub fn from_bytes(bytes: [u8; MARK_BYTES]) -> RecordMark {
        let word = u32::from_be_bytes(bytes);
        RecordMark { len: word & 0x7fff_ffff, last: word >> 31 == 1 }
    }
}

/// How a caller says who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthFlavor {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS: a uid and gids.
    Sys,
    /// AUTH_SHORT.
    Short,
    /// RPCSEC_GSS (RFC 2203): Kerberos, mostly.
    Gss,
    /// RPC_AUTH_TLS (RFC 9289).
    Tls,
    /// Another one.
    Other(u32),
}

/// Flavour and body of a credential or verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpaqueAuth<'a> {
    /// What the body is.
    pub flavor: AuthFlavor,
    /// At most 400 bytes.
    pub body: &'a [u8],
}

/// What AUTH_SYS says of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SysCredentials<'a> {
    /// The caller's host, as it calls itself.
    pub machine_name: &'a [u8],
    /// The effective user.
    pub uid: u32,
    /// The effective group.
    pub gid: u32,
    /// Further groups, big-endian words.
    pub groups: &'a [u8],
}

/// The header of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// Pairs with the reply's.
    pub xid: Xid,
    /// What is called: [`super::PROGRAM_NFS`], ...
    pub program: u32,
    /// The program's version.
    pub version: u32,
    /// Which of its procedures.
    pub procedure: u32,
    /// Who calls.
    pub credentials: OpaqueAuth<'a>,
    /// The proof of it.
    pub verifier: OpaqueAuth<'a>,
    /// Where the arguments start, in bytes from the start of the message.
    pub body_at: usize,
}

/// Whether the server ran the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // the RFC's own names
pub enum ReplyStatus {
    Success,
    ProgUnavail,
    ProgMismatch,
    ProcUnavail,
    GarbageArgs,
    SystemErr,
    /// The message was refused: RPC version mismatch.
    RpcMismatch,
    /// The message was refused: the credentials did not do (an `auth_stat`).
    AuthError(u32),
}

/// The header of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The call's.
    pub xid: Xid,
    /// How it went.
    pub status: ReplyStatus,
    /// The server's proof; none when the message was refused.
    pub verifier: Option<OpaqueAuth<'a>>,
    /// Where the results start, in bytes from the start of the message.
    pub body_at: usize,
}

/// A message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A call.
    Call(Call<'a>),
    /// A reply.
    Reply(Reply<'a>),
}

/// Reads the header at the start of a message (after the record mark).
///
/// # Errors
/// Cut short, or no RPC.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<Message<'_>, ParseError> {
    let mut cur = Cursor::new(bytes);
    let xid = Xid(cur.u32()?);
    match cur.u32()? {
        0 => call(cur, xid).map(Message::Call),
        1 => reply(cur, xid).map(Message::Reply),
        _ => Err(cur.malformed(4, "an RPC message is a call (0) or a reply (1)")),
    }
}

#[inline]
fn call<'a>(mut cur: Cursor<'a>, xid: Xid) -> Result<Call<'a>, ParseError> {
    if cur.u32()? != 2 {
        return Err(cur.malformed(4, "the RPC version is 2"));
    }
    let (program, version, procedure) = (cur.u32()?, cur.u32()?, cur.u32()?);
    let credentials = auth(&mut cur)?;
    let verifier = auth(&mut cur)?;
    Ok(Call { xid, program, version, procedure, credentials, verifier, body_at: cur.at() })
}

#[inline]
fn reply<'a>(mut cur: Cursor<'a>, xid: Xid) -> Result<Reply<'a>, ParseError> {
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
                _ => return Err(cur.malformed(4, "accept_stat is 0 to 5")),
            };
            Ok(Reply { xid, status, verifier, body_at: cur.at() })
        }
        1 => {
            let status = match cur.u32()? {
                0 => ReplyStatus::RpcMismatch,
                1 => ReplyStatus::AuthError(cur.u32()?),
                _ => return Err(cur.malformed(4, "reject_stat is 0 or 1")),
            };
            Ok(Reply { xid, status, verifier: None, body_at: cur.at() })
        }
        _ => Err(cur.malformed(4, "reply_stat is 0 or 1")),
    }
}

#[inline]
fn auth<'a>(cur: &mut Cursor<'a>) -> Result<OpaqueAuth<'a>, ParseError> {
    let flavor = match cur.u32()? {
        0 => AuthFlavor::None,
        1 => AuthFlavor::Sys,
        2 => AuthFlavor::Short,
        6 => AuthFlavor::Gss,
        7 => AuthFlavor::Tls,
        other => AuthFlavor::Other(other),
    };
    Ok(OpaqueAuth { flavor, body: cur.opaque(AUTH_BYTES_MAX, "credentials have at most 400 bytes")? })
}

impl<'a> OpaqueAuth<'a> {
    /// The caller as AUTH_SYS names it; `None` for other flavours and for damaged ones.
    pub fn sys(&self) -> Option<SysCredentials<'a>> {
        if self.flavor != AuthFlavor::Sys {
            return None;
        }
        let read = || -> Result<SysCredentials<'a>, ParseError> {
            let mut cur = Cursor::new(self.body);
            cur.skip(4)?;
            let machine_name = cur.opaque(MACHINE_NAME_BYTES_MAX, "a machine name has at most 255 bytes")?;
            let (uid, gid) = (cur.u32()?, cur.u32()?);
            let count = cur.count(GROUPS_MAX, "AUTH_SYS carries at most 16 groups")?;
            Ok(SysCredentials { machine_name, uid, gid, groups: cur.take(count as usize * 4)? })
        };
        read().ok()
    }

    /// The service of RPCSEC_GSS (RFC 2203, 5.3.1): 1 none, 2 integrity, 3 privacy.
    pub fn gss_service(&self) -> Option<u32> {
        if self.flavor != AuthFlavor::Gss {
            return None;
        }
        // version, procedure, sequence number, service
        Some(u32::from_be_bytes(*self.body.get(12..)?.first_chunk()?))
    }
}
