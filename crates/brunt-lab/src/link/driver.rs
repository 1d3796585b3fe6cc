//! The thread of a link: takes frames from one host's device, applies the rules, and delivers them to the
//! other host's device when they are due. Two directions, one thread, one core.
//!
//! The rule: no decision is made here. Trains are split only where the fates of their segments differ.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use super::Direction;
use super::counters::{Counters, add, lower, raise};
use super::crowding::Crowding;
use super::merge::{Merger, Written};
use super::off_core::OffCore;
use super::packet::{self, Ecn, Train, VNET_HEADER_BYTES};
use super::parted::{self, HostPair};
use super::rules::{Delivery, PacketFate, Rules};
use super::schedule::Schedule;
use super::settings::Settings;
use super::tcp::reset::{ResetRule, Resetter};
use super::tcp::slow_close::{Passing, SlowClose};
use crate::sys;

/// Largest frame: 64 KiB of IP, Ethernet, and the virtio-net header.
const FRAME_BYTES_MAX: usize = (64 << 10) + 14 + VNET_HEADER_BYTES;
/// Frames taken from one device before the other has its turn.
const BATCH: usize = 64;
/// A virtual processor that sleeps takes this long to wake for a timer; closer times are spun for. With
/// 60 us frames were 15 to 40 us late in the mean, with 150 one to 14, with 300 not less.
const SPIN: Duration = Duration::from_micros(150);
/// After its last frame a link looks for another one so long before it sleeps: to wake it costs more
/// than that, and an answer mostly comes at once.
const IDLE_SPIN: Duration = Duration::from_micros(50);
/// Segments of a train whose last bits arrive within this time are handed over together, as a network
/// card that moderates its interrupts does.
const TOGETHER: Duration = Duration::from_micros(20);

/// One direction as its thread and its handle share it.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) counters: Counters,
    /// What is to hold, and how many times that changed.
    wanted: Mutex<Wanted>,
    pub(super) asked: AtomicU64,
    /// How many of the changes hold, and since when.
    pub(super) applied: AtomicU64,
    pub(super) applied_at: AtomicU64,
}

impl Shared {
    pub(super) fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one direction is to do, all of it. Several faults may have a part in it at a time, each its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) settings: Settings,
    /// A seed from which chance begins again, once.
    pub(super) restart: Option<u64>,
    /// Hosts that are kept apart.
    pub(super) parted: Vec<HostPair>,
    /// Connections that are reset; the same for both directions.
    pub(super) reset: Option<ResetRule>,
}

impl Wanted {
    /// Whether packets need not pass the thread.
    pub(super) fn is_clear(&self) -> bool {
        self.settings.is_clear() && self.parted.is_empty() && self.reset.is_none()
    }
}

/// What a link's thread has in common with its handle.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) lanes: [Shared; 2],
    pub(super) stop: AtomicBool,
    /// Its thread was refused a priority above that of others.
    pub(super) usual_priority: AtomicBool,
    /// Nanoseconds in which it had work, of those in which it lived.
    pub(super) busy_nanos: AtomicU64,
    pub(super) lived_nanos: AtomicU64,
    pub(super) wake: OwnedFd,
}

impl Control {
    pub(super) fn new(settings: [Settings; 2]) -> io::Result<Control> {
        let flags = rustix::event::EventfdFlags::NONBLOCK | rustix::event::EventfdFlags::CLOEXEC;
        Ok(Control {
            lanes: settings.map(|settings| Shared {
                wanted: Mutex::new(Wanted { settings, ..Wanted::default() }),
                ..Shared::default()
            }),
            stop: AtomicBool::new(false),
            usual_priority: AtomicBool::new(false),
            busy_nanos: AtomicU64::new(0),
            lived_nanos: AtomicU64::new(0),
            wake: rustix::event::eventfd(0, flags)?,
        })
    }

