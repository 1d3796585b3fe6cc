//! The results of a worker: the current interval, the total of earlier ones, the cost of measuring, the first error,
//! and the log of single requests if the workload asks for it.
//!
//! The rule: nothing here allocates after the start; all memory is allocated when the worker is created.

use std::time::Duration;

use brunt_block::DeviceError;
use brunt_core::{Histogram, Nanos};
use brunt_result::{
    Cost, Counts, Figures, FirstError, Interval, OpFigures, OpKind, Outcome, RequestRecord,
    RequestStatus,
};

use brunt_result::op::{OpInfo, TABLE};
use brunt_result::wrong::{CAUSES_MAX, ErrorCause, OTHER_CAUSES, merge_causes};

use super::occupancy::{InFlight, Occupancy};
use super::phase::RunPhase;
use super::time::RingUse;
use crate::block::generator::Planned;
use crate::cost;
use crate::record::Recorder;

/// Number of requests that the log holds before they are passed to the recorder.
const LOG_REQUESTS: usize = 4096;
/// Maximum age of a request in the log before it is passed to the recorder: a run that is killed loses its log.
const LOG_AGE_MAX: Duration = Duration::from_millis(250);

pub(super) struct Tally {
    worker: u32,
    /// Index of each kind's figures, by [`OpKind`].
    places: [u8; TABLE.len()],
    current: Interval,
    total: Figures,
    occupancy: Occupancy,
    cost: Cost,
    first_error: Option<FirstError>,
    /// Recorded requests that failed, by cause.
    causes: Vec<(OpKind, RequestStatus, DeviceError, u64)>,
    /// Failed requests beyond the maximum number of distinct causes.
    other_causes: u64,
    last_completed: Nanos,
    /// When the worker actually started, at its start time or later; the first request of an open loop may be due
    /// much later.
    pub(super) began: Nanos,
    interval: Option<Duration>,
    interval_end: Nanos,
    log: Option<Vec<RequestRecord>>,
    /// When the log is passed on next, unless it fills up first.
    log_due: Nanos,
}

/// When a request was due, sent and completed, and its number of retries.
pub(super) struct Times {
    pub(super) intended: Nanos,
    pub(super) sent: Option<Nanos>,
    pub(super) completed: Option<Nanos>,
    pub(super) retries: u32,
}

impl Tally {
    /// Creates a tally for requests of these kinds, with intervals of this length if the run has several, and with a
    /// log of requests if wanted.
    pub(super) fn new(
        worker: u32,
        kinds: &[OpKind],
        interval: Option<Duration>,
        log: bool,
    ) -> Tally {
        let place = |info: OpInfo| {
            kinds
                .iter()
                .position(|kind| *kind == info.kind)
                .unwrap_or(0) as u8
        };
        Tally {
            worker,
            places: TABLE.map(place),
            current: Interval {
                index: 0,
                start: Nanos(0),
                end: Nanos(0),
                figures: Figures::of_kinds(kinds),
                waiting: Histogram::default(),
            },
            total: Figures::of_kinds(kinds),
            occupancy: Occupancy::default(),
            cost: Cost::default(),
            first_error: None,
            causes: Vec::with_capacity(CAUSES_MAX),
            other_causes: 0,
            last_completed: Nanos(0),
            began: Nanos::MAX,
            interval,
            interval_end: Nanos::MAX,
            log: log.then(|| Vec::with_capacity(LOG_REQUESTS)),
            log_due: Nanos(0),
        }
    }

    /// Sets the time, now or in the future, at which measuring begins.
    pub(super) fn measure_from(&mut self, start: Nanos) {
        self.current.start = start;
        self.occupancy = Occupancy::default();
        self.last_completed = start;
        self.interval_end = self
            .interval
            .map_or(Nanos::MAX, |length| start.after(length));
    }

    /// Starts counting cost now, excluding what has been used so far.
    pub(super) fn cost_begins(&mut self, used: RingUse) {
        self.cost = cost::of_this_thread(used);
    }

