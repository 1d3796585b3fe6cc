//! Tracks the request record of a host's part of a run: how many requests there are, how many have arrived, and how
//! many are lost. Driven by the host's thread ([`super::host_thread`]) after the workers have ended.
//!
//! The rule: only a few pieces are in flight at once, so that clock replies never wait long behind them.

use brunt_protocol::RecordEnd;
use brunt_result::hosts::RequestsLost;

/// Maximum number of outstanding requests for pieces: enough to hide a round trip.
const PIECES: u32 = 4;

/// The request record of a host's part of a run, if it keeps one.
#[derive(Debug, Default)]
pub(super) struct FetchedRecord {
    /// What the host reported about the record.
    end: Option<RecordEnd>,
    arrived: u64,
    /// Pieces that were requested but have not arrived.
    asked: u32,
}

impl FetchedRecord {
    /// The host reported how many requests there are.
    pub fn announce(&mut self, end: RecordEnd) {
        self.end = Some(end);
    }

    /// The number of pieces to request now. Each contains at most `piece` requests.
    pub fn wants(&mut self, piece: u64) -> u32 {
        let left = self
            .end
            .as_ref()
            .map_or(0, |end| end.kept.saturating_sub(self.arrived));
        let pieces = u32::try_from(left.div_ceil(piece))
            .unwrap_or(u32::MAX)
            .min(PIECES);
        let more = pieces.saturating_sub(self.asked);
        self.asked += more;
        more
    }

    /// Accepts a piece.
    pub fn take(&mut self, requests: u64) {
        self.asked = self.asked.saturating_sub(1);
        self.arrived += requests;
    }

    /// Whether everything that the host has recorded has arrived.
    pub fn is_whole(&self) -> bool {
        self.end
            .as_ref()
            .is_some_and(|end| self.arrived >= end.kept)
    }

    /// How many requests are missing, and why. `completed` is the number of requests counted in the host's intervals;
    /// `lost` is why the host was lost, if it was lost.
    pub fn lost(&self, completed: u64, lost: Option<&str>) -> Option<RequestsLost> {
        let (count, why) = match (&self.end, lost) {
            (Some(end), Some(lost)) => (end.kept.saturating_sub(self.arrived) + end.lost, lost),
            (Some(end), None) => (end.lost, end.why.as_str()),
            (None, lost) => (
                completed,
                lost.unwrap_or("the host did not report the number of recorded requests"),
            ),
        };
        (count > 0).then(|| RequestsLost {
            count,
            why: why.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_requested_until_all_have_arrived() {
        let mut record = FetchedRecord::default();
        assert_eq!(
            (record.wants(100), record.is_whole()),
            (0, false),
            "their number is unknown"
        );
        record.announce(RecordEnd {
            kept: 530,
            lost: 0,
            why: String::new(),
        });
        assert_eq!([record.wants(100), record.wants(100)], [4, 0]);
        record.take(100);
        assert_eq!(record.wants(100), 1);
        for left in [330, 230, 130, 30] {
            record.take(100);
            assert_eq!(530 - record.arrived, left);
            record.wants(100);
        }
        assert!(!record.is_whole() && record.asked == 1);
        record.take(30);
        assert!(record.is_whole() && record.wants(100) == 0);
        assert_eq!(record.lost(530, None), None);
    }

    /// Requests lost because of a full disk or a dead host are counted, with the reason.
    #[test]
    fn missing_requests_are_counted_with_the_reason() {
        let lost = |end: Option<RecordEnd>, arrived, why: Option<&str>| {
            FetchedRecord {
                end,
                arrived,
                asked: 0,
            }
            .lost(900, why)
            .map(|lost| (lost.count, lost.why))
        };
        let full = || {
            Some(RecordEnd {
                kept: 700,
                lost: 200,
                why: "full".into(),
            })
        };
        assert_eq!(lost(full(), 700, None), Some((200, "full".into())));
        assert_eq!(
            lost(full(), 500, Some("it died")),
            Some((400, "it died".into()))
        );
        assert_eq!(
            lost(None, 0, Some("it died")),
            Some((900, "it died".into()))
        );
    }
}
