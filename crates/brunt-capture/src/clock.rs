//! Detects from packet times when the capture's clock was set, and which requests were outstanding at that time. Each
//! pipeline has one, which its dissectors query. If several pipelines share a capture, its reader counts out-of-order
//! packets ([`TimeOrder`]), since each pipeline sees only some of the packets. The one rule: a latency across a clock
//! step is unknown, never a number.

use crate::ledger::Ledger;

/// Packets of one interface are in order, except for slight reordering by the network card's queues. A larger step
/// back means that the clock was set back.
const BACK_MIN_NS: u64 = 100_000_000;
/// A connection with an outstanding request is never silent for this long: clients retransmit or send keep-alives
/// within a minute (nfs(5), `timeo`; RFC 7143's NOP-Out every few seconds). A longer silence means that the clock was
/// set ahead.
const AHEAD_MIN_NS: u64 = 120_000_000_000;
/// Interfaces whose times are tracked separately; further ones share a slot.
const INTERFACES: usize = 16;

/// The time of each interface's last packet, in capture order.
#[derive(Clone, Debug, Default)]
pub struct TimeOrder {
    last_ns: [u64; INTERFACES],
}

/// Counts of out-of-order packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutOfOrder {
    /// Packets with an earlier time than the previous packet of their interface.
    pub packets_back: u64,
    /// Packets so much earlier than the previous one that the clock must have been set back.
    pub clock_steps: u64,
}

impl OutOfOrder {
    /// The counts for a packet that is `back_ns` earlier than the previous one.
    fn by(back_ns: u64) -> OutOfOrder {
        OutOfOrder {
            packets_back: u64::from(back_ns > 0),
            clock_steps: u64::from(back_ns > BACK_MIN_NS),
        }
    }

    /// Adds other counts.
    pub fn add(&mut self, others: OutOfOrder) {
        self.packets_back += others.packets_back;
        self.clock_steps += others.clock_steps;
    }
}

impl TimeOrder {
    /// Records a packet and returns the resulting counts.
    #[inline]
    pub fn on_packet(&mut self, time_ns: u64, interface: u32) -> OutOfOrder {
        let last = &mut self.last_ns[interface as usize % INTERFACES];
        OutOfOrder::by(std::mem::replace(last, time_ns).saturating_sub(time_ns))
    }
}

/// A pipeline's view of the capture's time.
#[derive(Clone, Debug, Default)]
pub struct CaptureClock {
    order: TimeOrder,
    /// Whether the reader of the whole capture counts out-of-order packets instead.
    is_one_of_several: bool,
    newest_ns: u64,
    /// Requests with smaller record numbers were seen before the clock was last set.
    stepped_before: u64,
    /// The longest latency of any answered request so far.
    latency_max_ns: u64,
}

impl CaptureClock {
    /// The clock of a pipeline that sees only some of the packets.
    pub fn of_one_of_several() -> CaptureClock {
        CaptureClock {
            is_one_of_several: true,
            ..CaptureClock::default()
        }
    }

    /// Records a packet; returns whether the clock was set just before it. `next_record` is the number of the
    /// next request.
    #[inline]
    pub fn on_packet(
        &mut self,
        time_ns: u64,
        interface: u32,
        next_record: u64,
        ledger: &mut Ledger,
    ) -> bool {
        let found = self.order.on_packet(time_ns, interface);
        if found.packets_back > 0 || self.newest_ns + AHEAD_MIN_NS <= time_ns {
            return self.on_odd_packet(found, time_ns, next_record, ledger);
        }
        self.newest_ns = self.newest_ns.max(time_ns);
        false
    }

    #[cold]
    fn on_odd_packet(
        &mut self,
        found: OutOfOrder,
        time_ns: u64,
        next_record: u64,
        ledger: &mut Ledger,
    ) -> bool {
        if !self.is_one_of_several {
            ledger.packets_back += found.packets_back;
            ledger.clock_steps += found.clock_steps;
        }
        let is_ahead = found.packets_back == 0 && self.newest_ns > 0 && ledger.calls_open > 0;
        ledger.clock_steps += u64::from(is_ahead);
        let is_step = is_ahead || found.clock_steps > 0;
        if is_step {
            // Also covers requests that were already outstanding at an earlier step.
            self.stepped_before = next_record;
            self.newest_ns = time_ns;
        } else {
            self.newest_ns = self.newest_ns.max(time_ns);
        }
        is_step
    }

    /// Whether the clock was set after a request was seen.
    #[inline]
    pub fn was_set_since(&self, record_id: u64) -> bool {
        record_id < self.stepped_before
    }

    /// Records the latency of an answered request.
    #[inline]
    pub fn on_latency(&mut self, latency_ns: u64) {
        self.latency_max_ns = self.latency_max_ns.max(latency_ns);
    }

    /// Records that a request was abandoned. Counts its reply as lost if the capture has gaps, the request waited
    /// longer than any answered one, and the clock was not set in the meantime.
    pub fn on_unanswered(&self, record_id: u64, request_ns: u64, ledger: &mut Ledger) {
        let has_gaps = ledger.holes + ledger.packets_dropped + ledger.replies_unmatched > 0;
        let waited_ns = self.newest_ns.saturating_sub(request_ns);
        let is_lost = has_gaps && ledger.calls_answered > 0 && waited_ns > self.latency_max_ns;
        ledger.replies_lost += u64::from(is_lost && !self.was_set_since(record_id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Checks the counts for packets given as (time, interface), with `calls_open` requests outstanding.
    fn check(times: &[(u64, u32)], calls_open: u64, packets_back: u64, clock_steps: u64) {
        let mut ledger = Ledger {
            calls_open,
            ..Ledger::default()
        };
        let mut clock = CaptureClock::default();
        for (time_ns, interface) in times {
            clock.on_packet(*time_ns, *interface, 7, &mut ledger);
        }
        assert_eq!(
            (ledger.packets_back, ledger.clock_steps),
            (packets_back, clock_steps),
            "{times:?}"
        );
        assert_eq!(clock.was_set_since(6), clock_steps > 0);
        assert!(!clock.was_set_since(7));
    }

    #[test]
    fn clock_steps_are_distinguished_from_reordered_packets() {
        check(&[(S, 0), (2 * S, 0), (2 * S, 0)], 1, 0, 0);
        // Reordering by the network card's queues, and between interfaces.
        check(&[(2 * S, 0), (2 * S - 1000, 0)], 1, 1, 0);
        check(&[(2 * S, 0), (S, 1), (2 * S + 1, 0)], 1, 0, 0);
        // The clock is set back by a second, and ahead by an hour.
        check(&[(2 * S, 0), (S, 0), (S + 1, 0)], 1, 1, 1);
        check(&[(S, 0), (3601 * S, 0), (3602 * S, 0)], 1, 0, 1);
        // Without an outstanding request, an hour of silence is just an hour.
        check(&[(S, 0), (3601 * S, 0)], 0, 0, 0);
    }
}
