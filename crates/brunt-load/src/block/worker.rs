//! The loop between a sequence of requests and a device: one worker, one thread, one ring. Keeps
//! the queue full (closed loop) or the schedule (open loop), stamps, retries, verifies, and
//! fills histograms. Time and waiting come through [`Timeline`], so that a test runs an hour
//! against a simulated device in a millisecond.
//!
//! The rule: after the start nothing allocates and nothing blocks but [`Timeline::wait`] (and a
//! verification journal's file).
//!
//! Cost, measured against the null device at depth 32 with interval histograms: see
//! `brunt bench load`. Two clock reads serve a whole batch.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brunt_block::{Buf, BufPool, Completion, Device, DeviceError, DeviceInfo, Op, Refusal, Request, Ring};
use brunt_core::{Clock, Nanos};
use brunt_result::{
    Cost, Counts, Figures, FirstError, Interval, OpKind, Outcome, RequestRecord, RequestStatus, Stopped,
};

use crate::block::arrival::Schedule;
use crate::block::data::Source;
use crate::block::generator::{Area, Generator, Planned};
use crate::block::verify::{GRAINS_MAX, HEADER_BYTES, Journal, JournalHead, Ledger};
use crate::block::workload::{Arrival, RetryOn, Workload};
use crate::cost;
use crate::load::WorkloadError;
use crate::record::{Recorder, kind_of, status_of};

/// The operations of a described workload, in the order of their figures.
pub const KINDS: [OpKind; 2] = [OpKind::Read, OpKind::Write];

/// How long a stop flag may go unseen.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long an interrupted run waits for what is outstanding.
const INTERRUPTED_DRAIN_MAX: Duration = Duration::from_secs(1);
/// Requests in the log before the recorder gets them.
const LOG_REQUESTS: usize = 4096;

/// Where a worker's time comes from and how it waits.
pub trait Timeline {
    /// The time now.
    fn now(&self) -> Nanos;
    /// Hands queued requests on and waits until something may have completed, or `until`. For up to
    /// 50 µs one completion is not enough but `count` are.
    ///
    /// # Errors
    /// The ring's.
    fn wait(&mut self, count: u32, until: Nanos) -> io::Result<()>;
    /// System calls made for requests so far.
    fn system_calls(&self) -> u64;
}

/// The monotonic clock and a ring.
pub struct RingTime<'a>(pub &'a Ring);

impl Timeline for RingTime<'_> {
    #[inline]
    fn now(&self) -> Nanos {
        Clock::Monotonic.now()
    }
    fn wait(&mut self, count: u32, until: Nanos) -> io::Result<()> {
        self.0.enter_for(count, until)
    }
    fn system_calls(&self) -> u64 {
        self.0.stats().system_calls
    }
}

/// Which worker of which run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// From 0.
    pub worker: u32,
    /// How many there are.
    pub workers: u32,
    /// Of the run; all sequences follow from it.
    pub seed: u64,
}

/// One worker, ready to start.
pub struct Worker {
    seat: Seat,
    slots: Vec<Slot>,
    free: Vec<u32>,
    retrying: Vec<u32>,
    batch: VecDeque<Request>,
    done: Vec<Completion>,
    generator: Generator,
    schedule: Option<Schedule>,
    held: Option<(Planned, Nanos)>,
    source: Source,
    ledger: Option<Ledger>,
    log: Option<Vec<RequestRecord>>,
    rules: Rules,
    phase: Phase,
    current: Interval,
    total: Figures,
    cost: Cost,
    first_error: Option<FirstError>,
    last_completed: Nanos,
    outstanding: u32,
    burst_left: u64,
    burst_pause_until: Nanos,
}

/// What stays the same for a run.
struct Rules {
    ramp_requests: u64,
    ramp_time: Duration,
    time: Option<Duration>,
    timeout: Option<Duration>,
    drain: Duration,
    interval: Option<Duration>,
    skip_after: Duration,
    reap_batch: u32,
    retry_count: u32,
    retry_delay: Duration,
    retry_on: RetryOn,
    force_unit_access: bool,
    burst: Option<(u64, Duration)>,
}

