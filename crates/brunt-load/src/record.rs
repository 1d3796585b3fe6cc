//! What a run saw: figures for each interval and for all of it, and the trait through which they
//! leave. Files, terminals and web pages implement [`Recorder`]; nothing here knows them.

use std::time::Duration;

use brunt_block::{DeviceError, Op};
use brunt_core::{Histogram, Nanos};
use serde::{Deserialize, Serialize};

use crate::cost::Cost;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestStatus {
    /// Done, if need be after retries.
    Good,
    /// The device said so with a SCSI status.
    Scsi,
    /// The operating system refused.
    Os,
    /// Outside the device.
    OutOfRange,
    /// Given up after the workload's time-out, or the device's.
    TimedOut,
    /// The device is gone.
    Gone,
    /// The device cannot do this.
    Unsupported,
    /// Read data was not what had been written.
    Miscompare,
    /// Not answered when the run ended.
    Hanging,
    /// Due but not sent within the workload's `skip_after`, or before the end.
    Skipped,
}

impl RequestStatus {
    /// All, in the order of [`Counts::by_status`].
    pub const ALL: [RequestStatus; 10] = [
        RequestStatus::Good,
        RequestStatus::Scsi,
        RequestStatus::Os,
        RequestStatus::OutOfRange,
        RequestStatus::TimedOut,
        RequestStatus::Gone,
        RequestStatus::Unsupported,
        RequestStatus::Miscompare,
        RequestStatus::Hanging,
        RequestStatus::Skipped,
    ];

    /// The status that stands for a device's error.
    pub fn of(error: &DeviceError) -> RequestStatus {
        match error {
            DeviceError::Refused { .. } => RequestStatus::Scsi,
            DeviceError::Os(_) => RequestStatus::Os,
            DeviceError::OutOfRange => RequestStatus::OutOfRange,
            DeviceError::TimedOut => RequestStatus::TimedOut,
            DeviceError::Gone => RequestStatus::Gone,
            DeviceError::Unsupported => RequestStatus::Unsupported,
        }
    }
}

/// Every single request, when the workload asks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// Whose it was.
    pub worker: u32,
    /// Its place in the worker's sequence.
    pub index: u64,
    /// `Read` or `Write`.
    pub op: Op,
    /// In bytes.
    pub offset: u64,
    /// In bytes.
    pub len: u64,
    /// When it was due (open loop) or made (closed loop).
    pub intended: Nanos,
    /// When its last attempt was handed to the device; `None` if it never was.
    pub sent: Option<Nanos>,
    /// When its last attempt came back; `None` if it never did.
    pub completed: Option<Nanos>,
    /// Attempts after the first.
    pub retries: u32,
    /// How it ended.
    pub status: RequestStatus,
}

/// Counters and histograms of one kind of operation.
#[derive(Clone, Debug, Default)]
pub struct OpFigures {
    /// Requests that were done.
    pub completed: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of `completed`, those that came after the end of measuring: their latency counts, their
    /// throughput does not.
    pub late: u64,
    /// The bytes of `late`.
    pub late_bytes: u64,
    /// Attempts after the first, of all requests.
    pub retries: u64,
    /// Attempts that were given up by the workload's time-out.
    pub timeouts: u64,
    /// From the last sending to the completion, of completed requests.
    pub service: Histogram,
    /// From the intended time to the completion, retries included, of completed requests.
    pub response: Histogram,
}

/// Counts by how requests ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// In the order of [`RequestStatus::ALL`].
    pub by_status: [u64; RequestStatus::ALL.len()],
}

impl Counts {
    /// How many ended so.
    pub fn of(&self, status: RequestStatus) -> u64 {
        self.by_status[status as usize]
    }

    /// Requests that were answered, but not well.
    pub fn errors(&self) -> u64 {
        let not_errors = [RequestStatus::Good, RequestStatus::Hanging, RequestStatus::Skipped];
        self.by_status.iter().sum::<u64>() - not_errors.iter().map(|status| self.of(*status)).sum::<u64>()
    }
}

/// What happened in an interval, or in all of a run. Mergeable: over intervals, workers and hosts.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Reads.
    pub reads: OpFigures,
    /// Writes.
    pub writes: OpFigures,
    /// How requests ended.
    pub counts: Counts,
    /// What measuring cost, all workers together.
    pub cost: Cost,
}

impl OpFigures {
    fn merge(&mut self, other: &OpFigures) {
        self.completed += other.completed;
        self.bytes += other.bytes;
        self.late += other.late;
        self.late_bytes += other.late_bytes;
        self.retries += other.retries;
        self.timeouts += other.timeouts;
        self.service.merge(&other.service);
        self.response.merge(&other.response);
    }

    fn clear(&mut self) {
        (self.completed, self.bytes, self.late, self.late_bytes) = (0, 0, 0, 0);
        (self.retries, self.timeouts) = (0, 0);
        self.service.clear();
        self.response.clear();
    }
}

