//! Reasons why a service failed.
//!
//! The rule: each message says what the service did and what to change; the last lines of its log follow.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::WaitStatus;

/// Why a service failed.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The keeper's orders cannot be parsed.
    #[error("cannot read the keeper's instructions: {0}")]
    Order(#[from] serde_json::Error),
    /// A system call of the keeper failed.
    #[error("cannot {what}: {source}")]
    Os {
        /// The operation.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The program cannot be started.
    #[error("cannot start {program}: {source}; check that it is installed and in PATH")]
    Start {
        /// The program's name or path.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// Another program is using the service's port.
    #[error("{address} is in use by another program; choose another port, or 0 for a free one")]
    PortTaken {
        /// The address.
        address: SocketAddr,
    },
    /// The service was not ready in time.
    #[error("it was not ready within {within:?}: {lacking}")]
    NotReady {
        /// The time limit.
        within: Duration,
        /// The conditions that were not met.
        lacking: String,
    },
    /// A private folder cannot be mounted.
    #[error(
        "cannot mount a private folder over {}: {source}; name a folder that exists, or one above it",
        .path.display()
    )]
    Private {
        /// The mount point of the private folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A private folder would hide the service's own folder, its log or this program.
    #[error(
        "private folder {} would hide {}; name a folder below it, or set TMPDIR to another place",
        .path.display(),
        .hidden.display()
    )]
    PrivateHides {
        /// The mount point of the private folder.
        path: PathBuf,
        /// The path that would be hidden.
        hidden: PathBuf,
    },
    /// The service's prepare command failed.
    #[error("its prepare command {}", ending(.status))]
    Unprepared {
        /// How the command ended.
        status: WaitStatus,
    },
    /// The service ended on its own.
    #[error("its command {}", ending(.status))]
    Ended {
        /// How the service ended.
        status: WaitStatus,
    },
    /// All background processes of a command have ended.
    #[error("all its processes have ended")]
    AllEnded,
    /// The command ended and left processes running.
    #[error(
        "its command exited and left {left} running; write daemon = true if it moves to the \
         background, or keep it in the foreground"
    )]
    ForkedAway {
        /// Names and numbers of the running processes.
        left: String,
    },
    /// The service wrote too much to its log.
    #[error("its log exceeds {max} bytes; raise limits.log, or reduce its output")]
    LogFull {
        /// The limit.
        max: u64,
    },
    /// The service's log cannot be written.
    #[error("cannot write its log {}: {source}", .path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The service uses too much memory.
    #[error("it uses {used} bytes of memory; limits.memory is {max}")]
    MemoryFull {
        /// Bytes used by all processes of the service.
        used: u64,
        /// The limit.
        max: u64,
    },
    /// Some of its processes don't end, not even when killed.
    #[error("some of its processes do not exit: {left}")]
    Stuck {
        /// Names and numbers of the processes that don't end.
        left: String,
    },
}

/// Describes how a process ended.
pub(super) fn ending(status: &WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("ended with exit status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_string(),
    }
}
