//! Why a request failed, in a form that tells the caller what to do, independent of the underlying protocol.
//!
//! Every device reports a [`DeviceError`]; retry rules, statistics and targets match on its kind. A remote device's
//! original error stays attached in its protocol's format ([`RefusalDetail::Words`]): this crate carries and prints it, but only
//! the crate that implements the protocol interprets it.
//!
//! The rule: decisions depend on the kind only.

use std::fmt;

/// Size in bytes of a protocol's original error: enough for a SCSI status with its sense data.
pub const WORDS_BYTES: usize = 15;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The device returned an error: a remote device's own, or an injected fault.
    #[error("{}", Words { kind: *.kind, detail: *.detail })]
    Refused {
        /// The kind of error, which decides how to handle it.
        kind: RefusalKind,
        /// Details, if any.
        detail: RefusalDetail,
    },
    /// The operating system returned this errno.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Os(i32),
    /// Offset or length outside the device, or not a whole number of blocks.
    #[error("the request is outside the device or not aligned to its blocks")]
    OutOfRange,
    /// No answer within the device's timeout.
    #[error("timed out")]
    TimedOut,
    /// The device is gone and its reconnect policy gave up.
    #[error("the device is gone")]
    Gone,
    /// The device does not support this operation.
    #[error("the device does not support this operation")]
    Unsupported,
}

impl DeviceError {
    /// A refusal with no details other than its kind.
    pub const fn refused(kind: RefusalKind) -> DeviceError {
        DeviceError::Refused {
            kind,
            detail: RefusalDetail::Nothing,
        }
    }

    /// The error without details that differ between blocks, so that errors can be counted by cause.
    #[must_use]
    pub fn cause(self) -> DeviceError {
        let DeviceError::Refused { kind, detail } = self else {
            return self;
        };
        let detail = match detail {
            RefusalDetail::Block(_) => RefusalDetail::Nothing,
            RefusalDetail::Words { language, bytes } => RefusalDetail::Words {
                language,
                bytes: (language.cause)(&bytes),
            },
            detail => detail,
        };
        DeviceError::Refused { kind, detail }
    }

    /// A line for a table of causes: the errno's name, or the device's message.
    pub fn cause_text(self) -> String {
        match self.cause() {
            DeviceError::Os(errno) => {
                let text = std::io::Error::from_raw_os_error(errno).to_string();
                let text = text.split(" (os error").next().unwrap_or_default();
                format!("{}: {text}", errno_name(errno))
            }
            cause => cause.to_string(),
        }
    }

    /// Whether the request succeeded after recovery, so that its data is valid.
    pub fn is_recovered(&self) -> bool {
        matches!(
            self,
            DeviceError::Refused {
                kind: RefusalKind::Recovered,
                ..
            }
        )
    }
}

/// The name of an errno that storage returns (errno-base.h, errno.h).
fn errno_name(errno: i32) -> String {
    let name = match errno {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::EINTR => "EINTR",
        libc::EIO => "EIO",
        libc::ENXIO => "ENXIO",
        libc::EBADF => "EBADF",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EBUSY => "EBUSY",
        libc::EEXIST => "EEXIST",
        libc::EXDEV => "EXDEV",
        libc::ENODEV => "ENODEV",
        libc::ENOTDIR => "ENOTDIR",
        libc::EISDIR => "EISDIR",
        libc::EINVAL => "EINVAL",
        libc::ETXTBSY => "ETXTBSY",
        libc::EFBIG => "EFBIG",
        libc::ENOSPC => "ENOSPC",
        libc::EROFS => "EROFS",
        libc::EMLINK => "EMLINK",
        libc::EPIPE => "EPIPE",
        libc::ENAMETOOLONG => "ENAMETOOLONG",
        libc::ENOTEMPTY => "ENOTEMPTY",
        libc::ELOOP => "ELOOP",
        libc::ENODATA => "ENODATA",
        libc::ETIME => "ETIME",
        libc::ENOLINK => "ENOLINK",
        libc::EPROTO => "EPROTO",
        libc::EBADE => "EBADE",
        libc::EBADMSG => "EBADMSG",
        libc::EOVERFLOW => "EOVERFLOW",
        libc::EILSEQ => "EILSEQ",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::ECONNRESET => "ECONNRESET",
        libc::ENOTCONN => "ENOTCONN",
        libc::ESHUTDOWN => "ESHUTDOWN",
        libc::ETIMEDOUT => "ETIMEDOUT",
        libc::EHOSTUNREACH => "EHOSTUNREACH",
        libc::ESTALE => "ESTALE",
        libc::EUCLEAN => "EUCLEAN",
        libc::EREMOTEIO => "EREMOTEIO",
        libc::EDQUOT => "EDQUOT",
        libc::ECANCELED => "ECANCELED",
        _ => return format!("errno {errno}"),
    };
    name.to_string()
}

