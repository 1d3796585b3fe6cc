//! Measures how faithful a replay is while it runs: issue errors, late requests by cause, reorderings, gaps and depth.
//! Part of [`super::stream`]; [`super::fidelity`] judges the results.
//!
//! The rule: memory is allocated before the start and doesn't grow with the trace; in long runs, moments become
//! longer instead.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use brunt_core::{Histogram, Nanos};
use brunt_result::RequestStatus;
use brunt_result::replay::{LATE_AFTER_US, LateRequests, ReplayMoment, UnsentRequests};
use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::feeder::{ReplayRow, RowOrigin};
use super::settings::ReplayTiming;
use super::window::{Entry, LateCause};
use crate::block::generator::Planned;

/// Maximum number of moments in a run; when it is exceeded, each becomes twice as long.
const MOMENTS_MAX: usize = 128;
/// The initial length of a moment, which is an interval of the measurements over time.
const MOMENT_NANOS: u64 = 100_000_000;
/// Upper limit for every count in a host's part of a replay.
const COUNT_MAX: u64 = 1 << 53;
/// Maximum number of concurrent requests in the trace that are counted.
const TRACE_DEPTH_MAX: usize = 1 << 16;

/// Sums over a part of the run.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Moment {
    arrived: u64,
    depth: u64,
    trace_depth: u64,
    sent: u64,
    error: u64,
    error_max: u64,
}

impl Moment {
    /// Saturates, because another host may send arbitrary numbers.
    fn add(&mut self, other: &Moment) {
        let sums = [
            (&mut self.arrived, other.arrived),
            (&mut self.depth, other.depth),
            (&mut self.trace_depth, other.trace_depth),
            (&mut self.sent, other.sent),
            (&mut self.error, other.error),
        ];
        sums.into_iter()
            .for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self.error_max = self.error_max.max(other.error_max);
    }
}

/// A moment: its index, and its start and end relative to the run's start; initially empty.
#[derive(Clone, Copy, Debug, Default)]
struct MomentAt {
    place: usize,
    begin: u64,
    end: u64,
}

/// Requests of the trace, by outcome. A request sent in pieces counts once, with its last piece.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Fates {
    /// Given to a worker.
    given: u64,
    pub(super) sent: u64,
    dropped: u64,
    /// Given to a worker only to be counted.
    skipped: u64,
    /// Given to a worker and returned, because the run ended before they were due; not included in `given`.
    given_back: u64,
}

impl Fates {
    /// Adds the outcomes of another part of the same requests.
    fn merge(&mut self, other: &Fates) {
        let Fates {
            given,
            sent,
            dropped,
            skipped,
            given_back,
        } = *other;
        self.given = self.given.saturating_add(given);
        self.sent = self.sent.saturating_add(sent);
        self.dropped = self.dropped.saturating_add(dropped);
        self.skipped = self.skipped.saturating_add(skipped);
        self.given_back = self.given_back.saturating_add(given_back);
    }

    /// Returns true if these numbers are plausible for another host.
    fn are_possible(&self) -> bool {
        let Fates {
            given,
            sent,
            dropped,
            skipped,
            given_back,
        } = *self;
        let small = [given, sent, dropped, skipped, given_back]
            .iter()
            .all(|count| *count <= COUNT_MAX);
        small && given >= sent + skipped
    }

    /// Returns the number of requests that the run got to and that should have been sent.
    pub(super) fn reached(&self) -> u64 {
        self.given + self.dropped
    }

    /// Returns how many of the planned requests were missing from the trace, once everything in it has been handed out.
    /// Requests that workers returned unsent are not missing.
    pub(super) fn missing(&self, planned: u64) -> u64 {
        planned.saturating_sub(self.reached() + self.given_back)
    }

    /// Returns how many requests exceed the plan, for a device whose trace was changed after the start.
    pub(super) fn beyond(&self, planned: u64) -> u64 {
        self.reached().saturating_sub(planned)
    }

    /// Returns the planned requests that were not sent.
    ///
    /// # Panics
    /// Panics if more were sent or counted than were given, which is a bug.
    pub(super) fn unsent(&self, planned: u64) -> UnsentRequests {
        let Fates {
            given,
            sent,
            dropped,
            skipped,
            ..
        } = *self;
        assert!(given >= sent + skipped, "{self:?}");
        let (not_taken, after_end) = (
            given - sent - skipped,
            planned.saturating_sub(self.reached()),
        );
        UnsentRequests {
            dropped,
            skipped,
            not_taken,
            after_end,
        }
    }
}

/// The measurements for a device of the trace.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct DeviceMeter {
    pub(super) planned: Digest,
    pub(super) fates: Fates,
    pub(super) sent: Digest,
    pub(super) completed: u64,
    pub(super) late: u64,
    pub(super) errors: Histogram,
}

