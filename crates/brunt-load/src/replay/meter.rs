//! Measures how true a replay is while it runs: issue errors, late requests by cause, reorderings, gaps, depth. Part of
//! [`super::stream`]; what it comes to is judged by [`super::fidelity`].
//!
//! The rule: memory is taken before the start and does not grow with the trace: moments get longer instead of more.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use brunt_core::{Histogram, Nanos};
use brunt_result::RequestStatus;
use brunt_result::replay::{LATE_AFTER_US, LateRequests, ReplayMoment};

use super::digest::Digest;
use super::feeder::{ReplayRow, RowOrigin};
use super::settings::ReplayTiming;
use super::window::{Entry, LateCause};
use crate::block::generator::Planned;

/// Most moments of a run; then each becomes twice as long.
const MOMENTS_MAX: usize = 128;
/// The first length of a moment.
const MOMENT_NANOS: u64 = 100_000_000;
/// Requests of the trace that are in flight at once, at the most, as far as they are counted.
const TRACE_DEPTH_MAX: usize = 1 << 16;

/// Sums of a part of the run.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    arrived: u64,
    depth: u64,
    trace_depth: u64,
    sent: u64,
    error: u64,
    error_max: u64,
}

impl Moment {
    fn add(&mut self, other: &Moment) {
        self.arrived += other.arrived;
        self.depth += other.depth;
        self.trace_depth += other.trace_depth;
        self.sent += other.sent;
        self.error += other.error;
        self.error_max = self.error_max.max(other.error_max);
    }
}

/// A moment: its place, and from when to when it is, from the start of the run; at first none.
#[derive(Clone, Copy, Debug, Default)]
struct MomentAt {
    place: usize,
    begin: u64,
    end: u64,
}

/// What is known of the requests of a device of the trace.
pub(super) struct DeviceMeter {
    pub(super) planned: Digest,
    pub(super) planned_requests: u64,
    pub(super) sent: Digest,
    pub(super) sent_requests: u64,
    pub(super) completed: u64,
    pub(super) late: u64,
    pub(super) errors: Histogram,
}

/// What is known so far.
pub(super) struct Meter {
    start: Nanos,
    /// Requests have times of their own: they are not sent as fast as possible.
    by_time: bool,
    /// Where each target begins on the device that all of them are.
    begins: Vec<u64>,
    /// Of devices that are told apart, if there are several.
    pub(super) devices: Vec<DeviceMeter>,
    /// Writes and unmaps that were to be, and that were sent with FUA.
    pub(super) forced_planned: u64,
    pub(super) forced_sent: u64,
    pub(super) planned: Digest,
    pub(super) planned_requests: u64,
    pub(super) sent: Digest,
    pub(super) sent_requests: u64,
    pub(super) completed: u64,
    /// Everything was given away.
    pub(super) ended: bool,
    pub(super) errors: Histogram,
    pub(super) gaps_due: Histogram,
    pub(super) gaps_sent: Histogram,
    /// When the first and the last request were due and sent.
    pub(super) first: Option<(Nanos, Nanos)>,
    pub(super) last: (Nanos, Nanos),
    /// The highest index that was sent, and the latest time of all.
    highest_sent: Option<(u64, Nanos)>,
    pub(super) reordered: u64,
    pub(super) reordered_overlapping: u64,
    pub(super) late: LateRequests,
    pub(super) conflicts: u64,
    moments: Vec<Moment>,
    moment_nanos: u64,
    /// The one that was asked for last.
    moment: MomentAt,
    /// When requests that arrived completed in the trace, on its clock; `None` where it does not say.
    trace_in_flight: Option<BinaryHeap<Reverse<u64>>>,
}

