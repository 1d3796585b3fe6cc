//! Samples an agent's host for its controller, on a separate thread: reading all counters of a busy machine takes many
//! milliseconds, during which clock requests would go unanswered.
//!
//! The rule: samples are sent after all other messages ([`MessageStream::send_later`]); samples that a slow
//! controller doesn't read are dropped and counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};

use brunt_core::cost::ResourceUsage;
use brunt_core::{Clock, Nanos};
use brunt_probe::{Probes, SampleRound, Schedule, Watch, Watching};
use brunt_protocol::{FromHost, SAMPLES_DROPPED, SAMPLES_MISSED, WatchReport};
use brunt_result::event::{ClockName, Envelope, Event, Sample};

use crate::clock::moved;
use crate::stream::{MessageStream, StreamError};

/// Samples are dropped when more bytes than this wait to be sent: several seconds of samples from a large host.
const SAMPLES_BACKLOG_BYTES: usize = 1 << 20;
/// Capacity for samples on their way to the connection's thread, which fetches them many times a second; when it is
/// full, the prober blocks.
const SAMPLES_MAX: usize = 16;

/// How the agent names its clock and shifts its times.
#[derive(Clone, Debug)]
pub(crate) struct AgentClock {
    /// The name in the agent's greeting.
    pub name: ClockName,
    /// Added to all times.
    pub shift_ns: i64,
}

/// An order to the thread.
enum ProberOrder {
    /// Schedule samples: the first at this time on this machine's clock, then one per interval.
    BeginAgain(Nanos),
    /// Take a last sample, and report the totals.
    Finish,
}

/// Samples the host. Dropping this ends the sampling.
pub(crate) struct AgentProber {
    orders: Sender<ProberOrder>,
    news: Receiver<FromHost>,
    /// What the thread samples.
    watch: Watch,
    host: String,
    /// Roles by number: their current PID, and the handles that keep them sampled.
    roles: BTreeMap<u32, (u32, Vec<Watching>)>,
    /// Samples that a slow controller didn't read.
    dropped: u64,
    /// The value of `dropped` in the last report.
    reported: u64,
}

impl AgentProber {
    /// Starts sampling; the first reading begins the first sample.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(probes: &Probes, host: &str, of: AgentClock) -> std::io::Result<AgentProber> {
        let (orders, pending) = channel();
        let (sender, news) = sync_channel(SAMPLES_MAX);
        let watch = Watch::default();
        let (probes, watched, of_host) = (probes.clone(), watch.clone(), host.to_string());
        let work = move || Probing::start(&probes, &watched, &of_host, of, sender).work(&pending);
        std::thread::Builder::new()
            .name("prober".into())
            .spawn(work)?;
        let (host, roles) = (host.to_string(), BTreeMap::new());
        Ok(AgentProber {
            orders,
            news,
            watch,
            host,
            roles,
            dropped: 0,
            reported: 0,
        })
    }

    /// Samples a role's process from now on, replacing its previous process; if the process is only a keeper, samples
    /// its current descendants.
    pub fn watch_role(&mut self, role: u32, name: &str, pid: u32, keeps: bool) {
        if self
            .roles
            .get(&role)
            .is_some_and(|(known, _)| *known == pid)
        {
            return;
        }
        let processes = if keeps {
            brunt_lab::below(pid)
        } else {
            vec![pid]
        };
        let watch = |(number, pid): (usize, u32)| {
            self.watch
                .process(&self.host, &instance_of_role(name, number), pid)
        };
        let watching = processes.into_iter().enumerate().map(watch).collect();
        self.roles.insert(role, (pid, watching));
    }

    /// Forgets a role that has ended.
    pub fn forget_role(&mut self, role: u32) {
        self.roles.remove(&role);
    }

    /// Schedules samples: the first at this time on this machine's clock, then one per interval.
    pub fn begin_again(&self, first: Nanos) {
        let _ = self.orders.send(ProberOrder::BeginAgain(first));
    }

    /// Takes a last sample; [`FromHost::Watched`] is the last of its news.
    pub fn finish(&self) {
        let _ = self.orders.send(ProberOrder::Finish);
    }

    /// Sends the news since the last call; returns whether that was the last.
    ///
    /// # Errors
    /// The stream fails.
    pub fn pass_on(&mut self, stream: &mut MessageStream) -> Result<bool, StreamError> {
        while let Ok(mut news) = self.news.try_recv() {
            let is_full = stream.later_backlog() > SAMPLES_BACKLOG_BYTES;
            match &mut news {
                FromHost::Event(_) if is_full => {
                    self.dropped += 1;
                    continue;
                }
                FromHost::Watched(report) => report.dropped = self.dropped,
                _ => {}
            }
            stream.send_later(&news)?;
            if let FromHost::Watched(_) = news {
                return Ok(true);
            }
        }
        if self.reported != self.dropped && stream.later_backlog() <= SAMPLES_BACKLOG_BYTES {
            self.reported = self.dropped;
            stream.send_later(&FromHost::Counter {
                name: SAMPLES_DROPPED.into(),
                value: self.dropped,
            })?;
        }
        Ok(false)
    }
}

