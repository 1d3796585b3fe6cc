//! The simplest possible emulator: two packet sockets with virtio-net headers, one queue, one timer, one system call
//! per packet. It delays packets and does nothing else. `brunt-bench link` compares the real emulator with it in the
//! same run, so that "twice as fast" means the same on every machine.
//!
//! The rule: keep it simple, or the baseline changes.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use super::control::Control;
use super::counters::add;
use super::packet::{GSO_TCP4, VNET_HEADER_BYTES};
use crate::sys;

/// The virtio-net header of a packet socket lacks the buffer count (virtio 0.9.5).
const HEADER_BYTES: usize = 10;
/// Bytes of the Ethernet, IPv4 and TCP headers, with TCP timestamps.
const TRAIN_HEADERS_BYTES: usize = 66;
const FRAME_BYTES_MAX: usize = (64 << 10) + 14 + VNET_HEADER_BYTES;

/// Everything its thread needs.
pub(super) struct Prototype {
    /// The sockets on the sides of the first and the second host.
    pub(super) sockets: [OwnedFd; 2],
    pub(super) control: Arc<Control>,
    pub(super) delay: Duration,
    pub(super) clock: Clock,
}

impl Prototype {
    /// Runs until stopped.
    pub(super) fn run(self) -> io::Result<()> {
        sys::exact_timers();
        let Prototype {
            sockets,
            control,
            delay,
            clock,
        } = self;
        let mut queue: VecDeque<(Nanos, usize, Vec<u8>)> = VecDeque::new();
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        let fds = [
            sockets[0].as_raw_fd(),
            sockets[1].as_raw_fd(),
            control.wake.as_raw_fd(),
        ];
        let start = clock.now();
        while !control.stop.load(Ordering::Acquire) {
            let turn = clock.now();
            for from in 0..2 {
                let counters = &control.lanes[from].counters;
                while let Some(bytes) = sys::read_frame(fds[from], &mut buffer)? {
                    let frame = &buffer[..bytes];
                    add(&counters.packets, packets(frame));
                    add(&counters.frames_in, 1);
                    if delay.is_zero() {
                        send(&sockets[1 - from], frame, counters);
                    } else {
                        queue.push_back((clock.now().after(delay), from, frame.to_vec()));
                    }
                }
            }
            while queue.front().is_some_and(|(due, ..)| *due <= clock.now()) {
                let (_, from, frame) = queue.pop_front().expect("the queue has a packet");
                send(&sockets[1 - from], &frame, &control.lanes[from].counters);
            }
            for (socket, lane) in sockets.iter().zip(&control.lanes) {
                add(
                    &lane.counters.unmeant_no_buffer,
                    sys::packet_socket_drops(socket.as_fd())?,
                );
            }
            let now = clock.now();
            add(&control.busy_nanos, now.0 - turn.0);
            control
                .lived_nanos
                .store(now.0 - start.0, Ordering::Relaxed);
            sys::wait_readable(&fds, queue.front().map(|(due, ..)| due.since(now)))?;
        }
        Ok(())
    }
}

fn send(to: &OwnedFd, frame: &[u8], counters: &super::counters::Counters) {
    match sys::write_frame(to.as_raw_fd(), frame) {
        Ok(()) => add(&counters.frames_out, 1),
        Err(_) => add(&counters.unmeant_refused, 1),
    }
}

/// Number of packets on the wire that a frame represents.
fn packets(frame: &[u8]) -> u64 {
    match frame {
        [_, kind, _, _, low, high, ..] if kind & 0x7f == GSO_TCP4 => {
            let payload = frame
                .len()
                .saturating_sub(HEADER_BYTES + TRAIN_HEADERS_BYTES);
            payload.div_ceil(usize::from(u16::from_ne_bytes([*low, *high])).max(1)) as u64
        }
        _ => 1,
    }
}
