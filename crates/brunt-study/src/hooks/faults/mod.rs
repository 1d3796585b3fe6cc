//! Runs an experiment's faults on the clock of its runs: for each fault, an actor injects it at its time, proves it,
//! removes it and proves that it is gone. This is the last hook of a [`crate::study::Study`].
//!
//! The rule: a fault that could not be proven invalidates the run, whatever the reason: a measurement of a fault that
//! was not in effect is worse than no measurement. Such a run ends as soon as that is known. Whatever ends a run also
//! ends its faults.

mod actor;
mod remote;
mod series;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_block::Backend;
use brunt_core::{Clock, Nanos};
use brunt_host::Fleet;
use brunt_result::{Interval, Outcome};

#[cfg(test)]
pub(crate) use self::actor::Absent;
use self::actor::{Ended, Failure, PlannedOccurrence, Signal, Signals, follow};
use self::series::Series;
use super::{HookError, RunHook};
use crate::experiment::{Experiment, Point};
use crate::fault::kinds::make_whole;
use crate::fault::{DriverError, FaultContext, FaultEntry, Occurrence, Prepared};
use crate::lab::BuiltLab;
use crate::observe::{FaultRecord, Hub, RunInfo};
use crate::role::Role;
use brunt_result::recurring::FaultOccurrence;
use brunt_result::summary::{FaultSummary, RunSummary};
use brunt_result::void::VoidReason;

/// The channel to a fault's thread, and the thread.
type Running = (SyncSender<Signal>, JoinHandle<Vec<Ended>>);

/// Why a fault cannot be injected in any run of the experiment.
#[derive(Debug, thiserror::Error)]
#[error("fault '{fault}': {source}")]
pub struct ScheduleError {
    /// The fault's name in reports.
    pub fault: String,
    /// The reason.
    pub source: DriverError,
}

/// A fault in the schedule.
struct Line {
    /// Its occurrences in a run, each with its index in the experiment's list.
    occurrences: Vec<(u32, FaultEntry)>,
    /// Indexes of the experiment's points into which the fault is injected.
    points: Vec<u32>,
    prepared: Prepared,
}

impl Line {
    /// The fault's name in reports.
    fn name(&self) -> String {
        let first = self.occurrences.first();
        first.map_or(String::new(), |(_, entry)| entry.name())
    }
}

/// The hook that injects an experiment's faults.
pub struct FaultSchedule {
    lines: Vec<Line>,
    /// The threads of the current run, each with the index of its fault in `lines`.
    threads: Vec<(usize, Running)>,
    /// Set when a fault has invalidated the current run before its end.
    failed: Arc<AtomicBool>,
    /// The intervals of the current run.
    series: Series,
    /// The records of the last run.
    records: Vec<FaultRecord>,
}

impl FaultSchedule {
    /// Finds the objects that the experiment's faults affect. `roles` are the targets that the experiment serves,
    /// `services` the programs that it started, `lab` its hosts and links, and `fleet` the other hosts, which must be
    /// connected. A device of this process gets a fault layer if storage faults need one.
    ///
    /// # Errors
    /// An object that a fault should affect doesn't exist; or, for example, the fault names an unknown layer, or
    /// doesn't say which of several layers it affects.
    pub fn new(
        experiment: &Experiment,
        targets: &mut BTreeMap<String, Arc<dyn Backend>>,
        roles: &BTreeMap<String, Arc<dyn Role>>,
        services: &BTreeMap<String, Arc<dyn Role>>,
        lab: Option<&BuiltLab>,
        fleet: Option<&Arc<Fleet>>,
    ) -> Result<FaultSchedule, ScheduleError> {
        let points = experiment.points();
        let luns = experiment
            .targets
            .iter()
            .filter_map(|(name, target)| Some((name.clone(), target.lun?)));
        let requesters = experiment
            .targets
            .keys()
            .map(|name| (name.clone(), experiment.requesters(name)));
        let (luns, requesters) = (luns.collect(), requesters.collect());
        let mut scene = FaultContext {
            targets,
            roles,
            services,
            lab,
            luns,
            requesters,
        };
        let mut lines: Vec<Line> = Vec::new();
        for (index, entry) in (0..).zip(&experiment.fault) {
            if let Some(line) = lines.last_mut().filter(|_| !entry.is_written()) {
                line.occurrences.push((index, entry.clone()));
                continue;
            }
            let prepared = match entry.common.host {
                Some(_) => remote::prepare(entry, fleet),
                None => entry.kind.as_kind().prepare(&entry.common, &mut scene),
            };
            let prepared = prepared.map_err(|source| ScheduleError {
                fault: entry.name(),
                source,
            })?;
            let meant =
                |(index, point): (usize, &Point)| point.has_fault(entry).then_some(index as u32);
            let points = points.iter().enumerate().filter_map(meant).collect();
            lines.push(Line {
                occurrences: vec![(index, entry.clone())],
                points,
                prepared,
            });
        }
        Ok(FaultSchedule {
            lines,
            threads: Vec::new(),
            failed: Arc::default(),
            series: Series::default(),
            records: Vec::new(),
        })
    }

