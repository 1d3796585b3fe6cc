//! Runs the agent's side of a connection on the calling thread: waits, reads, writes and samples for
//! [`AgentSession`]. A run has its own thread ([`crate::run_thread`]), and ends with the connection.
//!
//! The rule: clock replies go first; data that a slow controller doesn't read is bounded, and counted if it is
//! dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brunt_block::table::BackendEntry;
use brunt_core::{Clock, Nanos};
use brunt_probe::Probes;
use brunt_protocol::{
    Assignment, FailureKind, FromHost, HostFault, Moment, RoleNews, RoleOrder, VERSION, WatchReport,
};
use brunt_result::event::ClockName;

use crate::agent::{AgentAction, AgentEnd, AgentSession};
use crate::agent_run::AgentRun;
use crate::agent_state::AgentState;
use crate::agent_thread::end_all;
use crate::allow::AllowList;
use crate::bridge::{AgentBridge, OpenPacketSink};
use crate::clock::moved;
use crate::clock_name;
use crate::counting::InterfaceCounting;
use crate::faults::{AgentFault, no_thread};
use crate::plain::plain;
use crate::roles::{AgentRole, RoleGround, RoleRequest, Serving, role_without_thread};
use crate::run_thread::AgentOrder;
use crate::sampling::{AgentClock, AgentProber};
use crate::stream::{MessageStream, StreamError, StreamState};

/// Interval between checks of `stop`.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval between checks for a run's news.
const RUN_POLL: Duration = Duration::from_millis(10);
/// While more than this many low-priority bytes wait to be sent, no further part of a service's log is added.
const LOG_BACKLOG_BYTES: usize = 128 << 10;

/// An agent's settings.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The program and its version, as sent in the greeting.
    pub program: String,
    /// A connection ends after receiving nothing for this long.
    pub lease: Duration,
    /// Added to all times, so that tests can have hosts with different clocks.
    pub clock_shift_ns: i64,
    /// What the agent may open for a controller.
    pub allow: AllowList,
    /// Backends from other crates.
    pub backends: &'static [BackendEntry],
    /// How this program serves targets and sinks.
    pub serving: Serving,
    /// How this program creates a capture file for a bridge's packets.
    pub packet_sink: OpenPacketSink,
}

/// Serves a connection until it ends, or until `stop` is set.
///
/// # Errors
/// The stream failed, or it contained bytes that are not valid messages.
pub fn serve(
    mut stream: MessageStream,
    config: &AgentConfig,
    stop: &AtomicBool,
) -> Result<AgentEnd, StreamError> {
    let mut work = AgentWork::new(config);
    let mut session = AgentSession::new(config.lease, work.clock.now());
    let now = Moment {
        clock: work.name.clone(),
        at: work.shifted(work.clock.now()),
    };
    stream.send(&FromHost::Hello {
        version: VERSION,
        program: config.program.clone(),
        now,
    })?;
    loop {
        let now = work.clock.now();
        if stop.load(Ordering::Relaxed) {
            return Ok(AgentEnd::Stopped);
        }
        let look = if work.is_at_work() {
            RUN_POLL
        } else {
            POLL_INTERVAL
        };
        let state = stream.wait(session.deadline().since(now).min(look))?;
        let heard = work.clock.now();
        while let Some(message) = stream.take()? {
            match session.on_message(message, heard) {
                Ok(Some(action)) => work.act(action, &mut stream)?,
                Ok(None) => {}
                Err(error) => return Ok(AgentEnd::Greeting(error)),
            }
        }
        if state == StreamState::Closed {
            return Ok(AgentEnd::Closed);
        }
        // Checked only after reading: if this process was stopped or had no CPU, a message that renews the lease may
        // be waiting.
        if now >= session.deadline() {
            let what = format!("no message within {:?}", config.lease);
            let kind = FailureKind::LeaseOver;
            // The controller is probably gone; if it isn't, this tells it the reason.
            let _ = stream.send(&FromHost::Failed { kind, what });
            return Ok(AgentEnd::LeaseOver);
        }
        work.pass_on(&mut session, &mut stream)?;
    }
}

