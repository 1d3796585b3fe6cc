//! The loop between a request sequence and a device: one worker, one thread, one ring. Keeps the queue full (closed
//! loop) or follows the schedule (open loop), takes timestamps, retries, and fills histograms. Time and waiting are
//! provided by [`Timeline`], so that a test can simulate an hour in a millisecond.
//!
//! The rule: after the start nothing allocates, and nothing blocks except [`Timeline::wait`] and the files of a
//! [`Content`], such as a verification journal.
//!
//! Cost, measured against the null device at depth 32 with interval histograms: see `brunt-bench load`. Each batch
//! needs just two clock reads. A read takes some 600 instructions, of which histograms take 140 and the null device 110
//! (`examples/count_requests`).

mod completions;
mod feed;
mod occupancy;
mod phase;
mod retry;
mod slots;
mod tally;
mod time;

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use brunt_block::{Buf, BufPool, Completion, Device, DeviceInfo, Op, Request};
use brunt_core::{Histogram, Nanos};
use brunt_result::{OpKind, Outcome, RequestStatus, Stopped};

use crate::block::blocks::Blocks;
use crate::block::generator::Planned;
use crate::block::journal_store::RunMark;
use crate::block::synthetic::{Synthetic, WorkerId};
use crate::block::workload::{Arrival, Workload};
use crate::commands::Commands;
use crate::content::{Carried, Content};
use crate::load::WorkloadError;
use crate::record::Recorder;
use crate::sequence::Sequence;
use feed::Feed;
use occupancy::InFlight;
use phase::RunPhase;
use retry::RetryRules;
use slots::Slots;
use tally::{Tally, Times};
pub use time::{RingTime, RingUse, Timeline};

/// Maximum delay before a command is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// One worker, ready to start.
pub struct Worker<S, C> {
    slots: Slots,
    batch: VecDeque<Request>,
    /// Slots of the batch's requests, kept only for a sequence that watches.
    submitting: Vec<u32>,
    /// Completions taken from the device at `reaped_at` and not handled yet.
    done: Vec<Completion>,
    reaped_at: Nanos,
    /// Number of these completions to handle before requests are sent again.
    group: usize,
    feed: Feed<S>,
    /// A due request that overlaps one in flight.
    held: Option<(Planned, Nanos)>,
    content: C,
    rules: Rules,
    retry: RetryRules,
    phase: RunPhase,
    tally: Tally,
    /// Whether measuring began during the current iteration.
    just_began: bool,
    outstanding: u32,
    next_timeout: Nanos,
    changes_seen: u32,
}

/// Settings that stay the same during a run.
struct Rules {
    timeout: Option<Duration>,
    /// In nanoseconds.
    skip_after: u64,
    reap_batch: u32,
    force_unit_access: bool,
}

impl Worker<Synthetic, Blocks> {
    /// Creates a worker of a described workload for a device with this info, with buffers from `pool`. `run`
    /// distinguishes this run's blocks from those of other runs during verification.
    ///
    /// # Errors
    /// The workload does not fit the device, or the journal can't be created.
    pub fn new(
        workload: &Workload,
        info: &DeviceInfo,
        id: WorkerId,
        run: &RunMark,
        pool: &BufPool,
    ) -> Result<Worker<Synthetic, Blocks>, WorkloadError> {
        let sequence = Synthetic::new(workload, id.area(workload, info)?, id);
        Ok(Worker::with(
            sequence,
            Blocks::new(workload, info, id, run)?,
            workload,
            id,
            pool,
        ))
    }
}

impl<S: Sequence<Request = Planned>, C: Content<Request = Planned>> Worker<S, C> {
    /// Creates a worker for the requests of `sequence`, with these contents. The workload determines how requests are
    /// sent, retried and recorded, and when the run ends; its block sizes limit the length of requests.
    pub fn with(
        sequence: S,
        content: C,
        workload: &Workload,
        id: WorkerId,
        pool: &BufPool,
    ) -> Worker<S, C> {
        Worker::of_kinds(sequence, content, workload, &workload.kinds(), id, pool)
    }

