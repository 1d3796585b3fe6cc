//! Results of a run: figures for each interval and for the whole run, by kind of operation. A load fills
//! them; everything that shows or stores results reads them.
//!
//! The rule: merge figures over intervals, workers and hosts; never average derived values.

use std::time::Duration;

use brunt_core::{Histogram, Nanos};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::cost::Cost;
use crate::hosts::CommonTime;
use crate::op::{OpKind, TABLE};
use crate::wrong::{ErrorCause, Verified, merge_causes};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestStatus {
    /// Succeeded, possibly after retries.
    Good,
    /// The device reported an error with a SCSI status.
    Scsi,
    /// The operating system reported an error.
    Os,
    /// The address is outside the device.
    OutOfRange,
    /// Abandoned after the timeout of the workload or of the device.
    TimedOut,
    /// The device is gone.
    Gone,
    /// The device doesn't support the operation.
    Unsupported,
    /// Read data differs from the data written.
    Miscompare,
    /// Unanswered when the run ended.
    Hanging,
    /// Due, but not sent within the workload's `skip_after` or before the end of the run.
    Skipped,
}

impl RequestStatus {
    /// All statuses, in the order of [`Counts::by_status`].
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

    /// Name in files and tables: `out-of-range`.
    pub fn name(self) -> &'static str {
        match self {
            RequestStatus::Good => "good",
            RequestStatus::Scsi => "scsi",
            RequestStatus::Os => "os",
            RequestStatus::OutOfRange => "out-of-range",
            RequestStatus::TimedOut => "timed-out",
            RequestStatus::Gone => "gone",
            RequestStatus::Unsupported => "unsupported",
            RequestStatus::Miscompare => "miscompare",
            RequestStatus::Hanging => "hanging",
            RequestStatus::Skipped => "skipped",
        }
    }
}

/// A single request, recorded if the workload asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Worker that sent the request.
    pub worker: u32,
    /// Position in the worker's sequence.
    pub index: u64,
    /// Kind of operation.
    pub op: OpKind,
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// When the request was due (open loop) or issued (closed loop).
    pub intended: Nanos,
    /// When the request's last attempt was submitted to the device; `None` if it never was.
    pub sent: Option<Nanos>,
    /// When the request's last attempt completed; `None` if it never did.
    pub completed: Option<Nanos>,
    /// Retries.
    pub retries: u32,
    /// How the request ended.
    pub status: RequestStatus,
}

/// Counters and histograms of one kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpFigures {
    /// Completed requests.
    pub completed: u64,
    /// Bytes covered by these requests: transferred by reads and writes, deallocated by unmaps, zeroed by
    /// write-zeroes.
    pub bytes: u64,
    /// Requests of `completed` that completed after the end of measuring: they count for latency, but not for
    /// throughput.
    pub late: u64,
    /// Bytes of the requests in `late`.
    pub late_bytes: u64,
    /// Attempts after the first, over all requests.
    pub retries: u64,
    /// Attempts abandoned because of the workload's timeout.
    pub timeouts: u64,
    /// From the last submission to the completion, for completed requests.
    pub service: Histogram,
    /// From the intended time to the completion, including retries, for completed requests.
    pub response: Histogram,
}

/// Numbers of requests by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Numbers in the order of [`RequestStatus::ALL`].
    pub by_status: [u64; RequestStatus::ALL.len()],
}

impl Counts {
    /// Number of requests with this status.
    pub fn of(&self, status: RequestStatus) -> u64 {
        self.by_status[status as usize]
    }

    /// Requests that were answered with an error.
    pub fn errors(&self) -> u64 {
        let not_errors = [
            RequestStatus::Good,
            RequestStatus::Hanging,
            RequestStatus::Skipped,
        ];
        self.by_status.iter().sum::<u64>()
            - not_errors
                .iter()
                .map(|status| self.of(*status))
                .sum::<u64>()
    }
}

/// Figures of an interval or of a whole run, by kind of operation. Can be merged over intervals, workers and hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Each kind once, in the load's order.
    #[serde(deserialize_with = "each_kind_once")]
    ops: Vec<(OpKind, OpFigures)>,
    /// Numbers of requests by status.
    pub counts: Counts,
    /// Cost of measuring, over all workers.
    pub cost: Cost,
    /// Total time that requests were in flight, in nanoseconds, including requests that have not completed yet.
    /// Divided by the elapsed time, this is the mean number of requests in flight.
    pub in_flight_nanos: u64,
}