    /// Lets the thread look at what changed.
    pub(super) fn wake(&self) {
        // It cannot be full: the counter holds 64 bits.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// One direction.
struct Lane {
    direction: Direction,
    from: RawFd,
    out: Merger,
    rules: Rules,
    /// Of the settings.
    is_at_most_a_line: bool,
    parted: Vec<HostPair>,
    slow_close: SlowClose,
    under_way: Schedule<Frame>,
    /// Bytes of the frames under way.
    held_bytes: usize,
    held_bytes_max: usize,
    /// When the sending host had no more; what is read next came later.
    looked: Nanos,
    /// Where the next frame is read into.
    buffer: Box<[u8]>,
    spare: Spare,
    seen: u64,
}

/// A frame under way: the virtio-net header, then Ethernet.
#[derive(Debug)]
struct Frame {
    bytes: Vec<u8>,
    due: Nanos,
    packets: u32,
}

/// Buffers to be used again, by size.
#[derive(Default)]
struct Spare {
    kept: [Vec<Vec<u8>>; 3],
}

/// A packet of a standard Ethernet; one of a jumbo frame, or a short train; the longest train. A buffer
/// counts as held with its whole size, so a packet should not lie in one of 64 KiB.
const SIZES: [usize; 3] = [2048, 10 << 10, FRAME_BYTES_MAX];

impl Spare {
    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let class = SIZES.iter().position(|size| bytes <= *size).expect("no frame is longer");
        self.kept[class].pop().unwrap_or_else(|| Vec::with_capacity(SIZES[class]))
    }

    fn give(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        let class = SIZES.iter().position(|size| buffer.capacity() <= *size).unwrap_or(SIZES.len() - 1);
        self.kept[class].push(buffer);
    }
}

/// Everything a link's thread needs.
pub(super) struct Driver {
    pub(super) taps: [OwnedFd; 2],
    pub(super) control: Arc<Control>,
    pub(super) settings: [Settings; 2],
    pub(super) seed: u64,
    /// Most bytes under way in a direction.
    pub(super) held_bytes_max: usize,
    pub(super) clock: Clock,
}

impl Driver {
    /// Until it is told to stop.
    pub(super) fn run(self) -> io::Result<()> {
        sys::exact_timers();
        let Driver { taps, control, settings, seed, held_bytes_max, clock } = self;
        // A wire does not wait for a busy machine; where that is not allowed, it may have to.
        control.usual_priority.store(sys::raise_priority(-20).is_err(), Ordering::Relaxed);
        let mut off_core = OffCore::of_this_thread();
        let fds = [taps[0].as_raw_fd(), taps[1].as_raw_fd()];
        let mut directions = [Direction::There, Direction::Back].into_iter();
        let mut lanes = settings.map(|settings| {
            let direction = directions.next().expect("one for each of the settings");
            Lane::new(direction, fds, settings, seed, held_bytes_max)
        });
        let polled = [fds[0], fds[1], control.wake.as_raw_fd()];
        let start = clock.now();
        let mut last_work = start;
        let mut turn = start;
        let mut resets = Resetter::default();
        let mut crowding = Crowding::new(start);
        loop {
            let mut worked = false;
            for (lane, shared) in lanes.iter_mut().zip(&control.lanes) {
                lane.change(shared, &clock, &mut resets);
                worked |= lane.take_in(shared, &clock, &mut resets)?;
                worked |= lane.let_close(shared, &clock);
                worked |= lane.hand_over(shared, &clock)?;
            }
            let now = clock.now();
            if worked {
                add(&control.busy_nanos, now.0 - turn.0);
                last_work = now;
            }
            turn = now;
            control.lived_nanos.store(now.0 - start.0, Ordering::Relaxed);
            crowding.on_turn(now, lanes.each_ref().map(|lane| lane.is_at_most_a_line), &control.lanes);
            if worked || now.since(last_work) < IDLE_SPIN {
                std::hint::spin_loop();
                continue;
            }
            if control.stop.load(Ordering::Acquire) {
                return Ok(());
            }
            let due = lanes.iter().filter_map(Lane::next_due).min();
            let timeout = due.map(|due| due.since(now).saturating_sub(SPIN));
            let none_waits = lanes.iter().all(|lane| lane.out.is_empty());
            if none_waits && timeout.is_none_or(|timeout| !timeout.is_zero()) {
                sys::wait_readable(&polled, timeout)?;
                drain(&control.wake);
                turn = clock.now();
                crowding.on_sleep(turn.0 - now.0);
                // It slept because nothing came: what there is now has come since it was woken.
                let woken = Nanos(turn.0.saturating_sub(off_core.waited_nanos()));
                lanes.iter_mut().for_each(|lane| lane.looked = lane.looked.max(woken));
            }
        }
    }
}

impl Lane {
    /// The lane of one direction between the two taps.
    fn new(
        direction: Direction,
        fds: [RawFd; 2],
        settings: Settings,
        seed: u64,
        held_bytes_max: usize,
    ) -> Lane {
        let this = direction as usize;
        let mut slow_close = SlowClose::default();
        slow_close.change(settings.slow_close.0, Nanos(0));
        Lane {
            direction,
            from: fds[this],
            out: Merger::new(fds[1 - this]),
            is_at_most_a_line: settings.is_at_most_a_line(),
            rules: Rules::new(settings, direction_seed(seed, this as u64)),
            parted: Vec::new(),
            slow_close,
            under_way: Schedule::new(),
            held_bytes: 0,
            held_bytes_max,
            looked: Nanos(0),
            buffer: vec![0; FRAME_BYTES_MAX].into_boxed_slice(),
            spare: Spare::default(),
            seen: 0,
        }
    }

