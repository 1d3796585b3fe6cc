//! The rules of an agent's side: which message is answered by what, and when its lease is over. No I/O and no clock;
//! [`crate::serve`] waits, reads and writes around it.
//!
//! The rule: nothing is done for a controller whose greeting was not understood.

use std::time::Duration;

use brunt_core::{Nanos, Span};
use brunt_probe::Probes;
use brunt_result::message::{FailureKind, FrameError, FromHost, ToHost};

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentAction {
    /// Send this.
    Send(Box<FromHost>),
    /// Send what the clock says, read as late as possible.
    AnswerClock {
        /// Of the question.
        round: u32,
        /// When it was heard.
        heard: Nanos,
    },
    /// Sample the host's counters like this, instead of what was sampled before.
    Watch(Probes),
    /// Take no more samples.
    Unwatch,
}

/// Why a conversation is over.
#[derive(Debug)]
pub enum AgentEnd {
    /// The controller closed it.
    Closed,
    /// Nothing was heard for the length of the lease.
    LeaseOver,
    /// This program is to end.
    Stopped,
    /// The controller is none, or of another version.
    Greeting(FrameError),
}

/// An agent's side of one conversation.
#[derive(Debug)]
pub struct AgentSession {
    greeted: bool,
    lease: Duration,
    heard: Nanos,
}

impl AgentSession {
    /// Begins at `now`; a controller has so long to be heard of, each time anew.
    ///
    /// # Panics
    /// When the lease is zero: it would be over before it began.
    pub fn new(lease: Duration, now: Nanos) -> AgentSession {
        assert!(!lease.is_zero(), "a lease has a length");
        AgentSession { greeted: false, lease, heard: now }
    }

    /// When the lease is over.
    pub fn deadline(&self) -> Nanos {
        self.heard.after(self.lease)
    }

    /// Takes a message that was heard at `now`; what follows from it.
    ///
    /// # Errors
    /// The conversation ends: the first message is no greeting of this version.
    pub fn on_message(&mut self, message: ToHost, now: Nanos) -> Result<Option<AgentAction>, FrameError> {
        if !self.greeted {
            message.check_greeting()?;
            self.greeted = true;
            self.heard = now;
            return Ok(None);
        }
        self.heard = now;
        Ok(match message {
            ToHost::AskClock { round } => Some(AgentAction::AnswerClock { round, heard: now }),
            ToHost::Watch { interval_ms, only } => Some(watch(interval_ms, only)),
            ToHost::Unwatch => Some(AgentAction::Unwatch),
            ToHost::Renew | ToHost::Release => None,
            ToHost::Hello { .. } => Some(refuse("a second greeting")),
            ToHost::Prepare(_)
            | ToHost::TracePart { .. }
            | ToHost::Start(_)
            | ToHost::Stop
            | ToHost::Rate(_)
            | ToHost::Depth(_) => {
                Some(refuse("this agent samples its host and compares clocks; it runs no load"))
            }
        })
    }
}

fn watch(interval_ms: u64, only: Vec<String>) -> AgentAction {
    let probes = Probes { interval: Span(Duration::from_millis(interval_ms)), only };
    match probes.check() {
        Ok(()) if probes.is_on() => AgentAction::Watch(probes),
        Ok(()) => refuse("an interval of zero"),
        Err(error) => refuse(&error.to_string()),
    }
}

fn refuse(what: &str) -> AgentAction {
    AgentAction::Send(Box::new(FromHost::Failed { kind: FailureKind::Refused, what: what.to_string() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_result::message::VERSION;

    fn hello(version: u32) -> ToHost {
        ToHost::Hello { version, program: "brunt 1".into() }
    }

    fn greeted() -> AgentSession {
        let mut session = AgentSession::new(Duration::from_secs(5), Nanos(0));
        assert_eq!(session.on_message(hello(VERSION), Nanos(1)).unwrap(), None);
        session
    }

    /// Before a greeting of this version nothing is done.
    #[test]
    fn nothing_is_done_without_a_greeting() {
        let first =
            [ToHost::AskClock { round: 1 }, ToHost::Watch { interval_ms: 100, only: vec![] }, ToHost::Renew];
        for message in first {
            let mut session = AgentSession::new(Duration::from_secs(5), Nanos(0));
            assert!(matches!(session.on_message(message, Nanos(1)), Err(FrameError::NoGreeting)));
        }
        let mut session = AgentSession::new(Duration::from_secs(5), Nanos(0));
        let error = session.on_message(hello(VERSION + 1), Nanos(1)).unwrap_err().to_string();
        assert!(
            error.contains(&format!("version {}", VERSION + 1)) && error.contains(&format!("one {VERSION}"))
        );
    }

    #[test]
    fn each_message_has_its_answer() {
        let check = |message: ToHost, expected: &str| {
            let action = greeted().on_message(message, Nanos(7)).unwrap();
            let said = format!("{action:?}");
            assert!(said.contains(expected), "{said}");
        };
        check(ToHost::AskClock { round: 3 }, "AnswerClock { round: 3, heard: Nanos(7) }");
        check(ToHost::Watch { interval_ms: 100, only: vec!["cpu".into()] }, "Watch(Probes {");
        check(ToHost::Watch { interval_ms: 1, only: vec![] }, "Refused, what: \"interval: 1ms: write 10ms");
        check(ToHost::Watch { interval_ms: 0, only: vec![] }, "an interval of zero");
        check(ToHost::Watch { interval_ms: 100, only: vec!["gpu".into()] }, "unknown probe gpu");
        check(ToHost::Unwatch, "Unwatch");
        check(ToHost::Renew, "None");
        check(hello(VERSION), "a second greeting");
        check(ToHost::Stop, "runs no load");
    }

    /// Each message begins the lease again.
    #[test]
    fn the_lease_is_renewed_by_whatever_is_heard() {
        let mut session = greeted();
        assert_eq!(session.deadline(), Nanos(5_000_000_001));
        session.on_message(ToHost::Renew, Nanos(3_000_000_000)).unwrap();
        assert_eq!(session.deadline(), Nanos(8_000_000_000));
    }
}
