//! The controller's side of the protocol with an agent: greetings, clock requests, and which messages an agent may
//! send. No I/O and no clock; [`crate::RemoteHost`] does the waiting, reading and writing.
//!
//! The rule: an agent's messages are checked before they are used; its clock keeps the name from its greeting.

use std::collections::BTreeMap;
use std::sync::Arc;

use brunt_core::device_url::text_without_secrets;
use brunt_core::{IoEngine, Nanos};
use brunt_probe::Probes;
use brunt_protocol::{
    Assignment, FailureKind, FrameError, FromHost, HostFault, HostFaultFailure, HostReady, Moment,
    Proof, RecordEnd, RoleNews, RoleOrder, ToHost, VERSION, WatchReport,
};
use brunt_result::choice::{EngineChoice, EngineTrial, PageCache, RingChoice, RingMode, RingTrial};
use brunt_result::event::{ClockName, Envelope, Event, Sample};
use brunt_result::link::LinkReport;
use brunt_result::{Interval, Outcome, RequestRecord};

use crate::ClockRound;
use crate::role_rules::RoleRules;
use crate::run_rules::{HostPart, RunNewsError, RunRules};

/// Maximum length of a text from an agent that is forwarded.
const TEXT_CHARS_MAX: usize = 500;
/// Maximum number of texts in a list that are forwarded.
const TEXTS_MAX: usize = 300;

/// A checked message from an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum HostNews {
    /// The agent's greeting, with its program. [`HostSession::clock`] returns its clock.
    Greeted(String),
    /// The reply to [`HostSession::ask`]: rounds with its monotonic clock and with its wall clock, whose times are
    /// nanoseconds since 1970.
    Clock {
        /// Of `CLOCK_MONOTONIC`.
        monotonic: ClockRound,
        /// Of `CLOCK_REALTIME`.
        wall: ClockRound,
    },
    /// A sample of the host, with times on its clock.
    Sample(Arc<Sample>),
    /// A remark for the user.
    Note(String),
    /// A remark for the user about the samples.
    WatchNote(String),
    /// No further samples follow.
    Watched(WatchReport),
    /// A fault is in effect, or gone, with times on its clock.
    FaultProven(u32, Box<Proof>),
    /// The report of the host's bridge.
    Bridge(Option<Box<LinkReport>>),
    /// A fault is not in effect, or has not been removed.
    FaultFailed(u32, HostFaultFailure, String),
    /// News of a role, with times on its clock.
    Role(u32, RoleNews),
    /// A counter of the agent.
    Counter(String, u64),
    /// An error of the agent.
    Failed(FailureKind, String),
    /// All workers of the host's part of the run are waiting for the start.
    Ready(HostReady),
    /// An interval of a worker, counted from 0, with times on the host's clock.
    Interval(u32, Box<Interval>),
    /// A worker has ended.
    Ended(u32, Box<Outcome>),
    /// The number of requests that the host has on record.
    Recorded(RecordEnd),
    /// Some of these requests, with times on the host's clock.
    Requests(Vec<RequestRecord>),
    /// The length in bytes of each worker's journal of acknowledged writes.
    Journals(Vec<u64>),
    /// Part of the journal of this worker, counted from 0.
    Journal(u32, Vec<u8>),
    /// All workers have ended. Contains the errors of their devices, the page cache's share if it was used, and the
    /// host's part of a replay, for the load to parse.
    Done(Vec<String>, Option<PageCache>, Option<String>),
    /// Nothing of its run is left.
    Released,
    /// A message about a run that has already been released.
    Late,
}

impl HostNews {
    /// Whether it contains times on the host's clock.
    pub(crate) fn is_dated(&self) -> bool {
        matches!(
            self,
            HostNews::Interval(..)
                | HostNews::Ended(..)
                | HostNews::Requests(_)
                | HostNews::Sample(_)
                | HostNews::FaultProven(..)
                | HostNews::Role(
                    _,
                    RoleNews::Away(_) | RoleNews::Back { .. } | RoleNews::Died(_)
                )
        )
    }
}

/// Why an agent's message is invalid.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The bytes are not valid messages, or are from another version.
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
    /// The message's times are on a different clock than that of the greeting.
    #[error("the agent sent times of clock '{}' after a greeting with '{}'", .theirs.0, .greeted.0)]
    Clock {
        /// The clock in its message.
        theirs: ClockName,
        /// The clock in its greeting.
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
    /// Whether the bridge's report has been requested and has not arrived.
    asked_bridge: bool,
}

