//! Handles changes of a unit's medium while it is in use: it grows, shrinks, is deleted, fills up or fails. One of
//! the target's threads polls the medium ([`LogicalUnit::poll_medium`]), and the medium is checked at once when a
//! request fails. The one rule: initiators get a unit attention about a change before any other sign of it, and the
//! operator gets at most one report per [`REPORT_EVERY`] for each kind of failure.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use brunt_block::{DeviceError, Op};
use brunt_core::Nanos;
use brunt_core::units::format_size;

use super::{LogicalUnit, UnitState};
use crate::scsi::attention::Attention;

/// A kind of failure is reported when it begins, then with its count at this interval while it lasts.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// Number of failure kinds that are counted separately; any further kind is counted with the last.
const KINDS_MAX: usize = 16;

/// A change of a medium that the operator should know about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskEvent {
    /// The size of the medium, and thus of the LUN, has changed.
    Resized {
        /// Name of the medium.
        medium: String,
        /// Old size in bytes.
        before: u64,
        /// New size in bytes.
        now: u64,
    },
    /// The medium was deleted or became shorter than a block: the LUN is not ready.
    Lost {
        /// Name of the medium.
        medium: String,
    },
    /// The medium is available again.
    Found {
        /// Name of the medium.
        medium: String,
    },
    /// Requests failed.
    Failed {
        /// Name of the medium.
        medium: String,
        /// Kind of request; `None` for flushes and for commands with several requests.
        op: Option<Op>,
        /// The error.
        error: DeviceError,
        /// Number of failures since the last report.
        count: u64,
        /// Offset of the first of these failures, in bytes.
        offset: u64,
    },
}

impl fmt::Display for DiskEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskEvent::Resized {
                medium,
                before,
                now,
            } => {
                let how = if now > before { "grew" } else { "shrank" };
                write!(
                    f,
                    "{medium} {how} from {} to {}",
                    format_size(*before),
                    format_size(*now)
                )
            }
            DiskEvent::Lost { medium } => {
                write!(
                    f,
                    "{medium} was deleted or truncated to zero; commands fail with NOT READY"
                )
            }
            DiskEvent::Found { medium } => write!(f, "{medium} is usable again"),
            DiskEvent::Failed {
                medium,
                op,
                error,
                count,
                offset,
            } => {
                let what = match (op, count) {
                    (Some(Op::Read), 1) => "read",
                    (Some(Op::Read), _) => "reads",
                    (Some(_), 1) => "write",
                    (Some(_), _) => "writes",
                    (None, 1) => "request",
                    (None, _) => "requests",
                };
                write!(
                    f,
                    "{medium}: {count} {what} failed, the first at {offset}: {error}"
                )
            }
        }
    }
}

/// Pending reports about a medium.
#[derive(Debug, Default)]
pub(super) struct DiskWatch(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    changes: Vec<DiskEvent>,
    failures: Vec<Failure>,
}

/// One kind of failure.
#[derive(Debug)]
struct Failure {
    op: Option<Op>,
    error: DeviceError,
    /// Number of failures not reported yet.
    count: u64,
    offset: u64,
    reported: Option<Nanos>,
}

impl Pending {
    fn count(&mut self, op: Option<Op>, offset: u64, error: &DeviceError) {
        let is_full = self.failures.len() >= KINDS_MAX;
        let known = self
            .failures
            .iter()
            .position(|one| one.op == op && one.error == *error);
        match known.or(is_full.then_some(KINDS_MAX - 1)) {
            Some(index) => {
                let one = &mut self.failures[index];
                if one.count == 0 {
                    one.offset = offset;
                }
                one.count += 1;
            }
            None => self.failures.push(Failure {
                op,
                error: *error,
                count: 1,
                offset,
                reported: None,
            }),
        }
    }

    fn due(&mut self, medium: &str, now: Nanos) -> Vec<DiskEvent> {
        let mut events = std::mem::take(&mut self.changes);
        for one in &mut self.failures {
            let waits = one.reported.is_some_and(|at| now.since(at) < REPORT_EVERY);
            if one.count > 0 && !waits {
                one.reported = Some(now);
                let (op, error, offset) = (one.op, one.error, one.offset);
                let count = std::mem::take(&mut one.count);
                events.push(DiskEvent::Failed {
                    medium: medium.to_string(),
                    op,
                    error,
                    count,
                    offset,
                });
            }
        }
        // Drop a kind that hasn't been reported for [`REPORT_EVERY`]; its next failure is then reported at once.
        self.failures.retain(|one| {
            one.count > 0 || one.reported.is_some_and(|at| now.since(at) < REPORT_EVERY)
        });
        events
    }
}