/// The name of a role's process in samples: the role's name, with a number for the second and later processes.
pub fn instance_of_role(name: &str, number: usize) -> String {
    if number == 0 {
        name.to_string()
    } else {
        format!("{name} #{}", number + 1)
    }
}

/// The state of the thread.
struct Probing {
    round: SampleRound,
    _watching: [Watching; 2],
    schedule: Schedule,
    clock: Clock,
    of: AgentClock,
    /// Blocks while the channel is full: samples that become due in the meantime are missed, and counted.
    news: SyncSender<FromHost>,
    begin: Nanos,
    samples: u64,
    /// Missed samples, as of the last report.
    reported: u64,
    cpu_nanos: u64,
}

/// The receiver is gone.
struct Unheard;

impl Probing {
    fn start(
        probes: &Probes,
        watch: &Watch,
        host: &str,
        of: AgentClock,
        news: SyncSender<FromHost>,
    ) -> Probing {
        let clock = Clock::Monotonic;
        let watching = [
            watch.machine(host),
            watch.process(host, "agent", std::process::id()),
        ];
        let mut round = SampleRound::new(probes, watch, host);
        let begin = clock.now();
        round.sample(&clock, drop);
        let interval = probes.interval.0;
        let schedule = Schedule::new(begin.after(interval), interval);
        let (samples, reported, cpu_nanos) = (0, 0, 0);
        Probing {
            round,
            _watching: watching,
            schedule,
            clock,
            of,
            news,
            begin,
            samples,
            reported,
            cpu_nanos,
        }
    }

