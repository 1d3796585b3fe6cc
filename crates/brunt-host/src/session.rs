//! The controller's side of the protocol with an agent: greetings, clock requests, and which messages an agent may
//! send. This module does no I/O and reads no clock; [`crate::RemoteHost`] waits, reads and writes.
//!
//! The rule: an agent's messages are checked before they are used; its clock keeps the name given in its greeting.

use std::collections::BTreeMap;

use brunt_core::Nanos;
use brunt_probe::Probes;
use brunt_protocol::{
    Assignment, FailureKind, FrameError, FromHost, HostFault, HostReady, InterfaceReading, Moment,
    Proof, RoleOrder, ToHost, VERSION,
};
use brunt_result::event::{ClockName, Envelope, Event};

use crate::ClockRound;
use crate::host_news::HostNews;
use crate::plain::{
    has_plain_names, is_possible, plain, plain_engine, plain_list, plain_proof, plain_ring,
};
use crate::role_rules::RoleRules;
use crate::run_rules::{HostPart, RunNewsError, RunRules};

/// Why an agent's message is invalid.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The bytes are not valid messages, or come from another version.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The message answers no request.
    #[error("the agent sent {0}, which was not requested")]
    Unasked(&'static str),
    /// The message contradicts the run.
    #[error("the agent sent {0}")]
    Run(#[from] RunNewsError),
    /// A name in a sample contains control characters, which would affect a terminal.
    #[error("the agent sent a sample with control characters in a name")]
    Name,
    /// The message's times are on a different clock than the greeting named.
    #[error("the agent sent times on clock '{}' after a greeting with '{}'", .theirs.0, .greeted.0)]
    Clock {
        /// The clock in the message.
        theirs: ClockName,
        /// The clock in the greeting.
        greeted: ClockName,
    },
}

/// The controller's side of one connection.
#[derive(Debug, Default)]
pub struct HostSession {
    clock: Option<ClockName>,
    rounds: u32,
    /// The number of the unanswered request, and when it was sent.
    asked: Option<(u32, Nanos)>,
    watching: bool,
    run: Option<RunRules>,
    /// Requested faults, and their states.
    faults: BTreeMap<u32, FaultState>,
    roles: RoleRules,
    /// Whether the bridge's report has been requested but has not arrived.
    asked_bridge: bool,
    /// The number of interfaces whose readings have been requested but have not arrived.
    counting: Option<usize>,
    asked_count: bool,
}

/// The state of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultState {
    /// The fault was requested.
    Putting,
    /// The fault is in effect.
    There,
    /// The fault's removal was requested.
    Removing,
}

impl HostSession {
    /// The first message to an agent.
    pub fn greeting(program: &str) -> ToHost {
        ToHost::Hello {
            version: VERSION,
            program: program.to_string(),
        }
    }

    /// The agent's clock; `None` before its greeting.
    pub fn clock(&self) -> Option<&ClockName> {
        self.clock.as_ref()
    }

    /// When the unanswered request was sent.
    pub fn asked_since(&self) -> Option<Nanos> {
        self.asked.map(|(_, sent)| sent)
    }

    /// A request for the agent's clock, sent at `now`. Only one may be outstanding.
    ///
    /// # Panics
    /// A request is unanswered.
    pub fn ask(&mut self, now: Nanos) -> ToHost {
        assert!(self.asked.is_none(), "one question at a time");
        self.rounds = self.rounds.wrapping_add(1);
        self.asked = Some((self.rounds, now));
        ToHost::AskClock { round: self.rounds }
    }

    /// Requests samples of the host from these probes; notes refer to the host as `name`.
    pub fn watch(&mut self, name: &str, probes: &Probes) -> ToHost {
        self.watching = true;
        ToHost::Watch {
            name: name.to_string(),
            interval_ms: u64::try_from(probes.interval.0.as_millis()).unwrap_or(u64::MAX),
            only: probes.only.clone(),
            processes: probes.processes.clone(),
        }
    }