/// Where a run stands.
struct Phase {
    start: Nanos,
    /// Requests are still made.
    issuing: bool,
    /// Recording began; set with `measure_start`.
    measuring: bool,
    /// Since the last time around.
    just_began: bool,
    measure_start: Nanos,
    /// Known at the start for a run by time, at the end for others.
    end: Nanos,
    interval_end: Nanos,
    requests_left: u64,
    bytes_left: u64,
    drain_until: Nanos,
    next_timeout: Nanos,
    stopped: Stopped,
}

struct Slot {
    planned: Planned,
    intended: Nanos,
    sent: Nanos,
    retry_at: Nanos,
    generation: u64,
    attempts: u32,
    in_flight: bool,
    timed_out: bool,
    recorded: bool,
    /// The buffer held something else since the source filled it.
    stale: bool,
    buf: Buf,
}

impl Worker {
    /// A worker for a device of this kind, with buffers from `pool`. `run` is a number that tells this
    /// run's blocks from another's when they are verified.
    ///
    /// # Errors
    /// The workload does not fit the device, or the journal cannot be made.
    pub fn new(
        workload: &Workload,
        info: &DeviceInfo,
        seat: Seat,
        run: u64,
        pool: &BufPool,
    ) -> Result<Worker, WorkloadError> {
        let (start, len) = workload.check_device(info)?;
        let align = workload.alignment(info);
        let area = Area::of_worker(start, len, align, seat.worker, seat.workers, workload.verify.is_some());
        let block_max = workload.block_bytes_max();
        let mut source = Source::new(workload.data, block_max, seat.seed, seat.worker);
        let writes = workload.read < 1.0;
        let idle = Planned { index: 0, op: Op::Read, offset: 0, len: 0 };
        let slots = (0..workload.queue_depth).map(|_| {
            let mut buf = pool.take(block_max as usize);
            if writes {
                source.fill(&mut buf, true);
            }
            Slot {
                planned: idle,
                intended: Nanos(0),
                sent: Nanos(0),
                retry_at: Nanos(0),
                generation: 0,
                attempts: 0,
                in_flight: false,
                timed_out: false,
                recorded: false,
                stale: false,
                buf,
            }
        });
        let slots: Vec<Slot> = slots.collect();
        let schedule = match workload.arrival {
            Arrival::Open { rate, process, .. } => {
                Some(Schedule::new(rate, process, workload.burst, seat.seed, seat.worker, seat.workers))
            }
            Arrival::Closed {} | Arrival::Search { .. } => None,
        };
        let share = |all: u64| {
            all / u64::from(seat.workers) + u64::from(u64::from(seat.worker) < all % u64::from(seat.workers))
        };
        let ramp = workload.ramp_up.unwrap_or_default();
        let depth = slots.len();
        let nonzero = |duration: Duration| (!duration.is_zero()).then_some(duration);
        Ok(Worker {
            seat,
            free: (0..depth as u32).rev().collect(),
            retrying: Vec::with_capacity(depth),
            slots,
            batch: VecDeque::with_capacity(depth),
            done: Vec::with_capacity(depth),
            generator: Generator::new(workload, area, seat.seed, seat.worker),
            schedule,
            held: None,
            source,
            ledger: ledger(workload, area, seat, run)?,
            log: workload.record_requests.then(|| Vec::with_capacity(LOG_REQUESTS)),
            rules: Rules {
                ramp_requests: ramp.requests,
                ramp_time: ramp.time.0,
                time: workload.stop.time.map(|time| time.0),
                timeout: nonzero(workload.timeout.0),
                drain: workload.drain.0,
                interval: nonzero(workload.interval.0),
                skip_after: match workload.arrival {
                    Arrival::Open { skip_after, .. } => skip_after.0,
                    _ => Duration::MAX,
                },
                reap_batch: workload.reap_batch,
                retry_count: workload.retry.count,
                retry_delay: workload.retry.delay.0,
                retry_on: workload.retry.on,
                force_unit_access: workload.force_unit_access,
                burst: workload.burst.and_then(|burst| Some((burst.requests, nonzero(burst.interval.0)?))),
            },
            phase: Phase {
                start: Nanos(0),
                issuing: true,
                measuring: false,
                just_began: false,
                measure_start: Nanos(0),
                end: Nanos::MAX,
                interval_end: Nanos::MAX,
                requests_left: workload.stop.requests.map_or(u64::MAX, share),
                bytes_left: workload.stop.bytes.map_or(u64::MAX, |bytes| share(bytes.0)),
                drain_until: Nanos::MAX,
                next_timeout: Nanos::MAX,
                stopped: Stopped::Done,
            },
            current: Interval {
                index: 0,
                start: Nanos(0),
                end: Nanos(0),
                figures: Figures::of_kinds(&KINDS),
            },
            total: Figures::of_kinds(&KINDS),
            cost: Cost::default(),
            first_error: None,
            last_completed: Nanos(0),
            outstanding: 0,
            burst_left: workload.burst.map_or(u64::MAX, |burst| burst.requests),
            burst_pause_until: Nanos(0),
        })
    }

