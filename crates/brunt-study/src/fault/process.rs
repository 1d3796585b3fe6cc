//! The fault driver for a served target's process: freezes it, or kills and restarts it. The process is
//! looked up when the fault starts, because an earlier fault of the same run may have replaced it.
//!
//! The rule: the role is marked as away before the signal is sent and until it is back, so that faults inside
//! it can distinguish a late answer from one that never comes.

use std::sync::Arc;

use brunt_core::{Clock, Nanos};
use brunt_lab::{Fault, Proof};

use super::driver::{DriverError, FaultDriver};
use super::kind::{FaultCommon, Mistake, Stage, Together};
use crate::control::Absence;
use crate::role::{Launch, Role};

/// See the module.
pub(super) struct ProcessFault {
    role: Arc<dyn Role>,
    away: Absence,
    fault: Option<Box<dyn Fault>>,
    proof: Option<Proof>,
}

impl ProcessFault {
    /// Stands still, or dies: what it is away by.
    pub fn new(role: Arc<dyn Role>, away: Absence) -> ProcessFault {
        ProcessFault { role, away, fault: None, proof: None }
    }
}

impl FaultDriver for ProcessFault {
    fn describe(&self) -> String {
        self.fault.as_ref().map_or_else(|| format!("{:?}", self.away), |fault| fault.describe())
    }

    fn put(&mut self) -> Result<Option<Nanos>, DriverError> {
        // One at a time: another fault of the process may end later than it was meant to.
        if !self.role.goes_away(self.away) {
            return Ok(None);
        }
        // One that died by itself before is not started again as if nothing had been.
        self.role.check().inspect_err(|_| self.role.comes_back())?;
        let mut fault = Arc::clone(&self.role).outage(self.away);
        let proof = fault.inject(&Clock::Monotonic);
        self.fault = Some(fault);
        match proof {
            Ok(proof) => Ok(Some(self.proof.insert(proof).at)),
            Err(error) => {
                self.fault = None;
                self.role.comes_back();
                Err(error.into())
            }
        }
    }

    fn look(&mut self) -> Result<Option<Proof>, DriverError> {
        Ok(self.proof.clone())
    }

    fn take_away(&mut self) -> Result<Proof, DriverError> {
        let Some(mut fault) = self.fault.take() else { return Err(DriverError::NotThere) };
        let proof = fault.remove(&Clock::Monotonic);
        // A process that was started again is back since then, and may be away once more by now. Of one that could
        // not be started again nobody waits for an answer.
        if self.away == Absence::Frozen {
            self.role.comes_back();
        }
        Ok(proof?)
    }
}

impl Drop for ProcessFault {
    fn drop(&mut self) {
        if let (Some(fault), Absence::Frozen) = (self.fault.take(), self.away) {
            drop(fault);
            self.role.comes_back();
        }
    }
}

/// Only what is served by a process can be stopped.
pub(super) fn served(key: &'static str, common: &FaultCommon, stage: &dyn Stage) -> Result<(), Mistake> {
    let launch = stage.role(&common.target).map(|role| role.launch());
    if matches!(launch, Some(Launch::Process { .. })) {
        return Ok(());
    }
    let name = &common.target;
    let what = format!("{key} needs a target that the experiment starts itself; '{name}' is opened by url");
    Err(Mistake::new(key, what, "write serve = … instead of url = … for the target"))
}

/// What comes of two faults of one process.
pub(super) fn away_twice() -> Option<Together> {
    Together::refused(
        "a frozen or dead process can be neither frozen nor killed",
        "end one before the other starts",
    )
}