/// The agent's state apart from the protocol's.
struct AgentWork {
    clock: Clock,
    name: ClockName,
    shift_ns: i64,
    watching: Option<AgentProber>,
    counting: Option<InterfaceCounting>,
    agent_state: Arc<AgentState>,
    run: Option<AgentRun>,
    /// Set when a release was requested without a run to release, and has not been confirmed yet.
    released: bool,
    allow: Arc<AllowList>,
    faults: BTreeMap<u32, AgentFault>,
    /// Numbers of faults whose thread could not be started.
    unmade: Vec<u32>,
    bridge: AgentBridge,
    roles: BTreeMap<u32, AgentRole>,
    /// Numbers of roles whose thread could not be started.
    unstarted: Vec<u32>,
    ground: RoleGround,
}

impl Drop for AgentWork {
    /// Ends faults and roles in parallel, so that a hanging one doesn't delay the rest.
    fn drop(&mut self) {
        let faults = std::mem::take(&mut self.faults)
            .into_values()
            .map(AgentFault::into_thread);
        let roles = std::mem::take(&mut self.roles)
            .into_values()
            .map(AgentRole::into_thread);
        end_all(faults.chain(roles));
    }
}

impl AgentWork {
    fn new(config: &AgentConfig) -> AgentWork {
        let (allow, folders) = (Arc::new(config.allow.clone()), Arc::default());
        let (serving, shift_ns) = (config.serving, config.clock_shift_ns);
        let ground = RoleGround {
            allow: Arc::clone(&allow),
            serving,
            folders,
            shift_ns,
        };
        AgentWork {
            clock: Clock::Monotonic,
            name: clock_name(config.clock_shift_ns),
            shift_ns: config.clock_shift_ns,
            watching: None,
            counting: None,
            agent_state: Arc::new(AgentState::new(
                Arc::clone(&allow),
                config.backends,
                config.clock_shift_ns,
            )),
            run: None,
            released: false,
            allow,
            faults: BTreeMap::new(),
            unmade: Vec::new(),
            bridge: AgentBridge::new(config.packet_sink),
            roles: BTreeMap::new(),
            unstarted: Vec::new(),
            ground,
        }
    }

    fn shifted(&self, at: Nanos) -> Nanos {
        moved(at, self.shift_ns)
    }

    fn act(&mut self, action: AgentAction, stream: &mut MessageStream) -> Result<(), StreamError> {
        match action {
            AgentAction::Send(message) => stream.send(&*message),
            AgentAction::AnswerClock { round, heard } => self.answer_clock(round, heard, stream),
            AgentAction::Watch(probes, host) => self.watch(&probes, &host, stream),
            AgentAction::WatchFrom(moment) => {
                let first = self.own_time(&moment, stream)?;
                if let (Some(prober), Some(first)) = (&self.watching, first) {
                    prober.begin_again(first);
                }
                Ok(())
            }
            AgentAction::Unwatch => self.unwatch(stream),
            AgentAction::Count(interfaces) => self.count(interfaces, stream),
            AgentAction::CountFrom(moment) => self.count_from(&moment, stream),
            AgentAction::Uncount => self.uncount(stream),
            AgentAction::PutFault(fault, what) => self.put_fault(fault, what, stream),
            AgentAction::TellBridge => {
                stream.send(&FromHost::Bridge(self.bridge.report().map(Box::new)))
            }
            AgentAction::RemoveFault(fault) => {
                self.faults
                    .get(&fault)
                    .into_iter()
                    .for_each(AgentFault::remove);
                Ok(())
            }
            AgentAction::StartRole(role, wish) => {
                self.begin_role(role, RoleRequest::Serve(wish), stream)
            }
            AgentAction::AdmitService(role, service) => {
                self.begin_role(role, RoleRequest::Keep(service), stream)
            }
            AgentAction::TellRole(role, order) => {
                self.tell_role(role, order);
                Ok(())
            }
            AgentAction::Prepare(assignment) => self.prepare(*assignment, stream),
            AgentAction::Start(moment) => {
                if let Some(at) = self.own_time(&moment, stream)? {
                    self.tell(AgentOrder::Start(at));
                }
                Ok(())
            }
            AgentAction::Command(command) => {
                self.tell(AgentOrder::Command(command));
                Ok(())
            }
            AgentAction::SendRequests => {
                self.tell(AgentOrder::SendRequests);
                Ok(())
            }
            AgentAction::SendJournal => {
                self.tell(AgentOrder::SendJournal);
                Ok(())
            }
            AgentAction::Release => {
                self.tell(AgentOrder::Release);
                // If there is no run, its thread could not be started or panicked.
                self.released = self.run.is_none();
                Ok(())
            }
        }
    }

