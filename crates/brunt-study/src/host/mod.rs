//! The hosts of an experiment in one namespace: the machine that runs it, the hosts of its lab, and other machines.
//! [`Hosts`] resolves every reference to a host (by a target, a workload, a link or a fault), and also supplies a
//! [`Launcher`] to code that starts something on a host; loads reach other hosts through their [`HostPlace`].
//!
//! The rule: there is only one lookup, and only one message about an unknown name.

mod agent;
mod guest;
mod here;
mod kind;
mod kinds;
mod lab;
mod name;
mod ssh;
#[cfg(test)]
mod test_only;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

pub use agent::AgentHost;
pub use guest::GuestHost;
pub use here::{Here, LocalLauncher};
pub use kind::{HostInfo, HostKind, KeyMistake, LabLaunchers, LaunchError, Launcher};
pub use kinds::{HOST_KINDS, HostEntry, HostSettings};
pub use lab::LabHost;
pub use name::{HostName, LOCAL};
pub use ssh::SshHost;

use brunt_host::HostPlace;
use brunt_lab::outside;

use crate::experiment::LabEntry;
use crate::lab::BuiltLab;

/// All hosts of an experiment, looked up by name.
#[derive(Clone, Debug)]
pub struct Hosts {
    list: Vec<KnownHost>,
    worker: HostName,
}

/// A host of an experiment, as described by its file.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownHost {
    /// The host's name in the file.
    pub name: HostName,
    /// The host's kind and settings.
    pub settings: HostSettings,
}

/// No host has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown host '{name}'; the hosts of this experiment are: {known}")]
pub struct NoHost {
    /// The requested name.
    pub name: HostName,
    /// The names that exist.
    pub known: String,
}

/// A mistake in the hosts of a file, and its key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {help}")]
pub struct HostMistake {
    /// The path of keys from the top of the file.
    pub path: Vec<String>,
    /// The mistake.
    pub what: String,
    /// What would be valid instead.
    pub help: String,
}

impl HostMistake {
    fn new(path: &[&str], what: String, help: &str) -> HostMistake {
        HostMistake {
            path: path.iter().map(|key| key.to_string()).collect(),
            what,
            help: help.to_string(),
        }
    }
}

impl Default for Hosts {
    /// Creates hosts that consist of only this machine.
    fn default() -> Hosts {
        let here = KnownHost {
            name: HostName::local(),
            settings: HostSettings::Here(Here {}),
        };
        Hosts {
            list: vec![here],
            worker: HostName::local(),
        }
    }
}

impl Hosts {
    /// All hosts of a file: those under `[hosts]`, those of its lab, and this machine itself.
    ///
    /// # Errors
    /// Two hosts share a name, or a host can't be located.
    pub fn of(
        written: &BTreeMap<HostName, HostSettings>,
        lab: Option<&LabEntry>,
    ) -> Result<Hosts, HostMistake> {
        let mut hosts = Hosts::default();
        let reserved = |path: &[&str]| {
            let what =
                format!("'{LOCAL}' is the machine that runs the experiment, which has no settings");
            HostMistake::new(path, what, "choose another name")
        };
        for name in lab.iter().flat_map(|lab| &lab.hosts) {
            let path = ["lab", "hosts"];
            if *name == LOCAL {
                return Err(reserved(&path));
            }
            if name.as_str().is_empty() || hosts.find(name).is_ok() {
                let what = format!("host '{name}' is empty or defined twice");
                return Err(HostMistake::new(&path, what, "use different names"));
            }
            let cores = lab.and_then(|lab| lab.cores.get(name)).cloned();
            hosts.list.push(KnownHost {
                name: name.clone(),
                settings: HostSettings::LabHost(LabHost { cores }),
            });
        }
        for (name, settings) in written {
            let path = ["hosts", name.as_str()];
            if *name == LOCAL || name.as_str().is_empty() {
                return Err(reserved(&path));
            }
            hosts.add(name, settings, lab)?;
        }
        let first = hosts
            .list
            .iter()
            .find(|host| host.settings.as_kind().has_links());
        if let Some(worker) = lab
            .and_then(|lab| lab.worker.as_ref())
            .or(first.map(|host| &host.name))
        {
            hosts.worker = worker.clone();
        }
        Ok(hosts)
    }

    /// Adds a host that has its own table.
    fn add(
        &mut self,
        name: &HostName,
        settings: &HostSettings,
        lab: Option<&LabEntry>,
    ) -> Result<(), HostMistake> {
        let path = ["hosts", name.as_str()];
        let mut settings = settings.clone();
        if let Err(KeyMistake { key, what, help }) = settings.as_kind().place() {
            return Err(HostMistake::new(&[path[0], path[1], key], what, &help));
        }
        if let HostSettings::LabHost(host) = &mut settings {
            let Some(lab) = lab else {
                let what =
                    format!("host '{name}' belongs to the lab, but the experiment has no [lab]");
                return Err(HostMistake::new(&path, what, "add [lab] with links"));
            };
            let in_lab = lab.cores.get(name);
            if in_lab.is_some() && host.cores.is_some() {
                let what = format!("the cores of host '{name}' are also set in [lab]");
                return Err(HostMistake::new(
                    &[path[0], path[1], "cores"],
                    what,
                    "remove one of them",
                ));
            }
            host.cores = host.cores.take().or_else(|| in_lab.cloned());
        }
        match self.list.iter_mut().find(|host| host.name == *name) {
            None => self.list.push(KnownHost {
                name: name.clone(),
                settings,
            }),
            Some(known) if known.settings.info().name == settings.info().name => {
                known.settings = settings
            }
            Some(known) => {
                let what = format!(
                    "'{name}' is a {} here but a {} elsewhere in the file",
                    settings.info().name,
                    known.settings.info().name
                );
                return Err(HostMistake::new(&path, what, "use different names"));
            }
        }
        Ok(())
    }

