//! Why an experiment ended early.

use std::io;

use brunt_load::LoadError;

use super::wait::WaitError;
use crate::hooks::HookError;

/// Why an experiment ended early.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A run failed.
    #[error("{label}, repetition {repetition}: {source}")]
    Run {
        /// The point.
        label: String,
        /// From 0.
        repetition: u32,
        /// The error.
        source: LoadError,
    },
    /// A hook failed before or after a run; the run is invalid.
    #[error("{label}, repetition {repetition}: {source}")]
    Hook {
        /// The point.
        label: String,
        /// From 0.
        repetition: u32,
        /// What failed, and what to do.
        source: HookError,
    },
    /// A load cannot be used, and no run was started.
    #[error("{label}: {source}")]
    Load {
        /// The point.
        label: String,
        /// The error.
        source: LoadError,
    },
    /// The condition of a phase was not met.
    #[error("phase {phase}: {source}; earlier results are kept")]
    Phase {
        /// Its name.
        phase: String,
        /// Why the wait ended.
        source: WaitError,
    },
    /// The results could not be written.
    #[error("cannot write the results: {0}; earlier results are kept")]
    Write(#[from] io::Error),
}