    /// Schedules samples: the first at a time on the host's clock, then one per interval.
    ///
    /// # Panics
    /// The greeting has not arrived.
    pub fn watch_from(&self, first: Nanos) -> ToHost {
        ToHost::WatchFrom(Moment {
            clock: self.clock.clone().expect("the host has sent its greeting"),
            at: first,
        })
    }

    /// Requests readings of these interfaces' byte counters.
    pub fn count(&mut self, interfaces: Vec<String>) -> ToHost {
        self.counting = Some(interfaces.len());
        ToHost::Count { interfaces }
    }

    /// Makes readings count from a time on the host's clock.
    ///
    /// # Panics
    /// The greeting has not arrived.
    pub fn count_from(&self, first: Nanos) -> ToHost {
        ToHost::CountFrom(Moment {
            clock: self.clock.clone().expect("the host has sent its greeting"),
            at: first,
        })
    }

    /// Requests the readings; [`HostNews::Counted`] follows.
    pub fn uncount(&mut self) -> ToHost {
        self.asked_count = true;
        ToHost::Uncount
    }

    /// Requests a run, with this part for the host.
    ///
    /// # Panics
    /// There is already a run.
    pub fn prepare(&mut self, assignment: Assignment, part: HostPart) -> ToHost {
        assert!(self.run.is_none(), "one run at a time");
        self.run = Some(RunRules::new(part));
        ToHost::Prepare(Box::new(assignment))
    }

    /// Requests the next piece of the run's request record.
    ///
    /// # Panics
    /// There is no run.
    pub fn more_requests(&mut self) -> ToHost {
        self.run.as_mut().expect("a run exists").ask_for_requests();
        ToHost::MoreRequests
    }

    /// Requests the next part of the run's journals.
    ///
    /// # Panics
    /// There is no run.
    pub fn more_journal(&mut self) -> ToHost {
        self.run.as_mut().expect("a run exists").ask_for_journal();
        ToHost::MoreJournal
    }

    /// Starts the run at a time on the host's clock.
    ///
    /// # Panics
    /// The greeting has not arrived.
    pub fn start(&self, at: Nanos) -> ToHost {
        ToHost::Start(Moment {
            clock: self.clock.clone().expect("the host has sent its greeting"),
            at,
        })
    }

    /// Ends the run; from now on, its only news is [`HostNews::Released`].
    ///
    /// # Panics
    /// There is no run, or it has already been released.
    pub fn release(&mut self) -> ToHost {
        let run = self.run.as_mut().expect("a run exists");
        assert!(
            !std::mem::replace(&mut run.releasing, true),
            "a run is released once"
        );
        ToHost::Release
    }

    /// Handles a message that arrived at `now`.
    ///
    /// # Errors
    /// The message is invalid; the connection is unusable from then on.
    pub fn on_message(&mut self, message: FromHost, now: Nanos) -> Result<HostNews, SessionError> {
        let Some(clock) = &self.clock else {
            return self.on_greeting(message);
        };
        match message {
            FromHost::Clock {
                round,
                heard,
                wall_ns,
                answered,
            } => self.on_clock(round, [heard, answered], Nanos(wall_ns), now),
            FromHost::Event(envelope) => sample(*envelope, clock, self.watching),
            FromHost::Note(note) => Ok(HostNews::Note(plain(&note))),
            FromHost::WatchNote(note) => Ok(HostNews::WatchNote(plain(&note))),
            FromHost::Watched(report) if std::mem::take(&mut self.watching) => {
                Ok(HostNews::Watched(report))
            }
            FromHost::Watched(_) => Err(SessionError::Unasked("the end of sampling")),
            FromHost::Counter { name, value } => Ok(HostNews::Counter(plain(&name), value)),
            FromHost::Failed { kind, what } => {
                // Errors of a released run are ignored, except those that end the connection.
                let of_all = matches!(kind, FailureKind::LeaseOver | FailureKind::Version);
                let is_late = !of_all && self.run.as_ref().is_some_and(|run| run.releasing);
                Ok(if is_late {
                    HostNews::Late
                } else {
                    HostNews::Failed(kind, plain(&what))
                })
            }
            FromHost::Counted(readings) => self.counted(readings),
            FromHost::Bridge(report) if std::mem::take(&mut self.asked_bridge) => {
                Ok(HostNews::Bridge(report))
            }
            FromHost::Bridge(_) => Err(SessionError::Unasked("a report about a bridge")),
            FromHost::FaultPut { .. }
            | FromHost::FaultRemoved { .. }
            | FromHost::FaultFailed { .. } => self.news_of_fault(message),
            FromHost::Role { role, news } => Ok(HostNews::Role(role, self.roles.take(role, news)?)),
            FromHost::Hello { .. } => Err(SessionError::Unasked("a second greeting")),
            FromHost::NeedsTrace(_) => Err(SessionError::Unasked("a part of a run")),
            FromHost::Ready(_)
            | FromHost::Interval { .. }
            | FromHost::Ended { .. }
            | FromHost::Recorded(_)
            | FromHost::Requests(_)
            | FromHost::Journals(_)
            | FromHost::Journal { .. }
            | FromHost::Done { .. }
            | FromHost::Released => self.news_of_run(message),
        }
    }