    /// Takes over what changed.
    fn change(&mut self, shared: &Shared, clock: &Clock, resets: &mut Resetter) {
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
        resets.change(wanted.reset);
        shared.applied_at.store(now.0, Ordering::Release);
        shared.applied.store(asked, Ordering::Release);
    }

    /// When there is something to do again.
    fn next_due(&self) -> Option<Nanos> {
        self.under_way.next_due().into_iter().chain(self.slow_close.next_due()).min()
    }

    /// Lets the ends of connections through that were held long enough; whether there was any. Only now they
    /// meet what the link does to packets.
    fn let_close(&mut self, shared: &Shared, clock: &Clock) -> bool {
        let Some(due) = self.slow_close.next_due() else { return false };
        let now = clock.now();
        if due > now {
            return false;
        }
        let due = self.slow_close.due(now);
        for end in &due {
            self.buffer[..end.len()].copy_from_slice(end);
            self.take_packet(end.len(), now, shared);
        }
        true
    }

    /// What is done to hosts and connections rather than to packets; whether the frame goes on.
    fn inspect(&mut self, bytes: usize, packets: usize, shared: &Shared, now: Nanos) -> bool {
        let counters = &shared.counters;
        let buffer = &mut self.buffer[..bytes];
        if parted::stops(&self.parted, buffer) {
            add(&counters.parted, packets as u64);
            self.rules.pass(packets as u64);
            return false;
        }
        match self.slow_close.on_frame(buffer, now) {
            Passing::Whole => true,
            Passing::WithoutEnd => {
                add(&counters.fins_held, 1);
                true
            }
            Passing::Held => {
                add(&counters.fins_held, 1);
                false
            }
            Passing::Untracked => {
                add(&counters.tcp_untracked, 1);
                add(&counters.fins_untracked, 1);
                raise(&counters.fins_full_nanos, self.slow_close.hold().as_nanos() as u64);
                true
            }
        }
    }

    /// Sends the resets of this direction, behind what came so far.
    fn send_resets(&mut self, resets: &mut Resetter, shared: &Shared, clock: &Clock, written: &mut Written) {
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
            let delivery = Delivery { due, corrupt: None, mark: false, duplicate: false, held: false };
            self.keep(frame, delivery, 0, shared);
        }
    }

    /// Takes what the sending host has, a batch at most; whether there was anything.
    fn take_in(&mut self, shared: &Shared, clock: &Clock, resets: &mut Resetter) -> io::Result<bool> {
        let counters = &shared.counters;
        let mut written = Written::default();
        let mut count = 0;
        // What the other direction showed.
        self.send_resets(resets, shared, clock, &mut written);
        while count < BATCH {
            let Some(bytes) = sys::read_frame(self.from, &mut self.buffer)? else { break };
            count += 1;
            if bytes <= VNET_HEADER_BYTES {
                continue;
            }
            self.take_frame(bytes, shared, clock, resets, &mut written);
            self.send_resets(resets, shared, clock, &mut written);
        }
        let now = clock.now();
        if count < BATCH {
            self.looked = now;
        }
        if count > 0 {
            let time = self.rules.take_line_time();
            add(&counters.line_sent_nanos, time.sent);
            add(&counters.line_lost_nanos, time.lost);
            add(&counters.ordered_nanos, time.ordered);
        }
        self.out.settle(now, &mut written);
        note(&written, counters);
        Ok(count > 0)
    }

    /// Takes one frame of so many bytes, in the buffer.
    fn take_frame(
        &mut self,
        bytes: usize,
        shared: &Shared,
        clock: &Clock,
        resets: &mut Resetter,
        written: &mut Written,
    ) {
        let counters = &shared.counters;
        let train = Train::parse(&self.buffer[..bytes]);
        let packets = train.map_or(1, |train| train.segments);
        let headers = train.map_or(0, |train| (train.segments - 1) * train.header_bytes);
        add(&counters.frames_in, 1);
        add(&counters.packets, packets as u64);
        add(&counters.bytes, (bytes - VNET_HEADER_BYTES + headers) as u64);
        if !self.parted.is_empty() || !self.slow_close.is_idle() {
            let now = clock.now();
            if !self.inspect(bytes, packets, shared, now) {
                return;
            }
        }
        // Parted first: of a connection that does not get through nothing is known.
        if resets.is_armed()
            && let Some(looking) = resets.look(self.direction, &self.buffer[..bytes], clock.now())
        {
            add(&counters.tcp_untracked, 1);
            lower(&counters.resets_full_nanos, looking.as_nanos() as u64);
        }
        if self.rules.is_clear() && self.under_way.len() == 0 {
            self.rules.pass(packets as u64);
            self.out.push(&self.buffer[..bytes], packets as u32, written);
            return;
        }
        let now = clock.now();
        match train {
            None => self.take_packet(bytes, now, shared),
            Some(train) => self.take_train(bytes, train, now, shared),
        }
    }

