//! Why connecting to an NBD server failed. Created by `connect`, printed by commands and in a device's health.
//!
//! The rule: errors that the network may have caused are distinguished from the server's refusals.

use std::io;
use std::time::Duration;

use brunt_block::ReconnectError;
use brunt_block::table::OpenError;

use super::handshake::NbdRefusal;
use super::url::NbdAddress;

/// Why connecting failed.
#[derive(Debug, thiserror::Error)]
pub enum NbdConnectError {
    /// The host name has no address.
    #[error("{0}: cannot resolve the host: {1}")]
    Resolve(NbdAddress, io::Error),
    /// The port is closed or unreachable.
    #[error("{0}: cannot connect: {1}")]
    Connect(NbdAddress, io::Error),
    /// The connection broke or timed out.
    #[error("{0}: the connection failed during {1}: {2}")]
    Io(NbdAddress, &'static str, io::Error),
    /// An old server closed the connection instead of refusing.
    #[error(
        "{0}: the server closed the connection; old servers do so if they have no export '{1}'"
    )]
    HungUp(NbdAddress, String),
    /// The handshake failed.
    #[error("{0}: {1}")]
    Refused(NbdAddress, NbdRefusal),
    /// TLS failed: a certificate, a version, or bytes that are not TLS.
    #[error("{0}: TLS: {1}")]
    Tls(NbdAddress, rustls::Error),
    /// The export is not usable.
    #[error("{0}: {1}")]
    Export(String, String),
    /// The server violated the protocol outside the handshake.
    #[error("{0}: the server violated the protocol: {1}")]
    Violation(NbdAddress, &'static str),
    /// All attempts failed.
    #[error("{last}; {attempts} attempts in {:.1} s", .time.as_secs_f64())]
    AttemptsFailed {
        /// Number of attempts.
        attempts: u32,
        /// Total time of all attempts.
        time: Duration,
        /// Why the last attempt failed.
        last: Box<NbdConnectError>,
    },
}

impl ReconnectError for NbdConnectError {
    fn is_transient(&self) -> bool {
        match self {
            NbdConnectError::Refused(_, refusal) => refusal.is_transient(),
            NbdConnectError::Tls(..) | NbdConnectError::Export(..) => false,
            NbdConnectError::AttemptsFailed { last, .. } => last.is_transient(),
            // A starting server opens its port slightly before its exports are available.
            _ => true,
        }
    }
}

impl NbdConnectError {
    /// Whether the network may be the cause, so that an immediate retry may succeed.
    pub(super) fn is_of_the_network(&self) -> bool {
        match self {
            NbdConnectError::Connect(_, error) => {
                matches!(
                    error.kind(),
                    io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
                )
            }
            NbdConnectError::Io(NbdAddress::Tcp(..), _, _) => true,
            _ => false,
        }
    }
}

impl From<NbdConnectError> for OpenError {
    fn from(error: NbdConnectError) -> OpenError {
        OpenError::Failed(Box::new(error))
    }
}
