//! The agent's side of the protocol: how each message is answered, and when the lease expires. This module does no
//! I/O and reads no clock; [`crate::connection`] waits, reads and writes.
//!
//! The rule: nothing is done for a controller before a valid greeting.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use brunt_core::{Nanos, Span};
use brunt_load::LoadCommand;
use brunt_probe::Probes;
use brunt_protocol::{
    Assignment, FailureKind, FrameError, FromHost, HostFault, HostRole, HostService,
    INTERFACES_MAX, Moment, RoleOrder, ToHost,
};

use crate::plain::plain;

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentAction {
    /// Send this message.
    Send(Box<FromHost>),
    /// Send the clock's time, read as late as possible.
    AnswerClock {
        /// Copied from the request.
        round: u32,
        /// When the request was received.
        heard: Nanos,
    },
    /// Sample the host's counters with these probes, replacing earlier ones. The string is the controller's name for
    /// the host.
    Watch(Probes, String),
    /// Samples are due from this time, at each interval.
    WatchFrom(Moment),
    /// Take a last sample, and send [`FromHost::Watched`].
    Unwatch,
    /// Prepare this run. The previous one has been released.
    Prepare(Box<Assignment>),
    /// Start the prepared run at this time. Happens only once.
    Start(Moment),
    /// Pass this command to the run's workers.
    Command(LoadCommand),
    /// Send the next piece of the run's request record.
    SendRequests,
    /// Send the next part of the run's journals.
    SendJournal,
    /// Read the byte counters of these interfaces, replacing earlier ones.
    Count(Vec<String>),
    /// Readings count from this time.
    CountFrom(Moment),
    /// Finish reading, and send [`FromHost::Counted`].
    Uncount,
    /// Inject this fault.
    PutFault(u32, HostFault),
    /// Send the bridge's report.
    TellBridge,
    /// Remove the fault with this number.
    RemoveFault(u32),
    /// Start this role.
    StartRole(u32, Box<HostRole>),
    /// Admit this service.
    AdmitService(u32, Box<HostService>),
    /// Pass an order to the role with this number.
    TellRole(u32, RoleOrder),
    /// End the run if it is still in progress, and send [`FromHost::Released`] when nothing of it is left.
    Release,
}

/// Why a connection has ended.
#[derive(Debug)]
pub enum AgentEnd {
    /// The controller closed the connection.
    Closed,
    /// Nothing was received for the duration of the lease.
    LeaseOver,
    /// This program is being stopped.
    Stopped,
    /// The peer is not a controller, or its version differs.
    Greeting(FrameError),
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunState {
    /// There is no run.
    None,
    /// A run was requested.
    Prepared,
    /// The start time was received.
    Started,
    /// The run was released, but part of it may still exist.
    Releasing,
}

/// The agent's side of one connection.
#[derive(Debug)]
pub struct AgentSession {
    greeted: bool,
    lease: Duration,
    heard: Nanos,
    run: RunState,
    /// Injected faults, and whether their removal has been requested.
    faults: BTreeMap<u32, bool>,
    /// Roles that have been started and have not ended.
    roles: BTreeSet<u32>,
}

/// Maximum number of simultaneous faults.
const FAULTS_MAX: usize = 64;
/// Maximum number of simultaneous roles.
const ROLES_MAX: usize = 64;

impl AgentSession {
    /// Starts the session at `now`; each message from the controller renews the lease.
    ///
    /// # Panics
    /// The lease is zero: it would expire immediately.
    pub fn new(lease: Duration, now: Nanos) -> AgentSession {
        assert!(!lease.is_zero(), "a lease must not be zero");
        let (faults, roles) = Default::default();
        AgentSession {
            greeted: false,
            lease,
            heard: now,
            run: RunState::None,
            faults,
            roles,
        }
    }

    /// When the lease expires.
    pub fn deadline(&self) -> Nanos {
        self.heard.after(self.lease)
    }

