//! What an import says about an option: that it is lost, or done in a different way.

use crate::error::Location;

/// A part of a job file that an experiment doesn't reproduce, or reproduces in a different way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Where it is in the job file.
    pub location: Location,
    /// The key, or a section's name in brackets.
    pub key: String,
    /// The reason, and the closest equivalent.
    pub why: String,
    /// Whether the measurement differs from fio's. If not, it is the same, but expressed or done differently.
    pub loss: bool,
}
