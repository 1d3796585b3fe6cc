//! Samples of other hosts: a hook that requests them during each run, reports them to the hub with times on our
//! clock, and adds their means to the run's summary. Samples all hosts of the experiment that have an agent, whether
//! or not workers run there.
//!
//! The rule: the samples of a host end when it is lost, which the run's summary reports; this never invalidates a
//! run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brunt_core::Nanos;
use brunt_host::{Fleet, WatchEnd, WatchTask};
use brunt_probe::{Means, Probes};
use brunt_protocol::WatchReport;
use brunt_result::Outcome;
use brunt_result::event::Sample;
use brunt_result::probe::{HostProbes, ProbeRecord};
use brunt_result::summary::RunSummary;

use super::{HookError, RunHook};
use crate::observe::{Event, Hub, RunInfo};

/// Time to wait for a host's last sample. A host that doesn't answer is considered lost before that, unless
/// `host_silence` is longer.
const LAST_SAMPLE_MAX: Duration = Duration::from_secs(10);

/// Samples other hosts during each run.
pub struct HostProbing {
    fleet: Arc<Fleet>,
    probes: Probes,
    hosts: Vec<String>,
    /// The samplers of the current run.
    running: Vec<HostWatch>,
    measured: Arc<Mutex<Measured>>,
    /// Results of the last run.
    ends: Vec<(String, WatchEnd)>,
}

/// A host that is sampled.
struct HostWatch {
    host: String,
    over: Receiver<WatchEnd>,
    /// Set when samples of this run are no longer needed.
    closed: Arc<AtomicBool>,
}

/// Means of a run's samples.
struct Measured {
    means: Means,
    /// Earlier samples don't count for the means.
    from: Nanos,
}

impl Default for Measured {
    fn default() -> Measured {
        Measured {
            means: Means::default(),
            from: Nanos::MAX,
        }
    }
}

impl HostProbing {
    /// Samples these hosts, which must already be connected.
    pub fn new(fleet: Arc<Fleet>, probes: &Probes, hosts: Vec<String>) -> HostProbing {
        let (running, measured, ends) = Default::default();
        HostProbing {
            fleet,
            probes: probes.clone(),
            hosts,
            running,
            measured,
            ends,
        }
    }

    fn watch(&self, host: &str, hub: &Arc<Hub>) -> Result<HostWatch, HookError> {
        let (over, end) = sync_channel(1);
        let closed = Arc::new(AtomicBool::new(false));
        let (hub, measured, is_closed) = (
            Arc::clone(hub),
            Arc::clone(&self.measured),
            Arc::clone(&closed),
        );
        let take = move |sample: Sample| {
            if is_closed.load(Ordering::Relaxed) {
                return;
            }
            let mut measured = measured.lock().unwrap_or_else(PoisonError::into_inner);
            let from = measured.from;
            measured.means.add(&sample, from);
            drop(measured);
            hub.tell(&Event::Sample(Arc::new(sample)));
        };
        let task = WatchTask {
            probes: self.probes.clone(),
            take: Box::new(take),
            over,
        };
        let told = self.fleet.watch(host, task);
        told.map_err(|error| HookError::not_ready("samples of other hosts", error))?;
        Ok(HostWatch {
            host: host.to_string(),
            over: end,
            closed,
        })
    }
}

impl HostWatch {
    /// The outcome of the sampling, after the host was told to stop.
    fn end(self) -> (String, WatchEnd) {
        let end = self
            .over
            .recv_timeout(LAST_SAMPLE_MAX)
            .unwrap_or_else(|_| WatchEnd {
                lost: Some(format!(
                    "host {}: no last sample within {LAST_SAMPLE_MAX:?}",
                    self.host
                )),
                ..WatchEnd::default()
            });
        self.closed.store(true, Ordering::Relaxed);
        (self.host, end)
    }
}

impl RunHook for HostProbing {
    fn begin(&mut self, _run: &RunInfo, hub: &Arc<Hub>) -> Result<(), HookError> {
        self.ends.clear();
        self.measured = Arc::default();
        for host in &self.hosts {
            let watch = self.watch(host, hub)?;
            self.running.push(watch);
        }
        Ok(())
    }

    fn starts(&mut self, start: Nanos, ramp_up: Duration) {
        let first = start.after(ramp_up);
        self.measured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .from = first;
        for watch in &self.running {
            // The host has been watched since the run began, so it is known.
            let _ = self.fleet.watch_from(&watch.host, first);
        }
    }

    fn end(&mut self, _complete: bool) -> Result<(), HookError> {
        // Stop all hosts before waiting for any.
        for watch in &self.running {
            let _ = self.fleet.unwatch(&watch.host);
        }
        self.ends = self.running.drain(..).map(HostWatch::end).collect();
        Ok(())
    }

    fn sum_up(&mut self, run: &mut RunSummary, _outcome: &Outcome) {
        let interval_s = self.probes.interval.0.as_secs_f64();
        let record = run.probes.get_or_insert_with(|| ProbeRecord {
            interval_s,
            ..ProbeRecord::default()
        });
        let measured = std::mem::take(&mut self.measured);
        let means = measured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .means
            .by_host();
        record.hosts.extend(means);
        for (host, end) in std::mem::take(&mut self.ends) {
            record.notes.extend(end.notes.iter().cloned());
            run.doubts.extend(
                end.lost
                    .as_ref()
                    .map(|lost| format!("no more samples: {lost}")),
            );
            record.elsewhere.insert(host, host_probes(end));
        }
    }
}

impl Drop for HostProbing {
    fn drop(&mut self) {
        let _ = self.end(false);
    }
}

fn host_probes(end: WatchEnd) -> HostProbes {
    let WatchReport {
        late,
        missed,
        dropped,
        resets,
        unreadable,
        samples,
        cpu_nanos,
        elapsed_nanos,
    } = end.report;
    let share = |of: u64| {
        if of == 0 {
            0.0
        } else {
            cpu_nanos as f64 / of as f64
        }
    };
    HostProbes {
        samples: end.samples,
        late,
        missed,
        dropped,
        resets,
        unreadable,
        cpu_us_per_sample: share(samples) / 1e3,
        cpu_share: share(elapsed_nanos),
        clock_error_us: end.clock_error_us,
        sent_bytes: end.bytes[0],
        received_bytes: end.bytes[1],
        lost: end.lost,
    }
}

/// Problems with the samples of other hosts, for a message.
pub(crate) fn trouble(
    elsewhere: &BTreeMap<String, HostProbes>,
) -> impl Iterator<Item = String> + '_ {
    elsewhere.iter().filter_map(|(host, probes)| {
        let HostProbes {
            late,
            missed,
            dropped,
            resets,
            unreadable,
            ..
        } = probes;
        let counts = [
            (late, "late"),
            (missed, "missed"),
            (dropped, "dropped"),
            (resets, "counters reset"),
            (unreadable, "texts unreadable"),
        ];
        let told: Vec<String> = counts
            .into_iter()
            .filter(|(count, _)| **count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        (!told.is_empty())
            .then(|| format!("{host}: {} samples; {}", probes.samples, told.join(", ")))
    })
}
