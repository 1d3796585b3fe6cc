//! A complete lab: named hosts and the links between them.
//!
//! Built inside a [`crate::stage`]. The rule: dropping a [`Lab`] removes its links; a host disappears with its last
//! user.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;

use brunt_core::Clock;
use brunt_result::link::LinkReport;

use crate::error::LabError;
use crate::faults::{Course, Leaving, LinkChange, Partition, TcpReset, longest};
use crate::host::Host;
use crate::link::{Direction, Link, LinkError, LinkHandle, ResetPorts, Settings};
use crate::meter::Meter;
use crate::names;
use crate::routes::{Edge, first_steps};
use crate::sys;
use crate::wiring::{Carrier, Ends, LinkConfig, STRAIGHT, Wires};

/// Maximum number of hosts in a lab; their addresses start at 10.77.0.1.
pub const HOSTS_MAX: usize = 250;
/// Maximum number of links in a lab: each has a thread.
pub const LINKS_MAX: usize = 64;
/// Running hosts and links.
#[derive(Debug)]
pub struct Lab {
    hosts: BTreeMap<String, Host>,
    links: Vec<BuiltLink>,
    /// For each host, in the order of their names, the first link and its direction on the path to each other host; set
    /// by [`Lab::route`].
    first_steps: Vec<BTreeMap<usize, (usize, usize)>>,
    clock: Clock,
}

/// A link and the devices at its ends.
#[derive(Debug)]
struct BuiltLink {
    link: Link,
    /// The two hosts that the link connects.
    between: [String; 2],
    /// The link's own devices, and those of the parallel veth pair.
    pairs: Vec<Ends>,
    settings: [Settings; 2],
    mtu: u32,
}

impl BuiltLink {
    /// The hosts at the link's ends, in order.
    fn hosts(&self) -> [Host; 2] {
        self.pairs[0].devices.clone().map(|device| device.host)
    }

    /// The direction of packets that leave this host.
    fn direction_from(&self, host: &str) -> Result<Direction, LabError> {
        let [first, second] = &self.between;
        match host {
            host if host == first => Ok(Direction::There),
            host if host == second => Ok(Direction::Back),
            host => Err(LabError::NotAnEnd {
                link: self.link.handle().name().to_string(),
                between: Box::new(self.between.clone()),
                host: host.to_string(),
            }),
        }
    }
}

