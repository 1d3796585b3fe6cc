//! Why connecting to a file failed. Created by `conversation` and `connect`, printed by commands and in a device's
//! health.
//!
//! The rule: every error names the server and the operation, and possible network losses are distinguished from the
//! server's refusals.

use std::io;
use std::time::Duration;

use brunt_block::ReconnectError;
use brunt_block::table::OpenError;
use brunt_wire::nfs::mount;
use brunt_wire::nfs::v3::{Procedure, Status};
use brunt_wire::nfs::v4;
use brunt_wire::rpc::ReplyStatus;

use crate::rpc::{NfsViolation, reply_status_name};
use crate::url::NfsVersion;

/// Why connecting failed.
#[derive(Debug, thiserror::Error)]
pub enum NfsConnectError {
    /// The host name has no address.
    #[error("{0}: cannot resolve the host: {1}")]
    Resolve(String, io::Error),
    /// The port is closed or unreachable.
    #[error("{0}: cannot connect: {1}")]
    Connect(String, io::Error),
    /// The connection broke, or timed out.
    #[error("{0}: the connection failed during {1}: {2}")]
    Io(String, &'static str, io::Error),
    /// RPC rejected a call.
    #[error("{0}: {1}: the server returned {name}", name = reply_status_name(*.2))]
    Refused(String, &'static str, ReplyStatus),
    /// The server doesn't speak this version of NFS.
    #[error("{server}: {operation}: the server returned PROG_MISMATCH; it doesn't speak {}: use version={}", .version.name(), other(*.version))]
    Version {
        /// The server.
        server: String,
        /// The operation.
        operation: &'static str,
        /// The version.
        version: NfsVersion,
    },
    /// The port mapper doesn't know a program.
    #[error("{0}: its port mapper has no {1} over TCP; give the port: {2}=")]
    NotRegistered(String, &'static str, &'static str),
    /// The MOUNT service returned an error.
    #[error("{server}: MNT {path}: the server returned {}", mount_status(*.status))]
    Mount {
        /// The server.
        server: String,
        /// The path to mount.
        path: String,
        /// The `mountstat3`.
        status: u32,
    },
    /// The NFS server returned an error.
    #[error("{server}: {operation} {path}: the server returned {}", .version.status_text(*.status), operation = .procedure.name())]
    Status {
        /// The server.
        server: String,
        /// The version of NFS.
        version: NfsVersion,
        /// The procedure.
        procedure: Procedure,
        /// The path that the call was about.
        path: String,
        /// The status.
        status: Status,
    },
    /// The server granted no NFSv4.1 session.
    #[error("{server}: {operation}: the server returned {}", session_status(*.status))]
    Session {
        /// The server.
        server: String,
        /// The operation.
        operation: &'static str,
        /// The status.
        status: v4::Status,
    },
    /// An error that the client's port may have caused.
    #[error("{0}; if it requires ports below 1024, add reserved_port=yes")]
    Port(Box<NfsConnectError>),
    /// The file is not usable.
    #[error("{0}: {1}")]
    File(String, String),
    /// The server violated a protocol.
    #[error("{0}: the server violated the protocol: {1}")]
    Violation(String, NfsViolation),
    /// The server sent an impossible answer.
    #[error("{0}: {1}: the server violated the protocol: {2}")]
    Nonsense(String, &'static str, &'static str),
    /// All attempts failed.
    #[error("{last}; {attempts} attempts in {:.1} s", .time.as_secs_f64())]
    AttemptsFailed {
        /// Number of attempts.
        attempts: u32,
        /// Total time of all attempts.
        time: Duration,
        /// Why the last one failed.
        last: Box<NfsConnectError>,
    },
}

/// The other version, as an option value, for servers that don't speak this one.
fn other(version: NfsVersion) -> &'static str {
    match version {
        NfsVersion::V3 => "4.1",
        NfsVersion::V41 => "3",
    }
}

fn mount_status(status: u32) -> String {
    match mount::status_name(status) {
        Some(name) => format!("{name} ({status})"),
        None => format!("unknown status {status}"),
    }
}

fn session_status(status: v4::Status) -> String {
    let text = NfsVersion::V41.status_text(Status(status.0));
    match status {
        v4::Status::MINOR_VERS_MISMATCH => {
            format!("{text}; it doesn't speak NFSv4.1: use version=3")
        }
        _ => text,
    }
}

impl ReconnectError for NfsConnectError {
    fn is_transient(&self) -> bool {
        match self {
            // The file is gone.
            NfsConnectError::Status { status, .. } => {
                !matches!(*status, Status::STALE | Status::BADHANDLE)
            }
            NfsConnectError::File(..) | NfsConnectError::Version { .. } => false,
            NfsConnectError::AttemptsFailed { last, .. } | NfsConnectError::Port(last) => {
                last.is_transient()
            }
            // A server that is starting has no ports at first, then no exports.
            _ => true,
        }
    }
}

impl NfsConnectError {
    /// Adds advice if the server may have refused a port above 1023: ganesha returns AUTH_TOOWEAK, Linux
    /// MNT3ERR_ACCES and, for an NFSv4 path, NFS4ERR_PERM.
    pub(crate) fn with_advice(self, reserved_port: bool) -> NfsConnectError {
        let may_be_the_port = match &self {
            NfsConnectError::Refused(_, _, status) => *status == ReplyStatus::AuthError(5),
            NfsConnectError::Mount { status, .. } => *status == 13,
            NfsConnectError::Status { status, .. } => *status == Status(1),
            _ => false,
        };
        match may_be_the_port && !reserved_port {
            true => NfsConnectError::Port(Box::new(self)),
            false => self,
        }
    }

    /// Whether the network may be the cause, so that an immediate retry may succeed.
    pub(crate) fn is_of_the_network(&self) -> bool {
        match self {
            NfsConnectError::Connect(_, error) => {
                matches!(
                    error.kind(),
                    io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
                )
            }
            _ => false,
        }
    }
}

impl From<NfsConnectError> for OpenError {
    fn from(error: NfsConnectError) -> OpenError {
        OpenError::Failed(Box::new(error))
    }
}
