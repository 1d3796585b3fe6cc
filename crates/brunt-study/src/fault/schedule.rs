//! The faults of an experiment on the clock of its runs: each is put in place at its time, shown to be
//! there, taken away and shown to be gone, by an actor of its own. A [`crate::study::Study`] has it as the
//! last of its hooks.
//!
//! The rule: a fault that was not seen makes the run void, whatever the reason: a measurement of
//! trouble that was not there is worse than none. Whatever ends a run, its faults end with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_block::Backend;
use brunt_block::layers::fault::{Fault as Words, FaultBackend, FaultSwitch};
use brunt_core::{Clock, Nanos};
use brunt_lab::faults::{CpuHog, MemoryHog};
use brunt_result::{Interval, Outcome};

use super::actor::{Actor, Ended, Failure, Signal, Signals};
use super::driver::{DriverError, FaultDriver, LabDriver};
use super::member::{self, MemberFault};
use super::process::ProcessFault;
use super::series::Series;
use super::storage::StorageFault;
use crate::control::{Absence, Command, Controls, Local, Reason};
use crate::experiment::{Experiment, FaultEntry};
use crate::hook::{HookError, HookErrorKind, RunHook};
use crate::lab::BuiltLab;
use crate::observe::{FaultRecord, Hub, RunInfo};
use crate::role::Role;
use crate::summary::{FaultSummary, RunSummary};

/// Makes a fault ready for a run.
type Make = Box<dyn Fn() -> Result<Box<dyn FaultDriver>, DriverError> + Send>;

/// Who drives the layers of a device, and its LUN.
type Driven = (Arc<dyn Controls>, u16);

/// A fault's thread, and how to tell it something.
type Running = (SyncSender<Signal>, JoinHandle<Ended>);

/// A fault that no run of the experiment can have.
#[derive(Debug, thiserror::Error)]
#[error("fault '{fault}': {source}")]
pub struct ScheduleError {
    /// What reports call it.
    pub fault: String,
    /// Why not.
    pub source: DriverError,
}

/// One fault of the schedule.
struct Line {
    entry: FaultEntry,
    /// Points of the experiment (by index) against its target.
    points: Vec<u32>,
    make: Make,
    /// Who drives the layers of its device, and its LUN.
    driven: Option<Driven>,
}

/// The faults of an experiment. See the module.
pub struct FaultSchedule {
    lines: Vec<Line>,
    threads: Vec<(u32, Running)>,
    /// Of the run under way.
    series: Series,
    /// Of the run that ended.
    records: Vec<FaultRecord>,
}

impl FaultSchedule {
    /// Finds what the experiment's faults are about; `roles` are the targets that it serves itself, `lab`
    /// its hosts and links. A device of this process that storage faults need a layer on gets one.
    ///
    /// # Errors
    /// A fault names a layer that is not there, or none where there are several.
    pub fn new(
        experiment: &Experiment,
        targets: &mut BTreeMap<String, Arc<dyn Backend>>,
        roles: &BTreeMap<String, Arc<Role>>,
        lab: Option<&BuiltLab>,
    ) -> Result<FaultSchedule, ScheduleError> {
        let points = experiment.points();
        let mut lines = Vec::new();
        for entry in &experiment.fault {
            let (make, driven) = make(entry, experiment, targets, roles, lab)
                .map_err(|source| ScheduleError { fault: entry.label(), source })?;
            let everywhere = entry.target.is_empty();
            let meant =
                points.iter().enumerate().filter(|(_, point)| everywhere || point.target == entry.target);
            let points = meant.map(|(index, _)| index as u32).collect();
            lines.push(Line { entry: entry.clone(), points, make, driven });
        }
        Ok(FaultSchedule { lines, threads: Vec::new(), series: Series::default(), records: Vec::new() })
    }

    /// Ends the actors of the run under way; the first failure that counts.
    fn join(&mut self, complete: bool) -> Result<(), HookError> {
        let over = Clock::Monotonic.now();
        for (_, (signals, _)) in &self.threads {
            let _ = signals.send(Signal::Ends(over));
        }
        let mut first = Ok(());
        for (index, (_, thread)) in std::mem::take(&mut self.threads) {
            let what = format!("fault '{}'", self.lines[index as usize].entry.label());
            let failed = |kind| HookError::new(kind, what.clone());
            let result = match thread.join() {
                Err(_) => {
                    Err(HookError::new(HookErrorKind::NotShown, format!("{what}: its thread panicked")))
                }
                Ok((record, result)) => {
                    self.records.extend(record);
                    match result {
                        Ok(()) => Ok(()),
                        Err(Failure::Unseen(_)) if !complete => Ok(()),
                        Err(Failure::Unseen(why)) => {
                            Err(HookError::new(HookErrorKind::NotShown, format!("{what}: {why}")))
                        }
                        Err(Failure::Refused(error)) => Err(failed(HookErrorKind::NotShown).because(error)),
                        Err(Failure::Left(error)) => Err(failed(HookErrorKind::NotUndone).because(error)),
                    }
                }
            };
            first = first.and(result);
        }
        self.records.sort_by_key(|record| record.index);
        first
    }
}

