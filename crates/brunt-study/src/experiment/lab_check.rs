//! Checks an experiment's lab against the rest of its file: hosts, links, and the hosts of targets.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::time::Duration;

use brunt_lab::link::{PRESETS, SettingsError, preset};
use brunt_lab::{HOSTS_MAX, LINKS_MAX};

use super::mistake::{FileError, Source};
use super::{CarrierName, Experiment, LabEntry, LinkEntry};
use crate::host::{HostName, Hosts};

/// The MTUs of links in bytes: from the size that every host must accept (RFC 791) to jumbo frames.
pub(super) const MTU: RangeInclusive<u32> = 576..=9000;

/// Limits of the idle time before each run: in a shorter time, a few packets would dominate the result.
pub(super) const IDLE: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(600);

/// A mistake in a lab: what is wrong, at which key, and what would be correct.
struct LabMistake<'a> {
    path: Vec<Cow<'a, str>>,
    what: String,
    help: Option<String>,
}

type Checked<'a> = Result<(), LabMistake<'a>>;

fn wrong<'a>(path: &[&'a str], what: impl Into<String>, help: Option<&str>) -> Checked<'a> {
    Err(LabMistake {
        path: path.iter().map(|key| Cow::Borrowed(*key)).collect(),
        what: what.into(),
        help: help.map(str::to_string),
    })
}

impl Experiment {
    pub(super) fn check_lab(
        &self,
        source: &Source<'_>,
        hosts: &Hosts,
    ) -> Result<(), Box<FileError>> {
        let checked = match &self.lab {
            None => self.check_without_lab(),
            Some(lab) => check_hosts(lab, hosts)
                .and_then(|()| check_idle(lab))
                .and_then(|()| check_links(lab, hosts))
                .and_then(|()| self.check_places(lab, hosts))
                .and_then(|()| self.check_swept_links()),
        };
        checked.map_err(|LabMistake { path, what, help }| {
            let path: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
            source.mistake(&path, what, help)
        })
    }

    fn check_without_lab(&self) -> Checked<'_> {
        let axis = self
            .sweep
            .swept()
            .into_iter()
            .find(|axis| axis.starts_with("link_"));
        if !self.links.is_empty() {
            // The swept links are between other machines and have their own checks.
            return Ok(());
        }
        let help = Some("add [lab] with hosts and links, or [links.NAME] between other machines");
        match (axis, self.sweep.link.keys().next()) {
            (Some(axis), _) => {
                let what = format!("{axis} is swept, but there is no link");
                wrong(&["sweep", axis], what, help)
            }
            (None, Some(key)) => {
                let what = format!("{key} of links is swept, but there is no link");
                wrong(&["sweep", "link", key], what, help)
            }
            (None, None) => Ok(()),
        }
    }

    /// Checks that each target is on a suitable host.
    fn check_places<'a>(&'a self, lab: &LabEntry, hosts: &Hosts) -> Checked<'a> {
        for (name, target) in &self.targets {
            let path = ["targets", name.as_str(), "host"];
            match &target.host {
                None if target.serve.is_some() => {
                    let what =
                        format!("target {name} is served, but does not name a host of the lab");
                    let names: Vec<&str> = hosts.of_lab().map(|(name, _)| name.as_str()).collect();
                    let help = format!("write host = one of {}", names.join(", "));
                    return wrong(&path, what, Some(&help));
                }
                Some(host) => {
                    let requesters = self.requesters(name);
                    // Other machines can reach each other, but no route leads into or out of the lab.
                    let is_apart = |requester: &&HostName| match hosts.is_remote(host) {
                        true => !hosts.is_remote(requester),
                        false => !lab.reaches(requester, host),
                    };
                    if let Some(apart) = requesters.iter().find(is_apart) {
                        let what = format!("no route from {apart} to {host}");
                        let help = match hosts.is_remote(host) || hosts.is_remote(apart) {
                            true => {
                                "hosts of the lab can only reach each other: serve it where the workload's hosts are"
                            }
                            false => "add one under [lab.links]",
                        };
                        return wrong(&path, what, Some(help));
                    }
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Checks the links' settings at each point of the sweep.
    fn check_swept_links(&self) -> Checked<'_> {
        for point in self.points() {
            for settings in point.links.values().flatten() {
                if let Err(SettingsError { key, what, .. }) = settings.check() {
                    let what = format!("{}: {key}: {what}", point.label);
                    return match (key, self.sweep.link.contains_key(key)) {
                        (_, true) => wrong(&["sweep", "link", key], what, None),
                        ("delay", _) => wrong(&["sweep", "link_delay"], what, None),
                        ("loss", _) => wrong(&["sweep", "link_loss"], what, None),
                        ("rate", _) => wrong(&["sweep", "link_rate"], what, None),
                        _ => wrong(&["sweep", "link"], what, None),
                    };
                }
            }
        }
        Ok(())
    }
}

fn check_hosts<'a>(lab: &'a LabEntry, hosts: &Hosts) -> Checked<'a> {
    let count = hosts.of_lab().count();
    if !(1..=HOSTS_MAX).contains(&count) {
        let what = format!("{count} hosts; write 1 to {HOSTS_MAX}");
        return wrong(
            &["lab", "hosts"],
            what,
            Some("hosts = [\"client\", \"server\"]"),
        );
    }
    if let Some(worker) = lab.worker.as_ref().filter(|name| !has_links(hosts, name)) {
        let what = format!("workers run on a host of the lab, and {worker} is not one of them");
        return wrong(
            &["lab", "worker"],
            what,
            Some("omit worker, or name one of the lab's hosts"),
        );
    }
    for (name, host) in hosts.of_lab() {
        if host.cores.as_ref().is_some_and(Vec::is_empty) {
            let path = match lab.cores.get_key_value(name) {
                Some((name, _)) => vec!["lab".to_string(), "cores".into(), name.to_string()],
                None => vec!["hosts".into(), name.to_string(), "cores".into()],
            };
            let what = format!("host {name} has an empty list of cores");
            let help = Some("write a list such as [0], or omit it".to_string());
            return Err(LabMistake {
                path: path.into_iter().map(Cow::Owned).collect(),
                what,
                help,
            });
        }
    }
    Ok(())
}