/// Limits a list from a peer to the number of kinds that exist, because a histogram takes far more memory than its
/// text.
fn each_kind_once<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<(OpKind, OpFigures)>, D::Error> {
    struct Each;
    impl<'de> serde::de::Visitor<'de> for Each {
        type Value = Vec<(OpKind, OpFigures)>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("figures for different kinds of operations")
        }
        fn visit_seq<A: serde::de::SeqAccess<'de>>(
            self,
            mut list: A,
        ) -> Result<Self::Value, A::Error> {
            let mut ops: Self::Value = Vec::new();
            while let Some((kind, figures)) = list.next_element()? {
                if ops.iter().any(|(known, _)| *known == kind) {
                    return Err(serde::de::Error::custom(format_args!(
                        "{kind} appears twice"
                    )));
                }
                ops.push((kind, figures));
            }
            assert!(ops.len() <= TABLE.len());
            Ok(ops)
        }
    }
    from.deserialize_seq(Each)
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

    /// Whether no request was completed, retried or timed out.
    pub fn is_empty(&self) -> bool {
        self.completed + self.retries + self.timeouts == 0
    }
}

impl Figures {
    /// Empty figures for a load that makes these kinds of operations. Allocates the memory for their histograms now:
    /// half a megabyte for each kind.
    ///
    /// # Panics
    /// `kinds` contains a kind twice.
    pub fn of_kinds(kinds: &[OpKind]) -> Figures {
        let mut figures = Figures::default();
        for kind in kinds {
            assert!(figures.op(*kind).is_none(), "{kind} is stated twice");
            figures.ops.push((*kind, OpFigures::default()));
        }
        figures
    }

    /// Adds the figures of another part. A kind not yet present is appended.
    pub fn merge(&mut self, other: &Figures) {
        for (index, (kind, figures)) in other.ops.iter().enumerate() {
            // Parts of one run have the same kinds in the same order.
            let at = match self.ops.get(index) {
                Some((same, _)) if same == kind => Some(index),
                _ => self.slot(*kind),
            };
            match at {
                Some(at) => self.ops[at].1.merge(figures),
                None => self.ops.push((*kind, figures.clone())),
            }
        }
        for (count, more) in self.counts.by_status.iter_mut().zip(other.counts.by_status) {
            *count += more;
        }
        self.cost.add(&other.cost);
        self.in_flight_nanos = self.in_flight_nanos.saturating_add(other.in_flight_nanos);
    }

    /// Resets all figures, but keeps kinds and memory.
    pub fn clear(&mut self) {
        self.ops.iter_mut().for_each(|(_, figures)| figures.clear());
        self.counts = Counts::default();
        self.cost = Cost::default();
        self.in_flight_nanos = 0;
    }

    /// Index of a kind's figures, for [`Figures::at`].
    pub fn slot(&self, kind: OpKind) -> Option<usize> {
        self.ops.iter().position(|(known, _)| *known == kind)
    }

    /// The figures of the kind at this index, from 0.
    ///
    /// # Panics
    /// There are fewer kinds than that.
    #[inline]
    pub fn at(&mut self, slot: usize) -> &mut OpFigures {
        &mut self.ops[slot].1
    }

    /// The figures of one kind of operation; `None` if the load does not make it.
    pub fn op(&self, kind: OpKind) -> Option<&OpFigures> {
        self.slot(kind).map(|slot| &self.ops[slot].1)
    }

    /// The figures of all kinds, in the load's order.
    pub fn ops(&self) -> impl ExactSizeIterator<Item = (OpKind, &OpFigures)> + Clone {
        self.ops.iter().map(|(kind, figures)| (*kind, figures))
    }

    fn sum(&self, get: fn(&OpFigures) -> u64) -> u64 {
        self.ops.iter().map(|(_, figures)| get(figures)).sum()
    }

    fn sum_moved(&self, get: fn(&OpFigures) -> u64) -> u64 {
        self.ops
            .iter()
            .filter(|(kind, _)| kind.moves_bytes())
            .map(|(_, figures)| get(figures))
            .sum()
    }

    /// Completed requests.
    pub fn completed(&self) -> u64 {
        self.sum(|op| op.completed)
    }

    /// Bytes that these requests transferred, without the bytes that an unmap covers.
    pub fn bytes(&self) -> u64 {
        self.sum_moved(|op| op.bytes)
    }

    /// Retries.
    pub fn retries(&self) -> u64 {
        self.sum(|op| op.retries)
    }

    /// Requests completed after the end of measuring.
    pub fn late(&self) -> u64 {
        self.sum(|op| op.late)
    }

    /// The kinds that determine a run's rate and response times: all except flushes, which have a separate row.
    /// Flushes count if the load makes nothing else.
    fn headline(&self) -> impl Iterator<Item = &OpFigures> {
        let only_flushes = self.ops.iter().all(|(kind, _)| *kind == OpKind::Flush);
        let ops = self.ops.iter();
        ops.filter(move |(kind, _)| only_flushes || *kind != OpKind::Flush)
            .map(|(_, figures)| figures)
    }

