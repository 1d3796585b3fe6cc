//! The devices of a link, created on its hosts before its thread starts, and the routes that use them.
//!
//! Called by [`crate::Lab::add_link`]. The rule: every device is removed by its owner or disappears with its host.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

use brunt_core::Clock;

use crate::error::LabError;
use crate::host::Host;
use crate::link::{Link, LinkDevice, LinkParts, Settings, Way};
use crate::netlink::{DeviceConfig, DeviceStats, Netlink};
use crate::sys;

/// Maximum packets that wait in a host's device for the link's thread. This is far more than a socket sends at once;
/// overflows are counted.
const DEVICE_QUEUE_PACKETS: u32 = 16_384;
/// Maximum bytes in flight in one direction: one second at 4 Gb/s.
const HELD_BYTES_MAX: usize = 512 << 20;

/// Buffer size of the prototype's sockets, which makes the prototype slow rather than lossy.
const PROTOTYPE_BUFFER_BYTES: i32 = 256 << 20;

/// The configuration of a link.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Its name.
    pub name: String,
    /// The two hosts that the link connects.
    pub between: [String; 2],
    /// From the first host to the second, and back.
    pub settings: [Settings; 2],
    /// Maximum size of an IP packet in bytes: 1500, or 9000 for jumbo frames.
    pub mtu: u32,
    /// Seed of the random numbers.
    pub seed: u64,
    /// The mechanism that forwards the packets.
    pub carrier: Carrier,
}

/// The mechanism that forwards a link's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// Brunt, which splits trains of segments where their fates differ.
    #[default]
    Brunt,
    /// Brunt, but hosts split segments themselves, so that each packet arrives separately: no segmentation offload.
    BruntWireSize,
    /// The kernel's netem on a veth pair.
    Netem,
    /// A plain veth pair; its settings must have no impairments.
    Bare,
    /// The simplest possible emulator, as a baseline for measurements: all it can do is delay packets, equally in both
    /// directions. Not available to experiments.
    Prototype {
        /// Whether hosts split segments themselves.
        wire_size: bool,
    },
}

/// Index of the pair of devices used by packets without impairments.
pub(crate) const STRAIGHT: usize = 1;

/// Two connected devices.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) devices: [LinkDevice; 2],
    /// The devices' counters when the link was created.
    start: [DeviceStats; 2],
}

impl Ends {
    fn new(devices: [LinkDevice; 2]) -> io::Result<Ends> {
        let start = [devices[0].stats()?, devices[1].stats()?];
        Ok(Ends { devices, start })
    }

    /// How much the counters have changed since then.
    pub(crate) fn stats(&self) -> io::Result<[DeviceStats; 2]> {
        let mut since = [DeviceStats::default(); 2];
        for ((since, device), start) in since.iter_mut().zip(&self.devices).zip(&self.start) {
            let now = device.stats()?;
            *since = DeviceStats {
                rx_dropped: now.rx_dropped - start.rx_dropped,
                tx_dropped: now.tx_dropped - start.tx_dropped,
                tx_frames: now.tx_frames - start.tx_frames,
                tx_bytes: now.tx_bytes - start.tx_bytes,
            };
        }
        Ok(since)
    }
}

/// The devices of one link.
pub(crate) struct Wires {
    hosts: [Host; 2],
    /// The descriptors that the link's thread reads and writes; empty if the kernel forwards the link's packets.
    taps: Vec<OwnedFd>,
    /// The link's own devices, and those of the parallel veth pair.
    pairs: Vec<Ends>,
}

impl Wires {
    /// Creates the devices of a link, the `number`-th of its lab, brings them up and makes them known to each other.
    ///
    /// # Errors
    /// A system call fails.
    pub(crate) fn lay(
        config: &LinkConfig,
        hosts: [Host; 2],
        number: u8,
    ) -> Result<Wires, LabError> {
        let on = |side: usize| {
            LabError::system(format!(
                "create link {} on host {}",
                config.name,
                hosts[side].name()
            ))
        };
        let mut taps = Vec::new();
        match config.carrier {
            Carrier::Prototype { wire_size } => {
                for (side, host) in hosts.iter().enumerate() {
                    taps.push(
                        open_prototype(host, number, config.mtu, wire_size).map_err(on(side))?,
                    );
                }
            }
            Carrier::Brunt | Carrier::BruntWireSize => {
                for (side, host) in hosts.iter().enumerate() {
                    taps.push(host.run(|| open_tap(number, config)).map_err(on(side))?);
                }
            }
            Carrier::Netem | Carrier::Bare => {
                add_veth(&hosts, &device_name(number)).map_err(on(0))?
            }
        }
        let mut pairs = vec![join(config, &hosts, &device_name(number), [number, 0])?];
        if config.carrier == Carrier::Brunt {
            let name = format!("straight{number}");
            add_veth(&hosts, &name).map_err(on(0))?;
            pairs.push(join(config, &hosts, &name, [number, 1])?);
        }
        Ok(Wires { hosts, taps, pairs })
    }

