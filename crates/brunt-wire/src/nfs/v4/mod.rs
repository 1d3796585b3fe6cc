//! NFSv4.0, 4.1 and 4.2 (RFC 7530, 8881, 7862; extended attributes from RFC 8276): compounds, their operations,
//! callbacks. Called after the RPC header was parsed, by the capture pipeline, NFS client and NFS server.
//!
//! A compound doesn't contain the lengths of its operations, so an operation must be parsed completely to find where
//! it ends. The one rule: an unknown operation ends the parsing of its compound and is reported ([`Args::Unknown`],
//! [`ResultBody::Unknown`]); nothing after it is guessed.

mod args;
mod attributes;
mod callback;
mod compound;
mod encode;
mod fields;
mod parse_args;
mod results;
mod status;

pub use args::{Args, CreateKind, Locker, OpenClaim, OpenCreate, Stateid};
pub use attributes::{Attributes, Bitmap, FileAttributes, NfsTime, SetTime, bitmap_words};
pub use callback::{CallbackArgs, CallbackCompound, CallbackOps};
pub use compound::{
    CompoundArgs, CompoundEnd, CompoundOperations, CompoundResults, CompoundStep, CurrentFile,
    Replies, Walk,
};
pub use encode::{ANONYMOUS, AttributeList, CURRENT_STATEID, write_set_time, write_time};
pub use fields::SessionChannel;
pub use results::{
    ChangeInfo, Delegation, Entries, Entry, OpResult, ResultBody, Segment, Segments,
};
pub use status::Status;

/// Maximum length of an NFSv4 handle (RFC 8881, 3.1).
pub const FILE_HANDLE_BYTES_MAX: u32 = 128;
/// Maximum length of an opaque that identifies an owner, a client or a server (RFC 8881, 3.1).
pub const OPAQUE_BYTES_MAX: u32 = 1024;
/// Maximum number of operations in a compound. The RFCs set no limit; clients negotiate a few dozen at most.
pub const OPERATIONS_MAX: u32 = 1024;
/// The procedure number of COMPOUND and of CB_COMPOUND.
pub const PROCEDURE_COMPOUND: u32 = 1;

/// Declares the operations with their numbers and names.
macro_rules! operations {
    ($($number:literal $variant:ident $name:literal),* $(,)?) => {
        /// An operation of NFSv4.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)] // the RFCs' own names
        #[repr(u16)]
        pub enum Op { $($variant = $number),* }

        impl Op {
            /// All operations, by number.
            pub const ALL: &'static [Op] = &[$(Op::$variant),*];

            /// The name in the RFCs, without its prefix.
            pub const fn name(self) -> &'static str {
                match self { $(Op::$variant => $name),* }
            }

            /// Looks up an operation by number.
            #[inline]
            pub const fn from_number(number: u32) -> Option<Op> {
                match number { $($number => Some(Op::$variant),)* _ => None }
            }
        }
    };
}

operations! {
    3 Access "ACCESS", 4 Close "CLOSE", 5 Commit "COMMIT", 6 Create "CREATE", 7 Delegpurge "DELEGPURGE",
    8 Delegreturn "DELEGRETURN", 9 Getattr "GETATTR", 10 Getfh "GETFH", 11 Link "LINK", 12 Lock "LOCK",
    13 Lockt "LOCKT", 14 Locku "LOCKU", 15 Lookup "LOOKUP", 16 Lookupp "LOOKUPP", 17 Nverify "NVERIFY",
    18 Open "OPEN", 19 Openattr "OPENATTR", 20 OpenConfirm "OPEN_CONFIRM", 21 OpenDowngrade "OPEN_DOWNGRADE",
    22 Putfh "PUTFH", 23 Putpubfh "PUTPUBFH", 24 Putrootfh "PUTROOTFH", 25 Read "READ", 26 Readdir "READDIR",
    27 Readlink "READLINK", 28 Remove "REMOVE", 29 Rename "RENAME", 30 Renew "RENEW", 31 Restorefh "RESTOREFH",
    32 Savefh "SAVEFH", 33 Secinfo "SECINFO", 34 Setattr "SETATTR", 35 Setclientid "SETCLIENTID",
    36 SetclientidConfirm "SETCLIENTID_CONFIRM", 37 Verify "VERIFY", 38 Write "WRITE",
    39 ReleaseLockowner "RELEASE_LOCKOWNER", 40 BackchannelCtl "BACKCHANNEL_CTL",
    41 BindConnToSession "BIND_CONN_TO_SESSION", 42 ExchangeId "EXCHANGE_ID", 43 CreateSession "CREATE_SESSION",
    44 DestroySession "DESTROY_SESSION", 45 FreeStateid "FREE_STATEID", 46 GetDirDelegation "GET_DIR_DELEGATION",
    47 Getdeviceinfo "GETDEVICEINFO", 48 Getdevicelist "GETDEVICELIST", 49 Layoutcommit "LAYOUTCOMMIT",
    50 Layoutget "LAYOUTGET", 51 Layoutreturn "LAYOUTRETURN", 52 SecinfoNoName "SECINFO_NO_NAME",
    53 Sequence "SEQUENCE", 54 SetSsv "SET_SSV", 55 TestStateid "TEST_STATEID", 56 WantDelegation "WANT_DELEGATION",
    57 DestroyClientid "DESTROY_CLIENTID", 58 ReclaimComplete "RECLAIM_COMPLETE", 59 Allocate "ALLOCATE",
    60 Copy "COPY", 61 CopyNotify "COPY_NOTIFY", 62 Deallocate "DEALLOCATE", 63 IoAdvise "IO_ADVISE",
    64 Layouterror "LAYOUTERROR", 65 Layoutstats "LAYOUTSTATS", 66 OffloadCancel "OFFLOAD_CANCEL",
    67 OffloadStatus "OFFLOAD_STATUS", 68 ReadPlus "READ_PLUS", 69 Seek "SEEK", 70 WriteSame "WRITE_SAME",
    71 Clone "CLONE", 72 Getxattr "GETXATTR", 73 Setxattr "SETXATTR", 74 Listxattrs "LISTXATTRS",
    75 Removexattr "REMOVEXATTR", 10044 Illegal "ILLEGAL",
}

#[cfg(test)]
mod round_trip;
#[cfg(test)]
mod tests;
