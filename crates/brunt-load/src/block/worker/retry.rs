//! Decides whether a failed attempt is retried. Pure.

use std::time::Duration;

use brunt_block::{DeviceError, RefusalKind};

use crate::block::workload::{Retry, RetryOn};

/// The workload's `retry` settings.
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

    /// Returns true if a request with this many retries gets another attempt after this error.
    pub(super) fn again(&self, attempts: u32, error: &DeviceError) -> bool {
        attempts < self.count
            && *error != DeviceError::Gone
            && (self.on == RetryOn::Any || is_transient(error))
    }
}

/// Returns true for temporary failures.
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