    /// Checks that readings were requested, are in order, and have a counter for each interface.
    fn counted(&mut self, readings: Vec<InterfaceReading>) -> Result<HostNews, SessionError> {
        let interfaces = self
            .counting
            .filter(|_| std::mem::take(&mut self.asked_count));
        let is_possible = |interfaces: usize| {
            let is_whole = |reading: &InterfaceReading| reading.bytes.len() == interfaces;
            readings.iter().all(is_whole) && readings.is_sorted_by_key(|reading| reading.at)
        };
        match interfaces.is_some_and(is_possible) {
            true => Ok(HostNews::Counted(readings)),
            false => Err(SessionError::Unasked("readings of interfaces")),
        }
    }

    /// Checks the first message, which is a greeting.
    fn on_greeting(&mut self, mut message: FromHost) -> Result<HostNews, SessionError> {
        if let FromHost::Hello {
            program,
            now: moment,
            ..
        } = &mut message
        {
            *program = plain(program);
            moment.clock = ClockName(plain(&moment.clock.0).into());
        }
        message.check_greeting()?;
        let FromHost::Hello {
            program,
            now: moment,
            ..
        } = message
        else {
            unreachable!("the message is a greeting")
        };
        self.clock = Some(moment.clock);
        Ok(HostNews::Greeted(program))
    }

    /// Completes a clock round with the reply: when the host received the request and replied, on its monotonic clock,
    /// and the time on its wall clock.
    fn on_clock(
        &mut self,
        round: u32,
        [heard, answered]: [Nanos; 2],
        wall: Nanos,
        now: Nanos,
    ) -> Result<HostNews, SessionError> {
        let asked = self.asked.take().filter(|(asked, _)| *asked == round);
        let (_, sent) = asked.ok_or(SessionError::Unasked("a reply about its clock"))?;
        Ok(HostNews::Clock {
            monotonic: ClockRound {
                sent,
                heard,
                answered,
                back: now,
            },
            wall: ClockRound {
                sent,
                heard: wall,
                answered: wall,
                back: now,
            },
        })
    }

    /// Requests the report of the host's bridge. Only one request may be outstanding.
    pub fn ask_bridge(&mut self) -> ToHost {
        self.asked_bridge = true;
        ToHost::AskBridge
    }

    /// Requests a fault.
    ///
    /// # Panics
    /// The number is already in use.
    pub fn put_fault(&mut self, fault: u32, what: HostFault) -> ToHost {
        assert!(
            self.faults.insert(fault, FaultState::Putting).is_none(),
            "each fault has its own number"
        );
        ToHost::PutFault { fault, what }
    }

    /// Sends an order to a role.
    ///
    /// # Panics
    /// The order starts a role whose number is in use.
    pub fn role(&mut self, role: u32, order: RoleOrder) -> ToHost {
        self.roles.ask(role, &order);
        ToHost::Role { role, order }
    }

    /// Requests the removal of a fault. If the fault has failed in the meantime, there is no reply.
    pub fn remove_fault(&mut self, fault: u32) -> ToHost {
        if let Some(state) = self.faults.get_mut(&fault) {
            *state = FaultState::Removing;
        }
        ToHost::RemoveFault { fault }
    }