    /// Completed requests without flushes.
    pub fn headline_completed(&self) -> u64 {
        self.headline().map(|op| op.completed).sum()
    }

    /// Requests completed while measuring, without flushes: the basis of throughput.
    pub fn completed_in_time(&self) -> u64 {
        self.headline().map(|op| op.completed - op.late).sum()
    }

    /// Bytes of [`Figures::completed_in_time`].
    pub fn bytes_in_time(&self) -> u64 {
        self.bytes() - self.late_bytes()
    }

    /// Bytes transferred by the requests in [`Figures::late`].
    pub fn late_bytes(&self) -> u64 {
        self.sum_moved(|op| op.late_bytes)
    }

    /// Attempts abandoned because of the workload's timeout.
    pub fn timeouts(&self) -> u64 {
        self.sum(|op| op.timeouts)
    }

    /// Response times of all kinds together, without flushes.
    pub fn response(&self) -> Histogram {
        self.together(|op| &op.response)
    }

    /// Service times of all kinds together, without flushes.
    pub fn service(&self) -> Histogram {
        self.together(|op| &op.service)
    }

    fn together(&self, get: fn(&OpFigures) -> &Histogram) -> Histogram {
        let mut all = Histogram::new();
        self.headline().for_each(|figures| all.merge(get(figures)));
        all
    }
}

/// A part of a run with its figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Number of the interval, from 0 at the end of a timed ramp-up.
    pub index: u64,
    /// Start of the interval.
    pub start: Nanos,
    /// End of the interval; the last one may be short.
    pub end: Nanos,
    /// Figures of the interval. A request belongs to the interval in which it completed.
    pub figures: Figures,
    /// Ages at the end of the interval of all requests, sent or not, that were due by then but not answered. The
    /// histogram describes one instant, so it can be merged over workers, but not over consecutive intervals.
    pub waiting: Histogram,
}

impl Interval {
    /// The mean number of requests in flight; 0 for an interval of zero length.
    pub fn in_flight(&self) -> f64 {
        let nanos = self.end.since(self.start).as_nanos();
        if nanos > 0 {
            self.figures.in_flight_nanos as f64 / nanos as f64
        } else {
            0.0
        }
    }
}

/// Why a worker or a run ended.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Stopped {
    /// The limit of requests, bytes or time was reached.
    Done,
    /// Throughput reached steady state.
    Steady,
    /// Throughput did not reach steady state within the maximum number of rounds.
    NotSteady,
    /// The run was interrupted; the results cover the time until then.
    Interrupted,
    /// The device is gone.
    DeviceGone,
    /// A host was lost that had workers, a target, a service, a fault or a bridge; the results lack whatever it would
    /// have done afterwards.
    HostLost,
}

impl Stopped {
    /// Whether the run took place as planned.
    pub fn is_complete(self) -> bool {
        !matches!(
            self,
            Stopped::Interrupted | Stopped::DeviceGone | Stopped::HostLost
        )
    }
}

/// The first error of a run, for the message to the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstError {
    /// How the request ended.
    pub status: RequestStatus,
    /// Kind of operation.
    pub op: OpKind,
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// The device's error, or what is wrong with its data.
    pub text: String,
}

impl std::fmt::Display for FirstError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let FirstError {
            op,
            offset,
            len,
            text,
            ..
        } = self;
        match len {
            // A flush, or an operation on a name.
            0 => write!(f, "{op}: {text}"),
            _ => write!(f, "{op} of {len} bytes at {offset}: {text}"),
        }
    }
}

/// The result of a whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Figures of the measured time.
    pub figures: Figures,
    /// When measuring began, on the earliest worker.
    pub start: Nanos,
    /// When measuring ended on the last worker, not including the wait for outstanding requests.
    pub end: Nanos,
    /// Requests per second: the sum of the workers' rates.
    pub requests_per_second: f64,
    /// Bytes per second: the sum of the workers' rates.
    pub bytes_per_second: f64,
    /// Why the run ended.
    pub stopped: Stopped,
    /// First error.
    pub first_error: Option<FirstError>,
    /// When the earliest worker began, on time or late, whether or not a request was due then; [`Nanos::MAX`] if no
    /// worker began or if that is unknown.
    pub began: Nanos,
    /// Total time that workers waited because their figures were not collected fast enough.
    pub recording_wait: Duration,
    /// Failed requests by cause.
    #[serde(default)]
    pub causes: Vec<ErrorCause>,
    /// Results of verification; `None` for a load that does not verify.
    #[serde(default)]
    pub verified: Option<Verified>,
    /// The work done while all of several workers were active; set only by the code that collects the workers'
    /// outcomes.
    #[serde(skip)]
    pub common: Option<CommonTime>,
}

