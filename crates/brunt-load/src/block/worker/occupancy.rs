//! Computes the time that requests spent at the device in each interval: divided by the interval's length, this is
//! the mean number in flight. A stalled device completes nothing, but must still show its full depth.
//!
//! The rule: no per-request work. The histograms already sum the service times of completed requests. When an interval
//! is closed, the ages of requests still at the device are added, and subtracted again from the next interval, because
//! they are part of the final service times:
//!
//! ```text
//! time at the device = service times + ages at the end - ages at the start
//! ```
//!
//! Only attempts that are not part of any service time are added individually: failed ones, and those during ramp-up.

use std::collections::VecDeque;

use brunt_block::Request;
use brunt_core::{Histogram, Nanos};
use brunt_result::Figures;

use super::slots::{Slot, Slots};

/// Requests passed to the device, including those not yet accepted.
pub(super) struct InFlight<'a> {
    pub(super) slots: &'a Slots,
    pub(super) batch: &'a VecDeque<Request>,
    /// Records the ages of due requests without a slot.
    pub(super) unsent: &'a dyn Fn(Nanos, &mut Histogram),
}

/// Total time that the requests in flight have spent at the device, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ages {
    /// Of requests whose service times will be recorded: the time since they were sent.
    recorded: u64,
    /// Of other requests: only the time within the open interval.
    others: u64,
}

impl Ages {
    fn of(&mut self, slot: &Slot) -> &mut u64 {
        if slot.recorded {
            &mut self.recorded
        } else {
            &mut self.others
        }
    }
}

impl InFlight<'_> {
    /// Records how long each due but unanswered request had been waiting at this time, since it was due.
    pub(super) fn waiting(&self, at: Nanos, waiting: &mut Histogram) {
        let retrying = self.slots.retrying.iter().map(|index| *index as usize);
        let in_flight = (0..self.slots.len()).filter(|index| self.slots.all[*index].in_flight);
        for slot in in_flight
            .chain(retrying)
            .map(|index| &self.slots.all[index])
        {
            if slot.recorded && slot.intended <= at {
                waiting.record(Nanos(at.0 - slot.intended.0));
            }
        }
        (self.unsent)(at, waiting);
    }

    /// Computes the ages at the end of an interval that began at `start`.
    pub(super) fn ages(&self, start: Nanos, at: Nanos) -> Ages {
        let age = |slot: &Slot| {
            let since = if slot.recorded {
                slot.sent
            } else {
                slot.sent.max(start)
            };
            at.0.saturating_sub(since.0)
        };
        let mut ages = Ages::default();
        for slot in self.slots.all.iter().filter(|slot| slot.in_flight) {
            *ages.of(slot) += age(slot);
        }
        // The device has not accepted these, so their send time will be later than now.
        for request in self.batch {
            let slot = &self.slots.all[request.tag as usize];
            *ages.of(slot) -= age(slot);
        }
        ages
    }
}

/// The state of the open interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Occupancy {
    /// The ages, at the beginning of the interval, of recorded requests in flight.
    before: u64,
    /// Attempts that are not part of any service time.
    others: u64,
    /// The part of service times after measuring ended.
    beyond: u64,
}

impl Occupancy {
    /// Adds an attempt from `sent` until `now` that is not part of any service time. All of a recorded request's time
    /// is added, because `before` contains its age at the start of the interval; for others, only the part since the
    /// interval's `start` is added. Measuring ends at `end`.
    pub(super) fn attempt(
        &mut self,
        sent: Nanos,
        now: Nanos,
        start: Nanos,
        end: Nanos,
        is_recorded: bool,
    ) {
        let since = if is_recorded { sent } else { sent.max(start) };
        self.others += now.min(end).0.saturating_sub(since.0);
    }

    /// Adds a service time from `sent` until `now`, which is after the end of measuring.
    pub(super) fn late(&mut self, sent: Nanos, now: Nanos, end: Nanos) {
        self.beyond += now.0 - sent.max(end).0;
    }

    /// Closes the interval; returns the total time that requests spent at the device during it, in nanoseconds.
    pub(super) fn close(&mut self, figures: &Figures, ages: Ages) -> u64 {
        let served: u128 = figures.ops().map(|(_, op)| op.service.sum_nanos()).sum();
        let there =
            served + u128::from(self.others) + u128::from(ages.recorded) + u128::from(ages.others);
        let elsewhere = u128::from(self.before) + u128::from(self.beyond);
        *self = Occupancy {
            before: ages.recorded,
            ..Occupancy::default()
        };
        u64::try_from(there.saturating_sub(elsewhere)).unwrap_or(u64::MAX)
    }
}
