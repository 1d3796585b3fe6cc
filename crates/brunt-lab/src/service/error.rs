//! Why a service was ended that nobody asked to end.
//!
//! The rule: each text says what the service did and what to change; the last lines of its log follow.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::WaitStatus;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// What is to be kept cannot be read.
    #[error("the keeper's order cannot be read: {0}")]
    Order(#[from] serde_json::Error),
    /// The kernel refuses something to the keeper.
    #[error("cannot {what}: {source}")]
    Os {
        /// What.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// The program cannot be started.
    #[error("cannot start {program}: {source}; see that it is installed and in PATH")]
    Start {
        /// Its name or path.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// Its port is somebody else's.
    #[error("{address} is taken by another program; choose another port, or 0 for a free one")]
    PortTaken {
        /// The address.
        address: SocketAddr,
    },
    /// It was not ready in time.
    #[error("it is not ready within {within:?}: {lacking}")]
    NotReady {
        /// The time it had.
        within: Duration,
        /// What has not come.
        lacking: String,
    },
    /// It cannot have a folder for itself.
    #[error(
        "cannot mount a private folder over {}: {source}; name a folder that exists, or one above it",
        .path.display()
    )]
    Private {
        /// The path over which it was to be.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Its own folder, its log or this program would be behind such a folder.
    #[error(
        "private folder {} would hide {}; name a folder below it, or set TMPDIR to another place",
        .path.display(),
        .hidden.display()
    )]
    PrivateHides {
        /// The path over which the folder was to be.
        path: PathBuf,
        /// What would not be found any more.
        hidden: PathBuf,
    },
    /// What comes before it did not succeed.
    #[error("its prepare command {}", ending(.status))]
    Unprepared {
        /// How it ended.
        status: WaitStatus,
    },
    /// It ended by itself.
    #[error("its command {}", ending(.status))]
    Ended {
        /// How.
        status: WaitStatus,
    },
    /// All that a command left in the background has ended.
    #[error("all its processes have ended")]
    AllEnded,
    /// Its command ended and left processes behind.
    #[error(
        "its command ended and left {left} running; write daemon = true if it moves to the background, or have it stay \
         in the foreground"
    )]
    ForkedAway {
        /// Their names and numbers.
        left: String,
    },
    /// It says too much.
    #[error("its log exceeds {max} bytes; write a larger limits.log, or make it write less")]
    LogFull {
        /// The limit.
        max: u64,
    },
    /// Its log cannot be written.
    #[error("cannot write its log {}: {source}", .path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It uses too much memory.
    #[error("it uses {used} bytes of memory, and limits.memory is {max}")]
    MemoryFull {
        /// Of all its processes.
        used: u64,
        /// The limit.
        max: u64,
    },
    /// Some of its processes do not end, whatever is sent to them.
    #[error("some of its processes do not end: {left}")]
    Stuck {
        /// Their names and numbers.
        left: String,
    },
}

/// How a process ended, in words.
pub(super) fn ending(status: &WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("ended with exit status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_string(),
    }
}