impl LogicalUnit {
    /// Checks whether the medium has changed, and returns the reports that are due. May block on the file system.
    pub fn poll_medium(&self) -> Vec<DiskEvent> {
        self.check_medium();
        let now = self.options.clock.now();
        self.watch().due(&self.backend.info().name, now)
    }

    /// Records a failed request to the medium.
    #[cold]
    pub(in crate::scsi) fn disk_failed(&self, op: Option<Op>, offset: u64, error: &DeviceError) {
        // Intentional refusals (an injected fault, another target's LUN) are reported elsewhere.
        let is_trouble = match error {
            DeviceError::Os(code) => *code != libc::EOPNOTSUPP,
            DeviceError::TimedOut | DeviceError::Gone => true,
            DeviceError::Refused { .. } | DeviceError::OutOfRange | DeviceError::Unsupported => {
                false
            }
        };
        if is_trouble {
            self.watch().count(op, offset, error);
        }
        // The medium may have been shortened.
        self.check_medium();
    }

    fn check_medium(&self) {
        let look = self.backend.medium_state();
        let block_bytes = u64::from(self.shape.block_bytes);
        let blocks = look.size_bytes / block_bytes;
        let lost = look.deleted || blocks == 0;
        let mut state = self.state();
        let before = self.blocks();
        // An empty medium has no valid capacity, so keep the previous one.
        let blocks = if blocks == 0 { before } else { blocks };
        if (blocks, lost) != (before, state.medium_lost) {
            self.medium_changed(&mut state, before, blocks, lost);
        }
    }

    fn medium_changed(&self, state: &mut UnitState, before: u64, blocks: u64, lost: bool) {
        let medium = || self.backend.info().name.clone();
        let mut watch = self.watch();
        if blocks != before {
            self.blocks.store(blocks, Ordering::Relaxed);
            for entry in &mut state.nexuses {
                entry.attentions.push(Attention::CapacityDataHasChanged);
            }
            let bytes = |blocks| blocks * u64::from(self.shape.block_bytes);
            let (before, now) = (bytes(before), bytes(blocks));
            watch.changes.push(DiskEvent::Resized {
                medium: medium(),
                before,
                now,
            });
        }
        if lost != state.medium_lost {
            state.medium_lost = lost;
            let event = if lost {
                DiskEvent::Lost { medium: medium() }
            } else {
                DiskEvent::Found { medium: medium() }
            };
            watch.changes.push(event);
        }
        drop(watch);
        self.refresh(state);
    }

    fn watch(&self) -> std::sync::MutexGuard<'_, Pending> {
        self.disk.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_failure_is_reported_at_once_and_then_counted() {
        let mut pending = Pending::default();
        let full = DeviceError::Os(libc::ENOSPC);
        let seconds = |seconds: u64| Nanos(seconds * 1_000_000_000);
        let said = |pending: &mut Pending, at| -> Vec<String> {
            pending
                .due("disk", seconds(at))
                .iter()
                .map(ToString::to_string)
                .collect()
        };
        pending.count(Some(Op::Write), 4096, &full);
        let full_text = "No space left on device (os error 28)";
        assert_eq!(
            said(&mut pending, 1),
            [format!(
                "disk: 1 write failed, the first at 4096: {full_text}"
            )]
        );
        for offset in 0..1000 {
            pending.count(Some(Op::Write), 8192 + offset, &full);
        }
        assert!(said(&mut pending, 2).is_empty());
        pending.count(None, 0, &DeviceError::Gone);
        assert_eq!(
            said(&mut pending, 3),
            ["disk: 1 request failed, the first at 0: the device is gone"]
        );
        assert_eq!(
            said(&mut pending, 11),
            [format!(
                "disk: 1000 writes failed, the first at 8192: {full_text}"
            )]
        );
        assert!(said(&mut pending, 30).is_empty() && pending.failures.is_empty());
        for code in 1..100 {
            pending.count(None, 0, &DeviceError::Os(code));
        }
        assert_eq!(said(&mut pending, 31).len(), KINDS_MAX);
    }
}