/// The state of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultState {
    /// It was requested.
    Putting,
    /// It is in effect.
    There,
    /// Its removal was requested.
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
    /// If one is unanswered.
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
    /// If the greeting has not arrived.
    pub fn watch_from(&self, first: Nanos) -> ToHost {
        ToHost::WatchFrom(Moment {
            clock: self.clock.clone().expect("the host has sent its greeting"),
            at: first,
        })
    }

    /// Requests a run, with this part for the host.
    ///
    /// # Panics
    /// If there is a run already.
    pub fn prepare(&mut self, assignment: Assignment, part: HostPart) -> ToHost {
        assert!(self.run.is_none(), "one run at a time");
        self.run = Some(RunRules::new(part));
        ToHost::Prepare(Box::new(assignment))
    }

    /// Requests the next piece of the run's request record.
    ///
    /// # Panics
    /// If there is no run.
    pub fn more_requests(&mut self) -> ToHost {
        self.run.as_mut().expect("a run exists").ask_for_requests();
        ToHost::MoreRequests
    }

    /// Requests the next part of the run's journals.
    ///
    /// # Panics
    /// If there is no run.
    pub fn more_journal(&mut self) -> ToHost {
        self.run.as_mut().expect("a run exists").ask_for_journal();
        ToHost::MoreJournal
    }

    /// Starts the run at a time on the host's clock.
    ///
    /// # Panics
    /// If the greeting has not arrived.
    pub fn start(&self, at: Nanos) -> ToHost {
        ToHost::Start(Moment {
            clock: self.clock.clone().expect("the host has sent its greeting"),
            at,
        })
    }

    /// Ends the run; from now on, its only news is [`HostNews::Released`].
    ///
    /// # Panics
    /// If there is no run, or it has already been released.
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
    /// The connection is unusable from then on.
    pub fn on_message(
        &mut self,
        mut message: FromHost,
        now: Nanos,
    ) -> Result<HostNews, SessionError> {
        let Some(clock) = &self.clock else {
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
            return Ok(HostNews::Greeted(program));
        };
        match message {
            FromHost::Clock {
                round,
                heard,
                wall_ns,
                answered,
            } => {
                let asked = self.asked.take().filter(|(asked, _)| *asked == round);
                let (_, sent) = asked.ok_or(SessionError::Unasked("a reply about its clock"))?;
                let wall = Nanos(wall_ns);
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

    /// Requests the report of the host's bridge. Only one request may be outstanding.
    pub fn ask_bridge(&mut self) -> ToHost {
        self.asked_bridge = true;
        ToHost::AskBridge
    }

    /// Requests a fault.
    ///
    /// # Panics
    /// If the number is already in use.
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
    /// If it starts a role whose number is in use.
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
                // Its removal was requested before it took effect.
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

fn is_possible(cache: &PageCache) -> bool {
    cache
        .read_share
        .is_none_or(|share| (0.0..=1.0).contains(&share))
        && (0.0..1e9).contains(&cache.flush_s)
}

/// Drops rates that no host can reach.
fn plain_rate(rate: Option<f64>) -> Option<f64> {
    rate.filter(|rate| (0.0..1e12).contains(rate))
}

/// An engine choice with displayable texts, and with rates that can be added.
fn plain_engine(choice: EngineChoice) -> EngineChoice {
    let trial = |trial: EngineTrial| EngineTrial {
        requests_per_second: plain_rate(trial.requests_per_second),
        error: trial.error.as_deref().map(plain),
        ..trial
    };
    let trials = choice.trials.into_iter().take(IoEngine::ALL.len());
    EngineChoice {
        engine: choice.engine,
        why: plain(&choice.why),
        trials: trials.map(trial).collect(),
    }
}

/// The same for a ring choice.
fn plain_ring(ring: RingChoice) -> RingChoice {
    let trial = |trial: RingTrial| RingTrial {
        requests_per_second: plain_rate(trial.requests_per_second),
        error: trial.error.as_deref().map(plain),
        ..trial
    };
    let trials = ring.trials.into_iter().take(RingMode::ALL.len());
    RingChoice {
        mode: ring.mode,
        why: plain(&ring.why),
        trials: trials.map(trial).collect(),
    }
}

pub(crate) fn plain_proof(proof: Proof) -> Proof {
    Proof {
        what: plain(&proof.what),
        ..proof
    }
}

pub(crate) fn plain_list(texts: &[String]) -> Vec<String> {
    texts
        .iter()
        .take(TEXTS_MAX)
        .map(|text| plain(text))
        .collect()
}

/// Makes a text safe for terminals and results: short, without passwords and control characters.
pub(crate) fn plain(text: &str) -> String {
    text_without_secrets(text)
        .chars()
        .filter(|one| !one.is_control())
        .take(TEXT_CHARS_MAX)
        .collect()
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

fn has_plain_names(sample: &Sample) -> bool {
    let plain = |name: &str| !name.chars().any(char::is_control);
    let mut values = sample.values.iter();
    plain(&sample.host)
        && values.all(|one| plain(&one.probe) && plain(&one.instance) && plain(&one.metric))
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_protocol::{LoadStep, Secret, TraceDigest};
    use brunt_result::OpKind;
    use brunt_result::event::SampleValue;

    fn name(text: &str) -> ClockName {
        ClockName(text.into())
    }

    fn hello(version: u32) -> FromHost {
        FromHost::Hello {
            version,
            program: "brunt 1".into(),
            now: Moment {
                clock: name("a"),
                at: Nanos(1),
            },
        }
    }

    fn part() -> HostPart {
        let kinds = vec![OpKind::Read];
        HostPart {
            workers: 1,
            first_worker: 0,
            kinds,
            records: false,
            journals: false,
        }
    }

    fn greeted() -> HostSession {
        let mut session = HostSession::default();
        assert_eq!(
            session.on_message(hello(VERSION), Nanos(1)).unwrap(),
            HostNews::Greeted("brunt 1".into())
        );
        session
    }

    fn sampled(clock: &str) -> FromHost {
        sampled_of(clock, "eth0")
    }

    fn sampled_of(clock: &str, instance: &str) -> FromHost {
        let value = SampleValue {
            probe: "network".into(),
            instance: instance.into(),
            metric: "received_bytes_per_s".into(),
            value: 1.0,
        };
        let sample = Sample {
            host: "local".into(),
            start: Nanos(1),
            end: Nanos(2),
            values: vec![value],
        };
        FromHost::Event(Box::new(Envelope::new(
            name(clock),
            Event::Sample(Arc::new(sample)),
        )))
    }

    #[test]
    fn a_clock_request_and_its_reply_make_a_round() {
        let mut session = greeted();
        let ToHost::AskClock { round } = session.ask(Nanos(10)) else {
            panic!("a question")
        };
        let answer = FromHost::Clock {
            round,
            heard: Nanos(500),
            wall_ns: 9000,
            answered: Nanos(501),
        };
        let HostNews::Clock { monotonic, wall } =
            session.on_message(answer.clone(), Nanos(20)).unwrap()
        else {
            panic!("a round")
        };
        assert_eq!(
            monotonic,
            ClockRound {
                sent: Nanos(10),
                heard: Nanos(500),
                answered: Nanos(501),
                back: Nanos(20)
            }
        );
        assert_eq!((wall.heard, wall.answered), (Nanos(9000), Nanos(9000)));
        assert!(matches!(
            session.on_message(answer, Nanos(21)),
            Err(SessionError::Unasked(_))
        ));
    }

    /// News of a fault says that it is in effect, and later that it is gone, each only on request.
    #[test]
    fn news_of_a_fault_must_arrive_in_order() {
        let proof = |what: &str| Proof {
            at: Nanos(1),
            seen: Nanos(2),
            what: what.into(),
            value: None,
        };
        let put = |fault| FromHost::FaultPut {
            fault,
            proof: proof("there\x1b"),
        };
        let removed = |fault| FromHost::FaultRemoved {
            fault,
            proof: proof("gone"),
        };
        let failed = |fault| {
            let (kind, what) = (HostFaultFailure::NotShown, "no".to_string());
            FromHost::FaultFailed { fault, kind, what }
        };
        let mut session = greeted();
        let hear = |session: &mut HostSession, message| session.on_message(message, Nanos(3));
        for message in [put(1), removed(1), failed(1)] {
            assert!(matches!(
                hear(&mut session, message),
                Err(SessionError::Unasked(_))
            ));
        }
        session.put_fault(1, HostFault::Memory { bytes: 1 });
        assert!(
            hear(&mut session, removed(1)).is_err(),
            "nobody asked for its end"
        );
        session.put_fault(2, HostFault::Memory { bytes: 1 });
        let HostNews::FaultProven(2, shown) = hear(&mut session, put(2)).unwrap() else {
            panic!("it shows")
        };
        assert_eq!(shown.what, "there");
        assert!(hear(&mut session, put(2)).is_err(), "once");
        session.remove_fault(2);
        assert!(matches!(
            hear(&mut session, removed(2)),
            Ok(HostNews::FaultProven(2, _))
        ));
        session.put_fault(3, HostFault::Memory { bytes: 1 });
        session.remove_fault(3);
        assert_eq!(hear(&mut session, put(3)).unwrap(), HostNews::Late);
        assert!(matches!(
            hear(&mut session, failed(3)),
            Ok(HostNews::FaultFailed(3, HostFaultFailure::NotShown, _))
        ));
    }

    #[test]
    fn unrequested_messages_are_refused() {
        let check = |mut session: HostSession, message: FromHost, expected: &str| {
            let error = session
                .on_message(message, Nanos(5))
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
        };
        let watching = || {
            let mut session = greeted();
            session.watch("a", &Probes::default());
            session
        };
        check(HostSession::default(), sampled("a"), "not a greeting");
        check(HostSession::default(), hello(99), "speaks version 99");
        check(greeted(), hello(VERSION), "a second greeting");
        check(greeted(), sampled("a"), "an event");
        check(
            watching(),
            sampled_of("a", "eth0\u{1b}[2J"),
            "control characters",
        );
        check(
            watching(),
            sampled("b"),
            "clock 'b' after a greeting with 'a'",
        );
        check(
            watching(),
            FromHost::Done {
                troubles: vec![],
                page_cache: None,
                replay: None,
            },
            "about a run",
        );
        check(watching(), FromHost::Requests(vec![]), "about a run");
        check(
            watching(),
            FromHost::Role {
                role: 0,
                news: RoleNews::Lives,
            },
            "about a role",
        );
        check(
            watching(),
            FromHost::Journal {
                worker: 0,
                bytes: vec![],
            },
            "about a run",
        );
        check(
            watching(),
            FromHost::NeedsTrace(TraceDigest(String::new())),
            "a part of a run",
        );
        let mut asked = greeted();
        asked.ask(Nanos(1));
        let answer = FromHost::Clock {
            round: 77,
            heard: Nanos(2),
            wall_ns: 0,
            answered: Nanos(2),
        };
        check(asked, answer, "a reply about its clock");
        assert!(matches!(
            watching().on_message(sampled("a"), Nanos(5)),
            Ok(HostNews::Sample(_))
        ));
    }

    /// After a run's release, the only news about it is its end, and another run may follow.
    #[test]
    fn news_of_a_released_run_is_ignored_except_its_end() {
        let assignment = || Assignment {
            run: 1,
            seed: 1,
            first_worker: 0,
            workers_of_all: 1,
            workers_on_device: 1,
            kind: "block".into(),
            load: String::new(),
            member: String::new(),
            step: LoadStep::Run,
            target: Secret("memory:1MiB".into()),
            overwrite: false,
            journals: false,
            joined: Vec::new(),
        };
        let mut session = greeted();
        session.prepare(assignment(), part());
        let ready = |text: &str| HostReady {
            notes: vec![text.into()],
            engine: None,
            ring: None,
            trace: None,
        };
        let heard = session
            .on_message(FromHost::Ready(ready("a\u{1b}b")), Nanos(2))
            .unwrap();
        assert_eq!(heard, HostNews::Ready(ready("ab")));
        let early = session
            .on_message(FromHost::Released, Nanos(2))
            .unwrap_err();
        assert!(matches!(early, SessionError::Unasked(_)), "{early}");
        session.release();
        let nonsense = FromHost::Done {
            troubles: vec![],
            page_cache: None,
            replay: None,
        };
        assert_eq!(
            session.on_message(nonsense, Nanos(3)).unwrap(),
            HostNews::Late
        );
        let failed = |kind| FromHost::Failed {
            kind,
            what: String::new(),
        };
        let mut kept = |kind| session.on_message(failed(kind), Nanos(3)).unwrap() != HostNews::Late;
        use FailureKind::{Broken, LeaseOver, NotAllowed, Refused, Version};
        assert_eq!(
            [Broken, NotAllowed, Refused, LeaseOver, Version].map(&mut kept),
            [false, false, false, true, true]
        );
        assert_eq!(
            session.on_message(FromHost::Released, Nanos(4)).unwrap(),
            HostNews::Released
        );
        assert!(
            session
                .on_message(FromHost::Ready(ready("c")), Nanos(5))
                .is_err()
        );
        session.prepare(assignment(), part());
        assert!(
            session
                .on_message(FromHost::Ready(ready("c")), Nanos(6))
                .is_ok()
        );
    }

    #[test]
    fn passwords_are_not_passed_on() {
        let what = "'iscsi://me%hush@host/t/0': no login".to_string();
        let failed = FromHost::Failed {
            kind: FailureKind::Refused,
            what,
        };
        let HostNews::Failed(_, said) = greeted().on_message(failed, Nanos(1)).unwrap() else {
            panic!("it failed")
        };
        assert_eq!(said, "'iscsi://me%***@host/t/0': no login");
    }

    #[test]
    fn texts_are_truncated_and_lose_control_characters() {
        let note = FromHost::Note("\u{1b}ä\n".repeat(10_000));
        let HostNews::Note(text) = greeted().on_message(note, Nanos(1)).unwrap() else {
            panic!("a note")
        };
        assert_eq!(text, "ä".repeat(TEXT_CHARS_MAX));
        let now = Moment {
            clock: name("\u{1b}c"),
            at: Nanos(1),
        };
        let hello = FromHost::Hello {
            version: 99,
            program: "\u{1b}[2Jbrunt".into(),
            now,
        };
        let said = HostSession::default()
            .on_message(hello, Nanos(1))
            .unwrap_err()
            .to_string();
        assert!(said.contains("([2Jbrunt)"), "{said}");
    }
}
