//! Measures each request of a phase and reports intervals. A phase is a closed loop with one request outstanding: the
//! end of a request is the start of the next.

use std::time::Duration;

use brunt_core::{Clock, Histogram, Nanos};
use brunt_result::{Cost, Figures, Interval, OpKind, Outcome, RequestStatus, Stopped};

use crate::block::worker::RingUse;
use crate::commands::Commands;
use crate::cost;
use crate::record::Recorder;

pub(super) struct Meter<'a> {
    commands: &'a Commands,
    recorder: &'a mut dyn Recorder,
    /// Zero means that everything is reported at the end.
    interval: Duration,
    begin: Nanos,
    /// When it was ready to start, which may be later than `begin`.
    began: Nanos,
    last: Nanos,
    open: Interval,
    total: Figures,
    calls: u64,
    cost: Cost,
    cut: bool,
}

impl<'a> Meter<'a> {
    /// Creates a meter for requests of these `kinds`, in the order of their figures.
    pub(super) fn new(
        kinds: &[OpKind],
        start: Nanos,
        interval: Duration,
        commands: &'a Commands,
        recorder: &'a mut dyn Recorder,
    ) -> Meter<'a> {
        Meter {
            commands,
            recorder,
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
        }
    }

    /// Returns true if the phase should stop. Checked before each request.
    pub(super) fn is_over(&mut self) -> bool {
        self.cut = self.cut || self.commands.is_stopped() || self.recorder.is_full();
        self.cut
    }

    /// Counts system calls.
    pub(super) fn calls(&mut self, count: u64) {
        self.calls += count;
    }

    /// Records a completed request that began when the previous one ended; `slot` is the index of its kind.
    pub(super) fn request(&mut self, slot: usize, bytes: u64) {
        let now = Clock::Monotonic.now();
        let latency = Nanos(now.0 - self.last.0);
        self.last = now;
        let figures = self.open.figures.at(slot);
        figures.completed += 1;
        figures.bytes += bytes;
        figures.service.record(latency);
        figures.response.record(latency);
        self.open.figures.counts.by_status[RequestStatus::Good as usize] += 1;
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
    pub(super) fn finish(mut self, end: Nanos) -> Outcome {
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
            first_error: None,
            began: self.began,
            causes: Vec::new(),
            verified: None,
            recording_wait: Duration::ZERO,
            common: None,
        }
    }
}

/// Converts a whole outcome into one interval.
pub(super) fn interval_of(outcome: &Outcome, start: Nanos) -> Interval {
    Interval {
        index: 0,
        start,
        end: outcome.end,
        figures: outcome.figures.clone(),
        waiting: Histogram::default(),
    }
}
