//! A running lab: built from `[lab]`, configured for each run, checked after it. `brunt run` builds it inside a
//! [`brunt_lab::stage`], starts targets on its hosts, and attaches it to every run.
//!
//! The rule: each run starts with the links as its point defines them, and with a fresh random sequence; unintended
//! packet loss invalidates the run.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brunt_block::Congestion;
use brunt_core::{Clock, random::Random};
use brunt_lab::{Host, Lab, LabError, LinkConfig};

use crate::experiment::LabEntry;
use crate::host::{HostName, Hosts, LabLaunchers, Launcher};
use brunt_probe::{Network, Watch, Watching};

/// A running lab. Clones share the lab; dropping the last one removes it.
#[derive(Clone)]
pub struct BuiltLab {
    lab: Arc<Mutex<Lab>>,
    worker: Host,
    hosts: Vec<Host>,
    /// The hosts at the ends of each link.
    between: Arc<BTreeMap<String, [HostName; 2]>>,
}

impl BuiltLab {
    /// Builds the lab that `[lab]` describes, with the experiment's lab hosts. TCP connections in the lab use
    /// `congestion`, or else the kernel's default.
    ///
    /// # Errors
    /// A system call fails; the text says what to do.
    pub fn build(
        entry: &LabEntry,
        hosts: &Hosts,
        seed: u64,
        congestion: Option<Congestion>,
    ) -> Result<BuiltLab, LabError> {
        let mut lab = Lab::new(
            hosts.of_lab().map(|(name, _)| name.as_str()),
            Clock::Monotonic,
        )?;
        if let Some(congestion) = congestion {
            lab.use_congestion(congestion.name());
        }
        for (number, (name, link)) in entry.links.iter().enumerate() {
            lab.add_link(&LinkConfig {
                name: name.clone(),
                between: link.between.each_ref().map(HostName::to_string),
                settings: link.settings(),
                mtu: link.mtu(),
                seed: link_seed(seed, number),
                carrier: link.carrier.carrier(),
            })?;
        }
        lab.route()?;
        for (name, cores) in hosts
            .of_lab()
            .filter_map(|(name, host)| Some((name, host.cores.as_ref()?)))
        {
            lab.host(name.as_str())?.pin_to(cores).map_err(|source| {
                let what = format!("keep host {name} on cores {cores:?}");
                LabError::System { what, source }
            })?;
        }
        let worker = lab.host(hosts.worker().as_str())?.clone();
        let hosts = hosts
            .of_lab()
            .map(|(name, _)| lab.host(name.as_str()).cloned())
            .collect::<Result<_, _>>()?;
        let between = entry
            .links
            .iter()
            .map(|(name, link)| (name.clone(), link.between.clone()))
            .collect();
        Ok(BuiltLab {
            lab: Arc::new(Mutex::new(lab)),
            worker,
            hosts,
            between: Arc::new(between),
        })
    }

    /// Moves the calling thread, and everything that it starts later, to the workers' host and its
    /// cores.
    ///
    /// # Errors
    /// A system call fails, which doesn't happen in a lab that this process created.
    pub fn enter(&self) -> io::Result<()> {
        self.worker.settle()
    }

    /// Makes a prober watch the network of every host.
    ///
    /// # Errors
    /// No file descriptor is available.
    pub fn watched(&self, watch: &Watch) -> io::Result<Vec<Watching>> {
        let watched = |host: &Host| {
            let network = Network::Namespace(Arc::new(host.descriptor()?));
            Ok(watch.host(host.name(), network))
        };
        self.hosts.iter().map(watched).collect()
    }

    /// The lab's hosts, in the order of the file.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The host of the experiment's own process, which sends the requests of workloads without hosts.
    pub fn worker(&self) -> HostName {
        HostName::from(self.worker.name())
    }

    /// The hosts at the ends of a link, in the order of its directions: there, and back.
    pub fn between(&self, link: &str) -> Option<&[HostName; 2]> {
        self.between.get(link)
    }

    /// The names of the lab's links.
    pub fn links(&self) -> impl Iterator<Item = &str> {
        self.between.keys().map(String::as_str)
    }

    /// The lab itself, for faults of its links.
    pub fn lab(&self) -> MutexGuard<'_, Lab> {
        self.lab.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which directions of a link between these hosts, there and back, carry packets sent by the host `from`; both if
/// `from` is `None`. `None` if the link doesn't end at that host.
pub fn directions(between: &[HostName; 2], from: Option<&HostName>) -> Option<[bool; 2]> {
    match from {
        None => Some([true, true]),
        Some(host) if *host == between[0] => Some([true, false]),
        Some(host) if *host == between[1] => Some([false, true]),
        Some(_) => None,
    }
}

impl LabLaunchers for BuiltLab {
    fn launcher(&self, host: &HostName) -> Result<Arc<dyn Launcher>, LabError> {
        Ok(Arc::new(OnHost {
            name: host.clone(),
            host: self.lab().host(host.as_str())?.clone(),
        }))
    }
}

/// Starts programs in a host's namespace, on its cores.
struct OnHost {
    name: HostName,
    host: Host,
}

impl Launcher for OnHost {
    fn host(&self) -> &HostName {
        &self.name
    }
    fn address(&self) -> IpAddr {
        IpAddr::V4(self.host.address())
    }
    fn place(&self, command: &mut Command) -> io::Result<()> {
        self.host.place(command)
    }
}

/// Gives each link a different random sequence.
pub(crate) fn link_seed(seed: u64, number: usize) -> u64 {
    Random::for_part(seed, 0x11 + number as u64).next_u64()
}
