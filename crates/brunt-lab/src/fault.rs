//! Faults that are injected into a running system and removed again. Driven by an experiment's fault timeline;
//! implemented by links, hogs, processes and device layers.
//!
//! The rule: a fault returns a [`Proof`] of an effect observed from outside (a probe packet arrived late, the CPU share
//! is taken), not merely of the attempt. If the effect cannot be proven, that is an error, and the run is invalid.

use brunt_core::Clock;
pub use brunt_protocol::Proof;

/// A fault of one kind, in one place, with its parameters, such as a link's settings or a share of a CPU.
///
/// Each value is a single injection: call [`Fault::inject`] and then [`Fault::remove`], once each. Dropping the value
/// also removes the fault, so an experiment that ends early leaves nothing behind, but only `remove` proves the
/// removal.
pub trait Fault: Send {
    /// A description for the report, such as `cpu hog, 98% of core 1`.
    fn describe(&self) -> String;

    /// Injects the fault and waits until its effect is observed.
    ///
    /// # Errors
    /// A system call failed, or the effect was not observed within the fault's time limit.
    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError>;

    /// Removes the fault and waits until its effect is gone. Removal is attempted even after an error.
    ///
    /// # Errors
    /// A system call failed, or the effect was still observed at the end of the fault's time limit.
    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError>;
}

/// Why a fault could not be injected or removed.
#[derive(Debug, thiserror::Error)]
pub enum FaultError {
    /// The fault was injected or removed, but the observation contradicts it.
    #[error("{fault} had no visible effect: {seen}")]
    NotShown {
        /// [`Fault::describe`].
        fault: String,
        /// What was observed instead.
        seen: String,
    },
    /// The fault was removed, but its effect is still observed.
    #[error("{fault} is still in effect after its removal: {seen}")]
    NotGone {
        /// [`Fault::describe`].
        fault: String,
        /// What was observed.
        seen: String,
    },
    /// A system call failed; contains advice.
    #[error("{fault}: {what} ({source}); {advice}")]
    Refused {
        /// [`Fault::describe`].
        fault: String,
        /// What was attempted.
        what: String,
        /// The kernel's error.
        source: std::io::Error,
        /// What would help.
        advice: String,
    },
    /// `inject` was called twice, or `remove` without `inject`.
    #[error("{fault}: {what}")]
    Misuse {
        /// [`Fault::describe`].
        fault: String,
        /// The call that was out of order.
        what: &'static str,
    },
}

impl FaultError {
    /// The error for a failed `what`; adds the usual remedy.
    pub fn refused(fault: String, what: impl Into<String>, source: std::io::Error) -> FaultError {
        let advice = crate::remedy(&source);
        FaultError::Refused {
            fault,
            what: what.into(),
            source,
            advice,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A failed system call is reported in a single line with the cause and the remedy.
    #[test]
    fn a_refusal_names_its_cause_and_remedy() {
        let refused = |advice: &str| FaultError::Refused {
            fault: "memory hog, 1GiB".into(),
            what: "cannot lock".into(),
            source: std::io::Error::from_raw_os_error(libc::ENOMEM),
            advice: advice.to_string(),
        };
        let text = refused("raise ulimit -l").to_string();
        assert!(
            text.starts_with("memory hog, 1GiB: cannot lock (")
                && text.ends_with("; raise ulimit -l")
        );
    }
}
