//! One direction of a link: takes frames from one host's device, applies the rules, and delivers them to the other
//! host's device when they are due. Called by the link's thread ([`super::driver`]).
//!
//! The rule: this module makes no decisions about packets. Trains are split only where the fates of their segments
//! differ.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use brunt_core::{Clock, Histogram, Nanos};

use super::control::Shared;
use super::counters::{Counters, add, put, raise};
use super::direction::Direction;
use super::end::LinkEnd;
use super::merge::Merger;
use super::packet::{self, Ecn, Train, VNET_HEADER_BYTES};
use super::packet_watcher::PacketWatcher;
use super::partition::{self, HostPair};
use super::ring_end::{FrameArrival, RingEnd, RingRead};
use super::rules::{Delivery, PacketFate, Rules};
use super::schedule::Schedule;
use super::settings::Settings;
use super::spare::{FRAME_BYTES_MAX, Spare};
use super::tcp::reset::{ResetRule, Resetter};
use super::tcp::slow_close::{Passing, SlowClose};
use super::write_counts::WriteCounts;
use crate::sys;

/// Maximum number of frames taken from one device before the other gets its turn.
const BATCH: usize = 64;
const _: () = assert!(
    BATCH <= sys::SENT_AT_ONCE_MAX,
    "one call sends a whole batch"
);
/// Segments of a train whose last bits arrive within this interval are delivered together, as by a NIC with interrupt
/// moderation.
const TOGETHER: Duration = Duration::from_micros(20);

pub(super) type SharedWatcher = Rc<RefCell<Box<dyn PacketWatcher>>>;

/// One direction.
pub(super) struct Lane {
    direction: Direction,
    pub(super) from: LinkEnd,
    to: LinkEnd,
    /// The receive ring, if frames come from an interface.
    pub(super) ring: Option<RingEnd>,
    pub(super) watcher: Option<SharedWatcher>,
    /// Time added beyond the settings, for frames from an interface.
    added: Histogram,
    pub(super) out: Merger,
    rules: Rules,
    /// Whether the settings do nothing but limit the rate.
    pub(super) is_at_most_a_line: bool,
    /// Peak number of bytes queued at the line in the current window of [`super::crowding::Crowding`].
    pub(super) backlog_bytes: u64,
    parted: Vec<HostPair>,
    slow_close: SlowClose,
    /// The rule by which connections are reset; `resets_full`: there were too many connections to track.
    reset: Option<ResetRule>,
    resets_full: bool,
    under_way: Schedule<Frame>,
    /// Frames to deliver in one call.
    due: Vec<Frame>,
    /// Bytes of the frames in flight.
    held_bytes: usize,
    held_bytes_max: usize,
    /// When the sending host was last found to have no frames; frames read after that arrived later.
    pub(super) looked: Nanos,
    /// The buffer that the next frame is read into.
    buffer: Box<[u8]>,
    /// The buffer in which a packet's checksum is completed for the watcher.
    shown: Vec<u8>,
    spare: Spare,
    seen: u64,
}

/// A frame in flight: the virtio-net header, then Ethernet.
#[derive(Debug)]
struct Frame {
    bytes: Vec<u8>,
    due: Nanos,
    packets: u32,
}

impl Lane {
    /// One direction between two ends, running since `start`: its line sent nothing before that.
    pub(super) fn new(
        direction: Direction,
        ends: [LinkEnd; 2],
        settings: Settings,
        seed: u64,
        held_bytes_max: usize,
        start: Nanos,
    ) -> Lane {
        let this = direction as usize;
        let mut slow_close = SlowClose::default();
        slow_close.change(settings.slow_close.0, Nanos(0));
        Lane {
            direction,
            from: ends[this],
            to: ends[1 - this],
            ring: None,
            watcher: None,
            added: Histogram::new(),
            out: Merger::new(ends[1 - this]),
            is_at_most_a_line: settings.is_at_most_a_line(),
            backlog_bytes: 0,
            rules: Rules::new(settings, direction_seed(seed, this as u64)),
            parted: Vec::new(),
            slow_close,
            reset: None,
            resets_full: false,
            under_way: Schedule::new(),
            due: Vec::with_capacity(BATCH),
            held_bytes: 0,
            held_bytes_max,
            looked: start,
            buffer: vec![0; FRAME_BYTES_MAX].into_boxed_slice(),
            shown: Vec::new(),
            spare: Spare::default(),
            seen: 0,
        }
    }

