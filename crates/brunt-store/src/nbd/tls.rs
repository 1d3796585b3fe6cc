//! TLS for connections to NBD servers: the client's certificate, and which server certificates are trusted. Used when
//! parsing a URL and when connecting.
//!
//! The folder given by `tls-certificates` is laid out as for nbdkit, QEMU and libnbd: `ca-cert.pem`, plus
//! `client-cert.pem` with `client-key.pem` for servers that require them. Without a folder, the system's authorities
//! are trusted. The one rule: an untrusted certificate is accepted only with `tls-verify-peer=0`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brunt_block::table::{OpenError, UrlOptions};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use super::pem::{authorities, certificates, private_key, wrong};
use super::url::{NbdAddress, NbdUrlError, bad};

/// The system's trusted authorities on Debian, Fedora and SUSE.
const SYSTEM_BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// How connections are encrypted.
#[derive(Clone, Debug)]
pub struct NbdTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl NbdTls {
    /// Removes the TLS options from a URL's options.
    ///
    /// # Errors
    /// A file is missing or invalid, or TLS options are given without TLS.
    pub(super) fn take(
        wanted: bool,
        address: &NbdAddress,
        options: &mut UrlOptions,
    ) -> Result<Option<NbdTls>, OpenError> {
        let kind = options.take("tls-type");
        let folder = options.take("tls-certificates").map(PathBuf::from);
        let name = options.take("tls-hostname");
        let verify = options.flag("tls-verify-peer")?;
        if !wanted {
            let some = kind.is_some() || folder.is_some() || name.is_some() || verify.is_some();
            return if some {
                Err(NbdUrlError::Tls.into())
            } else {
                Ok(None)
            };
        }
        if let Some(kind) = kind.filter(|kind| kind != "x509") {
            return Err(bad(
                "tls-type",
                &kind,
                "only x509 is supported, not psk or anon",
            ));
        }
        let host = name.unwrap_or_else(|| match address {
            NbdAddress::Tcp(host, _) => host.clone(),
            NbdAddress::Unix(_) => "localhost".to_string(),
        });
        let server_name = ServerName::try_from(host.clone())
            .map_err(|_| bad("tls-hostname", &host, "write a host name or an IP address"))?;
        let config = client_config(folder.as_deref(), verify.unwrap_or(true))?;
        Ok(Some(NbdTls {
            config: Arc::new(config),
            name: server_name,
        }))
    }

    /// Starts the TLS side of a connection.
    ///
    /// # Errors
    /// Errors from the TLS library.
    pub(super) fn begin(&self) -> Result<ClientConnection, rustls::Error> {
        ClientConnection::new(Arc::clone(&self.config), self.name.clone())
    }
}

fn client_config(folder: Option<&Path>, verify: bool) -> Result<ClientConfig, OpenError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| OpenError::Failed(Box::new(error)))?;
    let builder = match verify {
        true => builder.with_root_certificates(roots(folder)?),
        false => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate { provider })),
    };
    let Some(folder) = folder else {
        return Ok(builder.with_no_client_auth());
    };
    let (certificate, key) = (
        folder.join("client-cert.pem"),
        folder.join("client-key.pem"),
    );
    if !certificate.exists() {
        return Ok(builder.with_no_client_auth());
    }
    let chain = certificates(&certificate)?;
    builder
        .with_client_auth_cert(chain, private_key(&key)?)
        .map_err(|error| wrong(&key, &error.to_string()))
}

fn roots(folder: Option<&Path>) -> Result<RootCertStore, OpenError> {
    let path = match folder {
        Some(folder) => folder.join("ca-cert.pem"),
        None => {
            let found = SYSTEM_BUNDLES
                .iter()
                .map(PathBuf::from)
                .find(|path| path.exists());
            found.ok_or_else(|| {
                OpenError::Refused(
                    "no system-wide list of certificate authorities found; name a folder with \
                     tls-certificates=DIR"
                        .to_string(),
                )
            })?
        }
    };
    authorities(&path)
}

/// Accepts every certificate, but still verifies signatures.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
