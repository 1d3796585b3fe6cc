//! The thread of a link, which serves both directions ([`Lane`]) on one core.
//!
//! The rule: the thread sleeps only when no frame waits and none is due soon.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use super::control::Control;
use super::counters::add;
use super::crowding::Crowding;
use super::direction::Direction;
use super::end::EndPort;
use super::lane::{Lane, SharedWatcher};
use super::off_core::OffCore;
use super::packet_watcher::PacketWatcher;
use super::ring_end::RingEnd;
use super::settings::Settings;
use super::tcp::reset::Resetter;
use crate::sys;

/// A sleeping virtual CPU takes about this long to wake up for a timer, so the thread spins if the next due time is
/// closer than this. With 60 us, frames were 15 to 40 us late on average; with 150 us, 1 to 14 us; 300 us gave no
/// improvement.
const SPIN: Duration = Duration::from_micros(150);
/// How long a link polls for another frame before its thread sleeps: waking up costs more than that, and a reply
/// usually comes right away.
const IDLE_SPIN: Duration = Duration::from_micros(50);

/// Everything a link's thread needs.
pub(super) struct Driver {
    pub(super) ports: [EndPort; 2],
    pub(super) watcher: Option<Box<dyn PacketWatcher>>,
    pub(super) control: Arc<Control>,
    pub(super) settings: [Settings; 2],
    pub(super) seed: u64,
    /// Maximum bytes in flight in a direction.
    pub(super) held_bytes_max: usize,
    pub(super) clock: Clock,
}

impl Driver {
    /// Runs until stopped.
    pub(super) fn run(self) -> io::Result<()> {
        sys::exact_timers();
        let Driver {
            mut ports,
            watcher,
            control,
            settings,
            seed,
            held_bytes_max,
            clock,
        } = self;
        // A busy machine may delay this thread, unlike a real wire; the raised priority prevents that if permitted.
        control
            .usual_priority
            .store(sys::raise_priority(-20).is_err(), Ordering::Relaxed);
        let ends = ports.each_ref().map(EndPort::end);
        let watcher: Option<SharedWatcher> = watcher.map(|watcher| Rc::new(RefCell::new(watcher)));
        let start = clock.now();
        let mut directions = [Direction::There, Direction::Back].into_iter();
        let mut lanes = settings.map(|settings| {
            let direction = directions.next().expect("one value per setting");
            let mut lane = Lane::new(direction, ends, settings, seed, held_bytes_max, start);
            lane.watcher = watcher.clone();
            lane.ring = ports[direction as usize].take_ring();
            lane
        });
        let polled = [ends[0].fd(), ends[1].fd(), control.wake.as_raw_fd()];
        let ended = carry(&mut lanes, &control, &polled, &clock);
        for (lane, shared) in lanes.iter_mut().zip(&control.lanes) {
            lane.end(shared);
        }
        ended
    }
}

/// Carries frames both ways until stopped, or until an end is gone.
fn carry(
    lanes: &mut [Lane; 2],
    control: &Control,
    polled: &[RawFd; 3],
    clock: &Clock,
) -> io::Result<()> {
    let mut off_core = OffCore::of_this_thread();
    let start = clock.now();
    let mut last_work = start;
    let mut turn = start;
    let mut resets = Resetter::default();
    let mut crowding = Crowding::new(start);
    while !control.stop.load(Ordering::Acquire) {
        let mut worked = false;
        for (lane, shared) in lanes.iter_mut().zip(&control.lanes) {
            lane.change(shared, clock, &mut resets);
            worked |= lane.take_in(shared, clock, &mut resets)?;
            worked |= lane.let_close(shared, clock);
            worked |= lane.hand_over(shared, clock)?;
        }
        let now = clock.now();
        if worked {
            add(&control.busy_nanos, now.0 - turn.0);
            last_work = now;
        }
        turn = now;
        control
            .lived_nanos
            .store(now.0 - start.0, Ordering::Relaxed);
        crowding.on_turn(
            now,
            lanes.each_ref().map(|lane| lane.is_at_most_a_line),
            lanes.each_mut().map(|lane| &mut lane.backlog_bytes),
            &control.lanes,
        );
        if worked || now.since(last_work) < IDLE_SPIN {
            std::hint::spin_loop();
            continue;
        }
        // Both directions share one watcher.
        if let Some(watcher) = &lanes[0].watcher {
            watcher.borrow_mut().on_pause();
        }
        let due = lanes.iter().filter_map(Lane::next_due).min();
        let timeout = due.map(|due| due.since(now).saturating_sub(SPIN));
        let none_waits = lanes.iter().all(|lane| lane.out.is_empty());
        if none_waits && timeout.is_none_or(|timeout| !timeout.is_zero()) {
            let wrong = sys::wait_readable(polled, timeout)?;
            drain(&control.wake);
            turn = clock.now();
            crowding.on_sleep(turn.0 - now.0);
            // The thread slept because nothing arrived, so frames found now arrived after it was woken.
            let woken = Nanos(turn.0.saturating_sub(off_core.waited_nanos()));
            let hosts = lanes.iter_mut().filter(|lane| !lane.from.is_interface());
            hosts.for_each(|lane| lane.looked = lane.looked.max(woken));
            for (lane, _) in lanes.iter_mut().zip(wrong).filter(|(_, wrong)| *wrong) {
                lane.ring.iter_mut().for_each(RingEnd::doubt);
            }
        }
    }
    Ok(())
}

fn drain(wake: &OwnedFd) {
    let mut count = [0u8; 8];
    // There is usually nothing to read.
    let _ = rustix::io::read(wake, &mut count);
}