    fn answer_clock(
        &self,
        round: u32,
        heard: Nanos,
        stream: &mut MessageStream,
    ) -> Result<(), StreamError> {
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let wall_ns = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
        let wall_ns = self.shifted(Nanos(wall_ns)).0;
        let (heard, answered) = (self.shifted(heard), self.shifted(self.clock.now()));
        stream.send(&FromHost::Clock {
            round,
            heard,
            wall_ns,
            answered,
        })
    }

    fn prepare(
        &mut self,
        assignment: Assignment,
        stream: &mut MessageStream,
    ) -> Result<(), StreamError> {
        match AgentRun::begin(assignment, &self.agent_state) {
            Ok(run) => {
                self.run = Some(run);
                Ok(())
            }
            Err(error) => {
                let what = format!("cannot start a thread for the run: {error}");
                stream.send(&FromHost::Failed {
                    kind: FailureKind::Broken,
                    what,
                })
            }
        }
    }

    /// Whether news may arrive at any time.
    fn is_at_work(&self) -> bool {
        self.run.is_some()
            || self.counting.is_some()
            || !self.faults.is_empty()
            || self.roles.values().any(AgentRole::is_busy)
    }

    fn put_fault(
        &mut self,
        fault: u32,
        what: HostFault,
        stream: &mut MessageStream,
    ) -> Result<(), StreamError> {
        match AgentFault::begin(fault, what, &self.allow, &self.bridge, self.shift_ns) {
            Ok(begun) => {
                self.faults.insert(fault, begun);
                Ok(())
            }
            Err(error) => {
                self.unmade.push(fault);
                stream.send(&no_thread(fault, &error))
            }
        }
    }

    /// Forwards all news since the last call.
    fn pass_on(
        &mut self,
        session: &mut AgentSession,
        stream: &mut MessageStream,
    ) -> Result<(), StreamError> {
        if self.pass_on_news(stream)? {
            session.released();
        }
        for fault in self.pass_on_faults(stream)? {
            session.fault_over(fault);
        }
        for role in self.pass_on_roles(stream)? {
            session.role_over(role);
        }
        self.pass_on_counted(stream)?;
        self.pass_on_samples(stream)
    }

    /// Forwards the news of faults since the last call; returns the numbers of faults that are over.
    fn pass_on_faults(&mut self, stream: &mut MessageStream) -> Result<Vec<u32>, StreamError> {
        let mut over = std::mem::take(&mut self.unmade);
        for (number, fault) in &mut self.faults {
            let (news, is_over) = fault.news();
            news.iter().try_for_each(|one| stream.send(one))?;
            if is_over {
                over.push(*number);
            }
        }
        over.iter()
            .for_each(|number| drop(self.faults.remove(number)));
        Ok(over)
    }

    fn begin_role(
        &mut self,
        number: u32,
        wish: RoleRequest,
        stream: &mut MessageStream,
    ) -> Result<(), StreamError> {
        match AgentRole::begin(wish, &self.ground) {
            Ok(begun) => {
                self.roles.insert(number, begun);
                Ok(())
            }
            Err(error) => {
                self.unstarted.push(number);
                stream.send(&FromHost::Role {
                    role: number,
                    news: role_without_thread(&error),
                })
            }
        }
    }

    fn tell_role(&mut self, number: u32, order: RoleOrder) {
        if let Some(role) = self.roles.get_mut(&number) {
            role.tell(order);
        }
    }

    /// Forwards the news of roles since the last call; returns the numbers of roles that are over.
    fn pass_on_roles(&mut self, stream: &mut MessageStream) -> Result<Vec<u32>, StreamError> {
        let mut over = std::mem::take(&mut self.unstarted);
        for (number, role) in &mut self.roles {
            // Output that a slow controller doesn't read stays in the service's log.
            while stream.later_backlog() <= LOG_BACKLOG_BYTES
                && let Some(part) = role.log_part()
            {
                stream.send_later(&FromHost::Role {
                    role: *number,
                    news: RoleNews::Log(part),
                })?;
            }
            let (news, is_over) = role.news();
            if let (Some(prober), Some(pid)) = (&mut self.watching, role.pid) {
                prober.watch_role(*number, &role.name, pid, role.keeps);
            }
            for news in news {
                let is_last = news.is_last();
                let message = FromHost::Role {
                    role: *number,
                    news,
                };
                // The role's last message follows its log, because nothing may come after it.
                if is_last {
                    stream.send_later(&message)?
                } else {
                    stream.send(&message)?
                }
            }
            if is_over {
                over.push(*number);
            }
        }
        for number in &over {
            self.roles.remove(number);
            self.watching
                .iter_mut()
                .for_each(|prober| prober.forget_role(*number));
        }
        Ok(over)
    }

