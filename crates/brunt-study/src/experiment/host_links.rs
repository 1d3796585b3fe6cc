//! `[links]`: links between other machines, whose delay, loss or rate an inline host or the kernels of both hosts
//! apply. Sweeps treat them like the links of a lab; `crate::hooks` applies and proves their settings for each run.
//!
//! ```toml
//! [hosts.node7]
//! ssh = "root@node7"
//! [hosts.node8]
//! ssh = "root@node8"
//! [links.wan]
//! between = ["node7", "node8"]
//! netem = ["eth1", "eth1"]              # or bridge = "wire", an inline host
//!
//! [sweep]
//! link_delay = ["0", "10ms"]
//! ```
//!
//! The rule: a link only has settings that probe packets can prove.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use brunt_core::Span;
use brunt_core::share::{self, Share};
use brunt_lab::faults::Netem;
use brunt_lab::link::{BitRate, Settings, SettingsError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Experiment;
use super::mistake::{FileError, Source};
use crate::host::{HostName, Hosts};

/// Maximum number of links between other machines.
pub const HOST_LINKS_MAX: usize = 64;
/// Smallest loss that a run's probe packets can prove.
const LOSS_MIN: f64 = 0.001;
/// Highest rate that a train of probe packets can prove.
const RATE_MAX: BitRate = BitRate(1_000_000_000);
/// netem's queue in packets if a rate is set and the file sets no limit: tc's default.
const NETEM_QUEUE_PACKETS: u32 = 1000;

/// A link between two other machines. Its settings apply to both directions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostLinkEntry {
    /// The two hosts that it connects, under `[hosts.NAME]` with `ssh` or `agent`. Before each run, the first host's
    /// agent sends probe packets (ICMP echo requests) to the second host's `address`.
    pub between: [HostName; 2],
    /// An inline host between them, with a `bridge` that applies the settings; the first host is on the side of the
    /// bridge's first interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<HostName>,
    /// Instead of `bridge`: the interfaces through which the two hosts send to each other; their kernels' netem
    /// applies the settings to everything sent there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netem: Option<[String; 2]>,
    /// One-way delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// Share of packets lost, independently, such as 0.01 or "1%"; at least 0.001.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "share::optional::loss"
    )]
    #[schemars(with = "Option<Share>")]
    pub loss: Option<f64>,
    /// Line rate in bits per second, at most 1Gb/s; default: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    /// Maximum number of packets queued at a rate-limited line. Default: 1000 with netem; with a bridge, the default
    /// of a lab's link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_packets: Option<u32>,
}

impl HostLinkEntry {
    /// The settings from the first host to the second, and back.
    pub fn settings(&self) -> [Settings; 2] {
        let mut settings = Settings {
            rate: self.rate,
            queue_packets: self.queue_packets,
            ..Settings::default()
        };
        settings.delay = self.delay.unwrap_or(settings.delay);
        settings.loss = self.loss.unwrap_or(settings.loss);
        [settings.clone(), settings]
    }
}

/// The mechanism that applies the settings of a link between other machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostLinkCarrier {
    /// The bridge on this host.
    Bridge(String),
    /// netem on these interfaces, each with its host: the one through which the first host sends to the second, and
    /// the one for the way back.
    Netem([(String, String); 2]),
}

/// A link between other machines, with the data about its hosts that a run needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLink {
    /// Its name.
    pub name: String,
    /// The host that sends the probe packets.
    pub from: String,
    /// The address to which it sends them.
    pub to: HostName,
    /// The mechanism that applies the settings.
    pub carrier: HostLinkCarrier,
}

impl HostLink {
    /// The settings in the form in which they are applied.
    pub fn carried(&self, settings: &[Settings; 2]) -> [Settings; 2] {
        let mut settings = settings.clone();
        if let HostLinkCarrier::Netem(_) = self.carrier {
            for way in settings.iter_mut().filter(|way| way.rate.is_some()) {
                way.queue_packets.get_or_insert(NETEM_QUEUE_PACKETS);
            }
        }
        settings
    }

    /// Hosts whose agents the link needs.
    fn hosts(&self) -> Vec<String> {
        let mut hosts = vec![self.from.clone()];
        match &self.carrier {
            HostLinkCarrier::Bridge(host) => hosts.push(host.clone()),
            HostLinkCarrier::Netem(ends) => hosts.extend(ends.iter().map(|end| end.0.clone())),
        }
        hosts
    }
}

/// The address for probe packets to this host, which is always IPv4.
///
/// # Errors
/// The host is unknown, or has no known IPv4 address.
pub fn probed_address(hosts: &Hosts, host: &HostName) -> Result<Ipv4Addr, ProbedAddressError> {
    let known = hosts.find(host)?;
    match known.serving_address()? {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(address) => Err(ProbedAddressError::Version {
            host: host.clone(),
            address: IpAddr::V6(address),
        }),
    }
}