    /// Runs from `start` until the workload is done or `stop` is set. Always ends: what the device
    /// does not answer within the workload's `drain` is counted as hanging.
    ///
    /// # Errors
    /// The ring, or the journal's file. What was measured until then has gone to the recorder, but for
    /// the open interval.
    pub fn run(
        mut self,
        device: &mut dyn Device,
        time: &mut impl Timeline,
        start: Nanos,
        stop: &AtomicBool,
        recorder: &mut dyn Recorder,
    ) -> io::Result<Outcome> {
        self.begin(start, time);
        loop {
            let now = time.now();
            self.roll(now, time, recorder);
            if self.phase.issuing {
                self.look_for_the_end(now, stop);
            }
            // What the device could not take yet was not sent yet.
            for request in &self.batch {
                self.slots[request.tag as usize].sent = now;
            }
            self.flush_log(recorder, self.slots.len());
            self.fill(now);
            self.resend(now);
            if std::mem::take(&mut self.phase.just_began) {
                // What ramp-up cost is nobody's.
                self.cost = cost::of_this_thread(time.system_calls());
            }
            if !self.batch.is_empty() {
                if let Some(ledger) = &mut self.ledger {
                    ledger.flush()?;
                }
                device.submit(&mut self.batch);
            }
            if self.outstanding == 0 && self.retrying.is_empty() && !self.more_to_come() {
                break;
            }
            if now >= self.phase.drain_until {
                break;
            }
            time.wait(self.rules.reap_batch, self.wait_until(device.deadline(), now))?;
            device.poll(&mut self.done);
            if !self.done.is_empty() {
                self.reap(time, recorder);
            }
            if time_is_up(self.phase.next_timeout, now) {
                self.give_up_late_ones(time.now(), device);
            }
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.flush()?;
        }
        Ok(self.finish(time, recorder))
    }

    fn begin(&mut self, start: Nanos, time: &impl Timeline) {
        let phase = &mut self.phase;
        phase.start = start;
        phase.measure_start = start.after(self.rules.ramp_time);
        self.last_completed = phase.measure_start;
        if self.rules.ramp_requests == 0 {
            self.set_measure_start(self.phase.measure_start);
        }
        self.cost = cost::of_this_thread(time.system_calls());
    }

    fn set_measure_start(&mut self, start: Nanos) {
        let phase = &mut self.phase;
        phase.measure_start = start;
        phase.end = self.rules.time.map_or(Nanos::MAX, |time| start.after(time));
        phase.interval_end = self.rules.interval.map_or(Nanos::MAX, |length| start.after(length));
        self.current.start = start;
        self.last_completed = start;
    }

