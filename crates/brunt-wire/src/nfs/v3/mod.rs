//! NFSv3 (RFC 1813): all 22 procedures, calls and replies, in both directions.

mod args;
mod attributes;
mod encode;
mod results;

pub use args::{
    Args, CreateHow, DirOp, NodeKind, SetAttributes, SetTime, StableHow, leading_handle,
    parse_args, read_args,
};
pub use attributes::{Attributes, FileType, NfsTime, PreOpAttributes, Wcc};
pub use results::{Entries, Entry, ResultBody, Results, parse_results, read_results};

/// Declares the procedures with their numbers and names.
macro_rules! procedures {
    ($($number:literal $variant:ident $name:literal),* $(,)?) => {
        /// A procedure of NFSv3.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)] // the RFC's own names
        #[repr(u8)]
        pub enum Procedure { $($variant = $number),* }

        impl Procedure {
            /// All procedures, by number.
            pub const ALL: [Procedure; 22] = [$(Procedure::$variant),*];

            /// The RFC's name, without its prefix.
            pub const fn name(self) -> &'static str {
                match self { $(Procedure::$variant => $name),* }
            }

            /// Looks up a procedure by number.
            #[inline]
            pub const fn from_number(number: u32) -> Option<Procedure> {
                match number { $($number => Some(Procedure::$variant),)* _ => None }
            }
        }
    };
}

procedures! {
    0 Null "NULL", 1 Getattr "GETATTR", 2 Setattr "SETATTR", 3 Lookup "LOOKUP", 4 Access "ACCESS",
    5 Readlink "READLINK", 6 Read "READ", 7 Write "WRITE", 8 Create "CREATE", 9 Mkdir "MKDIR",
    10 Symlink "SYMLINK", 11 Mknod "MKNOD", 12 Remove "REMOVE", 13 Rmdir "RMDIR", 14 Rename "RENAME",
    15 Link "LINK", 16 Readdir "READDIR", 17 Readdirplus "READDIRPLUS", 18 Fsstat "FSSTAT",
    19 Fsinfo "FSINFO", 20 Pathconf "PATHCONF", 21 Commit "COMMIT",
}

/// A status of NFSv3 (`nfsstat3`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Status(pub u32);

impl Status {
    /// Success.
    pub const OK: Status = Status(0);
    /// There is no such file or directory.
    pub const NOENT: Status = Status(2);
    /// The handle is stale: the file no longer exists.
    pub const STALE: Status = Status(70);
    /// The server cannot answer yet; the client should retry later.
    pub const JUKEBOX: Status = Status(10008);

    /// The RFC's name, if it has one.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0 => "NFS3_OK",
            1 => "NFS3ERR_PERM",
            2 => "NFS3ERR_NOENT",
            5 => "NFS3ERR_IO",
            6 => "NFS3ERR_NXIO",
            13 => "NFS3ERR_ACCES",
            17 => "NFS3ERR_EXIST",
            18 => "NFS3ERR_XDEV",
            19 => "NFS3ERR_NODEV",
            20 => "NFS3ERR_NOTDIR",
            21 => "NFS3ERR_ISDIR",
            22 => "NFS3ERR_INVAL",
            27 => "NFS3ERR_FBIG",
            28 => "NFS3ERR_NOSPC",
            30 => "NFS3ERR_ROFS",
            31 => "NFS3ERR_MLINK",
            63 => "NFS3ERR_NAMETOOLONG",
            66 => "NFS3ERR_NOTEMPTY",
            69 => "NFS3ERR_DQUOT",
            70 => "NFS3ERR_STALE",
            71 => "NFS3ERR_REMOTE",
            10001 => "NFS3ERR_BADHANDLE",
            10002 => "NFS3ERR_NOT_SYNC",
            10003 => "NFS3ERR_BAD_COOKIE",
            10004 => "NFS3ERR_NOTSUPP",
            10005 => "NFS3ERR_TOOSMALL",
            10006 => "NFS3ERR_SERVERFAULT",
            10007 => "NFS3ERR_BADTYPE",
            10008 => "NFS3ERR_JUKEBOX",
            _ => return None,
        })
    }
}

#[cfg(test)]
mod round_trip;
#[cfg(test)]
mod tests;
