//! Maps a server's results to [`DeviceError`]: a kind that indicates a remedy, and the protocol's result code for
//! users.
//!
//! The rule: the result code is preserved for every kind.

use std::fmt;

use brunt_block::error::{Language, WORDS_BYTES};
use brunt_block::{DeviceError, RefusalDetail, RefusalKind};
use brunt_wire::sheepdog::result;

/// Sheepdog's error text: a result code.
pub static SHEEPDOG_WORDS: Language = Language {
    name: "Sheepdog",
    write,
    cause: |bytes| *bytes,
};

/// Maps a server's result to a device's error.
pub fn from_number(result: u32) -> DeviceError {
    let mut bytes = [0; WORDS_BYTES];
    bytes[..4].copy_from_slice(&result.to_be_bytes());
    let kind = match result {
        result::NO_OBJ | result::EIO => RefusalKind::MediumError,
        result::READONLY => RefusalKind::Protected,
        result::NO_MEM => RefusalKind::Busy,
        result::VDI_LOCKED => RefusalKind::Conflict,
        result::INVALID_PARMS => RefusalKind::BadRequest,
        other if result::is_transient(other) || result::is_goodbye(other) => RefusalKind::NotReady,
        _ => RefusalKind::Other,
    };
    DeviceError::Refused {
        kind,
        detail: RefusalDetail::Words {
            language: &SHEEPDOG_WORDS,
            bytes,
        },
    }
}

/// The server's result code, if the error came from a server.
pub fn number_of(error: &DeviceError) -> Option<u32> {
    match error {
        DeviceError::Refused {
            detail: RefusalDetail::Words { language, bytes },
            ..
        } if **language == SHEEPDOG_WORDS => Some(number(bytes)),
        _ => None,
    }
}

fn number(bytes: &[u8; WORDS_BYTES]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn write(bytes: &[u8; WORDS_BYTES], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{}", SheepdogResult(number(bytes)))
}

/// A result code with a readable text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SheepdogResult(pub u32);

impl fmt::Display for SheepdogResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match result::name(self.0) {
            Some(name) => write!(f, "the server returned {name} ({:#04x})", self.0),
            None => write!(f, "the server returned unknown result {:#04x}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_a_kind_and_their_number() {
        let check = |number: u32, kind: RefusalKind, words: &str| {
            let refused = from_number(number);
            let found =
                matches!(refused, DeviceError::Refused { kind: found, .. } if found == kind);
            assert!(found, "{refused:?}");
            assert_eq!(
                (refused.to_string().as_str(), number_of(&refused)),
                (words, Some(number))
            );
        };
        check(
            result::NO_OBJ,
            RefusalKind::MediumError,
            "the server returned SD_RES_NO_OBJ (0x02)",
        );
        check(
            result::HALT,
            RefusalKind::NotReady,
            "the server returned SD_RES_HALT (0x19)",
        );
        check(
            result::NO_SPACE,
            RefusalKind::Other,
            "the server returned SD_RES_NO_SPACE (0x15)",
        );
        check(
            0xff,
            RefusalKind::Other,
            "the server returned unknown result 0xff",
        );
    }
}