impl Outcome {
    /// The outcome of a run that was stopped before it began.
    pub fn interrupted() -> Outcome {
        Outcome {
            figures: Figures::default(),
            start: Nanos::MAX,
            end: Nanos(0),
            requests_per_second: 0.0,
            bytes_per_second: 0.0,
            stopped: Stopped::Interrupted,
            first_error: None,
            began: Nanos::MAX,
            recording_wait: Duration::ZERO,
            causes: Vec::new(),
            verified: None,
            common: None,
        }
    }

    /// Whether the run took place as planned.
    pub fn is_complete(&self) -> bool {
        self.stopped.is_complete()
    }

    /// Adds another worker of the same run.
    pub fn merge(&mut self, other: &Outcome) {
        self.figures.merge(&other.figures);
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
        self.began = self.began.min(other.began);
        self.requests_per_second += other.requests_per_second;
        self.bytes_per_second += other.bytes_per_second;
        self.stopped = self.stopped.max(other.stopped);
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
        self.recording_wait += other.recording_wait;
        merge_causes(&mut self.causes, &other.causes);
        if let Some(verified) = &other.verified {
            self.verified.get_or_insert_default().merge(verified);
        }
    }

    /// Replaces the rates with totals over the whole time, because rates of parts measured at different times don't
    /// add up.
    pub fn rate_over_all_of_the_time(&mut self) {
        let seconds = self.end.since(self.start).as_secs_f64();
        let rate = |count: u64| {
            if seconds > 0.0 {
                count as f64 / seconds
            } else {
                0.0
            }
        };
        self.requests_per_second = rate(self.figures.completed_in_time());
        self.bytes_per_second = rate(self.figures.bytes_in_time());
    }
}

/// The part of `whole` that corresponds to `count` out of `all`.
pub(crate) fn part(whole: f64, count: u64, all: u64) -> f64 {
    whole * count as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_index_their_counters_and_have_one_name() {
        for (index, status) in RequestStatus::ALL.into_iter().enumerate() {
            assert_eq!(status as usize, index);
            assert_eq!(serde_json::to_value(status).unwrap(), status.name());
        }
    }

    fn figures(kinds: &[OpKind]) -> Figures {
        let mut figures = Figures::of_kinds(kinds);
        for (slot, kind) in kinds.iter().enumerate() {
            let op = figures.at(slot);
            op.completed = *kind as u64 + 1;
            op.response.record(Nanos(1000 * (*kind as u64 + 1)));
        }
        figures
    }

    #[test]
    fn parts_with_other_kinds_merge_by_kind() {
        let mut all = figures(&[OpKind::Create, OpKind::Write]);
        all.merge(&figures(&[OpKind::Write, OpKind::Remove]));
        let (create, write, remove) = (
            OpKind::Create as u64 + 1,
            OpKind::Write as u64 + 1,
            OpKind::Remove as u64 + 1,
        );
        let told: Vec<(OpKind, u64)> = all.ops().map(|(kind, op)| (kind, op.completed)).collect();
        assert_eq!(
            told,
            [
                (OpKind::Create, create),
                (OpKind::Write, 2 * write),
                (OpKind::Remove, remove)
            ]
        );
        assert_eq!(all.completed(), create + 2 * write + remove);
        assert_eq!(all.response().count(), 4);
        all.clear();
        assert_eq!((all.completed(), all.ops().len()), (0, 3));
    }

    #[test]
    fn flushes_are_not_part_of_the_headline() {
        let both = figures(&[OpKind::Write, OpKind::Flush]);
        let writes = OpKind::Write as u64 + 1;
        assert_eq!(both.completed_in_time(), writes);
        assert_eq!(both.headline_completed(), writes);
        assert_eq!(
            (both.response().count(), both.completed()),
            (1, writes + OpKind::Flush as u64 + 1)
        );
        let alone = figures(&[OpKind::Flush]);
        assert_eq!(
            (alone.completed_in_time(), alone.response().count()),
            (OpKind::Flush as u64 + 1, 1)
        );
    }

    #[test]
    fn each_kind_appears_once() {
        let figures = figures(&[OpKind::Read, OpKind::Write]);
        let text = serde_json::to_string(&figures).unwrap();
        assert_eq!(serde_json::from_str::<Figures>(&text).unwrap(), figures);
        let twice = text.replace("\"write\"", "\"read\"");
        let error = serde_json::from_str::<Figures>(&twice).unwrap_err();
        assert!(error.to_string().contains("read appears twice"), "{error}");
    }
}