    /// Applies changes.
    pub(super) fn change(&mut self, shared: &Shared, clock: &Clock, resets: &mut Resetter) {
        if shared.asked.load(Ordering::Acquire) == self.seen {
            return;
        }
        let (wanted, asked) = {
            let mut wanted = shared.wanted();
            let this = wanted.clone();
            wanted.restart = None;
            (this, shared.asked.load(Ordering::Acquire))
        };
        self.seen = asked;
        let now = clock.now();
        self.slow_close.change(wanted.settings.slow_close.0, now);
        self.is_at_most_a_line = wanted.settings.is_at_most_a_line();
        match wanted.restart {
            None => self.rules.change(wanted.settings),
            Some(seed) => self.rules = Rules::new(wanted.settings, seed),
        }
        self.parted = wanted.parted;
        if self.reset != wanted.reset {
            (self.reset, self.resets_full) = (wanted.reset, false);
        }
        resets.change(wanted.reset);
        shared.applied_at.store(now.0, Ordering::Release);
        shared.applied.store(asked, Ordering::Release);
    }

    /// When this direction next has something to do.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.under_way
            .next_due()
            .into_iter()
            .chain(self.slow_close.next_due())
            .min()
    }

    /// Releases the FINs that were held long enough; returns whether there were any. The link's rules apply to them
    /// only now.
    pub(super) fn let_close(&mut self, shared: &Shared, clock: &Clock) -> bool {
        let Some(due) = self.slow_close.next_due() else {
            return false;
        };
        let now = clock.now();
        if due > now {
            return false;
        }
        let due = self.slow_close.due(now);
        add(&shared.counters.fins_released, due.len() as u64);
        for end in &due {
            self.take_packet(end, [now; 2], shared);
        }
        true
    }

    /// Applies the rules for hosts and connections (as opposed to packets); returns whether the frame continues.
    fn inspect(&mut self, frame: &mut [u8], packets: usize, shared: &Shared, now: Nanos) -> bool {
        let counters = &shared.counters;
        if partition::stops(&self.parted, frame) {
            add(&counters.parted, packets as u64);
            self.rules.pass(packets as u64);
            return false;
        }
        match self.slow_close.on_frame(frame, now) {
            Passing::Whole => true,
            Passing::WithoutEnd => {
                add(&counters.fins_held, 1);
                true
            }
            Passing::Held => {
                add(&counters.fins_held, 1);
                add(&counters.fins_taken, 1);
                false
            }
            Passing::Untracked => {
                add(&counters.tcp_untracked, 1);
                add(&counters.fins_untracked, 1);
                // The report names the current hold time, not earlier ones.
                put(
                    &counters.fins_full_nanos,
                    self.slow_close.hold().as_nanos() as u64,
                );
                true
            }
        }
    }

    /// Sends this direction's resets, behind the frames that have arrived so far.
    fn send_resets(
        &mut self,
        resets: &mut Resetter,
        shared: &Shared,
        clock: &Clock,
        written: &mut WriteCounts,
    ) {
        if !resets.is_armed() {
            return;
        }
        for reset in resets.take(self.direction) {
            add(&shared.counters.tcp_resets, 1);
            if self.rules.is_clear() && self.under_way.len() == 0 {
                self.out.push(&reset, 0, written);
                continue;
            }
            let due = self.rules.behind(clock.now());
            let mut frame = self.spare.take(reset.len());
            frame.extend_from_slice(&reset);
            let delivery = Delivery {
                due,
                corrupt: None,
                mark: false,
                duplicate: false,
                held: false,
            };
            self.keep(frame, delivery, 0, shared);
        }
    }

    /// Takes at most a batch of frames from the sending host; returns whether there were any.
    pub(super) fn take_in(
        &mut self,
        shared: &Shared,
        clock: &Clock,
        resets: &mut Resetter,
    ) -> io::Result<bool> {
        let counters = &shared.counters;
        let mut written = WriteCounts::default();
        // Resets triggered by packets in the other direction.
        self.send_resets(resets, shared, clock, &mut written);
        let count = match self.ring.take() {
            None => self.take_from_tap(shared, clock, resets, &mut written)?,
            Some(mut ring) => {
                let taken = self.take_from_ring(&mut ring, shared, clock, resets, &mut written);
                self.ring = Some(ring);
                taken?
            }
        };
        let now = clock.now();
        if count < BATCH && self.ring.is_none() {
            self.looked = now;
        }
        if count > 0 {
            let time = self.rules.take_line_time();
            add(&counters.line_sent_nanos, time.sent);
            add(&counters.line_lost_nanos, time.lost);
            add(&counters.ordered_nanos, time.ordered);
            self.backlog_bytes = self.backlog_bytes.max(time.backlog_bytes);
        }
        self.out.settle(now, &mut written);
        note(&written, counters);
        Ok(count > 0)
    }

    /// Takes frames from a host's device; returns their number.
    fn take_from_tap(
        &mut self,
        shared: &Shared,
        clock: &Clock,
        resets: &mut Resetter,
        written: &mut WriteCounts,
    ) -> io::Result<usize> {
        let mut count = 0;
        while count < BATCH
            && let Some(bytes) = sys::read_frame(self.from.fd(), &mut self.buffer)?
        {
            count += 1;
            if bytes > VNET_HEADER_BYTES {
                let mut buffer = std::mem::take(&mut self.buffer);
                let frame = &mut buffer[..bytes];
                if let Some(packets) = self.take_frame(frame, None, shared, clock, resets) {
                    self.out.push(frame, packets, written);
                }
                self.buffer = buffer;
                self.send_resets(resets, shared, clock, written);
            }
        }
        Ok(count)
    }

    /// Takes frames from an interface; returns their number. Unmodified frames are sent from the ring at the end of the
    /// batch.
    fn take_from_ring(
        &mut self,
        ring: &mut RingEnd,
        shared: &Shared,
        clock: &Clock,
        resets: &mut Resetter,
        written: &mut WriteCounts,
    ) -> io::Result<usize> {
        let (counters, to) = (&shared.counters, self.to.fd());
        let mut count = 0;
        while count < BATCH {
            match ring.read(&mut self.buffer, clock)? {
                RingRead::Nothing => break,
                RingRead::Frame(slot, arrival) => {
                    let (frame, arrival) = (ring.bytes_mut(slot), self.arrived(arrival));
                    self.show(frame, arrival);
                    if let Some(packets) =
                        self.take_frame(frame, Some(arrival), shared, clock, resets)
                    {
                        ring.pass(slot, packets, arrival.at);
                    }
                }
                RingRead::Long(bytes, arrival) => {
                    let (mut buffer, arrival) =
                        (std::mem::take(&mut self.buffer), self.arrived(arrival));
                    let frame = &mut buffer[..bytes];
                    self.show(frame, arrival);
                    if let Some(packets) =
                        self.take_frame(frame, Some(arrival), shared, clock, resets)
                    {
                        // Frames that arrived before this one are sent first.
                        ring.send(to, clock, &mut self.added, written);
                        let is_refused = self.to.write(frame).is_err();
                        let took = Nanos(clock.now().0.saturating_sub(arrival.at.0));
                        written.note_added(packets, is_refused, took, &mut self.added);
                    }
                    self.buffer = buffer;
                }
                RingRead::NoRoom => {
                    add(&counters.packets, 1);
                    add(&counters.unmeant_no_buffer, 1);
                }
                RingRead::Unreadable => {
                    add(&counters.packets, 1);
                    add(&counters.unmeant_device, 1);
                }
            }
            count += 1;
            if resets.is_armed() {
                ring.send(to, clock, &mut self.added, written);
                self.send_resets(resets, shared, clock, written);
            }
        }
        ring.send(to, clock, &mut self.added, written);
        ring.release();
        Ok(count)
    }

    /// A frame's arrival time, which never goes backwards, even if the clocks do.
    fn arrived(&mut self, arrival: FrameArrival) -> FrameArrival {
        self.looked = arrival.at.max(self.looked);
        FrameArrival {
            at: self.looked,
            ..arrival
        }
    }

    /// Passes a frame's packets to the watcher.
    fn show(&mut self, frame: &[u8], arrival: FrameArrival) {
        let Some(watcher) = &self.watcher else { return };
        let (packet, mut watcher) = (&mut self.shown, watcher.borrow_mut());
        let mut tell = |packet: &mut Vec<u8>| {
            packet::complete_checksum(packet);
            watcher.on_packet(
                self.direction,
                arrival.since_1970,
                &packet[VNET_HEADER_BYTES..],
            );
        };
        let Some(train) = Train::parse(frame) else {
            packet.clear();
            packet.extend_from_slice(frame);
            return tell(packet);
        };
        for segment in 0..train.segments {
            train.cut(frame, segment, 1, packet);
            tell(packet);
        }
    }

    /// Takes one frame; returns its number of packets if it passes unmodified.
    fn take_frame(
        &mut self,
        frame: &mut [u8],
        arrival: Option<FrameArrival>,
        shared: &Shared,
        clock: &Clock,
        resets: &mut Resetter,
    ) -> Option<u32> {
        let counters = &shared.counters;
        let train = Train::parse(frame);
        let packets = train.map_or(1, |train| train.segments);
        let headers = train.map_or(0, |train| (train.segments - 1) * train.header_bytes);
        add(&counters.frames_in, 1);
        add(&counters.packets, packets as u64);
        add(
            &counters.bytes,
            (frame.len() - VNET_HEADER_BYTES + headers) as u64,
        );
        if !self.parted.is_empty() || !self.slow_close.is_idle() {
            let now = clock.now();
            if !self.inspect(frame, packets, shared, now) {
                return None;
            }
        }
        // After the partition check: connections that don't get through are not tracked.
        if resets.is_armed()
            && let Some(looking) = resets.inspect(self.direction, frame, clock.now())
        {
            add(&counters.tcp_untracked, 1);
            if !std::mem::replace(&mut self.resets_full, true) {
                put(
                    &counters.resets_full_nanos,
                    looking.as_nanos().max(1) as u64,
                );
            }
        }
        if self.rules.is_clear() && self.under_way.len() == 0 {
            self.rules.pass(packets as u64);
            return Some(packets as u32);
        }
        // The arrival time of a frame from an interface is known; otherwise only its bounds are.
        let arrived_between =
            arrival.map_or_else(|| [self.looked, clock.now()], |arrival| [arrival.at; 2]);
        match train {
            None => self.take_packet(frame, arrived_between, shared),
            Some(train) => self.take_train(frame, train, arrived_between, shared),
        }
        None
    }

    fn take_packet(&mut self, frame: &[u8], arrived_between: [Nanos; 2], shared: &Shared) {
        let counters = &shared.counters;
        let Some(delivery) = judge(
            &mut self.rules,
            arrived_between,
            frame.len() - VNET_HEADER_BYTES,
            counters,
        ) else {
            return;
        };
        let delivery = mark(delivery, frame, counters);
        let mut kept = self.spare.take(frame.len());
        kept.extend_from_slice(frame);
        self.keep(kept, delivery, 1, shared);
    }

    /// Judges each segment separately; segments that arrive together are delivered together.
    fn take_train(
        &mut self,
        frame: &[u8],
        train: Train,
        arrived_between: [Nanos; 2],
        shared: &Shared,
    ) {
        let mut run: Option<(usize, usize, Delivery, Nanos)> = None;
        for segment in 0..train.segments {
            let verdict = judge(
                &mut self.rules,
                arrived_between,
                train.frame_bytes(segment),
                &shared.counters,
            )
            .map(|delivery| mark(delivery, frame, &shared.counters));
            if let (Some((_, count, together, first)), Some(this)) = (&mut run, verdict)
                && together.is_plain()
                && this.is_plain()
                && this.due >= *first
                && this.due.since(*first) <= TOGETHER
            {
                *count += 1;
                together.due = together.due.max(this.due);
                continue;
            }
            self.cut(frame, train, run.take(), shared);
            run = verdict.map(|delivery| (segment, 1, delivery, delivery.due));
        }
        self.cut(frame, train, run, shared);
    }

    fn cut(
        &mut self,
        frame: &[u8],
        train: Train,
        run: Option<(usize, usize, Delivery, Nanos)>,
        shared: &Shared,
    ) {
        let Some((first, count, delivery, _)) = run else {
            return;
        };
        let mut kept = self
            .spare
            .take(VNET_HEADER_BYTES + train.header_bytes + count * train.segment_bytes);
        if count == train.segments {
            kept.extend_from_slice(frame);
        } else {
            train.cut(frame, first, count, &mut kept);
        }
        self.keep(kept, delivery, count as u32, shared);
    }

    /// Schedules a frame, and its copy if it is duplicated.
    fn keep(&mut self, mut bytes: Vec<u8>, delivery: Delivery, packets: u32, shared: &Shared) {
        if delivery.mark {
            packet::mark_congestion(&mut bytes);
        }
        if let Some(pick) = delivery.corrupt {
            packet::corrupt(&mut bytes, pick);
        }
        let copy = delivery.duplicate.then(|| {
            let mut copy = self.spare.take(bytes.len());
            copy.extend_from_slice(&bytes);
            copy
        });
        for bytes in std::iter::once(bytes).chain(copy) {
            if self.held_bytes + bytes.capacity() > self.held_bytes_max {
                add(&shared.counters.unmeant_no_buffer, u64::from(packets));
                self.spare.give(bytes);
                continue;
            }
            self.held_bytes += bytes.capacity();
            self.under_way.push(
                delivery.due,
                Frame {
                    bytes,
                    due: delivery.due,
                    packets,
                },
            );
        }
        raise(&shared.counters.queued_max, self.under_way.len() as u64);
    }

    /// Delivers frames that are due; returns whether there were any.
    pub(super) fn hand_over(&mut self, shared: &Shared, clock: &Clock) -> io::Result<bool> {
        let Some(due) = self.under_way.next_due() else {
            return Ok(false);
        };
        let now = clock.now();
        if due > now {
            return Ok(false);
        }
        let mut written = WriteCounts::default();
        while self.due.len() < BATCH
            && let Some(frame) = self.under_way.pop_due(now)
        {
            let late = now.0 - frame.due.0;
            add(&shared.counters.late_nanos, late);
            raise(&shared.counters.late_nanos_max, late);
            self.held_bytes -= frame.bytes.capacity();
            self.due.push(frame);
        }
        let handed = self.due.len();
        let refused = match self.to {
            LinkEnd::Tap(_) => {
                let push = |frame: &Frame| self.out.push(&frame.bytes, frame.packets, &mut written);
                self.due.iter().for_each(push);
                0
            }
            LinkEnd::Interface(socket) => {
                sys::write_packets(socket, self.due.iter().map(|frame| frame.bytes.as_slice()))
            }
        };
        let sent = clock.now();
        for (place, frame) in self.due.drain(..).enumerate() {
            if self.to.is_interface() {
                let took = Nanos(sent.0.saturating_sub(frame.due.0));
                written.note_added(
                    frame.packets,
                    refused >> place & 1 == 1,
                    took,
                    &mut self.added,
                );
            }
            self.spare.give(frame.bytes);
        }
        self.out.settle(now, &mut written);
        note(&written, &shared.counters);
        Ok(handed > 0)
    }

    /// Records the remaining packets when the thread ends.
    pub(super) fn end(&mut self, shared: &Shared) {
        *shared.added() = std::mem::take(&mut self.added);
        let far = Nanos(u64::MAX);
        let left = std::iter::from_fn(|| self.under_way.pop_due(far));
        shared.left.store(
            left.map(|frame| u64::from(frame.packets)).sum(),
            Ordering::Relaxed,
        );
        shared
            .ends_left
            .store(self.slow_close.held(), Ordering::Relaxed);
    }
}