/// Kinds of refusals, distinguished by remedy: wait, retry, use another device, or give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The request succeeded after an error that the device corrected: a success with a note.
    Recovered,
    /// The medium cannot be accessed now: for example, the device is spinning up or formatting.
    NotReady,
    /// The device's state has changed. The device reports this once; the request can be resent.
    Attention,
    /// These blocks cannot be read or written.
    MediumError,
    /// The device itself is broken.
    HardwareError,
    /// The storage behind the device doesn't answer.
    Unreachable,
    /// The device aborted the request, which can be resent.
    Aborted,
    /// The request was cancelled, as requested.
    Cancelled,
    /// The device is busy.
    Busy,
    /// The device's queue is full.
    QueueFull,
    /// Another initiator has reserved the device.
    Conflict,
    /// Writes are not allowed.
    Protected,
    /// The device doesn't understand the request, or doesn't allow it.
    BadRequest,
    /// The compared data differs.
    Miscompare,
    /// Any other error: see the device's message.
    Other,
}

impl RefusalKind {
    fn words(self) -> &'static str {
        match self {
            RefusalKind::Recovered => "recovered error",
            RefusalKind::NotReady => "not ready",
            RefusalKind::Attention => "unit attention",
            RefusalKind::MediumError => "medium error",
            RefusalKind::HardwareError => "hardware error",
            RefusalKind::Unreachable => "the storage behind the device does not respond",
            RefusalKind::Aborted => "aborted command",
            RefusalKind::Cancelled => "cancelled",
            RefusalKind::Busy => "busy",
            RefusalKind::QueueFull => "queue full",
            RefusalKind::Conflict => "reservation conflict",
            RefusalKind::Protected => "write protected",
            RefusalKind::BadRequest => "illegal request",
            RefusalKind::Miscompare => "miscompare",
            RefusalKind::Other => "refused",
        }
    }
}

/// Details of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalDetail {
    /// No details.
    Nothing,
    /// The first affected logical block.
    Block(u64),
    /// The three numbers with which SCSI disks identify a condition: sense key, additional sense code, qualifier. For
    /// an injected fault they come from the user and are passed on unchanged.
    Code([u8; 3]),
    /// A protocol's original error, as received.
    Words {
        /// The protocol that can interpret the error.
        language: &'static Language,
        /// The error in that protocol's format.
        bytes: [u8; WORDS_BYTES],
    },
}

/// A protocol whose original errors a [`DeviceError`] can carry. The crate that implements such a protocol has one
/// static of this type.
pub struct Language {
    /// The protocol's name; must be unique.
    pub name: &'static str,
    /// Formats the error for users.
    pub write: fn(&[u8; WORDS_BYTES], &mut fmt::Formatter<'_>) -> fmt::Result,
    /// The error without details that differ between blocks.
    pub cause: fn(&[u8; WORDS_BYTES]) -> [u8; WORDS_BYTES],
}

impl PartialEq for Language {
    fn eq(&self, other: &Language) -> bool {
        self.name == other.name
    }
}

impl Eq for Language {}

impl fmt::Debug for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Formats a refusal, using the device's own message if it sent one.
struct Words {
    kind: RefusalKind,
    detail: RefusalDetail,
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            RefusalDetail::Nothing => f.write_str(self.kind.words()),
            RefusalDetail::Block(block) => write!(f, "{} at block {block}", self.kind.words()),
            RefusalDetail::Code([key, code, qualifier]) => {
                write!(
                    f,
                    "{} ({key:x}/{code:02x}/{qualifier:02x})",
                    self.kind.words()
                )
            }
            RefusalDetail::Words { language, bytes } => (language.write)(bytes, f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_prints_its_kind_and_details() {
        static MORSE: Language = Language {
            name: "morse",
            write: |bytes, f| write!(f, "dit {}", bytes[0]),
            cause: |bytes| *bytes,
        };
        let text = |kind, detail| DeviceError::Refused { kind, detail }.to_string();
        assert_eq!(text(RefusalKind::Busy, RefusalDetail::Nothing), "busy");
        assert_eq!(
            text(RefusalKind::MediumError, RefusalDetail::Block(7)),
            "medium error at block 7"
        );
        assert_eq!(
            text(RefusalKind::NotReady, RefusalDetail::Code([2, 4, 1])),
            "not ready (2/04/01)"
        );
        let bytes = [5; WORDS_BYTES];
        assert_eq!(
            text(
                RefusalKind::Other,
                RefusalDetail::Words {
                    language: &MORSE,
                    bytes
                }
            ),
            "dit 5"
        );
    }

    #[test]
    fn causes_do_not_depend_on_the_block() {
        let at = |block| DeviceError::Refused {
            kind: RefusalKind::MediumError,
            detail: RefusalDetail::Block(block),
        };
        assert_eq!(at(7).cause(), at(8).cause());
        assert_eq!(at(7).cause_text(), "medium error");
        let full = DeviceError::Os(libc::ENOSPC);
        assert_eq!(full.cause_text(), "ENOSPC: No space left on device");
        assert_ne!(full.cause(), DeviceError::Os(libc::EIO).cause());
    }

    #[test]
    fn an_error_is_small_enough_to_travel_with_each_completion() {
        assert!(
            size_of::<Result<(), DeviceError>>() <= 32,
            "{}",
            size_of::<Result<(), DeviceError>>()
        );
    }
}
