//! Samples of other hosts: asked for by whoever watches the hosts of an experiment, put on our clock by the thread that
//! holds the host.
//!
//! The rule: whoever asked hears once how it ended, whatever becomes of the host; no sample follows that.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use brunt_core::Nanos;
use brunt_probe::Probes;
use brunt_protocol::{SAMPLES_DROPPED, SAMPLES_MISSED, WatchReport};
use brunt_result::event::Sample;

use super::keeper::KeeperOrder;
use super::{Fleet, FleetError, Lane};
use crate::clock::ClockEstimate;
use crate::remote::{HostError, RemoteHost};
use crate::session::HostNews;

/// Most notes of a host's samples that are kept.
const NOTES_MAX: usize = 100;

/// Samples that are wanted of a host.
pub struct WatchTask {
    /// Which, and how often.
    pub probes: Probes,
    /// Takes each, with its times on our clock and under the host's name in the experiment.
    pub take: Box<dyn FnMut(Sample) + Send>,
    /// Told once, when no sample follows.
    pub over: SyncSender<WatchEnd>,
}

impl fmt::Debug for WatchTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchTask")
            .field("probes", &self.probes)
            .finish_non_exhaustive()
    }
}

/// What a host's samples came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchEnd {
    /// As its agent counted; of a host that was lost only what it had told until then.
    pub report: WatchReport,
    /// Samples that came.
    pub came: u64,
    /// What the user has to know beside them.
    pub notes: Vec<String>,
    /// How far their times may be off.
    pub clock_error_us: Option<f64>,
    /// Bytes sent to the agent meanwhile, and received from it, for whatever purpose.
    pub bytes: [u64; 2],
    /// Why the host was lost.
    pub lost: Option<String>,
}

impl Fleet {
    /// Has a host sampled until [`Fleet::unwatch`].
    ///
    /// # Errors
    /// There is no such host, or it was never reached.
    pub fn watch(&self, host: &str, task: WatchTask) -> Result<(), FleetError> {
        self.tell(host, Lane::default(), KeeperOrder::Watch(Box::new(task)))
    }

    /// Has its samples due at `first` on our clock, and in intervals from there.
    ///
    /// # Errors
    /// There is no such host, or it was never reached.
    pub fn watch_from(&self, host: &str, first: Nanos) -> Result<(), FleetError> {
        self.tell(host, Lane::default(), KeeperOrder::WatchFrom(first))
    }

    /// Has a last sample taken.
    ///
    /// # Errors
    /// There is no such host, or it was never reached.
    pub fn unwatch(&self, host: &str) -> Result<(), FleetError> {
        self.tell(host, Lane::default(), KeeperOrder::Unwatch)
    }
}

/// Samples of a host that are under way.
pub(super) struct HeldWatch {
    host: Arc<str>,
    task: WatchTask,
    end: WatchEnd,
    bytes_before: [u64; 2],
    /// The host was told to take no more.
    pub ending: bool,
}

impl HeldWatch {
    /// Asks the host for samples.
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

    /// Takes what the host says, if it is about samples; `estimate` is of its clock. What is not is handed back.
    pub fn take(&mut self, news: HostNews, estimate: Option<ClockEstimate>) -> Option<HostNews> {
        match news {
            HostNews::Sample(sample) => {
                let estimate = estimate?;
                let sample = Arc::unwrap_or_clone(sample);
                let [start, end] = [sample.start, sample.end].map(|at| estimate.to_ours(at));
                self.end.came += 1;
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

    /// The host takes no more samples, or was lost.
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
        // Whoever asked may have gone.
        let _ = self.task.over.try_send(self.end);
    }
}
