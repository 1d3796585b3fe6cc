//! The faults of an experiment on the clock of its runs: each is put in place at its time, shown to be
//! there, taken away and shown to be gone, by a thread of its own. A [`crate::study::Study`] has it
//! go along with every run.
//!
//! The rule: a fault that was not seen makes the run void, whatever the reason: a measurement of
//! trouble that was not there is worse than none. Whatever ends a run, its faults end with it.

mod member;
mod process;
mod storage;

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_block::layers::fault::{Fault as Words, FaultBackend, FaultSwitch};
use brunt_block::{Backend, Handle};
use brunt_core::{Clock, Nanos};
use brunt_lab::Proof;
use brunt_lab::faults::{CpuHog, MemoryHog};

use crate::control::{Away, Controls, Local, Order as Ask};
use crate::experiment::{Experiment, FaultEntry};
use crate::lab::Standing;
use crate::observe::{Companion, Event, FaultGap, FaultRecord, Hub, RunInfo};
use crate::role::Role;
use member::MemberFault;
use process::ProcessFault;
use storage::StorageFault;

/// How often a fault is looked for that does not show yet.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How often a fault is asked whether it is over by itself.
const OVER_LOOK: Duration = Duration::from_millis(20);

/// What the time line asks of a fault: as [`brunt_lab::Fault`], but it is put in place without waiting,
/// because some are shown only by the requests of the run. Taken away when dropped, too.
pub(crate) trait Trouble: Send {
    /// What it is, for a report.
    fn describe(&self) -> String;
    /// Puts it in place; when. `None` while its place is not there (the target's process was killed, or
    /// stands still): to be tried again.
    fn put(&mut self) -> Result<Option<Nanos>, String>;
    /// That it shows, if it does by now.
    fn look(&mut self) -> Result<Option<Proof>, String>;
    /// What is seen while it does not show.
    fn seen_instead(&self) -> String;
    /// Whether it ended by itself.
    fn is_over(&self) -> bool {
        false
    }
    /// Sees to it that it is still there: puts it in place again when that was started anew.
    fn tend(&mut self) -> Result<(), String> {
        Ok(())
    }
    /// When it was not there meanwhile, as far as that is over.
    fn gaps(&self) -> &[FaultGap] {
        &[]
    }
    /// Takes it away, and waits until it is gone.
    fn take_away(&mut self) -> Result<Proof, String>;
}

/// Trouble of the lab: shown as soon as it is in place.
struct LabTrouble {
    fault: Box<dyn brunt_lab::Fault>,
    proof: Option<Proof>,
}

impl Trouble for LabTrouble {
    fn describe(&self) -> String {
        self.fault.describe()
    }

    fn put(&mut self) -> Result<Option<Nanos>, String> {
        let proof = self.fault.inject(&Clock::Monotonic).map_err(|error| error.to_string())?;
        Ok(Some(self.proof.insert(proof).at))
    }

    fn look(&mut self) -> Result<Option<Proof>, String> {
        Ok(self.proof.clone())
    }

    fn seen_instead(&self) -> String {
        "nothing".to_string()
    }

    fn take_away(&mut self) -> Result<Proof, String> {
        self.fault.remove(&Clock::Monotonic).map_err(|error| error.to_string())
    }
}

/// Makes a fault ready for a run.
type Make = Box<dyn Fn() -> Result<Box<dyn Trouble>, String> + Send>;

/// One line of the time line.
struct Line {
    entry: FaultEntry,
    /// Points of the experiment (by index) against its target.
    points: Vec<u32>,
    make: Make,
    /// Who drives the layers of its device, and its LUN.
    controls: Option<Driver>,
}

/// Who drives the layers of a device, and its LUN.
type Driver = (Arc<dyn Controls>, u16);

/// The faults of an experiment. See the module.
pub struct TimeLine {
    lines: Vec<Line>,
    log: Arc<RunLog>,
    threads: Vec<Running>,
}

/// A fault's thread, and how to tell it something.
type Running = (SyncSender<Order>, JoinHandle<Result<(), String>>);

/// What a study and its time line tell each other about the run under way.
#[derive(Default)]
pub(crate) struct RunLog(Mutex<LogInner>);

#[derive(Default)]
struct LogInner {
    records: Vec<FaultRecord>,
    /// Whether the run went to its end. Of one that was stopped nobody asks where its faults were.
    complete: bool,
}

impl RunLog {
    /// The faults of the last run.
    pub(crate) fn take(&self) -> Vec<FaultRecord> {
        let mut records = std::mem::take(&mut self.lock().records);
        records.sort_by_key(|record| record.index);
        records
    }

