//! An emulated link between two hosts, in user space: a TAP device on each host, and a thread that carries frames
//! between them according to the settings.
//!
//! Packets of a direction without impairments bypass that thread over a parallel veth pair. If the experiment asks for
//! it, the kernel's emulator (netem) on a veth pair is used instead.
//!
//! Called by [`crate::Lab`] and by code that changes a link while packets are in flight. Segments that a host left to
//! be split (segmentation offload) count as the packets they would be on the wire: each has its own fate, and trains
//! stay together only where the fates are the same.
//!
//! The rule: every missing packet was either lost because the settings say so, or is counted as an unintended drop.

mod bridge;
mod change;
mod control;
mod counters;
mod crowding;
mod direction;
mod distribution;
mod driver;
mod end;
mod lane;
mod loss;
mod merge;
pub(crate) mod netem;
mod off_core;
mod packet;
mod packet_watcher;
mod partition;
mod presets;
mod prototype;
mod rate;
mod ring_end;
mod rules;
mod schedule;
mod settings;
mod spare;
mod tcp;
#[cfg(test)]
mod test_frames;
mod way;
mod write_counts;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_core::{Clock, Nanos};
use brunt_result::link::LinkReport;

pub use bridge::{BridgeConfig, BridgeEnd, BridgeError, WireBridge};
pub use direction::Direction;
pub use distribution::{Distribution, DistributionError, DistributionTable, TableError};
pub use loss::{Bursts, CORRELATION_MAX, LossModel};
pub use packet::VNET_HEADER_BYTES;
pub use presets::{PRESETS, Preset, preset};
pub use rate::{BitRate, BitRateError};
pub use rules::{Delivery, FRAME_OVERHEAD_BYTES, PacketFate, Rules};
pub use settings::{JitterShape, Settings, SettingsError, SettingsErrorKind};

use control::{Control, Wanted};
use driver::Driver;
use end::EndPort;
pub use packet_watcher::PacketWatcher;
pub(crate) use partition::HostPair;
use prototype::Prototype;
pub use tcp::reset::ResetPorts;
pub(crate) use tcp::reset::ResetRule;
pub(crate) use way::Way;

use crate::host::Host;
use crate::netlink::{DeviceConfig, DeviceStats, Netlink};

/// A running link. Dropping the link ends its thread and removes both devices; veth pairs carried by the kernel
/// disappear with their hosts.
#[derive(Debug)]
pub struct Link {
    handle: LinkHandle,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// A handle to a link's settings and counters; clones refer to the same link.
#[derive(Clone, Debug)]
pub struct LinkHandle {
    name: Arc<str>,
    carrier: CarrierState,
    ways: Arc<[Way; 2]>,
    clock: Clock,
}

/// The mechanism that forwards the frames.
#[derive(Clone, Debug)]
enum CarrierState {
    /// Brunt's thread.
    Thread(Arc<Control>),
    /// The baseline for benchmarks of Brunt's emulator; it cannot be changed.
    Prototype(Arc<Control>),
    /// The kernel: a veth pair with netem on each end.
    Netem(Arc<[LinkDevice; 2]>),
    /// The kernel: a plain veth pair.
    Bare,
}

/// A device on a host.
#[derive(Clone, Debug)]
pub(crate) struct LinkDevice {
    pub host: Host,
    pub index: u32,
}

impl LinkDevice {
    pub(crate) fn stats(&self) -> io::Result<DeviceStats> {
        self.host.run(|| Netlink::open()?.stats(self.index))
    }

    /// Sets the largest IP packet, in bytes.
    pub(crate) fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        let device = DeviceConfig {
            mtu: Some(mtu),
            ..DeviceConfig::default()
        };
        self.host
            .run(|| Netlink::open()?.set_up(self.index, &device))
    }

    fn set_netem(&self, link: &str, settings: &Settings) -> Result<(), LinkError> {
        let link = link.to_string();
        let options = match netem::options(settings) {
            Ok(options) => options,
            Err(source) => {
                return Err(LinkError::NetemSettings {
                    link,
                    source: Box::new(source),
                });
            }
        };
        let set = self
            .host
            .run(|| Netlink::open()?.set_qdisc(self.index, "netem", &options));
        set.map_err(|source| match source.raw_os_error() {
            Some(libc::ENOENT | libc::EOPNOTSUPP) => LinkError::NoNetem { link, source },
            _ => LinkError::System { link, source },
        })
    }
}

