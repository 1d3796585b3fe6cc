//! The identity of a controller or an agent: a certificate, its key, and the authority that both sides trust, in a
//! single file. [`Authority`] creates these files.
//!
//! The rule: a key file is readable only by its owner, and nothing is ever overwritten.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Maximum size of an identity file.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Name of the authority's file in its folder.
const AUTHORITY: &str = "authority.pem";
/// Name of the controller's file in that folder.
const CONTROLLER: &str = "controller.pem";

/// Why an identity cannot be used or created.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Users other than the owner may read the key.
    #[error("{}: other users can read it (mode {mode:03o}); run chmod 600, or create a new identity \
     if they may have read this one", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file has the wrong content.
    #[error("{}: not an identity: {what}; create one with 'brunt agent init'", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
    },
    /// The certificate, the key and the authority in the file don't belong together.
    #[error("{}: unusable: {source}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
    /// A certificate could not be created.
    #[error("{}: cannot create a certificate: {source}", path.display())]
    Make {
        /// The file that the certificate was meant for.
        path: PathBuf,
        /// The cause.
        source: rcgen::Error,
    },
    /// A host's name cannot be part of a file name.
    #[error("'{0}' is not a host name; write a DNS name or an IP address")]
    Host(String),
}

/// A certificate with its key and the authority that signed it.
#[derive(Debug)]
pub struct Identity {
    path: PathBuf,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    authority: CertificateDer<'static>,
}

impl Identity {
    /// Reads a file created by `brunt agent init`.
    ///
    /// # Errors
    /// The file cannot be read, other users may read it, or its content is wrong.
    pub fn read(path: &Path) -> Result<Identity, IdentityError> {
        let text = read_private(path)?;
        let wrong = |what| IdentityError::Content {
            path: path.to_path_buf(),
            what,
        };
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let mut certificates = certificates
            .map_err(|_| wrong("a certificate is damaged"))?
            .into_iter();
        let (Some(certificate), Some(authority), None) = (
            certificates.next(),
            certificates.next(),
            certificates.next(),
        ) else {
            return Err(wrong("it needs its own certificate and the authority's"));
        };
        let key =
            PrivateKeyDer::from_pem_slice(&text).map_err(|_| wrong("it has no private key"))?;
        Ok(Identity {
            path: path.to_path_buf(),
            certificate,
            key,
            authority,
        })
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub(crate) fn authority(&self) -> &CertificateDer<'static> {
        &self.authority
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }

    pub(crate) fn unusable(&self, source: rustls::Error) -> IdentityError {
        IdentityError::Unusable {
            path: self.path.clone(),
            source,
        }
    }
}

/// The authority for some hosts and their controller, stored in a folder.
pub struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// Opens the folder's authority, or creates it.
    ///
    /// # Errors
    /// The folder cannot be created, or it contains something other than an authority.
    pub fn in_folder(folder: &Path) -> Result<Authority, IdentityError> {
        std::fs::create_dir_all(folder).map_err(|source| IdentityError::Io {
            path: folder.to_path_buf(),
            source,
        })?;
        let path = folder.join(AUTHORITY);
        let make = |source| IdentityError::Make {
            path: path.clone(),
            source,
        };
        let params = authority_params().map_err(make)?;
        let (key, pem) = if path.exists() {
            let text = read_private(&path)?;
            let wrong = |what| IdentityError::Content {
                path: path.clone(),
                what,
            };
            let text = String::from_utf8(text).map_err(|_| wrong("it is not a text file"))?;
            let end = "-----END CERTIFICATE-----\n";
            let pem = text
                .split_inclusive(end)
                .next()
                .filter(|pem| pem.ends_with(end));
            let pem = pem
                .ok_or_else(|| wrong("it has no certificate"))?
                .to_string();
            let key = KeyPair::from_pem(&text[pem.len()..])
                .map_err(|_| wrong("it has no private key"))?;
            (key, pem)
        } else {
            let key = KeyPair::generate().map_err(make)?;
            let pem = params
                .self_signed(&key)
                .map_err(make)?
                .pem()
                .replace("\r\n", "\n");
            write_private(&path, &format!("{pem}{}", key.serialize_pem()))?;
            (key, pem)
        };
        Ok(Authority {
            folder: folder.to_path_buf(),
            issuer: Issuer::new(params, key),
            pem,
        })
    }

    /// Creates the controller's identity unless it exists; returns the path of its file.
    ///
    /// # Errors
    /// The identity cannot be created or written.
    pub fn controller(&self) -> Result<PathBuf, IdentityError> {
        let path = self.folder.join(CONTROLLER);
        if !path.exists() {
            let params = CertificateParams::new(Vec::new());
            self.sign(
                &path,
                params,
                "Brunt controller",
                ExtendedKeyUsagePurpose::ClientAuth,
            )?;
        }
        Ok(path)
    }

    /// Creates an agent's identity unless it exists; returns the path of its file.
    ///
    /// # Errors
    /// The identity cannot be created or written, or this is not a host name.
    pub fn agent(&self, host: &str) -> Result<PathBuf, IdentityError> {
        let plain = |one: char| one.is_ascii_alphanumeric() || ".-:".contains(one);
        if host.is_empty() || host.starts_with(['.', '-']) || !host.chars().all(plain) {
            return Err(IdentityError::Host(host.to_string()));
        }
        let path = self.folder.join(format!("agent-{host}.pem"));
        if !path.exists() {
            let params = CertificateParams::new(vec![host.to_string()]);
            self.sign(&path, params, host, ExtendedKeyUsagePurpose::ServerAuth)?;
        }
        Ok(path)
    }

    fn sign(
        &self,
        path: &Path,
        params: Result<CertificateParams, rcgen::Error>,
        name: &str,
        purpose: ExtendedKeyUsagePurpose,
    ) -> Result<(), IdentityError> {
        let make = |source| IdentityError::Make {
            path: path.to_path_buf(),
            source,
        };
        let mut params = params.map_err(make)?;
        params.distinguished_name = common_name(name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Agents reject the certificate of another agent, and a controller's certificate is not valid for an agent.
        params.extended_key_usages = vec![purpose];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(make)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(make)?;
        write_private(
            path,
            &format!("{}{}{}", certificate.pem(), key.serialize_pem(), self.pem),
        )
    }
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// These parameters are the same for every authority: authorities differ only in their keys.
fn authority_params() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = common_name("Brunt authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(params)
}

/// Reads a file that contains a secret, up to 64 KiB.
///
/// # Errors
/// The file cannot be read, or users other than its owner may read it.
pub fn read_private(path: &Path) -> Result<Vec<u8>, IdentityError> {
    let io = |source| IdentityError::Io {
        path: path.to_path_buf(),
        source,
    };
    let file = File::open(path).map_err(io)?;
    let mode = file.metadata().map_err(io)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(IdentityError::Open {
            path: path.to_path_buf(),
            mode,
        });
    }
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(io)?;
    Ok(text)
}

fn write_private(path: &Path, text: &str) -> Result<(), IdentityError> {
    let io = |source| IdentityError::Io {
        path: path.to_path_buf(),
        source,
    };
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(io)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(io)
}
