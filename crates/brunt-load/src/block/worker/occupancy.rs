//! How long requests were with the device in each interval: over the interval's length, the mean number in flight.
//! A device that stands still answers nothing, and its depth has to show all the same.
//!
//! The rule: nothing is added where requests come and go. The service times of those that came back are summed by their
//! histograms. When an interval is closed, requests still with the device add their age, and the next interval takes that off
//! again, since it is part of the service time they end with:
//!
//! ```text
//! time at the device = service times + ages at the end - ages at the begin
//! ```
//!
//! Only what is in no service time is added one by one: failed attempts and requests of the ramp-up.

use std::collections::VecDeque;

use brunt_block::Request;
use brunt_core::{Histogram, Nanos};
use brunt_result::Figures;

use super::slots::{Slot, Slots};

/// Requests that were handed to the device, and those that it has not taken yet.
pub(super) struct InFlight<'a> {
    pub(super) slots: &'a Slots,
    pub(super) batch: &'a VecDeque<Request>,
    /// Records the ages of requests that are due and have no slot.
    pub(super) unsent: &'a dyn Fn(Nanos, &mut Histogram),
}

/// How long requests in flight have been with the device, in nanoseconds, all added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ages {
    /// Of requests whose service times will be recorded: since they were sent.
    recorded: u64,
    /// Of others: in the open interval only.
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
    /// For how long each request had waited at a time that was due by then and has no answer, since it was due.
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

    /// At the end of an interval that began at `start`.
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
        // The device has not taken these; they are sent later.
        for request in self.batch {
            let slot = &self.slots.all[request.tag as usize];
            *ages.of(slot) -= age(slot);
        }
        ages
    }
}

/// Of the open interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Occupancy {
    /// The ages of recorded requests in flight at its begin.
    before: u64,
    /// Attempts that are in no service time.
    others: u64,
    /// What service times have beyond the end of measuring.
    beyond: u64,
}

impl Occupancy {
    /// An attempt from `sent` until `now` that is in no service time. What one of a recorded request had at the begin of the
    /// interval is in `before`; of others only the part in the interval, from `start`, counts. Measuring ends at `end`.
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

    /// A service time from `sent` until `now`, after the end of measuring.
    pub(super) fn late(&mut self, sent: Nanos, now: Nanos, end: Nanos) {
        self.beyond += now.0 - sent.max(end).0;
    }

    /// The interval ends: how long requests were with the device in it, in nanoseconds, all added up.
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
