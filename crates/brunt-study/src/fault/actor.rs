//! The life of a fault in a run, on its own thread: injected at its time, proven, maintained, removed and
//! proven gone. The schedule starts an actor for each fault of a run and joins it at the run's end.
//!
//! The rule: a fault that could not be proven is a failure, whatever the reason; the schedule, which knows
//! how the run ended, decides whether it invalidates the run.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use brunt_core::{Clock, Nanos, Span};
use brunt_lab::Proof;
use brunt_result::void::VoidReason;

use super::driver::{DriverError, FaultDriver};
use super::entry::FaultEntry;
use crate::observe::{Event, FaultRecord, Hub};
use crate::written::written;

/// How often a fault is looked for that does not show yet.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How often a fault is asked whether it is over by itself.
const OVER_LOOK: Duration = Duration::from_millis(20);

/// Nobody is told to write less than this for a time that was too short.
const LONGER_LEAST: Duration = Duration::from_millis(100);

/// What the thread of a fault hears of its run.
pub(super) enum Signal {
    /// Measuring begins at this time.
    Starts(Nanos),
    /// The run is over, since then.
    Ends(Nanos),
}

/// Why a fault was not there as it was meant to be.
pub(super) enum Failure {
    /// It was not seen. Excused if the run was cut short.
    Unseen(Absent),
    /// It could not be put in place, or not be kept there.
    Refused(DriverError),
    /// It could not be taken away.
    Left(DriverError),
}

/// How a fault was not there, and what would have shown it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Absent {
    #[error("the run did not start; the run is invalid")]
    NotStarted,
    #[error(
        "the run ended before it started, after {}; write at = \"{}\", or make the run longer (stop = {{ time = \"{}\" }}); \
         the run is invalid",
        written(*.lasted),
        written(*.lasted / 2),
        written(*.begin * 2)
    )]
    TooLate { lasted: Duration, begin: Duration },
    #[error(
        "the run was over before it was there; make the run last {0} (stop = {{ time = \"{0}\" }}); the run is invalid",
        written(*.there * 2)
    )]
    AfterRun { there: Duration },
    #[error(
        "it could not be injected: its target was not running; make it last longer than that (for = \"{}\"); \
         the run is invalid",
        longer(*.lasts)
    )]
    TargetAway { lasts: Duration },
    #[error("it had no visible effect: {seen}; {advice}; the run is invalid")]
    Unseen { seen: String, advice: String },
}

impl Absent {
    pub fn reason(&self) -> VoidReason {
        match self {
            Absent::NotStarted => VoidReason::NotReady,
            Absent::TooLate { .. } => VoidReason::FaultTooLate,
            Absent::AfterRun { .. } => VoidReason::FaultAfterRun,
            Absent::TargetAway { .. } => VoidReason::FaultTargetAway,
            Absent::Unseen { .. } => VoidReason::FaultUnseen,
        }
    }
}

/// What came of a fault: its record as far as it was there, and whether all was as it was meant to be.
pub(super) type Ended = (Option<FaultRecord>, Result<(), Failure>);

/// See the module.
pub(super) struct Actor {
    /// Its place in the experiment's list, from 0.
    pub index: u32,
    pub entry: FaultEntry,
    pub driver: Box<dyn FaultDriver>,
    pub hub: Arc<Hub>,
    pub signals: Signals,
}

/// What the schedule says of the run, and how to wait for it.
pub(super) struct Signals {
    inbox: Receiver<Signal>,
    /// Since when the run is over, as far as it was heard.
    over: Option<Nanos>,
}

impl Signals {
    pub fn new(inbox: Receiver<Signal>) -> Signals {
        Signals { inbox, over: None }
    }

