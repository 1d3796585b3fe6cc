//! Maps a server's errors to a [`DeviceError`]: a kind that indicates a remedy, and the operation with the protocol's
//! number for users.
//!
//! The rule: operation and number are preserved for every kind.

use std::fmt;

use brunt_block::error::{Language, WORDS_BYTES};
use brunt_block::{DeviceError, RefusalDetail, RefusalKind};
use brunt_wire::nfs::v3::{Procedure, Status};
use brunt_wire::nfs::v4;
use brunt_wire::rpc::ReplyStatus;

use crate::rpc::reply_status_name;
use crate::url::NfsVersion;
use crate::v41::NfsLockOp;

/// NFSv4.1: the server restarted, and clients may only reclaim what they had.
const GRACE: Status = Status(v4::Status::GRACE.0);

/// The text of an NFS error: what failed, and how.
pub static NFS_WORDS: Language = Language {
    name: "NFS",
    write,
    cause: |bytes| *bytes,
};

/// Why a call of a device's request failed, although the server answered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NfsRefusal {
    /// An NFSv3 status.
    Status(Procedure, Status),
    /// A status of NFSv4.1 for the compound that replaces the procedure.
    Status41(Procedure, Status),
    /// A status of an NFSv4.1 lock operation.
    Lock(NfsLockOp, Status),
    /// RPC didn't execute the call.
    Rpc(Procedure, ReplyStatus),
    /// The server restarted and may have lost unstable writes that it had acknowledged.
    LostWrites,
    /// The file ends inside the device: it was truncated.
    EndOfFile,
    /// READ or WRITE moved less data than requested.
    Short(Procedure),
}

impl fmt::Display for NfsRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NfsRefusal::Status(procedure, status) | NfsRefusal::Status41(procedure, status) => {
                let version = match self {
                    NfsRefusal::Status41(..) => NfsVersion::V41,
                    _ => NfsVersion::V3,
                };
                let text = version.status_text(*status);
                write!(f, "{}: the server returned {text}", procedure.name())
            }
            NfsRefusal::Lock(op, status) => {
                let text = NfsVersion::V41.status_text(*status);
                write!(f, "{}: the server returned {text}", op.name())
            }
            NfsRefusal::Rpc(procedure, status) => {
                write!(
                    f,
                    "{}: the server returned {}",
                    procedure.name(),
                    reply_status_name(*status)
                )
            }
            NfsRefusal::LostWrites => write!(
                f,
                "COMMIT: the server restarted (its write verifier changed) and may have lost \
                 acknowledged writes"
            ),
            NfsRefusal::EndOfFile => write!(
                f,
                "READ: unexpected end of file; the file was truncated after it was opened"
            ),
            NfsRefusal::Short(procedure) => {
                write!(f, "{}: less data than requested", procedure.name())
            }
        }
    }
}

impl NfsRefusal {
    /// The refusal for a status, in the connection's version of NFS.
    pub fn of_status(version: NfsVersion, procedure: Procedure, status: Status) -> NfsRefusal {
        match version {
            NfsVersion::V3 => NfsRefusal::Status(procedure, status),
            NfsVersion::V41 => NfsRefusal::Status41(procedure, status),
        }
    }

    /// The error of a request.
    pub fn error(self) -> DeviceError {
        DeviceError::Refused {
            kind: self.kind(),
            detail: RefusalDetail::Words {
                language: &NFS_WORDS,
                bytes: self.bytes(),
            },
        }
    }

    fn kind(self) -> RefusalKind {
        match self {
            NfsRefusal::Status(_, status)
            | NfsRefusal::Status41(_, status)
            | NfsRefusal::Lock(_, status) => match status {
                Status::PERM | Status::ACCES | Status::ROFS => RefusalKind::Protected,
                Status::IO => RefusalKind::MediumError,
                Status::NXIO | Status::NODEV | Status::SERVERFAULT => RefusalKind::HardwareError,
                Status::JUKEBOX | GRACE => RefusalKind::Busy,
                Status::NOTDIR
                | Status::ISDIR
                | Status::INVAL
                | Status::FBIG
                | Status::BADHANDLE
                | Status::NOT_SYNC
                | Status::BAD_COOKIE
                | Status::NOTSUPP
                | Status::TOOSMALL
                | Status::BADTYPE => RefusalKind::BadRequest,
                _ => RefusalKind::Other,
            },
            NfsRefusal::Rpc(_, ReplyStatus::AuthError(_)) => RefusalKind::Protected,
            NfsRefusal::Rpc(_, ReplyStatus::SystemErr) => RefusalKind::HardwareError,
            NfsRefusal::Rpc(..) => RefusalKind::BadRequest,
            // Not a retryable kind: a second COMMIT would succeed and hide the loss.
            NfsRefusal::LostWrites | NfsRefusal::EndOfFile | NfsRefusal::Short(_) => {
                RefusalKind::Other
            }
        }
    }