    /// Returns the end of the open interval; `Nanos::MAX` for the last interval of a run that ends at `end`.
    #[inline]
    pub(super) fn interval_end(&self, end: Nanos) -> Nanos {
        if self.interval_end < end {
            self.interval_end
        } else {
            Nanos::MAX
        }
    }

    /// Closes the intervals that have ended, in a run that ends at `end`.
    #[inline]
    pub(super) fn roll(
        &mut self,
        now: Nanos,
        end: Nanos,
        in_flight: &InFlight<'_>,
        used: impl Fn() -> RingUse,
        recorder: &mut dyn Recorder,
    ) {
        // Requests that complete after the end belong to the last interval, so that one stays open.
        while now >= self.interval_end(end) {
            let over = self.interval_end;
            in_flight.waiting(over, &mut self.current.waiting);
            self.close_interval(over, in_flight, used(), recorder);
            self.interval_end = over.after(self.interval.expect("an interval ended"));
        }
    }

    #[cold]
    fn close_interval(
        &mut self,
        end: Nanos,
        in_flight: &InFlight<'_>,
        used: RingUse,
        recorder: &mut dyn Recorder,
    ) {
        let cost = cost::of_this_thread(used);
        self.current.figures.cost = cost.since(&self.cost);
        self.cost = cost;
        let ages = in_flight.ages(self.current.start, end);
        self.current.figures.in_flight_nanos = self.occupancy.close(&self.current.figures, ages);
        self.current.end = end;
        let nothing = end == self.current.start && self.current.figures.counts == Counts::default();
        if !nothing {
            recorder.interval(&self.current);
        }
        self.total.merge(&self.current.figures);
        self.current.figures.clear();
        self.current.waiting.clear();
        self.current.index += 1;
        self.current.start = end;
    }

    /// Returns the open interval's figures of a kind of operation.
    #[inline]
    pub(super) fn op(&mut self, kind: OpKind) -> &mut OpFigures {
        self.current
            .figures
            .at(usize::from(self.places[kind as usize]))
    }

    /// Counts a recorded request that ended with this status.
    #[inline]
    pub(super) fn count(&mut self, status: RequestStatus) {
        self.current.figures.counts.by_status[status as usize] += 1;
    }

    /// Records the answer to a recorded request, in a run that ends at `end`.
    #[inline]
    pub(super) fn answered(
        &mut self,
        planned: &Planned,
        intended: Nanos,
        sent: Nanos,
        now: Nanos,
        end: Nanos,
        status: RequestStatus,
    ) {
        self.last_completed = now;
        self.count(status);
        if status == RequestStatus::Good {
            let figures = self.op(planned.kind);
            figures.completed += 1;
            figures.bytes += planned.len;
            figures.service.record(Nanos(now.0 - sent.0));
            figures.response.record(Nanos(now.0 - intended.0));
            if now > end {
                figures.late += 1;
                figures.late_bytes += planned.len;
                self.occupancy.late(sent, now, end);
            }
        } else {
            self.has_no_service_time(sent, now, end, true);
        }
    }

    /// Records an attempt that isn't part of any service time, because it failed or its request isn't recorded.
    #[cold]
    pub(super) fn has_no_service_time(
        &mut self,
        sent: Nanos,
        now: Nanos,
        end: Nanos,
        is_recorded: bool,
    ) {
        self.occupancy
            .attempt(sent, now, self.current.start, end, is_recorded);
    }

    /// Keeps the first error: the device's or, if there is none, a description of the wrong data. Counts errors of
    /// recorded requests by cause.
    #[cold]
    pub(super) fn went_wrong(
        &mut self,
        status: RequestStatus,
        error: Option<&DeviceError>,
        planned: &Planned,
        recorded: bool,
        difference: impl FnOnce() -> String,
    ) {
        if let Some(error) = error.filter(|_| recorded) {
            self.count_cause(status, *error, planned.kind);
        }
        if self.first_error.is_none() {
            let text = error.map_or_else(difference, DeviceError::to_string);
            self.first_error = Some(FirstError {
                status,
                op: planned.kind,
                offset: planned.address(),
                len: planned.len,
                text,
            });
        }
    }

