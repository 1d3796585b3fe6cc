//! Why a benchmark stops.

use std::fmt::Display;

use brunt_block::OpenError;

/// The kind of failure. Match on this, not on the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchErrorKind {
    /// The settings, or a file that they name, are invalid.
    Usage,
    /// Ctrl-C, SIGTERM or the end of the terminal stopped it.
    Interrupted,
    /// The measurement failed, or its results miss a requirement.
    Failed,
}

/// Why a benchmark stopped: what happened, and what to do about it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
pub struct BenchError {
    /// The kind of failure.
    pub kind: BenchErrorKind,
    /// What happened, in one line.
    pub what: String,
    /// What the user can do about it: a sentence that starts with a verb.
    pub advice: Option<String>,
}

/// Result of a benchmark.
pub type BenchResult = Result<(), BenchError>;

impl BenchError {
    /// The measurement failed.
    pub fn failed(what: impl Display) -> BenchError {
        BenchError {
            kind: BenchErrorKind::Failed,
            what: what.to_string(),
            advice: None,
        }
    }

    /// The benchmark was stopped; `what` says which results are complete.
    pub fn interrupted(what: impl Display) -> BenchError {
        BenchError {
            kind: BenchErrorKind::Interrupted,
            what: what.to_string(),
            advice: None,
        }
    }

    /// The settings are invalid.
    pub fn usage(what: impl Display) -> BenchError {
        BenchError {
            kind: BenchErrorKind::Usage,
            what: what.to_string(),
            advice: None,
        }
    }

    /// Adds what the user can do about it.
    pub fn advise(mut self, advice: impl Display) -> BenchError {
        self.advice = Some(advice.to_string());
        self
    }
}

/// A benchmark only opens devices that it has created or started itself, so failing to open one is never the user's
/// mistake.
impl From<OpenError> for BenchError {
    fn from(error: OpenError) -> BenchError {
        BenchError::failed(error)
    }
}
