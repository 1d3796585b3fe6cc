//! The faults of an experiment on the clock of its runs: each is put in place at its time, shown to be
//! there, taken away and shown to be gone, by a thread of its own. A [`crate::study::Study`] has it
//! go along with every run.
//!
//! The rule: a fault that was not seen makes the run void, whatever the reason: a measurement of
//! trouble that was not there is worse than none. Whatever ends a run, its faults end with it.

mod storage;

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_block::layers::fault::{Fault as Words, FaultBackend, FaultSwitch};
use brunt_block::{Backend, Handle, handle};
use brunt_core::{Clock, Nanos};
use brunt_lab::Proof;

use crate::experiment::{Experiment, FaultEntry};
use crate::observe::{Companion, Event, FaultRecord, Hub, RunInfo};
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
    /// Puts it in place; when.
    fn put(&mut self) -> Result<Nanos, String>;
    /// That it shows, if it does by now.
    fn look(&mut self) -> Result<Option<Proof>, String>;
    /// What is seen while it does not show.
    fn seen_instead(&self) -> String;
    /// Whether it ended by itself.
    fn is_over(&self) -> bool {
        false
    }
    /// Takes it away, and waits until it is gone.
    fn take_away(&mut self) -> Result<Proof, String>;
}

/// Makes a fault ready for a run.
type Make = Box<dyn Fn() -> Box<dyn Trouble> + Send>;

/// One line of the time line.
struct Line {
    entry: FaultEntry,
    /// Points of the experiment (by index) against its target.
    points: Vec<u32>,
    make: Make,
}

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
    /// The run is over.
    Ends,
}

impl TimeLine {
    /// Finds what the experiment's faults are about. A target that storage faults need a layer on gets
    /// one.
    ///
    /// # Errors
    /// A fault names a layer that is not there, or none where there are several.
    pub fn new(
        experiment: &Experiment,
        targets: &mut BTreeMap<String, Arc<dyn Backend>>,
    ) -> Result<TimeLine, String> {
        let points = experiment.points();
        let mut lines = Vec::new();
        for entry in &experiment.fault {
            let backend = targets.get_mut(&entry.target).ok_or("a fault's target is not open")?;
            let make = make(entry, backend).map_err(|what| format!("fault '{}': {what}", entry.label()))?;
            let meant = points.iter().enumerate().filter(|(_, point)| point.target == entry.target);
            let points = meant.map(|(index, _)| index as u32).collect();
            lines.push(Line { entry: entry.clone(), points, make });
        }
        Ok(TimeLine { lines, log: Arc::default(), threads: Vec::new() })
    }

    pub(crate) fn log(&self) -> Arc<RunLog> {
        Arc::clone(&self.log)
    }
}

fn make(entry: &FaultEntry, backend: &mut Arc<dyn Backend>) -> Result<Make, String> {
    let words = entry.storage.as_deref().unwrap_or_default();
    let fault = Words::parse(words).map_err(|error| error.to_string())?;
    let switch = switch_of(entry, backend)?;
    Ok(Box::new(move || Box::new(StorageFault::new(Arc::clone(&switch), fault.clone()))))
}

/// The switch of the layer that a fault is for; a new layer on top when there is none at all.
fn switch_of(entry: &FaultEntry, backend: &mut Arc<dyn Backend>) -> Result<Arc<FaultSwitch>, String> {
    let handles = backend.handles();
    let layers: Vec<(&str, &Arc<FaultSwitch>)> = handles
        .iter()
        .filter_map(|(name, handle)| match handle {
            Handle::Faults(switch) => Some((name.as_str(), switch)),
            _ => None,
        })
        .collect();
    let names = || layers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    match (&entry.layer, layers.as_slice()) {
        (None, [(_, switch)]) => Ok(Arc::clone(switch)),
        (None, []) => {
            let switch = FaultSwitch::new("fault");
            let inner = Arc::clone(backend);
            *backend = Arc::new(FaultBackend::new(inner, Arc::clone(&switch), Clock::Monotonic));
            Ok(switch)
        }
        (None, _) => {
            Err(format!("target {} has several fault layers; write layer = one of {}", entry.target, names()))
        }
        (Some(layer), _) => match handle::find(&handles, layer) {
            Some(Handle::Faults(switch)) => Ok(Arc::clone(switch)),
            _ if layers.is_empty() => Err(format!(
                "target {} has no fault layer; add ?fault=off;name={layer} to its URL",
                entry.target
            )),
            _ => Err(format!("target {} has no fault layer '{layer}'; there are {}", entry.target, names())),
        },
    }
}