    fn take_packet(&mut self, bytes: usize, now: Nanos, shared: &Shared) {
        let counters = &shared.counters;
        let Some(delivery) = judge(&mut self.rules, [self.looked, now], bytes - VNET_HEADER_BYTES, counters)
        else {
            return;
        };
        let delivery = mark(delivery, &self.buffer[..bytes], counters);
        let mut frame = self.spare.take(bytes);
        frame.extend_from_slice(&self.buffer[..bytes]);
        self.keep(frame, delivery, 1, shared);
    }

    /// Asks for each segment, and keeps those together that arrive together.
    fn take_train(&mut self, bytes: usize, train: Train, now: Nanos, shared: &Shared) {
        let mut run: Option<(usize, usize, Delivery, Nanos)> = None;
        for segment in 0..train.segments {
            let verdict =
                judge(&mut self.rules, [self.looked, now], train.frame_bytes(segment), &shared.counters)
                    .map(|delivery| mark(delivery, &self.buffer[..bytes], &shared.counters));
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
            self.cut(bytes, train, run.take(), shared);
            run = verdict.map(|delivery| (segment, 1, delivery, delivery.due));
        }
        self.cut(bytes, train, run, shared);
    }

    fn cut(
        &mut self,
        bytes: usize,
        train: Train,
        run: Option<(usize, usize, Delivery, Nanos)>,
        shared: &Shared,
    ) {
        let Some((first, count, delivery, _)) = run else { return };
        let mut frame = self.spare.take(VNET_HEADER_BYTES + train.header_bytes + count * train.segment_bytes);
        if count == train.segments {
            frame.extend_from_slice(&self.buffer[..bytes]);
        } else {
            train.cut(&self.buffer[..bytes], first, count, &mut frame);
        }
        self.keep(frame, delivery, count as u32, shared);
    }

    /// Puts a frame on its way, a second time where it arrives twice.
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
            self.under_way.push(delivery.due, Frame { bytes, due: delivery.due, packets });
        }
        raise(&shared.counters.queued_max, self.under_way.len() as u64);
    }

    /// Hands over what is due; whether there was anything.
    fn hand_over(&mut self, shared: &Shared, clock: &Clock) -> io::Result<bool> {
        let Some(due) = self.under_way.next_due() else { return Ok(false) };
        let now = clock.now();
        if due > now {
            return Ok(false);
        }
        let mut handed = 0;
        let mut written = Written::default();
        while let Some(frame) = self.under_way.pop_due(now) {
            let late = now.0 - frame.due.0;
            add(&shared.counters.late_nanos, late);
            raise(&shared.counters.late_nanos_max, late);
            self.out.push(&frame.bytes, frame.packets, &mut written);
            self.held_bytes -= frame.bytes.capacity();
            self.spare.give(frame.bytes);
            handed += 1;
            if handed == BATCH {
                break;
            }
        }
        self.out.settle(now, &mut written);
        note(&written, &shared.counters);
        Ok(handed > 0)
    }
}

/// Asks the rules about a packet that came between two times and counts what they say; `None` when it does not arrive.
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

/// Takes a mark back from a packet that cannot have it, and counts what becomes of it.
#[inline]
fn mark(delivery: Delivery, packet: &[u8], counters: &Counters) -> Delivery {
    if !delivery.mark {
        return delivery;
    }
    let ecn = packet::ecn(packet);
    add(&counters.ecn_marked, u64::from(ecn == Ecn::Capable));
    add(&counters.ecn_not_capable, u64::from(ecn == Ecn::NotCapable));
    Delivery { mark: ecn == Ecn::Capable, ..delivery }
}

/// Counts what was written. What the host has no memory for, or does not take: counted, never silent.
fn note(written: &Written, counters: &Counters) {
    add(&counters.frames_out, written.frames);
    add(&counters.delivered, written.packets);
    add(&counters.unmeant_refused, written.refused);
}

/// Each direction has its own chance.
pub(super) fn direction_seed(seed: u64, direction: u64) -> u64 {
    brunt_core::random::Random::for_part(seed, direction).next_u64()
}

fn drain(wake: &OwnedFd) {
    let mut count = [0u8; 8];
    // Nothing to read is the usual case.
    let _ = rustix::io::read(wake, &mut count);
}
