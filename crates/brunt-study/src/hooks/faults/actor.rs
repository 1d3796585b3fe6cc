//! The life of a fault during a run, on a separate thread: it is injected at its time, proven, maintained, removed
//! and proven gone. The schedule starts a thread for each fault of a run, with an actor for each of its occurrences,
//! and joins it at the run's end.
//!
//! The rule: a fault that could not be proven is a failure, whatever the reason; the schedule, which knows how the
//! run ended, decides whether it invalidates the run. A failure that invalidates the run in any case also ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use brunt_core::{Clock, Nanos, Span};
use brunt_lab::Proof;
use brunt_result::void::{VoidReason, VoidWeight};

use crate::fault::{DriverError, FaultDriver, FaultEntry};
use crate::observe::{Event, FaultRecord, Hub};
use crate::rounded::rounded;

/// Interval between checks whether an injected fault is in effect.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Interval between checks whether a fault has ended early.
const OVER_POLL: Duration = Duration::from_millis(20);

/// Shortest time that advice suggests.
const LONGER_LEAST: Duration = Duration::from_millis(100);

/// The schedule's messages to a fault's thread.
pub(super) enum Signal {
    /// Measuring begins at this time.
    Starts(Nanos),
    /// The run ended at this time.
    Ends(Nanos),
}

/// Why a fault was not in effect as intended.
pub(super) enum Failure {
    /// The fault showed no effect. This is not an error if the run was cut short.
    Unseen(Absent),
    /// The fault could not be injected or maintained.
    Refused(DriverError),
    /// The fault could not be removed.
    Left(DriverError),
}

impl Failure {
    pub fn reason(&self) -> VoidReason {
        match self {
            Failure::Unseen(why) => why.reason(),
            Failure::Refused(error) | Failure::Left(error) => error.reason(),
        }
    }
}

/// Why a fault had no effect, and what would have shown it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Absent {
    #[error("the run did not start; the run is invalid")]
    NotStarted,
    #[error(
        "the run ended after {}, before the fault started; write at = \"{}\", or make the run longer \
         (stop = {{ time = \"{}\" }}); the run is invalid",
        rounded(*.lasted),
        rounded(*.lasted / 2),
        rounded(*.begin * 2)
    )]
    TooLate { lasted: Duration, begin: Duration },
    #[error(
        "the run ended before the fault took effect; make the run last {0} (stop = {{ time = \"{0}\" \
         }}); the run is invalid",
        rounded(*.there * 2)
    )]
    AfterRun { there: Duration },
    #[error(
        "it could not be injected: its target was not running; make the fault last longer than that \
         (for = \"{}\"); the run is invalid",
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

/// The outcome of an occurrence of a fault.
pub(super) struct Ended {
    /// Its index in the experiment's list, from 0.
    pub index: u32,
    /// Its record, if the fault was in effect.
    pub record: Option<FaultRecord>,
    /// Whether everything went as intended.
    pub result: Result<(), Failure>,
    /// Whether its failure ended the run.
    pub ended_run: bool,
}

/// The actor for an occurrence of a fault.
struct Actor<'a> {
    index: u32,
    entry: FaultEntry,
    driver: Box<dyn FaultDriver>,
    hub: &'a Hub,
    signals: &'a mut Signals,
}

/// An occurrence of a fault in a run; most faults have only one.
pub(super) struct PlannedOccurrence {
    /// Its index in the experiment's list, from 0.
    pub index: u32,
    pub entry: FaultEntry,
    pub driver: Box<dyn FaultDriver>,
}

