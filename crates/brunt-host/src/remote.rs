//! The controller's side of a connection to a host: compares clocks, sends requests and receives messages, on the
//! calling thread.
//!
//! The rule: nothing here waits longer than documented. A host that is silent for [`ConnectOptions::silence_max`] is
//! lost, and dropping a [`RemoteHost`] ends its agent.

use std::time::{Duration, Instant};

use brunt_block::dial::left;
use brunt_core::{Clock, Nanos};
use brunt_load::LoadCommand;
use brunt_probe::Probes;
use brunt_protocol::{Assignment, FromHost, HostFault, RoleOrder, ToHost};

use crate::address::HostAddress;
use crate::agent_process::AgentProcess;
use crate::clock::ClockTrack;
use crate::connect::{self, ConnectOptions};
use crate::host_error::HostError;
use crate::host_news::HostNews;
use crate::run_rules::HostPart;
use crate::session::HostSession;
use crate::stream::{MessageStream, StreamError, StreamState, is_gone};

/// Maximum single wait: poll(2) can wait no longer than a few weeks.
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// Interval at which an agent's lease is renewed while waiting for its reply.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// How long reading may take if an overdue reply is queued behind other messages.
const OVERDUE_MAX: Duration = Duration::from_millis(250);

/// A host with a connected agent.
#[derive(Debug)]
pub struct RemoteHost {
    name: String,
    program: String,
    session: HostSession,
    // Dropped before the process: closing the stream ends the agent, and dropping the process waits for that.
    stream: MessageStream,
    process: Option<AgentProcess>,
    clock: Clock,
    monotonic: ClockTrack,
    wall: ClockTrack,
    silence_max: Duration,
    /// The agent's PID, if it was started on this machine.
    agent_here: Option<u32>,
    /// When a reply became overdue, if it is still missing although other messages arrive.
    overdue: Option<Nanos>,
}

impl RemoteHost {
    /// Connects to the host and waits for its agent's greeting.
    ///
    /// # Errors
    /// The host cannot be reached, or its agent's version differs.
    pub fn connect(
        address: &HostAddress,
        options: &ConnectOptions,
    ) -> Result<RemoteHost, HostError> {
        // Covers the connection, the authentication and the greeting together; copying the program has a separate
        // limit.
        let until = Instant::now() + options.answer_max;
        let (process, stream) = connect::open(address, options, until)?;
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
            let Some(news) = host.receive(until)? else {
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

    /// The agent's PID, if it was started on this machine, directly or for a host in its lab.
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

    /// Requests readings of these interfaces' byte counters.
    ///
    /// # Errors
    /// The connection failed.
    pub fn count(&mut self, interfaces: Vec<String>) -> Result<(), HostError> {
        let message = self.session.count(interfaces);
        self.say(&message)
    }

    /// Makes readings count from a time on the host's clock.
    ///
    /// # Errors
    /// The connection failed.
    pub fn count_from(&mut self, first: Nanos) -> Result<(), HostError> {
        let message = self.session.count_from(first);
        self.say(&message)
    }

    /// Ends the readings; [`HostNews::Counted`] follows.
    ///
    /// # Errors
    /// The connection failed.
    pub fn uncount(&mut self) -> Result<(), HostError> {
        let message = self.session.uncount();
        self.say(&message)
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

    /// Sends a message. A closed connection is not an error here: [`RemoteHost::receive`] finds the last messages, and the
    /// cause.
    fn say(&mut self, message: &ToHost) -> Result<(), HostError> {
        match self.stream.send(message) {
            Err(StreamError::Io { source, .. }) if is_gone(&source) => Ok(()),
            sent => Ok(sent?),
        }
    }

    /// A clock round: requests the host's clock and waits for the reply. Other news is passed to `other`.
    ///
    /// # Errors
    /// The host is lost.
    pub fn clock_round(&mut self, mut other: impl FnMut(HostNews)) -> Result<(), HostError> {
        self.ask_clock()?;
        while self.session.asked_since().is_some() {
            match self.receive(self.clock.now().after(RENEW_EVERY))? {
                Some(HostNews::Clock { .. }) => {}
                Some(news) => other(news),
                None => self.say(&ToHost::Renew)?,
            }
        }
        Ok(())
    }

    /// Returns the next news, waiting until `until` at the latest. Clock rounds are completed along the way.
    ///
    /// # Errors
    /// The host is lost, or could not carry out a request.
    pub fn receive(&mut self, until: Nanos) -> Result<Option<HostNews>, HostError> {
        let mut now = self.clock.now();
        loop {
            // A host that sends everything except the reply counts as silent, too.
            if self.is_overdue(now) {
                return Err(HostError::Silent(self.silence_max));
            }
            // A message that arrived while we were busy counts as received now. The counted time is later than the
            // real one, which keeps all bounds valid.
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
            // Checked only after reading: if this process was stopped or suspended, the reply may already be waiting.
            if lost.is_some_and(|lost| lost <= now) {
                return Err(HostError::Silent(self.silence_max));
            }
            // Partial messages don't extend the wait.
            if until <= now {
                return Ok(None);
            }
        }
    }

    /// Whether a reply is missing although there was enough time for it, and everything queued before it, to arrive.
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
            host.receive(Nanos::MAX),
            Ok(Some(HostNews::Greeted(_)))
        ));
        (host, far)
    }

    /// A reply that arrived in time counts, no matter how late we read it; without a reply, the host is lost.
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
            host.receive(Nanos::MAX),
            Ok(Some(HostNews::Clock { .. }))
        ));
        host.ask_clock().unwrap();
        assert!(matches!(
            host.receive(Nanos::MAX),
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

    /// A continuous stream of other messages doesn't replace a missing reply.
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
            if let Err(error) = host.receive(Nanos::MAX) {
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
        // A 1 MiB frame that arrives at one byte per millisecond.
        rustix::io::write(&from.1, &(1u32 << 20).to_be_bytes()).unwrap();
        let dribble = std::thread::spawn(move || {
            while rustix::io::write(&from.1, b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let until = host.clock.now().after(SILENCE);
        assert!(matches!(host.receive(until), Ok(None)));
        host.ask_clock().unwrap();
        assert!(matches!(
            host.receive(Nanos::MAX),
            Err(HostError::Silent(SILENCE))
        ));
        drop(host);
        dribble.join().unwrap();
    }

    /// A lost host's last messages are still read, although nothing can be sent to it any more.
    #[test]
    fn last_messages_of_a_lost_host_are_read() {
        let (mut host, mut far) = host();
        far.send(&FromHost::Note("bye".into())).unwrap();
        drop(far);
        host.ask_clock().unwrap();
        assert!(matches!(
            host.receive(Nanos::MAX),
            Ok(Some(HostNews::Note(_)))
        ));
        assert!(matches!(
            host.receive(Nanos::MAX),
            Err(HostError::Ended { .. })
        ));
    }
}