    fn tell(&self, order: AgentOrder) {
        if let Some(run) = &self.run {
            run.tell(order);
        }
    }

    /// Forwards the run's news since the last call; returns whether nothing of the run is left.
    fn pass_on_news(&mut self, stream: &mut MessageStream) -> Result<bool, StreamError> {
        if std::mem::take(&mut self.released) {
            stream.send(&FromHost::Released)?;
            return Ok(true);
        }
        let Some(run) = &self.run else {
            return Ok(false);
        };
        let mut gone = false;
        // Checked before reading, so that the last news is forwarded below.
        let is_over = run.is_over();
        for news in run.news() {
            gone |= news == FromHost::Released;
            stream.send(&news)?;
        }
        if is_over && !gone {
            // The controller gives up on this host and reports this as the reason.
            let what = "the run's thread panicked; see the agent's standard error".to_string();
            stream.send(&FromHost::Failed {
                kind: FailureKind::Broken,
                what,
            })?;
        }
        if is_over || gone {
            self.run = None;
        }
        Ok(gone)
    }

    fn watch(
        &mut self,
        probes: &Probes,
        host: &str,
        stream: &mut MessageStream,
    ) -> Result<(), StreamError> {
        let of = AgentClock {
            name: self.name.clone(),
            shift_ns: self.shift_ns,
        };
        match AgentProber::start(probes, host, of) {
            Ok(mut prober) => {
                for (number, role) in &self.roles {
                    let watch = |pid| prober.watch_role(*number, &role.name, pid, role.keeps);
                    role.pid.into_iter().for_each(watch);
                }
                self.watching = Some(prober);
                Ok(())
            }
            Err(error) => {
                let what = format!("cannot start a thread to sample this host: {error}");
                stream.send(&FromHost::Failed {
                    kind: FailureKind::Broken,
                    what,
                })
            }
        }
    }

    /// Without counters, there are no readings, and the controller reports that they are missing.
    fn count(
        &mut self,
        interfaces: Vec<String>,
        stream: &mut MessageStream,
    ) -> Result<(), StreamError> {
        match InterfaceCounting::start(interfaces, self.shift_ns) {
            Ok(counting) => {
                self.counting = Some(counting);
                Ok(())
            }
            Err(error) => {
                self.counting = None;
                let what = format!("cannot count the bytes of interfaces: {error}");
                stream.send(&FromHost::Note(what))
            }
        }
    }

    fn count_from(&self, moment: &Moment, stream: &mut MessageStream) -> Result<(), StreamError> {
        let first = self.own_time(moment, stream)?;
        if let (Some(counting), Some(first)) = (&self.counting, first) {
            counting.begin_again(first);
        }
        Ok(())
    }

    fn uncount(&self, stream: &mut MessageStream) -> Result<(), StreamError> {
        match &self.counting {
            Some(counting) => {
                counting.finish();
                Ok(())
            }
            None => stream.send(&FromHost::Counted(Vec::new())),
        }
    }

    fn pass_on_counted(&mut self, stream: &mut MessageStream) -> Result<(), StreamError> {
        let counted = self.counting.as_ref().and_then(InterfaceCounting::counted);
        let Some(counted) = counted else {
            return Ok(());
        };
        self.counting = None;
        stream.send(&counted)
    }

    fn unwatch(&self, stream: &mut MessageStream) -> Result<(), StreamError> {
        match &self.watching {
            Some(prober) => {
                prober.finish();
                Ok(())
            }
            None => stream.send_later(&FromHost::Watched(WatchReport::default())),
        }
    }

    fn pass_on_samples(&mut self, stream: &mut MessageStream) -> Result<(), StreamError> {
        if let Some(prober) = &mut self.watching
            && prober.pass_on(stream)?
        {
            self.watching = None;
        }
        Ok(())
    }

