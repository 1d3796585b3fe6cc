//! Why opening failed: the URL, the storage behind it, or a thread's device on it. Backends and layers create these
//! errors; commands print them with the suggested correction.
//!
//! The rule: the error keeps its full cause. A failed request has room only for a kind ([`DeviceError`]); when opening,
//! there is time for a full message.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use brunt_core::device_path::shown;
use brunt_core::device_url::without_secrets;
use brunt_core::units::UnitError;

use crate::error::DeviceError;

/// Why a URL, or a thread's device on its backend, could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The backend doesn't exist.
    #[error("'{url}': unknown backend '{scheme}'; use {known}, or a plain path")]
    UnknownBackend {
        /// The whole URL.
        url: String,
        /// The part before the colon.
        scheme: String,
        /// All known backends.
        known: String,
    },
    /// An option that neither the backend nor a layer supports.
    #[error("{backend} has no option '{option}'; its options are {known}")]
    UnknownOption {
        /// The backend.
        backend: String,
        /// The option's key.
        option: String,
        /// All known options.
        known: String,
    },
    /// A repeated option.
    #[error("option '{0}' is given twice")]
    RepeatedOption(String),
    /// An invalid value of an option.
    #[error("{option}={value}: {wanted}")]
    BadValue {
        /// The option's key.
        option: String,
        /// The value as written.
        value: String,
        /// What would be valid.
        wanted: String,
    },
    /// Not a valid size or time.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// An operating system error.
    #[error("{what} {}: {source}", without_secrets(&shown(path).to_string()))]
    Os {
        /// The failed operation, such as "cannot open".
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A block device is in use.
    #[error(
        "{} is in use ({by}); read_only=yes allows reading, force=yes opens it anyway and risks its data",
        shown(path)
    )]
    InUse {
        /// The device.
        path: PathBuf,
        /// The user of the device.
        by: String,
    },
    /// The URL's text or the file that it names is invalid.
    #[error("{0}")]
    Refused(String),
    /// The client may not open this device.
    #[error("'{device}' may not be opened here (allowed: {allowed})")]
    NotAllowed {
        /// The device, as backend and argument.
        device: String,
        /// The devices that are allowed.
        allowed: String,
    },
    /// The part of a URL that only its backend understands is invalid.
    #[error("{source}; {advice}")]
    Url {
        /// The backend's own error.
        source: Box<dyn Error + Send + Sync>,
        /// What would be valid instead.
        advice: &'static str,
    },
    /// The URL is valid, but opening failed: no answer, login failure, or out of memory.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
    /// The device exists, but this thread cannot use it: its ring or the system doesn't allow it.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
