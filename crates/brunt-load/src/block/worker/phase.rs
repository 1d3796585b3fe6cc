//! Tracks the phase of a worker's run (ramp-up, measuring or draining) and what is left of its limits. Pure.
//!
//! The rule: measuring starts once, and issuing requests stops once.

use std::time::Duration;

use brunt_core::Nanos;
use brunt_result::Stopped;

use crate::block::workload::Workload;

/// Maximum time that an interrupted run waits for outstanding requests.
const INTERRUPTED_DRAIN_MAX: Duration = Duration::from_secs(1);

/// The state of a run.
pub(super) struct RunPhase {
    pub(super) start: Nanos,
    /// Whether requests are still issued.
    pub(super) issuing: bool,
    /// Whether recording has begun; set together with `measure_start`.
    pub(super) measuring: bool,
    pub(super) measure_start: Nanos,
    /// When measuring ends. `MAX` if measuring ends with the last completion: without a time limit, or if a flush
    /// ends the run.
    pub(super) end: Nanos,
    /// Requests that are due at this time or later are not issued.
    pub(super) due_until: Nanos,
    pub(super) drain_until: Nanos,
    pub(super) stopped: Stopped,
    /// Whether the device is lost.
    is_gone: bool,
    requests_left: u64,
    bytes_left: u64,
    ramp_requests: u64,
    ramp_time: Duration,
    time: Option<Duration>,
    drain: Duration,
    /// Whether a flush is still to be sent after all other requests.
    flushes_at_end: bool,
}

impl RunPhase {
    /// Creates the state before the start. `share` returns this worker's share of requests or bytes.
    pub(super) fn new(workload: &Workload, share: impl Fn(u64) -> u64) -> RunPhase {
        let ramp = workload.ramp_up.unwrap_or_default();
        RunPhase {
            start: Nanos(0),
            issuing: true,
            measuring: false,
            measure_start: Nanos(0),
            end: Nanos::MAX,
            due_until: Nanos::MAX,
            drain_until: Nanos::MAX,
            stopped: Stopped::Done,
            is_gone: false,
            requests_left: workload.stop.requests.map_or(u64::MAX, &share),
            bytes_left: workload.stop.bytes.map_or(u64::MAX, |bytes| share(bytes.0)),
            ramp_requests: ramp.requests,
            ramp_time: ramp.time.0,
            time: workload.stop.time.map(|time| time.0),
            drain: workload.drain.0,
            flushes_at_end: workload.end_fsync,
        }
    }

    /// Starts the run; returns true if the start of measuring is already known.
    pub(super) fn begin(&mut self, start: Nanos) -> bool {
        self.start = start;
        self.measure_start = start.after(self.ramp_time);
        let known = self.ramp_requests == 0;
        if known {
            self.measure_from(self.measure_start);
        }
        known
    }

    fn measure_from(&mut self, start: Nanos) {
        self.measure_start = start;
        self.due_until = self.time.map_or(Nanos::MAX, |time| start.after(time));
        self.end = match self.flushes_at_end {
            true => Nanos::MAX,
            false => self.due_until,
        };
    }

    /// Returns `Some` if this request ends the ramp-up, by count and by time; the value is true if that moved the start
    /// of measuring.
    #[cold]
    pub(super) fn ends_ramp_up(&mut self, index: u64, intended: Nanos) -> Option<bool> {
        assert!(!self.measuring, "measuring begins once");
        if index < self.ramp_requests || intended < self.start.after(self.ramp_time) {
            return None;
        }
        self.measuring = true;
        let moves = self.ramp_requests > 0;
        if moves {
            self.measure_from(intended);
        }
        Some(moves)
    }

    /// Counts a recorded request of this many bytes that was issued or skipped.
    #[inline]
    pub(super) fn use_up(&mut self, bytes: u64) {
        self.requests_left -= 1;
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
    }

    /// Returns true if the limit of requests or bytes has been reached.
    #[inline]
    pub(super) fn is_used_up(&self) -> bool {
        self.requests_left == 0 || self.bytes_left == 0
    }

    /// Returns true if requests may still be issued, including late ones that were due before the end.
    #[inline]
    pub(super) fn may_issue(&self) -> bool {
        (self.issuing || (self.stopped == Stopped::Done && !self.is_gone)) && !self.is_used_up()
    }

    /// Records that the device is lost: nothing more is sent to it, not even late requests.
    #[cold]
    pub(super) fn device_is_gone(&mut self, now: Nanos) {
        self.is_gone = true;
        if self.issuing {
            self.cut_short(now, Stopped::DeviceGone);
        }
    }

    /// Returns true if the device is lost.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Ends the run because its time has elapsed.
    #[cold]
    pub(super) fn time_is_over(&mut self) {
        self.stop_issuing(self.due_until, Stopped::Done);
    }

    /// Ends the run with its last completion, because all requests have been issued, regardless of the time left.
    #[cold]
    pub(super) fn all_is_made(&mut self, now: Nanos) {
        (self.end, self.due_until) = (Nanos::MAX, Nanos::MAX);
        self.stop_issuing(now, Stopped::Done);
    }

    /// For a run that ends with a flush and was not cut short: returns true once, when all other requests have
    /// completed. The flush then gets the full drain time.
    pub(super) fn begins_flush(&mut self, now: Nanos) -> bool {
        let begins = self.flushes_at_end && self.stopped == Stopped::Done && !self.is_gone;
        if begins {
            self.flushes_at_end = false;
            self.drain_until = now.after(self.drain);
        }
        begins
    }

    /// Cuts the run short.
    #[cold]
    pub(super) fn cut_short(&mut self, now: Nanos, why: Stopped) {
        self.stop_issuing(now, why);
        self.end = self.end.min(now);
        self.due_until = self.due_until.min(now);
    }

    /// Cuts the run short while it waits for outstanding requests.
    #[cold]
    pub(super) fn cut_drain_short(&mut self, now: Nanos) {
        assert!(!self.issuing, "it drains after requests have stopped");
        if self.stopped == Stopped::Done {
            self.stopped = Stopped::Interrupted;
            self.drain_until = self.drain_until.min(now.after(INTERRUPTED_DRAIN_MAX));
        }
    }

    fn stop_issuing(&mut self, now: Nanos, why: Stopped) {
        assert!(self.issuing, "requests stop once");
        self.issuing = false;
        self.stopped = self.stopped.max(why);
        let drain = match why {
            Stopped::Done => self.drain,
            _ => self.drain.min(INTERRUPTED_DRAIN_MAX),
        };
        self.drain_until = now.after(drain);
    }
}
