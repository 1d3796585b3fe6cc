//! The capture's clock as packets show it: finds the places where it was set, and which requests were waiting then.
//! Kept by a pipeline, asked by dissectors. Where several pipelines share a capture, its reader counts what is out of order
//! ([`TimeOrder`]): each of them sees only some of the packets. The one rule: a latency across a place where the clock was set
//! is unknown, never a number.

use crate::ledger::Ledger;

/// Packets of one interface are in order but for what queues of a network card mix up; more than this is a clock that was
/// set back.
const BACK_MIN_NS: u64 = 100_000_000;
/// A connection with a request outstanding is never silent for so long: clients retransmit or send keep-alives after a
/// minute at most (nfs(5), `timeo`; RFC 7143's NOP-Out every few seconds). The clock was set ahead.
const AHEAD_MIN_NS: u64 = 120_000_000_000;
/// Interfaces whose times are held apart; more share a place.
const INTERFACES: usize = 16;

/// The times of the last packets, in the order of capture.
#[derive(Clone, Debug, Default)]
pub struct TimeOrder {
    last_ns: [u64; INTERFACES],
}

/// Packets that are out of order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutOfOrder {
    /// Earlier than the packet before.
    pub packets_back: u64,
    /// So much earlier that the clock was set back.
    pub clock_steps: u64,
}

impl OutOfOrder {
    /// Of a packet that is so much earlier than the one before.
    fn by(back_ns: u64) -> OutOfOrder {
        OutOfOrder {
            packets_back: u64::from(back_ns > 0),
            clock_steps: u64::from(back_ns > BACK_MIN_NS),
        }
    }

    /// Adds others.
    pub fn add(&mut self, others: OutOfOrder) {
        self.packets_back += others.packets_back;
        self.clock_steps += others.clock_steps;
    }
}

impl TimeOrder {
    /// A packet.
    #[inline]
    pub fn on_packet(&mut self, time_ns: u64, interface: u32) -> OutOfOrder {
        let last = &mut self.last_ns[interface as usize % INTERFACES];
        OutOfOrder::by(std::mem::replace(last, time_ns).saturating_sub(time_ns))
    }
}

/// What a pipeline knows of time.
#[derive(Clone, Debug, Default)]
pub struct CaptureClock {
    order: TimeOrder,
    /// The reader of all packets counts what is out of order.
    is_one_of_several: bool,
    newest_ns: u64,
    /// Requests with smaller numbers were seen before the clock was last set.
    stepped_before: u64,
    /// The longest latency of a request.
    latency_max_ns: u64,
}

impl CaptureClock {
    /// Of a pipeline that sees some of the packets.
    pub fn of_one_of_several() -> CaptureClock {
        CaptureClock {
            is_one_of_several: true,
            ..CaptureClock::default()
        }
    }

    /// A packet; whether the clock was set just before it. `next_record` is the number of the next request.
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
            // Those that wait already and waited across an earlier step count once.
            self.stepped_before = next_record;
            self.newest_ns = time_ns;
        } else {
            self.newest_ns = self.newest_ns.max(time_ns);
        }
        is_step
    }

    /// Whether the clock was set since a request was seen.
    #[inline]
    pub fn was_set_since(&self, record_id: u64) -> bool {
        record_id < self.stepped_before
    }

    /// A request was answered.
    #[inline]
    pub fn on_latency(&mut self, latency_ns: u64) {
        self.latency_max_ns = self.latency_max_ns.max(latency_ns);
    }

    /// A request is given up; counts its reply as lost if nothing else explains that there is none.
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

    /// Times of packets, each with its interface; a request is outstanding, or none.
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
    fn a_clock_that_is_set_is_told_from_packets_out_of_order() {
        check(&[(S, 0), (2 * S, 0), (2 * S, 0)], 1, 0, 0);
        // Queues of a card, and interfaces of a machine.
        check(&[(2 * S, 0), (2 * S - 1000, 0)], 1, 1, 0);
        check(&[(2 * S, 0), (S, 1), (2 * S + 1, 0)], 1, 0, 0);
        // Set back by a second, and ahead by an hour.
        check(&[(2 * S, 0), (S, 0), (S + 1, 0)], 1, 1, 1);
        check(&[(S, 0), (3601 * S, 0), (3602 * S, 0)], 1, 0, 1);
        // An hour in which nobody waits for anything is an hour.
        check(&[(S, 0), (3601 * S, 0)], 0, 0, 0);
    }
}
