//! Why connecting to a VDI failed. Created by `connect`, printed by commands and in a device's health.
//!
//! The rule: errors that the network may have caused are distinguished from the server's refusals.

use std::io;
use std::time::Duration;

use brunt_block::ReconnectError;
use brunt_block::table::OpenError;
use brunt_wire::sheepdog::result;

use super::device_errors::SheepdogResult;

/// Why connecting failed.
#[derive(Debug, thiserror::Error)]
pub enum SheepdogConnectError {
    /// The host name has no address.
    #[error("{0}: cannot resolve the host: {1}")]
    Resolve(String, io::Error),
    /// The port is closed or unreachable.
    #[error("{0}: cannot connect: {1}")]
    Connect(String, io::Error),
    /// The connection broke or timed out.
    #[error("{0}: the connection failed during {1}: {2}")]
    Io(String, &'static str, io::Error),
    /// The server returned an error.
    #[error("{name}: {during}: {}{}", SheepdogResult(*.result), advice(*.result))]
    Refused {
        /// The URL.
        name: String,
        /// The operation, by its protocol name.
        during: &'static str,
        /// The result code.
        result: u32,
    },
    /// The VDI is not usable.
    #[error("{0}: {1}")]
    Vdi(String, String),
    /// The server violated the protocol.
    #[error("{0}: the server violated the protocol: {1}")]
    Violation(String, String),
    /// All attempts failed.
    #[error("{last}; {attempts} attempts in {:.1} s", .time.as_secs_f64())]
    AttemptsFailed {
        /// Number of attempts.
        attempts: u32,
        /// Total time of all attempts.
        time: Duration,
        /// Why the last attempt failed.
        last: Box<SheepdogConnectError>,
    },
}

/// The remedy for a result.
fn advice(result: u32) -> &'static str {
    match result {
        result::NO_VDI => "; list VDIs with 'dog vdi list', or create one with 'dog vdi create'",
        result::NO_TAG => "; list snapshots with 'dog vdi list'",
        result::VDI_LOCKED => {
            "; another client holds the lock, or ended without releasing it: see 'dog vdi lock \
             list', 'dog vdi lock unlock'"
        }
        result::WAIT_FOR_FORMAT => "; format the cluster first with 'dog cluster format'",
        _ => "",
    }
}

impl ReconnectError for SheepdogConnectError {
    fn is_transient(&self) -> bool {
        match self {
            SheepdogConnectError::Vdi(..) => false,
            SheepdogConnectError::AttemptsFailed { last, .. } => last.is_transient(),
            // A sheep that has just started does not find its VDIs immediately.
            _ => true,
        }
    }
}

impl SheepdogConnectError {
    /// Whether the network may be the cause and nothing was locked yet, so that an immediate retry may succeed.
    pub(super) fn is_of_the_network(&self) -> bool {
        match self {
            SheepdogConnectError::Connect(_, error) => {
                matches!(
                    error.kind(),
                    io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
                )
            }
            _ => false,
        }
    }
}

impl From<SheepdogConnectError> for OpenError {
    fn from(error: SheepdogConnectError) -> OpenError {
        OpenError::Failed(Box::new(error))
    }
}
