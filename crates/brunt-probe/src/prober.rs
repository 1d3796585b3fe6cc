//! Samples all watched subjects at an interval, in a separate thread, for the duration of a run. The code that executes
//! the run starts and stops it, and receives its samples.
//!
//! The rule: each sample contains the times at which it was taken. Late samples are counted, and those after them
//! stay on schedule; missed samples are not made up for.
//!
//! The prober's cost is part of every result: see [`ProbeRecord::cpu_us_per_sample`].

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_core::cost::ResourceUsage;
use brunt_core::{Clock, Nanos};
use brunt_result::event::Sample;
use brunt_result::probe::ProbeRecord;

use super::Probes;
use super::means::Means;
use super::round::SampleRound;
use super::watch::{Subject, Watch, Watching};

/// The name, in samples, of the machine that runs the runner.
pub const LOCAL: &str = "local";
/// A sample is late if it is taken more than a tenth of the interval, and more than [`LATE_MIN`], after its due time.
const LATE_SHARE: u32 = 10;
const LATE_MIN: Duration = Duration::from_millis(1);

/// Reads counters during runs.
pub struct Prober {
    probes: Probes,
    watch: Watch,
    _own: [Watching; 2],
    thread: Option<(Arc<Control>, JoinHandle<ProbeRecord>)>,
}

/// When samples are due.
#[derive(Clone, Debug)]
pub struct Schedule {
    due: Nanos,
    interval: Duration,
    /// Samples that were taken late.
    pub late: u64,
    /// Samples that were never taken.
    pub missed: u64,
}

impl Schedule {
    /// Creates a schedule whose first sample is due at `first`.
    pub fn new(first: Nanos, interval: Duration) -> Schedule {
        Schedule {
            due: first,
            interval,
            late: 0,
            missed: 0,
        }
    }

    /// Returns when the next sample is due.
    pub fn due(&self) -> Nanos {
        self.due
    }

    /// Restarts the schedule at `first`.
    pub fn begin_again(&mut self, first: Nanos) {
        self.due = first;
    }

    /// Records that a sample was taken at `now`, on time or late.
    pub fn taken(&mut self, now: Nanos) {
        if now.since(self.due) > (self.interval / LATE_SHARE).max(LATE_MIN) {
            self.late += 1;
        }
        let whole = now.since(self.due).as_nanos() / self.interval.as_nanos().max(1);
        self.missed += whole as u64;
        self.due = self
            .due
            .after(self.interval.saturating_mul(whole as u32 + 1));
    }
}

impl Prober {
    /// Creates a prober for an experiment. `watch` lists the subjects other than this machine and this process.
    pub fn new(probes: &Probes, watch: &Watch) -> Prober {
        Prober::on(probes, watch, true)
    }

    /// Creates a prober for an experiment in a lab whose hosts are in `watch`: it samples this machine, except for
    /// its network.
    pub fn in_lab(probes: &Probes, watch: &Watch) -> Prober {
        Prober::on(probes, watch, false)
    }

    fn on(probes: &Probes, watch: &Watch, with_network: bool) -> Prober {
        let machine = watch.add(Subject::Machine {
            host: LOCAL.into(),
            with_network,
        });
        let runner = watch.process(LOCAL, "runner", std::process::id());
        let (probes, watch) = (probes.clone(), watch.clone());
        Prober {
            probes,
            watch,
            _own: [machine, runner],
            thread: None,
        }
    }

    /// Takes samples until [`Prober::stop`], and passes each to `take`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(&mut self, take: impl FnMut(&Sample) + Send + 'static) -> io::Result<()> {
        assert!(self.thread.is_none(), "one run at a time");
        let control = Arc::new(Control::default());
        let mut work = Work {
            control: Arc::clone(&control),
            probes: self.probes.clone(),
            samplers: SampleRound::new(&self.probes, &self.watch, LOCAL),
            means: Means::default(),
            measured_from: Nanos(0),
            record: ProbeRecord::default(),
            take: Box::new(take),
        };
        // The first reading starts the first interval, so it is taken before this returns.
        let cost = ResourceUsage::of_thread();
        work.round(&Clock::Monotonic);
        let prepared = ResourceUsage::of_thread().since(cost);
        let thread = std::thread::Builder::new().name("prober".into());
        let thread = thread.spawn(move || work.run(prepared))?;
        self.thread = Some((control, thread));
        Ok(())
    }

    /// Restarts the schedule at `first`; earlier samples are not part of the run's means.
    pub fn measure_from(&self, first: Nanos) {
        if let Some((control, _)) = &self.thread {
            control.change(|orders| orders.measure_from = Some(first));
        }
    }

    /// Takes a last sample, ends, and returns the record.
    pub fn stop(&mut self) -> Option<ProbeRecord> {
        let (control, thread) = self.thread.take()?;
        control.change(|orders| orders.stop = true);
        match thread.join() {
            Ok(record) => Some(record),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Orders to the thread.
#[derive(Default)]
struct Control {
    orders: Mutex<Orders>,
    changed: Condvar,
}

#[derive(Default)]
struct Orders {
    stop: bool,
    measure_from: Option<Nanos>,
}

impl Control {
    fn change(&self, how: impl FnOnce(&mut Orders)) {
        how(&mut self.orders.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Waits until `due`, or for new orders.
    fn wait(&self, due: Nanos) -> Orders {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = due.since(Clock::Monotonic.now());
            if left.is_zero() || orders.stop || orders.measure_from.is_some() {
                return Orders {
                    stop: orders.stop,
                    measure_from: orders.measure_from.take(),
                };
            }
            orders = self
                .changed
                .wait_timeout(orders, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// The thread's state.
struct Work {
    control: Arc<Control>,
    probes: Probes,
    samplers: SampleRound,
    means: Means,
    measured_from: Nanos,
    record: ProbeRecord,
    take: Box<dyn FnMut(&Sample) + Send>,
}

impl Work {
    fn run(mut self, prepared: ResourceUsage) -> ProbeRecord {
        let begin = Clock::Monotonic.now();
        let interval = self.probes.interval.0;
        let mut schedule = Schedule::new(begin.after(interval), interval);
        loop {
            let orders = self.control.wait(schedule.due());
            if let Some(first) = orders.measure_from {
                self.measured_from = first;
                schedule.begin_again(first);
            }
            let now = Clock::Monotonic.now();
            if orders.stop || now >= schedule.due() {
                if !orders.stop {
                    schedule.taken(now);
                }
                self.round(&Clock::Monotonic);
                self.record.samples += 1;
            }
            if orders.stop {
                break;
            }
        }
        let ProbeRecord { samples, .. } = self.record;
        let cpu = (ResourceUsage::of_thread().cpu() + prepared.cpu()).as_secs_f64();
        let misreadings = self.samplers.misreadings();
        self.record.notes.append(&mut self.samplers.last_notes());
        let hosts = self.means.by_host();
        ProbeRecord {
            interval_s: interval.as_secs_f64(),
            late: schedule.late,
            missed: schedule.missed,
            resets: misreadings.resets,
            unreadable: misreadings.unreadable,
            cpu_us_per_sample: cpu * 1e6 / samples.max(1) as f64,
            cpu_share: cpu / Clock::Monotonic.now().since(begin).as_secs_f64(),
            hosts,
            ..self.record
        }
    }

    /// Takes one sample of each subject.
    fn round(&mut self, clock: &Clock) {
        self.samplers.sample(clock, |sample| {
            self.means.add(&sample, self.measured_from);
            (self.take)(&sample);
        });
        self.record.notes.append(&mut self.samplers.take_notes());
    }
}