    /// Handles a message received at `now` and returns the resulting action.
    ///
    /// # Errors
    /// The connection must end: the first message is not a greeting of this version.
    pub fn on_message(
        &mut self,
        message: ToHost,
        now: Nanos,
    ) -> Result<Option<AgentAction>, FrameError> {
        if !self.greeted {
            message.check_greeting()?;
            self.greeted = true;
            self.heard = now;
            return Ok(None);
        }
        self.heard = now;
        Ok(match message {
            ToHost::AskClock { round } => Some(AgentAction::AnswerClock { round, heard: now }),
            ToHost::Watch {
                name,
                interval_ms,
                only,
                processes,
            } => Some(watch(plain(&name), interval_ms, only, processes)),
            ToHost::WatchFrom(first) => Some(AgentAction::WatchFrom(first)),
            ToHost::Unwatch => Some(AgentAction::Unwatch),
            ToHost::Count { interfaces } if interfaces.len() > INTERFACES_MAX => {
                Some(refuse("too many interfaces"))
            }
            ToHost::Count { interfaces } => Some(AgentAction::Count(interfaces)),
            ToHost::CountFrom(first) => Some(AgentAction::CountFrom(first)),
            ToHost::Uncount => Some(AgentAction::Uncount),
            ToHost::Renew => None,
            ToHost::Hello { .. } => Some(refuse("a second greeting")),
            ToHost::Prepare(assignment) => Some(self.prepare(assignment)),
            ToHost::Start(at) => Some(self.start(at)),
            ToHost::Stop => self.command(LoadCommand::Stop),
            ToHost::Rate(rate) => self.command(LoadCommand::Rate(rate)),
            ToHost::Depth(depth) => self.command(LoadCommand::Depth(depth)),
            ToHost::MoreRequests => Some(self.more_of_run(
                AgentAction::SendRequests,
                "the run does not record requests",
            )),
            ToHost::MoreJournal => Some(self.more_of_run(
                AgentAction::SendJournal,
                "the run has no journals of acknowledged writes",
            )),
            ToHost::Release => Some(self.release()),
            ToHost::PutFault { fault, what } => Some(self.put_fault(fault, what)),
            ToHost::AskBridge => Some(AgentAction::TellBridge),
            ToHost::RemoveFault { fault } => self.remove_fault(fault),
            ToHost::Role {
                role,
                order: RoleOrder::Start(wish),
            } => Some(self.begin_role(role, AgentAction::StartRole(role, wish))),
            ToHost::Role {
                role,
                order: RoleOrder::Admit(service),
            } => Some(self.begin_role(role, AgentAction::AdmitService(role, service))),
            // An order for a role that has already ended is late, not an error.
            ToHost::Role { role, order } => self
                .roles
                .contains(&role)
                .then_some(AgentAction::TellRole(role, order)),
            ToHost::TracePart { .. } => Some(refuse("this agent does not replay traces")),
        })
    }

    /// Records that nothing is left of the released run.
    ///
    /// # Panics
    /// No run was released.
    pub fn released(&mut self) {
        assert_eq!(self.run, RunState::Releasing, "unexpected end of a run");
        self.run = RunState::None;
    }

    /// Records that a fault was removed, or never took effect.
    ///
    /// # Panics
    /// The fault was not requested.
    pub fn fault_over(&mut self, fault: u32) {
        assert!(
            self.faults.remove(&fault).is_some(),
            "end of an unknown fault"
        );
    }

    /// Records that nothing is left of this role.
    ///
    /// # Panics
    /// The role was not requested.
    pub fn role_over(&mut self, role: u32) {
        assert!(self.roles.remove(&role), "end of an unknown role");
    }

    fn begin_role(&mut self, role: u32, action: AgentAction) -> AgentAction {
        if self.roles.len() >= ROLES_MAX {
            return refuse(&format!("more than {ROLES_MAX} roles at once"));
        }
        if !self.roles.insert(role) {
            return refuse("a duplicate role number");
        }
        action
    }

    fn put_fault(&mut self, fault: u32, what: HostFault) -> AgentAction {
        if self.faults.len() >= FAULTS_MAX {
            return refuse(&format!("more than {FAULTS_MAX} faults at once"));
        }
        if self.faults.contains_key(&fault) {
            return refuse("a duplicate fault number");
        }
        self.faults.insert(fault, false);
        AgentAction::PutFault(fault, what)
    }

    /// If the fault is already over because it could not be injected, the request is merely late, not an error.
    fn remove_fault(&mut self, fault: u32) -> Option<AgentAction> {
        let removing = self.faults.get_mut(&fault)?;
        (!std::mem::replace(removing, true)).then_some(AgentAction::RemoveFault(fault))
    }

    fn prepare(&mut self, assignment: Box<Assignment>) -> AgentAction {
        if self.run != RunState::None {
            return refuse("a run is already prepared");
        }
        self.run = RunState::Prepared;
        AgentAction::Prepare(assignment)
    }

    fn start(&mut self, at: Moment) -> AgentAction {
        if self.run != RunState::Prepared {
            return refuse("start without a prepared run");
        }
        self.run = RunState::Started;
        AgentAction::Start(at)
    }

    /// A command for a run that has ended is merely late, not an error.
    fn command(&self, command: LoadCommand) -> Option<AgentAction> {
        matches!(self.run, RunState::Prepared | RunState::Started)
            .then_some(AgentAction::Command(command))
    }

    /// Only the run knows whether it keeps a record or journals.
    fn more_of_run(&self, action: AgentAction, without: &str) -> AgentAction {
        match self.run {
            RunState::Started => action,
            _ => refuse(without),
        }
    }

