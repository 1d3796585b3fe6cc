//! Certificate files in a folder laid out as for nbdkit, QEMU and libnbd: `ca-cert.pem`, and `client-cert.pem` with
//! `client-key.pem` or `server-cert.pem` with `server-key.pem`. Read when a URL is parsed or a server starts. The one
//! rule: an error names the file.

use std::io;
use std::path::Path;

use brunt_block::table::OpenError;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Reads the certificate authorities in a file.
pub(super) fn authorities(path: &Path) -> Result<RootCertStore, OpenError> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates(path)?);
    match added {
        0 => Err(wrong(path, "has no CA certificate")),
        _ => Ok(roots),
    }
}

/// Reads a certificate chain, starting with the owner's certificate.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, OpenError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(wrong(path, "has no certificate")),
    }
}

/// Reads a certificate's private key.
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, OpenError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|_| wrong(path, "has no private key"))
}

/// The error for a readable file with wrong contents; `what` completes a sentence that starts with "it".
pub(super) fn wrong(path: &Path, what: &str) -> OpenError {
    let source = io::Error::new(io::ErrorKind::InvalidData, format!("it {what}"));
    OpenError::Os {
        what: "cannot use",
        path: path.into(),
        source,
    }
}

fn read(path: &Path) -> Result<Vec<u8>, OpenError> {
    std::fs::read(path).map_err(|error| OpenError::Os {
        what: "cannot read",
        path: path.into(),
        source: io::Error::new(error.kind(), CertificateFileError(error)),
    })
}

/// The source of an error about a certificate file, to prevent advice that suggests creating the file.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct CertificateFileError(io::Error);
