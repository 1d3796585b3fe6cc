//! A lab put together: hosts by name, links between them.
//!
//! Built inside a [`crate::stage`]. The rule: dropping a [`Lab`] takes its links away; its hosts go
//! with the last who uses them.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

use brunt_core::Clock;
use brunt_result::link::LinkReport;

use crate::faults::{Leaving, LinkChange, Partition, TcpReset, longest};
use crate::host::Host;
use crate::link::{Device, Direction, Link, LinkHandle, LinkParts, ResetPorts, Settings, Way};
use crate::netlink::{DeviceConfig, DeviceStats, Netlink};
use crate::routes::{Edge, first_steps};
use crate::sys;

/// Most hosts of a lab; their addresses are 10.77.0.1 and up.
pub const HOSTS_MAX: usize = 250;
/// Most links of a lab: each has a thread.
pub const LINKS_MAX: usize = 64;
/// Packets that wait in a host's device for the link's thread. Far more than a socket sends at once,
/// and counted when it was not enough.
const DEVICE_QUEUE_PACKETS: u32 = 16_384;
/// Most bytes under way in one direction: a second of 4 Gb/s.
const HELD_BYTES_MAX: usize = 512 << 20;

/// What the prototype's sockets hold, so that it is slow rather than lossy.
const PROTOTYPE_BUFFER_BYTES: i32 = 256 << 20;

/// Why a lab does not stand.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The machine refused.
    #[error("cannot {what} ({source}){}", advice(.source))]
    System {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The description cannot be built.
    #[error("{0}")]
    Description(String),
}

fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
            "; is there a /dev/net/tun? modprobe tun makes it, a container needs --device /dev/net/tun"
        }
        Some(libc::EPERM | libc::EACCES) => "; /dev/net/tun has to be readable and writable for you",
        _ => "",
    }
}

/// A link as an experiment describes it.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Its name.
    pub name: String,
    /// The hosts at its ends.
    pub between: [String; 2],
    /// From the first to the second, and back.
    pub settings: [Settings; 2],
    /// Largest IP packet in bytes: 1500, or 9000 for jumbo frames.
    pub mtu: u32,
    /// Chance follows from it.
    pub seed: u64,
    /// Who carries the packets.
    pub carrier: Carrier,
}

/// Who carries a link's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// Brunt, which cuts trains of segments where their fates differ.
    #[default]
    Brunt,
    /// Brunt, and hosts cut segments themselves, so that each packet comes alone: no segmentation offload.
    BruntWireSize,
    /// The kernel's netem on a veth pair.
    Netem,
    /// A veth pair and nothing else; its settings have to be clear.
    Bare,
    /// The plainest emulator that one could write, for measurements beside it: it can delay, both ways
    /// alike, and nothing else. No experiment uses it.
    Prototype {
        /// Whether hosts cut segments themselves.
        wire_size: bool,
    },
}

/// Hosts and links that stand.
#[derive(Debug)]
pub struct Lab {
    hosts: BTreeMap<String, Host>,
    links: Vec<Placed>,
    /// For each host, in the order of their names, its link and direction to each other, since [`Lab::route`].
    first_steps: Vec<BTreeMap<usize, (usize, usize)>>,
    clock: Clock,
}

/// A link and the devices at its ends.
#[derive(Debug)]
struct Placed {
    link: Link,
    /// The hosts at its ends.
    between: [String; 2],
    /// The link's own devices, and those of the veth pair beside it.
    pairs: Vec<Ends>,
    settings: [Settings; 2],
}

impl Placed {
    /// The hosts at its ends, in their order.
    fn hosts(&self) -> [Host; 2] {
        self.pairs[0].devices.clone().map(|device| device.host)
    }

    /// The direction of what leaves this host.
    fn direction_from(&self, host: &str) -> Result<Direction, LabError> {
        let [first, second] = &self.between;
        match host {
            host if host == first => Ok(Direction::There),
            host if host == second => Ok(Direction::Back),
            host => {
                let name = self.link.handle().name().to_string();
                Err(LabError::Description(format!("link {name} joins {first} and {second}, not {host}")))
            }
        }
    }
}

/// Which of a link's pairs of devices packets take that nothing is to be done to.
const STRAIGHT: usize = 1;

/// Two devices that lead to each other.
#[derive(Debug)]
struct Ends {
    devices: [Device; 2],
    /// What they had counted when the link was made.
    start: [DeviceStats; 2],
}

