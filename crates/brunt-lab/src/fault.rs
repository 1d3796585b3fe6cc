//! Trouble that is put into a running system and taken out again. Driven by the fault time line of
//! an experiment; implemented by links, hogs, processes, and by layers of a device.
//!
//! The rule: a fault answers with a [`Proof`], something seen from outside of it (a probe packet was
//! late, the share of the processor is gone), never with its own intention. What cannot be proven is
//! an error, and the run is not valid.

use brunt_core::Clock;
pub use brunt_protocol::Proof;

/// Trouble of one kind, at one place, with its values: a link's settings, a share of a processor.
///
/// A value of this type is one injection: [`Fault::inject`] and then [`Fault::remove`], each once.
/// Whoever implements it takes the trouble away when dropped, too, so that an experiment that ends
/// early leaves nothing behind; only `remove` proves it.
pub trait Fault: Send {
    /// What it is, for a report: `cpu hog, 98% of core 1`.
    fn describe(&self) -> String;

    /// Puts it in, and waits until it shows.
    ///
    /// # Errors
    /// The machine refused, or it did not show within the time the fault itself states.
    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError>;

    /// Takes it out, and waits until it is gone. After an error it is still tried to be taken out.
    ///
    /// # Errors
    /// As for [`Fault::inject`].
    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError>;
}

/// Why a fault is not there, or not gone.
#[derive(Debug, thiserror::Error)]
pub enum FaultError {
    /// It was put in or taken out, but what was seen says otherwise.
    #[error("{fault} had no visible effect: {seen}")]
    NotShown {
        /// [`Fault::describe`].
        fault: String,
        /// What was seen instead.
        seen: String,
    },
    /// It was taken out, but is still to be seen.
    #[error("{fault} is still in effect after its removal: {seen}")]
    NotGone {
        /// [`Fault::describe`].
        fault: String,
        /// What was seen.
        seen: String,
    },
    /// The machine does not allow it, with what to do about it.
    #[error("{fault}: {what} ({source}); {advice}")]
    Refused {
        /// [`Fault::describe`].
        fault: String,
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
        /// What would help.
        advice: String,
    },
    /// `inject` twice, or `remove` without `inject`.
    #[error("{fault}: {what}")]
    Misuse {
        /// [`Fault::describe`].
        fault: String,
        /// Which call came out of turn.
        what: &'static str,
    },
}

impl FaultError {
    /// The machine said no to `what`; with what usually helps against that.
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

    /// A refusal reads as one line with the cause and what to do.
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