/// Why a link cannot be set up or changed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A system call failed.
    #[error("cannot change link {link} ({source})")]
    System {
        /// The link.
        link: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel has no netem.
    #[error(
        "link {link}: this kernel lacks netem ({source}): run modprobe sch_netem as root, or omit \
         netem to use brunt's own links"
    )]
    NoNetem {
        /// The link.
        link: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// netem doesn't support these settings.
    #[error("link {link}: {source}")]
    NetemSettings {
        /// The link.
        link: String,
        /// The unsupported setting.
        source: Box<SettingsError>,
    },
    /// netem was asked to separate hosts or reset connections.
    #[error(
        "link {link} is carried by netem, which cannot impair individual hosts or connections; \
         omit netem"
    )]
    Netem {
        /// The link.
        link: String,
    },
    /// A link without emulation was asked to impair packets.
    #[error("link {link} is bare, without emulation; omit carrier")]
    Bare {
        /// The link.
        link: String,
    },
    /// The prototype was asked to change.
    #[error("link {link} is a prototype, which cannot be changed")]
    Prototype {
        /// The link.
        link: String,
    },
    /// The thread has ended or is stuck.
    #[error("the thread of link {link} does not respond; this run is invalid")]
    Silent {
        /// The link.
        link: String,
    },
}

/// The arguments of [`Link::start`].
pub(crate) struct LinkParts {
    pub name: String,
    pub taps: [OwnedFd; 2],
    pub ways: [Way; 2],
    pub settings: [Settings; 2],
    pub seed: u64,
    pub held_bytes_max: usize,
    pub clock: Clock,
}

impl Link {
    /// Lets the kernel forward the frames, either with netem or with nothing between the devices.
    pub(crate) fn in_kernel(
        name: &str,
        devices: [LinkDevice; 2],
        ways: [Way; 2],
        netem: Option<[Settings; 2]>,
        clock: Clock,
    ) -> Result<Link, LinkError> {
        let carrier = match netem {
            None => CarrierState::Bare,
            Some(settings) => {
                for (device, settings) in devices.iter().zip(&settings) {
                    device.set_netem(name, settings)?;
                }
                CarrierState::Netem(Arc::new(devices))
            }
        };
        for way in &ways {
            way.take(false).map_err(|source| LinkError::System {
                link: name.to_string(),
                source,
            })?;
        }
        Ok(Link {
            handle: LinkHandle {
                name: name.into(),
                carrier,
                ways: Arc::new(ways),
                clock,
            },
            thread: None,
        })
    }

    /// Starts the thread between two devices.
    pub(crate) fn start(parts: LinkParts) -> io::Result<Link> {
        let LinkParts {
            name,
            taps,
            ways,
            settings,
            seed,
            held_bytes_max,
            clock,
        } = parts;
        let control = Arc::new(Control::new(settings.clone())?);
        for (way, settings) in ways.iter().zip(&settings) {
            way.take(settings.is_clear())?;
        }
        let driver = Driver {
            ports: taps.map(|tap| EndPort::Tap(Arc::new(tap))),
            watcher: None,
            control: control.clone(),
            settings,
            seed,
            held_bytes_max,
            clock: clock.clone(),
        };
        let thread = std::thread::Builder::new()
            .name(format!("link {name}"))
            .spawn(|| driver.run())?;
        let carrier = CarrierState::Thread(control);
        Ok(Link {
            handle: LinkHandle {
                name: name.into(),
                carrier,
                ways: Arc::new(ways),
                clock,
            },
            thread: Some(thread),
        })
    }

    /// Starts the baseline emulator for benchmarks, between two packet sockets.
    pub(crate) fn start_prototype(
        name: &str,
        sockets: [OwnedFd; 2],
        ways: [Way; 2],
        delay: Duration,
        clock: Clock,
    ) -> io::Result<Link> {
        for way in &ways {
            way.take(false)?;
        }
        let control = Arc::new(Control::new([Settings::default(), Settings::default()])?);
        let prototype = Prototype {
            sockets,
            control: control.clone(),
            delay,
            clock: clock.clone(),
        };
        let thread = std::thread::Builder::new()
            .name(format!("link {name}"))
            .spawn(move || prototype.run())?;
        let carrier = CarrierState::Prototype(control);
        Ok(Link {
            handle: LinkHandle {
                name: name.into(),
                carrier,
                ways: Arc::new(ways),
                clock,
            },
            thread: Some(thread),
        })
    }

