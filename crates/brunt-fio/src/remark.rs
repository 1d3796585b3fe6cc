//! What an import reports about an option: that it is lost, or reproduced in a different way.

use crate::error::Location;

/// A part of a job file that an experiment doesn't reproduce, or reproduces in a different way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Location in the job file.
    pub location: Location,
    /// The key, or a section's name in brackets.
    pub key: String,
    /// The reason, and the closest equivalent.
    pub why: String,
    /// Whether the measurement differs from fio's. If not, the same effect is expressed or achieved differently.
    pub loss: bool,
}