    /// The host with this name.
    ///
    /// # Errors
    /// No host has this name; the message lists all names.
    pub fn find(&self, name: &HostName) -> Result<&KnownHost, NoHost> {
        self.list
            .iter()
            .find(|host| host.name == *name)
            .ok_or_else(|| {
                let known: Vec<&str> = self.list.iter().map(|host| host.name.as_str()).collect();
                NoHost {
                    name: name.clone(),
                    known: known.join(", "),
                }
            })
    }

    /// All hosts: this machine, lab hosts in the order of the file, others by name.
    pub fn iter(&self) -> impl Iterator<Item = &KnownHost> {
        self.list.iter()
    }

    /// Lab hosts, in the order of the file.
    pub fn of_lab(&self) -> impl Iterator<Item = (&HostName, &LabHost)> {
        self.list.iter().filter_map(|host| match &host.settings {
            HostSettings::LabHost(lab) => Some((&host.name, lab)),
            _ => None,
        })
    }

    /// Remote hosts, and how to reach each of them.
    pub fn places(&self) -> Vec<(HostName, HostPlace)> {
        let place =
            |host: &KnownHost| Some((host.name.clone(), host.settings.as_kind().place().ok()??));
        self.list.iter().filter_map(place).collect()
    }

    /// Whether this host is a remote host.
    pub fn is_remote(&self, name: &HostName) -> bool {
        self.find(name)
            .is_ok_and(|host| matches!(host.settings.as_kind().place(), Ok(Some(_))))
    }

    /// Where to reach the agent that runs loads for this host; `None` if loads cannot name it.
    pub fn runs_loads_at(&self, name: &HostName) -> Option<HostPlace> {
        self.find(name).ok()?.settings.as_kind().runs_loads_at(name)
    }

    /// Virtual machines, and the services that run them.
    pub(crate) fn guests(&self) -> impl Iterator<Item = (&HostName, &str)> {
        self.list
            .iter()
            .filter_map(|host| Some((&host.name, host.settings.as_kind().service()?)))
    }

    /// Remote hosts that act as bridges.
    pub fn bridges(&self) -> Vec<BridgeHost> {
        let bridge = |host: &KnownHost| {
            let (name, kind) = (host.name.clone(), host.settings.as_kind());
            let capture = kind.capture().map(str::to_string);
            Some(BridgeHost {
                name,
                interfaces: kind.bridge()?.clone(),
                capture,
            })
        };
        self.list.iter().filter_map(bridge).collect()
    }

    /// Remote hosts with interfaces whose bytes are counted during runs.
    pub(crate) fn interfaces(&self) -> Vec<(String, Vec<String>)> {
        let counted = |host: &KnownHost| {
            let interfaces = host.settings.as_kind().interfaces();
            (!interfaces.is_empty()).then(|| (host.name.to_string(), interfaces.to_vec()))
        };
        self.list.iter().filter_map(counted).collect()
    }

    /// Remote hosts for which the file sets `capture` although they have no bridge.
    pub(crate) fn captures_of_none(&self) -> impl Iterator<Item = &HostName> {
        let is_none = |host: &&KnownHost| {
            let kind = host.settings.as_kind();
            kind.capture().is_some() && kind.bridge().is_none()
        };
        self.list.iter().filter(is_none).map(|host| &host.name)
    }

    /// The host that sends the requests of workloads without hosts: the lab's `worker`, the lab's
    /// first host, or this machine.
    pub fn worker(&self) -> &HostName {
        &self.worker
    }
}

/// A remote host that acts as a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeHost {
    /// Its name.
    pub name: HostName,
    /// The bridged interfaces.
    pub interfaces: [String; 2],
    /// The file on that machine to save received packets to.
    pub capture: Option<String>,
}

impl KnownHost {
    /// The launcher for programs on this host; `lab` is the running lab.
    ///
    /// # Errors
    /// The host isn't running.
    pub fn launcher(&self, lab: Option<&BuiltLab>) -> Result<Arc<dyn Launcher>, LaunchError> {
        let lab = lab.map(|lab| lab as &dyn LabLaunchers);
        self.settings.as_kind().launcher(&self.name, lab)
    }

    /// Where targets and services on another machine listen: the address in the file, or else the one at which its
    /// agent is reached.
    ///
    /// # Errors
    /// Looking up the name yields no address.
    pub fn serving_address(&self) -> Result<IpAddr, LaunchError> {
        let kind = self.settings.as_kind();
        let place = kind
            .place()
            .ok()
            .flatten()
            .ok_or_else(|| LaunchError::OtherMachine(self.name.clone()))?;
        let text = kind.address().unwrap_or_else(|| place.address.host());
        let no_address = |source| LaunchError::Address {
            host: self.name.clone(),
            text: text.into(),
            source,
        };
        let looked_up = outside::run(|| Ok((text, 0).to_socket_addrs()?.collect::<Vec<_>>()));
        let found: Vec<IpAddr> = looked_up
            .map_err(no_address)?
            .into_iter()
            .map(|address| address.ip())
            .collect();
        // If a name has addresses of both versions, prefer IPv4, which works in more networks.
        let found = found
            .iter()
            .find(|address| address.is_ipv4())
            .or(found.first())
            .copied();
        match found.filter(|address| !address.is_unspecified() && !address.is_multicast()) {
            Some(address) => Ok(address),
            None => Err(no_address(io::Error::other(
                "it is not the address of a host",
            ))),
        }
    }
}

#[cfg(test)]
mod tests;
