//! Results of a worker: the current interval, the total of earlier ones, the cost of measuring, the first
//! error, and the log of single requests if the workload asks for it.
//!
//! The rule: nothing here allocates after the start; memory is taken when the worker is made.

use std::time::Duration;

use brunt_block::{DeviceError, Op};
use brunt_core::{Histogram, Nanos};
use brunt_result::{
    Cost, Counts, Figures, FirstError, Interval, OpFigures, OpKind, Outcome, RequestRecord,
    RequestStatus,
};

use brunt_result::wrong::{CAUSES_MAX, ErrorCause, OTHER_CAUSES, merge_causes};

use super::occupancy::{InFlight, Occupancy};
use super::phase::RunPhase;
use super::time::RingUse;
use crate::block::generator::Planned;
use crate::cost;
use crate::record::{Recorder, kind_of};

/// Requests in the log before the recorder gets them.
const LOG_REQUESTS: usize = 4096;
/// A request in the log waits no longer than this for the recorder, however few there are: a run that is killed loses
/// those in the log.
const LOG_AGE_MAX: Duration = Duration::from_millis(250);
/// Operations that devices know.
const OPS: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Unmap, Op::WriteZeroes];

pub(super) struct Tally {
    worker: u32,
    /// Where the figures of each operation are, by [`Op`].
    places: [u8; OPS.len()],
    current: Interval,
    total: Figures,
    occupancy: Occupancy,
    cost: Cost,
    first_error: Option<FirstError>,
    /// Recorded requests that failed, by their cause.
    causes: Vec<(Op, RequestStatus, DeviceError, u64)>,
    /// Those with none of these.
    other_causes: u64,
    last_completed: Nanos,
    /// When it took up its work, at its start or later: the first request of an open loop may be due long after that.
    pub(super) began: Nanos,
    interval: Option<Duration>,
    interval_end: Nanos,
    log: Option<Vec<RequestRecord>>,
    /// When the log is handed on next if it does not fill up before.
    log_due: Nanos,
}

/// When a request was made, sent and done, and how often it was sent again.
pub(super) struct Times {
    pub(super) intended: Nanos,
    pub(super) sent: Option<Nanos>,
    pub(super) completed: Option<Nanos>,
    pub(super) retries: u32,
}

impl Tally {
    /// For requests of these kinds, with an interval's length if there are several, and a log of requests if wanted.
    pub(super) fn new(
        worker: u32,
        kinds: &[OpKind],
        interval: Option<Duration>,
        log: bool,
    ) -> Tally {
        let place = |op: Op| {
            kinds
                .iter()
                .position(|kind| *kind == kind_of(op))
                .unwrap_or(0) as u8
        };
        Tally {
            worker,
            places: OPS.map(place),
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

    /// Measuring begins, or will begin, at this time.
    pub(super) fn measure_from(&mut self, start: Nanos) {
        self.current.start = start;
        self.occupancy = Occupancy::default();
        self.last_completed = start;
        self.interval_end = self
            .interval
            .map_or(Nanos::MAX, |length| start.after(length));
    }

    /// What it cost until now is nobody's.
    pub(super) fn cost_begins(&mut self, used: RingUse) {
        self.cost = cost::of_this_thread(used);
    }

    /// When the open interval is over; never for the last one of a run that ends at `end`.
    #[inline]
    pub(super) fn interval_end(&self, end: Nanos) -> Nanos {
        if self.interval_end < end {
            self.interval_end
        } else {
            Nanos::MAX
        }
    }

    /// Closes intervals that are over, of a run that ends at `end`.
    #[inline]
    pub(super) fn roll(
        &mut self,
        now: Nanos,
        end: Nanos,
        in_flight: &InFlight<'_>,
        used: impl Fn() -> RingUse,
        recorder: &mut dyn Recorder,
    ) {
        // Requests that come after the end belong to the last interval, so that one stays open.
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

    /// The open interval's figures of an operation.
    #[inline]
    pub(super) fn op(&mut self, op: Op) -> &mut OpFigures {
        self.current
            .figures
            .at(usize::from(self.places[op as usize]))
    }

    /// A recorded request ended in this way.
    #[inline]
    pub(super) fn count(&mut self, status: RequestStatus) {
        self.current.figures.counts.by_status[status as usize] += 1;
    }

    /// A recorded request was answered, of a run that ends at `end`.
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
            let figures = self.op(planned.op);
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

    /// An attempt ended that is in no service time: it failed, or is of a request that is not recorded.
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

    /// The first thing that went wrong is kept: the device's error, or else how its data differs. Errors of recorded requests
    /// are counted by their cause.
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
            self.count_cause(status, *error, planned.op);
        }
        if self.first_error.is_none() {
            let text = error.map_or_else(difference, DeviceError::to_string);
            let Planned {
                op, offset, len, ..
            } = *planned;
            self.first_error = Some(FirstError {
                status,
                op: kind_of(op),
                offset,
                len,
                text,
            });
        }
    }

    fn count_cause(&mut self, status: RequestStatus, error: DeviceError, op: Op) {
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

    /// The causes in words.
    fn causes(&self) -> Vec<ErrorCause> {
        let told = self
            .causes
            .iter()
            .map(|(op, status, cause, count)| ErrorCause {
                op: kind_of(*op),
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

    /// Whether the log has no room for a request that is skipped.
    pub(super) fn log_is_full(&self) -> bool {
        self.log
            .as_ref()
            .is_some_and(|log| log.len() >= LOG_REQUESTS)
    }

    /// Puts a recorded request into the log, if there is one.
    #[inline]
    pub(super) fn log(&mut self, planned: &Planned, times: Times, status: RequestStatus) {
        if let Some(log) = &mut self.log {
            let Planned {
                index,
                op,
                offset,
                len,
                ..
            } = *planned;
            let Times {
                intended,
                sent,
                completed,
                retries,
            } = times;
            let (worker, op) = (self.worker, kind_of(op));
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

    /// Hands the log on unless `room` more fit in.
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

    /// Hands the log on if its requests have waited long enough.
    #[inline]
    pub(super) fn flush_old_log(&mut self, recorder: &mut dyn Recorder, now: Nanos) {
        if self.log.is_some() && now >= self.log_due {
            self.flush_log(recorder, LOG_REQUESTS);
            self.log_due = now.after(LOG_AGE_MAX);
        }
    }

    /// Notes for how long requests have waited that this worker is going to count as hanging or skipped, of a run that ends
    /// at `end`.
    pub(super) fn gives_up(&mut self, in_flight: &InFlight<'_>, end: Nanos) {
        in_flight.waiting(end, &mut self.current.waiting);
    }

    /// All of it.
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