/// Asks the rules about a packet that arrived between two times and counts the decision; `None` if it is not delivered.
fn judge(
    rules: &mut Rules,
    [looked, now]: [Nanos; 2],
    frame_bytes: usize,
    counters: &Counters,
) -> Option<Delivery> {
    let delivery = match rules.on_packet_since(looked, now, frame_bytes as u32) {
        PacketFate::Deliver(delivery) => delivery,
        PacketFate::Lost => {
            add(&counters.lost, 1);
            return None;
        }
        PacketFate::QueueFull => {
            add(&counters.queue_full, 1);
            return None;
        }
    };
    add(&counters.corrupted, u64::from(delivery.corrupt.is_some()));
    add(&counters.duplicated, u64::from(delivery.duplicate));
    add(&counters.held, u64::from(delivery.held));
    Some(delivery)
}

/// Removes the congestion mark from the delivery of a packet that isn't ECN-capable, and counts both cases.
#[inline]
fn mark(delivery: Delivery, packet: &[u8], counters: &Counters) -> Delivery {
    if !delivery.mark {
        return delivery;
    }
    let ecn = packet::ecn(packet);
    add(&counters.ecn_marked, u64::from(ecn == Ecn::Capable));
    add(&counters.ecn_not_capable, u64::from(ecn == Ecn::NotCapable));
    Delivery {
        mark: ecn == Ecn::Capable,
        ..delivery
    }
}

