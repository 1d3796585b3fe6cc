//! The answer to a question about a fault's effect. The rule: *never* and *inconclusive* are answers, never zeros.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Seconds, or `never` or `inconclusive`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Seconds.
    AfterS(f64),
    /// It did not happen in the available time.
    Never,
    /// The noise exceeds the change that would have to be detected.
    Inconclusive,
}

impl Answer {
    /// One word for tables: `yes`, `never` or `inconclusive`.
    pub fn word(self) -> &'static str {
        match self {
            Answer::AfterS(_) => "yes",
            Answer::Never => "never",
            Answer::Inconclusive => "inconclusive",
        }
    }

    /// The seconds.
    pub fn seconds(self) -> Option<f64> {
        match self {
            Answer::AfterS(seconds) => Some(seconds),
            Answer::Never | Answer::Inconclusive => None,
        }
    }
}
