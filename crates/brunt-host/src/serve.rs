//! Runs an agent's side of one conversation on the calling thread: waits, reads, writes and samples around
//! [`AgentSession`].
//!
//! The rule: answers about the clock come first; samples that a slow controller does not read are dropped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brunt_core::{Clock, Nanos};
use brunt_probe::{LOCAL, Probes, Sampler, Schedule, Subject};
use brunt_result::event::{ClockName, Envelope, Event, Sample};
use brunt_result::message::{FailureKind, FromHost, Moment, VERSION};

use crate::agent::{AgentAction, AgentEnd, AgentSession};
use crate::clock_name;
use crate::stream::{MessageStream, StreamError, StreamState};

/// How often the program looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// With more than this waiting to be sent, samples are dropped: seconds of samples of a large host.
const SAMPLES_BACKLOG_BYTES: usize = 1 << 20;

/// How an agent works.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The program and its version, for the greeting.
    pub program: String,
    /// It ends a conversation in which it has heard nothing for so long.
    pub lease: Duration,
    /// Added to all times, so that a test has hosts whose clocks differ.
    pub clock_shift_ns: i64,
}

/// Holds the conversation until it is over; `stop` ends it.
///
/// # Errors
/// The stream failed, or its bytes were no messages.
pub fn serve(
    mut stream: MessageStream,
    config: &AgentConfig,
    stop: &AtomicBool,
) -> Result<AgentEnd, StreamError> {
    let mut work = AgentWork {
        clock: Clock::Monotonic,
        name: clock_name(config.clock_shift_ns),
        shift_ns: config.clock_shift_ns,
        watching: None,
    };
    let mut session = AgentSession::new(config.lease, work.clock.now());
    let now = Moment { clock: work.name.clone(), at: work.shifted(work.clock.now()) };
    stream.send(&FromHost::Hello { version: VERSION, program: config.program.clone(), now })?;
    loop {
        let now = work.clock.now();
        if now >= session.deadline() {
            let what = format!("nothing was heard for {:?}", config.lease);
            let kind = FailureKind::LeaseOver;
            // Whoever it is has probably gone; if not, this is why.
            let _ = stream.send(&FromHost::Failed { kind, what });
            return Ok(AgentEnd::LeaseOver);
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(AgentEnd::Stopped);
        }
        let due = work.due().map_or(session.deadline(), |due| due.min(session.deadline()));
        let state = stream.wait(due.since(now).min(LOOK))?;
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
        work.sample_if_due(&mut stream)?;
    }
}

/// What an agent does besides talking.
struct AgentWork {
    clock: Clock,
    name: ClockName,
    shift_ns: i64,
    watching: Option<AgentProber>,
}

/// Samples the host on the conversation's own thread.
struct AgentProber {
    samplers: Vec<Sampler>,
    schedule: Schedule,
    /// Samples that a slow controller did not read.
    dropped: u64,
    /// Samples dropped and missed, as last told.
    told: [u64; 2],
}

impl AgentWork {
    fn shifted(&self, at: Nanos) -> Nanos {
        Nanos(at.0.saturating_add_signed(self.shift_ns))
    }

    /// When the next sample is.
    fn due(&self) -> Option<Nanos> {
        self.watching.as_ref().map(|prober| prober.schedule.due())
    }

    fn act(&mut self, action: AgentAction, stream: &mut MessageStream) -> Result<(), StreamError> {
        match action {
            AgentAction::Send(message) => stream.send(&*message),
            AgentAction::AnswerClock { round, heard } => {
                let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let wall_ns = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
                let wall_ns = self.shifted(Nanos(wall_ns)).0;
                let (heard, answered) = (self.shifted(heard), self.shifted(self.clock.now()));
                stream.send(&FromHost::Clock { round, heard, wall_ns, answered })
            }
            AgentAction::Watch(probes) => {
                self.watching = Some(AgentProber::start(&probes, &self.clock));
                self.tell_notes(stream)
            }
            AgentAction::Unwatch => {
                self.watching = None;
                Ok(())
            }
        }
    }

    fn tell_notes(&mut self, stream: &mut MessageStream) -> Result<(), StreamError> {
        let samplers = self.watching.iter_mut().flat_map(|prober| &mut prober.samplers);
        samplers.flat_map(Sampler::take_notes).try_for_each(|note| stream.send(&FromHost::Note(note)))
    }

    fn sample_if_due(&mut self, stream: &mut MessageStream) -> Result<(), StreamError> {
        let shift_ns = self.shift_ns;
        let now = self.clock.now();
        let Some(prober) = self.watching.as_mut().filter(|prober| now >= prober.schedule.due()) else {
            return Ok(());
        };
        prober.schedule.taken(now);
        // One sample of all subjects: they are of one host and of the same time.
        let samples = prober.samplers.iter_mut().filter_map(|sampler| sampler.sample(&self.clock, now));
        let together = samples.reduce(|mut all, mut one| {
            all.values.append(&mut one.values);
            all
        });
        match together {
            Some(_) if stream.backlog() > SAMPLES_BACKLOG_BYTES => prober.dropped += 1,
            Some(sample) => {
                let shifted = |at: Nanos| Nanos(at.0.saturating_add_signed(shift_ns));
                let sample = Sample { start: shifted(sample.start), end: shifted(sample.end), ..sample };
                let envelope = Envelope::new(self.name.clone(), Event::Sample(Arc::new(sample)));
                stream.send(&FromHost::Event(Box::new(envelope)))?;
            }
            None => {}
        }
        let lost = [prober.dropped, prober.schedule.missed];
        if stream.backlog() <= SAMPLES_BACKLOG_BYTES {
            let told = std::mem::replace(&mut prober.told, lost);
            for (index, name) in ["samples_dropped", "samples_missed"].into_iter().enumerate() {
                if lost[index] != told[index] {
                    stream.send(&FromHost::Counter { name: name.into(), value: lost[index] })?;
                }
            }
        }
        self.tell_notes(stream)
    }
}

impl AgentProber {
    /// The first reading is the begin of the first sample.
    fn start(probes: &Probes, clock: &Clock) -> AgentProber {
        let subjects = [
            Subject::Machine { host: LOCAL.into(), with_network: true },
            Subject::Process { host: LOCAL.into(), name: "agent".into(), pid: std::process::id() },
        ];
        let chosen = probes.chosen();
        // Only another network's namespace can be closed to us.
        let mut samplers: Vec<Sampler> =
            subjects.iter().filter_map(|subject| Sampler::open(subject, &chosen).ok()).collect();
        let now = clock.now();
        samplers.iter_mut().for_each(|sampler| drop(sampler.sample(clock, now)));
        let interval = probes.interval.0;
        AgentProber {
            samplers,
            schedule: Schedule::new(now.after(interval), interval),
            dropped: 0,
            told: [0; 2],
        }
    }
}