/// Why no probe packets can be sent to a host.
#[derive(Debug, thiserror::Error)]
pub enum ProbedAddressError {
    /// The file has no such host.
    #[error(transparent)]
    Host(#[from] crate::host::NoHost),
    /// The host's address is unknown.
    #[error(transparent)]
    Address(#[from] crate::host::LaunchError),
    /// The host's address isn't IPv4.
    #[error(
        "host {host}: probe packets can't be sent to {address}; write address = \"10.0.0.9\", or another IPv4 address of \
         that host, under [hosts.{host}]"
    )]
    Version {
        /// The host.
        host: HostName,
        /// Its address.
        address: IpAddr,
    },
}

/// A mistake in a link: its key (`None` for the link itself), what is wrong, and what would be correct.
type LinkMistake = (Option<&'static str>, String, String);

impl Experiment {
    /// Links between other machines, by name.
    pub fn host_links(&self) -> Vec<HostLink> {
        let link = |(name, entry): (&String, &HostLinkEntry)| {
            let [from, to] = &entry.between;
            let carrier = match (&entry.bridge, &entry.netem) {
                (Some(bridge), _) => HostLinkCarrier::Bridge(bridge.to_string()),
                (None, Some([there, back])) => HostLinkCarrier::Netem([
                    (from.to_string(), there.clone()),
                    (to.to_string(), back.clone()),
                ]),
                // The check of the file has already refused this.
                (None, None) => return None,
            };
            Some(HostLink {
                name: name.clone(),
                from: from.to_string(),
                to: to.clone(),
                carrier,
            })
        };
        self.links.iter().filter_map(link).collect()
    }

    /// Hosts that must be contacted before the first run because links need their agents.
    pub(super) fn hosts_of_links(&self) -> Vec<String> {
        let links = self.host_links();
        links.iter().flat_map(HostLink::hosts).collect()
    }

    /// The settings of all links of the lab and between other machines, there and back.
    pub(super) fn link_settings(&self) -> BTreeMap<String, [Settings; 2]> {
        let of_lab = self.lab.iter().flat_map(|lab| &lab.links);
        let of_lab = of_lab.map(|(name, link)| (name.clone(), link.settings()));
        let others = self.links.iter();
        let others = others.map(|(name, link)| (name.clone(), link.settings()));
        of_lab.chain(others).collect()
    }

    /// The names of these links.
    pub(super) fn link_names(&self) -> impl Iterator<Item = &String> {
        let of_lab = self.lab.iter().flat_map(|lab| lab.links.keys());
        of_lab.chain(self.links.keys())
    }

    /// Checks the links between other machines. Must be called before points are created.
    pub(super) fn check_host_links(
        &self,
        source: &Source<'_>,
        hosts: &Hosts,
    ) -> Result<(), Box<FileError>> {
        if self.links.len() > HOST_LINKS_MAX {
            let what = format!("more than {HOST_LINKS_MAX} links");
            return Err(source.mistake(&["links"], what, None));
        }
        if let (Some(key), false) = (self.sweep.link.keys().next(), self.links.is_empty()) {
            let what = format!("{key} of links between other machines can't be proven");
            let help = "sweep link_delay, link_loss or link_rate".to_string();
            return Err(source.mistake(&["sweep", "link", key], what, Some(help)));
        }
        for (name, entry) in &self.links {
            let checked = self
                .check_host_link(name, entry, hosts)
                .and_then(|()| self.check_alone(name, entry));
            checked.map_err(|(key, what, help)| {
                let what = format!("link {name}: {what}");
                let path = [&["links", name][..], key.as_slice()].concat();
                source.mistake(&path, what, Some(help))
            })?;
        }
        Ok(())
    }

    fn check_host_link(
        &self,
        name: &str,
        entry: &HostLinkEntry,
        hosts: &Hosts,
    ) -> Result<(), LinkMistake> {
        let in_lab = self.lab.as_ref().map(|lab| &lab.links);
        if in_lab.is_some_and(|links| links.contains_key(name)) {
            let what = "the lab has a link with this name too".to_string();
            return Err((None, what, "rename one of them".into()));
        }
        let [from, to] = &entry.between;
        if from == to {
            let what = format!("{from} is connected to itself");
            return Err((Some("between"), what, "name two hosts".into()));
        }
        if let Some(host) = entry.between.iter().find(|host| !hosts.is_remote(host)) {
            let what = format!("{host} is not a remote host");
            let help = format!("add [hosts.{host}] with ssh or agent");
            return Err((Some("between"), what, help));
        }
        match (&entry.bridge, &entry.netem) {
            (Some(bridge), None) => {
                let is_bridge = hosts.bridges().iter().any(|host| host.name == *bridge);
                if !is_bridge {
                    let what = format!("host {bridge} has no bridge");
                    let help =
                        format!("write bridge = [\"eth0\", \"eth1\"] under [hosts.{bridge}]");
                    return Err((Some("bridge"), what, help));
                }
            }
            (None, Some(interfaces)) => {
                let is_odd = |name: &&String| name.is_empty() || name.contains(['/', ' ']);
                if let Some(interface) = interfaces.iter().find(is_odd) {
                    let what = format!("'{interface}' is not a valid interface name");
                    return Err((
                        Some("netem"),
                        what,
                        "write netem = [\"eth1\", \"eth1\"]".into(),
                    ));
                }
            }
            _ => {
                let what = "exactly one of bridge and netem must apply its settings";
                let help =
                    "write bridge = \"wire\", an inline host, or netem = [\"eth1\", \"eth1\"]";
                return Err((Some("between"), what.into(), help.into()));
            }
        }
        let is_netem = entry.netem.is_some();
        for settings in entry.settings() {
            check_provable(&settings, is_netem)
                .map_err(|(key, what)| (Some(key), what, format!("change {key} of link {name}")))?;
        }
        Ok(())
    }

    /// Checks that nothing else changes the bridge or interfaces that apply a link's settings.
    fn check_alone(&self, name: &str, entry: &HostLinkEntry) -> Result<(), LinkMistake> {
        let key = match &entry.bridge {
            Some(_) => "bridge",
            None => "netem",
        };
        let ends = |entry: &HostLinkEntry| -> Vec<(String, Option<String>)> {
            match (&entry.bridge, &entry.netem) {
                (Some(bridge), _) => vec![(bridge.to_string(), None)],
                (None, Some(interfaces)) => {
                    let ends = entry.between.iter().zip(interfaces);
                    ends.map(|(host, interface)| (host.to_string(), Some(interface.clone())))
                        .collect()
                }
                (None, None) => Vec::new(),
            }
        };
        let own = ends(entry);
        let others = self.links.iter().filter(|(other, _)| other.as_str() < name);
        for (other, entry) in others {
            if ends(entry).iter().any(|end| own.contains(end)) {
                let what = format!("link {other} uses the same {key}");
                let help = "name another one, or remove a link".to_string();
                return Err((Some(key), what, help));
            }
        }
        let uses = |host: &HostName| own.iter().any(|(name, _)| host.as_str() == name);
        let kinds = ["bridge", "netem"];
        let fault = self.fault.iter().find(|fault| {
            kinds.contains(&fault.kind_name()) && fault.common.host.as_ref().is_some_and(uses)
        });
        match fault {
            Some(fault) => {
                let what = format!("the fault {} changes it too", fault.label());
                Err((Some(key), what, "remove the fault or the link".to_string()))
            }
            None => Ok(()),
        }
    }

    /// Checks the settings of links between other machines at each point of the sweep.
    pub(super) fn check_swept_host_links(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        for point in self.points() {
            for (name, ways) in &point.links {
                let Some(entry) = self.links.get(name) else {
                    continue;
                };
                for settings in ways {
                    let checked = check_provable(settings, entry.netem.is_some());
                    checked.map_err(|(key, what)| {
                        let what = format!("{}: link {name}: {what}", point.label);
                        source.mistake(&["sweep", &format!("link_{key}")], what, None)
                    })?;
                }
            }
        }
        Ok(())
    }
}

/// Checks that settings are valid, and that probe packets can prove them; otherwise returns the key and the mistake.
fn check_provable(settings: &Settings, is_netem: bool) -> Result<(), (&'static str, String)> {
    let invalid = |error: SettingsError| (error.key, format!("{}: {}", error.key, error.what));
    settings.check().map_err(invalid)?;
    if settings.loss > 0.0 && settings.loss < LOSS_MIN {
        let what = format!(
            "probe packets can't prove a loss of {}; write 0, or {LOSS_MIN} or more",
            settings.loss
        );
        return Err(("loss", what));
    }
    if settings.loss >= 1.0 {
        let what = "no packet arrives, so probe packets prove nothing; write less than 1";
        return Err(("loss", what.to_string()));
    }
    if let Some(rate) = settings.rate.filter(|rate| rate.0 > RATE_MAX.0) {
        let what = format!("probe packets can't prove a rate of {rate}; write {RATE_MAX} or less");
        return Err(("rate", what));
    }
    if is_netem {
        let mut settings = settings.clone();
        settings.queue_packets.get_or_insert(NETEM_QUEUE_PACKETS);
        Netem::check(&settings).map_err(invalid)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{assert_mistake_at, changed};

    const TEXT: &str = r#"
name = "links between machines"
[hosts.node7]
ssh = "root@10.0.0.7"
[hosts.node8]
ssh = "root@10.0.0.8"
[hosts.wire]
ssh = "root@10.0.0.9"
bridge = ["eth0", "eth1"]
[links.wan]
between = ["node7", "node8"]
bridge = "wire"
loss = "1%"
[links.lan]
between = ["node8", "node7"]
netem = ["eth1", "eth2"]
rate = "100Mb/s"
[targets.array]
url = "iscsi://10.0.0.8/iqn.2026-11.io.brunt:t0/0"
[workloads.w]
hosts = ["node7"]
stop = { time = "1s" }
[sweep]
link_delay = ["0", "10ms"]
links = ["wan"]
"#;

    #[test]
    fn a_sweep_varies_links_between_machines() {
        let experiment = Experiment::parse("x.toml", TEXT).unwrap();
        let points = experiment.points();
        let labels: Vec<&str> = points.iter().map(|point| point.label.as_str()).collect();
        assert_eq!(labels, ["array w link_delay=0", "array w link_delay=10ms"]);
        let settings = |name: &str| points[1].links[name].clone();
        for way in settings("wan") {
            assert_eq!((way.delay.0.as_millis(), way.loss), (10, 0.01));
        }
        for way in settings("lan") {
            assert_eq!(
                (way.delay.0.as_millis(), way.rate),
                (0, Some(BitRate(100_000_000)))
            );
        }
        let links = experiment.host_links();
        let [lan, wan] = &links[..] else {
            panic!("{links:?}")
        };
        assert_eq!(wan.carrier, HostLinkCarrier::Bridge("wire".into()));
        let ends = [("node8", "eth1"), ("node7", "eth2")];
        let ends = ends.map(|(host, interface)| (host.to_string(), interface.to_string()));
        assert_eq!(lan.carrier, HostLinkCarrier::Netem(ends));
        let queue = |link: &HostLink, name| link.carried(&settings(name))[0].queue_packets;
        assert_eq!((queue(lan, "lan"), queue(wan, "wan")), (Some(1000), None));
        assert_eq!(experiment.reached_hosts(), ["node7", "node8", "wire"]);
        let address = probed_address(&experiment.hosts().unwrap(), &wan.to).unwrap();
        assert_eq!(address, Ipv4Addr::new(10, 0, 0, 8));
    }

    #[test]
    fn links_that_cannot_be_applied_or_proven_are_refused() {
        let check = |from: &str, to: &str, begin: &str, words: &str| {
            assert_mistake_at(&changed(TEXT, from, to), begin, words);
        };
        check(
            "loss = \"1%\"",
            "loss = 0.0001",
            "loss = 0.0001",
            "can't prove a loss",
        );
        check("loss = \"1%\"", "loss = 1.0", "loss = 1.0", "less than 1");
        check("\"100Mb/s\"", "\"2Gb/s\"", "rate = ", "can't prove a rate");
        check(
            "bridge = \"wire\"\n",
            "",
            "between = [\"node7\"",
            "exactly one of bridge and netem",
        );
        check(
            "bridge = \"wire\"",
            "bridge = \"node8\"",
            "bridge = \"node8\"",
            "has no bridge",
        );
        let ends = "between = [\"node7\", \"node8\"]";
        let same = "between = [\"node7\", \"node7\"]";
        check(ends, same, same, "to itself");
        let local = "between = [\"local\", \"node8\"]";
        check(ends, local, local, "not a remote host");
        check(
            "[\"eth1\", \"eth2\"]",
            "[\"eth1\", \"\"]",
            "netem = ",
            "not a valid interface name",
        );
        check(
            "netem = [\"eth1\", \"eth2\"]",
            "bridge = \"wire\"",
            "bridge = \"wire\"",
            "link lan uses the same bridge",
        );
        check(
            "\"10ms\"]",
            "\"10ms\"]\nlink_loss = [0.0001]",
            "link_loss",
            "can't prove a loss",
        );
        check(
            "links = [\"wan\"]",
            "link = { mtu = [9000] }",
            "link = ",
            "can't be proven",
        );
        check(
            "links = [\"wan\"]",
            "links = [\"van\"]",
            "links = [\"van\"]",
            "the links are lan, wan",
        );
        let fault = "[[fault]]\nhost = \"wire\"\nbridge = { delay = \"1ms\" }\n[sweep]";
        check("[sweep]", fault, "bridge = \"wire\"", "changes it too");
    }
}