    /// Takes samples until it receives the order to finish, or until nothing receives its samples any more.
    fn work(mut self, orders: &Receiver<ProberOrder>) {
        // Notes about missing figures are available after the first reading.
        let mut heard = self.tell_notes();
        while heard.is_ok() {
            let left = self.schedule.due().since(self.clock.now());
            heard = match orders.recv_timeout(left) {
                Ok(ProberOrder::BeginAgain(first)) => {
                    self.schedule.begin_again(first);
                    Ok(())
                }
                Ok(ProberOrder::Finish) => return drop(self.finish()),
                Err(RecvTimeoutError::Timeout) => self.sample_if_due(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
        }
    }

    fn say(&self, news: FromHost) -> Result<(), Unheard> {
        self.news.send(news).map_err(|_| Unheard)
    }

    fn sample_if_due(&mut self) -> Result<(), Unheard> {
        let now = self.clock.now();
        if now < self.schedule.due() {
            return Ok(());
        }
        self.schedule.taken(now);
        self.sample()
    }

    /// Takes a last sample, and reports the totals.
    fn finish(mut self) -> Result<(), Unheard> {
        // If this thread was suspended until now, samples were missed.
        let now = self.clock.now();
        if now >= self.schedule.due() {
            self.schedule.taken(now);
        }
        self.sample()?;
        self.round
            .last_notes()
            .into_iter()
            .try_for_each(|note| self.say(FromHost::WatchNote(note)))?;
        let misreadings = self.round.misreadings();
        self.say(FromHost::Watched(WatchReport {
            samples: self.samples,
            late: self.schedule.late,
            missed: self.schedule.missed,
            // Dropped samples are counted by the thread that sends them.
            dropped: 0,
            resets: misreadings.resets,
            unreadable: misreadings.unreadable,
            cpu_nanos: self.cpu_nanos,
            elapsed_nanos: self.clock.now().0.saturating_sub(self.begin.0),
        }))
    }

    fn sample(&mut self) -> Result<(), Unheard> {
        let before = ResourceUsage::of_thread();
        // All subjects go into one sample, because they belong to one host and one time.
        let mut together: Option<Sample> = None;
        self.round
            .sample(&self.clock, |mut sample| match &mut together {
                Some(all) => all.values.append(&mut sample.values),
                None => together = Some(sample),
            });
        if let Some(sample) = together {
            self.samples += 1;
            let shifted = |at| moved(at, self.of.shift_ns);
            let sample = Sample {
                start: shifted(sample.start),
                end: shifted(sample.end),
                ..sample
            };
            let envelope = Envelope::new(self.of.name.clone(), Event::Sample(Arc::new(sample)));
            self.say(FromHost::Event(Box::new(envelope)))?;
        }
        let cpu = ResourceUsage::of_thread().since(before).cpu().as_nanos();
        self.cpu_nanos += u64::try_from(cpu).unwrap_or(u64::MAX);
        let missed = self.schedule.missed;
        if std::mem::replace(&mut self.reported, missed) != missed {
            self.say(FromHost::Counter {
                name: SAMPLES_MISSED.into(),
                value: missed,
            })?;
        }
        self.tell_notes()
    }

    /// Reports notes about missing figures.
    fn tell_notes(&mut self) -> Result<(), Unheard> {
        self.round
            .take_notes()
            .into_iter()
            .try_for_each(|note| self.say(FromHost::WatchNote(note)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn prober() -> AgentProber {
        let probes = Probes {
            interval: "10ms".parse().unwrap(),
            only: vec!["memory".into()],
            ..Probes::default()
        };
        let of = AgentClock {
            name: ClockName("a".into()),
            shift_ns: 0,
        };
        AgentProber::start(&probes, "a", of).unwrap()
    }

    fn pair() -> (MessageStream, MessageStream) {
        let (from, to) = (rustix::pipe::pipe().unwrap(), rustix::pipe::pipe().unwrap());
        (
            MessageStream::new(from.0, to.1),
            MessageStream::new(to.0, from.1),
        )
    }

    /// Returns all messages until the end, for a controller that reads them, possibly only at the end.
    fn heard(
        prober: &mut AgentProber,
        agent: &mut MessageStream,
        controller: &mut MessageStream,
    ) -> Vec<FromHost> {
        let mut heard: Vec<FromHost> = Vec::new();
        while !matches!(heard.last(), Some(FromHost::Watched(_))) {
            prober.pass_on(agent).unwrap();
            agent.wait(Duration::from_millis(1)).unwrap();
            controller.wait(Duration::from_millis(1)).unwrap();
            heard.extend(std::iter::from_fn(|| {
                controller.take::<FromHost>().unwrap()
            }));
        }
        heard
    }

    fn report(heard: &[FromHost]) -> WatchReport {
        let Some(FromHost::Watched(report)) = heard.last() else {
            panic!("{heard:?}")
        };
        *report
    }

    /// Samples that were due but not taken before the order to finish are counted as missed.
    #[test]
    fn samples_that_were_due_before_the_end_are_missed() {
        let (mut agent, mut controller) = pair();
        let mut prober = prober();
        prober.begin_again(Nanos(Clock::Monotonic.now().0 - 1_000_000_000));
        prober.finish();
        let report = report(&heard(&mut prober, &mut agent, &mut controller));
        assert!(report.missed >= 99, "{report:?}");
    }

    /// A controller that doesn't read for a long time receives, in order, the samples that were kept for it; every
    /// other sample is counted as dropped or missed.
    #[test]
    fn unread_samples_are_dropped_and_counted() {
        let (mut agent, mut controller) = pair();
        let mut prober = prober();
        // Long texts fill the backlog sooner than minutes of samples: one is being sent, and one waits.
        let long = FromHost::Note("x".repeat(SAMPLES_BACKLOG_BYTES));
        (0..2).for_each(|_| agent.send_later(&long).unwrap());
        while prober.dropped < 3 {
            prober.pass_on(&mut agent).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        prober.finish();
        let heard = heard(&mut prober, &mut agent, &mut controller);
        let report = report(&heard);
        let arrived = heard
            .iter()
            .filter(|one| matches!(one, FromHost::Event(_)))
            .count() as u64;
        assert!(
            report.dropped >= 3 && arrived + report.dropped == report.samples,
            "{arrived} of {report:?}"
        );
        assert_eq!(heard[..2], [long.clone(), long]);
    }
}
