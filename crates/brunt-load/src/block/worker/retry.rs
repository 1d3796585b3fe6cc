//! What is done about a failed attempt: made again or given up. Pure.

use std::time::Duration;

use brunt_block::{DeviceError, RefusalKind};

use crate::block::workload::{Retry, RetryOn};

/// The workload's `retry`.
pub(super) struct RetryRules {
    count: u32,
    pub(super) delay: Duration,
    on: RetryOn,
}

impl RetryRules {
    pub(super) fn new(retry: &Retry) -> RetryRules {
        RetryRules {
            count: retry.count,
            delay: retry.delay.0,
            on: retry.on,
        }
    }

    /// Whether a request that was tried again so often already gets another attempt after this.
    pub(super) fn again(&self, attempts: u32, error: &DeviceError) -> bool {
        attempts < self.count
            && *error != DeviceError::Gone
            && (self.on == RetryOn::Any || is_transient(error))
    }
}

/// Failures that say "not now".
fn is_transient(error: &DeviceError) -> bool {
    match error {
        DeviceError::Refused { kind, .. } => matches!(
            kind,
            RefusalKind::Busy
                | RefusalKind::QueueFull
                | RefusalKind::Cancelled
                | RefusalKind::NotReady
                | RefusalKind::Attention
                | RefusalKind::Aborted
        ),
        DeviceError::Os(errno) => {
            matches!(
                *errno,
                libc::EAGAIN | libc::EINTR | libc::EBUSY | libc::ETIMEDOUT
            )
        }
        DeviceError::TimedOut => true,
        _ => false,
    }
}
