//! A storage fault on the time line: armed at a layer, shown by the requests of the run that it hits, gone
//! when no more are hit. Requests of its own it makes none: they would be part of what is measured, and a
//! fault that hits nobody's request is not part of it.
//!
//! The rule: what is armed goes with the target's process. When another fault has that killed and started
//! anew, it is armed again as soon as the target is back, and has to show again; the time between is a gap
//! in its record.

use std::sync::Arc;

use brunt_block::layers::fault::Fault;
use brunt_core::{Clock, Nanos};
use brunt_lab::Proof;

use super::driver::{DriverError, FaultDriver};
use crate::control::{Absence, Command, Controls, Reason, Reply};
use crate::observe::FaultGap;

/// How often is looked whether a target that stands still goes on.
const THAW_LOOK: std::time::Duration = std::time::Duration::from_millis(1);

/// See the module.
pub(super) struct StorageFault {
    controls: Arc<dyn Controls>,
    lun: u16,
    layer: Option<String>,
    fault: Fault,
    armed: Option<Armed>,
    gaps: Vec<FaultGap>,
}

#[derive(Clone, Copy)]
struct Armed {
    id: u64,
    /// Of the target's process.
    life: u32,
    at: Nanos,
    seen: u64,
    shown: bool,
    /// When it was lost, of one that was armed again.
    lost: Option<Nanos>,
}

impl StorageFault {
    pub fn new(controls: Arc<dyn Controls>, lun: u16, layer: Option<String>, fault: Fault) -> StorageFault {
        StorageFault { controls, lun, layer, fault, armed: None, gaps: Vec::new() }
    }

