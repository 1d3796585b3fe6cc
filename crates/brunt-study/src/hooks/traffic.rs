//! Measures the traffic of the lab's links, as a hook: during the measured part of a run and, if the experiment asks
//! for that, without load before the run. [`brunt_result::transfer`] defines the figures.
//!
//! The rule: bytes count only for the time in which the load was measured, not for connecting, ramp-up or draining.
//! The counters are read before measuring begins, when it begins, and then every 20 ms; in a long run they are read
//! less often, but still more than a hundred times ([`super::readings`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_core::readings::ReadingLog;
use brunt_core::{Clock, Nanos};
use brunt_lab::link::Settings;
use brunt_lab::{LabError, Meter};
use brunt_result::Outcome;
use brunt_result::summary::RunSummary;
use brunt_result::transfer::{LinkTraffic, WayBytes};
use brunt_result::void::VoidReason;

use super::readings::{Bytes, between, load_end, phase_time, rest, transfer_of};
use super::{HookError, RunHook};
use crate::lab::BuiltLab;
use crate::observe::{Hub, RunInfo};

/// Initial time between two readings.
const PERIOD: Duration = Duration::from_millis(20);
/// Readings kept.
const READINGS_MAX: usize = 256;

/// Counts the traffic of links. This hook must begin after all hooks that start something in the lab. `points` has
/// the links' settings at each point of the experiment; before each run, the hook waits for `idle`, unless
/// `interrupted` is set.
///
/// # Errors
/// A system call fails.
pub(super) fn traffic(
    lab: &BuiltLab,
    points: &[BTreeMap<String, [Settings; 2]>],
    idle: Option<Duration>,
    interrupted: Arc<AtomicBool>,
) -> Result<Box<dyn RunHook>, LabError> {
    let meter = lab.lab().meter()?;
    let delayed = points
        .iter()
        .flatten()
        .filter(|(_, ways)| ways.iter().any(|way| !way.delay.0.is_zero()));
    let links = meter.links().map(str::to_string).collect();
    let delayed = delayed.map(|(name, _)| name.clone()).collect();
    let state = State::Waits(meter);
    Ok(Box::new(Traffic {
        links,
        delayed,
        idle,
        interrupted,
        state,
        without_load: None,
        failed: None,
    }))
}

/// The hook.
struct Traffic {
    /// The links' names, in the order of every reading.
    links: Vec<String>,
    /// Links that have a delay at any point.
    delayed: BTreeSet<String>,
    idle: Option<Duration>,
    interrupted: Arc<AtomicBool>,
    state: State,
    /// Bytes per second before the run, without load.
    without_load: Option<Vec<[f64; 2]>>,
    /// Why the counters could not be read, if that failed.
    failed: Option<HookError>,
}

/// Which part of the program holds the meter, and what the meter has read.
enum State {
    /// Between runs.
    Waits(Meter),
    /// A thread reads the meter until the channel closes.
    Reads(Sender<()>, JoinHandle<(Meter, std::io::Result<Readings>)>),
    /// A run has ended, with these readings.
    Has(Meter, Readings),
    /// The meter could not be read.
    Lost,
}

impl Traffic {
    fn unread(source: std::io::Error) -> HookError {
        HookError::new(VoidReason::LinksUnread, "the lab's links").because(source)
    }

    /// The traffic of links without load; `None` if interrupted.
    fn rest(&self, meter: &mut Meter, idle: Duration) -> std::io::Result<Option<Vec<[f64; 2]>>> {
        let clock = Clock::Monotonic;
        let (from, before) = (clock.now(), meter.read()?);
        if !rest(idle, &self.interrupted) {
            return Ok(None);
        }
        let (until, after) = (clock.now(), meter.read()?);
        let seconds = until.since(from).as_secs_f64();
        let rate = |(before, after): (&[u64; 2], &[u64; 2])| {
            std::array::from_fn(|way| after[way].saturating_sub(before[way]) as f64 / seconds)
        };
        Ok(Some(before.iter().zip(&after).map(rate).collect()))
    }
}

