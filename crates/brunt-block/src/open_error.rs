//! Why something could not be opened: the URL, the storage behind it, or a thread's device on that. Made by
//! backends and layers, printed by commands with what would be right.
//!
//! The rule: the cause stays in it whole. A request that fails has only room for a kind
//! ([`DeviceError`]); opening has time for words.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use brunt_core::device_url::without_secrets;
use brunt_core::units::UnitError;

use crate::error::DeviceError;

/// Why a URL could not be opened, or a thread's device on what it stands for.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No such backend.
    #[error("'{url}': unknown backend '{scheme}'; use {known}, or a plain path")]
    UnknownBackend {
        /// The whole text.
        url: String,
        /// What stood before the colon.
        scheme: String,
        /// All of them.
        known: String,
    },
    /// An option that neither the backend nor a layer knows.
    #[error("{backend} has no option '{option}'; its options are {known}")]
    UnknownOption {
        /// Whose.
        backend: String,
        /// The key.
        option: String,
        /// All of them.
        known: String,
    },
    /// An option that is there twice.
    #[error("option '{0}' is given twice")]
    RepeatedOption(String),
    /// A value that is not what the option takes.
    #[error("{option}={value}: {wanted}")]
    BadValue {
        /// The key.
        option: String,
        /// What was written.
        value: String,
        /// What would be right.
        wanted: String,
    },
    /// Not a size or a time.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// The operating system said no.
    #[error("{what} {}: {source}", without_secrets(&path.to_string_lossy()))]
    Os {
        /// "cannot open", for example.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A block device that somebody else uses.
    #[error("{} is in use ({by}); read_only=yes allows reading, force=yes opens it anyway and risks its data", path.display())]
    InUse {
        /// Which.
        path: PathBuf,
        /// Who uses it.
        by: String,
    },
    /// It can be opened, but not so: the text, or the file it names, is wrong.
    #[error("{0}")]
    Refused(String),
    /// Whoever opens it for somebody else may not.
    #[error("'{device}' is not among what may be opened here ({allowed})")]
    NotAllowed {
        /// As its backend and its argument name it.
        device: String,
        /// What is.
        allowed: String,
    },
    /// The part of a URL that only its own backend understands is wrong.
    #[error("{source}; {advice}")]
    Url {
        /// What is wrong, by the backend's own type.
        source: Box<dyn Error + Send + Sync>,
        /// What would be right.
        advice: &'static str,
    },
    /// The text is right, but who would have to serve it does not: no answer, no login, no memory.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
    /// The device is there, but not for this thread: its ring or its system does not allow it.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
