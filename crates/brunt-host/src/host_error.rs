//! Why a host cannot be used, or can no longer be used.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use brunt_protocol::FailureKind;

use crate::clock::ClockError;
use crate::session::SessionError;
use crate::stream::StreamError;

/// Why a host cannot be used, or can no longer be used.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A local system call failed.
    #[error("cannot {what}: {source}")]
    Os {
        /// The operation, such as "start ssh".
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// An agent that listens requires our certificate.
    #[error(
        "a listening agent requires a certificate: give the controller's with --identity; create \
         it with 'brunt agent init'"
    )]
    NoIdentity,
    /// The host belongs to a lab that isn't running.
    #[error("host '{0}' belongs to the lab, and no lab is running")]
    NoLab(String),
    /// Hosts that aren't in the lab are reached from outside it, and leaving the lab needs root.
    #[error(
        "cannot leave the lab to reach a host outside it: {0}; run the experiment as root, or remove \
         the hosts that aren't in its lab"
    )]
    OutsideLab(io::Error),
    /// The host is a service's virtual machine, and no service is running.
    #[error("host 'guest:{0}' belongs to a service, and no service is running")]
    NoService(String),
    /// The virtual machine's agent cannot be reached.
    #[error("cannot connect to the virtual machine's agent at {}: {source}", .path.display())]
    Guest {
        /// The path of the socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The host doesn't listen on this address.
    #[error("cannot connect to {host} port {port}: {source}")]
    Connect {
        /// The host's name or address.
        host: String,
        /// Its port.
        port: u16,
        /// The cause.
        source: io::Error,
    },
    /// No ssh command was given.
    #[error("no ssh command; write for example --ssh 'ssh -F FILE'")]
    NoSsh,
    /// A program's path or an argument contains characters that are special to the remote shell.
    #[error(
        "'{0}' contains characters with a special meaning in the remote host's shell; use a plain \
         path"
    )]
    FarProgram(String),
    /// This program doesn't run on the remote machine's architecture.
    #[error(
        "the host's architecture is {theirs}, but this program was built for {ours}: install a build \
         for it there, and give its path with --far-program"
    )]
    Machine {
        /// The output of the remote machine's `uname -m`.
        theirs: String,
        /// The architecture of this program.
        ours: &'static str,
    },
    /// The remote shell's output lacks the line that marks the start of the agent.
    #[error(
        "the remote shell prints too much before the agent starts; check whether its login \
         scripts are meant for terminals"
    )]
    Chatter,
    /// Copying this program took too long.
    #[error(
        "copying this program to the host took longer than {0:?}: raise --connect-timeout, or \
         install brunt there and give its path with --far-program"
    )]
    Slow(Duration),
    /// The host stopped accepting the copy's data.
    #[error(
        "the host accepted no data for {0:?} while this program was being copied to it; check whether \
         the host or its disk hangs"
    )]
    Stalled(Duration),
    /// The connection uses ssh, and the agent did not start in time.
    #[error(
        "the agent didn't start within {0:?}; check whether 'ssh HOST true' returns at once \
         (login scripts may be waiting for something), or raise --connect-timeout"
    )]
    NotStarted(Duration),
    /// The host doesn't reply.
    #[error("no message from it within {0:?}")]
    Silent(Duration),
    /// The agent or ssh ended.
    #[error("the agent's connection ended{}", ended(.status, .lines))]
    Ended {
        /// The exit status of the process that connects to the agent, if that ended.
        status: Option<std::process::ExitStatus>,
        /// The last lines of output.
        lines: Vec<String>,
    },
    /// The agent could not carry out a request.
    #[error("the agent refused: {what}")]
    Failed {
        /// The kind of failure, for decisions in code.
        kind: FailureKind,
        /// The agent's message.
        what: String,
    },
    /// The connection failed.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The agent's messages violate the protocol.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The host's clock readings are impossible.
    #[error(transparent)]
    Clock(#[from] ClockError),
}

fn ended(status: &Option<std::process::ExitStatus>, lines: &[String]) -> String {
    let status = status
        .map(|status| format!(" ({status})"))
        .unwrap_or_default();
    if lines.is_empty() {
        status
    } else {
        format!("{status}: {}", lines.join("; "))
    }
}
