//! Probes: host counters during measurements (SPEK, 2005, section 2.2). A [`Sampler`] reads the kernel's counters and turns
//! two readings into figures for the time between them; a [`Prober`] does so at an interval, on the run's clock.
//!
//! To add a probe: a file here with an `impl Probe` for it (its name, one-line help, files and metrics, and two pure
//! functions: text to reading, two readings to figures), a captured text in `testdata/proc/`, and a line in [`PROBES`].
//!
//! The rule: counters that the kernel doesn't provide are noted once and have no value; no value is invented, and a
//! zero means zero. The crate works without an experiment.
#![forbid(unsafe_code)]

mod activity;
mod by_name;
mod cgroup;
mod control_group;
mod cpu;
mod device;
mod disk;
mod figures;
mod interfaces;
pub mod limits;
mod means;
mod memory;
mod neighbours;
mod network;
pub mod noise;
mod pressure;
mod prober;
mod process;
mod round;
mod sampler;
mod settings;
mod source;
mod tcp;
mod temperature;
mod waits;
mod watch;

use std::time::Duration;

pub use figures::{Malformed, Sink, Texts};
pub use interfaces::{InterfaceBytes, InterfaceReader};
pub use means::Means;
pub use prober::{LOCAL, Prober, Schedule};
pub use round::SampleRound;
pub use sampler::{Misreadings, Sampler};
pub use settings::{INTERVAL_MAX, INTERVAL_MIN, Probes, ProbesError};
pub use watch::{Network, Subject, Watch, Watching};

/// All probes.
#[rustfmt::skip]
pub static PROBES: &[Entry] = &[
    entry::<cpu::Cpu>(),
    entry::<activity::Activity>(),
    entry::<memory::Memory>(),
    entry::<network::Network>(),
    entry::<tcp::Tcp>(),
    entry::<disk::Disk>(),
    entry::<pressure::Pressure>(),
    entry::<control_group::ControlGroup>(),
    entry::<temperature::Temperature>(),
    entry::<process::Process>(),
];

/// The probe that reads parts of devices rather than the kernel's files.
pub static DEVICE: &DeviceEntry = &device::ENTRY;

/// A figure's name and meaning.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The figure's name, with the unit: `user_share`, `received_bytes_per_s`.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Whether the figure's mean over a run belongs in `summary.json`.
    pub summary: bool,
}

/// What a probe's figures describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The whole machine: lab hosts on one machine share them.
    Machine,
    /// The network namespace: each lab host has its own.
    Namespace,
    /// One watched process.
    Process,
}

/// A kind of probe. The contents of its files are passed in the order of [`Probe::FILES`], with `None` for a missing
/// file.
pub trait Probe: Send + 'static {
    /// The probe's name in results and in `[probes] only = […]`.
    const NAME: &'static str;
    /// One line of help.
    const HELP: &'static str;
    /// What the probe's figures describe.
    const SCOPE: Scope = Scope::Machine;
    /// The files that the probe reads; `{net}` stands for the namespace's folder, `{process}` for the process's.
    const FILES: &'static [&'static str];
    /// All figures that the probe may report.
    const METRICS: &'static [Metric];
    /// The parsed texts: counters and gauges, unprocessed.
    type Reading: Send;

    /// Parses the texts. Never panics, whatever the texts contain.
    ///
    /// # Errors
    /// The texts are not in the documented format.
    fn parse(texts: &Texts<'_>) -> Result<Self::Reading, Malformed>;

    /// The figures for the time between two readings.
    fn figures(before: &Self::Reading, now: &Self::Reading, elapsed: Duration, sink: &mut Sink<'_>);

    /// Moves the part of `before` that the next figures need into `now`; does nothing by default.
    fn carry(before: Self::Reading, now: &mut Self::Reading, elapsed: Duration) {
        let _ = (before, now, elapsed);
    }
}

/// One entry of [`PROBES`].
pub struct Entry {
    /// See [`Probe::NAME`].
    pub name: &'static str,
    /// See [`Probe::HELP`].
    pub help: &'static str,
    /// See [`Probe::SCOPE`].
    pub scope: Scope,
    /// See [`Probe::FILES`].
    pub files: &'static [&'static str],
    /// See [`Probe::METRICS`].
    pub metrics: &'static [Metric],
    make: fn() -> Box<dyn Running>,
}

/// Describes [`DEVICE`], whose figures come from outside this crate.
pub struct DeviceEntry {
    /// The entry's name in results and in `[probes] only = […]`.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// All figures that the entry may report.
    pub metrics: &'static [Metric],
}

const fn entry<P: Probe>() -> Entry {
    Entry {
        name: P::NAME,
        help: P::HELP,
        scope: P::SCOPE,
        files: P::FILES,
        metrics: P::METRICS,
        make: || Box::new(Last::<P>(None)),
    }
}

/// Finds a metric by a name from outside (a file, another process).
pub fn metric(probe: &str, name: &str) -> Option<&'static Metric> {
    let of_kernel = PROBES
        .iter()
        .find(|entry| entry.name == probe)
        .map(|entry| entry.metrics);
    let metrics = of_kernel.or_else(|| (probe == DEVICE.name).then_some(DEVICE.metrics))?;
    metrics.iter().find(|metric| metric.name == name)
}

/// Returns the names of all probes, as accepted by `[probes] only = […]`.
pub fn names() -> impl Iterator<Item = &'static str> {
    PROBES.iter().map(|entry| entry.name).chain([DEVICE.name])
}

/// A running probe, which remembers its last reading.
trait Running: Send {
    /// Parses the current texts and reports the figures since the last call; the first call reports none.
    fn step(
        &mut self,
        texts: &Texts<'_>,
        elapsed: Duration,
        sink: &mut Sink<'_>,
    ) -> Result<(), Malformed>;
}

struct Last<P: Probe>(Option<P::Reading>);

impl<P: Probe> Running for Last<P> {
    fn step(
        &mut self,
        texts: &Texts<'_>,
        elapsed: Duration,
        sink: &mut Sink<'_>,
    ) -> Result<(), Malformed> {
        // After an unreadable text, the next figures would span two intervals, so none are reported then.
        let before = self.0.take();
        let mut now = P::parse(texts)?;
        if let Some(before) = before {
            P::figures(&before, &now, elapsed, sink);
            P::carry(before, &mut now, elapsed);
        }
        self.0 = Some(now);
        Ok(())
    }
}

const fn metric_of(name: &'static str, help: &'static str) -> Metric {
    Metric {
        name,
        help,
        summary: false,
    }
}

/// Creates a metric whose mean goes into `summary.json`.
const fn headline(name: &'static str, help: &'static str) -> Metric {
    Metric {
        name,
        help,
        summary: true,
    }
}

#[cfg(test)]
mod tests;
