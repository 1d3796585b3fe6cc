//! Slow closes: delays the FIN of one side while its data continues to pass (Toxiproxy's `slow_close`), so the other
//! side learns of the end of the connection late.
//!
//! Each direction of a link has one [`SlowClose`]. The rule: a retransmitted FIN does not get through any sooner.

use std::collections::HashMap;
use std::time::Duration;

use brunt_core::Nanos;

use super::super::schedule::Schedule;
use super::{ACK, CONNECTIONS_MAX, FIN, Flow, RST, SYN, Segment, bare};

/// What happens to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passing {
    /// The frame passes unmodified.
    Whole,
    /// The frame passes without its FIN, which is held.
    WithoutEnd,
    /// The frame was only a FIN, and is held.
    Held,
    /// The frame's FIN should be held, but too many are held already.
    Untracked,
}

/// The FINs that one direction holds.
#[derive(Debug, Default)]
pub(crate) struct SlowClose {
    hold: Duration,
    ends: HashMap<Flow, End>,
    /// When each FIN is released; entries that are obsolete by then are skipped.
    waiting: Schedule<Flow>,
}

/// The FIN of one side of a connection.
#[derive(Debug)]
struct End {
    /// When the FIN is released.
    until: Nanos,
    /// The packet with the FIN, until it is released.
    held: Option<Vec<u8>>,
}

impl SlowClose {
    /// Sets the hold time. Zero disables holding, and releases the FINs that are held.
    pub(crate) fn change(&mut self, hold: Duration, now: Nanos) {
        self.hold = hold;
        if hold.is_zero() {
            self.ends.retain(|_, end| end.held.is_some());
            self.waiting = Schedule::new();
            for (flow, end) in &mut self.ends {
                end.until = end.until.min(now);
                self.waiting.push(end.until, *flow);
            }
        }
    }

    /// Whether frames can bypass this stage.
    pub(crate) fn is_idle(&self) -> bool {
        self.hold.is_zero() && self.ends.is_empty()
    }

    /// The hold time.
    pub(crate) fn hold(&self) -> Duration {
        self.hold
    }

    /// Processes a frame that arrived at `now`; removes its FIN if the FIN is held.
    pub(crate) fn on_frame(&mut self, buffer: &mut [u8], now: Nanos) -> Passing {
        let Some(segment) = Segment::parse(buffer) else {
            return Passing::Whole;
        };
        if segment.is(SYN | RST) {
            // A SYN starts a new connection between the same ports, and an RST ends the current one; either makes a
            // held FIN obsolete.
            self.ends.remove(&segment.flow);
            return Passing::Whole;
        }
        if !segment.is(FIN) {
            return Passing::Whole;
        }
        if !self.ends.contains_key(&segment.flow) {
            if self.hold.is_zero() {
                return Passing::Whole;
            }
            if self.ends.len() >= CONNECTIONS_MAX {
                // Released FINs may be forgotten: a retransmission would be held again.
                self.ends.retain(|_, end| end.held.is_some());
            }
            if self.ends.len() >= CONNECTIONS_MAX {
                return Passing::Untracked;
            }
            let sequence = segment.end().wrapping_sub(1);
            let held = bare(
                buffer,
                segment.flow,
                sequence,
                segment.acknowledgement,
                FIN | ACK,
            );
            let until = now.after(self.hold);
            self.ends.insert(
                segment.flow,
                End {
                    until,
                    held: Some(held),
                },
            );
            self.waiting.push(until, segment.flow);
        } else if self.ends[&segment.flow].held.is_none() {
            return Passing::Whole;
        }
        if segment.payload_bytes == 0 {
            return Passing::Held;
        }
        segment.clear(buffer, FIN);
        Passing::WithoutEnd
    }

