//! The interface between the schedule and a fault of any kind: inject it, check that it is in effect,
//! maintain it, remove it. Implemented once for each mechanism: the lab, a layer of a device, a process.
//!
//! The rule: a driver reports what it observed from outside, never its intention, and also removes its fault
//! when it is dropped.

use std::io;
use std::time::Duration;

use brunt_block::OpenError;
use brunt_core::{Clock, Nanos, Span};
use brunt_host::FaultEnd;
use brunt_lab::{FaultError, LabError, Proof, remedy};
use brunt_protocol::HostFaultFailure;
use brunt_result::event::FaultGap;
use brunt_result::void::VoidReason;

use crate::control::{ControlError, Reply};
use crate::role::RoleError;

/// Drives one fault through one run: as [`brunt_lab::Fault`], but it is put in place without waiting,
/// because some are shown only by the requests of the run. Taken away when dropped, too.
pub trait FaultDriver: Send {
    /// What it is, for a report.
    fn describe(&self) -> String;

    /// Puts it in place; when. `None` while its place is not there (the target's process was killed, or
    /// stands still): to be tried again.
    ///
    /// # Errors
    /// It cannot be put in place.
    fn put(&mut self) -> Result<Option<Nanos>, DriverError>;

    /// That it shows, if it does by now.
    ///
    /// # Errors
    /// It cannot be looked for.
    fn look(&mut self) -> Result<Option<Proof>, DriverError>;

    /// What is seen while it does not show.
    fn seen_instead(&self) -> String {
        "nothing".to_string()
    }

    /// After it was looked for so long in vain: which setting to change, and a value that would have shown here.
    /// `None`: more time is all that could help.
    fn advice(&self, looked: Duration) -> Option<String> {
        let _ = looked;
        None
    }

    /// Whether it ended by itself.
    fn is_over(&self) -> bool {
        false
    }

    /// Sees to it that it is still there: puts it in place again when what it was in was started again.
    ///
    /// # Errors
    /// It is not there any more, and cannot be put in place again.
    fn tend(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    /// When it was not there meanwhile, as far as that is over.
    fn gaps(&self) -> &[FaultGap] {
        &[]
    }

    /// Takes it away, and waits until it is gone.
    ///
    /// # Errors
    /// It cannot be taken away, or is still to be seen.
    fn take_away(&mut self) -> Result<Proof, DriverError>;
}

/// Why a fault is not there, or not gone.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// It is to be taken away, but was never put in place.
    #[error("it is not in effect")]
    NotThere,
    /// It was there, went with the process it was in, and was not seen again after that was back.
    #[error(
        "it had no visible effect after its target restarted: {seen}; write for = \"{lasts}\", or end it before the target is killed"
    )]
    NotShownAgain {
        /// How long it would have to last, as it could be written.
        lasts: Span,
        /// What was seen.
        seen: String,
    },
    /// It was taken away, but is still to be seen.
    #[error("it is still in effect after its removal: {seen}")]
    NotGone {
        /// What was seen.
        seen: String,
    },
    /// What it is about is not there, or not in a state in which it could fail.
    #[error("{what}; {advice}")]
    Unfit {
        /// What it is, or that it is not there.
        what: String,
        /// The setting to change, and a value that would do.
        advice: String,
    },
    /// The layer of a device, or whoever drives it, says no.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The words of a storage fault are none.
    #[error(transparent)]
    Words(#[from] OpenError),
    /// The machine or the lab does not allow it, or it did not show there.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// Another host could not do it, or was lost.
    #[error(transparent)]
    Elsewhere(#[from] FaultEnd),
    /// There is no such link or host.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The target's process is not what it should be.
    #[error(transparent)]
    Role(#[from] RoleError),
    /// The kernel refused.
    #[error("{what}: {source}; {}", remedy(.source))]
    System {
        /// What was tried.
        what: String,
        /// What it said.
        source: io::Error,
    },
}

impl DriverError {
    /// Why the run is void for it.
    pub fn reason(&self) -> VoidReason {
        match self {
            DriverError::NotThere | DriverError::Control(_) | DriverError::Words(_) => {
                VoidReason::FaultControl
            }
            DriverError::NotShownAgain { .. } => VoidReason::FaultUnseenAgain,
            DriverError::NotGone { .. } | DriverError::Fault(FaultError::NotGone { .. }) => {
                VoidReason::FaultNotGone
            }
            DriverError::Unfit { .. } => VoidReason::FaultUnfit,
            DriverError::Fault(FaultError::NotShown { .. }) => VoidReason::FaultWeak,
            DriverError::Fault(_) | DriverError::System { .. } => VoidReason::FaultRefused,
            DriverError::Elsewhere(FaultEnd::Failed { kind, .. }) => match kind {
                HostFaultFailure::NotAllowed | HostFaultFailure::Refused => {
                    VoidReason::FaultRefused
                }
                HostFaultFailure::NotShown => VoidReason::FaultWeak,
                HostFaultFailure::NotGone => VoidReason::FaultNotGone,
            },
            DriverError::Elsewhere(_) => VoidReason::FaultHostLost,
            DriverError::Lab(_) => VoidReason::NotReady,
            DriverError::Role(error) => error.reason(),
        }
    }

    /// What it is about is not there, or not in a state in which it could fail; what to write instead.
    pub(crate) fn unfit(what: impl Into<String>, advice: impl Into<String>) -> DriverError {
        DriverError::Unfit {
            what: what.into(),
            advice: advice.into(),
        }
    }

    pub(crate) fn mismatched(reply: Reply) -> DriverError {
        ControlError::Mismatched(Box::new(reply)).into()
    }
}

/// A fault of the lab: shown as soon as it is in place.
pub(crate) struct LabDriver {
    fault: Box<dyn brunt_lab::Fault>,
    proof: Option<Proof>,
}

impl LabDriver {
    pub fn boxed(fault: impl brunt_lab::Fault + 'static) -> Box<dyn FaultDriver> {
        Box::new(LabDriver {
            fault: Box::new(fault),
            proof: None,
        })
    }
}

impl FaultDriver for LabDriver {
    fn describe(&self) -> String {
        self.fault.describe()
    }

    fn put(&mut self) -> Result<Option<Nanos>, DriverError> {
        let proof = self.fault.inject(&Clock::Monotonic)?;
        Ok(Some(self.proof.insert(proof).at))
    }

    fn look(&mut self) -> Result<Option<Proof>, DriverError> {
        Ok(self.proof.clone())
    }

    fn take_away(&mut self) -> Result<Proof, DriverError> {
        Ok(self.fault.remove(&Clock::Monotonic)?)
    }
}