    /// The encoding: a tag, the procedure or operation, and a number.
    fn bytes(self) -> [u8; WORDS_BYTES] {
        let (tag, procedure, number) = match self {
            NfsRefusal::Status(procedure, status) => (0, procedure as u8, status.0),
            NfsRefusal::Rpc(procedure, status) => match status {
                ReplyStatus::AuthError(why) => (2, procedure as u8, why),
                status => (1, procedure as u8, rpc_number(status)),
            },
            NfsRefusal::Status41(procedure, status) => (6, procedure as u8, status.0),
            NfsRefusal::Lock(op, status) => (7, op.number() as u8, status.0),
            NfsRefusal::LostWrites => (3, 0, 0),
            NfsRefusal::EndOfFile => (4, 0, 0),
            NfsRefusal::Short(procedure) => (5, procedure as u8, 0),
        };
        let mut bytes = [0; WORDS_BYTES];
        (bytes[0], bytes[1]) = (tag, procedure);
        bytes[2..6].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    fn of(bytes: &[u8; WORDS_BYTES]) -> Option<NfsRefusal> {
        let procedure = Procedure::from_number(bytes[1].into())?;
        let number = u32::from_be_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]);
        Some(match bytes[0] {
            0 => NfsRefusal::Status(procedure, Status(number)),
            1 => NfsRefusal::Rpc(procedure, *RPC_STATUSES.get(number as usize)?),
            2 => NfsRefusal::Rpc(procedure, ReplyStatus::AuthError(number)),
            3 => NfsRefusal::LostWrites,
            4 => NfsRefusal::EndOfFile,
            5 => NfsRefusal::Short(procedure),
            6 => NfsRefusal::Status41(procedure, Status(number)),
            7 => NfsRefusal::Lock(NfsLockOp::from_number(bytes[1].into())?, Status(number)),
            _ => return None,
        })
    }
}

/// All RPC statuses that refuse a call, except AUTH_ERROR.
const RPC_STATUSES: [ReplyStatus; 6] = [
    ReplyStatus::ProgUnavail,
    ReplyStatus::ProgMismatch,
    ReplyStatus::ProcUnavail,
    ReplyStatus::GarbageArgs,
    ReplyStatus::SystemErr,
    ReplyStatus::RpcMismatch,
];

fn rpc_number(status: ReplyStatus) -> u32 {
    let found = RPC_STATUSES.iter().position(|known| *known == status);
    found.expect("a call is refused by one of these") as u32
}

/// The server's status, if the error came from one.
pub fn from_error(error: &DeviceError) -> Option<NfsRefusal> {
    match error {
        DeviceError::Refused {
            detail: RefusalDetail::Words { language, bytes },
            ..
        } if **language == NFS_WORDS => NfsRefusal::of(bytes),
        _ => None,
    }
}

fn write(bytes: &[u8; WORDS_BYTES], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match NfsRefusal::of(bytes) {
        Some(refusal) => write!(f, "{refusal}"),
        None => write!(f, "refused"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_keep_their_operation_and_number() {
        let check = |refusal: NfsRefusal, kind: RefusalKind, words: &str| {
            let error = refusal.error();
            assert!(
                matches!(error, DeviceError::Refused { kind: found, .. } if found == kind),
                "{error:?}"
            );
            assert_eq!(
                (error.to_string().as_str(), from_error(&error)),
                (words, Some(refusal))
            );
        };
        let status = |procedure, number| NfsRefusal::Status(procedure, Status(number));
        let words = "WRITE: the server returned NFS3ERR_NOSPC (28)";
        check(status(Procedure::Write, 28), RefusalKind::Other, words);
        check(
            status(Procedure::Read, 5),
            RefusalKind::MediumError,
            "READ: the server returned NFS3ERR_IO (5)",
        );
        check(
            status(Procedure::Write, 13),
            RefusalKind::Protected,
            "WRITE: the server returned NFS3ERR_ACCES (13)",
        );
        let words = "READ: the server returned unknown status 77";
        check(status(Procedure::Read, 77), RefusalKind::Other, words);
        for known in RPC_STATUSES {
            let refusal = NfsRefusal::Rpc(Procedure::Commit, known);
            assert_eq!(from_error(&refusal.error()), Some(refusal));
        }
        let refusal = NfsRefusal::Rpc(Procedure::Read, ReplyStatus::AuthError(5));
        check(
            refusal,
            RefusalKind::Protected,
            "READ: the server returned AUTH_TOOWEAK",
        );
        check(
            NfsRefusal::Short(Procedure::Write),
            RefusalKind::Other,
            "WRITE: less data than requested",
        );
        let denied = NfsRefusal::Lock(NfsLockOp::Lock, Status(10010));
        let words = "LOCK: the server returned NFS4ERR_DENIED (10010)";
        check(denied, RefusalKind::Other, words);
        assert_eq!(
            from_error(&NfsRefusal::LostWrites.error()),
            Some(NfsRefusal::LostWrites)
        );
        assert_eq!(
            from_error(&NfsRefusal::EndOfFile.error()),
            Some(NfsRefusal::EndOfFile)
        );
    }
}