impl Companion for TimeLine {
    fn begin(&mut self, run: &RunInfo, hub: &Arc<Hub>) -> Result<(), String> {
        self.log.take();
        for (index, line) in self.lines.iter().enumerate() {
            if !line.points.contains(&run.point) {
                continue;
            }
            let entry = line.entry.clone();
            let (orders, inbox) = sync_channel(2);
            let (hub, log) = (Arc::clone(hub), Arc::clone(&self.log));
            let (trouble, orders_in) = ((line.make)(), Orders { inbox, over: false });
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
        for (orders, _) in &self.threads {
            let _ = orders.send(Order::Ends);
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
    over: bool,
}

impl Orders {
    /// When measuring begins; `None` if the run ends without.
    fn start(&mut self) -> Option<Nanos> {
        match self.inbox.recv() {
            Ok(Order::Starts(start)) => Some(start),
            Ok(Order::Ends) | Err(_) => {
                self.over = true;
                None
            }
        }
    }

    /// Waits until a time, or the end of the run; whether that came first.
    fn over_before(&mut self, until: Nanos) -> bool {
        while !self.over {
            let left = until.since(Clock::Monotonic.now());
            if left.is_zero() {
                return false;
            }
            match self.inbox.recv_timeout(left) {
                Ok(Order::Starts(_)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Order::Ends) | Err(RecvTimeoutError::Disconnected) => self.over = true,
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
            put_at = Some(self.trouble.put().map_err(Failure::Failed)?);
        }
        let _ = ready.send(());
        let never = |what: &str| Err(Failure::NotShown(format!("{what}; the run is void")));
        let Some(start) = self.orders.start() else { return never("the run did not start") };
        if let Some(begin) = begin {
            if self.orders.over_before(start.after(begin)) {
                return never("the run was over before it began");
            }
            put_at = Some(self.trouble.put().map_err(Failure::Failed)?);
        }
        let until = end.map_or(Nanos::MAX, |end| start.after(end));
        let shown = loop {
            match self.trouble.look() {
                Ok(Some(proof)) => break proof,
                Ok(None) if self.orders.over || Clock::Monotonic.now() >= until => {
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
        let mut record = FaultRecord {
            index: self.index,
            name: self.entry.label(),
            kind: self.entry.kind(),
            place: self.entry.place(),
            what: self.trouble.describe(),
            start: put_at.expect("it was put in place"),
            shown: shown.seen,
            shown_by: shown.what,
            end: None,
            gone: None,
            gone_by: String::new(),
        };
        self.hub.tell(&Event::Fault(&record));
        // Some troubles end by themselves (an array is whole again); most when it is time.
        while !self.orders.over && Clock::Monotonic.now() < until && !self.trouble.is_over() {
            self.orders.over_before(until.min(Clock::Monotonic.now().after(OVER_LOOK)));
        }
        let gone = self.trouble.take_away();
        if let Ok(proof) = &gone {
            (record.end, record.gone) = (Some(proof.at), Some(proof.seen));
            record.gone_by.clone_from(&proof.what);
        }
        self.hub.tell(&Event::Fault(&record));
        self.log.lock().records.push(record);
        gone.map(|_| ()).map_err(Failure::Failed)
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
