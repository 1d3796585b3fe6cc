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

/// Declares the statuses other than success with their numbers, names and meanings.
macro_rules! statuses {
    ($($number:literal $name:ident $meaning:literal),* $(,)?) => {
        impl Status {
            /// Success.
            pub const OK: Status = Status(0);
            $(#[doc = $meaning] pub const $name: Status = Status($number);)*

            /// The RFC's name, if it has one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    0 => Some("NFS3_OK"),
                    $($number => Some(concat!("NFS3ERR_", stringify!($name))),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    1 PERM "Only the owner or a privileged user may do this.",
    2 NOENT "There is no such file or directory.",
    5 IO "Input or output failed on the server.",
    6 NXIO "The device does not exist.",
    13 ACCES "The caller has no permission.",
    17 EXIST "The file exists.",
    18 XDEV "The link would lead to another file system.",
    19 NODEV "There is no such device.",
    20 NOTDIR "It is not a directory.",
    21 ISDIR "It is a directory.",
    22 INVAL "An argument is invalid.",
    27 FBIG "The file would be too large.",
    28 NOSPC "The file system is full.",
    30 ROFS "The file system is read-only.",
    31 MLINK "The file has too many links.",
    63 NAMETOOLONG "The name is too long.",
    66 NOTEMPTY "The directory is not empty.",
    69 DQUOT "The quota is used up.",
    70 STALE "The handle is stale: the file no longer exists.",
    71 REMOTE "The path has too many levels of remote file systems.",
    10001 BADHANDLE "The handle is malformed.",
    10002 NOT_SYNC "The file has changed since the time in the guard of SETATTR.",
    10003 BAD_COOKIE "The cookie of a directory listing is no longer valid.",
    10004 NOTSUPP "The server does not support the operation.",
    10005 TOOSMALL "The buffer or request is too small.",
    10006 SERVERFAULT "The server failed in a way that no other status describes.",
    10007 BADTYPE "The server does not support this type of file.",
    10008 JUKEBOX "The server cannot answer yet; the client should retry later.",
}

#[cfg(test)]
mod round_trip;
#[cfg(test)]
mod tests;