    /// Closes intervals that are over.
    #[inline]
    fn roll(&mut self, now: Nanos, time: &impl Timeline, recorder: &mut dyn Recorder) {
        // Requests that come after the end belong to the last interval, so that one stays open.
        while now >= self.phase.interval_end && self.phase.interval_end < self.phase.end {
            let end = self.phase.interval_end;
            self.close_interval(end, time, recorder);
            self.phase.interval_end = end.after(self.rules.interval.expect("an interval ended"));
        }
    }

    #[cold]
    fn close_interval(&mut self, end: Nanos, time: &impl Timeline, recorder: &mut dyn Recorder) {
        let cost = cost::of_this_thread(time.system_calls());
        self.current.figures.cost = cost.since(&self.cost);
        self.cost = cost;
        self.current.end = end;
        let nothing = end == self.current.start && self.current.figures.counts == Counts::default();
        if !nothing {
            recorder.interval(&self.current);
        }
        self.total.merge(&self.current.figures);
        self.current.figures.clear();
        self.current.index += 1;
        self.current.start = end;
    }

    fn look_for_the_end(&mut self, now: Nanos, stop: &AtomicBool) {
        if stop.load(Ordering::Relaxed) {
            self.stop_issuing(now, Stopped::Interrupted);
        } else if self.phase.requests_left == 0 || self.phase.bytes_left == 0 {
            self.stop_issuing(now, Stopped::Done);
        } else if now >= self.phase.end {
            self.stop_issuing(self.phase.end, Stopped::Done);
        }
    }

    #[cold]
    fn stop_issuing(&mut self, now: Nanos, why: Stopped) {
        let phase = &mut self.phase;
        phase.issuing = false;
        phase.stopped = phase.stopped.max(why);
        let drain = match why {
            Stopped::Done => self.rules.drain,
            _ => self.rules.drain.min(INTERRUPTED_DRAIN_MAX),
        };
        phase.drain_until = now.after(drain);
        if why != Stopped::Done {
            phase.end = phase.end.min(now);
        }
    }

    /// Whether requests are going to be made even though none is outstanding.
    fn more_to_come(&self) -> bool {
        self.phase.issuing
            || (self.held.is_some() && self.phase.stopped == Stopped::Done)
            || self.backlog_due()
    }

    /// Whether an open loop that ended by time has requests that were due before its end.
    fn backlog_due(&self) -> bool {
        let Some(schedule) = &self.schedule else { return false };
        self.phase.stopped == Stopped::Done
            && self.phase.requests_left > 0
            && self.phase.bytes_left > 0
            && self.due(schedule) < self.phase.end
    }

    fn due(&self, schedule: &Schedule) -> Nanos {
        Nanos(self.phase.start.0.saturating_add(schedule.due().0))
    }

    /// Makes requests for free slots, as far as time and limits allow.
    #[inline]
    fn fill(&mut self, now: Nanos) {
        while !self.free.is_empty() {
            let (planned, intended) = match self.held.take() {
                Some(held) => held,
                None => match self.next_request(now) {
                    Some(next) => next,
                    None => return,
                },
            };
            if self.ledger.is_some() && self.overlaps(&planned) {
                self.held = Some((planned, intended));
                return;
            }
            self.prepare(planned, intended, now);
        }
    }

    /// The next request that is due, and since when.
    #[inline]
    fn next_request(&mut self, now: Nanos) -> Option<(Planned, Nanos)> {
        let intended = match &self.schedule {
            None => {
                if !self.phase.issuing || now < self.phase.start {
                    return None;
                }
                if self.rules.burst.is_some() && !self.burst_allows(now) {
                    return None;
                }
                now
            }
            Some(_) => self.next_due(now)?,
        };
        if self.phase.requests_left == 0 || self.phase.bytes_left == 0 {
            return None;
        }
        let planned = self.generator.next_request();
        if self.is_recorded(&planned, intended) {
            self.phase.requests_left -= 1;
            self.phase.bytes_left = self.phase.bytes_left.saturating_sub(planned.len);
        }
        Some((planned, intended))
    }

