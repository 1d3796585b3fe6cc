//! Why a request failed, in a form that tells the caller what to do without knowing the protocol below.
//!
//! Every device reports a [`DeviceError`]; retry rules, figures and targets match on its kind. A remote
//! device's original error stays attached in its protocol's form ([`Said::Words`]): this crate carries and
//! prints it, and only the crate that implements the protocol interprets it.
//!
//! The rule: decisions depend on the kind only.

use std::fmt;

/// Bytes of a protocol's own words: enough for a SCSI status with its sense data.
pub const WORDS_BYTES: usize = 15;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The device answered, and refused: a remote device's own words, or an injected fault's.
    #[error("{}", Words { kind: *.kind, said: *.said })]
    Refused {
        /// What to do about it.
        kind: RefusalKind,
        /// What else is known.
        said: Said,
    },
    /// The operating system refused, with its errno.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Os(i32),
    /// Offset or length outside the device, or not in whole blocks.
    #[error("the request lies outside the device or is not aligned to its blocks")]
    OutOfRange,
    /// Not answered within the device's time-out.
    #[error("timed out")]
    TimedOut,
    /// The device is gone and its reconnect policy gave up.
    #[error("the device is gone")]
    Gone,
    /// The device does not do this operation.
    #[error("the device does not support this operation")]
    Unsupported,
}

impl DeviceError {
    /// A refusal of which nothing but its kind is known.
    pub const fn refused(kind: RefusalKind) -> DeviceError {
        DeviceError::Refused {
            kind,
            said: Said::Nothing,
        }
    }

    /// The same without what differs from block to block, so that errors can be counted by their cause.
    #[must_use]
    pub fn cause(self) -> DeviceError {
        let DeviceError::Refused { kind, said } = self else {
            return self;
        };
        let said = match said {
            Said::Block(_) => Said::Nothing,
            Said::Words { language, bytes } => Said::Words {
                language,
                bytes: (language.cause)(&bytes),
            },
            said => said,
        };
        DeviceError::Refused { kind, said }
    }

    /// A line for a table of causes: the errno by its name, or what the device said.
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

    /// Whether the request was done all the same, and its data is good.
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

/// The name of an errno that storage gives (errno-base.h, errno.h).
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
        libc::ENODEV => "ENODEV",
        libc::EINVAL => "EINVAL",
        libc::ETXTBSY => "ETXTBSY",
        libc::EFBIG => "EFBIG",
        libc::ENOSPC => "ENOSPC",
        libc::EROFS => "EROFS",
        libc::EPIPE => "EPIPE",
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

/// Kinds of refusals. They differ in what helps: waiting, asking again, another device, nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// Done, after trouble that the device overcame: a success with a note.
    Recovered,
    /// It cannot serve the medium now: spinning up, being formatted.
    NotReady,
    /// Something about the device changed; it says so once, and the request can be sent again.
    Attention,
    /// These blocks cannot be read or written.
    MediumError,
    /// The device itself is broken.
    HardwareError,
    /// What lies behind the device does not answer.
    Unreachable,
    /// The device gave the request up; it can be sent again.
    Aborted,
    /// The request was given up because somebody asked for it.
    Cancelled,
    /// The device has no time now.
    Busy,
    /// The device has no room for another request now.
    QueueFull,
    /// Somebody else has reserved the device.
    Conflict,
    /// Writes are not allowed.
    Protected,
    /// The device does not understand the request, or does not allow it.
    BadRequest,
    /// Data that was to be compared differs.
    Miscompare,
    /// Anything else: see its words.
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
            RefusalKind::Unreachable => "the storage behind the device does not answer",
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

/// What is known about a refusal besides its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Nothing.
    Nothing,
    /// The first logical block that it is about.
    Block(u64),
    /// The three numbers by which disks name conditions: sense key, additional code, qualifier. An
    /// injected fault has them from its user; they are passed on and not looked up.
    Code([u8; 3]),
    /// A protocol's own words, as they came.
    Words {
        /// Who can read them.
        language: &'static Language,
        /// In the language's own layout.
        bytes: [u8; WORDS_BYTES],
    },
}

/// A protocol whose words an error carries. One static of each crate that speaks one.
pub struct Language {
    /// The protocol's name, which no other has.
    pub name: &'static str,
    /// Prints them for people.
    pub write: fn(&[u8; WORDS_BYTES], &mut fmt::Formatter<'_>) -> fmt::Result,
    /// The same words without what differs from block to block.
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

/// A refusal as it is printed: the device's own words where it had some.
struct Words {
    kind: RefusalKind,
    said: Said,
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.said {
            Said::Nothing => f.write_str(self.kind.words()),
            Said::Block(block) => write!(f, "{} at block {block}", self.kind.words()),
            Said::Code([key, code, qualifier]) => {
                write!(
                    f,
                    "{} ({key:x}/{code:02x}/{qualifier:02x})",
                    self.kind.words()
                )
            }
            Said::Words { language, bytes } => (language.write)(bytes, f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_prints_what_is_known() {
        static MORSE: Language = Language {
            name: "morse",
            write: |bytes, f| write!(f, "dit {}", bytes[0]),
            cause: |bytes| *bytes,
        };
        let text = |kind, said| DeviceError::Refused { kind, said }.to_string();
        assert_eq!(text(RefusalKind::Busy, Said::Nothing), "busy");
        assert_eq!(
            text(RefusalKind::MediumError, Said::Block(7)),
            "medium error at block 7"
        );
        assert_eq!(
            text(RefusalKind::NotReady, Said::Code([2, 4, 1])),
            "not ready (2/04/01)"
        );
        let bytes = [5; WORDS_BYTES];
        assert_eq!(
            text(
                RefusalKind::Other,
                Said::Words {
                    language: &MORSE,
                    bytes
                }
            ),
            "dit 5"
        );
    }

    #[test]
    fn causes_are_counted_whatever_block_they_are_about() {
        let at = |block| DeviceError::Refused {
            kind: RefusalKind::MediumError,
            said: Said::Block(block),
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
