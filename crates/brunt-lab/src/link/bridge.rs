//! A bridge that connects two interfaces of this machine through a link's thread. Frames that arrive at one interface
//! leave through the other, delayed, lost or changed as configured, and otherwise unmodified.
//!
//! Called by `brunt bridge`, which prints the result of [`WireBridge::stop`]. The rule: afterwards the interfaces are
//! as they were before. Changes made by a packet socket end with the socket; settings changed here are restored.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use brunt_core::{Clock, Histogram, Nanos};
use brunt_result::link::LinkReport;
use rustix::net::sockopt::socket_recv_buffer_size;

use super::control::Control;
use super::driver::Driver;
use super::end::EndPort;
use super::packet_watcher::PacketWatcher;
use super::ring_end::RingEnd;
use super::settings::Settings;
use crate::netlink::Netlink;
use crate::sys::{self, SLOT_BYTES, SlotRing};

/// Socket buffer for trains and jumbo frames that have not been read yet, and for frames that have not been sent yet.
const SOCKET_BYTES: i32 = 64 << 20;
/// Receive ring of each interface, for all other frames: 32768 frames, or 80 ms at 400 000 per second. A ring of 8 MiB
/// fits into a CPU cache and saves a sixth of the cost per frame, but overflows eight times sooner.
const RING_BYTES: usize = 64 << 20;
/// Maximum bytes in flight in one direction, as for a lab's link.
const HELD_BYTES_MAX: usize = 512 << 20;
/// With less room than this for unread frames, the user gets a note.
const ROOM_BYTES_MIN: usize = 8 << 20;
/// Maximum length of an interface name.
const NAME_BYTES_MAX: usize = libc::IFNAMSIZ - 1;

/// The configuration of a bridge.
pub struct BridgeConfig {
    /// The two interfaces, in the calling thread's namespace.
    pub interfaces: [String; 2],
    /// The settings from the first interface to the second, and back.
    pub settings: [Settings; 2],
    /// The seed of the random numbers.
    pub seed: u64,
    /// Receives all packets as they arrive.
    pub watcher: Option<Box<dyn PacketWatcher>>,
}

/// A running bridge. Dropping the bridge stops it.
#[derive(Debug)]
pub struct WireBridge {
    control: Arc<Control>,
    sockets: [Arc<OwnedFd>; 2],
    /// Frames dropped in each direction because the sockets had no room.
    overrun: [u64; 2],
    thread: Option<JoinHandle<io::Result<()>>>,
    _merging: Vec<Merging>,
    notes: Vec<String>,
}

/// The outcome of a bridge.
#[derive(Debug)]
pub struct BridgeEnd {
    /// Packets that passed, and those that were dropped.
    pub report: LinkReport,
    /// Time that the bridge added to each frame beyond the configured delay, in each direction: from the kernel's
    /// arrival timestamp plus the configured delay to the end of the send call.
    pub added: [Histogram; 2],
    /// Packets in flight in each direction that were not delivered.
    pub left: [u64; 2],
    /// FINs that `slow_close` still held in each direction and that were not delivered.
    pub ends_left: [u64; 2],
    /// The error that ended it early, if any.
    pub error: Option<io::Error>,
}

/// Why a bridge could not be started.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// No such interface.
    #[error("unknown interface {0}")]
    Missing(String),
    /// The two interfaces are the same.
    #[error("{0} cannot be bridged with itself")]
    Same(String),
    /// The interfaces are the two ends of a single veth pair.
    #[error("{0} and {1} are the two ends of one veth pair: frames would circulate forever")]
    OneWire(String, String),
    /// Not Ethernet.
    #[error("{0} is not an Ethernet interface")]
    NotEthernet(String),
    /// The interface is down.
    #[error("{0} is down")]
    Down(String),
    /// Missing capabilities.
    #[error("{0}: packet sockets need CAP_NET_RAW and CAP_NET_ADMIN")]
    Denied(String),
    /// Another kernel error.
    #[error("{0}: cannot {1} ({2})")]
    System(String, &'static str, #[source] io::Error),
}

impl BridgeError {
    /// Suggests a remedy.
    pub fn advice(&self) -> String {
        match self {
            BridgeError::Missing(_) | BridgeError::NotEthernet(_) => {
                "`ip -br link` lists the interfaces".into()
            }
            BridgeError::Same(_) => "name two different interfaces, one to each side".into(),
            BridgeError::OneWire(..) => {
                "use two veth pairs, one to each side, and name one end of each".into()
            }
            BridgeError::Down(name) => format!("run: ip link set {name} up"),
            BridgeError::Denied(_) => {
                "run as root, or: setcap cap_net_raw,cap_net_admin+ep $(command -v brunt)".into()
            }
            BridgeError::System(..) => "see the kernel's messages: dmesg".into(),
        }
    }
}

