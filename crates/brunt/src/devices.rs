//! Opens devices by URL: the backends of `brunt-block`, LUNs through the initiator, exports of NBD servers, and files
//! on NFS servers. Used by every command that takes a device URL.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, LazyLock, OnceLock};

use brunt_block::backends::is_device_name;
use brunt_block::open::BackendEntry;
use brunt_block::signature::{self, Detector, SignatureError, SignatureScan};
use brunt_block::table::{Permit, open_url_permitted};
use brunt_block::{Backend, OpenError, open_url_with};
use brunt_core::device_path;
use brunt_core::device_url::without_secrets;
use brunt_host::AllowList;
use brunt_store::nbd::CertificateFileError;
use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::cli::{Failure, Output};

/// Backends from crates other than `brunt-block`, added to its table.
pub static BACKENDS: LazyLock<Vec<BackendEntry>> = LazyLock::new(|| {
    [
        brunt_iscsi::BACKENDS,
        brunt_store::BACKENDS,
        brunt_nfs::BACKENDS,
    ]
    .concat()
});

/// Parses a device URL on the command line: text, or a path made of any bytes.
pub fn url_parser() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(device_path::from_argument)
}

/// Opens a device; `read_only` if nothing will be written.
pub fn open(url: &str, read_only: bool) -> Result<Arc<dyn Backend>, Failure> {
    open_url_with(url, &BACKENDS, read_only)
        .map_err(|error| open_failure(&error, error.to_string()))
}

/// What this process may open, if its parent restricts that.
static LIMIT: OnceLock<Arc<AllowList>> = OnceLock::new();

/// From now on, restricts the devices and files that this process may open for LUNs.
pub fn limit_to(allowed: AllowList) {
    // This has an effect only once, because a process has only one parent.
    let _ = LIMIT.set(Arc::new(allowed));
}

/// Opens the device of a LUN, for writing if possible. It may be a network device, so a target can act as a proxy for
/// a remote device.
///
/// # Errors
/// The device cannot be opened, or may not be opened by this process.
pub fn open_lun(url: &str) -> Result<Arc<dyn Backend>, OpenError> {
    match LIMIT.get() {
        None => open_url_with(url, &BACKENDS, false),
        Some(limit) => {
            open_url_permitted(url, &BACKENDS, false, Arc::clone(limit) as Arc<dyn Permit>)
        }
    }
}

/// Checks whether this process may use a LUN's file.
///
/// # Errors
/// The parent's limit doesn't include the file.
pub fn check_file(path: &Path) -> Result<(), OpenError> {
    LIMIT.get().map_or(Ok(()), |limit| limit.check_path(path))
}

/// Advice on how to allow a command to overwrite the data on its device.
pub const OVERWRITE: &str = "add --overwrite";

/// Opens a device only to inspect it: for writing, to see whether that is possible; read-only if the device is in use
/// or may not be written to.
pub fn open_for_inspection(url: &str) -> Result<Arc<dyn Backend>, Failure> {
    match open_url_with(url, &BACKENDS, false) {
        Err(OpenError::InUse { .. } | OpenError::Os { .. }) => open(url, true),
        other => other.map_err(|error| open_failure(&error, error.to_string())),
    }
}

/// Maps an error to an exit status and advice; `what` is the message. An invalid URL or file is a usage error, but an
/// unreachable target or a full disk is not.
pub fn open_failure(error: &OpenError, what: String) -> Failure {
    match error {
        OpenError::Os { path, source, .. } => match source.kind() {
            ErrorKind::NotFound if is_device_name(path) => Failure::usage(what)
                .advise("no such device: 'lsblk' lists the block devices of this machine"),
            ErrorKind::NotFound
                if source
                    .get_ref()
                    .is_some_and(|inner| inner.is::<CertificateFileError>()) =>
            {
                Failure::usage(what).advise(
                    "name a folder with ca-cert.pem and, if this side needs a certificate, \
                     client-cert.pem and client-key.pem (for a server: server-cert.pem and server-key.pem)",
                )
            }
            ErrorKind::NotFound => Failure::usage(what).advise(format!(
                "give the path of an existing file, or create one: {}?size=1GiB&create=yes",
                without_secrets(&path.to_string_lossy())
            )),
            ErrorKind::PermissionDenied => Failure::usage(what).advise(
                "run as a user with access to it, or change its permissions with chmod or chown",
            ),
            ErrorKind::StorageFull => {
                Failure::failed(what).advise("free some space, or choose another location")
            }
            _ => Failure::failed(what),
        },
        OpenError::Failed(_) | OpenError::Device(_) | OpenError::InUse { .. } => {
            Failure::failed(what)
        }
        _ => Failure::usage(what),
    }
}

/// Refuses to write to a device that contains data, unless the user allows its loss; `allow` says how to do that.
///
/// # Errors
/// The device contains data, or cannot be read.
pub fn guard(
    backend: &dyn Backend,
    overwrite: bool,
    allow: &str,
    output: &Output,
) -> Result<(), Failure> {
    if overwrite {
        return Ok(());
    }
    let name = &backend.info().name;
    match signature::scan(backend) {
        Ok(SignatureScan { found: None, by }) => {
            if by == Detector::Table && !backend.storage().is_empty() {
                output.note(format_args!(
                    "{name}: looked for existing data with {by}, because libblkid cannot be loaded"
                ));
            }
            Ok(())
        }
        Ok(SignatureScan {
            found: Some(what), ..
        }) => Err(Failure::usage(format!("{name} contains {what}"))
            .advise(format!("if the data on this device may be lost, {allow}"))),
        // Allowing the overwrite wouldn't help here.
        Err(SignatureError::Ring(error)) => Err(Failure::failed(error)),
        Err(SignatureError::Device(error)) => Err(Failure::failed(format!(
            "cannot check {name} for existing data: {error}"
        ))
        .advise(format!("to write without this check, {allow}"))),
    }
}