    /// When the next FIN is released.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.waiting.next_due()
    }

    /// The number of FINs being held.
    pub(crate) fn held(&self) -> u64 {
        self.ends.values().filter(|end| end.held.is_some()).count() as u64
    }

    /// The FINs that are due for release, as packets.
    pub(crate) fn due(&mut self, now: Nanos) -> Vec<Vec<u8>> {
        let mut due = Vec::new();
        while let Some(flow) = self.waiting.pop_due(now) {
            let Some(end) = self.ends.get_mut(&flow).filter(|end| end.until <= now) else {
                continue;
            };
            due.extend(end.held.take());
            if self.hold.is_zero() {
                self.ends.remove(&flow);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::packet::{TCP_PSH as PSH, VNET_HEADER_BYTES};
    use super::super::super::test_frames::{CLIENT, SERVER, segment, sums_are_right};
    use super::*;

    const HOLD: Duration = Duration::from_millis(500);

    fn slow() -> SlowClose {
        let mut slow = SlowClose::default();
        assert!(slow.is_idle());
        slow.change(HOLD, Nanos(0));
        slow
    }

    /// A FIN is held for the hold time, even if retransmitted, and only once; data passes.
    #[test]
    fn a_fin_is_held_once_for_its_time() {
        let mut slow = slow();
        let mut last = segment(CLIENT, SERVER, [100, 9], FIN | PSH | ACK, b"last words");
        assert_eq!(slow.on_frame(&mut last, Nanos(1000)), Passing::WithoutEnd);
        assert!(sums_are_right(&last[VNET_HEADER_BYTES..]));
        let passed = Segment::parse(&last).unwrap();
        assert_eq!((passed.flags, passed.payload_bytes), (PSH | ACK, 10));
        let mut again = segment(CLIENT, SERVER, [110, 9], FIN | ACK, b"");
        assert_eq!(slow.on_frame(&mut again, Nanos(2000)), Passing::Held);
        let due = Nanos(1000).after(HOLD);
        assert_eq!((slow.next_due(), slow.held()), (Some(due), 1));
        assert!(slow.due(Nanos(due.0 - 1)).is_empty());
        let [end] = slow.due(due).try_into().unwrap();
        assert!(sums_are_right(&end[VNET_HEADER_BYTES..]));
        let end = Segment::parse(&end).unwrap();
        assert_eq!(
            (end.sequence, end.acknowledgement, end.flags),
            (110, 9, FIN | ACK)
        );
        assert_eq!(
            (slow.next_due(), slow.due(due).len(), slow.held()),
            (None, 0, 0)
        );
        assert_eq!(
            slow.on_frame(&mut again, due),
            Passing::Whole,
            "lost on the way, sent again"
        );
    }

    /// The other side's FIN, other connections and other protocols pass.
    #[test]
    fn only_fins_of_one_side_are_held() {
        let mut slow = slow();
        for flags in [SYN, SYN | ACK, ACK, PSH | ACK, RST | ACK] {
            let mut other = segment(CLIENT, SERVER, [1, 2], flags, b"");
            let whole = other.clone();
            assert_eq!(
                slow.on_frame(&mut other, Nanos(0)),
                Passing::Whole,
                "{flags:#b}"
            );
            assert_eq!(other, whole);
        }
        assert_eq!(slow.on_frame(&mut [0; 60], Nanos(0)), Passing::Whole);
        assert_eq!(slow.next_due(), None);
    }

    /// A reset discards the held FIN; a hold time of zero releases all held FINs at once, and later ones pass.
    #[test]
    fn a_reset_or_disabling_releases_held_fins() {
        let mut slow = slow();
        let mut end = segment(CLIENT, SERVER, [110, 9], FIN | ACK, b"");
        assert_eq!(slow.on_frame(&mut end, Nanos(0)), Passing::Held);
        let mut reset = segment(CLIENT, SERVER, [111, 9], RST, b"");
        assert_eq!(slow.on_frame(&mut reset, Nanos(1)), Passing::Whole);
        assert!(slow.due(Nanos(0).after(HOLD)).is_empty());
        assert_eq!(slow.on_frame(&mut end, Nanos(2)), Passing::Held);
        slow.change(Duration::ZERO, Nanos(3));
        assert!(!slow.is_idle());
        assert_eq!(slow.due(Nanos(3)).len(), 1);
        assert!(slow.is_idle());
        assert_eq!(slow.on_frame(&mut end, Nanos(4)), Passing::Whole);
    }
}