impl Ends {
    fn new(devices: [Device; 2]) -> io::Result<Ends> {
        let start = [devices[0].stats()?, devices[1].stats()?];
        Ok(Ends { devices, start })
    }

    /// What they counted since.
    fn stats(&self) -> io::Result<[DeviceStats; 2]> {
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

impl Lab {
    /// Hosts of these names, without links.
    ///
    /// # Errors
    /// A name twice, too many, or the machine refuses.
    pub fn new<'a>(hosts: impl IntoIterator<Item = &'a str>, clock: Clock) -> Result<Lab, LabError> {
        let mut made = BTreeMap::new();
        for (index, name) in hosts.into_iter().enumerate() {
            if index >= HOSTS_MAX {
                return Err(LabError::Description(format!("more than {HOSTS_MAX} hosts")));
            }
            let address = Ipv4Addr::new(10, 77, 0, index as u8 + 1);
            let host =
                Host::new(name, address).map_err(|source| failed(format!("make host {name}"), source))?;
            if made.insert(name.to_string(), host).is_some() {
                return Err(LabError::Description(format!("host {name} is there twice")));
            }
        }
        Ok(Lab { hosts: made, links: Vec::new(), first_steps: Vec::new(), clock })
    }

    /// The host of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn host(&self, name: &str) -> Result<&Host, LabError> {
        self.hosts.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.hosts.keys().map(String::as_str).collect();
            LabError::Description(format!("there is no host {name}; there are {}", known.join(", ")))
        })
    }

    /// Joins two hosts.
    ///
    /// # Errors
    /// A host that is not there or joined already, or the machine refuses.
    pub fn add_link(&mut self, config: &LinkConfig) -> Result<LinkHandle, LabError> {
        let [first, second] = &config.between;
        let hosts = [self.host(first)?.clone(), self.host(second)?.clone()];
        if first == second {
            return Err(LabError::Description(format!("link {} joins {first} to itself", config.name)));
        }
        if self.links.len() >= LINKS_MAX {
            return Err(LabError::Description(format!("more than {LINKS_MAX} links")));
        }
        if config.carrier == Carrier::Bare && config.settings.iter().any(|settings| !settings.is_clear()) {
            return Err(LabError::Description(format!(
                "link {} is a bare wire, which does nothing",
                config.name
            )));
        }
        let same = |placed: &&Placed| placed.between.contains(first) && placed.between.contains(second);
        if let Some(other) = self.links.iter().find(same) {
            let (name, other) = (&config.name, other.link.handle());
            let what = format!("link {name} joins {first} and {second}, as {} does already", other.name());
            return Err(LabError::Description(what));
        }
        let number = self.links.len() as u8;
        let on = |side: usize, source| {
            failed(format!("make link {} on host {}", config.name, hosts[side].name()), source)
        };
        let mut taps = Vec::new();
        match config.carrier {
            Carrier::Prototype { wire_size } => {
                for (side, host) in hosts.iter().enumerate() {
                    let socket = open_prototype(host, number, config.mtu, wire_size);
                    taps.push(socket.map_err(|source| on(side, source))?);
                }
            }
            Carrier::Brunt | Carrier::BruntWireSize => {
                for (side, host) in hosts.iter().enumerate() {
                    taps.push(host.run(|| open_tap(number, config)).map_err(|source| on(side, source))?);
                }
            }
            Carrier::Netem | Carrier::Bare => hosts[0]
                .run(|| {
                    let name = device_name(number);
                    Netlink::open()?.add_veth(&name, hosts[1].namespace().as_fd(), &name)
                })
                .map_err(|source| on(0, source))?,
        }
        let connected = |name: &str, pair: u8| {
            let mut devices = Vec::new();
            for side in 0..2 {
                let index =
                    connect(&hosts[side], &hosts[1 - side], name, [number, pair, side as u8], config.mtu)
                        .map_err(|source| on(side, source))?;
                devices.push(Device { host: hosts[side].clone(), index });
            }
            let devices: [Device; 2] = devices.try_into().expect("two ends");
            Ends::new(devices).map_err(|source| failed("read a device's counts".into(), source))
        };
        let mut pairs = vec![connected(&device_name(number), 0)?];
        if config.carrier == Carrier::Brunt {
            let name = format!("straight{number}");
            let made = hosts[0].run(|| Netlink::open()?.add_veth(&name, hosts[1].namespace().as_fd(), &name));
            made.map_err(|source| on(0, source))?;
            pairs.push(connected(&name, 1)?);
        }
        let way = |side: usize| {
            let straight = pairs.get(STRAIGHT).map(|pair| pair.devices[side].index);
            let device = pairs[0].devices[side].index;
            Way::new(hosts[side].clone(), hosts[1 - side].address(), device, straight)
        };
        let ways = [way(0), way(1)];
        let devices = pairs[0].devices.clone();
        let clock = self.clock.clone();
        let name = &config.name;
        let settings = config.settings.clone();
        let started = match config.carrier {
            Carrier::Netem => Link::in_kernel(name, devices, ways, Some(settings), clock),
            Carrier::Bare => Link::in_kernel(name, devices, ways, None, clock),
            Carrier::Prototype { .. } => {
                let sockets = taps.try_into().expect("two ends");
                Link::start_prototype(name, sockets, ways, settings[0].delay.0, clock)
            }
            Carrier::Brunt | Carrier::BruntWireSize => Link::start(LinkParts {
                name: name.clone(),
                taps: taps.try_into().expect("two ends"),
                ways,
                settings,
                seed: config.seed,
                held_bytes_max: HELD_BYTES_MAX,
                clock,
            }),
        };
        let link = started.map_err(|source| failed(format!("start link {name}"), source))?;
        let handle = link.handle();
        self.links.push(Placed {
            link,
            between: config.between.clone(),
            pairs,
            settings: config.settings.clone(),
        });
        Ok(handle)
    }

    /// Lets hosts without a link between them reach each other through others, which forward: over the
    /// fewest links, and of those ways over the quickest as links are now. To be called when all stand.
    ///
    /// # Errors
    /// The machine refuses.
    pub fn route(&mut self) -> Result<(), LabError> {
        let hosts: Vec<&Host> = self.hosts.values().collect();
        let number =
            |name: &String| hosts.iter().position(|host| host.name() == name).expect("links join hosts");
        let edge = |placed: &Placed| Edge {
            between: [number(&placed.between[0]), number(&placed.between[1])],
            delay: [placed.settings[0].delay.0, placed.settings[1].delay.0],
        };
        let edges: Vec<Edge> = self.links.iter().map(edge).collect();
        let mut beyond: BTreeMap<(usize, usize), Vec<Ipv4Addr>> = BTreeMap::new();
        let steps = first_steps(hosts.len(), &edges);
        for steps in &steps {
            for (&to, &(link, direction)) in steps {
                let neighbour = edges[link].between[1 - direction];
                if neighbour != to {
                    beyond.entry((link, direction)).or_default().push(hosts[to].address());
                    let forwards = hosts[neighbour].run(sys::forward_packets);
                    forwards.map_err(|source| {
                        failed(format!("let host {} forward", hosts[neighbour].name()), source)
                    })?;
                }
            }
        }
        for ((link, direction), to) in beyond {
            let handle = self.links[link].link.handle();
            let direction = if direction == 0 { Direction::There } else { Direction::Back };
            let led = handle.way(direction).lead_to(to);
            led.map_err(|source| failed(format!("lay routes over link {}", handle.name()), source))?;
        }
        self.first_steps = steps;
        Ok(())
    }

    /// The link of this name.
    pub fn link(&self, name: &str) -> Option<LinkHandle> {
        self.links.iter().map(|placed| placed.link.handle()).find(|handle| handle.name() == name)
    }

    /// All links.
    pub fn links(&self) -> impl Iterator<Item = LinkHandle> {
        self.links.iter().map(|placed| placed.link.handle())
    }

    /// What each link did, the losses of its devices among what was not meant.
    ///
    /// # Errors
    /// A device's counts cannot be read.
    pub fn reports(&self) -> Result<Vec<(String, LinkReport)>, LabError> {
        let report = |placed: &Placed| -> io::Result<_> {
            let handle = placed.link.handle();
            let mut report = handle.report();
            for (number, pair) in placed.pairs.iter().enumerate() {
                let [first, second] = pair.stats()?;
                report.there.unmeant_device += first.tx_dropped + second.rx_dropped;
                report.back.unmeant_device += second.tx_dropped + first.rx_dropped;
                if number == STRAIGHT {
                    (report.there.straight_frames, report.there.straight_bytes) =
                        (first.tx_frames, first.tx_bytes);
                    (report.back.straight_frames, report.back.straight_bytes) =
                        (second.tx_frames, second.tx_bytes);
                }
            }
            Ok((handle.name().to_string(), report))
        };
        let reports: io::Result<Vec<_>> = self.links.iter().map(report).collect();
        reports.map_err(|source| failed("read the counts of a link's devices".into(), source))
    }

    /// Both directions' settings from now on, and what a fault returns to.
    ///
    /// # Errors
    /// As for [`LinkHandle::change`].
    pub fn change(&mut self, name: &str, settings: [Settings; 2]) -> Result<(), LabError> {
        let placed = self.links.iter_mut().find(|placed| placed.link.handle().name() == name);
        let placed = placed.ok_or_else(|| no_link(name))?;
        for (direction, settings) in [Direction::There, Direction::Back].into_iter().zip(&settings) {
            let changed = placed.link.handle().change(direction, settings.clone());
            changed.map_err(|source| failed(format!("change link {name}"), source))?;
        }
        placed.settings = settings;
        Ok(())
    }

    /// As [`Lab::change`], and lets chance begin again from `seed`: for a new run.
    ///
    /// # Errors
    /// As for [`LinkHandle::change`].
    pub fn restart(&mut self, name: &str, settings: [Settings; 2], seed: u64) -> Result<(), LabError> {
        let placed = self.links.iter_mut().find(|placed| placed.link.handle().name() == name);
        let placed = placed.ok_or_else(|| no_link(name))?;
        for (direction, settings) in [Direction::There, Direction::Back].into_iter().zip(&settings) {
            let changed = placed.link.handle().restart(direction, settings.clone(), seed);
            changed.map_err(|source| failed(format!("change link {name}"), source))?;
        }
        placed.settings = settings;
        Ok(())
    }

    /// The settings that a link has now, there and back.
    ///
    /// # Errors
    /// There is no such link.
    pub fn settings(&self, name: &str) -> Result<[Settings; 2], LabError> {
        let placed = self.links.iter().find(|placed| placed.link.handle().name() == name);
        placed.map(|placed| placed.settings.clone()).ok_or_else(|| no_link(name))
    }

    /// A fault of this link: other settings for a while.
    ///
    /// # Errors
    /// There is no such link.
    pub fn link_fault(&self, name: &str, during: [Settings; 2]) -> Result<LinkChange, LabError> {
        let placed = self.placed(name)?;
        Ok(LinkChange::new(placed.link.handle(), placed.hosts(), placed.settings.clone(), during))
    }

    /// A fault of one direction of this link: other settings for a while for what leaves the host `from`. The other
    /// direction has to be seen to carry as before.
    ///
    /// ```no_run
    /// # use brunt_lab::{Lab, LabError, LinkChange};
    /// # fn fault(lab: &Lab) -> Result<LinkChange, LabError> {
    /// // Nothing from the server arrives; what the client sends still does.
    /// let mut during = lab.settings_from("wan", "server")?;
    /// during.loss = 1.0;
    /// lab.one_way_fault("wan", "server", during)
    /// # }
    /// ```
    ///
    /// # Errors
    /// There is no such link, or the host is not at one of its ends.
    pub fn one_way_fault(&self, name: &str, from: &str, during: Settings) -> Result<LinkChange, LabError> {
        let placed = self.placed(name)?;
        let direction = placed.direction_from(from)?;
        let handle = placed.link.handle();
        Ok(LinkChange::one_way(handle, placed.hosts(), placed.settings.clone(), direction, during))
    }

    /// A fault that keeps two hosts apart, over all paths between them and both ways; both reach all others still.
    ///
    /// # Errors
    /// There is no such host, no path between them, or a first link of it is not Brunt's own.
    pub fn partition(&self, first: &str, second: &str) -> Result<Partition, LabError> {
        let hosts = [self.host(first)?.clone(), self.host(second)?.clone()];
        let leaving = [self.leaving(first, second)?, self.leaving(second, first)?];
        Ok(Partition::new(hosts, leaving))
    }

    /// A fault that resets TCP connections between two hosts, in the name of `from`, at `to`: those that there are, as
    /// soon as they send something, and while it lasts those that are made.
    ///
    /// # Errors
    /// There is no such host, no path between them, or its first link is not Brunt's own.
    pub fn tcp_reset(&self, from: &str, to: &str, ports: ResetPorts) -> Result<TcpReset, LabError> {
        let hosts = [self.host(from)?.clone(), self.host(to)?.clone()];
        let Leaving { link, direction, longest } = self.leaving(from, to)?;
        Ok(TcpReset::new(link, direction, hosts, ports, longest))
    }

    /// The link by which packets leave a host for another.
    fn leaving(&self, from: &str, to: &str) -> Result<Leaving, LabError> {
        let path = self.path(from, to)?;
        let longest = path.iter().map(|(link, way)| longest(&self.links[*link].settings[*way])).sum();
        let (link, way) = path[0];
        let placed = &self.links[link];
        let (link, direction) = (placed.link.handle(), placed.direction_from(from)?);
        debug_assert_eq!(direction as usize, way, "a path begins at its host");
        match link.counts() {
            true => Ok(Leaving { link, direction, longest }),
            false => Err(LabError::Description(format!(
                "link {} from {from} to {to} is the kernel's, which looks at no addresses; leave carrier out",
                link.name()
            ))),
        }
    }

    /// The links and directions that packets take from one host to another; at least one.
    fn path(&self, from: &str, to: &str) -> Result<Vec<(usize, usize)>, LabError> {
        let number = |name: &str| self.hosts.keys().position(|host| host == name);
        let none = || LabError::Description(format!("no links lead from {from} to {to}"));
        let (Some(mut here), Some(there)) = (number(from), number(to)) else { return Err(none()) };
        let joins =
            |placed: &Placed| from != to && placed.between.iter().all(|host| host == from || host == to);
        if let Some(link) = self.links.iter().position(joins) {
            return Ok(vec![(link, self.links[link].direction_from(from)? as usize)]);
        }
        let mut path = Vec::new();
        while here != there {
            let (link, way) =
                *self.first_steps.get(here).and_then(|steps| steps.get(&there)).ok_or_else(none)?;
            path.push((link, way));
            here = number(&self.links[link].between[1 - way]).ok_or_else(none)?;
        }
        if path.is_empty() { Err(none()) } else { Ok(path) }
    }

    /// The settings that a link has now for what leaves this host.
    ///
    /// # Errors
    /// There is no such link, or the host is not at one of its ends.
    pub fn settings_from(&self, name: &str, from: &str) -> Result<Settings, LabError> {
        let placed = self.placed(name)?;
        Ok(placed.settings[placed.direction_from(from)? as usize].clone())
    }

    fn placed(&self, name: &str) -> Result<&Placed, LabError> {
        let placed = self.links.iter().find(|placed| placed.link.handle().name() == name);
        placed.ok_or_else(|| no_link(name))
    }
}

