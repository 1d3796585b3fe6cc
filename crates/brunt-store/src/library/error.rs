//! Why a device of a library cannot be opened. Made while it is opened, printed by commands.
//!
//! The rule: what the user can do about it stands in it.

use std::io;
use std::time::Duration;

use brunt_block::library::LibraryLoadError;
use brunt_block::table::OpenError;
use brunt_core::units::format_duration;

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The library cannot be loaded.
    #[error(transparent)]
    Load(#[from] LibraryLoadError),
    /// The library said no.
    #[error("{name}: cannot {doing}: {error}{}", then(.advice))]
    Refused {
        /// The device.
        name: String,
        /// What was tried.
        doing: String,
        /// Its errno.
        error: io::Error,
        /// What may help.
        advice: &'static str,
    },
    /// The library has not answered.
    #[error("{name}: no answer for {}{}", format_duration(*.time), then(.advice))]
    Silent {
        /// The device.
        name: String,
        /// How long it was waited for.
        time: Duration,
        /// What may help.
        advice: &'static str,
    },
    /// It opens, and is of no use.
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