impl RunHook for FaultSchedule {
    fn begin(&mut self, run: &RunInfo, hub: &Arc<Hub>) -> Result<(), HookError> {
        (self.series, self.records) = Default::default();
        // What a fault of the run before has put out of an array is replaced.
        for (controls, lun) in self.lines.iter().filter_map(|line| line.driven.as_ref()) {
            let whole = member::make_whole(controls.as_ref(), *lun);
            whole.map_err(|error| HookError::not_ready("before the run", error))?;
        }
        for (index, line) in self.lines.iter().enumerate() {
            if !line.points.contains(&run.point) {
                continue;
            }
            let not_ready = |error| HookError::not_ready(format!("fault '{}'", line.entry.label()), error);
            let driver = (line.make)().map_err(not_ready)?;
            let (signals, inbox) = sync_channel(2);
            let (index, hub, entry) = (index as u32, Arc::clone(hub), line.entry.clone());
            let actor = Actor { index, entry, driver, hub, signals: Signals::new(inbox) };
            let (ready, is_ready) = sync_channel(1);
            let thread = std::thread::Builder::new()
                .name(format!("fault-{index}"))
                .spawn(move || actor.run(&ready))
                .map_err(|error| HookError::not_ready("no thread for a fault", error))?;
            self.threads.push((index, (signals, thread)));
            // A sticky fault is there before the first request. A thread that has failed says so at the end.
            let _ = is_ready.recv();
        }
        Ok(())
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
        let series = self.series.of(outcome);
        run.faults = FaultSummary::of(&self.records, outcome.start, outcome.end, &series);
    }
}

impl Drop for FaultSchedule {
    fn drop(&mut self) {
        let _ = self.join(false);
    }
}

fn make(
    entry: &FaultEntry,
    experiment: &Experiment,
    targets: &mut BTreeMap<String, Arc<dyn Backend>>,
    roles: &BTreeMap<String, Arc<Role>>,
    lab_of: Option<&BuiltLab>,
) -> Result<(Make, Option<Driven>), DriverError> {
    let role = roles.get(&entry.target).cloned();
    let unfit = |what: &str| DriverError::Unfit(what.to_string());
    let served =
        || role.clone().ok_or_else(|| unfit("only a target that the experiment serves has a process"));
    let mut driver = None;
    let make: Make = match entry.kind() {
        "cpu" => {
            let share = entry.cpu.unwrap_or_default();
            let named = entry.cores.clone();
            Box::new(move || {
                let cores = match &role {
                    _ if !named.is_empty() => named.clone(),
                    Some(role) => role.cores().map_err(|source| DriverError::System {
                        what: "the target's cores".to_string(),
                        source,
                    })?,
                    None => (0..std::thread::available_parallelism().map_or(1, usize::from)).collect(),
                };
                if let Some(role) = &role {
                    role.pin(&cores).map_err(|source| {
                        let what = format!("the target cannot be kept on {cores:?}");
                        DriverError::System { what, source }
                    })?;
                }
                Ok(LabDriver::boxed(CpuHog::new(share, &cores)))
            })
        }
        "memory" => {
            let bytes = entry.memory.map_or(0, |size| size.0);
            Box::new(move || Ok(LabDriver::boxed(MemoryHog::new(bytes))))
        }
        "link" => {
            let name = entry.link.clone().unwrap_or_default();
            let set = entry.set.clone().unwrap_or_default();
            let lab = lab_of.cloned().ok_or_else(|| unfit("there is no lab"))?;
            Box::new(move || {
                let lab = lab.lab();
                // Laid over what the run has, which a sweep may have changed.
                let mut settings = lab.settings(&name)?;
                settings.iter_mut().for_each(|settings| set.lay_over(settings));
                let fault = lab.link_fault(&name, settings)?;
                Ok(LabDriver::boxed(fault))
            })
        }
        kind @ ("freeze" | "kill") => {
            let role = served()?;
            let away = if kind == "kill" { Absence::Dead } else { Absence::Frozen };
            Box::new(move || Ok(Box::new(ProcessFault::new(Arc::clone(&role), away))))
        }
        kind => {
            let lun = experiment.targets.get(&entry.target).and_then(|target| target.lun).unwrap_or(0);
            let (layer, is_storage) = (entry.layer.clone(), kind == "storage");
            let controls: Arc<dyn Controls> = match role {
                Some(role) => role,
                None => {
                    let backend =
                        targets.get_mut(&entry.target).ok_or_else(|| unfit("its target is not open"))?;
                    let bare = !backend
                        .handles()
                        .iter()
                        .any(|(_, part)| part.downcast_ref::<FaultSwitch>().is_some());
                    if is_storage && bare && layer.is_none() {
                        let (inner, switch) = (Arc::clone(backend), FaultSwitch::new("fault"));
                        *backend = Arc::new(FaultBackend::new(inner, switch, Clock::Monotonic));
                    }
                    Arc::new(Local::new([(lun, backend.handles())]))
                }
            };
            driver = Some((Arc::clone(&controls), lun));
            // A layer that is not there is said before the first run.
            if is_storage {
                let words = entry.storage.as_deref().unwrap_or_default();
                let fault = Words::parse(words)?;
                let probe = Command::Look { lun, layer: layer.clone(), id: u64::MAX };
                if let Err(error) = controls.must(&probe)
                    && error.reason() != Some(Reason::NotArmed)
                {
                    return Err(error.into());
                }
                Box::new(move || {
                    let (controls, layer, fault) = (Arc::clone(&controls), layer.clone(), fault.clone());
                    Ok(Box::new(StorageFault::new(controls, lun, layer, fault)))
                })
            } else {
                let member = entry.member.unwrap_or_default();
                controls.must(&Command::Replace { lun, layer: layer.clone() })?;
                Box::new(move || {
                    let (controls, layer) = (Arc::clone(&controls), layer.clone());
                    Ok(Box::new(MemberFault {
                        controls,
                        lun,
                        layer,
                        member,
                        failed: None,
                        rebuilds: 0,
                        degraded: 0,
                    }))
                })
            }
        }
    };
    Ok((make, driver))
}