    /// The open loop's part: goes past requests that are too late, takes the one that is due.
    fn next_due(&mut self, now: Nanos) -> Option<Nanos> {
        loop {
            if !self.phase.issuing && !self.backlog_due() {
                return None;
            }
            let due = self.due(self.schedule.as_ref().expect("an open loop"));
            if due > now || due >= self.phase.end {
                return None;
            }
            // A long stall may make more skips than the log holds at once; they wait their turn.
            if self.log.as_ref().is_some_and(|log| log.len() == LOG_REQUESTS) {
                return None;
            }
            self.schedule.as_mut().expect("an open loop").advance();
            if now.since(due) <= self.rules.skip_after {
                return Some(due);
            }
            self.skip(due);
            if self.phase.requests_left == 0 {
                return None;
            }
        }
    }

    /// A due request that is not going to be sent.
    #[cold]
    fn skip(&mut self, due: Nanos) {
        let planned = self.generator.next_request();
        if !self.is_recorded(&planned, due) {
            return;
        }
        self.phase.requests_left -= 1;
        self.phase.bytes_left = self.phase.bytes_left.saturating_sub(planned.len);
        self.current.figures.counts.by_status[RequestStatus::Skipped as usize] += 1;
        self.log_request(&planned, due, None, None, 0, RequestStatus::Skipped);
    }

    /// The closed loop's bursts: so many requests, then a pause after the last completion.
    fn burst_allows(&mut self, now: Nanos) -> bool {
        let (requests, pause) = self.rules.burst.expect("asked only with bursts");
        if self.burst_left == 0 {
            if self.outstanding > 0 || !self.retrying.is_empty() {
                return false;
            }
            self.burst_left = requests;
            self.burst_pause_until = now.after(pause);
        }
        if now < self.burst_pause_until {
            return false;
        }
        self.burst_left -= 1;
        true
    }

    /// Whether a request counts: ramp-up is over by count and by time.
    #[inline]
    fn is_recorded(&mut self, planned: &Planned, intended: Nanos) -> bool {
        if self.phase.measuring {
            return true;
        }
        let ramped = self.phase.start.after(self.rules.ramp_time);
        if planned.index < self.rules.ramp_requests || intended < ramped {
            return false;
        }
        self.phase.measuring = true;
        if self.rules.ramp_requests > 0 {
            self.set_measure_start(intended);
        }
        self.phase.just_began = true;
        true
    }

    /// Whether a request touches one in flight and one of the two writes.
    fn overlaps(&self, planned: &Planned) -> bool {
        self.slots.iter().any(|slot| {
            let other = &slot.planned;
            let busy = slot.in_flight || slot.attempts > 0;
            let writes = planned.op == Op::Write || other.op == Op::Write;
            busy && writes
                && planned.offset < other.offset + other.len
                && other.offset < planned.offset + planned.len
        })
    }

    #[inline]
    fn prepare(&mut self, planned: Planned, intended: Nanos, now: Nanos) {
        let index = self.free.pop().expect("a slot is free");
        let recorded = self.phase.measuring;
        let slot = &mut self.slots[index as usize];
        slot.planned = planned;
        slot.intended = intended;
        slot.attempts = 0;
        slot.recorded = recorded;
        if planned.op == Op::Write {
            let block = &mut slot.buf[..planned.len as usize];
            self.source.fill(block, slot.stale);
            slot.stale = false;
            if let Some(ledger) = &mut self.ledger {
                slot.generation = ledger.begin_write(planned.offset, block);
            }
        } else {
            slot.stale = true;
        }
        self.send(index, now);
    }

