//! Opens a stream to a host's agent, starting the agent where necessary. Used by [`crate::RemoteHost::connect`].

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use brunt_block::dial::{self, DialError, left};
use brunt_lab::{Host, outside};

use crate::address::{GUEST_SOCKET, HostAddress};
use crate::agent_process::AgentProcess;
use crate::host_error::HostError;
use crate::ssh::{self, SshStart};
use crate::stream::{MessageStream, StreamError};
use crate::tls::ControllerTls;

/// How to connect to hosts.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// This program, for greetings: `brunt 0.1.0`, as printed by `brunt --version`.
    pub program: String,
    /// The ssh command with extra arguments: `ssh -F FILE`.
    pub ssh: Vec<String>,
    /// The program on hosts reached through ssh; `None` means the one in their PATH if it has this version, otherwise
    /// a copy of this program.
    pub far_program: Option<String>,
    /// Additional arguments for agents that we start.
    pub arguments: Vec<String>,
    /// Our identity, for agents that listen.
    pub tls: Option<ControllerTls>,
    /// The host in the lab, for [`HostAddress::Lab`].
    pub lab_host: Option<Host>,
    /// The folder of all services, for [`HostAddress::Guest`].
    pub services: Option<PathBuf>,
    /// Maximum time to copy this program to a host.
    pub connect_max: Duration,
    /// Maximum time for everything except the copy: connection, login, greeting.
    pub answer_max: Duration,
    /// A host that doesn't reply for this long is lost.
    pub silence_max: Duration,
}

/// A stream to an agent, and the local process behind it, if there is one.
type OpenedAgent = (Option<AgentProcess>, MessageStream);

/// Opens a stream to the agent at this address, by `until` at the latest, not counting the time to copy the program
/// to it.
pub(crate) fn open(
    address: &HostAddress,
    options: &ConnectOptions,
    until: Instant,
) -> Result<OpenedAgent, HostError> {
    match address {
        HostAddress::Local => own_agent(None, options),
        HostAddress::Lab { name } => {
            let host = options
                .lab_host
                .as_ref()
                .ok_or_else(|| HostError::NoLab(name.clone()))?;
            own_agent(Some(host), options)
        }
        HostAddress::Guest { service } => {
            let folder = options
                .services
                .as_ref()
                .ok_or_else(|| HostError::NoService(service.clone()))?;
            Ok((None, guest_agent(&folder.join(service).join(GUEST_SOCKET))?))
        }
        HostAddress::Agent { host, port } => {
            Ok((None, listening_agent(host, *port, until, options)?))
        }
        HostAddress::Ssh { destination } => ssh_agent(destination, options),
    }
}

/// Starts an agent through ssh.
fn ssh_agent(destination: &str, options: &ConnectOptions) -> Result<OpenedAgent, HostError> {
    let program = options.far_program.as_deref();
    let words = program
        .into_iter()
        .chain(options.arguments.iter().map(String::as_str));
    if let Some(word) = words.into_iter().find(|word| !is_plain_word(word)) {
        return Err(HostError::FarProgram(word.to_string()));
    }
    let (process, stream) = ssh::start(&SshStart {
        ssh: &options.ssh,
        destination,
        program,
        version: &options.program,
        arguments: &options.arguments,
        login_max: options.answer_max,
        copy_max: options.connect_max,
    })?;
    Ok((Some(process), stream))
}

/// Starts this program as an agent, either on this machine or in the network namespace and on the cores of a lab
/// host. The agent exits when its standard input is closed, and when the lab ends.
fn own_agent(host: Option<&Host>, options: &ConnectOptions) -> Result<OpenedAgent, HostError> {
    let os = |what| move |source| HostError::Os { what, source };
    let mut command = Command::new(std::env::current_exe().map_err(os("find this program"))?);
    command.args(["agent", "--stdio"]).args(&options.arguments);
    if let Some(host) = host {
        host.place(&mut command)
            .map_err(os("place the agent on a lab host"))?;
    }
    let (mut process, output) = AgentProcess::spawn(command)?;
    let stream = process.stream(output, &[])?;
    Ok((Some(process), stream))
}

/// Connects to an agent that listens; on return, both sides have authenticated.
fn listening_agent(
    host: &str,
    port: u16,
    until: Instant,
    options: &ConnectOptions,
) -> Result<MessageStream, HostError> {
    let tls = options.tls.as_ref().ok_or(HostError::NoIdentity)?;
    let dialled = outside::run(|| Ok(dial::tcp(host, port, until)));
    let socket = dialled.map_err(HostError::OutsideLab)?.map_err(|error| {
        let (DialError::Resolve(source) | DialError::Connect(source)) = error;
        HostError::Connect {
            host: host.to_string(),
            port,
            source,
        }
    })?;
    let mut stream = MessageStream::sealed(socket, tls.seal(host).map_err(StreamError::from)?)?;
    stream.greet(left(until))?;
    Ok(stream)
}

/// Connects to the agent in a virtual machine through a socket.
fn guest_agent(path: &Path) -> Result<MessageStream, HostError> {
    let guest = |source| HostError::Guest {
        path: path.to_path_buf(),
        source,
    };
    let input = UnixStream::connect(path).map_err(guest)?;
    let output = input.try_clone().map_err(guest)?;
    Ok(MessageStream::new(input.into(), output.into()))
}

/// Whether a shell leaves a word unchanged.
pub fn is_plain_word(word: &str) -> bool {
    let plain = |one: char| one.is_ascii_alphanumeric() || "/._~+-=".contains(one);
    !word.is_empty() && word.chars().all(plain)
}