/// Counts written frames, and those that the host refused or had no memory for; no drop is silent.
fn note(written: &WriteCounts, counters: &Counters) {
    add(&counters.frames_out, written.frames);
    add(&counters.delivered, written.packets);
    add(&counters.unmeant_refused, written.refused);
}

/// Each direction has its own random numbers.
pub(super) fn direction_seed(seed: u64, direction: u64) -> u64 {
    brunt_core::random::Random::for_part(seed, direction).next_u64()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV4;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixDatagram;

    use brunt_core::Span;
    use brunt_result::link::TCP_CONNECTIONS_MAX;

    use super::super::control::Control;
    use super::super::tcp::{ACK, FIN};
    use super::super::test_frames::{CLIENT, SERVER, segment};
    use super::*;

    /// When there are too many connections, the report names the current `slow_close`, not an earlier, longer one.
    #[test]
    fn a_full_table_is_reported_with_the_current_setting() {
        let of = |millis| Settings {
            slow_close: Span(Duration::from_millis(millis)),
            ..Settings::default()
        };
        let file = rustix::fs::memfd_create("none", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let ends = [LinkEnd::Tap(file.as_raw_fd()); 2];
        let control = Control::new([of(60_000), Settings::default()]).unwrap();
        let shared = &control.lanes[0];
        let mut lane = Lane::new(Direction::There, ends, of(60_000), 1, 1 << 20, Nanos(0));
        let close = |lane: &mut Lane, number: usize| {
            let ports = (number % 60_000) as u16 + 1;
            let client = SocketAddrV4::new(
                (u32::from(*CLIENT.ip()) + (number / 60_000) as u32).into(),
                ports,
            );
            let mut end = segment(client, SERVER, [1, 2], FIN | ACK, b"");
            lane.inspect(&mut end, 1, shared, Nanos(1000))
        };
        for number in 0..TCP_CONNECTIONS_MAX {
            assert!(!close(&mut lane, number), "held");
        }
        let full = || shared.counters.read().fins_full_nanos;
        assert_eq!(full(), 0);
        assert!(close(&mut lane, TCP_CONNECTIONS_MAX));
        assert_eq!(full(), 60_000_000_000);
        shared.wanted().settings = of(700);
        shared.asked.fetch_add(1, Ordering::AcqRel);
        lane.change(shared, &Clock::Monotonic, &mut Resetter::default());
        assert!(
            close(&mut lane, TCP_CONNECTIONS_MAX + 1),
            "those that are held remain held"
        );
        assert_eq!(full(), 700_000_000);
    }

    /// If a frame is already waiting when the thread starts, the line counts as idle before that.
    #[test]
    fn a_line_loses_no_time_before_it_begins() {
        let (host, tap) = UnixDatagram::pair().unwrap();
        tap.set_nonblocking(true).unwrap();
        host.send(&[0; VNET_HEADER_BYTES + 60]).unwrap();
        let clock = Clock::manual();
        clock.advance(Duration::from_secs(3600));
        let settings: Settings = toml::from_str("rate = '10Mb/s'").unwrap();
        let control = Control::new([settings.clone(), settings.clone()]).unwrap();
        let ends = [LinkEnd::Tap(tap.as_raw_fd()); 2];
        let start = clock.now();
        let mut lane = Lane::new(Direction::There, ends, settings, 1, 1 << 20, start);
        assert!(
            lane.take_in(&control.lanes[0], &clock, &mut Resetter::default())
                .unwrap()
        );
        let counts = control.lanes[0].counters.read();
        assert_eq!(counts.frames_in, 1);
        assert!(counts.line_sent_nanos > 0);
        assert_eq!(counts.line_lost_nanos, 0);
    }
}
