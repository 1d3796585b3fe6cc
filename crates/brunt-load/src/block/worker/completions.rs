//! What a worker does with completions: records them, retries or ends their requests, and cancels requests that take too
//! long.
//!
//! The rule: a completion's time is when it was reaped, regardless of when it is handled.

use brunt_block::{Completion, Device, DeviceError};
use brunt_core::Nanos;
use brunt_result::RequestStatus;

use super::occupancy::InFlight;
use super::tally::Times;
use super::time::Timeline;
use super::{Worker, unsent};
use crate::block::generator::Planned;
use crate::content::Content;
use crate::record::{Recorder, status_of};
use crate::sequence::Sequence;

/// Number of completions in the first group, after which an almost idle device gets new requests; each further group
/// is twice as large.
const FIRST_GROUP: usize = 4;

impl<S: Sequence<Request = Planned>, C: Content<Request = Planned>> Worker<S, C> {
    /// Timestamps the completions, and decides how many to handle before requests are sent. An almost idle device
    /// gets its next requests as soon as the first few are ready: it would run out of work while a whole batch is
    /// prepared and submitted.
    #[inline]
    pub(super) fn reap(&mut self, time: &impl Timeline, recorder: &mut dyn Recorder) {
        let now = time.now();
        let in_flight = InFlight {
            slots: &self.slots,
            batch: &self.batch,
            unsent: &|at, ages| unsent(&self.feed, &self.held, &self.phase, at, ages),
        };
        self.tally
            .roll(now, self.phase.end, &in_flight, || time.used(), recorder);
        self.reaped_at = now;
        let (count, left) = (self.done.len(), self.outstanding as usize - self.done.len());
        // A sequence that watches takes each submission as the start of a wait, so its requests are submitted only
        // once per batch.
        let early = !S::WATCHES && count > FIRST_GROUP && left < count / 2 && time.starts_early();
        self.group = if early { FIRST_GROUP } else { count };
    }

    /// Handles the next group of completions.
    #[inline]
    pub(super) fn complete_group(&mut self) {
        let (count, now) = (self.group.min(self.done.len()), self.reaped_at);
        let mut done = std::mem::take(&mut self.done);
        for completion in done.drain(..count) {
            self.complete(completion, now);
        }
        self.done = done;
        self.group *= 2;
        self.feed.ask_again();
    }

    #[inline]
    fn complete(&mut self, completion: Completion, now: Nanos) {
        let index = completion.tag as u32;
        let slot = &mut self.slots.all[index as usize];
        assert!(slot.in_flight, "the device completed request {index} twice");
        slot.in_flight = false;
        if slot.planned.moves_data() {
            slot.carried.buf = completion.buf;
        }
        self.outstanding -= 1;
        let planned = slot.planned;
        let failed = completion.result.is_err_and(|error| !error.is_recovered());
        if failed || slot.timed_out {
            return self.failed(index, completion.result.err(), now);
        }
        let status = self
            .content
            .completed(&planned, &mut slot.carried, RequestStatus::Good);
        self.end(index, status, None, now);
    }

    /// Retries a failed attempt, or ends its request.
    #[cold]
    fn failed(&mut self, index: u32, error: Option<DeviceError>, now: Nanos) {
        let slot = &mut self.slots.all[index as usize];
        let planned = slot.planned;
        let error = if slot.timed_out {
            DeviceError::TimedOut
        } else {
            error.expect("an attempt that failed")
        };
        if self.retry.again(slot.attempts, &error) && now < self.phase.drain_until {
            slot.attempts += 1;
            slot.retry_at = now.after(self.retry.delay);
            if slot.recorded {
                self.tally.op(planned.kind).retries += 1;
            }
            self.tally
                .has_no_service_time(slot.sent, now, self.phase.end, slot.recorded);
            self.slots.retrying.push(index);
            return;
        }
        let status = self
            .content
            .completed(&planned, &mut slot.carried, status_of(&error));
        if error == DeviceError::Gone {
            self.phase.device_is_gone(now);
        }
        self.end(index, status, Some(error), now);
    }

    /// Ends a request: counts it and frees its slot.
    #[inline(always)] // once per request
    fn end(&mut self, index: u32, status: RequestStatus, error: Option<DeviceError>, now: Nanos) {
        let slot = &mut self.slots.all[index as usize];
        let (planned, retries) = (slot.planned, slot.attempts);
        let (intended, sent, recorded) = (slot.intended, slot.sent, slot.recorded);
        slot.attempts = 0;
        self.slots.free.push(index);
        self.feed.completed(planned.index, status, now);
        if status != RequestStatus::Good {
            self.tally
                .went_wrong(status, error.as_ref(), &planned, recorded, || {
                    self.content.difference()
                });
        }
        if recorded {
            self.tally
                .answered(&planned, intended, sent, now, self.phase.end, status);
            let times = Times {
                intended,
                sent: Some(sent),
                completed: Some(now),
                retries,
            };
            self.tally.log(&planned, times, status);
        } else {
            self.tally
                .has_no_service_time(sent, now, self.phase.end, false);
        }
    }

    /// Asks the device to cancel requests that exceeded their time limit. Each still completes once, when the device
    /// chooses.
    #[cold]
    pub(super) fn give_up_late_ones(&mut self, now: Nanos, device: &mut dyn Device) {
        let timeout = self.rules.timeout.expect("a time limit was exceeded");
        let mut next = Nanos::MAX;
        for (index, slot) in self.slots.all.iter_mut().enumerate() {
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
                self.tally.op(slot.planned.kind).timeouts += 1;
            }
            device.cancel(index as u64);
        }
        self.next_timeout = next;
    }
}
