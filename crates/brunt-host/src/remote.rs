//! The controller's side of a connection to a host: connects, compares clocks, sends requests and receives messages, on
//! the calling thread.
//!
//! The rule: nothing here waits longer than documented. A host that is silent for [`ConnectOptions::silence_max`] is
//! lost, and dropping a [`RemoteHost`] ends its agent.

use std::collections::VecDeque;
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brunt_block::dial::{self, DialError, left};
use brunt_core::{Clock, Nanos};
use brunt_lab::Host;
use brunt_load::LoadCommand;
use brunt_probe::Probes;
use brunt_protocol::{Assignment, FailureKind, FromHost, HostFault, RoleOrder, ToHost};

use crate::address::{GUEST_SOCKET, HostAddress};
use crate::clock::{ClockError, ClockTrack};
use crate::lines::keep_lines;
use crate::run_rules::HostPart;
use crate::session::{HostNews, HostSession, SessionError};
use crate::ssh::{self, SshStart};
use crate::stream::{MessageStream, StreamError, StreamState, is_gone};
use crate::tls::ControllerTls;

/// How long an agent may take to end after its controller has left; then ssh, or the local process, is killed.
const END_TIME: Duration = Duration::from_secs(3);
/// How long reading the last output of a process that has ended may take.
const LAST_WORDS_TIME: Duration = Duration::from_millis(500);
/// Maximum single wait: poll(2) can wait no longer than a few weeks.
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// Polling interval while waiting for a process to end.
const END_LOOK: Duration = Duration::from_millis(5);
/// How often an agent's lease is renewed while waiting for its reply.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// An overdue reply may be queued behind other messages; this is how long reading those may take.
const OVERDUE_MAX: Duration = Duration::from_millis(250);

/// How to connect to hosts.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// This program, for greetings: `brunt 0.1.0`, as printed by `brunt --version`.
    pub program: String,
    /// The ssh command with extra arguments: `ssh -F FILE`.
    pub ssh: Vec<String>,
    /// The program on hosts reached through ssh; `None` means the one in their path if it is of this version, otherwise
    /// a copy of this one.
    pub far_program: Option<String>,
    /// Additional arguments for agents that we start.
    pub arguments: Vec<String>,
    /// Our identity, for agents that listen.
    pub tls: Option<ControllerTls>,
    /// The lab's host for [`HostAddress::Lab`].
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