    fn count_cause(&mut self, status: RequestStatus, error: DeviceError, op: OpKind) {
        let key = (op, status, error.cause());
        let known = self
            .causes
            .iter()
            .position(|(op, status, cause, _)| (*op, *status, *cause) == key);
        match known {
            Some(index) => self.causes[index].3 += 1,
            None if self.causes.len() < CAUSES_MAX => {
                self.causes.push((key.0, key.1, key.2, 1));
            }
            None => self.other_causes += 1,
        }
    }

    /// Describes the causes as text.
    fn causes(&self) -> Vec<ErrorCause> {
        let told = self
            .causes
            .iter()
            .map(|(op, status, cause, count)| ErrorCause {
                op: *op,
                status: status.name().to_string(),
                cause: cause.cause_text(),
                count: *count,
            });
        let mut causes: Vec<ErrorCause> = Vec::new();
        told.for_each(|cause| merge_causes(&mut causes, &[cause]));
        if let (Some(first), true) = (causes.first().cloned(), self.other_causes > 0) {
            causes.push(ErrorCause {
                cause: OTHER_CAUSES.to_string(),
                count: self.other_causes,
                ..first
            });
        }
        causes
    }

    /// Returns true if the log has no room for a skipped request.
    pub(super) fn log_is_full(&self) -> bool {
        self.log
            .as_ref()
            .is_some_and(|log| log.len() >= LOG_REQUESTS)
    }

    /// Adds a recorded request to the log, if there is one.
    #[inline]
    pub(super) fn log(&mut self, planned: &Planned, times: Times, status: RequestStatus) {
        if let Some(log) = &mut self.log {
            let Planned {
                index,
                kind: op,
                len,
                ..
            } = *planned;
            let offset = planned.address();
            let Times {
                intended,
                sent,
                completed,
                retries,
            } = times;
            let worker = self.worker;
            log.push(RequestRecord {
                worker,
                index,
                op,
                offset,
                len,
                intended,
                sent,
                completed,
                retries,
                status,
            });
        }
    }

    /// Passes the log on unless it has room for `room` more requests.
    #[inline]
    pub(super) fn flush_log(&mut self, recorder: &mut dyn Recorder, room: usize) {
        if let Some(log) = &mut self.log
            && log.len() + room > LOG_REQUESTS
            && !log.is_empty()
        {
            recorder.requests(log);
            log.clear();
        }
    }

    /// Passes the log on if its requests have waited long enough.
    #[inline]
    pub(super) fn flush_old_log(&mut self, recorder: &mut dyn Recorder, now: Nanos) {
        if self.log.is_some() && now >= self.log_due {
            self.flush_log(recorder, LOG_REQUESTS);
            self.log_due = now.after(LOG_AGE_MAX);
        }
    }

    /// Records how long requests that will count as hanging or skipped have waited, in a run that ends at `end`.
    pub(super) fn gives_up(&mut self, in_flight: &InFlight<'_>, end: Nanos) {
        in_flight.waiting(end, &mut self.current.waiting);
    }

    /// Returns the outcome.
    pub(super) fn finish(
        mut self,
        phase: &RunPhase,
        in_flight: &InFlight<'_>,
        used: RingUse,
        recorder: &mut dyn Recorder,
    ) -> Outcome {
        self.flush_log(recorder, LOG_REQUESTS);
        let end = if phase.end == Nanos::MAX {
            self.last_completed
        } else {
            phase.end
        };
        let end = end.max(phase.measure_start);
        self.close_interval(end.max(self.current.start), in_flight, used, recorder);
        let seconds = end.since(phase.measure_start).as_secs_f64();
        let rate = |count: u64| {
            if seconds > 0.0 {
                count as f64 / seconds
            } else {
                0.0
            }
        };
        let causes = self.causes();
        Outcome {
            requests_per_second: rate(self.total.completed_in_time()),
            bytes_per_second: rate(self.total.bytes_in_time()),
            figures: self.total,
            start: phase.measure_start,
            end,
            stopped: phase.stopped,
            first_error: self.first_error,
            began: self.began,
            causes,
            verified: None,
            recording_wait: Duration::ZERO,
            common: None,
        }
    }
}
