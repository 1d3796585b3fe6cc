//! The rules of the controller's side of a conversation with an agent: greetings, questions about its clock, and what an
//! agent may say. No I/O and no clock; [`crate::RemoteHost`] waits, reads and writes around it.
//!
//! The rule: what an agent says is checked before it is believed: its clock has one name from its greeting on.

use std::sync::Arc;

use brunt_core::Nanos;
use brunt_result::event::{ClockName, Envelope, Event, Sample};
use brunt_result::message::{FailureKind, FrameError, FromHost, ToHost, VERSION};

use crate::ClockRound;

/// Longest text of an agent that is passed on.
const TEXT_CHARS_MAX: usize = 500;

/// What was heard.
#[derive(Clone, Debug, PartialEq)]
pub enum HostNews {
    /// The agent's greeting: its program. Its clock is [`HostSession::clock`].
    Greeted(String),
    /// The answer to [`HostSession::ask`]: rounds of its monotonic clock and of its wall clock, whose times are
    /// nanoseconds since 1970.
    Clock {
        /// Of `CLOCK_MONOTONIC`.
        monotonic: ClockRound,
        /// Of `CLOCK_REALTIME`.
        wall: ClockRound,
    },
    /// A sample of its host, with times on its clock.
    Sample(Arc<Sample>),
    /// What the user has to know.
    Note(String),
    /// A counter of the agent's.
    Counter(String, u64),
    /// What it could not do.
    Failed(FailureKind, String),
}

/// Why what an agent says is not understood.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Its bytes are no messages, or of another version.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It says what it was not asked for.
    #[error("the agent sent {0}, which nobody asked for")]
    Unasked(&'static str),
    /// A name in a sample would move a terminal's cursor.
    #[error("the agent sent a sample with control characters in a name")]
    Name,
    /// Its times are on another clock than it greeted with.
    #[error("the agent sent times of the clock '{}' after it had greeted with '{}'", .theirs.0, .greeted.0)]
    Clock {
        /// Of its message.
        theirs: ClockName,
        /// Of its greeting.
        greeted: ClockName,
    },
}

/// The controller's side of one conversation.
#[derive(Debug, Default)]
pub struct HostSession {
    clock: Option<ClockName>,
    rounds: u32,
    /// The question that waits for its answer, and when it was sent.
    asked: Option<(u32, Nanos)>,
    watching: bool,
}

impl HostSession {
    /// The first message.
    pub fn greeting(program: &str) -> ToHost {
        ToHost::Hello { version: VERSION, program: program.to_string() }
    }

    /// The agent's clock; `None` before its greeting.
    pub fn clock(&self) -> Option<&ClockName> {
        self.clock.as_ref()
    }

    /// Since when a question waits for its answer.
    pub fn asked_since(&self) -> Option<Nanos> {
        self.asked.map(|(_, sent)| sent)
    }

    /// A question about the agent's clock, sent at `now`. One at a time.
    ///
    /// # Panics
    /// When one waits for its answer.
    pub fn ask(&mut self, now: Nanos) -> ToHost {
        assert!(self.asked.is_none(), "one question at a time");
        self.rounds = self.rounds.wrapping_add(1);
        self.asked = Some((self.rounds, now));
        ToHost::AskClock { round: self.rounds }
    }

    /// Asks for samples.
    pub fn watch(&mut self, interval_ms: u64, only: Vec<String>) -> ToHost {
        self.watching = true;
        ToHost::Watch { interval_ms, only }
    }

    /// Takes a message that came at `now`.
    ///
    /// # Errors
    /// The conversation is of no use any more.
    pub fn on_message(&mut self, mut message: FromHost, now: Nanos) -> Result<HostNews, SessionError> {
        let Some(clock) = &self.clock else {
            if let FromHost::Hello { program, now: moment, .. } = &mut message {
                *program = plain(program);
                moment.clock = ClockName(plain(&moment.clock.0).into());
            }
            message.check_greeting()?;
            let FromHost::Hello { program, now: moment, .. } = message else {
                unreachable!("it was checked that this is a greeting")
            };
            self.clock = Some(moment.clock);
            return Ok(HostNews::Greeted(program));
        };
        match message {
            FromHost::Clock { round, heard, wall_ns, answered } => {
                let asked = self.asked.take().filter(|(asked, _)| *asked == round);
                let (_, sent) = asked.ok_or(SessionError::Unasked("an answer about its clock"))?;
                let wall = Nanos(wall_ns);
                Ok(HostNews::Clock {
                    monotonic: ClockRound { sent, heard, answered, back: now },
                    wall: ClockRound { sent, heard: wall, answered: wall, back: now },
                })
            }
            FromHost::Event(envelope) => sample(*envelope, clock, self.watching),
            FromHost::Note(note) => Ok(HostNews::Note(plain(&note))),
            FromHost::Counter { name, value } => Ok(HostNews::Counter(plain(&name), value)),
            FromHost::Failed { kind, what } => Ok(HostNews::Failed(kind, plain(&what))),
            FromHost::Hello { .. } => Err(SessionError::Unasked("a second greeting")),
            FromHost::NeedsTrace(_)
            | FromHost::Ready(_)
            | FromHost::Started(_)
            | FromHost::Interval { .. }
            | FromHost::Requests(_)
            | FromHost::Journal { .. }
            | FromHost::Done(_) => Err(SessionError::Unasked("news of a run")),
        }
    }
}