/// Why a host cannot be used, or no longer can.
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
    /// The host doesn't listen at this address.
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
        "the host is {theirs}, and this program is for {ours}: install brunt there, and give its \
         path with --far-program"
    )]
    Machine {
        /// The output of its `uname -m`.
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
    /// The host stopped accepting data of the copy.
    #[error(
        "the host accepted no data of this program's copy for {0:?}; check whether the host or \
         its disk hangs"
    )]
    Stalled(Duration),
    /// The host doesn't reply.
    #[error("no message from it within {0:?}")]
    Silent(Duration),
    /// The agent or ssh ended.
    #[error("the agent's connection ended{}", ended(.status, .lines))]
    Ended {
        /// The exit status of the process that connects to it, if it ended.
        status: Option<std::process::ExitStatus>,
        /// Its last lines of output.
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

/// A process that connects to an agent: ssh, or the agent itself. Dropping this ends the process.
#[derive(Debug)]
pub(crate) struct AgentProcess {
    child: Child,
    input: Option<ChildStdin>,
    lines: Arc<Mutex<VecDeque<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl AgentProcess {
    /// Starts the process; also returns its standard output.
    pub fn spawn(mut command: Command) -> Result<(AgentProcess, OwnedFd), HostError> {
        use std::os::unix::process::CommandExt;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // Ctrl-C must only reach this process, which ends the child when it is no longer needed.
        command.process_group(0);
        let mut child = command.spawn().map_err(|source| HostError::Os {
            what: "start the agent or ssh",
            source,
        })?;
        let lines = Arc::default();
        let kept = Arc::clone(&lines);
        let stderr = child.stderr.take().expect("piped");
        let reader = std::thread::spawn(move || keep_lines(BufReader::new(stderr), &kept));
        let output = child.stdout.take().expect("piped").into();
        let input = child.stdin.take();
        Ok((
            AgentProcess {
                child,
                input,
                lines,
                reader: Some(reader),
            },
            output,
        ))
    }

    /// The process's PID on this machine.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The process's standard input, before it becomes part of a stream.
    pub fn input(&mut self) -> Result<&mut ChildStdin, HostError> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.input.as_mut().ok_or_else(|| HostError::Os {
            what: "write to ssh",
            source: gone(),
        })
    }

    /// The connection over the process's input and output, after `read` bytes of the output were consumed.
    pub fn stream(&mut self, output: OwnedFd, read: &[u8]) -> Result<MessageStream, HostError> {
        self.input()?;
        let input = self.input.take().expect("it existed above");
        let mut stream = MessageStream::new(output, input.into());
        stream.begin_with(read);
        Ok(stream)
    }

    /// The output has ended: returns an error with the exit status and the last lines.
    pub fn ended(&mut self, because: Option<io::Error>) -> HostError {
        drop(self.input.take());
        let status = self.wait(END_TIME);
        if let (None, Some(source)) = (status, because) {
            return HostError::Os {
                what: "write to ssh",
                source,
            };
        }
        // By now the last lines have been read, or almost; a child process left behind may keep the pipe open forever.
        let begin = Instant::now();
        while self
            .reader
            .as_ref()
            .is_some_and(|reader| !reader.is_finished())
            && begin.elapsed() < LAST_WORDS_TIME
        {
            std::thread::sleep(END_LOOK);
        }
        let lines = self
            .lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .cloned()
            .collect();
        HostError::Ended { status, lines }
    }

    fn wait(&mut self, at_most: Duration) -> Option<std::process::ExitStatus> {
        let begin = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if begin.elapsed() < at_most => std::thread::sleep(END_LOOK),
                _ => return None,
            }
        }
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        drop(self.input.take());
        if self.wait(END_TIME).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A host with a connected agent.
#[derive(Debug)]
pub struct RemoteHost {
    name: String,
    program: String,
    session: HostSession,
    // Dropped before the process: closing the stream makes the agent end, which dropping the process waits for.
    stream: MessageStream,
    process: Option<AgentProcess>,
    clock: Clock,
    monotonic: ClockTrack,
    wall: ClockTrack,
    silence_max: Duration,
    /// The agent's PID, if it was started on this machine.
    agent_here: Option<u32>,
    /// Since when a reply has been overdue while other messages arrived.
    overdue: Option<Nanos>,
}

impl RemoteHost {
    /// Connects to the host and waits for its agent's greeting.
    ///
    /// # Errors
    /// It cannot be reached, or its agent's version differs.
    pub fn connect(
        address: &HostAddress,
        options: &ConnectOptions,
    ) -> Result<RemoteHost, HostError> {
        // For the connection, the authentication and the greeting together; copying the program has a separate limit.
        let until = Instant::now() + options.answer_max;
        let (process, stream) = match address {
            HostAddress::Local => own_agent(None, options)?,
            HostAddress::Lab { name } => {
                let host = options
                    .lab_host
                    .as_ref()
                    .ok_or_else(|| HostError::NoLab(name.clone()))?;
                own_agent(Some(host), options)?
            }
            HostAddress::Guest { service } => {
                let folder = options
                    .services
                    .as_ref()
                    .ok_or_else(|| HostError::NoService(service.clone()))?;
                (None, guest_agent(&folder.join(service).join(GUEST_SOCKET))?)
            }
            HostAddress::Agent { host, port } => {
                (None, listening_agent(host, *port, until, options)?)
            }
            HostAddress::Ssh { destination } => {
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
                (Some(process), stream)
            }
        };
        let is_here = matches!(address, HostAddress::Local | HostAddress::Lab { .. });
        let agent_here = process.as_ref().filter(|_| is_here).map(AgentProcess::id);
        let mut host = RemoteHost {
            name: address.to_string(),
            program: String::new(),
            session: HostSession::default(),
            stream,
            process,
            clock: Clock::Monotonic,
            monotonic: ClockTrack::default(),
            wall: ClockTrack::default(),
            silence_max: options.silence_max,
            agent_here,
            overdue: None,
        };
        host.say(&HostSession::greeting(&options.program))?;
        let greeting_max = match address {
            HostAddress::Agent { .. } => left(until),
            HostAddress::Local
            | HostAddress::Lab { .. }
            | HostAddress::Guest { .. }
            | HostAddress::Ssh { .. } => options.answer_max,
        };
        let until = host.clock.now().after(greeting_max);
        while host.program.is_empty() {
            let Some(news) = host.hear(until)? else {
                return Err(HostError::Silent(options.answer_max));
            };
            if let HostNews::Greeted(program) = news {
                host.program = program;
            }
        }
        Ok(host)
    }

    /// The host's address as given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The agent's program and version.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// The agent's PID, if it was started on this machine, directly or for a host of its lab.
    pub fn agent_here(&self) -> Option<u32> {
        self.agent_here
    }

    /// The name of the host's clock.
    pub fn clock_name(&self) -> &str {
        self.session
            .clock()
            .map(|name| &*name.0)
            .unwrap_or_default()
    }

    /// The host's `CLOCK_MONOTONIC`, compared with ours.
    pub fn monotonic(&self) -> &ClockTrack {
        &self.monotonic
    }

    /// The host's wall clock, compared with our `CLOCK_MONOTONIC`; its times are nanoseconds since 1970.
    pub fn wall(&self) -> &ClockTrack {
        &self.wall
    }

    /// Bytes sent to and received from the host.
    pub fn bytes(&self) -> [u64; 2] {
        self.stream.bytes()
    }

    /// Requests samples from these probes; notes refer to the host as `name`.
    ///
    /// # Errors
    /// The connection failed.
    pub fn watch(&mut self, name: &str, probes: &Probes) -> Result<(), HostError> {
        let message = self.session.watch(name, probes);
        self.say(&message)
    }

    /// Schedules samples: the first at a time on the host's clock, then one per interval.
    ///
    /// # Errors
    /// The connection failed.
    pub fn watch_from(&mut self, first: Nanos) -> Result<(), HostError> {
        let message = self.session.watch_from(first);
        self.say(&message)
    }

    /// Requests a last sample; [`HostNews::Watched`] follows it.
    ///
    /// # Errors
    /// The connection failed.
    pub fn unwatch(&mut self) -> Result<(), HostError> {
        self.say(&ToHost::Unwatch)
    }

    /// Makes the host prepare its part of a run.
    ///
    /// # Errors
    /// The connection failed.
    pub fn prepare(&mut self, assignment: Assignment, part: HostPart) -> Result<(), HostError> {
        let message = self.session.prepare(assignment, part);
        self.say(&message)
    }

    /// Requests the next piece of the run's request record.
    ///
    /// # Errors
    /// The connection failed.
    pub fn more_requests(&mut self) -> Result<(), HostError> {
        let message = self.session.more_requests();
        self.say(&message)
    }

    /// Requests the next part of the run's journals.
    ///
    /// # Errors
    /// The connection failed.
    pub fn more_journal(&mut self) -> Result<(), HostError> {
        let message = self.session.more_journal();
        self.say(&message)
    }

    /// Starts the run at a time on the host's clock.
    ///
    /// # Errors
    /// The connection failed.
    pub fn start(&mut self, at: Nanos) -> Result<(), HostError> {
        let message = self.session.start(at);
        self.say(&message)
    }

    /// Sends a command to the run's workers.
    ///
    /// # Errors
    /// The connection failed.
    pub fn command(&mut self, command: LoadCommand) -> Result<(), HostError> {
        self.say(&match command {
            LoadCommand::Stop => ToHost::Stop,
            LoadCommand::Rate(rate) => ToHost::Rate(rate),
            LoadCommand::Depth(depth) => ToHost::Depth(depth),
        })
    }

    /// Requests a fault; [`HostNews::FaultProven`] or [`HostNews::FaultFailed`] follows.
    ///
    /// # Errors
    /// The connection failed.
    pub fn put_fault(&mut self, fault: u32, what: HostFault) -> Result<(), HostError> {
        let message = self.session.put_fault(fault, what);
        self.say(&message)
    }

    /// Whether this fault was requested and, as far as is known, has neither failed nor been removed.
    pub(crate) fn has_fault(&self, fault: u32) -> bool {
        self.session.has_fault(fault)
    }

    /// Requests the report of the host's bridge; [`HostNews::Bridge`] follows.
    ///
    /// # Errors
    /// The connection failed.
    pub fn ask_bridge(&mut self) -> Result<(), HostError> {
        let message = self.session.ask_bridge();
        self.say(&message)
    }

    /// Removes a fault; the same messages follow as for [`RemoteHost::put_fault`].
    ///
    /// # Errors
    /// The connection failed.
    pub fn remove_fault(&mut self, fault: u32) -> Result<(), HostError> {
        let message = self.session.remove_fault(fault);
        self.say(&message)
    }

    /// Sends an order to a role; [`HostNews::Role`] follows.
    ///
    /// # Errors
    /// The connection failed.
    pub fn role(&mut self, role: u32, order: RoleOrder) -> Result<(), HostError> {
        let message = self.session.role(role, order);
        self.say(&message)
    }

    /// Ends the run if it is still in progress; [`HostNews::Released`] follows when nothing of it is left.
    ///
    /// # Errors
    /// The connection failed.
    pub fn release(&mut self) -> Result<(), HostError> {
        let message = self.session.release();
        self.say(&message)
    }

    /// Whether a clock request is unanswered.
    pub(crate) fn is_asked(&self) -> bool {
        self.session.asked_since().is_some()
    }

    /// Requests the host's clock; the reply arrives with other news. While a request is unanswered, this only renews
    /// the agent's lease, which may be shorter than the time allowed for the reply.
    ///
    /// # Errors
    /// The connection failed.
    pub fn ask_clock(&mut self) -> Result<(), HostError> {
        if self.session.asked_since().is_some() {
            return self.say(&ToHost::Renew);
        }
        let message = self.session.ask(self.clock.now());
        self.say(&message)
    }

    /// Sends a message. A closed connection is not an error here: [`RemoteHost::hear`] finds the last messages, and the
    /// cause.
    fn say(&mut self, message: &ToHost) -> Result<(), HostError> {
        match self.stream.send(message) {
            Err(StreamError::Io { source, .. }) if is_gone(&source) => Ok(()),
            said => Ok(said?),
        }
    }

    /// A clock round: requests the host's clock and waits for the reply. Other news is passed to `other`.
    ///
    /// # Errors
    /// The host is lost.
    pub fn clock_round(&mut self, mut other: impl FnMut(HostNews)) -> Result<(), HostError> {
        self.ask_clock()?;
        while self.session.asked_since().is_some() {
            match self.hear(self.clock.now().after(RENEW_EVERY))? {
                Some(HostNews::Clock { .. }) => {}
                Some(news) => other(news),
                None => self.say(&ToHost::Renew)?,
            }
        }
        Ok(())
    }

    /// The next news, waiting at most until `until`. Clock rounds are completed along the way.
    ///
    /// # Errors
    /// The host is lost, or could not carry out a request.
    pub fn hear(&mut self, until: Nanos) -> Result<Option<HostNews>, HostError> {
        let mut now = self.clock.now();
        loop {
            // A host that sends everything except the reply counts as silent, too.
            if self.is_overdue(now) {
                return Err(HostError::Silent(self.silence_max));
            }
            // A message that arrived while we were busy counts as received now. That is later than it was, which keeps
            // all bounds valid.
            if let Some(message) = self.stream.take()? {
                return self.take_in(message, now).map(Some);
            }
            let lost = self
                .session
                .asked_since()
                .map(|asked| asked.after(self.silence_max));
            let left = until.min(lost.unwrap_or(until)).since(now).min(WAIT_MAX);
            let state = self.stream.wait(left)?;
            now = self.clock.now();
            if state == StreamState::Closed {
                return Err(self.closed());
            }
            if let Some(message) = self.stream.take()? {
                return self.take_in(message, now).map(Some);
            }
            // Checked only now: if this process was stopped or suspended, the reply may already be waiting.
            if lost.is_some_and(|lost| lost <= now) {
                return Err(HostError::Silent(self.silence_max));
            }
            // Partial messages don't extend the wait.
            if until <= now {
                return Ok(None);
            }
        }
    }

    /// Whether a reply is missing although there was time for it, and for everything queued before it, to arrive.
    fn is_overdue(&mut self, now: Nanos) -> bool {
        let due = self
            .session
            .asked_since()
            .map(|asked| asked.after(self.silence_max));
        if due.is_none_or(|due| now < due) {
            self.overdue = None;
            return false;
        }
        now.since(*self.overdue.get_or_insert(now)) >= OVERDUE_MAX
    }

    fn take_in(&mut self, message: FromHost, now: Nanos) -> Result<HostNews, HostError> {
        let news = self.session.on_message(message, now)?;
        match news {
            HostNews::Clock { monotonic, wall } => {
                self.monotonic.add(monotonic)?;
                self.wall.add(wall)?;
                Ok(HostNews::Clock { monotonic, wall })
            }
            HostNews::Failed(kind, what) => Err(HostError::Failed { kind, what }),
            news => Ok(news),
        }
    }

    fn closed(&mut self) -> HostError {
        match &mut self.process {
            Some(process) => process.ended(None),
            None => HostError::Ended {
                status: None,
                lines: Vec::new(),
            },
        }
    }
}

/// Starts this program as an agent, either on this machine or in the network namespace and on the cores of a lab host.
/// The agent ends with its standard input, and with the lab.
fn own_agent(
    host: Option<&Host>,
    options: &ConnectOptions,
) -> Result<(Option<AgentProcess>, MessageStream), HostError> {
    let os = |what| move |source| HostError::Os { what, source };
    let mut command = Command::new(std::env::current_exe().map_err(os("find this program"))?);
    command.args(["agent", "--stdio"]).args(&options.arguments);
    if let Some(host) = host {
        host.place(&mut command)
            .map_err(os("place the agent on a host of the lab"))?;
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
    let socket = dial::tcp(host, port, until).map_err(|error| {
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

/// Whether a shell passes a word through unchanged.
pub fn is_plain_word(word: &str) -> bool {
    let plain = |one: char| one.is_ascii_alphanumeric() || "/._~+-=".contains(one);
    !word.is_empty() && word.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_protocol::{Moment, VERSION};
    use brunt_result::event::ClockName;

    const SILENCE: Duration = Duration::from_millis(20);

    /// A host at the other end of two pipes, after its greeting.
    fn host() -> (RemoteHost, MessageStream) {
        let (from, to) = (rustix::pipe::pipe().unwrap(), rustix::pipe::pipe().unwrap());
        let mut host = RemoteHost {
            name: "far".into(),
            program: String::new(),
            session: HostSession::default(),
            stream: MessageStream::new(from.0, to.1),
            process: None,
            clock: Clock::Monotonic,
            monotonic: ClockTrack::default(),
            wall: ClockTrack::default(),
            silence_max: SILENCE,
            agent_here: None,
            overdue: None,
        };
        let mut far = MessageStream::new(to.0, from.1);
        let now = Moment {
            clock: ClockName("far".into()),
            at: Nanos(1),
        };
        far.send(&FromHost::Hello {
            version: VERSION,
            program: "brunt 1".into(),
            now,
        })
        .unwrap();
        assert!(matches!(
            host.hear(Nanos::MAX),
            Ok(Some(HostNews::Greeted(_)))
        ));
        (host, far)
    }

    /// A reply that arrived in time counts, however late we read it; without a reply the host is lost.
    #[test]
    fn a_reply_that_arrived_in_time_counts() {
        let (mut host, mut far) = host();
        host.ask_clock().unwrap();
        far.send(&FromHost::Clock {
            round: 1,
            heard: Nanos(5),
            wall_ns: 5,
            answered: Nanos(6),
        })
        .unwrap();
        std::thread::sleep(2 * SILENCE);
        assert!(matches!(
            host.hear(Nanos::MAX),
            Ok(Some(HostNews::Clock { .. }))
        ));
        host.ask_clock().unwrap();
        assert!(matches!(
            host.hear(Nanos::MAX),
            Err(HostError::Silent(SILENCE))
        ));
    }

    /// The agent's lease may be shorter than the time allowed for a reply.
    #[test]
    fn a_lease_is_renewed_while_a_reply_is_awaited() {
        let (mut host, mut far) = host();
        host.ask_clock().unwrap();
        host.ask_clock().unwrap();
        let mut heard = Vec::<ToHost>::new();
        while heard.len() < 2 {
            assert_eq!(
                far.wait(Duration::from_secs(60)).unwrap(),
                StreamState::Heard,
                "{heard:?}"
            );
            heard.extend(std::iter::from_fn(|| far.take().unwrap()));
        }
        assert_eq!(heard, [ToHost::AskClock { round: 1 }, ToHost::Renew]);
    }

    /// A continuous stream of other messages doesn't make up for the reply.
    #[test]
    fn other_messages_do_not_replace_a_reply() {
        let (mut host, mut far) = host();
        host.ask_clock().unwrap();
        let flood = std::thread::spawn(move || {
            while far.send(&FromHost::Note("x".into())).is_ok() {
                far.wait(Duration::ZERO).unwrap();
            }
        });
        let found = loop {
            if let Err(error) = host.hear(Nanos::MAX) {
                break error;
            }
        };
        assert!(matches!(found, HostError::Silent(SILENCE)), "{found}");
        drop(host);
        flood.join().unwrap();
    }

    /// A message that arrives byte by byte and never completes doesn't block callers.
    #[test]
    fn partial_messages_do_not_extend_a_wait() {
        let (from, to) = (rustix::pipe::pipe().unwrap(), rustix::pipe::pipe().unwrap());
        let (mut host, _far) = host();
        host.stream = MessageStream::new(from.0, to.1);
        // A frame of 1 MiB, which arrives at one byte per millisecond.
        rustix::io::write(&from.1, &(1u32 << 20).to_be_bytes()).unwrap();
        let dribble = std::thread::spawn(move || {
            while rustix::io::write(&from.1, b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let until = host.clock.now().after(SILENCE);
        assert!(matches!(host.hear(until), Ok(None)));
        host.ask_clock().unwrap();
        assert!(matches!(
            host.hear(Nanos::MAX),
            Err(HostError::Silent(SILENCE))
        ));
        drop(host);
        dribble.join().unwrap();
    }

    /// Its last messages are still read, although nothing can be sent to it any more.
    #[test]
    fn last_messages_of_a_lost_host_are_read() {
        let (mut host, mut far) = host();
        far.send(&FromHost::Note("bye".into())).unwrap();
        drop(far);
        host.ask_clock().unwrap();
        assert!(matches!(host.hear(Nanos::MAX), Ok(Some(HostNews::Note(_)))));
        assert!(matches!(
            host.hear(Nanos::MAX),
            Err(HostError::Ended { .. })
        ));
    }
}