    /// To be said before the companions end.
    pub(crate) fn run_was_complete(&self, complete: bool) {
        self.lock().complete = complete;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LogInner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the thread of a fault is told.
enum Order {
    /// Measuring begins at this time.
    Starts(Nanos),
    /// The run is over, since then.
    Ends(Nanos),
}

impl TimeLine {
    /// Finds what the experiment's faults are about; `roles` are the targets that it serves itself, `lab`
    /// its hosts and links. A device of this process that storage faults need a layer on gets one.
    ///
    /// # Errors
    /// A fault names a layer that is not there, or none where there are several.
    pub fn new(
        experiment: &Experiment,
        targets: &mut BTreeMap<String, Arc<dyn Backend>>,
        roles: &BTreeMap<String, Arc<Role>>,
        lab: Option<&Standing>,
    ) -> Result<TimeLine, String> {
        let points = experiment.points();
        let mut lines = Vec::new();
        for entry in &experiment.fault {
            let (make, controls) = make(entry, experiment, targets, roles, lab)
                .map_err(|what| format!("fault '{}': {what}", entry.label()))?;
            let everywhere = entry.target.is_empty();
            let meant =
                points.iter().enumerate().filter(|(_, point)| everywhere || point.target == entry.target);
            let points = meant.map(|(index, _)| index as u32).collect();
            lines.push(Line { entry: entry.clone(), points, make, controls });
        }
        Ok(TimeLine { lines, log: Arc::default(), threads: Vec::new() })
    }

    pub(crate) fn log(&self) -> Arc<RunLog> {
        Arc::clone(&self.log)
    }
}

fn make(
    entry: &FaultEntry,
    experiment: &Experiment,
    targets: &mut BTreeMap<String, Arc<dyn Backend>>,
    roles: &BTreeMap<String, Arc<Role>>,
    lab_of: Option<&Standing>,
) -> Result<(Make, Option<Driver>), String> {
    let role = roles.get(&entry.target).cloned();
    let lab = |fault: Box<dyn brunt_lab::Fault>| {
        Ok(Box::new(LabTrouble { fault, proof: None }) as Box<dyn Trouble>)
    };
    let served = || role.clone().ok_or("only a target that the experiment serves has a process");
    let mut driver = None;
    let make: Make = match entry.kind() {
        "cpu" => {
            let share = entry.cpu.unwrap_or_default();
            let named = entry.cores.clone();
            Box::new(move || {
                let cores = match &role {
                    _ if !named.is_empty() => named.clone(),
                    Some(role) => role.cores().map_err(|error| format!("the target's cores: {error}"))?,
                    None => (0..std::thread::available_parallelism().map_or(1, usize::from)).collect(),
                };
                if let Some(role) = &role {
                    role.pin(&cores)
                        .map_err(|error| format!("the target cannot be kept on {cores:?}: {error}"))?;
                }
                lab(Box::new(CpuHog::new(share, &cores)))
            })
        }
        "memory" => {
            let bytes = entry.memory.map_or(0, |size| size.0);
            Box::new(move || lab(Box::new(MemoryHog::new(bytes))))
        }
        "link" => {
            let name = entry.link.clone().unwrap_or_default();
            let set = entry.set.clone().unwrap_or_default();
            let standing = lab_of.cloned().ok_or("there is no lab")?;
            Box::new(move || {
                let lab_now = standing.lab();
                // Laid over what the run has, which a sweep may have changed.
                let mut settings = lab_now.settings(&name).map_err(|error| error.to_string())?;
                settings.iter_mut().for_each(|settings| set.lay_over(settings));
                let fault = lab_now.link_fault(&name, settings).map_err(|error| error.to_string())?;
                lab(Box::new(fault))
            })
        }
        kind @ ("freeze" | "kill") => {
            let role = served()?;
            let away = if kind == "kill" { Away::Dead } else { Away::Frozen };
            Box::new(move || Ok(Box::new(ProcessFault::new(Arc::clone(&role), away))))
        }
        kind => {
            let lun = experiment.targets.get(&entry.target).and_then(|target| target.lun).unwrap_or(0);
            let (layer, is_storage) = (entry.layer.clone(), kind == "storage");
            let controls: Arc<dyn Controls> = match role {
                Some(role) => role,
                None => {
                    let backend = targets.get_mut(&entry.target).ok_or("its target is not open")?;
                    let bare =
                        !backend.handles().iter().any(|(_, handle)| matches!(handle, Handle::Faults(_)));
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
                let fault = Words::parse(words).map_err(|error| error.to_string())?;
                let probe = Ask::Look { lun, layer: layer.clone(), id: u64::MAX };
                if let Err(why) = controls.must(&probe)
                    && !why.starts_with("no fault")
                {
                    return Err(why);
                }
                Box::new(move || {
                    let (controls, layer, fault) = (Arc::clone(&controls), layer.clone(), fault.clone());
                    Ok(Box::new(StorageFault::new(controls, lun, layer, fault)))
                })
            } else {
                let member = entry.member.unwrap_or_default();
                controls.must(&Ask::Replace { lun, layer: layer.clone() })?;
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

impl Companion for TimeLine {
    fn begin(&mut self, run: &RunInfo, hub: &Arc<Hub>) -> Result<(), String> {
        self.log.take();
        // What a fault of the run before has put out of an array is replaced.
        for (controls, lun) in self.lines.iter().filter_map(|line| line.controls.as_ref()) {
            member::make_whole(controls.as_ref(), *lun).map_err(|what| format!("before the run: {what}"))?;
        }
        for (index, line) in self.lines.iter().enumerate() {
            if !line.points.contains(&run.point) {
                continue;
            }
            let entry = line.entry.clone();
            let (orders, inbox) = sync_channel(2);
            let (hub, log) = (Arc::clone(hub), Arc::clone(&self.log));
            let trouble = (line.make)().map_err(|what| format!("fault '{}': {what}", line.entry.label()))?;
            let orders_in = Orders { inbox, over: None };
            let actor = Actor { index: index as u32, entry, trouble, hub, log, orders: orders_in };
            let (ready, is_ready) = sync_channel(1);
            let thread = std::thread::Builder::new()
                .name(format!("fault-{index}"))
                .spawn(move || actor.run(&ready))
                .map_err(|error| format!("no thread for a fault: {error}"))?;
            self.threads.push((orders, thread));
            // A sticky fault is there before the first request. A thread that has failed says so at the end.
            let _ = is_ready.recv();
        }
        Ok(())
    }

    fn starts(&mut self, start: Nanos, ramp_up: Duration) {
        for (orders, _) in &self.threads {
            let _ = orders.send(Order::Starts(start.after(ramp_up)));
        }
    }

    fn end(&mut self) -> Result<(), String> {
        let over = Clock::Monotonic.now();
        for (orders, _) in &self.threads {
            let _ = orders.send(Order::Ends(over));
        }
        let mut trouble = Ok(());
        for (_, thread) in self.threads.drain(..) {
            let ended = thread.join().unwrap_or_else(|_| Err("a fault's thread panicked".to_string()));
            trouble = trouble.and(ended);
        }
        trouble
    }
}

impl Drop for TimeLine {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// One fault through one run.
struct Actor {
    index: u32,
    entry: FaultEntry,
    trouble: Box<dyn Trouble>,
    hub: Arc<Hub>,
    log: Arc<RunLog>,
    orders: Orders,
}

/// What the study says, and how to wait for it.
struct Orders {
    inbox: Receiver<Order>,
    /// Since when the run is over, as far as it was heard.
    over: Option<Nanos>,
}

impl Orders {
    /// When measuring begins; `None` if the run ends without.
    fn start(&mut self) -> Option<Nanos> {
        match self.inbox.recv() {
            Ok(Order::Starts(start)) => Some(start),
            Ok(Order::Ends(at)) => {
                self.over = Some(at);
                None
            }
            Err(_) => {
                self.over = Some(Clock::Monotonic.now());
                None
            }
        }
    }

    /// Whether the run was over at that time; it has passed.
    fn over_at(&mut self, time: Nanos) -> bool {
        while let Ok(order) = self.inbox.try_recv() {
            if let Order::Ends(at) = order {
                self.over = Some(at);
            }
        }
        self.over.is_some_and(|over| over <= time)
    }

    /// Waits until a time, or the end of the run; whether that came first.
    fn over_before(&mut self, until: Nanos) -> bool {
        while self.over.is_none() {
            let now = Clock::Monotonic.now();
            let left = until.since(now);
            if left.is_zero() {
                return false;
            }
            match self.inbox.recv_timeout(left) {
                Ok(Order::Starts(_)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Order::Ends(at)) => self.over = Some(at),
                Err(RecvTimeoutError::Disconnected) => self.over = Some(now),
            }
        }
        true
    }
}

impl Actor {
    fn run(mut self, ready: &SyncSender<()>) -> Result<(), String> {
        let result = self.follow(ready);
        // Before the end nobody knows whether the run is worth complaining about.
        self.orders.over_before(Nanos::MAX);
        match result {
            Err(Failure::NotShown(_)) if !self.log.lock().complete => Ok(()),
            Err(Failure::NotShown(what) | Failure::Failed(what)) => {
                Err(format!("fault '{}': {what}", self.entry.label()))
            }
            Ok(()) => Ok(()),
        }
    }

    fn follow(&mut self, ready: &SyncSender<()>) -> Result<(), Failure> {
        let (begin, end) = self.entry.times();
        let mut put_at = None;
        if begin.is_none() {
            put_at = self.trouble.put().map_err(Failure::Failed)?;
        }
        let _ = ready.send(());
        let never = |what: &str| Err(Failure::NotShown(format!("{what}; the run is void")));
        let Some(start) = self.orders.start() else { return never("the run did not start") };
        if let Some(begin) = begin
            && self.orders.over_before(start.after(begin))
        {
            return never("the run was over before it began");
        }
        let until = end.map_or(Nanos::MAX, |end| start.after(end));
        let lasts = end.map(|end| end.saturating_sub(begin.unwrap_or_default()));
        let shown = loop {
            if put_at.is_none() {
                put_at = self.trouble.put().map_err(Failure::Failed)?;
            }
            match if put_at.is_some() { self.trouble.look() } else { Ok(None) } {
                Ok(Some(proof)) => break proof,
                Ok(None)
                    if self.orders.over.is_some()
                        || Clock::Monotonic.now() >= given_up_at(until, put_at, lasts) =>
                {
                    if put_at.is_none() {
                        return never("it could not be put in place: its target was not there");
                    }
                    let seen = self.trouble.seen_instead();
                    let _ = self.trouble.take_away();
                    return Err(Failure::NotShown(format!("it did not show: {seen}; the run is void")));
                }
                Ok(None) => {
                    self.orders.over_before(Clock::Monotonic.now().after(LOOK_EVERY));
                }
                Err(what) => {
                    let _ = self.trouble.take_away();
                    return Err(Failure::Failed(what));
                }
            }
        };
        // Trouble of the lab may take a while to be put in place: until there are no requests any more.
        if self.orders.over_at(shown.at) {
            let _ = self.trouble.take_away();
            return never("the run was over before it was there");
        }
        let mut record = FaultRecord {
            index: self.index,
            name: self.entry.label(),
            kind: self.entry.kind(),
            place: self.entry.place(),
            what: match &self.entry.link {
                Some(link) => format!("link {link}: {}", self.entry.what()),
                None => self.trouble.describe(),
            },
            start: shown.at,
            shown: shown.seen,
            shown_by: shown.what,
            end: None,
            gone: None,
            gone_by: String::new(),
            gaps: Vec::new(),
        };
        self.hub.tell(&Event::Fault(&record));
        // Some troubles end by themselves (an array is whole again); most when it is time.
        while self.orders.over.is_none() && Clock::Monotonic.now() < until && !self.trouble.is_over() {
            self.orders.over_before(until.min(Clock::Monotonic.now().after(OVER_LOOK)));
            if let Err(what) = self.trouble.tend() {
                let _ = self.trouble.take_away();
                return Err(Failure::Failed(what));
            }
            if self.trouble.gaps().len() > record.gaps.len() {
                record.gaps = self.trouble.gaps().to_vec();
                self.hub.tell(&Event::Fault(&record));
            }
        }
        let gone = self.trouble.take_away();
        record.gaps = self.trouble.gaps().to_vec();
        if let Ok(proof) = &gone {
            (record.end, record.gone) = (Some(proof.at), Some(proof.seen));
            record.gone_by.clone_from(&proof.what);
        }
        self.hub.tell(&Event::Fault(&record));
        self.log.lock().records.push(record);
        gone.map(|_| ()).map_err(Failure::Failed)
    }
}

/// When a fault that does not show is given up. One that a busy machine put in place late has its whole time to
/// show, as one has that was in time; when it was there is in its record.
fn given_up_at(until: Nanos, put_at: Option<Nanos>, lasts: Option<Duration>) -> Nanos {
    match (put_at, lasts) {
        (Some(at), Some(lasts)) => until.max(at.after(lasts)),
        _ => until,
    }
}

/// Why a run is void.
enum Failure {
    /// The fault was not seen. Excused if the run was cut short.
    NotShown(String),
    /// It could not be put in place or taken away.
    Failed(String),
}

#[cfg(test)]
mod tests;