impl Meter {
    /// `has_responses`: the trace says how long requests took. `begins`: where each target begins. `devices`: how many are
    /// told apart.
    pub(super) fn new(timing: ReplayTiming, has_responses: bool, begins: Vec<u64>, devices: usize) -> Meter {
        let device = |_| DeviceMeter {
            planned: Digest::default(),
            planned_requests: 0,
            sent: Digest::default(),
            sent_requests: 0,
            completed: 0,
            late: 0,
            errors: Histogram::new(),
        };
        Meter {
            start: Nanos(0),
            by_time: timing != ReplayTiming::Depth,
            begins,
            devices: if devices > 1 { (0..devices).map(device).collect() } else { Vec::new() },
            forced_planned: 0,
            forced_sent: 0,
            planned: Digest::default(),
            planned_requests: 0,
            sent: Digest::default(),
            sent_requests: 0,
            completed: 0,
            ended: false,
            errors: Histogram::new(),
            gaps_due: Histogram::new(),
            gaps_sent: Histogram::new(),
            first: None,
            last: (Nanos(0), Nanos(0)),
            highest_sent: None,
            reordered: 0,
            reordered_overlapping: 0,
            late: LateRequests::default(),
            conflicts: 0,
            moments: Vec::with_capacity(MOMENTS_MAX),
            moment_nanos: MOMENT_NANOS,
            moment: MomentAt::default(),
            trace_in_flight: has_responses.then(|| BinaryHeap::with_capacity(TRACE_DEPTH_MAX)),
        }
    }

    /// The run starts at this time.
    pub(super) fn starts(&mut self, start: Nanos) {
        self.start = start;
    }

    /// Everything was given away.
    pub(super) fn ended(&mut self) {
        self.ended = true;
    }

    /// A request conflicts with one in flight.
    pub(super) fn conflict(&mut self) {
        self.conflicts += 1;
    }

    /// A request is to be sent.
    #[inline]
    pub(super) fn planned(&mut self, index: u64, row: &ReplayRow) {
        let target = row.of.target;
        let offset = row.offset - self.begins[usize::from(target)];
        self.planned.add(index, row.op, target, offset, row.len);
        self.planned_requests += 1;
        self.forced_planned += u64::from(row.fua);
        if let Some(device) = self.devices.get_mut(usize::from(row.of.device)) {
            device.planned.add(index, row.op, target, offset, row.len);
            device.planned_requests += 1;
        }
    }

    /// A request is given to a worker, while so many are in flight.
    #[inline]
    pub(super) fn arrival(&mut self, row: &ReplayRow, due: Nanos, in_flight: usize) {
        let trace_depth = match &mut self.trace_in_flight {
            None => 0,
            Some(completions) => {
                while completions.peek().is_some_and(|Reverse(at)| *at <= row.time_ns) {
                    completions.pop();
                }
                let depth = completions.len();
                if row.response_ns != u64::MAX && depth < TRACE_DEPTH_MAX {
                    completions.push(Reverse(row.time_ns.saturating_add(row.response_ns)));
                }
                depth
            }
        };
        let moment = self.moment(due);
        moment.arrived += 1;
        moment.depth += in_flight as u64;
        moment.trace_depth += trace_depth as u64;
    }

    /// Whether a request goes out of order at this time: a later one was sent before, or one before it is sent later.
    #[inline]
    pub(super) fn is_out_of_order(&self, index: u64, at: Nanos) -> bool {
        self.highest_sent.is_some_and(|(highest, latest)| index < highest || at < latest)
    }