    #[inline]
    fn send(&mut self, index: u32, now: Nanos) {
        let slot = &mut self.slots[index as usize];
        slot.sent = now;
        slot.in_flight = true;
        slot.timed_out = false;
        let planned = &slot.planned;
        self.batch.push_back(Request {
            tag: u64::from(index),
            op: planned.op,
            offset: planned.offset,
            len: planned.len,
            buf: std::mem::take(&mut slot.buf),
            force_unit_access: self.rules.force_unit_access && planned.op == Op::Write,
        });
        self.outstanding += 1;
        if let Some(timeout) = self.rules.timeout
            && self.phase.next_timeout == Nanos::MAX
        {
            self.phase.next_timeout = now.after(timeout);
        }
    }

    /// Sends again what failed, when its pause is over.
    #[inline]
    fn resend(&mut self, now: Nanos) {
        if self.retrying.is_empty() {
            return;
        }
        let mut at = 0;
        while at < self.retrying.len() {
            let index = self.retrying[at];
            if self.slots[index as usize].retry_at <= now {
                self.retrying.swap_remove(at);
                self.send(index, now);
            } else {
                at += 1;
            }
        }
    }

    fn wait_until(&self, device: Nanos, now: Nanos) -> Nanos {
        if device == Nanos(0) {
            return device;
        }
        let mut until = device.min(now.after(LOOK_EVERY)).min(self.phase.drain_until);
        if self.phase.interval_end < self.phase.end {
            until = until.min(self.phase.interval_end);
        }
        until = until.min(self.phase.next_timeout);
        if self.phase.issuing {
            until = until.min(self.phase.end);
            if !self.free.is_empty() && self.held.is_none() {
                until = until.min(
                    match &self.schedule {
                        Some(schedule) => self.due(schedule),
                        None if self.burst_left == 0 => Nanos::MAX,
                        None if self.rules.burst.is_some() => self.burst_pause_until,
                        None => self.phase.start,
                    }
                    .max(now),
                );
            }
        }
        for index in &self.retrying {
            until = until.min(self.slots[*index as usize].retry_at);
        }
        if until <= now { Nanos(0) } else { until }
    }

    #[inline]
    fn reap(&mut self, time: &impl Timeline, recorder: &mut dyn Recorder) {
        let now = time.now();
        self.roll(now, time, recorder);
        let mut done = std::mem::take(&mut self.done);
        for completion in done.drain(..) {
            self.complete(completion, now);
        }
        self.done = done;
    }

    #[inline]
    fn complete(&mut self, completion: Completion, now: Nanos) {
        let index = completion.tag as u32;
        let slot = &mut self.slots[index as usize];
        assert!(slot.in_flight, "the device completed request {index} twice");
        slot.in_flight = false;
        slot.buf = completion.buf;
        self.outstanding -= 1;
        let planned = slot.planned;
        let failed = completion.result.is_err_and(|error| !error.is_recovered());
        if failed || slot.timed_out {
            return self.failed(index, completion.result.err(), now);
        }
        let mut status = RequestStatus::Good;
        if let Some(ledger) = &mut self.ledger {
            if planned.op == Op::Write {
                ledger.end_write(planned.offset, planned.len, slot.generation, true);
            } else if !ledger.check_read(planned.offset, &slot.buf[..planned.len as usize]) {
                status = RequestStatus::Miscompare;
            }
        }
        self.end(index, status, None, now);
    }

    /// A failed attempt: made again, or the end of it.
    #[cold]
    fn failed(&mut self, index: u32, error: Option<DeviceError>, now: Nanos) {
        let slot = &mut self.slots[index as usize];
        let planned = slot.planned;
        let error =
            if slot.timed_out { DeviceError::TimedOut } else { error.expect("an attempt that failed") };
        let again = slot.attempts < self.rules.retry_count
            && error != DeviceError::Gone
            && (self.rules.retry_on == RetryOn::Any || is_transient(&error))
            && now < self.phase.drain_until;
        if again {
            slot.attempts += 1;
            slot.retry_at = now.after(self.rules.retry_delay);
            if slot.recorded {
                self.current.figures.at(slot_of(planned.op)).retries += 1;
            }
            self.retrying.push(index);
            return;
        }
        if let Some(ledger) = &mut self.ledger
            && planned.op == Op::Write
        {
            ledger.end_write(planned.offset, planned.len, slot.generation, false);
        }
        if error == DeviceError::Gone && self.phase.issuing {
            self.stop_issuing(now, Stopped::DeviceGone);
        }
        self.end(index, status_of(&error), Some(error), now);
    }