    fn release(&mut self) -> AgentAction {
        match self.run {
            RunState::None => AgentAction::Send(Box::new(FromHost::Released)),
            RunState::Releasing => refuse("it was already released"),
            RunState::Prepared | RunState::Started => {
                self.run = RunState::Releasing;
                AgentAction::Release
            }
        }
    }
}

fn watch(name: String, interval_ms: u64, only: Vec<String>, processes: Vec<String>) -> AgentAction {
    let interval = Span(Duration::from_millis(interval_ms));
    let probes = Probes {
        interval,
        only,
        processes,
        hosts: None,
    };
    match probes.check() {
        Ok(()) if probes.is_on() => AgentAction::Watch(probes, name),
        Ok(()) => refuse("an interval of 0"),
        Err(error) => refuse(&error.to_string()),
    }
}

fn refuse(what: &str) -> AgentAction {
    AgentAction::Send(Box::new(FromHost::Failed {
        kind: FailureKind::Refused,
        what: what.to_string(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_only;
    use brunt_protocol::{Secret, TraceDigest, VERSION};
    use brunt_result::event::ClockName;

    fn hello(version: u32) -> ToHost {
        ToHost::Hello {
            version,
            program: "brunt 1".into(),
        }
    }

    fn watch(interval_ms: u64, only: &[&str]) -> ToHost {
        let only = only.iter().map(|name| (*name).into()).collect();
        ToHost::Watch {
            name: "a".into(),
            interval_ms,
            only,
            processes: vec![],
        }
    }

    fn greeted() -> AgentSession {
        let mut session = AgentSession::new(Duration::from_secs(5), Nanos(0));
        assert_eq!(session.on_message(hello(VERSION), Nanos(1)).unwrap(), None);
        session
    }

    /// Nothing happens before a greeting of this version.
    #[test]
    fn nothing_is_done_without_a_greeting() {
        let first = [
            ToHost::AskClock { round: 1 },
            watch(100, &[]),
            ToHost::Renew,
        ];
        for message in first {
            let mut session = AgentSession::new(Duration::from_secs(5), Nanos(0));
            assert!(matches!(
                session.on_message(message, Nanos(1)),
                Err(FrameError::NoGreeting)
            ));
        }
        let mut session = AgentSession::new(Duration::from_secs(5), Nanos(0));
        let error = session
            .on_message(hello(VERSION + 1), Nanos(1))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&format!("version {}", VERSION + 1))
                && error.contains(&format!("this side version {VERSION}"))
        );
    }

    #[test]
    fn each_message_has_its_answer() {
        let check = |message: ToHost, expected: &str| {
            let action = greeted().on_message(message, Nanos(7)).unwrap();
            let shown = format!("{action:?}");
            assert!(shown.contains(expected), "{shown}");
        };
        check(
            ToHost::AskClock { round: 3 },
            "AnswerClock { round: 3, heard: Nanos(7) }",
        );
        check(watch(100, &["cpu"]), "Watch(Probes {");
        check(watch(1, &[]), "Refused, what: \"interval: 1ms: write 10ms");
        check(watch(0, &[]), "an interval of 0");
        check(watch(100, &["gpu"]), "unknown probe gpu");
        let nowhere = ToHost::Watch {
            name: "a".into(),
            interval_ms: 100,
            only: vec![],
            processes: vec!["/bin/x".into()],
        };
        check(nowhere, "without a folder");
        check(ToHost::WatchFrom(moment()), "WatchFrom(Moment");
        check(ToHost::Unwatch, "Unwatch");
        let count = |interfaces| ToHost::Count {
            interfaces: vec!["eth0".into(); interfaces],
        };
        check(count(1), "Count([\"eth0\"])");
        check(count(INTERFACES_MAX + 1), "too many interfaces");
        check(ToHost::CountFrom(moment()), "CountFrom(Moment");
        check(ToHost::Uncount, "Uncount");
        check(ToHost::AskBridge, "TellBridge");
        check(ToHost::Renew, "None");
        check(hello(VERSION), "a second greeting");
        check(ToHost::Stop, "None");
        check(ToHost::Start(moment()), "start without a prepared run");
        check(ToHost::Release, "Released");
        check(ToHost::MoreRequests, "does not record requests");
        check(ToHost::MoreJournal, "has no journals");
        check(
            ToHost::TracePart {
                trace: TraceDigest("0".into()),
                bytes: vec![],
            },
            "does not replay traces",
        );
    }

    fn moment() -> Moment {
        Moment {
            clock: ClockName("a".into()),
            at: Nanos(9),
        }
    }

    fn assignment() -> ToHost {
        ToHost::Prepare(Box::new(test_only::assignment(
            "",
            "iscsi://me%hush@host/t/0",
        )))
    }

    /// A run is prepared, started and released in this order, once each, and there is only one run at a time.
    #[test]
    fn a_run_is_prepared_started_and_released_in_order() {
        let mut session = greeted();
        let mut check = |message: ToHost, expected: &str| {
            let shown = format!("{:?}", session.on_message(message, Nanos(2)).unwrap());
            assert!(
                shown.contains(expected) && !shown.contains("hush"),
                "{expected}: {shown}"
            );
            if expected == "Release" {
                session.released();
            }
        };
        check(assignment(), "Prepare(Assignment");
        check(assignment(), "a run is already prepared");
        check(ToHost::Rate(2.0), "Command(Rate(2.0))");
        check(ToHost::Start(moment()), "Start(Moment");
        check(ToHost::Start(moment()), "start without a prepared run");
        check(ToHost::Stop, "Command(Stop)");
        check(ToHost::MoreRequests, "SendRequests");
        check(ToHost::MoreJournal, "SendJournal");
        check(ToHost::Release, "Release");
        check(ToHost::Start(moment()), "start without a prepared run");
        check(assignment(), "Prepare(Assignment");
        let mut session = greeted();
        session.on_message(assignment(), Nanos(2)).unwrap();
        assert_eq!(
            session.on_message(ToHost::Release, Nanos(3)).unwrap(),
            Some(AgentAction::Release)
        );
        let shown = format!("{:?}", session.on_message(assignment(), Nanos(4)).unwrap());
        assert!(
            shown.contains("a run is already prepared"),
            "part of the previous run may still exist: {shown}"
        );
    }

    /// A fault's number is unique, a fault is removed only once, and the number of faults is limited.
    #[test]
    fn a_faults_number_is_unique_and_it_is_removed_once() {
        let mut session = greeted();
        let mut check = |message: ToHost, expected: &str| {
            let shown = format!("{:?}", session.on_message(message, Nanos(2)).unwrap());
            assert!(shown.contains(expected), "{expected}: {shown}");
        };
        let put = |fault| ToHost::PutFault {
            fault,
            what: HostFault::Memory { bytes: 1 },
        };
        check(ToHost::RemoveFault { fault: 1 }, "None");
        check(put(1), "PutFault(1");
        check(put(1), "a duplicate fault number");
        check(ToHost::RemoveFault { fault: 1 }, "RemoveFault(1)");
        check(ToHost::RemoveFault { fault: 1 }, "None");
        session.fault_over(1);
        for fault in 0..64 {
            assert!(matches!(
                session.on_message(put(fault), Nanos(3)),
                Ok(Some(AgentAction::PutFault(..)))
            ));
        }
        let shown = format!("{:?}", session.on_message(put(64), Nanos(3)).unwrap());
        assert!(shown.contains("more than 64 faults"), "{shown}");
    }

    /// A role's number is unique until it has ended, and the number of roles is limited.
    #[test]
    fn a_roles_number_is_unique_until_it_has_ended() {
        let mut session = greeted();
        let mut check = |message: ToHost, expected: &str| {
            let shown = format!("{:?}", session.on_message(message, Nanos(2)).unwrap());
            assert!(
                shown.contains(expected) && !shown.contains("hush"),
                "{expected}: {shown}"
            );
            if expected == "Stop" {
                session.role_over(1);
            }
        };
        let wish = HostRole {
            name: "disk".into(),
            serve: serde_json::json!("memory:1MiB"),
            address: "127.0.0.1".parse().unwrap(),
            congestion: None,
            login: Some(Secret("me:hush".into())),
        };
        let start = |role| ToHost::Role {
            role,
            order: RoleOrder::Start(Box::new(wish.clone())),
        };
        let stop = |role| ToHost::Role {
            role,
            order: RoleOrder::Stop,
        };
        check(stop(1), "None");
        check(start(1), "StartRole(1");
        check(start(1), "a duplicate role number");
        let run = |role| ToHost::Role {
            role,
            order: RoleOrder::Run([].into()),
        };
        check(run(2), "None");
        check(run(1), "TellRole(1, Run(");
        check(stop(1), "Stop");
        check(stop(1), "None");
        (0..64).for_each(|role| check(start(role), "StartRole("));
        check(start(64), "more than 64 roles");
    }

    /// Every message renews the lease.
    #[test]
    fn every_message_renews_the_lease() {
        let mut session = greeted();
        assert_eq!(session.deadline(), Nanos(5_000_000_001));
        session
            .on_message(ToHost::Renew, Nanos(3_000_000_000))
            .unwrap();
        assert_eq!(session.deadline(), Nanos(8_000_000_000));
    }
}