/// The measurements so far.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Meter {
    start: Nanos,
    /// Whether requests are due at certain times, rather than being sent as fast as possible.
    by_time: bool,
    /// Start of each target on the combined device.
    #[serde(skip)]
    begins: Vec<u64>,
    /// Devices with their own figures, if there are several.
    pub(super) devices: Vec<DeviceMeter>,
    /// Writes and unmaps that were planned with FUA, and those that were sent with FUA.
    pub(super) forced_planned: u64,
    pub(super) forced_sent: u64,
    /// Digests of planned and of sent requests, whole or in pieces.
    pub(super) planned: Digest,
    pub(super) sent: Digest,
    pub(super) fates: Fates,
    pub(super) completed: u64,
    /// Whether everything was handed out.
    pub(super) ended: bool,
    pub(super) errors: Histogram,
    pub(super) gaps_due: Histogram,
    pub(super) gaps_sent: Histogram,
    /// For the first and the last request: when it was due, and when it was sent.
    pub(super) first: Option<(Nanos, Nanos)>,
    pub(super) last: (Nanos, Nanos),
    /// The highest index that was sent, and the latest time of all sends.
    highest_sent: Option<(u64, Nanos)>,
    pub(super) reordered: u64,
    pub(super) reordered_overlapping: u64,
    pub(super) late: LateRequests,
    pub(super) conflicts: u64,
    moments: Vec<Moment>,
    moment_nanos: u64,
    /// The moment that was used last.
    #[serde(skip)]
    moment: MomentAt,
    /// Whether the trace has response times.
    has_responses: bool,
    /// Completion times, on the trace's clock, of the requests handed out so far; `None` if the trace has no response
    /// times.
    #[serde(skip)]
    trace_in_flight: Option<BinaryHeap<Reverse<u64>>>,
}

impl Meter {
    /// `has_responses`: whether the trace has response times. `begins`: the start of each target. `devices`: the number
    /// of devices that have their own figures.
    pub(super) fn new(
        timing: ReplayTiming,
        has_responses: bool,
        begins: Vec<u64>,
        devices: usize,
    ) -> Meter {
        Meter {
            start: Nanos(0),
            by_time: timing != ReplayTiming::Depth,
            begins,
            devices: match devices {
                0 | 1 => Vec::new(),
                _ => (0..devices).map(|_| DeviceMeter::default()).collect(),
            },
            forced_planned: 0,
            forced_sent: 0,
            planned: Digest::default(),
            sent: Digest::default(),
            fates: Fates::default(),
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
            has_responses,
            trace_in_flight: has_responses.then(|| BinaryHeap::with_capacity(TRACE_DEPTH_MAX)),
        }
    }

    /// Sets the start time of the run.
    pub(super) fn starts(&mut self, start: Nanos) {
        self.start = start;
    }

    /// Records that everything was handed out.
    pub(super) fn ended(&mut self) {
        self.ended = true;
    }

    /// Counts a request that conflicts with one in flight.
    pub(super) fn conflict(&mut self) {
        self.conflicts += 1;
    }

    /// Records a request that will be sent.
    #[inline]
    pub(super) fn planned(&mut self, index: u64, row: &ReplayRow) {
        let target = row.of.target;
        let offset = row.offset - self.begins[usize::from(target)];
        self.planned.add(index, row.op, target, offset, row.len);
        self.forced_planned += u64::from(row.fua);
        if let Some(device) = self.devices.get_mut(usize::from(row.of.device)) {
            device.planned.add(index, row.op, target, offset, row.len);
        }
    }

    /// Counts the outcome of a request, both in total and for its device.
    #[inline]
    fn fate(&mut self, of: RowOrigin, count: impl Fn(&mut Fates)) {
        count(&mut self.fates);
        if let Some(device) = self.devices.get_mut(usize::from(of.device)) {
            count(&mut device.fates);
        }
    }

    /// Counts a planned request, or its last piece, that was given to a worker.
    #[inline]
    pub(super) fn given(&mut self, of: RowOrigin) {
        self.fate(of, |fates| fates.given += 1);
    }

    /// Counts a planned request that is not sent, or only partly, because it conflicts with one in flight.
    #[cold]
    pub(super) fn dropped(&mut self, of: RowOrigin) {
        self.fate(of, |fates| fates.dropped += 1);
    }

    /// Counts a due request that was given to a worker and will not be sent.
    #[cold]
    pub(super) fn skipped(&mut self, entry: &Entry) {
        if entry.closes {
            self.fate(entry.of, |fates| fates.skipped += 1);
        }
    }

    /// Records a request that was given to a worker but will not be sent, because the run ends before it is due.
    /// `arrived`: the request was given to be sent, not just to be counted.
    #[cold]
    pub(super) fn given_back(&mut self, index: u64, entry: &Entry, arrived: bool) {
        let Entry {
            op,
            offset,
            len,
            of,
            fua,
            closes,
            found: (here, there),
            ..
        } = *entry;
        if arrived {
            let moment = self.moment(entry.due);
            moment.arrived -= 1;
            moment.depth -= u64::from(here);
            moment.trace_depth -= u64::from(there);
        }
        let offset = offset - self.begins[usize::from(of.target)];
        self.planned.remove(index, op, of.target, offset, len);
        self.forced_planned -= u64::from(fua);
        if let Some(device) = self.devices.get_mut(usize::from(of.device)) {
            device.planned.remove(index, op, of.target, offset, len);
        }
        if closes {
            self.fate(of, |fates| {
                fates.given -= 1;
                fates.given_back += 1;
            });
        }
    }