    /// Converts a time on the clock named in our greeting to this machine's clock; rejects times on other clocks.
    fn own_time(
        &self,
        moment: &Moment,
        stream: &mut MessageStream,
    ) -> Result<Option<Nanos>, StreamError> {
        if moment.clock == self.name {
            return Ok(Some(moved(moment.at, self.shift_ns.saturating_neg())));
        }
        let what = format!(
            "a time on clock '{}' instead of '{}'",
            plain(&moment.clock.0),
            self.name.0
        );
        stream.send(&FromHost::Failed {
            kind: FailureKind::Refused,
            what,
        })?;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_protocol::{HostRole, ToHost};
    use std::sync::atomic::AtomicU32;
    use std::time::Instant;

    fn config(lease: Duration, serving: Serving) -> AgentConfig {
        let (allow, program) = (AllowList::everything(), "brunt test".to_string());
        AgentConfig {
            program,
            lease,
            clock_shift_ns: 0,
            allow,
            backends: &[],
            serving,
            packet_sink: crate::bridge::empty_file,
        }
    }

    /// Hanging roles are abandoned together: one after another, they would take three seconds each.
    #[test]
    fn roles_that_hang_are_abandoned_together() {
        const ROLES: u32 = 40;
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let (from, to) = (rustix::pipe::pipe().unwrap(), rustix::pipe::pipe().unwrap());
        let agent = MessageStream::new(from.0, to.1);
        let mut controller = MessageStream::new(to.0, from.1);
        controller
            .send(&ToHost::Hello {
                version: VERSION,
                program: "brunt test".into(),
            })
            .unwrap();
        for role in 0..ROLES {
            let wish = HostRole {
                name: "disk".into(),
                serve: serde_json::json!("memory:1MiB"),
                address: "127.0.0.1".parse().unwrap(),
                congestion: None,
                login: None,
            };
            let order = RoleOrder::Start(Box::new(wish));
            controller.send(&ToHost::Role { role, order }).unwrap();
        }
        // The role threads end with the test's process.
        let config = config(Duration::from_secs(600), |_| {
            STARTED.fetch_add(1, Ordering::Relaxed);
            loop {
                std::thread::park();
            }
        });
        let serving =
            std::thread::spawn(move || serve(agent, &config, &AtomicBool::new(false)).is_ok());
        while STARTED.load(Ordering::Relaxed) < ROLES {
            assert!(
                !serving.is_finished(),
                "the agent serves until its controller has gone"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(controller);
        let begin = Instant::now();
        assert!(
            serving.join().unwrap(),
            "the agent ends with its controller"
        );
        let took = begin.elapsed();
        assert!(
            took < Duration::from_secs(60),
            "{ROLES} roles took {took:?}"
        );
    }

    /// After being suspended for longer than its lease, an agent reads pending messages before it gives up on its
    /// controller.
    #[test]
    fn a_pending_message_renews_the_lease_of_a_suspended_agent() {
        let (from, to) = (rustix::pipe::pipe().unwrap(), rustix::pipe::pipe().unwrap());
        let agent = MessageStream::new(from.0, to.1);
        let mut controller = MessageStream::new(to.0, from.1);
        controller
            .send(&ToHost::Hello {
                version: VERSION,
                program: "brunt test".into(),
            })
            .unwrap();
        controller.send(&ToHost::AskClock { round: 1 }).unwrap();
        // The lease has expired at the first check.
        let config = config(Duration::from_nanos(1), |_| {
            Err(crate::NotServed("nothing is served here".into()))
        });
        let end = serve(agent, &config, &AtomicBool::new(false)).unwrap();
        assert!(matches!(end, AgentEnd::LeaseOver), "{end:?}");
        let mut heard: Vec<FromHost> = Vec::new();
        while controller.wait(Duration::from_secs(60)).unwrap() == StreamState::Heard {
            heard.extend(std::iter::from_fn(|| controller.take().unwrap()));
        }
        assert!(
            matches!(heard[1], FromHost::Clock { round: 1, .. }),
            "{heard:?}"
        );
        assert!(
            matches!(
                heard[2],
                FromHost::Failed {
                    kind: FailureKind::LeaseOver,
                    ..
                }
            ),
            "{heard:?}"
        );
    }
}