impl Figures {
    /// Adds another part's.
    pub fn merge(&mut self, other: &Figures) {
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        for (count, more) in self.counts.by_status.iter_mut().zip(other.counts.by_status) {
            *count += more;
        }
        self.cost.add(&other.cost);
    }

    /// Empty again, memory kept.
    pub fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.counts = Counts::default();
        self.cost = Cost::default();
    }

    /// The figures of one kind of operation.
    #[inline]
    pub fn op(&mut self, op: Op) -> &mut OpFigures {
        if op == Op::Read { &mut self.reads } else { &mut self.writes }
    }

    /// Requests that were done.
    pub fn completed(&self) -> u64 {
        self.reads.completed + self.writes.completed
    }

    /// Requests that were done while it was measured: what throughput is made of.
    pub fn completed_in_time(&self) -> u64 {
        self.completed() - self.reads.late - self.writes.late
    }

    /// The bytes of [`Figures::completed_in_time`].
    pub fn bytes_in_time(&self) -> u64 {
        self.reads.bytes + self.writes.bytes - self.reads.late_bytes - self.writes.late_bytes
    }

    /// Response times of reads and writes together.
    pub fn response(&self) -> Histogram {
        let mut all = self.reads.response.clone();
        all.merge(&self.writes.response);
        all
    }

    /// Service times of reads and writes together.
    pub fn service(&self) -> Histogram {
        let mut all = self.reads.service.clone();
        all.merge(&self.writes.service);
        all
    }
}

/// A stretch of a run, and what happened in it.
#[derive(Clone, Debug)]
pub struct Interval {
    /// From 0, from the end of ramp-up by time on.
    pub index: u64,
    /// Its begin.
    pub start: Nanos,
    /// Its end; the last one may be short.
    pub end: Nanos,
    /// What happened. A request belongs to the interval in which it was completed.
    pub figures: Figures,
}

/// Why a worker, or a run, stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stopped {
    /// Its requests, bytes or time were used up.
    Done,
    /// The throughput became steady.
    Steady,
    /// The throughput did not become steady in the rounds it had.
    NotSteady,
    /// Somebody stopped it: the results are what there was until then.
    Interrupted,
    /// The device is gone.
    DeviceGone,
}

/// The first thing that went wrong, for the message to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstError {
    /// What the device said; `None` for a miscompare.
    pub error: Option<DeviceError>,
    /// The operation.
    pub op: Op,
    /// In bytes.
    pub offset: u64,
    /// In bytes.
    pub len: u64,
}

impl std::fmt::Display for FirstError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let op = if self.op == Op::Read { "read" } else { "write" };
        write!(f, "{op} of {} bytes at {}: ", self.len, self.offset)?;
        match &self.error {
            Some(error) => error.fmt(f),
            None => f.write_str("the data is not what was written there"),
        }
    }
}

/// All of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What happened while it was measured.
    pub figures: Figures,
    /// When measuring began, on the earliest worker.
    pub start: Nanos,
    /// When it ended, on the last worker; waiting for outstanding requests is not part of it.
    pub end: Nanos,
    /// Requests a second: the sum of each worker's own.
    pub requests_per_second: f64,
    /// Bytes a second, likewise.
    pub bytes_per_second: f64,
    /// Why it ended.
    pub stopped: Stopped,
    /// The first thing that went wrong.
    pub first_error: Option<FirstError>,
    /// How long workers stood still because their figures were not taken fast enough, all together.
    pub recording_wait: Duration,
}

impl Outcome {
    /// Of a run that was stopped before it began.
    pub fn interrupted() -> Outcome {
        Outcome {
            figures: Figures::default(),
            start: Nanos::MAX,
            end: Nanos(0),
            requests_per_second: 0.0,
            bytes_per_second: 0.0,
            stopped: Stopped::Interrupted,
            first_error: None,
            recording_wait: Duration::ZERO,
        }
    }

    /// Whether it ran as it was meant to.
    pub fn is_complete(&self) -> bool {
        !matches!(self.stopped, Stopped::Interrupted | Stopped::DeviceGone)
    }

    /// Takes in another worker of the same run.
    pub fn merge(&mut self, other: &Outcome) {
        self.figures.merge(&other.figures);
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
        self.requests_per_second += other.requests_per_second;
        self.bytes_per_second += other.bytes_per_second;
        self.stopped = self.stopped.max(other.stopped);
        self.first_error = self.first_error.or(other.first_error);
        self.recording_wait += other.recording_wait;
    }
}

/// Takes the figures as the run goes. Called between batches: what it does delays requests.
pub trait Recorder {
    /// An interval is over.
    fn interval(&mut self, interval: &Interval);

    /// Some more requests ended; only when the workload has `record_requests`.
    fn requests(&mut self, _batch: &[RequestRecord]) {}

    /// All workers are ready and start at `start`; measuring begins when ramp-up is over.
    fn starts(&mut self, _start: Nanos) {}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// The goal: a status finds its own counter.
    #[test]
    fn statuses_index_their_counters() {
        for (index, status) in RequestStatus::ALL.into_iter().enumerate() {
            assert_eq!(status as usize, index);
        }
    }
}
