//! A complete lab: hosts by name and the links between them.
//!
//! Built inside a [`crate::stage`]. The rule: dropping a [`Lab`] removes its links; its hosts disappear with
//! their last user.

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

/// Most hosts of a lab; their addresses are 10.77.0.1 and up.
pub const HOSTS_MAX: usize = 250;
/// Most links of a lab: each has a thread.
pub const LINKS_MAX: usize = 64;
/// Hosts and links that stand.
#[derive(Debug)]
pub struct Lab {
    hosts: BTreeMap<String, Host>,
    links: Vec<BuiltLink>,
    /// For each host, in the order of their names, its link and direction to each other, since [`Lab::route`].
    first_steps: Vec<BTreeMap<usize, (usize, usize)>>,
    clock: Clock,
}

/// A link and the devices at its ends.
#[derive(Debug)]
struct BuiltLink {
    link: Link,
    /// The two hosts that it connects.
    between: [String; 2],
    /// The link's own devices, and those of the veth pair beside it.
    pairs: Vec<Ends>,
    settings: [Settings; 2],
}

impl BuiltLink {
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
            host => Err(LabError::NotAnEnd {
                link: self.link.handle().name().to_string(),
                between: Box::new(self.between.clone()),
                host: host.to_string(),
            }),
        }
    }
}

impl Lab {
    /// Hosts of these names, without links.
    ///
    /// # Errors
    /// A name twice, too many, or the machine refuses.
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
            let host =
                Host::new(name, address).map_err(LabError::system(format!("make host {name}")))?;
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

    /// Has TCP between hosts use this congestion control, whoever opens the sockets; to be called before links are
    /// added. Without it connections use the kernel's default.
    ///
    /// # Panics
    /// If there are links already, or it was called before.
    pub fn use_congestion(&mut self, algorithm: &str) {
        assert!(self.links.is_empty(), "the routes of links carry it");
        self.hosts
            .values()
            .for_each(|host| host.use_congestion(algorithm));
    }

    /// Lets programs call the hosts by name from now on: an /etc/hosts that only what runs on the hosts sees.
    ///
    /// # Errors
    /// There is no /etc/hosts, or the machine refuses.
    pub fn publish_names(&self) -> io::Result<()> {
        names::publish(self.hosts.values())
    }

    /// The host of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn host(&self, name: &str) -> Result<&Host, LabError> {
        self.hosts.get(name).ok_or_else(|| {
            let known = self.hosts.keys().cloned().collect();
            LabError::UnknownHost {
                name: name.to_string(),
                known,
            }
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
                    let what = format!("let host {} forward", hosts[neighbour].name());
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
                "lay routes over link {}",
                handle.name()
            )))?;
        }
        self.first_steps = steps;
        Ok(())
    }

    /// The link of this name.
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

    /// What each link did, the losses of its devices among what was not meant.
    ///
    /// # Errors
    /// A device's counts cannot be read.
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
        reports.map_err(LabError::system("read the counts of a link's devices"))
    }

    /// Reads how many bytes the links that stand now carry.
    ///
    /// # Errors
    /// The machine refuses.
    pub fn meter(&self) -> Result<Meter, LabError> {
        let beside = |built: &BuiltLink| match built.link.handle().is_in_kernel() {
            true => 0,
            false => STRAIGHT,
        };
        let links = self
            .links
            .iter()
            .map(|built| (built.link.handle(), built.pairs.get(beside(built))));
        Meter::of(links).map_err(LabError::system("open the counts of a link's devices"))
    }

    /// Both directions' settings from now on, and what a fault returns to.
    ///
    /// # Errors
    /// As for [`LinkHandle::change`].
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

    /// As [`Lab::change`], and lets chance begin again from `seed`: for a new run.
    ///
    /// # Errors
    /// As for [`LinkHandle::change`].
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

    /// The settings that a link has now, there and back.
    ///
    /// # Errors
    /// There is no such link.
    pub fn settings(&self, name: &str) -> Result<[Settings; 2], LabError> {
        Ok(self.built(name)?.settings.clone())
    }

    /// A fault of this link: other settings for a while.
    ///
    /// # Errors
    /// There is no such link.
    pub fn link_fault(&self, name: &str, during: [Settings; 2]) -> Result<LinkChange, LabError> {
        let built = self.built(name)?;
        Ok(LinkChange::new(
            built.link.handle(),
            built.hosts(),
            built.settings.clone(),
            during,
        ))
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

    /// A fault that keeps the hosts of one side apart from those of the other, over all paths between them and both
    /// ways; all reach the others still, those of their own side among them.
    ///
    /// # Errors
    /// There is no such host, no path between two of them (none to itself either), or a first link of it is not
    /// Brunt's own.
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

    /// A fault that resets TCP connections between two hosts, in the name of `from`, at `to`: those that there are, as
    /// soon as they send something, and while it lasts those that are made.
    ///
    /// # Errors
    /// There is no such host, no path between them, or its first link is not Brunt's own.
    pub fn tcp_reset(&self, from: &str, to: &str, ports: ResetPorts) -> Result<TcpReset, LabError> {
        let hosts = [self.host(from)?.clone(), self.host(to)?.clone()];
        let Leaving {
            link,
            direction,
            longest,
        } = self.leaving(from, to)?;
        Ok(TcpReset::new(link, direction, hosts, ports, longest))
    }

    /// The link by which packets leave a host for another.
    fn leaving(&self, from: &str, to: &str) -> Result<Leaving, LabError> {
        let path = self.path(from, to)?;
        let longest = path
            .iter()
            .map(|(link, way)| longest(&self.links[*link].settings[*way]))
            .sum();
        let (link, way) = path[0];
        let built = &self.links[link];
        let (link, direction) = (built.link.handle(), built.direction_from(from)?);
        debug_assert_eq!(direction as usize, way, "a path begins at its host");
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

    /// The links and directions that packets take from one host to another; at least one.
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

    /// The settings that a link has now for what leaves this host.
    ///
    /// # Errors
    /// There is no such link, or the host is not at one of its ends.
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
