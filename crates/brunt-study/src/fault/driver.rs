//! The interface between the schedule and a fault of any kind: inject it, check that it is in effect,
//! maintain it, remove it. Implemented once for each mechanism: the lab, a layer of a device, a process.
//!
//! The rule: a driver reports what it observed from outside, never its intention, and removes its fault even if it is
//! merely dropped.

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

/// Drives one fault through one run, like [`brunt_lab::Fault`], except that injecting it doesn't wait for its effect,
/// because some faults show only in the run's requests. Dropping the driver removes the fault.
pub trait FaultDriver: Send {
    /// The fault's effect, for a report.
    fn describe(&self) -> String;

    /// Injects the fault and returns the time at which it did so. Returns `None` if the target's process was killed
    /// or frozen; the caller then tries again.
    ///
    /// # Errors
    /// The fault cannot be injected.
    fn put(&mut self) -> Result<Option<Nanos>, DriverError>;

    /// The proof that the fault is in effect, if there already is one.
    ///
    /// # Errors
    /// The check itself failed.
    fn poll(&mut self) -> Result<Option<Proof>, DriverError>;

    /// What is observed as long as the fault shows no effect.
    fn seen_instead(&self) -> String {
        "nothing".to_string()
    }

    /// Advice if the fault showed no effect for the time `looked`: which setting to change, and a value that would
    /// have shown an effect here. `None` if only more time could help.
    fn advice(&self, looked: Duration) -> Option<String> {
        let _ = looked;
        None
    }

    /// Whether the fault ended before it was removed.
    fn is_over(&self) -> bool {
        false
    }

    /// Maintains the fault: injects it again if the process or layer that it was injected into has restarted.
    ///
    /// # Errors
    /// The fault is gone and cannot be injected again.
    fn tend(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    /// Past gaps in which the fault was not in effect, without one that has not ended yet.
    fn gaps(&self) -> &[FaultGap] {
        &[]
    }

    /// Removes the fault and waits until it is gone.
    ///
    /// # Errors
    /// The fault cannot be removed, or is still in effect.
    fn take_away(&mut self) -> Result<Proof, DriverError>;
}

/// Why a fault is not in effect, or is still in effect after its removal.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The fault should be removed, but was never injected.
    #[error("it is not in effect")]
    NotThere,
    /// The fault was lost with its process, and showed no effect after the restart.
    #[error(
        "it had no visible effect after its target restarted: {seen}; write for = \"{lasts}\", or end it before the target is killed"
    )]
    NotShownAgain {
        /// How long the fault would have to last, as written in a file.
        lasts: Span,
        /// What was observed.
        seen: String,
    },
    /// The fault was removed, but is still in effect.
    #[error("it is still in effect after its removal: {seen}")]
    NotGone {
        /// What was observed.
        seen: String,
    },
    /// The object that the fault affects doesn't exist, or cannot fail in its current state.
    #[error("{what}; {advice}")]
    Unfit {
        /// What is missing or unsuitable.
        what: String,
        /// The setting to change, and a value that works.
        advice: String,
    },
    /// The device's layer, or the process that serves the device, refused the command.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The storage fault is invalid.
    #[error(transparent)]
    Words(#[from] OpenError),
    /// The machine or the lab doesn't allow the fault, or it showed no effect there.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// Another host could not inject the fault, or was lost.
    #[error(transparent)]
    Remote(#[from] FaultEnd),
    /// There is no such link or host.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The target's process is not in the expected state.
    #[error(transparent)]
    Role(#[from] RoleError),
    /// A system call failed.
    #[error("{what}: {source}; {}", remedy(.source))]
    System {
        /// The operation.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl DriverError {
    /// Why this error invalidates the run.
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
            DriverError::Remote(FaultEnd::Failed { kind, .. }) => match kind {
                HostFaultFailure::NotAllowed | HostFaultFailure::Refused => {
                    VoidReason::FaultRefused
                }
                HostFaultFailure::NotShown => VoidReason::FaultWeak,
                HostFaultFailure::NotGone => VoidReason::FaultNotGone,
            },
            DriverError::Remote(_) => VoidReason::FaultHostLost,
            DriverError::Lab(_) => VoidReason::NotReady,
            DriverError::Role(error) => error.reason(),
        }
    }

    /// An error for a fault whose object doesn't exist or cannot fail in its current state, with advice on what to
    /// write instead.
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

/// Drives a fault of the lab, whose effect is proven as soon as it is injected.
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

    fn poll(&mut self) -> Result<Option<Proof>, DriverError> {
        Ok(self.proof.clone())
    }

    fn take_away(&mut self) -> Result<Proof, DriverError> {
        Ok(self.fault.remove(&Clock::Monotonic)?)
    }
}