    /// Like [`Worker::with`], for requests of other kinds than the workload describes.
    pub fn of_kinds(
        sequence: S,
        mut content: C,
        workload: &Workload,
        kinds: &[OpKind],
        id: WorkerId,
        pool: &BufPool,
    ) -> Worker<S, C> {
        let block_max = workload.block_bytes_max() as usize;
        let slots = Slots::new((0..workload.queue_depth).map(|_| {
            let mut carried = Carried {
                buf: pool.take(block_max),
                ..Carried::default()
            };
            content.prepare(&mut carried);
            carried
        }));
        let depth = slots.len();
        let nonzero = |duration: Duration| (!duration.is_zero()).then_some(duration);
        Worker {
            slots,
            batch: VecDeque::with_capacity(depth),
            submitting: Vec::with_capacity(if S::WATCHES { depth } else { 0 }),
            done: Vec::with_capacity(depth),
            reaped_at: Nanos(0),
            group: 0,
            feed: Feed::new(sequence),
            held: None,
            content,
            rules: Rules {
                timeout: nonzero(workload.timeout.0),
                skip_after: match workload.arrival {
                    Arrival::Open { skip_after, .. } => {
                        u64::try_from(skip_after.0.as_nanos()).unwrap_or(u64::MAX)
                    }
                    _ => u64::MAX,
                },
                reap_batch: workload.reap_batch,
                force_unit_access: workload.writes_are_stable(),
            },
            retry: RetryRules::new(&workload.retry),
            phase: RunPhase::new(workload, |all| id.share(all)),
            tally: Tally::new(
                id.worker,
                kinds,
                nonzero(workload.interval.0),
                workload.record_requests,
            ),
            just_began: false,
            outstanding: 0,
            next_timeout: Nanos::MAX,
            changes_seen: 0,
        }
    }

    /// Runs from `start` until the sequence, the workload's limits or a stop command ends the run. Always returns:
    /// requests that the device doesn't answer within the workload's `drain` count as hanging.
    ///
    /// # Errors
    /// The ring or the content's files failed. Everything measured before that has been passed to the recorder, except
    /// for the open interval.
    pub fn run(
        mut self,
        device: &mut dyn Device,
        time: &mut impl Timeline,
        start: Nanos,
        commands: &Commands,
        recorder: &mut dyn Recorder,
    ) -> io::Result<Outcome> {
        self.begin(start, time);
        loop {
            let now = time.now();
            self.keep_records(now, time, commands, recorder);
            self.fill(now);
            if !self.slots.retrying.is_empty() {
                self.resend(now);
            }
            if C::TAKES_TIME || S::WATCHES {
                self.send_now(time.now());
            }
            if std::mem::take(&mut self.just_began) {
                // Exclude the cost of ramp-up.
                self.tally.cost_begins(time.used());
            }
            if !self.batch.is_empty() {
                if let Some(timeout) = self.rules.timeout
                    && self.next_timeout == Nanos::MAX
                {
                    self.next_timeout = now.after(timeout);
                }
                self.content.flush()?;
                self.submit(device);
            }
            if S::WATCHES {
                self.pause(time)?;
            }
            if self.outstanding == 0 && self.slots.retrying.is_empty() && !self.more_to_come(now) {
                if !self.flush_at_end(now) {
                    break;
                }
                continue;
            }
            if !self.done.is_empty() {
                time.push()?;
            } else if now >= self.phase.drain_until {
                break;
            } else {
                time.wait(
                    self.rules.reap_batch,
                    self.wait_until(device.deadline(), now),
                )?;
                device.poll(&mut self.done);
                if !self.done.is_empty() {
                    self.reap(time, recorder);
                }
            }
            if !self.done.is_empty() {
                self.complete_group();
            }
            if time_is_up(self.next_timeout, now) && self.done.is_empty() {
                self.give_up_late_ones(time.now(), device);
            }
        }
        self.content.flush()?;
        Ok(self.finish(time, recorder))
    }