    /// A request was sent; `overtaken`: a later one on the same blocks was sent before it.
    #[inline]
    pub(super) fn sent(&mut self, request: &Planned, entry: &Entry, at: Nanos, overtaken: bool) {
        let target = entry.of.target;
        let offset = request.offset - self.begins[usize::from(target)];
        self.sent.add(request.index, request.op, target, offset, request.len);
        self.sent_requests += 1;
        self.forced_sent += u64::from(request.force_unit_access && entry.fua);
        if self.is_out_of_order(request.index, at) {
            self.reordered += 1;
            self.reordered_overlapping += u64::from(overtaken);
        } else {
            self.highest_sent = Some((request.index, at));
        }
        let error = at.0.saturating_sub(entry.due.0);
        if self.by_time {
            self.errors.record(Nanos(error));
        }
        let is_late = error > (LATE_AFTER_US * 1e3) as u64;
        if let Some(device) = self.devices.get_mut(usize::from(entry.of.device)) {
            device.sent.add(request.index, request.op, target, offset, request.len);
            device.sent_requests += 1;
            device.late += u64::from(is_late);
            if self.by_time {
                device.errors.record(Nanos(error));
            }
        }
        if self.first.is_none() {
            self.first = Some((entry.due, at));
        } else if self.by_time {
            self.gaps_due.record(Nanos(entry.due.0.saturating_sub(self.last.0.0)));
            self.gaps_sent.record(Nanos(at.0.saturating_sub(self.last.1.0)));
        }
        self.last = (entry.due, at);
        let moment = self.moment(entry.due);
        moment.sent += 1;
        moment.error += error;
        moment.error_max = moment.error_max.max(error);
        if is_late {
            self.late(entry, at);
        }
    }

    #[cold]
    fn late(&mut self, entry: &Entry, at: Nanos) {
        // If most of it came after it was given away, the device did not take it.
        let before = entry.given.0.saturating_sub(entry.due.0);
        let late = &mut self.late;
        let count = match entry.cause {
            LateCause::Worker if at.0.saturating_sub(entry.given.0) > before => &mut late.device,
            LateCause::Worker => &mut late.worker,
            LateCause::Reader => &mut late.reader,
            LateCause::Depth => &mut late.depth,
            LateCause::Conflict => &mut late.conflict,
        };
        *count += 1;
    }

    /// A request ended.
    #[inline]
    pub(super) fn completed(&mut self, status: RequestStatus, of: RowOrigin) {
        let good = u64::from(status == RequestStatus::Good);
        self.completed += good;
        if let Some(device) = self.devices.get_mut(usize::from(of.device)) {
            device.completed += good;
        }
    }

    #[inline]
    fn moment(&mut self, due: Nanos) -> &mut Moment {
        let since = due.0.saturating_sub(self.start.0);
        if !(self.moment.begin..self.moment.end).contains(&since) {
            self.find_moment(since);
        }
        &mut self.moments[self.moment.place]
    }

    /// Finds the moment of this time, and makes it if there is none.
    #[cold]
    fn find_moment(&mut self, since: u64) {
        while since / self.moment_nanos >= MOMENTS_MAX as u64 {
            self.lengthen();
        }
        let place = (since / self.moment_nanos) as usize;
        if self.moments.len() <= place {
            self.moments.resize(place + 1, Moment::default());
        }
        let begin = place as u64 * self.moment_nanos;
        self.moment = MomentAt { place, begin, end: begin + self.moment_nanos };
    }

    /// Makes one moment of two.
    #[cold]
    fn lengthen(&mut self) {
        let half = self.moments.len().div_ceil(2);
        for at in 0..half {
            let mut both = self.moments[at * 2];
            if let Some(second) = self.moments.get(at * 2 + 1) {
                both.add(second);
            }
            self.moments[at] = both;
        }
        self.moments.truncate(half);
        self.moment_nanos *= 2;
    }

    /// How it went over time; moments without requests are left out.
    pub(super) fn moments(&self) -> Vec<ReplayMoment> {
        let seconds = |at: usize| (at as u64 * self.moment_nanos) as f64 / 1e9;
        let moment = |(at, moment): (usize, &Moment)| {
            let of = |sum: u64, count: u64| sum as f64 / count.max(1) as f64;
            (moment.arrived > 0).then(|| ReplayMoment {
                start_s: seconds(at),
                end_s: seconds(at + 1),
                requests: moment.arrived,
                issue_error_mean_us: of(moment.error, moment.sent) / 1e3,
                issue_error_max_us: moment.error_max as f64 / 1e3,
                depth_mean: of(moment.depth, moment.arrived),
                trace_depth_mean: self
                    .trace_in_flight
                    .is_some()
                    .then(|| of(moment.trace_depth, moment.arrived)),
            })
        };
        self.moments.iter().enumerate().filter_map(moment).collect()
    }
}
