//! TLS 1.3 for a connection, without I/O: converts received bytes to plain bytes, and back. Both sides present a
//! certificate from the same authority; nothing is sent before that.
//!
//! The rule: there is no unencrypted or one-sided mode. No resumption, no early data, no older version; an agent's
//! certificate is not valid for a controller, and vice versa.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::client::{ClientConnection, Resumption};
use rustls::pki_types::ServerName;
use rustls::server::{NoServerSessionStorage, ServerConnection, WebPkiClientVerifier};
use rustls::{ClientConfig, Connection, RootCertStore, ServerConfig};

use crate::identity::{Identity, IdentityError};

/// The application protocol (ALPN), so that a connection meant for something else is rejected (RFC 7301).
const PROTOCOL: &[u8] = b"brunt-agent/1";

/// Why the peer is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The peer's certificate, version or bytes are invalid, or it rejects our certificate.
    #[error("TLS: {0}")]
    Protocol(#[from] rustls::Error),
    /// The name is not a valid host name in a certificate.
    #[error("'{0}' is not a host name")]
    Name(String),
}

/// The TLS configuration of an agent.
#[derive(Clone, Debug)]
pub struct AgentTls(Arc<ServerConfig>);

/// The TLS configuration of a controller.
#[derive(Clone, Debug)]
pub struct ControllerTls(Arc<ClientConfig>);

fn roots(identity: &Identity) -> Result<Arc<RootCertStore>, IdentityError> {
    let mut roots = RootCertStore::empty();
    roots
        .add(identity.authority().clone())
        .map_err(|source| identity.unusable(source))?;
    Ok(Arc::new(roots))
}

impl AgentTls {
    /// Creates the configuration from an agent's identity.
    ///
    /// # Errors
    /// The identity's parts don't match.
    pub fn new(identity: &Identity) -> Result<AgentTls, IdentityError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots(identity)?, Arc::clone(&provider))
                .build()
                .map_err(|source| identity.unusable(rustls::Error::General(source.to_string())))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|builder| {
                let builder = builder.with_client_cert_verifier(verifier);
                builder.with_single_cert(vec![identity.certificate().clone()], identity.key())
            })
            .map_err(|source| identity.unusable(source))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(AgentTls(Arc::new(config)))
    }

    pub(crate) fn seal(&self) -> Result<Seal, TlsError> {
        Ok(Seal(ServerConnection::new(Arc::clone(&self.0))?.into()))
    }
}

impl ControllerTls {
    /// Creates the configuration from a controller's identity.
    ///
    /// # Errors
    /// The identity's parts don't match.
    pub fn new(identity: &Identity) -> Result<ControllerTls, IdentityError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let believed = roots(identity)?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|builder| {
                let builder = builder.with_root_certificates(believed);
                builder.with_client_auth_cert(vec![identity.certificate().clone()], identity.key())
            })
            .map_err(|source| identity.unusable(source))?;
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(ControllerTls(Arc::new(config)))
    }

    /// Starts a connection with the agent of this name.
    pub(crate) fn seal(&self, host: &str) -> Result<Seal, TlsError> {
        let name =
            ServerName::try_from(host.to_string()).map_err(|_| TlsError::Name(host.to_string()))?;
        Ok(Seal(
            ClientConnection::new(Arc::clone(&self.0), name)?.into(),
        ))
    }
}

/// One side of a TLS connection.
#[derive(Debug)]
pub(crate) struct Seal(Connection);

impl Seal {
    /// Whether the handshake is still in progress.
    pub fn is_greeting(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Decrypts received bytes, and appends the plain bytes. Replies that TLS itself has to send are available from
    /// [`Seal::take`].
    pub fn open(&mut self, mut wire: &[u8], plain: &mut Vec<u8>) -> Result<(), TlsError> {
        while !wire.is_empty() {
            // The source is memory, so reading only fails if the buffer is full, and the buffer is emptied below.
            if self.0.read_tls(&mut wire).unwrap_or(0) == 0 {
                let full = rustls::Error::General("excess bytes at the end".to_string());
                return Err(full.into());
            }
            self.0.process_new_packets()?;
            read_all(&mut self.0.reader(), plain);
        }
        Ok(())
    }

    /// Encrypts plain bytes.
    pub fn close(&mut self, plain: &[u8]) {
        self.0.set_buffer_limit(None);
        self.0.writer().write_all(plain).expect("unlimited memory");
    }

    /// Appends the bytes to send.
    pub fn take(&mut self, wire: &mut Vec<u8>) {
        while self.0.wants_write() {
            self.0.write_tls(wire).expect("writing to memory succeeds");
        }
    }
}

/// Reads everything available; whether more follows doesn't matter here.
fn read_all(reader: &mut impl Read, plain: &mut Vec<u8>) {
    let mut part = [0; 16 << 10];
    loop {
        match reader.read(&mut part) {
            Ok(0) => return,
            Ok(count) => plain.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