    fn begin(&mut self, start: Nanos, time: &impl Timeline) {
        self.feed.starts(start);
        if self.phase.begin(start) {
            self.tally.measure_from(self.phase.measure_start);
        }
        self.tally.cost_begins(time.used());
    }

    /// Closes intervals, checks for commands and the end of the run, and passes on the log of requests.
    #[inline(always)] // once per turn of the loop, from a single call site
    fn keep_records(
        &mut self,
        now: Nanos,
        time: &impl Timeline,
        commands: &Commands,
        recorder: &mut dyn Recorder,
    ) {
        let in_flight = InFlight {
            slots: &self.slots,
            batch: &self.batch,
            unsent: &|at, ages| unsent(&self.feed, &self.held, &self.phase, at, ages),
        };
        // Completions that are not handled yet belong to the interval in which they were reaped.
        if self.done.is_empty() {
            self.tally
                .roll(now, self.phase.end, &in_flight, || time.used(), recorder);
        }
        if self.phase.issuing {
            self.check_commands(now, commands);
        } else if commands.is_stopped() {
            self.phase.cut_drain_short(now);
        }
        // Requests that the device had no room for have not been sent yet.
        for request in &self.batch {
            self.slots.all[request.tag as usize].sent = now;
        }
        self.tally.flush_log(recorder, self.slots.len());
        self.tally.flush_old_log(recorder, now);
        if self.tally.began == Nanos::MAX && now >= self.phase.start {
            self.tally.began = now;
        }
    }

    /// Checks for commands and for the end of the run.
    #[inline]
    fn check_commands(&mut self, now: Nanos, commands: &Commands) {
        if commands.changes() != self.changes_seen {
            self.obey(now, commands);
        }
        self.slots.settle();
        if commands.is_stopped() {
            self.phase.cut_short(now, Stopped::Interrupted);
        } else if self.phase.is_used_up() || (self.feed.is_over() && self.held.is_none()) {
            self.phase.all_is_made(now);
        } else if now >= self.phase.due_until {
            self.phase.time_is_over();
        }
    }

    #[cold]
    fn obey(&mut self, now: Nanos, commands: &Commands) {
        self.changes_seen = commands.changes();
        if let Some(rate) = commands.rate() {
            self.feed.set_rate(rate, now.max(self.phase.start));
        }
        if let Some(depth) = commands.depth() {
            self.slots.set_depth(depth);
        }
    }

    /// Returns true if requests will be issued even though none is outstanding.
    fn more_to_come(&mut self, now: Nanos) -> bool {
        // The sequence may have just ended; waiting until the next check would lengthen the run's measured time.
        if self.phase.issuing && self.feed.is_over() && self.held.is_none() {
            self.phase.all_is_made(now);
        }
        self.phase.issuing
            || (self.held.is_some() && self.phase.stopped == Stopped::Done)
            || self.is_behind(now)
    }

    /// Prepares the flush that ends the run; returns false if there is none.
    #[cold]
    fn flush_at_end(&mut self, now: Nanos) -> bool {
        if !self.phase.begins_flush(now) {
            return false;
        }
        let indexes = self.slots.all.iter().map(|slot| slot.planned.index);
        let next = indexes.max().map_or(0, |last| last + 1);
        let index = self.slots.free.pop().expect("no request is in flight");
        self.slots.all[index as usize].planned = Planned::new(next, Op::Flush, 0, 0);
        self.prepare(index, now, now);
        true
    }

    /// Returns true if a run that ended by time has, or may have, requests that were due before its end. This is
    /// unknown until the worker whose turn it is has its request, and until the reader of a trace catches up.
    fn is_behind(&mut self, now: Nanos) -> bool {
        if !self.phase.may_issue() {
            return false;
        }
        let mut planned = Planned::NOTHING;
        let Some(at) = self.feed.seldom_due(now, &mut planned) else {
            return self.feed.is_undecided();
        };
        self.feed.put_back(planned, at);
        at < self.phase.due_until
    }