fn no_link(name: &str) -> LabError {
    LabError::Description(format!("there is no link {name}"))
}

fn failed(what: String, source: io::Error) -> LabError {
    LabError::System { what, source }
}

fn device_name(number: u8) -> String {
    format!("link{number}")
}

/// A TAP device in the namespace of the calling thread.
fn open_tap(number: u8, config: &LinkConfig) -> io::Result<OwnedFd> {
    let tap = sys::open_tap(&device_name(number))?;
    let cut_here = config.carrier == Carrier::Brunt;
    let offload = libc::TUN_F_CSUM | if cut_here { libc::TUN_F_TSO4 | libc::TUN_F_TSO_ECN } else { 0 };
    sys::set_tap_offload(tap.as_fd(), offload)?;
    Ok(tap)
}

/// A veth pair from a host to a namespace of its own, and a packet socket there, which keeps both.
fn open_prototype(host: &Host, number: u8, mtu: u32, wire_size: bool) -> io::Result<OwnedFd> {
    let name = device_name(number);
    let middle = Host::new("the middle", Ipv4Addr::new(10, 77, 255, number))?;
    host.run(|| {
        Netlink::open()?.add_veth(&name, middle.namespace().as_fd(), &name)?;
        sys::set_segmentation_offload(&name, !wire_size)
    })?;
    middle.run(|| {
        let mut netlink = Netlink::open()?;
        let index = netlink.index_of(&name)?;
        netlink.set_up(index, &DeviceConfig { mtu: Some(mtu), ..DeviceConfig::default() })?;
        sys::open_packet_socket(index, PROTOTYPE_BUFFER_BYTES)
    })
}

/// Makes the device of one end ready: up, and the neighbour known. `place` (link, pair, side) makes its
/// Ethernet address unique in the lab.
fn connect(host: &Host, other: &Host, name: &str, place: [u8; 3], mtu: u32) -> io::Result<u32> {
    // Locally administered.
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
