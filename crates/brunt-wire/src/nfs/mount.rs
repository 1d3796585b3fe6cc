//! MOUNT version 3 (RFC 1813, appendix I). It gives a client the handle of an export's root, and shows an observer
//! which path the handle belongs to.

use super::{FILE_HANDLE_V3_BYTES_MAX, FileHandle};
use crate::rpc::AuthFlavor;
use crate::{Cursor, ParseError, XdrWriter};

/// Maximum length of a path in MOUNT (`MNTPATHLEN`).
pub const MOUNT_PATH_BYTES_MAX: u32 = 1024;
/// Procedure names, by number.
pub const PROCEDURE_NAMES: [&str; 6] = ["NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT"];

/// A client's request to the mount service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Args<'a> {
    /// NULL, DUMP, UMNTALL and EXPORT have no arguments.
    Empty,
    /// MNT: requests the handle of this export.
    Mount(&'a [u8]),
    /// UMNT.
    Unmount(&'a [u8]),
}

/// The mount service's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results<'a> {
    /// NULL, UMNT and UMNTALL return nothing; DUMP and EXPORT return lists that are not parsed.
    Empty,
    /// MNT failed with this `mountstat3`.
    Failed(u32),
    /// MNT: the root's handle.
    Mounted(FileHandle<'a>),
}

/// Parses the arguments of procedure number `procedure`.
///
/// # Errors
/// The arguments are truncated or malformed.
pub fn parse_args<'a>(procedure: u32, cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let mut path = || cur.opaque(MOUNT_PATH_BYTES_MAX, "mount path longer than 1024 bytes");
    Ok(match procedure {
        1 => Args::Mount(path()?),
        3 => Args::Unmount(path()?),
        _ => Args::Empty,
    })
}

/// Parses the results of procedure number `procedure`.
///
/// # Errors
/// The results are truncated or malformed.
pub fn parse_results<'a>(procedure: u32, cur: &mut Cursor<'a>) -> Result<Results<'a>, ParseError> {
    if procedure != 1 {
        return Ok(Results::Empty);
    }
    Ok(match cur.u32()? {
        0 => Results::Mounted(FileHandle(
            cur.opaque(FILE_HANDLE_V3_BYTES_MAX, "file handle longer than 64 bytes")?,
        )),
        status => Results::Failed(status),
    })
}

impl Args<'_> {
    /// Appends the arguments to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Args::Empty => {}
            Args::Mount(path) | Args::Unmount(path) => XdrWriter::new(out).opaque(path),
        }
    }
}

impl Results<'_> {
    /// Appends the results to `out`. For a mounted export, the results offer AUTH_SYS.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut out = XdrWriter::new(out);
        match self {
            Results::Empty => {}
            Results::Failed(status) => out.u32(*status),
            Results::Mounted(FileHandle(root)) => {
                out.u32(0);
                out.opaque(root);
                out.u32(1);
                out.u32(AuthFlavor::Sys.number());
            }
        }
    }
}

/// The RFC's name for a `mountstat3`, if it has one.
pub const fn status_name(status: u32) -> Option<&'static str> {
    Some(match status {
        0 => "MNT3_OK",
        1 => "MNT3ERR_PERM",
        2 => "MNT3ERR_NOENT",
        5 => "MNT3ERR_IO",
        13 => "MNT3ERR_ACCES",
        20 => "MNT3ERR_NOTDIR",
        22 => "MNT3ERR_INVAL",
        63 => "MNT3ERR_NAMETOOLONG",
        10004 => "MNT3ERR_NOTSUPP",
        10006 => "MNT3ERR_SERVERFAULT",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encoded messages parse back to the same values, consuming all argument bytes.
    #[test]
    fn encoded_messages_are_parsed_back() {
        for (procedure, args) in [
            (0, Args::Empty),
            (1, Args::Mount(b"/export")),
            (3, Args::Unmount(b"/e")),
        ] {
            let mut bytes = Vec::new();
            args.encode(&mut bytes);
            let mut cur = Cursor::new(&bytes);
            assert_eq!(parse_args(procedure, &mut cur), Ok(args));
            assert_eq!(cur.rest(), []);
        }
        let root = [7; 33];
        for results in [Results::Failed(13), Results::Mounted(FileHandle(&root))] {
            let mut bytes = Vec::new();
            results.encode(&mut bytes);
            assert_eq!(parse_results(1, &mut Cursor::new(&bytes)), Ok(results));
        }
    }
}