    /// A handle to change the link and read its counters.
    pub fn handle(&self) -> LinkHandle {
        self.handle.clone()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let CarrierState::Thread(control) | CarrierState::Prototype(control) =
            &self.handle.carrier
        {
            control.stop.store(true, Ordering::Release);
            control.wake();
        }
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the code that waited for its packets has already noticed.
            let _ = thread.join();
        }
    }
}

impl LinkHandle {
    /// The link's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Changes one direction while packets are in flight, and waits until the change takes effect; returns the time at
    /// which it did.
    ///
    /// # Errors
    /// The link's thread has ended, or netem doesn't support these settings.
    pub fn change(&self, direction: Direction, settings: Settings) -> Result<Nanos, LinkError> {
        self.apply(direction, |wanted| wanted.settings = settings)
    }

    /// Like [`LinkHandle::change`], and also restarts the packet numbers, so that a repeated run gets the same random
    /// decisions. Packets in flight arrive as before.
    ///
    /// # Errors
    /// [`LinkHandle::change`] fails.
    pub fn restart(
        &self,
        direction: Direction,
        settings: Settings,
        seed: u64,
    ) -> Result<Nanos, LinkError> {
        let seed = lane::direction_seed(seed, direction as u64);
        self.apply(direction, |wanted| {
            wanted.settings = settings;
            wanted.restart = Some(seed);
        })
    }

    /// Additionally separates these hosts in one direction; returns when this took effect.
    pub(crate) fn part(&self, direction: Direction, pair: HostPair) -> Result<Nanos, LinkError> {
        self.apply(direction, |wanted| wanted.parted.push(pair))
    }

    /// Stops separating these hosts.
    pub(crate) fn join(&self, direction: Direction, pair: HostPair) -> Result<Nanos, LinkError> {
        self.apply(direction, |wanted| {
            wanted.parted.retain(|parted| *parted != pair)
        })
    }

    /// Sends resets by this rule, or stops sending them; returns when this took effect. While a rule is set, both
    /// directions go through the thread.
    pub(crate) fn reset(&self, rule: Option<ResetRule>) -> Result<Nanos, LinkError> {
        self.apply(Direction::There, |wanted| wanted.reset = rule)?;
        self.apply(Direction::Back, |wanted| wanted.reset = rule)
    }

    fn apply(
        &self,
        direction: Direction,
        change: impl FnOnce(&mut Wanted),
    ) -> Result<Nanos, LinkError> {
        let link = self.name.to_string();
        let control = match &self.carrier {
            CarrierState::Thread(control) => control,
            CarrierState::Netem(devices) => {
                let mut wanted = Wanted::default();
                change(&mut wanted);
                if !wanted.parted.is_empty() || wanted.reset.is_some() {
                    return Err(LinkError::Netem { link });
                }
                devices[direction as usize].set_netem(&link, &wanted.settings)?;
                return Ok(self.clock.now());
            }
            CarrierState::Bare => {
                let mut wanted = Wanted::default();
                change(&mut wanted);
                return match wanted.is_clear() {
                    true => Ok(self.clock.now()),
                    false => Err(LinkError::Bare { link }),
                };
            }
            CarrierState::Prototype(_) => return Err(LinkError::Prototype { link }),
        };
        let way = &self.ways[direction as usize];
        let Some(changed) = control.change(direction as usize, &self.clock, change) else {
            return Err(LinkError::Silent { link });
        };
        // The thread is prepared first, regardless of the path that packets take next.
        match way
            .take(changed.is_clear)
            .map_err(|source| LinkError::System { link, source })?
        {
            true => Ok(self.clock.now()),
            false => Ok(changed.at),
        }
    }

    /// Whether [`LinkHandle::report`] counts what happens to packets.
    pub(crate) fn counts(&self) -> bool {
        matches!(self.carrier, CarrierState::Thread(_))
    }

    /// Whether the kernel forwards the packets, without any thread of Brunt's.
    pub(crate) fn is_in_kernel(&self) -> bool {
        matches!(self.carrier, CarrierState::Netem(_) | CarrierState::Bare)
    }

    /// The path of a direction.
    pub(crate) fn way(&self, direction: Direction) -> &Way {
        &self.ways[direction as usize]
    }

    /// The counters of the thread so far. Links carried by the kernel have none.
    pub fn report(&self) -> LinkReport {
        let (CarrierState::Thread(control) | CarrierState::Prototype(control)) = &self.carrier
        else {
            return LinkReport::default();
        };
        control.report()
    }
}