    /// Whether a fault with this number was requested and has neither failed nor been removed.
    pub(crate) fn has_fault(&self, fault: u32) -> bool {
        self.faults.contains_key(&fault)
    }

    fn news_of_fault(&mut self, message: FromHost) -> Result<HostNews, SessionError> {
        let unasked = Err(SessionError::Unasked("a message about a fault"));
        let proven = |proof: Proof| Box::new(plain_proof(proof));
        match message {
            FromHost::FaultPut { fault, proof } => match self.faults.get_mut(&fault) {
                Some(state @ FaultState::Putting) => {
                    *state = FaultState::There;
                    Ok(HostNews::FaultProven(fault, proven(proof)))
                }
                // The fault's removal was requested before the fault took effect.
                Some(FaultState::Removing) => Ok(HostNews::Late),
                _ => unasked,
            },
            FromHost::FaultRemoved { fault, proof } => match self.faults.remove(&fault) {
                Some(FaultState::Removing) => Ok(HostNews::FaultProven(fault, proven(proof))),
                _ => unasked,
            },
            FromHost::FaultFailed { fault, kind, what } => match self.faults.remove(&fault) {
                Some(FaultState::Putting | FaultState::Removing) => {
                    Ok(HostNews::FaultFailed(fault, kind, plain(&what)))
                }
                _ => unasked,
            },
            _ => unasked,
        }
    }

    fn news_of_run(&mut self, message: FromHost) -> Result<HostNews, SessionError> {
        let run = self
            .run
            .as_mut()
            .ok_or(SessionError::Unasked("a message about a run"))?;
        if run.releasing {
            if message == FromHost::Released {
                self.run = None;
                return Ok(HostNews::Released);
            }
            return Ok(HostNews::Late);
        }
        match message {
            FromHost::Ready(ready) => {
                run.ready()?;
                let ring = ready.ring.map(plain_ring);
                Ok(HostNews::Ready(HostReady {
                    notes: plain_list(&ready.notes),
                    engine: ready.engine.map(plain_engine),
                    ring,
                    trace: ready.trace.as_deref().map(plain),
                }))
            }
            FromHost::Interval { worker, interval } => {
                run.interval(worker, &interval)?;
                Ok(HostNews::Interval(worker, interval))
            }
            FromHost::Ended {
                worker,
                mut outcome,
            } => {
                run.ended(worker, &outcome)?;
                if let Some(error) = &mut outcome.first_error {
                    error.text = plain(&error.text);
                }
                Ok(HostNews::Ended(worker, outcome))
            }
            FromHost::Recorded(mut end) => {
                run.recorded(&end)?;
                end.why = plain(&end.why);
                Ok(HostNews::Recorded(end))
            }
            FromHost::Requests(requests) => {
                run.requests(&requests)?;
                Ok(HostNews::Requests(requests))
            }
            FromHost::Journals(lengths) => {
                run.journals(&lengths)?;
                Ok(HostNews::Journals(lengths))
            }
            FromHost::Journal { worker, bytes } => {
                run.journal(worker, &bytes)?;
                Ok(HostNews::Journal(worker, bytes))
            }
            FromHost::Done {
                troubles,
                page_cache,
                replay,
            } => {
                run.done()?;
                Ok(HostNews::Done(
                    plain_list(&troubles),
                    page_cache.filter(is_possible),
                    replay,
                ))
            }
            _ => Err(SessionError::Unasked("the end of a run")),
        }
    }
}

fn sample(envelope: Envelope, clock: &ClockName, watching: bool) -> Result<HostNews, SessionError> {
    if envelope.clock != *clock {
        let theirs = ClockName(plain(&envelope.clock.0).into());
        return Err(SessionError::Clock {
            theirs,
            greeted: clock.clone(),
        });
    }
    match envelope.event {
        Event::Sample(sample) if watching && envelope.version == Envelope::VERSION => {
            if has_plain_names(&sample) {
                Ok(HostNews::Sample(sample))
            } else {
                Err(SessionError::Name)
            }
        }
        _ => Err(SessionError::Unasked("an event")),
    }
}

#[cfg(test)]
mod tests;
