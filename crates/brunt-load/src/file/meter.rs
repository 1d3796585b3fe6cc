//! Measures each request of a phase and reports intervals. A phase is a closed loop with one request outstanding: the
//! end of a request is the start of the next.

use std::time::Duration;

use brunt_block::DeviceError;
use brunt_core::{Clock, Histogram, Nanos};
use brunt_result::wrong::{ErrorCause, merge_causes};
use brunt_result::{Cost, Figures, FirstError, Interval, OpKind, Outcome, RequestStatus, Stopped};

use crate::block::worker::RingUse;
use crate::commands::Commands;
use crate::cost;
use crate::record::{Recorder, status_of};

pub(crate) struct PhaseMeter<'a> {
    commands: &'a Commands,
    recorder: &'a mut dyn Recorder,
    kinds: Vec<OpKind>,
    /// Zero means that everything is reported at the end.
    interval: Duration,
    begin: Nanos,
    /// When the phase was ready to start, which may be later than `begin`.
    began: Nanos,
    last: Nanos,
    open: Interval,
    total: Figures,
    calls: u64,
    cost: Cost,
    cut: bool,
    causes: Vec<ErrorCause>,
    first_error: Option<FirstError>,
}

impl<'a> PhaseMeter<'a> {
    /// Creates a meter for requests of these `kinds`, in the order of their figures.
    pub(crate) fn new(
        kinds: &[OpKind],
        start: Nanos,
        interval: Duration,
        commands: &'a Commands,
        recorder: &'a mut dyn Recorder,
    ) -> PhaseMeter<'a> {
        PhaseMeter {
            commands,
            recorder,
            kinds: kinds.to_vec(),
            interval,
            begin: start,
            began: Clock::Monotonic.now(),
            last: start,
            open: Interval {
                index: 0,
                start,
                end: start,
                figures: Figures::of_kinds(kinds),
                waiting: Histogram::default(),
            },
            total: Figures::of_kinds(kinds),
            calls: 0,
            cost: cost::of_this_thread(RingUse::default()),
            cut: false,
            causes: Vec::new(),
            first_error: None,
        }
    }

    /// Returns true if the phase should stop. Checked before each request.
    pub(crate) fn is_over(&mut self) -> bool {
        self.cut = self.cut || self.commands.is_stopped() || self.recorder.is_full();
        self.cut
    }

    /// Counts system calls.
    pub(crate) fn calls(&mut self, count: u64) {
        self.calls += count;
    }

    /// Records a completed request that began when the previous one ended; `slot` is the index of its kind.
    pub(crate) fn request(&mut self, slot: usize, bytes: u64) {
        let now = Clock::Monotonic.now();
        let latency = Nanos(now.0 - self.last.0);
        self.last = now;
        let figures = self.open.figures.at(slot);
        figures.completed += 1;
        figures.bytes += bytes;
        figures.service.record(latency);
        figures.response.record(latency);
        self.count(RequestStatus::Good, now);
    }

    /// Records a request that failed; `slot` is the index of its kind.
    #[cold]
    pub(crate) fn failed(&mut self, slot: usize, error: DeviceError) {
        self.went_wrong(
            slot,
            status_of(&error),
            error.cause_text(),
            error.to_string(),
        );
    }

    /// Records a request with an unexpected result.
    #[cold]
    pub(crate) fn wrong(&mut self, slot: usize, how: String) {
        self.went_wrong(slot, RequestStatus::Miscompare, how.clone(), how);
    }

    fn went_wrong(&mut self, slot: usize, status: RequestStatus, cause: String, text: String) {
        let now = Clock::Monotonic.now();
        self.last = now;
        let op = self.kinds[slot];
        let cause = ErrorCause {
            op,
            status: status.name().to_string(),
            cause,
            count: 1,
        };
        merge_causes(&mut self.causes, &[cause]);
        self.first_error.get_or_insert(FirstError {
            status,
            op,
            offset: 0,
            len: 0,
            text,
        });
        self.count(status, now);
    }

    fn count(&mut self, status: RequestStatus, now: Nanos) {
        self.open.figures.counts.by_status[status as usize] += 1;
        if !self.interval.is_zero() && now >= self.open.start.after(self.interval) {
            self.report(now);
        }
    }

    fn report(&mut self, now: Nanos) {
        let cost = cost::of_this_thread(RingUse {
            system_calls: self.calls,
            ..RingUse::default()
        });
        self.open.figures.cost = cost.since(&self.cost);
        self.cost = cost;
        // One request is always outstanding.
        self.open.figures.in_flight_nanos = now.0.saturating_sub(self.open.start.0);
        self.open.end = now;
        self.recorder.interval(&self.open);
        self.total.merge(&self.open.figures);
        self.open.figures.clear();
        self.open.start = now;
        self.open.index += 1;
    }

    /// Ends the phase at `end`, which includes its final flush.
    pub(crate) fn finish(mut self, end: Nanos) -> Outcome {
        self.is_over();
        self.report(end);
        let seconds = end.since(self.begin).as_secs_f64().max(1e-9);
        Outcome {
            start: self.begin,
            end,
            requests_per_second: self.total.completed() as f64 / seconds,
            bytes_per_second: self.total.bytes_in_time() as f64 / seconds,
            figures: self.total,
            stopped: if self.cut {
                Stopped::Interrupted
            } else {
                Stopped::Done
            },
            first_error: self.first_error,
            began: self.began,
            causes: self.causes,
            verified: None,
            recording_wait: Duration::ZERO,
            common: None,
        }
    }
}

/// Converts a whole outcome into one interval.
pub(crate) fn interval_of(outcome: &Outcome, start: Nanos) -> Interval {
    Interval {
        index: 0,
        start,
        end: outcome.end,
        figures: outcome.figures.clone(),
        waiting: Histogram::default(),
    }
}