impl RunHook for Traffic {
    fn begin(&mut self, _run: &RunInfo, _hub: &Arc<Hub>) -> Result<(), HookError> {
        self.without_load = None;
        let mut meter = match std::mem::replace(&mut self.state, State::Lost) {
            State::Waits(meter) | State::Has(meter, _) => meter,
            // The previous run's `end` was not called, or failed.
            State::Reads(..) | State::Lost => {
                return Err(HookError::new(VoidReason::LinksUnread, "the lab's links"));
            }
        };
        if let Some(idle) = self.idle {
            self.without_load = self.rest(&mut meter, idle).map_err(Traffic::unread)?;
        }
        self.state = State::Waits(meter);
        Ok(())
    }

    fn starts(&mut self, start: Nanos, ramp_up: Duration) {
        let State::Waits(mut meter) = std::mem::replace(&mut self.state, State::Lost) else {
            return;
        };
        let (sender, ended) = channel::<()>();
        let begin = start.after(ramp_up);
        let mut readings = Readings::from(PERIOD);
        let first = match ramp_up.is_zero() {
            // Links carry no load before the start, so an early reading is accurate.
            true => meter.read().map(|bytes| readings.log.add(begin, bytes)),
            false => readings.read(&mut meter),
        };
        let thread = std::thread::Builder::new()
            .name("links".into())
            .spawn(move || {
                let read = move |meter: &mut Meter| {
                    first?;
                    while ended.recv_timeout(readings.wait(begin)) == Err(RecvTimeoutError::Timeout)
                    {
                        readings.read(meter)?;
                    }
                    readings.read(meter)?;
                    Ok(readings)
                };
                let readings = read(&mut meter);
                (meter, readings)
            });
        match thread {
            Ok(thread) => self.state = State::Reads(sender, thread),
            Err(error) => {
                self.failed = Some(HookError::not_ready_here(
                    "cannot start a thread for the links",
                    error,
                ));
            }
        }
    }

    fn end(&mut self, _complete: bool) -> Result<(), HookError> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        match std::mem::replace(&mut self.state, State::Lost) {
            State::Reads(sender, thread) => {
                drop(sender);
                let (meter, readings) = thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                self.state = State::Has(meter, readings.map_err(Traffic::unread)?);
            }
            // The run never started.
            other => self.state = other,
        }
        Ok(())
    }

    fn sum_up(&mut self, run: &mut RunSummary, outcome: &Outcome) {
        let State::Has(_, readings) = &self.state else {
            return;
        };
        if outcome.end <= outcome.start {
            return;
        }
        let named = |bytes: Bytes| {
            let bytes = bytes
                .into_iter()
                .map(|[there, back]| WayBytes { there, back });
            self.links.iter().cloned().zip(bytes)
        };
        let link = |(number, (name, bytes)): (usize, (String, WayBytes))| {
            let idle = self.without_load.as_ref().map(|rates| rates[number]);
            let traffic = LinkTraffic {
                there_bytes: bytes.there,
                back_bytes: bytes.back,
                idle_there_bytes_per_second: idle.map(|[there, _]| there),
                idle_back_bytes_per_second: idle.map(|[_, back]| back),
                delayed: self.delayed.contains(&name),
            };
            (name, traffic)
        };
        let end = load_end(run, outcome);
        let carried = |from, until| named(between(&readings.log, from, until, end));
        let transfer = transfer_of(run, outcome);
        transfer.links = carried(outcome.start, outcome.end)
            .enumerate()
            .map(link)
            .collect();
        for phase in &mut transfer.phases {
            let [from, until] = [phase.start_s, phase.end_s].map(|at| phase_time(outcome, at));
            phase.links = carried(from, until).collect();
        }
    }
}

/// Counter readings over time.
struct Readings {
    log: ReadingLog<Bytes>,
}

impl Readings {
    fn from(period: Duration) -> Readings {
        Readings {
            log: ReadingLog::new(period, READINGS_MAX),
        }
    }

    fn read(&mut self, meter: &mut Meter) -> std::io::Result<()> {
        let before = Clock::Monotonic.now();
        let bytes = meter.read()?;
        let took = Clock::Monotonic.now().since(before);
        self.log.add(before.after(took / 2), bytes);
        Ok(())
    }

    /// Time until the next reading; the first one is due at `begin`.
    fn wait(&self, begin: Nanos) -> Duration {
        self.log.due(begin).since(Clock::Monotonic.now())
    }
}