    /// The end of a request: counts it and frees its slot.
    #[inline]
    fn end(&mut self, index: u32, status: RequestStatus, error: Option<DeviceError>, now: Nanos) {
        let slot = &mut self.slots[index as usize];
        let (planned, attempts) = (slot.planned, slot.attempts);
        let (intended, sent, recorded) = (slot.intended, slot.sent, slot.recorded);
        slot.attempts = 0;
        self.free.push(index);
        if status != RequestStatus::Good && self.first_error.is_none() {
            self.first_error = Some(first_error(status, error, &planned));
        }
        if !recorded {
            return;
        }
        self.last_completed = now;
        let figures = &mut self.current.figures;
        figures.counts.by_status[status as usize] += 1;
        if status == RequestStatus::Good {
            let figures = figures.at(slot_of(planned.op));
            figures.completed += 1;
            figures.bytes += planned.len;
            if now > self.phase.end {
                figures.late += 1;
                figures.late_bytes += planned.len;
            }
            figures.service.record(Nanos(now.0 - sent.0));
            figures.response.record(Nanos(now.0 - intended.0));
        }
        self.log_request(&planned, intended, Some(sent), Some(now), attempts, status);
    }

    #[inline]
    fn log_request(
        &mut self,
        planned: &Planned,
        intended: Nanos,
        sent: Option<Nanos>,
        completed: Option<Nanos>,
        retries: u32,
        status: RequestStatus,
    ) {
        if let Some(log) = &mut self.log {
            let Planned { index, op, offset, len } = *planned;
            let op = kind_of(op);
            let worker = self.seat.worker;
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

    /// Asks the device to give up what is over its time. It still completes, once, in the device's
    /// own time.
    #[cold]
    fn give_up_late_ones(&mut self, now: Nanos, device: &mut dyn Device) {
        let timeout = self.rules.timeout.expect("a time-out passed");
        let mut next = Nanos::MAX;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if !slot.in_flight || slot.timed_out {
                continue;
            }
            let due = slot.sent.after(timeout);
            if due > now {
                next = next.min(due);
                continue;
            }
            slot.timed_out = true;
            if slot.recorded {
                self.current.figures.at(slot_of(slot.planned.op)).timeouts += 1;
            }
            device.cancel(index as u64);
        }
        self.phase.next_timeout = next;
    }

    fn finish(mut self, time: &impl Timeline, recorder: &mut dyn Recorder) -> Outcome {
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            let (busy, recorded) = (slot.in_flight || self.retrying.contains(&(index as u32)), slot.recorded);
            if busy && recorded {
                self.current.figures.counts.by_status[RequestStatus::Hanging as usize] += 1;
                let slot = &self.slots[index];
                let (planned, intended, sent, attempts) =
                    (slot.planned, slot.intended, slot.sent, slot.attempts);
                self.log_request(&planned, intended, Some(sent), None, attempts, RequestStatus::Hanging);
                self.flush_log(recorder, 1);
            }
        }
        self.skip_the_rest(time.now(), recorder);
        self.flush_log(recorder, LOG_REQUESTS);
        let end = if self.phase.end == Nanos::MAX { self.last_completed } else { self.phase.end };
        let end = end.max(self.phase.measure_start);
        self.close_interval(end.max(self.current.start), time, recorder);
        let seconds = end.since(self.phase.measure_start).as_secs_f64();
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        Outcome {
            requests_per_second: rate(self.total.completed_in_time()),
            bytes_per_second: rate(self.total.bytes_in_time()),
            figures: self.total,
            start: self.phase.measure_start,
            end,
            stopped: self.phase.stopped,
            first_error: self.first_error,
            recording_wait: Duration::ZERO,
        }
    }