    /// Starts the mechanism that forwards frames between the devices.
    ///
    /// # Errors
    /// A system call fails, or netem doesn't support these settings.
    pub(crate) fn start(
        self,
        config: &LinkConfig,
        clock: Clock,
    ) -> Result<(Link, Vec<Ends>), LabError> {
        let Wires { hosts, taps, pairs } = self;
        let way = |side: usize| {
            let straight = pairs.get(STRAIGHT).map(|pair| pair.devices[side].index);
            let device = pairs[0].devices[side].index;
            Way::new(
                hosts[side].clone(),
                hosts[1 - side].address(),
                device,
                straight,
            )
        };
        let ways = [way(0), way(1)];
        let devices = pairs[0].devices.clone();
        let name = &config.name;
        let settings = config.settings.clone();
        let failed = LabError::system(format!("start link {name}"));
        let link = match config.carrier {
            Carrier::Netem => Link::in_kernel(name, devices, ways, Some(settings), clock)?,
            Carrier::Bare => Link::in_kernel(name, devices, ways, None, clock)?,
            Carrier::Prototype { .. } => {
                let sockets = taps.try_into().expect("a link has two ends");
                Link::start_prototype(name, sockets, ways, settings[0].delay.0, clock)
                    .map_err(failed)?
            }
            Carrier::Brunt | Carrier::BruntWireSize => Link::start(LinkParts {
                name: name.clone(),
                taps: taps.try_into().expect("a link has two ends"),
                ways,
                settings,
                seed: config.seed,
                held_bytes_max: HELD_BYTES_MAX,
                clock,
            })
            .map_err(failed)?,
        };
        Ok((link, pairs))
    }
}

/// Creates a veth pair from the first host to the second.
fn add_veth(hosts: &[Host; 2], name: &str) -> io::Result<()> {
    hosts[0].run(|| Netlink::open()?.add_veth(name, hosts[1].network().as_fd(), name))
}

/// Sets up both ends of a pair of devices; `place` (link, pair) makes their Ethernet addresses unique.
fn join(
    config: &LinkConfig,
    hosts: &[Host; 2],
    name: &str,
    [link, pair]: [u8; 2],
) -> Result<Ends, LabError> {
    let mut devices = Vec::new();
    for side in 0..2 {
        let place = [link, pair, side as u8];
        let index = connect(&hosts[side], &hosts[1 - side], name, place, config.mtu).map_err(
            LabError::system(format!(
                "create link {} on host {}",
                config.name,
                hosts[side].name()
            )),
        )?;
        devices.push(LinkDevice {
            host: hosts[side].clone(),
            index,
        });
    }
    let devices: [LinkDevice; 2] = devices.try_into().expect("a link has two ends");
    Ends::new(devices).map_err(LabError::system("read a device's counters"))
}

fn device_name(number: u8) -> String {
    format!("link{number}")
}

/// Opens a TAP device in the calling thread's namespace.
fn open_tap(number: u8, config: &LinkConfig) -> io::Result<OwnedFd> {
    let tap = sys::open_tap(&device_name(number))?;
    let cut_here = config.carrier == Carrier::Brunt;
    let offload = libc::TUN_F_CSUM
        | if cut_here {
            libc::TUN_F_TSO4 | libc::TUN_F_TSO_ECN
        } else {
            0
        };
    sys::set_tap_offload(tap.as_fd(), offload)?;
    Ok(tap)
}

/// Creates a veth pair from a host to a separate namespace, and a packet socket there, which keeps both alive.
fn open_prototype(host: &Host, number: u8, mtu: u32, wire_size: bool) -> io::Result<OwnedFd> {
    let name = device_name(number);
    let middle = Host::new("the middle", Ipv4Addr::new(10, 77, 255, number))?;
    host.run(|| {
        Netlink::open()?.add_veth(&name, middle.network().as_fd(), &name)?;
        sys::set_segmentation_offload(&name, !wire_size)
    })?;
    middle.run(|| {
        let mut netlink = Netlink::open()?;
        let index = netlink.index_of(&name)?;
        netlink.set_up(
            index,
            &DeviceConfig {
                mtu: Some(mtu),
                ..DeviceConfig::default()
            },
        )?;
        sys::open_packet_socket(index, PROTOTYPE_BUFFER_BYTES)
    })
}

/// Sets up the device of one end: brings it up and adds the neighbour. `place` (link, pair, side) makes the device's
/// Ethernet address unique in the lab.
fn connect(host: &Host, other: &Host, name: &str, place: [u8; 3], mtu: u32) -> io::Result<u32> {
    // A locally administered address.
    let address = |[link, pair, side]: [u8; 3]| [0x02, 0x42, 0x52, link, pair, side];
    let [link, pair, side] = place;
    host.run(|| {
        let mut netlink = Netlink::open()?;
        let index = netlink.index_of(name)?;
        let device = DeviceConfig {
            mtu: Some(mtu),
            queue_packets: Some(DEVICE_QUEUE_PACKETS),
            address: Some(address(place)),
        };
        netlink.set_up(index, &device)?;
        netlink.add_neighbour(index, other.address(), address([link, pair, 1 - side]))?;
        Ok(index)
    })
}
