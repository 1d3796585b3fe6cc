//! The trait [`Recorder`], through which a load outputs its results; files, terminals and web pages implement it. The
//! results themselves are plain data from `brunt_result`.

use brunt_block::{DeviceError, Op};
use brunt_result::{Interval, OpKind, RequestRecord, RequestStatus};

/// Returns the request status for a device's error.
pub fn status_of(error: &DeviceError) -> RequestStatus {
    match error {
        DeviceError::Refused { .. } => RequestStatus::Scsi,
        DeviceError::Os(_) => RequestStatus::Os,
        DeviceError::OutOfRange => RequestStatus::OutOfRange,
        DeviceError::TimedOut => RequestStatus::TimedOut,
        DeviceError::Gone => RequestStatus::Gone,
        DeviceError::Unsupported => RequestStatus::Unsupported,
    }
}

/// Returns the kind of a device's operation.
#[inline]
pub const fn kind_of(op: Op) -> OpKind {
    match op {
        Op::Read => OpKind::Read,
        Op::Write => OpKind::Write,
        Op::Flush => OpKind::Flush,
        Op::Unmap => OpKind::Unmap,
        Op::WriteZeroes => OpKind::WriteZeroes,
    }
}

/// Receives figures during the run. Called between batches, so the time it takes delays requests.
pub trait Recorder {
    /// An interval has ended.
    fn interval(&mut self, interval: &Interval);

    /// More requests have ended; called only if the workload has `record_requests`.
    fn requests(&mut self, _batch: &[RequestRecord]) {}

    /// In a load with several jobs, an interval of one job has ended; intervals of all jobs combined are passed to
    /// [`Recorder::interval`].
    fn job_interval(&mut self, _job: usize, _interval: &Interval) {}

    /// More requests of a job have ended. These are not also passed to [`Recorder::requests`].
    fn job_requests(&mut self, _job: usize, _batch: &[RequestRecord]) {}

    /// All workers are ready and start at `start`; measuring begins after ramp-up.
    fn starts(&mut self, _start: brunt_core::Nanos) {}

    /// Returns true if nothing more can be recorded (a full disk); the run then ends as if interrupted.
    fn is_full(&self) -> bool {
        false
    }
}

/// Records nothing, for callers that only need the outcome.
pub struct NoRecorder;

impl Recorder for NoRecorder {
    fn interval(&mut self, _interval: &Interval) {}
}