/// Accompanies the run through the occurrences of a fault, in their order, until one fails. Each occurrence begins
/// after the previous one is proven to be gone. Signals `ready` once a sticky fault is in effect, and sets `failed`
/// if a failure invalidates the run before its end.
pub(super) fn follow(
    occurrences: Vec<PlannedOccurrence>,
    hub: &Hub,
    mut signals: Signals,
    ready: &SyncSender<()>,
    failed: &AtomicBool,
) -> Vec<Ended> {
    let mut ended = Vec::with_capacity(occurrences.len());
    for PlannedOccurrence {
        index,
        entry,
        driver,
    } in occurrences
    {
        let actor = Actor {
            index,
            entry,
            driver,
            hub,
            signals: &mut signals,
        };
        let mut last = actor.run(ready);
        let failure = last.result.as_ref().err().map(Failure::reason);
        // If the reason is a lost host, the run may go on without it.
        last.ended_run =
            !signals.is_over() && failure.is_some_and(|reason| reason.weight() == VoidWeight::Void);
        if last.ended_run {
            failed.store(true, Ordering::Release);
        }
        ended.push(last);
        if failure.is_some() {
            break;
        }
    }
    ended
}

/// Receives the schedule's messages about the run, and waits for them.
pub(super) struct Signals {
    inbox: Receiver<Signal>,
    /// When measuring begins; `None` until the message about it has arrived.
    start: Option<Nanos>,
    /// When the run ended; `None` until the message about it has arrived.
    over: Option<Nanos>,
}

impl Signals {
    pub fn new(inbox: Receiver<Signal>) -> Signals {
        Signals {
            inbox,
            start: None,
            over: None,
        }
    }

    /// Returns when measuring begins; `None` if the run ends before that.
    fn start(&mut self) -> Option<Nanos> {
        if self.start.is_some() {
            return self.start;
        }
        match self.inbox.recv() {
            Ok(Signal::Starts(start)) => {
                self.start = Some(start);
                self.start
            }
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

    /// Whether the run was already over at that time, which must be in the past.
    fn over_at(&mut self, time: Nanos) -> bool {
        self.is_over() && self.over.is_some_and(|over| over <= time)
    }

    /// Whether the run is over.
    fn is_over(&mut self) -> bool {
        while let Ok(signal) = self.inbox.try_recv() {
            match signal {
                Signal::Starts(start) => self.start = Some(start),
                Signal::Ends(at) => self.over = Some(at),
            }
        }
        self.over.is_some()
    }

    /// Waits until a time or the end of the run; returns whether the run ended first.
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

impl Actor<'_> {
    fn run(mut self, ready: &SyncSender<()>) -> Ended {
        let (record, result) = match self.follow(ready) {
            Err(failure) => (None, Err(failure)),
            Ok((record, gone)) => (Some(record), gone.map_err(Failure::Left)),
        };
        Ended {
            index: self.index,
            record,
            result,
            ended_run: false,
        }
    }

    /// Returns the record of a fault that was in effect, and whether it was removed; or why it was not in effect.
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
        // Injecting a fault of the lab can take so long that the run's requests are already over.
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

    /// Injects the fault, unless that has happened already, and waits until it shows an effect.
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
                self.driver.poll()
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
                    format!("make the fault last longer (for = \"{}\")", longer(looked))
                });
                let _ = self.driver.take_away();
                return Err(Failure::Unseen(Absent::Unseen { seen, advice }));
            }
            self.signals
                .over_before(Clock::Monotonic.now().after(LOOK_EVERY));
        }
    }

    /// Maintains the fault until its duration ends or the run ends. Some faults end early (an array
    /// is intact again).
    fn keep(&mut self, until: Nanos, record: &mut FaultRecord) -> Result<(), Failure> {
        while self.signals.over.is_none()
            && Clock::Monotonic.now() < until
            && !self.driver.is_over()
        {
            self.signals
                .over_before(until.min(Clock::Monotonic.now().after(OVER_POLL)));
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

    /// The failure if a run ended before the fault's start.
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

/// The time to suggest if the actual time was too short.
fn longer(time: Duration) -> Span {
    rounded((time * 2).max(LONGER_LEAST))
}

/// When to stop waiting for the effect of a fault. If a busy machine injected it late, it still gets its full
/// duration; its record shows when it was in effect.
fn given_up_at(until: Nanos, put_at: Option<Nanos>, lasts: Option<Duration>) -> Nanos {
    match (put_at, lasts) {
        (Some(at), Some(lasts)) => until.max(at.after(lasts)),
        _ => until,
    }
}