    /// Ends the actors of the current run; returns the first failure that counts.
    fn join(&mut self, complete: bool) -> Result<(), HookError> {
        let over = Clock::Monotonic.now();
        for (_, (signals, _)) in &self.threads {
            let _ = signals.send(Signal::Ends(over));
        }
        let mut first = Ok(());
        for (line, (_, thread)) in std::mem::take(&mut self.threads) {
            let line = &self.lines[line];
            let Ok(all) = thread.join() else {
                let what = format!("fault '{}': its thread panicked", line.name());
                first = first.and(Err(HookError::new(VoidReason::FaultPanicked, what)));
                continue;
            };
            for ended in all {
                let entry = line
                    .occurrences
                    .iter()
                    .find(|(index, _)| *index == ended.index);
                let what = entry.map_or(String::new(), |(_, entry)| entry.label());
                // The failure that ended the run counts, although that run is not complete.
                let complete = complete || ended.ended_run;
                first = first.and(judged(ended.result, &format!("fault '{what}'"), complete));
                self.records.extend(ended.record);
            }
        }
        self.records.sort_by_key(|record| record.index);
        first
    }
}

fn occurrence_of(entry: &FaultEntry) -> Option<FaultOccurrence> {
    let Occurrence { number, count } = entry.common.occurrence?;
    let fault = entry.name();
    Some(FaultOccurrence {
        fault,
        number,
        count,
    })
}

/// The consequence of a fault's failure for its run; an effect that was not seen is no error unless the run is
/// `complete`.
fn judged(result: Result<(), Failure>, what: &str, complete: bool) -> Result<(), HookError> {
    match result {
        Ok(()) => Ok(()),
        Err(Failure::Unseen(_)) if !complete => Ok(()),
        Err(failure) => {
            let error = HookError::new(failure.reason(), what);
            Err(match failure {
                Failure::Unseen(why) => error.because(why),
                Failure::Refused(why) | Failure::Left(why) => error.because(why),
            })
        }
    }
}

impl RunHook for FaultSchedule {
    fn begin(&mut self, run: &RunInfo, hub: &Arc<Hub>) -> Result<(), HookError> {
        (self.series, self.records, self.failed) = Default::default();
        // Repair arrays from which a fault of the previous run removed a member.
        for (controls, lun) in self
            .lines
            .iter()
            .filter_map(|line| line.prepared.device.as_ref())
        {
            let whole = make_whole(controls.as_ref(), *lun);
            whole.map_err(|error| HookError::not_ready("before the run", error))?;
        }
        for (index, line) in self.lines.iter().enumerate() {
            if !line.points.contains(&run.point) {
                continue;
            }
            let not_ready = |error| HookError::not_ready(format!("fault '{}'", line.name()), error);
            let mut occurrences = Vec::with_capacity(line.occurrences.len());
            for (index, entry) in &line.occurrences {
                occurrences.push(PlannedOccurrence {
                    index: *index,
                    entry: entry.clone(),
                    driver: (line.prepared.make)().map_err(not_ready)?,
                });
            }
            let (signals, inbox) = sync_channel(2);
            let (hub, failed) = (Arc::clone(hub), Arc::clone(&self.failed));
            let (ready, is_ready) = sync_channel(1);
            let thread = std::thread::Builder::new()
                .name(format!("fault-{index}"))
                .spawn(move || follow(occurrences, &hub, Signals::new(inbox), &ready, &failed))
                .map_err(|error| {
                    HookError::not_ready_here("cannot start a thread for a fault", error)
                })?;
            self.threads.push((index, (signals, thread)));
            // A sticky fault is in effect before the first request.
            if is_ready.recv().is_err() && self.has_failed() {
                return self.join(false);
            }
        }
        Ok(())
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    fn starts(&mut self, start: Nanos, ramp_up: Duration) {
        for (_, (signals, _)) in &self.threads {
            let _ = signals.send(Signal::Starts(start.after(ramp_up)));
        }
    }

    fn interval(&mut self, interval: &Interval) {
        self.series.push(interval);
    }

    fn end(&mut self, complete: bool) -> Result<(), HookError> {
        self.join(complete)
    }

    fn sum_up(&mut self, run: &mut RunSummary, outcome: &Outcome) {
        let series = std::mem::take(&mut self.series).of(outcome);
        run.faults = FaultSummary::of(&self.records, outcome.start, outcome.end, &series);
        let all = || self.lines.iter().flat_map(|line| &line.occurrences);
        for fault in &mut run.faults {
            let planned = all().find(|(index, _)| *index == fault.index);
            fault.occurrence = planned.and_then(|(_, entry)| occurrence_of(entry));
        }
        run.phases = FaultSummary::phases(&run.faults, &series);
    }
}

impl Drop for FaultSchedule {
    fn drop(&mut self) {
        let _ = self.join(false);
    }
}