    /// When measuring begins; `None` if the run ends without.
    fn start(&mut self) -> Option<Nanos> {
        match self.inbox.recv() {
            Ok(Signal::Starts(start)) => Some(start),
            Ok(Signal::Ends(at)) => {
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
        while let Ok(signal) = self.inbox.try_recv() {
            if let Signal::Ends(at) = signal {
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
                Ok(Signal::Starts(_)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Signal::Ends(at)) => self.over = Some(at),
                Err(RecvTimeoutError::Disconnected) => self.over = Some(now),
            }
        }
        true
    }
}

impl Actor {
    /// Follows the run; a sticky fault was put in place when `ready` hears.
    pub fn run(mut self, ready: &SyncSender<()>) -> Ended {
        match self.follow(ready) {
            Err(failure) => (None, Err(failure)),
            Ok((record, gone)) => (Some(record), gone.map_err(Failure::Left)),
        }
    }

    /// The record of a fault that was there, and whether it went away; or why it was not there.
    fn follow(
        &mut self,
        ready: &SyncSender<()>,
    ) -> Result<(FaultRecord, Result<(), DriverError>), Failure> {
        let (begin, end) = self.entry.common.times();
        let mut put_at = None;
        if begin.is_none() {
            put_at = self.driver.put().map_err(Failure::Refused)?;
        }
        let _ = ready.send(());
        let Some(start) = self.signals.start() else {
            return Err(Failure::Unseen(Absent::NotStarted));
        };
        if let Some(begin) = begin
            && self.signals.over_before(start.after(begin))
        {
            return Err(self.too_short_for(start, begin));
        }
        let until = end.map_or(Nanos::MAX, |end| start.after(end));
        let lasts = end.map(|end| end.saturating_sub(begin.unwrap_or_default()));
        let shown = self.shown(put_at, until, lasts)?;
        let (until, there) = match self.entry.kind.as_kind().lasts_once_shown() {
            true => (
                lasts.map_or(until, |lasts| shown.seen.after(lasts)),
                shown.seen,
            ),
            false => (until, shown.at),
        };
        // A fault of the lab may take a while to be put in place: until there are no requests any more.
        if self.signals.over_at(there) {
            let _ = self.driver.take_away();
            return Err(Failure::Unseen(Absent::AfterRun {
                there: there.since(start),
            }));
        }
        let mut record = self.record(shown);
        self.hub.tell(&Event::Fault(Arc::new(record.clone())));
        self.keep(until, &mut record)?;
        let gone = self.driver.take_away();
        record.gaps = self.driver.gaps().to_vec();
        if let Ok(proof) = &gone {
            (record.end, record.gone) = (Some(proof.at), Some(proof.seen));
            record.gone_by.clone_from(&proof.what);
        }
        self.hub.tell(&Event::Fault(Arc::new(record.clone())));
        Ok((record, gone.map(drop)))
    }

    /// Puts it in place unless it is, and waits until it shows.
    fn shown(
        &mut self,
        mut put_at: Option<Nanos>,
        until: Nanos,
        lasts: Option<Duration>,
    ) -> Result<Proof, Failure> {
        loop {
            if put_at.is_none() {
                put_at = self.driver.put().map_err(Failure::Refused)?;
            }
            let seen = if put_at.is_some() {
                self.driver.look()
            } else {
                Ok(None)
            };
            let seen = seen.map_err(|error| {
                let _ = self.driver.take_away();
                Failure::Refused(error)
            })?;
            if let Some(proof) = seen {
                return Ok(proof);
            }
            let is_late = Clock::Monotonic.now() >= given_up_at(until, put_at, lasts);
            if self.signals.over.is_some() || is_late {
                let Some(put_at) = put_at else {
                    return Err(Failure::Unseen(Absent::TargetAway {
                        lasts: lasts.unwrap_or_default(),
                    }));
                };
                let (seen, looked) = (
                    self.driver.seen_instead(),
                    Clock::Monotonic.now().since(put_at),
                );
                let advice = self.driver.advice(looked).unwrap_or_else(|| {
                    format!("make it last longer (for = \"{}\")", longer(looked))
                });
                let _ = self.driver.take_away();
                return Err(Failure::Unseen(Absent::Unseen { seen, advice }));
            }
            self.signals
                .over_before(Clock::Monotonic.now().after(LOOK_EVERY));
        }
    }

    /// Sees to it that it is there until its time, or the run's, is over. Some end by themselves (an array
    /// is whole again).
    fn keep(&mut self, until: Nanos, record: &mut FaultRecord) -> Result<(), Failure> {
        while self.signals.over.is_none()
            && Clock::Monotonic.now() < until
            && !self.driver.is_over()
        {
            self.signals
                .over_before(until.min(Clock::Monotonic.now().after(OVER_LOOK)));
            if let Err(error) = self.driver.tend() {
                let _ = self.driver.take_away();
                return Err(Failure::Refused(error));
            }
            if self.driver.gaps().len() > record.gaps.len() {
                record.gaps = self.driver.gaps().to_vec();
                self.hub.tell(&Event::Fault(Arc::new(record.clone())));
            }
        }
        Ok(())
    }

    /// The run was over before the fault's time came.
    fn too_short_for(&self, start: Nanos, begin: Duration) -> Failure {
        let lasted = self
            .signals
            .over
            .map_or(Duration::ZERO, |over| over.since(start));
        Failure::Unseen(Absent::TooLate { lasted, begin })
    }

    fn record(&self, shown: Proof) -> FaultRecord {
        let recorded = self.entry.kind.as_kind().recorded_as(&self.entry.common);
        FaultRecord {
            index: self.index,
            name: self.entry.label(),
            kind: self.entry.kind_name().into(),
            place: self.entry.place(),
            what: recorded.unwrap_or_else(|| self.driver.describe()),
            start: shown.at,
            shown: shown.seen,
            shown_by: shown.what,
            end: None,
            gone: None,
            gone_by: String::new(),
            gaps: Vec::new(),
        }
    }
}

/// To write where this time was too short.
fn longer(time: Duration) -> Span {
    written((time * 2).max(LONGER_LEAST))
}

/// When a fault that does not show is given up. One that a busy machine put in place late has its whole time to
/// show, as one has that was in time; when it was there is in its record.
fn given_up_at(until: Nanos, put_at: Option<Nanos>, lasts: Option<Duration>) -> Nanos {
    match (put_at, lasts) {
        (Some(at), Some(lasts)) => until.max(at.after(lasts)),
        _ => until,
    }
}
