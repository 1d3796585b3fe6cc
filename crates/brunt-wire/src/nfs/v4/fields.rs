//! The fields that occur in arguments, results and callbacks.

use super::attributes::{Bitmap, NfsTime};
use super::{FILE_HANDLE_BYTES_MAX, OPAQUE_BYTES_MAX, Stateid};
use crate::nfs::v3::StableHow;
use crate::nfs::{FileHandle, path};
use crate::{Cursor, ParseError};

/// Maximum length of skipped opaques: layouts, devices, keys.
const BODY_BYTES_MAX: u32 = 1 << 20;
/// Maximum number of elements in skipped lists.
const ELEMENTS_MAX: u32 = 4096;

#[inline]
pub(super) fn handle<'a>(cur: &mut Cursor<'a>) -> Result<FileHandle<'a>, ParseError> {
    cur.opaque(FILE_HANDLE_BYTES_MAX, "file handle longer than 128 bytes")
        .map(FileHandle)
}

#[inline]
pub(super) fn opaque<'a>(cur: &mut Cursor<'a>) -> Result<&'a [u8], ParseError> {
    cur.opaque(OPAQUE_BYTES_MAX, "owner or verifier longer than 1024 bytes")
}

#[inline]
pub(super) fn body<'a>(cur: &mut Cursor<'a>) -> Result<&'a [u8], ParseError> {
    cur.opaque(BODY_BYTES_MAX, "body longer than 1 MiB")
}

#[inline]
pub(super) fn elements(cur: &mut Cursor<'_>) -> Result<u32, ParseError> {
    cur.count(ELEMENTS_MAX, "list of more than 4096 elements")
}

#[inline]
pub(super) fn stateid<'a>(cur: &mut Cursor<'a>) -> Result<&'a Stateid, ParseError> {
    cur.view()
}

#[inline]
pub(super) fn stable_how(cur: &mut Cursor<'_>) -> Result<StableHow, ParseError> {
    Ok(match cur.u32()? {
        0 => StableHow::Unstable,
        1 => StableHow::DataSync,
        2 => StableHow::FileSync,
        _ => return Err(cur.malformed(4, "stable_how4 is not 0 to 2")),
    })
}

/// `netaddr4`: a network id and an address in that network.
pub(super) fn network_address(cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    opaque(cur)?;
    opaque(cur)?;
    Ok(())
}

/// `netloc4`.
pub(super) fn network_location(cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    match cur.u32()? {
        1 | 2 => path(cur).map(|_| ()),
        3 => network_address(cur),
        _ => Err(cur.malformed(4, "netloc_type4 is not 1 to 3")),
    }
}

/// `nfs_impl_id4<1>`: the peer's implementation.
pub(super) fn implementation(cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    if cur.count(1, "more than one implementation")? == 1 {
        network_address(cur)?;
        NfsTime::read(cur)?;
    }
    Ok(())
}

/// Two bitmaps of operations: those that must be protected, and those that may be.
pub(super) fn protected_operations(cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    Bitmap::read(cur)?;
    Bitmap::read(cur).map(|_| ())
}

/// `channel_attrs4`: the limits of one direction of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionChannel {
    /// Maximum bytes of a request, including its RPC header.
    pub request_bytes_max: u32,
    /// Maximum bytes of a reply, including its RPC header.
    pub response_bytes_max: u32,
    /// Maximum bytes of a reply that the receiver keeps for retransmissions.
    pub cached_bytes_max: u32,
    /// Maximum operations in a compound.
    pub operations_max: u32,
    /// Maximum concurrent requests.
    pub slots: u32,
}

pub(super) fn channel(cur: &mut Cursor<'_>) -> Result<SessionChannel, ParseError> {
    // headerpadsize
    cur.skip(4)?;
    let channel = SessionChannel {
        request_bytes_max: cur.u32()?,
        response_bytes_max: cur.u32()?,
        cached_bytes_max: cur.u32()?,
        operations_max: cur.u32()?,
        slots: cur.u32()?,
    };
    let ird = cur.count(1, "more than one RDMA depth")?;
    cur.skip(ird as usize * 4)?;
    Ok(channel)
}
