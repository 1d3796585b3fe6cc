//! A server's TLS configuration: its certificate, the authorities it trusts, and whether clients may connect without
//! TLS. Created when a server starts, used for each of its connections.
//!
//! The folder is laid out as for nbdkit and QEMU: `server-cert.pem` and `server-key.pem`, plus `ca-cert.pem` if clients
//! need certificates. The one rule: files are read once, before anything is served.

use std::path::Path;
use std::sync::Arc;

use brunt_block::table::OpenError;
use rustls::server::WebPkiClientVerifier;
use rustls::{ServerConfig, ServerConnection};

use super::offer::NbdTlsPolicy;
use crate::nbd::pem::{authorities, certificates, private_key, wrong};

/// A server's encryption.
#[derive(Clone, Debug)]
pub struct NbdServerTls {
    config: Arc<ServerConfig>,
    required: bool,
}

impl NbdServerTls {
    /// Reads a certificate folder. With `required`, clients without TLS are refused; with `verify_peer`, so are clients
    /// without a certificate signed by an authority in `ca-cert.pem`.
    ///
    /// # Errors
    /// A file is missing or invalid.
    pub fn read(
        folder: &Path,
        required: bool,
        verify_peer: bool,
    ) -> Result<NbdServerTls, OpenError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| OpenError::Failed(Box::new(error)))?;
        let builder = if verify_peer {
            let path = folder.join("ca-cert.pem");
            let roots = Arc::new(authorities(&path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(
                verifier.map_err(|error| wrong(&path, &error.to_string()))?,
            )
        } else {
            builder.with_no_client_auth()
        };
        let chain = certificates(&folder.join("server-cert.pem"))?;
        let path = folder.join("server-key.pem");
        let config = builder
            .with_single_cert(chain, private_key(&path)?)
            .map_err(|error| wrong(&path, &format!("does not match server-cert.pem: {error}")))?;
        Ok(NbdServerTls {
            config: Arc::new(config),
            required,
        })
    }

    /// Whether clients may connect without TLS.
    pub fn policy(&self) -> NbdTlsPolicy {
        if self.required {
            NbdTlsPolicy::Required
        } else {
            NbdTlsPolicy::Offered
        }
    }

    /// Starts the TLS side of a connection.
    ///
    /// # Errors
    /// Errors from the TLS library.
    pub(super) fn begin(&self) -> Result<ServerConnection, rustls::Error> {
        ServerConnection::new(Arc::clone(&self.config))
    }
}
