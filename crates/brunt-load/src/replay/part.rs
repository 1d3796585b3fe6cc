//! A host's part of a replay that is shared by several hosts: its meter's data, sent to the controller, which judges
//! all parts as a single replay.
//!
//! The rule: digests, counts and histograms are added, nothing is averaged; times are relative to the start, which is
//! the same moment on all hosts.

use brunt_core::Nanos;
use brunt_result::replay::LateRequests;
use serde::{Deserialize, Serialize};

use super::feeder::RowCounts;
use super::meter::Meter;
use crate::load::WorkloadError;

/// Maximum length of a host's text.
const TEXT_BYTES_MAX: usize = 1000;

/// The results of a host's part of a replay.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplayPart {
    pub meter: Meter,
    /// Number of changed rows, by kind of change.
    pub rows: RowCounts,
    /// Why reading the trace failed before its end, if it did.
    pub failure: Option<String>,
}

/// Why a host's part is unusable.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// The text is not a part of a replay.
    #[error("its part of the replay cannot be read: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The numbers are impossible.
    #[error("its part of the replay contains impossible figures")]
    Impossible,
}

impl ReplayPart {
    /// Serializes a part for the controller.
    pub fn text(meter: &Meter, counts: &RowCounts, failure: Option<&WorkloadError>) -> String {
        let part = ReplayPart {
            meter: meter.since_start(),
            rows: counts.clone(),
            failure: failure.map(|failure| failure.what.clone()),
        };
        serde_json::to_string(&part).expect("counts and histograms can be written")
    }

    /// Parses a host's part. `devices` is the number of devices that have their own figures.
    ///
    /// # Errors
    /// The text is not a part of a replay, or its numbers are impossible.
    pub fn read(text: &str, devices: usize) -> Result<ReplayPart, PartError> {
        let part: ReplayPart = serde_json::from_str(text)?;
        // The text is shown to people, so it must be short and have no control characters.
        let is_plain =
            |text: &String| text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control);
        let possible =
            part.meter.is_possible(devices) && part.failure.as_ref().is_none_or(is_plain);
        if possible {
            Ok(part)
        } else {
            Err(PartError::Impossible)
        }
    }

    /// Adds another host's part.
    pub fn merge(&mut self, other: &ReplayPart) {
        self.meter.merge(&other.meter);
        for (change, count) in &other.rows {
            let sum = self.rows.entry(*change).or_default();
            *sum = sum.saturating_add(*count);
        }
        self.failure = self.failure.take().or_else(|| other.failure.clone());
    }
}

impl Meter {
    /// Returns a copy whose times are relative to the start.
    fn since_start(&self) -> Meter {
        let start = self.started();
        let since = |at: Nanos| Nanos(at.0.saturating_sub(start.0));
        let both = |(due, sent): (Nanos, Nanos)| (since(due), since(sent));
        let mut meter = self.clone();
        (meter.first, meter.last) = (self.first.map(both), both(self.last));
        meter.starts(Nanos(0));
        meter
    }

    /// Adds another host's measurements of the same replay.
    fn merge(&mut self, other: &Meter) {
        self.merge_counts(other);
        self.ended &= other.ended;
        self.errors.merge(&other.errors);
        self.gaps_due.merge(&other.gaps_due);
        self.gaps_sent.merge(&other.gaps_sent);
        // A host that sent no first request has no last request to merge.
        if let Some(first) = other.first {
            self.last = if self.first.is_some() {
                self.last.max(other.last)
            } else {
                other.last
            };
            self.first = Some(self.first.map_or(first, |own| own.min(first)));
        }
        let LateRequests {
            worker,
            reader,
            device,
            depth,
            conflict,
        } = other.late;
        let own = &mut self.late;
        let sums = [
            (&mut own.worker, worker),
            (&mut own.reader, reader),
            (&mut own.device, device),
            (&mut own.depth, depth),
            (&mut own.conflict, conflict),
        ];
        sums.into_iter()
            .for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self.merge_moments(other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::feeder::RowChange;

    /// A host identifies changes of rows by names that code can match, never by text meant for people.
    #[test]
    fn changes_of_rows_have_names() {
        let counts = RowCounts::from([(RowChange::Wrapped, 3), (RowChange::InPieces, 1)]);
        let text = serde_json::to_string(&counts).unwrap();
        assert_eq!(text, r#"{"wrapped":3,"in-pieces":1}"#);
        assert_eq!(serde_json::from_str::<RowCounts>(&text).unwrap(), counts);
        assert!(serde_json::from_str::<RowCounts>(r#"{"moved: wrapped":3}"#).is_err());
    }
}