    /// Issues requests for free slots, as far as time and limits allow.
    #[inline]
    fn fill(&mut self, now: Nanos) {
        if (self.held.is_some() && !self.sends_held(now)) || !self.phase.may_issue() {
            return;
        }
        while let Some(index) = self.slots.free.last().copied() {
            let Some(intended) = self.next_request(index, now) else {
                return;
            };
            if self.content.is_exclusive() && self.holds_back(index, intended) {
                return;
            }
            self.slots.free.pop();
            self.prepare(index, intended, now);
        }
    }

    /// Holds a request back if it overlaps one in flight; returns true if it does.
    #[inline(never)] // part of verification
    fn holds_back(&mut self, index: u32, intended: Nanos) -> bool {
        let planned = self.slots.all[index as usize].planned;
        let overlaps = self.slots.overlaps(&planned);
        if overlaps {
            self.held = Some((planned, intended));
        }
        overlaps
    }

    /// Sends the held request if it no longer overlaps one in flight.
    #[cold]
    fn sends_held(&mut self, now: Nanos) -> bool {
        let Some(index) = self.slots.free.last().copied() else {
            return false;
        };
        let (planned, intended) = self.held.take().expect("a request is held");
        self.slots.all[index as usize].planned = planned;
        if self.holds_back(index, intended) {
            return false;
        }
        self.slots.free.pop();
        self.prepare(index, intended, now);
        true
    }

    /// Writes the next due request into this slot and returns its due time. Skips requests that are too late.
    #[inline(always)] // once per request
    fn next_request(&mut self, index: u32, now: Nanos) -> Option<Nanos> {
        while !self.phase.is_used_up() {
            let planned = &mut self.slots.all[index as usize].planned;
            let at = self.feed.due(now, planned)?;
            let late = now.0 - at.0 > self.rules.skip_after;
            if !late && at < self.phase.due_until {
                let (first, bytes) = (planned.index, planned.bytes());
                if self.is_recorded(first, at) {
                    self.phase.use_up(bytes);
                }
                return Some(at);
            }
            let planned = *planned;
            // A long stall may cause more skips than the log can hold; the rest wait until it has room.
            if at >= self.phase.due_until || self.tally.log_is_full() {
                self.feed.put_back(planned, at);
                return None;
            }
            self.skip(&planned, at);
        }
        None
    }

    /// Skips a due request.
    #[cold]
    fn skip(&mut self, planned: &Planned, due: Nanos) {
        self.feed
            .completed(planned.index, RequestStatus::Skipped, due);
        if self.is_recorded(planned.index, due) {
            self.phase.use_up(planned.bytes());
            self.count_skipped(planned, due);
        }
    }

    fn count_skipped(&mut self, planned: &Planned, intended: Nanos) {
        self.tally.count(RequestStatus::Skipped);
        let times = Times {
            intended,
            sent: None,
            completed: None,
            retries: 0,
        };
        self.tally.log(planned, times, RequestStatus::Skipped);
    }

    /// Returns true if a request counts because ramp-up is over, both by count and by time.
    #[inline]
    fn is_recorded(&mut self, index: u64, intended: Nanos) -> bool {
        self.phase.measuring || self.ends_ramp_up(index, intended)
    }

    #[cold]
    fn ends_ramp_up(&mut self, index: u64, intended: Nanos) -> bool {
        let Some(moved) = self.phase.ends_ramp_up(index, intended) else {
            return false;
        };
        if moved {
            self.tally.measure_from(self.phase.measure_start);
        }
        self.just_began = true;
        true
    }

    /// Sends the request in this slot for the first time.
    #[inline(always)] // once per request
    fn prepare(&mut self, index: u32, intended: Nanos, now: Nanos) {
        let slot = &mut self.slots.all[index as usize];
        let planned = &slot.planned;
        slot.intended = intended;
        slot.recorded = self.phase.measuring;
        if planned.op == Op::Write {
            self.content.fill(planned, &mut slot.carried);
            slot.carried.stale = false;
        } else if planned.op == Op::Read {
            slot.carried.stale = true;
        } else if planned.op == Op::Flush {
            self.content.flushes(&mut slot.carried);
        }
        self.send(index, now);
    }