    /// What was due before the end and never sent.
    fn skip_the_rest(&mut self, now: Nanos, recorder: &mut dyn Recorder) {
        if let Some((planned, intended)) = self.held.take()
            && self.is_recorded(&planned, intended)
        {
            self.current.figures.counts.by_status[RequestStatus::Skipped as usize] += 1;
            self.log_request(&planned, intended, None, None, 0, RequestStatus::Skipped);
        }
        let until = self.phase.end.min(now);
        while let Some(schedule) = &self.schedule {
            let due = self.due(schedule);
            if due >= until || self.phase.requests_left == 0 || self.phase.bytes_left == 0 {
                return;
            }
            self.schedule.as_mut().expect("an open loop").advance();
            self.skip(due);
            self.flush_log(recorder, 1);
        }
    }

    /// Hands the log on unless `room` more fit in.
    #[inline]
    fn flush_log(&mut self, recorder: &mut dyn Recorder, room: usize) {
        if let Some(log) = &mut self.log
            && log.len() + room > LOG_REQUESTS
            && !log.is_empty()
        {
            recorder.requests(log);
            log.clear();
        }
    }
}

/// Where the figures of an operation are: its place in [`KINDS`].
#[inline]
fn slot_of(op: Op) -> usize {
    usize::from(op != Op::Read)
}

#[cold]
fn first_error(status: RequestStatus, error: Option<DeviceError>, planned: &Planned) -> FirstError {
    let text = match error {
        Some(error) => error.to_string(),
        None => "the data is not what was written there".to_string(),
    };
    let Planned { op, offset, len, .. } = *planned;
    FirstError { status, op: kind_of(op), offset, len, text }
}

#[inline]
fn time_is_up(at: Nanos, now: Nanos) -> bool {
    at != Nanos::MAX && now >= at
}

/// Failures that say "not now".
fn is_transient(error: &DeviceError) -> bool {
    match error {
        DeviceError::Refused { kind, .. } => matches!(
            kind,
            Refusal::Busy
                | Refusal::QueueFull
                | Refusal::Cancelled
                | Refusal::NotReady
                | Refusal::Attention
                | Refusal::Aborted
        ),
        DeviceError::Os(errno) => {
            matches!(*errno, libc::EAGAIN | libc::EINTR | libc::EBUSY | libc::ETIMEDOUT)
        }
        DeviceError::TimedOut => true,
        _ => false,
    }
}

fn ledger(workload: &Workload, area: Area, seat: Seat, run: u64) -> Result<Option<Ledger>, WorkloadError> {
    let Some(verify) = &workload.verify else { return Ok(None) };
    let error = |what: String| WorkloadError { key: "verify", what };
    // The largest grain that every block is made of and begins at.
    let grain = workload.blocks.iter().fold(area.align, |grain, block| gcd(grain, block.size.0));
    assert!(grain as usize >= HEADER_BYTES, "sizes are multiples of 512");
    let len = area.len / grain * grain;
    if len / grain > GRAINS_MAX {
        let most = brunt_core::Size(GRAINS_MAX * grain);
        return Err(error(format!(
            "{} in grains of {grain} bytes is more than a worker keeps in mind; use a larger align, more workers, or a region of at most {most} for each worker",
            brunt_core::Size(len)
        )));
    }
    let head = JournalHead { run, start: area.start, len, grain, worker: seat.worker };
    let journal = match &verify.journal {
        Some(folder) => Some(Journal::create(folder, head).map_err(|failure| error(failure.to_string()))?),
        None => None,
    };
    Ok(Some(Ledger::new(area.start, len, grain, run, journal)))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests;
