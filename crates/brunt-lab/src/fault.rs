//! Faults that are injected into a running system and removed again. Driven by an experiment's fault timeline;
//! implemented by links, hogs, processes and device layers.
//!
//! The rule: a fault returns a [`Proof`] of an effect observed from outside (a probe packet
//! arrived late, the processor share is taken), never just its intention. If the effect cannot be
//! proven, that is an error, and the run is not valid.

use brunt_core::Clock;
pub use brunt_protocol::Proof;

/// A fault of one kind, at one place, with its values: a link's settings, a share of a processor.
///
/// Each value is one injection: call [`Fault::inject`] and then [`Fault::remove`], once each.
/// Dropping an implementation also removes the fault, so that an experiment that ends early leaves
/// nothing behind; only `remove` proves the removal.
pub trait Fault: Send {
    /// A description for the report: `cpu hog, 98% of core 1`.
    fn describe(&self) -> String;

    /// Injects the fault and waits until its effect is observed.
    ///
    /// # Errors
    /// The machine refused, or the effect was not observed within the fault's own time limit.
    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError>;

    /// Removes the fault and waits until its effect is gone. After an error, removal is still attempted.
    ///
    /// # Errors
    /// As for [`Fault::inject`].
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
    /// The machine doesn't allow it; includes advice.
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
    /// `inject` twice, or `remove` without `inject`.
    #[error("{fault}: {what}")]
    Misuse {
        /// [`Fault::describe`].
        fault: String,
        /// Which call was out of order.
        what: &'static str,
    },
}

impl FaultError {
    /// The machine refused `what`; adds the usual remedy.
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

    /// A refusal is one line with the cause and the remedy.
    #[test]
    fn refusals_say_what_to_do() {
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