    /// Has an order carried out; `None` when whoever should is away, or not who it was in `life`.
    fn ask(&self, command: &Command, life: u32) -> Result<Option<Reply>, DriverError> {
        let is_there = || {
            let state = self.controls.state();
            state.away.is_none() && state.life == life
        };
        if !is_there() {
            return Ok(None);
        }
        match self.controls.must(command) {
            Ok(answer) => Ok(Some(answer)),
            // Killed, or killed and started again, between the question and the answer.
            Err(_) if !is_there() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn arm(&self, lost: Option<Nanos>) -> Result<Option<Armed>, DriverError> {
        let life = self.controls.state().life;
        let command =
            Command::Arm { lun: self.lun, layer: self.layer.clone(), fault: self.fault.to_string() };
        let at = Clock::Monotonic.now();
        Ok(match self.ask(&command, life)? {
            Some(Reply::Armed { id }) => Some(Armed { id, life, at, seen: 0, shown: false, lost }),
            Some(other) => return Err(DriverError::mismatched(other)),
            None => None,
        })
    }

    /// Arms it again if what it was armed in is gone; `None` while nobody is there.
    fn present(&mut self) -> Result<Option<Armed>, DriverError> {
        let Some(armed) = self.armed else { return Ok(None) };
        let state = self.controls.state();
        if state.away.is_some() {
            return Ok(None);
        }
        if state.life == armed.life {
            return Ok(Some(armed));
        }
        // What had not shown before was never there.
        let lost = if armed.shown { state.last_end } else { armed.lost };
        if let Some(again) = self.arm(lost)? {
            self.armed = Some(again);
        }
        Ok(self.armed.filter(|now| now.life != armed.life))
    }

    /// What it has hit since it was armed, if that can be told now.
    fn counts(&mut self) -> Result<Option<(Armed, u64)>, DriverError> {
        let Some(mut armed) = self.present()? else { return Ok(None) };
        let command = Command::Look { lun: self.lun, layer: self.layer.clone(), id: armed.id };
        let (seen, injected) = match self.ask(&command, armed.life)? {
            Some(Reply::Counts { seen, injected }) => (seen, injected),
            Some(other) => return Err(DriverError::mismatched(other)),
            None => return Ok(None),
        };
        (armed.seen, armed.shown) = (seen, armed.shown || injected > 0);
        self.armed = Some(armed);
        Ok(Some((armed, injected)))
    }
}

fn hits(injected: u64, seen: u64) -> String {
    format!("hit {injected} of the first {seen} requests it is about")
}

impl FaultDriver for StorageFault {
    fn describe(&self) -> String {
        self.fault.to_string()
    }

    fn put(&mut self) -> Result<Option<Nanos>, DriverError> {
        self.armed = self.arm(None)?;
        Ok(self.armed.map(|armed| armed.at))
    }

    fn look(&mut self) -> Result<Option<Proof>, DriverError> {
        let Some((armed, injected)) = self.counts()? else { return Ok(None) };
        Ok((injected > 0).then(|| Proof {
            at: armed.at,
            seen: Clock::Monotonic.now(),
            what: hits(injected, armed.seen),
            value: Some(injected as f64),
        }))
    }

    fn seen_instead(&self) -> String {
        let seen = self.armed.as_ref().map_or(0, |armed| armed.seen);
        format!("of {seen} requests that it is about it hit none")
    }

    fn tend(&mut self) -> Result<(), DriverError> {
        // A target that cannot be killed is not asked: nothing could have changed.
        let Some(Armed { life, shown, .. }) = self.armed else { return Ok(()) };
        if shown && self.controls.state().life == life {
            return Ok(());
        }
        let Some((armed, injected)) = self.counts()? else { return Ok(()) };
        if let (true, Some(from)) = (armed.shown, armed.lost) {
            let shown_by = hits(injected, armed.seen);
            self.gaps.push(FaultGap { from, until: armed.at, shown: Clock::Monotonic.now(), shown_by });
            self.armed = Some(Armed { lost: None, ..armed });
        }
        Ok(())
    }

    fn gaps(&self) -> &[FaultGap] {
        &self.gaps
    }

    fn take_away(&mut self) -> Result<Proof, DriverError> {
        // One that stands still has it until it goes on.
        let state = loop {
            let state = self.controls.state();
            if !matches!(state.away, Some((Absence::Frozen, _))) {
                break state;
            }
            std::thread::sleep(THAW_LOOK);
        };
        let at = Clock::Monotonic.now();
        let Some(armed) = self.armed.take() else { return Err(DriverError::NotThere) };
        let command = Command::Disarm { lun: self.lun, layer: self.layer.clone(), id: armed.id };
        let Some(answer) = self.ask(&command, armed.life)? else {
            let now = self.controls.state();
            let ended = now.away.map(|(_, since)| since).or(now.last_end).or(state.last_end);
            let what = "gone with the target's process, which was killed".to_string();
            let (at, seen) = (ended.unwrap_or(at), Clock::Monotonic.now());
            return Ok(Proof { at, seen, what, value: None });
        };
        let Reply::Counts { seen, injected } = answer else {
            return Err(DriverError::mismatched(answer));
        };
        // Seen from outside: its number is that of no fault any more.
        let command = Command::Look { lun: self.lun, layer: self.layer.clone(), id: armed.id };
        match self.controls.ask(&command) {
            Ok(Reply::Refused(refusal)) if refusal.reason == Reason::NotArmed => {}
            Err(_) if self.controls.state() != state => {}
            other => {
                let seen = format!("asked for it, the target answers {other:?}");
                return Err(DriverError::NotGone { seen });
            }
        }
        if let Some(from) = armed.lost {
            if injected == 0 {
                let seen = format!("of {seen} requests that it is about it hit none");
                return Err(DriverError::NotShownAgain { seen });
            }
            let shown_by = hits(injected, seen);
            self.gaps.push(FaultGap { from, until: armed.at, shown: at, shown_by });
        }
        let again = if self.gaps.is_empty() { "" } else { " since it was armed again" };
        let what = format!("{injected} requests hit{again}; nothing of it is armed");
        Ok(Proof { at, seen: Clock::Monotonic.now(), what, value: Some(injected as f64) })
    }
}

impl Drop for StorageFault {
    fn drop(&mut self) {
        if let Some(armed) = self.armed {
            let command = Command::Disarm { lun: self.lun, layer: self.layer.clone(), id: armed.id };
            let _ = self.ask(&command, armed.life);
        }
    }
}