    /// Records a request given to a worker while `in_flight` requests are in flight. Returns the number of requests in
    /// flight here and in the trace.
    #[inline]
    pub(super) fn arrival(&mut self, row: &ReplayRow, due: Nanos, in_flight: usize) -> (u32, u32) {
        let trace_depth = match &mut self.trace_in_flight {
            None => 0,
            Some(completions) => {
                while completions
                    .peek()
                    .is_some_and(|Reverse(at)| *at <= row.time_ns)
                {
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
        (in_flight as u32, trace_depth as u32)
    }

    /// Returns true if sending a request now is out of order: after a later request, or at an earlier time than another
    /// send.
    #[inline]
    pub(super) fn is_out_of_order(&self, index: u64, at: Nanos) -> bool {
        self.highest_sent
            .is_some_and(|(highest, latest)| index < highest || at < latest)
    }

    /// Records a request that was sent; `overtaken`: a later one on the same blocks was sent before it.
    #[inline]
    pub(super) fn sent(&mut self, request: &Planned, entry: &Entry, at: Nanos, overtaken: bool) {
        let target = entry.of.target;
        let offset = request.offset - self.begins[usize::from(target)];
        self.sent
            .add(request.index, request.op, target, offset, request.len);
        self.fates.sent += u64::from(entry.closes);
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
            device
                .sent
                .add(request.index, request.op, target, offset, request.len);
            device.fates.sent += u64::from(entry.closes);
            device.late += u64::from(is_late);
            if self.by_time {
                device.errors.record(Nanos(error));
            }
        }
        if self.first.is_none() {
            self.first = Some((entry.due, at));
        } else if self.by_time {
            self.gaps_due
                .record(Nanos(entry.due.0.saturating_sub(self.last.0.0)));
            self.gaps_sent
                .record(Nanos(at.0.saturating_sub(self.last.1.0)));
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
        // If most of the delay came after it was handed out, the device didn't accept it.
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

    /// Records a request that ended.
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

    /// Finds or creates the moment of this time.
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
        self.moment = MomentAt {
            place,
            begin,
            end: begin + self.moment_nanos,
        };
    }

    /// Merges pairs of moments.
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

    /// Returns the start time of the run.
    pub(super) fn started(&self) -> Nanos {
        self.start
    }

    /// Returns true if another host's measurements are plausible, given this number of devices with their own figures.
    pub(super) fn is_possible(&self, devices: usize) -> bool {
        let devices = if devices > 1 { devices } else { 0 };
        let counts = [self.planned.count(), self.sent.count(), self.completed];
        let moments = (MOMENT_NANOS..=u64::MAX >> 8).contains(&self.moment_nanos);
        counts.iter().all(|count| *count <= COUNT_MAX)
            && self.fates.are_possible()
            && self.devices.len() == devices
            && self
                .devices
                .iter()
                .all(|device| device.fates.are_possible())
            && self.moments.len() <= MOMENTS_MAX
            && moments
            && (self.moment_nanos / MOMENT_NANOS).is_power_of_two()
            && self.moment_nanos.is_multiple_of(MOMENT_NANOS)
    }

    /// Adds the counts of another part of the same replay.
    pub(super) fn merge_counts(&mut self, other: &Meter) {
        self.planned.merge(&other.planned);
        self.sent.merge(&other.sent);
        self.fates.merge(&other.fates);
        let sums = [
            (&mut self.forced_planned, other.forced_planned),
            (&mut self.forced_sent, other.forced_sent),
            (&mut self.completed, other.completed),
            (&mut self.reordered, other.reordered),
            (&mut self.reordered_overlapping, other.reordered_overlapping),
            (&mut self.conflicts, other.conflicts),
        ];
        sums.into_iter()
            .for_each(|(sum, more)| *sum = sum.saturating_add(more));
        for (own, other) in self.devices.iter_mut().zip(&other.devices) {
            own.planned.merge(&other.planned);
            own.sent.merge(&other.sent);
            own.fates.merge(&other.fates);
            own.completed = own.completed.saturating_add(other.completed);
            own.late = own.late.saturating_add(other.late);
            own.errors.merge(&other.errors);
        }
    }

    /// Adds the moments of another part of the same replay, using the longer of the two moment lengths.
    pub(super) fn merge_moments(&mut self, other: &Meter) {
        let mut other = other.clone();
        while self.moment_nanos < other.moment_nanos {
            self.lengthen();
        }
        while other.moment_nanos < self.moment_nanos {
            other.lengthen();
        }
        self.moments.resize(
            self.moments.len().max(other.moments.len()),
            Moment::default(),
        );
        self.moments
            .iter_mut()
            .zip(&other.moments)
            .for_each(|(own, other)| own.add(other));
    }

    /// Returns the measurements over time, without the moments that have no requests.
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
                    .has_responses
                    .then(|| of(moment.trace_depth, moment.arrived)),
            })
        };
        self.moments.iter().enumerate().filter_map(moment).collect()
    }
}
