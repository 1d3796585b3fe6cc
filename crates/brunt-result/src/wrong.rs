//! Details of what went wrong in a run: failed requests by cause, and data that differs from the data written. Loads
//! collect both; summaries, tables and reports show them.
//!
//! The rule: lists are short and say when they are incomplete; counts are always complete.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::op::OpKind;

/// Maximum number of distinct causes per run.
pub const CAUSES_MAX: usize = 32;
/// Maximum number of ranges of wrong data kept per run.
pub const EXTENTS_MAX: usize = 16;

/// Failed requests of one kind with one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorCause {
    /// Kind of operation.
    pub op: OpKind,
    /// How the requests ended, by the names in `losses`: `os`, `scsi`, …
    pub status: String,
    /// The errno with its name, the SCSI status with its sense data, or another message from the device.
    pub cause: String,
    /// Number of these requests.
    pub count: u64,
}

impl std::fmt::Display for ErrorCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} × {}: {}", self.count, self.op, self.cause)
    }
}

/// The cause under which failures beyond [`CAUSES_MAX`] are counted.
pub const OTHER_CAUSES: &str = "other causes";

/// Adds causes to a list.
pub fn merge_causes(causes: &mut Vec<ErrorCause>, others: &[ErrorCause]) {
    for other in others {
        let same = |cause: &&mut ErrorCause| {
            (cause.op, &cause.status, &cause.cause) == (other.op, &other.status, &other.cause)
        };
        if let Some(cause) = causes.iter_mut().find(same) {
            cause.count += other.count;
        } else if causes.len() < CAUSES_MAX {
            causes.push(other.clone());
        } else {
            let rest = ErrorCause {
                cause: OTHER_CAUSES.to_string(),
                ..other.clone()
            };
            let same = |cause: &&mut ErrorCause| {
                (cause.op, &cause.status, &cause.cause) == (rest.op, &rest.status, &rest.cause)
            };
            match causes.iter_mut().find(same) {
                Some(cause) => cause.count += rest.count,
                None => causes.push(rest),
            }
        }
    }
}

/// A range of a device whose data was not what had been written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WrongExtent {
    /// Start, in bytes from the start of the device.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// A description of the data read there.
    pub found: String,
}

impl std::fmt::Display for WrongExtent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {}: {}", self.bytes, self.offset, self.found)
    }
}

/// What verification found in a run, ramp-up included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verified {
    /// Bytes that were read and compared with what had been written there.
    pub checked_bytes: u64,
    /// Bytes of blocks that differed from what had been written; a block counts each time it is read.
    pub wrong_bytes: u64,
    /// The first ranges that were found wrong, in the order in which verification found them.
    pub extents: Vec<WrongExtent>,
    /// Whether there were more ranges than are listed.
    pub more: bool,
}

impl Verified {
    /// Counts bytes that were read and compared.
    pub fn checked(&mut self, bytes: u64) {
        self.checked_bytes += bytes;
    }

    /// Records a wrong block. Adjacent blocks with the same kind of data are merged into one range.
    pub fn wrong(&mut self, offset: u64, bytes: u64, found: impl FnOnce() -> String) {
        self.wrong_bytes += bytes;
        let is_known = self
            .extents
            .iter()
            .any(|extent| (extent.offset..extent.offset + extent.bytes).contains(&offset));
        if is_known {
            return;
        }
        let found = found();
        let before = |extent: &&mut WrongExtent| {
            extent.offset + extent.bytes == offset && extent.found == found
        };
        if let Some(extent) = self.extents.iter_mut().find(before) {
            extent.bytes += bytes;
        } else if self.extents.len() < EXTENTS_MAX {
            self.extents.push(WrongExtent {
                offset,
                bytes,
                found,
            });
        } else {
            self.more = true;
        }
    }

    /// Adds another worker's results.
    pub fn merge(&mut self, other: &Verified) {
        self.checked_bytes += other.checked_bytes;
        self.wrong_bytes += other.wrong_bytes;
        let room = EXTENTS_MAX.saturating_sub(self.extents.len());
        self.more |= other.more || other.extents.len() > room;
        self.extents
            .extend(other.extents.iter().take(room).cloned());
    }

    /// Describes the first few ranges in words.
    pub fn places(&self) -> String {
        const SHOWN: usize = 3;
        let shown = self.extents.iter().take(SHOWN).map(WrongExtent::to_string);
        let more = self.more || self.extents.len() > SHOWN;
        let more = more.then(|| "…".to_string());
        shown.chain(more).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_blocks_that_touch_make_one_range() {
        let mut verified = Verified::default();
        for offset in [4096, 4608, 4096, 8192] {
            verified.checked(512);
            verified.wrong(offset, 512, || "zeros".to_string());
        }
        assert_eq!((verified.checked_bytes, verified.wrong_bytes), (2048, 2048));
        assert_eq!(
            verified.places(),
            "1024 bytes at 4096: zeros; 512 bytes at 8192: zeros"
        );
        for index in 0..100 {
            verified.wrong(1 << 20 | index << 12, 512, || "zeros".to_string());
        }
        assert_eq!((verified.extents.len(), verified.more), (EXTENTS_MAX, true));
        let mut sum = Verified::default();
        sum.merge(&verified);
        sum.merge(&verified);
        assert_eq!((sum.extents.len(), sum.more), (EXTENTS_MAX, true));
        assert_eq!(sum.wrong_bytes, 2 * verified.wrong_bytes);
    }

    #[test]
    fn causes_add_up_however_many_there_are() {
        let cause = |number: usize| ErrorCause {
            op: OpKind::Write,
            status: "scsi".to_string(),
            cause: format!("cause {number}"),
            count: 1,
        };
        let mut causes = Vec::new();
        for number in (0..100).chain(0..100) {
            merge_causes(&mut causes, &[cause(number)]);
        }
        assert_eq!(causes.iter().map(|cause| cause.count).sum::<u64>(), 200);
        assert_eq!(causes.len(), CAUSES_MAX + 1);
    }
}