    #[inline(always)] // once per request
    fn send(&mut self, index: u32, now: Nanos) {
        let slot = &mut self.slots.all[index as usize];
        slot.sent = now;
        slot.in_flight = true;
        slot.timed_out = false;
        let planned = &slot.planned;
        self.batch.push_back(Request {
            tag: u64::from(index),
            op: planned.op,
            offset: planned.offset,
            len: planned.len,
            buf: if planned.moves_data() {
                std::mem::take(&mut slot.carried.buf)
            } else {
                Buf::empty()
            },
            force_unit_access: (self.rules.force_unit_access || planned.force_unit_access)
                && planned.op != Op::Read
                && planned.op != Op::Flush,
        });
        self.outstanding += 1;
    }

    /// Submits the batch to the device, and reports accepted requests to a sequence that watches.
    #[inline]
    fn submit(&mut self, device: &mut dyn Device) {
        if !S::WATCHES {
            return device.submit(&mut self.batch);
        }
        self.submitting.clear();
        self.submitting
            .extend(self.batch.iter().map(|request| request.tag as u32));
        device.submit(&mut self.batch);
        // A device accepts requests in order, from the front of the batch.
        let taken = self.submitting.len() - self.batch.len();
        for index in &self.submitting[..taken] {
            let slot = &self.slots.all[*index as usize];
            self.feed.sent(&slot.planned, slot.sent);
        }
    }

    /// Lets another worker continue once this worker's requests have been submitted.
    #[inline]
    fn pause(&mut self, time: &mut impl Timeline) -> io::Result<()> {
        if self.batch.is_empty() && self.feed.hands_over() {
            time.push()?;
        }
        // A kept request that will never be sent must not make others wait.
        let is_kept = |at| at < self.phase.due_until && self.phase.may_issue();
        let kept = self.feed.kept_due().is_some_and(is_kept);
        let unsent = if self.phase.is_gone() {
            0
        } else {
            self.batch.len() + usize::from(kept)
        };
        self.feed.pause(unsent);
        Ok(())
    }

    /// Sets the send time of the batch to now, so that the time spent generating data isn't attributed to the device.
    fn send_now(&mut self, now: Nanos) {
        for request in &self.batch {
            self.slots.all[request.tag as usize].sent = now;
        }
    }