/// Large receive offload that was disabled, because merged packets cannot be split into the original ones.
#[derive(Debug)]
struct Merging(String);

impl Drop for Merging {
    fn drop(&mut self) {
        // The interface may be gone.
        let _ = sys::set_merging_for_good(&self.0, true);
    }
}

/// An interface that is ready to be bridged.
struct BridgePort {
    socket: Arc<OwnedFd>,
    ring: RingEnd,
    /// Bytes of the socket's receive buffer.
    room: usize,
    /// Slots of the ring.
    slots: usize,
    merging: Option<Merging>,
}

impl BridgePort {
    fn open(name: &str, index: u32) -> Result<BridgePort, BridgeError> {
        // Drivers that don't support this query don't merge packets.
        let merges = sys::merges_for_good(name).unwrap_or(false);
        if merges {
            sys::set_merging_for_good(name, false)
                .map_err(fail(name, "disable large receive offload"))?;
        }
        let merging = merges.then(|| Merging(name.to_string()));
        let socket =
            sys::make_packet_socket(SOCKET_BYTES).map_err(fail(name, "open a packet socket"))?;
        sys::watch_interface(socket.as_fd(), index).map_err(fail(name, "capture all frames"))?;
        sys::set_receive_buffer(socket.as_fd(), SOCKET_BYTES);
        let room = socket_recv_buffer_size(&socket).unwrap_or(0);
        let ring = SlotRing::new(socket.as_fd(), RING_BYTES).map_err(fail(name, "share a ring"))?;
        let slots = ring.slots();
        // Bound only now: frames that arrived before the ring existed would not be in it.
        sys::bind_packet_socket(socket.as_fd(), index)
            .map_err(fail(name, "open a packet socket"))?;
        let socket = Arc::new(socket);
        Ok(BridgePort {
            ring: RingEnd::new(Arc::clone(&socket), index, ring),
            socket,
            room,
            slots,
            merging,
        })
    }
}

/// Converts an error of `what` on this interface.
fn fail(name: &str, what: &'static str) -> impl FnOnce(io::Error) -> BridgeError {
    let name = name.to_string();
    move |error| match error.kind() {
        io::ErrorKind::PermissionDenied => BridgeError::Denied(name),
        _ => BridgeError::System(name, what, error),
    }
}

impl WireBridge {
    /// Starts forwarding.
    ///
    /// # Errors
    /// See [`BridgeError`].
    pub fn start(config: BridgeConfig) -> Result<WireBridge, BridgeError> {
        let BridgeConfig {
            interfaces,
            settings,
            seed,
            watcher,
        } = config;
        let (indices, mtus) = check(&interfaces)?;
        let first = BridgePort::open(&interfaces[0], indices[0])?;
        let opened = [first, BridgePort::open(&interfaces[1], indices[1])?];
        let room = opened[0].room.min(opened[1].room);
        let slots = opened[0].slots.min(opened[1].slots);
        let mut notes = room_notes(room, slots);
        let sockets = opened.each_ref().map(|port| Arc::clone(&port.socket));
        let mut merging = Vec::new();
        let ports = opened.map(|port| {
            merging.extend(port.merging);
            EndPort::Interface(port.socket, Some(port.ring))
        });
        let control = Arc::new(
            Control::new(settings.clone())
                .map_err(fail(&interfaces[0], "create the thread's control channel"))?,
        );
        let driver = Driver {
            ports,
            watcher,
            control: control.clone(),
            settings,
            seed,
            held_bytes_max: HELD_BYTES_MAX,
            clock: Clock::Monotonic,
        };
        let thread = std::thread::Builder::new()
            .name("bridge".into())
            .spawn(|| driver.run());
        let thread = thread.map_err(fail(&interfaces[0], "start its thread"))?;
        let off = |Merging(name): &Merging| {
            format!("{name}: large receive offload is disabled until the bridge ends")
        };
        notes.extend(merging.iter().map(off));
        if mtus[0] != mtus[1] {
            notes.push(format!(
                "{} has an MTU of {} bytes and {} one of {}: longer packets are dropped and counted; \
                 set the same MTU on both",
                interfaces[0], mtus[0], interfaces[1], mtus[1]
            ));
        }
        Ok(WireBridge {
            control,
            sockets,
            overrun: [0; 2],
            thread: Some(thread),
            _merging: merging,
            notes,
        })
    }

    /// Notes for the user about the interfaces.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whether the bridge ended on its own because an interface is gone.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Changes both directions' settings while packets are in flight, and waits until they take effect; returns the
    /// time at which they did.
    ///
    /// # Errors
    /// The thread has ended, or doesn't respond.
    pub fn change(&self, settings: [Settings; 2]) -> io::Result<Nanos> {
        let mut at = Nanos(0);
        for (direction, settings) in settings.into_iter().enumerate() {
            let changed = self.control.change(direction, &Clock::Monotonic, |wanted| {
                wanted.settings = settings
            });
            at = at.max(changed.ok_or(io::ErrorKind::TimedOut)?.at);
        }
        Ok(at)
    }

