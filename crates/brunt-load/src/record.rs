//! How results leave a load: the trait [`Recorder`], implemented by files, terminals and web pages. The
//! results themselves are plain data of `brunt_result`.

use brunt_block::{DeviceError, Op};
use brunt_result::{Interval, OpKind, RequestRecord, RequestStatus};

/// The status that stands for a device's error.
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

/// The kind of a device's operation.
#[inline]
pub fn kind_of(op: Op) -> OpKind {
    match op {
        Op::Read => OpKind::Read,
        Op::Write => OpKind::Write,
        Op::Flush => OpKind::Flush,
        Op::Unmap => OpKind::Unmap,
        Op::WriteZeroes => OpKind::WriteZeroes,
    }
}

/// Takes the figures as the run goes. Called between batches: what it does delays requests.
pub trait Recorder {
    /// An interval is over.
    fn interval(&mut self, interval: &Interval);

    /// Some more requests ended; only when the workload has `record_requests`.
    fn requests(&mut self, _batch: &[RequestRecord]) {}

    /// An interval of one job is over, of a load of several; those of all together come through
    /// [`Recorder::interval`].
    fn job_interval(&mut self, _job: usize, _interval: &Interval) {}

    /// Some more requests of one job ended. They are not told of again through [`Recorder::requests`].
    fn job_requests(&mut self, _job: usize, _batch: &[RequestRecord]) {}

    /// All workers are ready and start at `start`; measuring begins when ramp-up is over.
    fn starts(&mut self, _start: brunt_core::Nanos) {}

    /// Nothing more can be taken (a full disk): the run ends as if it had been interrupted.
    fn is_full(&self) -> bool {
        false
    }
}

/// Takes nothing; the outcome says it all.
pub struct NoRecorder;

impl Recorder for NoRecorder {
    fn interval(&mut self, _interval: &Interval) {}
}