impl Lab {
    /// Creates hosts with these names, without links.
    ///
    /// # Errors
    /// A name occurs twice, there are too many hosts, or a system call fails.
    pub fn new<'a>(
        hosts: impl IntoIterator<Item = &'a str>,
        clock: Clock,
    ) -> Result<Lab, LabError> {
        let mut made = BTreeMap::new();
        for (index, name) in hosts.into_iter().enumerate() {
            if index >= HOSTS_MAX {
                return Err(LabError::TooMany {
                    what: "hosts",
                    max: HOSTS_MAX,
                });
            }
            let address = Ipv4Addr::new(10, 77, 0, index as u8 + 1);
            let host = Host::new(name, address)
                .map_err(LabError::system(format!("create host {name}")))?;
            if made.insert(name.to_string(), host).is_some() {
                return Err(LabError::HostTwice {
                    name: name.to_string(),
                });
            }
        }
        Ok(Lab {
            hosts: made,
            links: Vec::new(),
            first_steps: Vec::new(),
            clock,
        })
    }

    /// Makes TCP between hosts use this congestion control, for every socket; call it before adding links. Without it,
    /// connections use the kernel's default.
    ///
    /// # Panics
    /// Panics if there are already links, or if the congestion control was set before.
    pub fn use_congestion(&mut self, algorithm: &str) {
        assert!(
            self.links.is_empty(),
            "the routes use only links of the lab"
        );
        self.hosts
            .values()
            .for_each(|host| host.use_congestion(algorithm));
    }

    /// Makes host names known to programs that run on the hosts, with an /etc/hosts that only they see.
    ///
    /// # Errors
    /// /etc/hosts is missing, or a system call fails.
    pub fn publish_names(&self) -> io::Result<()> {
        names::publish(self.hosts.values())
    }

    /// The host with this name.
    ///
    /// # Errors
    /// No host has this name.
    pub fn host(&self, name: &str) -> Result<&Host, LabError> {
        self.hosts.get(name).ok_or_else(|| {
            let known = self.hosts.keys().cloned().collect();
            LabError::UnknownHost {
                name: name.to_string(),
                known,
            }
        })
    }

    /// Connects two hosts.
    ///
    /// # Errors
    /// A host is unknown, the hosts are already connected, or a system call fails.
    pub fn add_link(&mut self, config: &LinkConfig) -> Result<LinkHandle, LabError> {
        let [first, second] = &config.between;
        let hosts = [self.host(first)?.clone(), self.host(second)?.clone()];
        if first == second {
            return Err(LabError::ToItself {
                link: config.name.clone(),
                host: first.clone(),
            });
        }
        if self.links.len() >= LINKS_MAX {
            return Err(LabError::TooMany {
                what: "links",
                max: LINKS_MAX,
            });
        }
        if config.carrier == Carrier::Bare
            && config.settings.iter().any(|settings| !settings.is_clear())
        {
            return Err(LinkError::Bare {
                link: config.name.clone(),
            }
            .into());
        }
        let same =
            |built: &&BuiltLink| built.between.contains(first) && built.between.contains(second);
        if let Some(other) = self.links.iter().find(same) {
            return Err(LabError::JoinedTwice {
                link: config.name.clone(),
                between: Box::new(config.between.clone()),
                other: other.link.handle().name().to_string(),
            });
        }
        let wires = Wires::lay(config, hosts, self.links.len() as u8)?;
        let (link, pairs) = wires.start(config, self.clock.clone())?;
        let handle = link.handle();
        self.links.push(BuiltLink {
            link,
            between: config.between.clone(),
            pairs,
            settings: config.settings.clone(),
            mtu: config.mtu,
        });
        Ok(handle)
    }

    /// Lets hosts without a direct link reach each other through other hosts, which forward packets. Routes use the
    /// fewest links and, among equals, have the lowest delay under the current settings. Call it when all links are up.
    ///
    /// # Errors
    /// A system call fails.
    pub fn route(&mut self) -> Result<(), LabError> {
        let hosts: Vec<&Host> = self.hosts.values().collect();
        let number = |name: &String| {
            hosts
                .iter()
                .position(|host| host.name() == name)
                .expect("links join hosts")
        };
        let edge = |built: &BuiltLink| Edge {
            between: [number(&built.between[0]), number(&built.between[1])],
            delay: [built.settings[0].delay.0, built.settings[1].delay.0],
        };
        let edges: Vec<Edge> = self.links.iter().map(edge).collect();
        let mut beyond: BTreeMap<(usize, usize), Vec<Ipv4Addr>> = BTreeMap::new();
        let steps = first_steps(hosts.len(), &edges);
        for steps in &steps {
            for (&to, &(link, direction)) in steps {
                let neighbour = edges[link].between[1 - direction];
                if neighbour != to {
                    beyond
                        .entry((link, direction))
                        .or_default()
                        .push(hosts[to].address());
                    let forwards = hosts[neighbour].run(sys::forward_packets);
                    let what = format!("enable forwarding on host {}", hosts[neighbour].name());
                    forwards.map_err(LabError::system(what))?;
                }
            }
        }
        for ((link, direction), to) in beyond {
            let handle = self.links[link].link.handle();
            let direction = if direction == 0 {
                Direction::There
            } else {
                Direction::Back
            };
            let led = handle.way(direction).lead_to(to);
            led.map_err(LabError::system(format!(
                "set up routes over link {}",
                handle.name()
            )))?;
        }
        self.first_steps = steps;
        Ok(())
    }

    /// The link with this name.
    pub fn link(&self, name: &str) -> Option<LinkHandle> {
        self.links
            .iter()
            .map(|built| built.link.handle())
            .find(|handle| handle.name() == name)
    }

    /// All links.
    pub fn links(&self) -> impl Iterator<Item = LinkHandle> {
        self.links.iter().map(|built| built.link.handle())
    }

    /// The report of each link, which includes drops by its devices as unintended.
    ///
    /// # Errors
    /// A device's counters cannot be read.
    pub fn reports(&self) -> Result<Vec<(String, LinkReport)>, LabError> {
        let report = |built: &BuiltLink| -> io::Result<_> {
            let handle = built.link.handle();
            let mut report = handle.report();
            for (number, pair) in built.pairs.iter().enumerate() {
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
        reports.map_err(LabError::system("read the counters of a link's devices"))
    }

    /// A meter of the bytes that the current links carry.
    ///
    /// # Errors
    /// A system call fails.
    pub fn meter(&self) -> Result<Meter, LabError> {
        let beside = |built: &BuiltLink| match built.link.handle().is_in_kernel() {
            true => 0,
            false => STRAIGHT,
        };
        let links = self
            .links
            .iter()
            .map(|built| (built.link.handle(), built.pairs.get(beside(built))));
        Meter::of(links).map_err(LabError::system("open the counters of a link's devices"))
    }

    /// Sets both directions' settings from now on; faults restore these when they end.
    ///
    /// # Errors
    /// No link has this name, or [`LinkHandle::change`] fails.
    pub fn change(&mut self, name: &str, settings: [Settings; 2]) -> Result<(), LabError> {
        let built = self.built_mut(name)?;
        for (direction, settings) in [Direction::There, Direction::Back]
            .into_iter()
            .zip(&settings)
        {
            built.link.handle().change(direction, settings.clone())?;
        }
        built.settings = settings;
        Ok(())
    }

    /// Like [`Lab::change`], and restarts the random numbers from `seed`, for a new run.
    ///
    /// # Errors
    /// No link has this name, or [`LinkHandle::change`] fails.
    pub fn restart(
        &mut self,
        name: &str,
        settings: [Settings; 2],
        seed: u64,
    ) -> Result<(), LabError> {
        let built = self.built_mut(name)?;
        for (direction, settings) in [Direction::There, Direction::Back]
            .into_iter()
            .zip(&settings)
        {
            built
                .link
                .handle()
                .restart(direction, settings.clone(), seed)?;
        }
        built.settings = settings;
        Ok(())
    }

    /// Sets the largest IP packet that a link carries, in bytes. Connections that are open keep working.
    ///
    /// # Errors
    /// No link has this name, or the kernel rejects the MTU.
    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> Result<(), LabError> {
        let built = self.built_mut(name)?;
        if built.mtu == mtu {
            return Ok(());
        }
        for device in built.pairs.iter().flat_map(|pair| &pair.devices) {
            let set = device.set_mtu(mtu);
            set.map_err(LabError::system(format!(
                "set the MTU of link {name} to {mtu} on host {}",
                device.host.name()
            )))?;
        }
        built.mtu = mtu;
        Ok(())
    }

    /// The current settings of a link, in both directions.
    ///
    /// # Errors
    /// No link has this name.
    pub fn settings(&self, name: &str) -> Result<[Settings; 2], LabError> {
        Ok(self.built(name)?.settings.clone())
    }

    /// A fault that changes this link's settings for a while.
    ///
    /// # Errors
    /// No link has this name.
    pub fn link_fault(&self, name: &str, during: [Settings; 2]) -> Result<LinkChange, LabError> {
        let built = self.built(name)?;
        Ok(LinkChange::new(
            built.link.handle(),
            built.hosts(),
            built.settings.clone(),
            during,
        ))
    }

    /// A fault that changes one direction of this link for a while: packets that leave the host `from`. The other
    /// direction must be seen to carry packets as before.
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
    /// No link has this name, or the host is not at one of its ends.
    pub fn one_way_fault(
        &self,
        name: &str,
        from: &str,
        during: Settings,
    ) -> Result<LinkChange, LabError> {
        let built = self.built(name)?;
        let direction = built.direction_from(from)?;
        let handle = built.link.handle();
        Ok(LinkChange::one_way(
            handle,
            built.hosts(),
            built.settings.clone(),
            direction,
            during,
        ))
    }

    /// A fault that separates the hosts of one side from those of the other, over all paths and in both directions.
    /// The separated hosts can still reach all other hosts, including those on their own side.
    ///
    /// # Errors
    /// A host is unknown, two of them have no path between them (a host has none to itself), or
    /// the first link of a path is not Brunt's own.
    pub fn partition(&self, first: &[&str], second: &[&str]) -> Result<Partition, LabError> {
        let mut courses = Vec::new();
        for one in first {
            for other in second {
                for (from, to) in [(one, other), (other, one)] {
                    let [source, sink] = [self.host(from)?.clone(), self.host(to)?.clone()];
                    courses.push(Course {
                        from: source,
                        to: sink,
                        leaving: self.leaving(from, to)?,
                    });
                }
            }
        }
        let names = |side: &[&str]| side.iter().map(ToString::to_string).collect();
        Ok(Partition::new([names(first), names(second)], courses))
    }

    /// A fault that resets TCP connections between two hosts. The resets appear to come from `from`, and `to`
    /// receives them. The fault affects existing connections as soon as they send something, and new ones while it
    /// lasts.
    ///
    /// # Errors
    /// A host is unknown, there is no path between them, or its first link is not Brunt's own.
    pub fn tcp_reset(&self, from: &str, to: &str, ports: ResetPorts) -> Result<TcpReset, LabError> {
        let hosts = [self.host(from)?.clone(), self.host(to)?.clone()];
        let Leaving {
            link,
            direction,
            longest,
        } = self.leaving(from, to)?;
        Ok(TcpReset::new(link, direction, hosts, ports, longest))
    }

    /// The first link on the path from one host to another.
    fn leaving(&self, from: &str, to: &str) -> Result<Leaving, LabError> {
        let path = self.path(from, to)?;
        let longest = path
            .iter()
            .map(|(link, way)| longest(&self.links[*link].settings[*way]))
            .sum();
        let (link, way) = path[0];
        let built = &self.links[link];
        let (link, direction) = (built.link.handle(), built.direction_from(from)?);
        debug_assert_eq!(direction as usize, way, "a path starts at its host");
        match link.counts() {
            true => Ok(Leaving {
                link,
                direction,
                longest,
            }),
            false => Err(LabError::NotOurs {
                link: link.name().to_string(),
            }),
        }
    }

    /// The links and directions on the path from one host to another; at least one.
    fn path(&self, from: &str, to: &str) -> Result<Vec<(usize, usize)>, LabError> {
        let number = |name: &str| self.hosts.keys().position(|host| host == name);
        let none = || LabError::NoPath {
            from: from.to_string(),
            to: to.to_string(),
        };
        let (Some(mut here), Some(there)) = (number(from), number(to)) else {
            return Err(none());
        };
        let joins = |built: &BuiltLink| {
            from != to && built.between.iter().all(|host| host == from || host == to)
        };
        if let Some(link) = self.links.iter().position(joins) {
            return Ok(vec![(
                link,
                self.links[link].direction_from(from)? as usize,
            )]);
        }
        let mut path = Vec::new();
        while here != there {
            let (link, way) = *self
                .first_steps
                .get(here)
                .and_then(|steps| steps.get(&there))
                .ok_or_else(none)?;
            path.push((link, way));
            here = number(&self.links[link].between[1 - way]).ok_or_else(none)?;
        }
        if path.is_empty() {
            Err(none())
        } else {
            Ok(path)
        }
    }

    /// The current settings of a link for packets that leave this host.
    ///
    /// # Errors
    /// No link has this name, or the host is not at one of its ends.
    pub fn settings_from(&self, name: &str, from: &str) -> Result<Settings, LabError> {
        let built = self.built(name)?;
        Ok(built.settings[built.direction_from(from)? as usize].clone())
    }

    fn built(&self, name: &str) -> Result<&BuiltLink, LabError> {
        let built = self
            .links
            .iter()
            .find(|built| built.link.handle().name() == name);
        built.ok_or_else(|| self.unknown_link(name))
    }

    fn built_mut(&mut self, name: &str) -> Result<&mut BuiltLink, LabError> {
        let number = self
            .links
            .iter()
            .position(|built| built.link.handle().name() == name);
        match number {
            Some(number) => Ok(&mut self.links[number]),
            None => Err(self.unknown_link(name)),
        }
    }

    fn unknown_link(&self, name: &str) -> LabError {
        let known = self
            .links
            .iter()
            .map(|built| built.link.handle().name().to_string())
            .collect();
        LabError::UnknownLink {
            name: name.to_string(),
            known,
        }
    }
}
