//! Defines a transfer: a read, write, flush or unmap request whose reply reports success. Analyses
//! of captures, block traces derived from them, and replays share this definition; the SQL queries
//! and the Python package express it as `status = 0`. The one rule: omitted requests are counted,
//! by reason.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The outcome of a data request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransferOutcome {
    /// The reply reports success: a transfer.
    Moved,
    /// The reply reports an error.
    Failed,
    /// A reply was seen without its status, which was lost or truncated.
    StatusUnseen,
    /// No reply was seen.
    Unanswered,
}

impl TransferOutcome {
    /// Derives the outcome from the status, if one was seen (0 is success in every protocol), and
    /// from whether a reply was seen.
    #[inline]
    pub fn of(status: Option<u32>, answered: bool) -> TransferOutcome {
        match status {
            Some(0) => TransferOutcome::Moved,
            Some(_) => TransferOutcome::Failed,
            None if answered => TransferOutcome::StatusUnseen,
            None => TransferOutcome::Unanswered,
        }
    }

    /// Whether this outcome is a transfer.
    #[inline]
    pub fn is_transfer(self) -> bool {
        self == TransferOutcome::Moved
    }
}

/// Data requests that aren't transfers, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutTransfers {
    /// The reply reported an error.
    pub failed: u64,
    /// The reply's status was not captured.
    pub status_unseen: u64,
    /// The reply was not captured.
    pub unanswered: u64,
}

impl LeftOutTransfers {
    /// Counts a request, unless it was a transfer.
    #[inline]
    pub fn add(&mut self, outcome: TransferOutcome) {
        match outcome {
            TransferOutcome::Moved => {}
            TransferOutcome::Failed => self.failed += 1,
            TransferOutcome::StatusUnseen => self.status_unseen += 1,
            TransferOutcome::Unanswered => self.unanswered += 1,
        }
    }

    /// Adds the counts of another part.
    pub fn merge(&mut self, other: &LeftOutTransfers) {
        self.failed += other.failed;
        self.status_unseen += other.status_unseen;
        self.unanswered += other.unanswered;
    }

    /// The total over all reasons.
    pub fn total(&self) -> u64 {
        self.failed + self.status_unseen + self.unanswered
    }

    /// Each reason that occurred, with its count.
    pub fn reasons(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [
            ("failed", self.failed),
            (
                "answered with a status that was not captured",
                self.status_unseen,
            ),
            ("without an answer in the capture", self.unanswered),
        ];
        all.into_iter().filter(|(_, count)| *count > 0)
    }
}

impl fmt::Display for LeftOutTransfers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (reason, count)) in self.reasons().enumerate() {
            let separator = if index > 0 { ", " } else { "" };
            let count = crate::units::format_grouped(count as f64);
            write!(f, "{separator}{count} {reason}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_status_of_success_makes_a_transfer() {
        let mut left_out = LeftOutTransfers::default();
        for (status, answered, is_transfer) in [
            (Some(0), true, true),
            (Some(70), true, false),
            (None, true, false),
            (None, false, false),
        ] {
            let outcome = TransferOutcome::of(status, answered);
            assert_eq!(outcome.is_transfer(), is_transfer, "{status:?} {answered}");
            left_out.add(outcome);
        }
        assert_eq!((left_out.total(), left_out.failed), (3, 1));
        assert_eq!(
            left_out.to_string(),
            "1 failed, 1 answered with a status that was not captured, 1 without an answer in the capture"
        );
    }
}
