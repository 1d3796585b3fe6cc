//! Why a device of a library cannot be opened. Made while it is opened, printed by commands.
//!
//! The rule: what the user can do about it stands in it.

use std::io;
use std::time::Duration;

use brunt_block::table::OpenError;
use brunt_core::units::format_duration;

/// What the C library's loader says when it does not load a library.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoaderRefusal(pub(super) String);

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// A build that cannot load anything.
    #[error(
        "this brunt is linked statically and cannot load {0}; use a dynamically linked build, or serve the image over NBD \
         (qemu-storage-daemon) and open that"
    )]
    Static(&'static str),
    /// The library is not installed, or lacks something itself.
    #[error("cannot load {file} ({why}); install it: apt-get install {package}")]
    Missing {
        /// The library's file.
        file: &'static str,
        /// Debian's package.
        package: &'static str,
        /// What the loader says.
        why: LoaderRefusal,
    },
    /// A function is not in it.
    #[error("{file} has no {function}: {needs} or newer is needed")]
    Old {
        /// The library's file.
        file: &'static str,
        /// What was looked for.
        function: &'static str,
        /// What has it.
        needs: &'static str,
    },
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
