//! Why a library's device cannot be opened. Created on opening, printed by commands.
//!
//! The rule: each error says what the user can do about it.

use std::io;
use std::time::Duration;

use brunt_block::library::LibraryLoadError;
use brunt_block::table::OpenError;
use brunt_core::units::format_duration;

/// Why the device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The library cannot be loaded.
    #[error(transparent)]
    Load(#[from] LibraryLoadError),
    /// A library call failed.
    #[error("{name}: cannot {doing}: {error}{}", then(.advice))]
    Refused {
        /// The device.
        name: String,
        /// The attempted operation.
        doing: String,
        /// The library's error.
        error: io::Error,
        /// Advice for the user.
        advice: &'static str,
    },
    /// The library did not respond.
    #[error("{name}: no response within {}{}", format_duration(*.time), then(.advice))]
    Silent {
        /// The device.
        name: String,
        /// The time limit.
        time: Duration,
        /// Advice for the user.
        advice: &'static str,
    },
    /// The device can be opened but not used.
    #[error("{0}: {1}")]
    Unusable(String, String),
}

fn then(words: &str) -> String {
    if words.is_empty() {
        String::new()
    } else {
        format!("; {words}")
    }
}

impl From<LibraryError> for OpenError {
    fn from(error: LibraryError) -> OpenError {
        OpenError::Failed(Box::new(error))
    }
}