    /// The counters so far.
    pub fn report(&mut self) -> LinkReport {
        for (socket, overrun) in self.sockets.iter().zip(&mut self.overrun) {
            // The kernel resets this counter on reading.
            *overrun += sys::packet_socket_drops(socket.as_fd()).unwrap_or(0);
        }
        let mut report = self.control.report();
        for (counts, overrun) in [&mut report.there, &mut report.back]
            .into_iter()
            .zip(self.overrun)
        {
            // These frames arrived, too; each counts as one packet, because the number of packets in a dropped train
            // is unknown.
            counts.packets += overrun;
            counts.unmeant_no_buffer += overrun;
        }
        report
    }

    /// Stops the bridge immediately and returns its outcome.
    pub fn stop(mut self) -> BridgeEnd {
        let error = self.end();
        let added = self
            .control
            .lanes
            .each_ref()
            .map(|lane| std::mem::take(&mut *lane.added()));
        let left = self
            .control
            .lanes
            .each_ref()
            .map(|lane| lane.left.load(Ordering::Relaxed));
        let ends_left = self
            .control
            .lanes
            .each_ref()
            .map(|lane| lane.ends_left.load(Ordering::Relaxed));
        BridgeEnd {
            report: self.report(),
            added,
            left,
            ends_left,
            error,
        }
    }

    fn end(&mut self) -> Option<io::Error> {
        self.control.stop.store(true, Ordering::Release);
        self.control.wake();
        let thread = self.thread.take()?;
        match thread.join() {
            Ok(ended) => ended.err(),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for WireBridge {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

/// Notes for the user about the room for unread frames.
fn room_notes(room: usize, slots: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if room < ROOM_BYTES_MIN {
        notes.push(format!(
            "the kernel's limit is {} KiB of unread jumbo frames and segments, so bursts may be \
             lost; run as root outside of containers, or: sysctl net.core.rmem_max={SOCKET_BYTES}",
            room >> 10
        ));
    }
    if slots < RING_BYTES / SLOT_BYTES {
        notes.push(format!(
            "the kernel had memory for only {slots} unread frames instead of {}, so bursts may be \
             lost",
            RING_BYTES / SLOT_BYTES
        ));
    }
    notes
}

fn index_of(name: &str) -> Result<u32, BridgeError> {
    let missing = || BridgeError::Missing(name.to_string());
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(missing());
    }
    Netlink::open()
        .and_then(|mut netlink| netlink.index_of(name))
        .map_err(|_| missing())
}

/// Checks whether the two interfaces can be bridged; returns their indices and MTUs.
fn check(interfaces: &[String; 2]) -> Result<([u32; 2], [u32; 2]), BridgeError> {
    let [first, second] = interfaces;
    if first == second {
        return Err(BridgeError::Same(first.clone()));
    }
    let (mut indices, mut mtus) = ([0; 2], [0; 2]);
    for (way, name) in interfaces.iter().enumerate() {
        indices[way] = index_of(name)?;
        let facts = sys::interface_facts(name)
            .map_err(|error| BridgeError::System(name.clone(), "determine its type", error))?;
        if !facts.is_ethernet {
            return Err(BridgeError::NotEthernet(name.clone()));
        }
        if !facts.is_up {
            return Err(BridgeError::Down(name.clone()));
        }
        mtus[way] = facts.mtu;
    }
    if [peer_of(first), peer_of(second)] == [Some(indices[1]), Some(indices[0])] {
        return Err(BridgeError::OneWire(first.clone(), second.clone()));
    }
    Ok((indices, mtus))
}

/// The other end of a veth pair, or the interface below a stacked one.
fn peer_of(name: &str) -> Option<u32> {
    Netlink::open()
        .and_then(|mut netlink| netlink.peer_of(name))
        .ok()
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interfaces that cannot be bridged are rejected with advice; messages only mention terms that users know.
    #[test]
    fn interfaces_that_cannot_be_bridged_are_refused_with_advice() {
        let refused = |first: &str, second: &str| {
            let interfaces = [first.to_string(), second.to_string()];
            check(&interfaces).expect_err("these cannot be bridged")
        };
        assert!(matches!(refused("lo", "lo"), BridgeError::Same(_)));
        assert!(
            matches!(refused("no-such-if0", "lo"), BridgeError::Missing(name) if name == "no-such-if0")
        );
        assert!(matches!(refused("", "lo"), BridgeError::Missing(_)));
        assert!(matches!(
            refused("a-name-of-far-too-many-letters", "lo"),
            BridgeError::Missing(_)
        ));
        let loopback = refused("lo", "no-such-if0");
        assert!(
            matches!(loopback, BridgeError::NotEthernet(_)),
            "{loopback}"
        );
    }
}