fn check_idle(lab: &LabEntry) -> Checked<'_> {
    match lab.idle {
        Some(idle) if !IDLE.contains(&idle.0) => wrong(
            &["lab", "idle"],
            format!("idle is {idle}; write 100ms to 10min"),
            Some("omit it, or write \"2s\""),
        ),
        _ => Ok(()),
    }
}

fn has_links(hosts: &Hosts, name: &HostName) -> bool {
    hosts
        .find(name)
        .is_ok_and(|host| host.settings.as_kind().has_links())
}

fn check_links<'a>(lab: &'a LabEntry, hosts: &Hosts) -> Checked<'a> {
    if lab.links.len() > LINKS_MAX {
        return wrong(
            &["lab", "links"],
            format!("more than {LINKS_MAX} links"),
            None,
        );
    }
    lab.links
        .iter()
        .try_for_each(|(name, link)| check_link(lab, hosts, name, link))
}

fn check_link<'a>(
    lab: &'a LabEntry,
    hosts: &Hosts,
    name: &'a str,
    link: &'a LinkEntry,
) -> Checked<'a> {
    let at = |key| ["lab", "links", name, key];
    if let Some(host) = link.between.iter().find(|host| !has_links(hosts, host)) {
        let what = format!("links connect hosts of the lab, and {host} is not one of them");
        return wrong(&at("between"), what, Some("add it to the hosts of [lab]"));
    }
    let same = |other: &LinkEntry| link.between.iter().all(|host| other.between.contains(host));
    if let Some((other, _)) = lab
        .links
        .iter()
        .find(|(other, entry)| other.as_str() < name && same(entry))
    {
        let what = format!("{other} already connects these hosts");
        return wrong(
            &at("between"),
            what,
            Some("a link carries both directions; remove one"),
        );
    }
    if link.between[0] == link.between[1] {
        return wrong(
            &at("between"),
            format!("{} is connected to itself", link.between[0]),
            None,
        );
    }
    if let Some(unknown) = link.preset.as_deref().filter(|name| preset(name).is_none()) {
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        let what = format!(
            "unknown preset {unknown}; the presets are {}",
            names.join(", ")
        );
        return wrong(&at("preset"), what, None);
    }
    if !MTU.contains(&link.mtu()) {
        let what = format!(
            "an MTU of {}; write {} to {}",
            link.mtu(),
            MTU.start(),
            MTU.end()
        );
        return wrong(&at("mtu"), what, Some("1500, or 9000 for jumbo frames"));
    }
    for settings in link.settings() {
        if let Err(SettingsError { key, what, .. }) = settings.check() {
            return wrong(&at(key), format!("{key}: {what}"), None);
        }
        if link.carrier == CarrierName::Bare && !settings.is_clear() {
            let what = "a bare link has no emulation";
            return wrong(&at("carrier"), what, Some("omit carrier"));
        }
    }
    Ok(())
}
