//! Samples other hosts, as requested by the experiment's monitoring; each host's thread converts the times to our
//! clock.
//!
//! The rule: each request ends with a single report, even if the host is lost, and no sample follows it.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use brunt_core::Nanos;
use brunt_probe::Probes;
use brunt_protocol::{SAMPLES_DROPPED, SAMPLES_MISSED, WatchReport};
use brunt_result::event::Sample;

use super::host_thread::HostThreadOrder;
use super::{Fleet, FleetError, Lane};
use crate::clock::ClockEstimate;
use crate::host_error::HostError;
use crate::host_news::HostNews;
use crate::remote::RemoteHost;

/// Maximum number of notes kept about a host's samples.
const NOTES_MAX: usize = 100;

/// A request to sample a host.
pub struct WatchTask {
    /// The probes, and the sampling interval.
    pub probes: Probes,
    /// Receives each sample, with its times on our clock and under the host's name in the experiment.
    pub take: Box<dyn FnMut(Sample) + Send>,
    /// Receives the outcome, once, after the last sample.
    pub over: SyncSender<WatchEnd>,
}

impl fmt::Debug for WatchTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchTask")
            .field("probes", &self.probes)
            .finish_non_exhaustive()
    }
}

/// The outcome of sampling a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchEnd {
    /// The totals counted by the agent; for a lost host, the totals that it had reported by then.
    pub report: WatchReport,
    /// Samples received.
    pub samples: u64,
    /// Remarks for the user.
    pub notes: Vec<String>,
    /// How far the samples' times may be off.
    pub clock_error_us: Option<f64>,
    /// Bytes sent to the agent and received from it during sampling, for all purposes.
    pub bytes: [u64; 2],
    /// Why the host was lost.
    pub lost: Option<String>,
}

impl Fleet {
    /// Samples a host until [`Fleet::unwatch`].
    ///
    /// # Errors
    /// The host is unknown or was never connected.
    pub fn watch(&self, host: &str, task: WatchTask) -> Result<(), FleetError> {
        self.tell(
            host,
            Lane::default(),
            HostThreadOrder::Watch(Box::new(task)),
        )
    }

    /// Schedules the host's samples: the first at `first` on our clock, then one per interval.
    ///
    /// # Errors
    /// The host is unknown or was never connected.
    pub fn watch_from(&self, host: &str, first: Nanos) -> Result<(), FleetError> {
        self.tell(host, Lane::default(), HostThreadOrder::WatchFrom(first))
    }

    /// Makes the host take a last sample.
    ///
    /// # Errors
    /// The host is unknown or was never connected.
    pub fn unwatch(&self, host: &str) -> Result<(), FleetError> {
        self.tell(host, Lane::default(), HostThreadOrder::Unwatch)
    }
}

/// Sampling that is in progress on a host.
pub(super) struct HeldWatch {
    host: Arc<str>,
    task: WatchTask,
    end: WatchEnd,
    bytes_before: [u64; 2],
    /// Whether the host was asked to stop sampling.
    pub ending: bool,
}

impl HeldWatch {
    /// Asks the host to start sampling.
    pub fn begin(
        name: &str,
        task: WatchTask,
        host: &mut RemoteHost,
    ) -> Result<HeldWatch, HostError> {
        let bytes_before = host.bytes();
        host.watch(name, &task.probes)?;
        Ok(HeldWatch {
            host: name.into(),
            task,
            end: WatchEnd::default(),
            bytes_before,
            ending: false,
        })
    }

    /// Handles a message about samples; `estimate` is for the host's clock. Returns other messages unchanged.
    pub fn take(&mut self, news: HostNews, estimate: Option<ClockEstimate>) -> Option<HostNews> {
        match news {
            HostNews::Sample(sample) => {
                let estimate = estimate?;
                let sample = Arc::unwrap_or_clone(sample);
                let [start, end] = [sample.start, sample.end].map(|at| estimate.to_ours(at));
                self.end.samples += 1;
                self.end.clock_error_us = Some(estimate.offset.error().as_nanos() as f64 / 1e3);
                (self.task.take)(Sample {
                    host: Arc::clone(&self.host),
                    start,
                    end,
                    values: sample.values,
                });
                None
            }
            HostNews::WatchNote(note) => {
                if self.end.notes.len() < NOTES_MAX {
                    self.end.notes.push(note);
                }
                None
            }
            HostNews::Counter(name, value) => {
                match name.as_str() {
                    SAMPLES_DROPPED => self.end.report.dropped = value,
                    SAMPLES_MISSED => self.end.report.missed = value,
                    _ => {}
                }
                None
            }
            news => Some(news),
        }
    }

    /// Reports the outcome: the host takes no more samples, or was lost.
    pub fn conclude(
        mut self,
        report: Option<WatchReport>,
        host: Option<&RemoteHost>,
        lost: Option<String>,
    ) {
        self.end.report = report.unwrap_or(self.end.report);
        if let Some(host) = host {
            let now = host.bytes();
            self.end.bytes = [0, 1].map(|way| now[way].saturating_sub(self.bytes_before[way]));
        }
        self.end.lost = lost;
        // The receiver may be gone.
        let _ = self.task.over.try_send(self.end);
    }
}
