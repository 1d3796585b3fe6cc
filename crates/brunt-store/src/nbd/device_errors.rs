//! Maps a server's errors to [`DeviceError`]: a kind that indicates a remedy, and the protocol's error number for
//! users.
//!
//! The rule: an error that the protocol doesn't list is treated as NBD_EINVAL, as the specification requires, but keeps
//! its number.

use std::fmt;

use brunt_block::error::{Language, WORDS_BYTES};
use brunt_block::{DeviceError, RefusalDetail, RefusalKind};
use brunt_wire::nbd::errno;

/// NBD's error text: the number of an error.
pub static NBD_WORDS: Language = Language {
    name: "NBD",
    write,
    cause: |bytes| *bytes,
};

/// Maps a server's error to a device's error.
pub fn from_number(error: u32) -> DeviceError {
    let mut bytes = [0; WORDS_BYTES];
    bytes[..4].copy_from_slice(&error.to_be_bytes());
    let kind = match error {
        errno::PERM => RefusalKind::Protected,
        errno::IO => RefusalKind::MediumError,
        errno::NOMEM => RefusalKind::Busy,
        errno::NOSPC => RefusalKind::Other,
        errno::NOTSUP => return DeviceError::Unsupported,
        errno::SHUTDOWN => RefusalKind::NotReady,
        _ => RefusalKind::BadRequest,
    };
    DeviceError::Refused {
        kind,
        detail: RefusalDetail::Words {
            language: &NBD_WORDS,
            bytes,
        },
    }
}

/// The server's error number, if the error came from a server.
pub fn number_of(error: &DeviceError) -> Option<u32> {
    match error {
        DeviceError::Refused {
            detail: RefusalDetail::Words { language, bytes },
            ..
        } if **language == NBD_WORDS => Some(number(bytes)),
        _ => None,
    }
}

fn number(bytes: &[u8; WORDS_BYTES]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn write(bytes: &[u8; WORDS_BYTES], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let error = number(bytes);
    match errno::name(error) {
        Some(name) => write!(f, "the server returned {name} ({error})"),
        None => write!(
            f,
            "the server returned error {error}, which NBD does not define"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_kind_and_their_number() {
        let check = |error: u32, kind: RefusalKind, words: &str| {
            let refused = from_number(error);
            assert!(
                matches!(refused, DeviceError::Refused { kind: found, .. } if found == kind),
                "{refused:?}"
            );
            assert_eq!(
                (refused.to_string().as_str(), number_of(&refused)),
                (words, Some(error))
            );
        };
        check(
            errno::IO,
            RefusalKind::MediumError,
            "the server returned NBD_EIO (5)",
        );
        check(
            errno::PERM,
            RefusalKind::Protected,
            "the server returned NBD_EPERM (1)",
        );
        check(
            errno::NOSPC,
            RefusalKind::Other,
            "the server returned NBD_ENOSPC (28)",
        );
        check(
            7777,
            RefusalKind::BadRequest,
            "the server returned error 7777, which NBD does not define",
        );
        assert_eq!(from_number(errno::NOTSUP), DeviceError::Unsupported);
    }
}