    /// Retries failed requests whose pause is over.
    #[cold]
    fn resend(&mut self, now: Nanos) {
        let mut at = 0;
        while at < self.slots.retrying.len() {
            let index = self.slots.retrying[at];
            if self.slots.all[index as usize].retry_at <= now {
                self.slots.retrying.swap_remove(at);
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
        let phase = &self.phase;
        let mut until = device.min(now.after(LOOK_EVERY)).min(phase.drain_until);
        until = until
            .min(self.tally.interval_end(phase.end))
            .min(self.next_timeout);
        if phase.issuing {
            until = until.min(phase.due_until);
        }
        if (phase.issuing || self.is_late()) && !self.slots.free.is_empty() && self.held.is_none() {
            until = until.min(self.feed.ask_at(|index| self.slots.hold(index)).max(now));
        }
        until = self.slots.next_attempt(until);
        if until <= now { Nanos(0) } else { until }
    }

    /// Returns true if a run that ended by time may still get requests that were due before its end, from a sequence
    /// that is shared with other workers.
    fn is_late(&self) -> bool {
        S::WATCHES && self.phase.may_issue() && self.feed.may_have_before(self.phase.due_until)
    }

    fn finish(mut self, time: &impl Timeline, recorder: &mut dyn Recorder) -> Outcome {
        let in_flight = InFlight {
            slots: &self.slots,
            batch: &self.batch,
            unsent: &|at, ages| unsent(&self.feed, &self.held, &self.phase, at, ages),
        };
        // A request due exactly at the end is not part of the run.
        let last = Nanos(self.phase.due_until.min(time.now()).0.saturating_sub(1));
        self.tally.gives_up(&in_flight, last);
        for (index, slot) in self.slots.all.iter().enumerate() {
            let busy = slot.in_flight || self.slots.retrying.contains(&(index as u32));
            if busy && slot.recorded {
                self.tally.count(RequestStatus::Hanging);
                let (intended, retries) = (slot.intended, slot.attempts);
                let times = Times {
                    intended,
                    sent: Some(slot.sent),
                    completed: None,
                    retries,
                };
                self.tally.log(&slot.planned, times, RequestStatus::Hanging);
                self.tally.flush_log(recorder, 1);
            }
        }
        self.skip_the_rest(time.now(), recorder);
        let in_flight = InFlight {
            slots: &self.slots,
            batch: &self.batch,
            unsent: &|at, ages| unsent(&self.feed, &self.held, &self.phase, at, ages),
        };
        let verified = self.content.verified();
        let outcome = self
            .tally
            .finish(&self.phase, &in_flight, time.used(), recorder);
        Outcome {
            verified,
            ..outcome
        }
    }

    /// Skips requests that were due before the end but never sent. As long as other workers continue, those requests
    /// are left for them to send, until their drain is over, too.
    fn skip_the_rest(&mut self, now: Nanos, recorder: &mut dyn Recorder) {
        if let Some((planned, intended)) = self.held.take()
            && self.is_recorded(planned.index, intended)
        {
            self.count_skipped(&planned, intended);
        }
        let until = self.phase.due_until.min(now);
        // A request that was given to this worker has to be counted here.
        let kept = self.feed.take_kept();
        let is_last = kept
            .is_some_and(|(planned, at)| !self.skip_or_give_back(&planned, at, until, recorder));
        // An interrupted run doesn't wait for complete figures.
        let may_wait = !self.phase.is_gone() && self.phase.stopped != Stopped::Interrupted;
        let others_go_on = self.feed.leaves(may_wait);
        // A worker that has lost its device leaves the requests to workers whose devices work, even if its own time
        // to wait for answers is over.
        let leaves_it = self.phase.is_gone() || now < self.phase.drain_until;
        if is_last || (others_go_on && leaves_it) {
            return;
        }
        let mut planned = Planned::NOTHING;
        while !self.phase.is_used_up()
            && let Some(at) = self.feed.seldom_due(now, &mut planned)
            && self.skip_or_give_back(&planned, at, until, recorder)
        {}
    }

    /// If a request that will not be sent was due before `until`, counts it as skipped and returns true; otherwise
    /// gives it back.
    fn skip_or_give_back(
        &mut self,
        planned: &Planned,
        due: Nanos,
        until: Nanos,
        recorder: &mut dyn Recorder,
    ) -> bool {
        let is_skipped = due < until && !self.phase.is_used_up();
        match is_skipped {
            true => self.skip(planned, due),
            false => self.feed.give_back(planned.index, due),
        }
        self.tally.flush_log(recorder, 1);
        is_skipped
    }
}

/// Records the ages of requests that were due by `at` but that this worker has not sent.
#[cold]
fn unsent<S: Sequence<Request = Planned>>(
    feed: &Feed<S>,
    held: &Option<(Planned, Nanos)>,
    phase: &RunPhase,
    at: Nanos,
    ages: &mut Histogram,
) {
    if !phase.measuring || !phase.may_issue() {
        return;
    }
    let at = at.min(phase.due_until);
    if let Some((_, due)) = held.as_ref().filter(|(_, due)| *due <= at) {
        ages.record(Nanos(at.0 - due.0));
    }
    feed.overdue(at, ages);
}

#[inline]
fn time_is_up(at: Nanos, now: Nanos) -> bool {
    at != Nanos::MAX && now >= at
}

#[cfg(test)]
mod tests;