/// A text for people's terminals: short, and without what would move their cursors.
pub(crate) fn plain(text: &str) -> String {
    text.chars().filter(|one| !one.is_control()).take(TEXT_CHARS_MAX).collect()
}

fn sample(envelope: Envelope, clock: &ClockName, watching: bool) -> Result<HostNews, SessionError> {
    if envelope.clock != *clock {
        let theirs = ClockName(plain(&envelope.clock.0).into());
        return Err(SessionError::Clock { theirs, greeted: clock.clone() });
    }
    match envelope.event {
        Event::Sample(sample) if watching && envelope.version == Envelope::VERSION => {
            if has_plain_names(&sample) { Ok(HostNews::Sample(sample)) } else { Err(SessionError::Name) }
        }
        _ => Err(SessionError::Unasked("an event")),
    }
}

fn has_plain_names(sample: &Sample) -> bool {
    let plain = |name: &str| !name.chars().any(char::is_control);
    let mut values = sample.values.iter();
    plain(&sample.host) && values.all(|one| plain(&one.probe) && plain(&one.instance) && plain(&one.metric))
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_result::event::SampleValue;
    use brunt_result::message::Moment;

    fn name(text: &str) -> ClockName {
        ClockName(text.into())
    }

    fn hello(version: u32) -> FromHost {
        FromHost::Hello { version, program: "brunt 1".into(), now: Moment { clock: name("a"), at: Nanos(1) } }
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
        let sample = Sample { host: "local".into(), start: Nanos(1), end: Nanos(2), values: vec![value] };
        FromHost::Event(Box::new(Envelope::new(name(clock), Event::Sample(Arc::new(sample)))))
    }

    #[test]
    fn a_question_and_its_answer_make_a_round() {
        let mut session = greeted();
        let ToHost::AskClock { round } = session.ask(Nanos(10)) else { panic!("a question") };
        let answer = FromHost::Clock { round, heard: Nanos(500), wall_ns: 9000, answered: Nanos(501) };
        let HostNews::Clock { monotonic, wall } = session.on_message(answer.clone(), Nanos(20)).unwrap()
        else {
            panic!("a round")
        };
        assert_eq!(
            monotonic,
            ClockRound { sent: Nanos(10), heard: Nanos(500), answered: Nanos(501), back: Nanos(20) }
        );
        assert_eq!((wall.heard, wall.answered), (Nanos(9000), Nanos(9000)));
        assert!(matches!(session.on_message(answer, Nanos(21)), Err(SessionError::Unasked(_))));
    }

    #[test]
    fn what_nobody_asked_for_is_refused() {
        let check = |mut session: HostSession, message: FromHost, expected: &str| {
            let error = session.on_message(message, Nanos(5)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        let watching = || {
            let mut session = greeted();
            session.watch(100, vec![]);
            session
        };
        check(HostSession::default(), sampled("a"), "not a greeting");
        check(HostSession::default(), hello(9), "speaks version 9");
        check(greeted(), hello(VERSION), "a second greeting");
        check(greeted(), sampled("a"), "an event");
        check(watching(), sampled_of("a", "eth0\u{1b}[2J"), "control characters");
        check(watching(), sampled("b"), "the clock 'b' after it had greeted with 'a'");
        check(watching(), FromHost::Started(Nanos(1)), "news of a run");
        let mut asked = greeted();
        asked.ask(Nanos(1));
        let answer = FromHost::Clock { round: 77, heard: Nanos(2), wall_ns: 0, answered: Nanos(2) };
        check(asked, answer, "an answer about its clock");
        assert!(matches!(watching().on_message(sampled("a"), Nanos(5)), Ok(HostNews::Sample(_))));
    }

    #[test]
    fn texts_are_cut_and_move_no_cursor() {
        let note = FromHost::Note("\u{1b}ä\n".repeat(10_000));
        let HostNews::Note(text) = greeted().on_message(note, Nanos(1)).unwrap() else { panic!("a note") };
        assert_eq!(text, "ä".repeat(TEXT_CHARS_MAX));
        let now = Moment { clock: name("\u{1b}c"), at: Nanos(1) };
        let hello = FromHost::Hello { version: 9, program: "\u{1b}[2Jbrunt".into(), now };
        let said = HostSession::default().on_message(hello, Nanos(1)).unwrap_err().to_string();
        assert!(said.contains("([2Jbrunt)"), "{said}");
    }
}
