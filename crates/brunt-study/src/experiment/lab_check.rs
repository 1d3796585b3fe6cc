//! The lab of an experiment against the rest of its file: hosts, links, and which target is where.

use brunt_lab::link::{PRESETS, SettingsError, preset};
use brunt_lab::{HOSTS_MAX, LINKS_MAX};

use super::mistake::{FileError, Source};
use super::{CarrierName, Experiment, LabEntry, LinkEntry};

/// Largest IP packet that a link may carry, in bytes.
const MTU_MAX: u32 = 9000;
/// Smallest: what every host has to take (RFC 791).
const MTU_MIN: u32 = 576;

/// What is wrong, at which keys, and what would be right.
struct Mistake<'a> {
    path: Vec<&'a str>,
    what: String,
    help: Option<String>,
}

type Checked<'a> = Result<(), Mistake<'a>>;

fn wrong<'a>(path: &[&'a str], what: impl Into<String>, help: Option<&str>) -> Checked<'a> {
    Err(Mistake { path: path.to_vec(), what: what.into(), help: help.map(str::to_string) })
}

impl Experiment {
    pub(super) fn check_lab(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        let checked = match &self.lab {
            None => self.check_without_lab(),
            Some(lab) => check_hosts(lab)
                .and_then(|()| check_links(lab))
                .and_then(|()| self.check_places(lab))
                .and_then(|()| self.check_swept_links()),
        };
        checked.map_err(|Mistake { path, what, help }| source.mistake(&path, what, help))
    }

    fn check_without_lab(&self) -> Checked<'_> {
        let help = Some("add [lab] with hosts and links");
        if let Some((name, _)) = self.targets.iter().find(|(_, target)| target.host.is_some()) {
            let what = format!("target {name} is on a host, but there is no lab");
            return wrong(&["targets", name, "host"], what, help);
        }
        let axes = &self.sweep;
        let swept = [
            ("link_delay", !axes.link_delay.is_empty()),
            ("link_loss", !axes.link_loss.is_empty()),
            ("link_rate", !axes.link_rate.is_empty()),
        ];
        match swept.into_iter().find(|(_, swept)| *swept) {
            Some((axis, _)) => {
                wrong(&["sweep", axis], format!("{axis} is swept, but there is no link"), help)
            }
            None => Ok(()),
        }
    }

    /// Which target is on which host.
    fn check_places(&self, lab: &LabEntry) -> Checked<'_> {
        for (name, target) in &self.targets {
            let path = ["targets", name.as_str(), "host"];
            match &target.host {
                Some(host) if !lab.hosts.contains(host) => {
                    return wrong(&path, no_host(lab, host), None);
                }
                None if target.serve.is_some() => {
                    let what = format!("target {name} is served, but not said on which host of the lab");
                    let help = format!("write host = one of {}", lab.hosts.join(", "));
                    return wrong(&path, what, Some(&help));
                }
                Some(host) if !lab.reaches(lab.worker(), host) => {
                    let what = format!("no links lead from {} to {host}", lab.worker());
                    return wrong(&path, what, Some("add one under [lab.links]"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What a sweep makes of the links.
    fn check_swept_links(&self) -> Checked<'_> {
        for point in self.points() {
            for settings in point.links.values().flatten() {
                if let Err(SettingsError { key, what, .. }) = settings.check() {
                    let axis = match key {
                        "delay" => "link_delay",
                        "loss" => "link_loss",
                        _ => "link_rate",
                    };
                    return wrong(&["sweep", axis], format!("{}: {key}: {what}", point.label), None);
                }
            }
        }
        Ok(())
    }
}

fn no_host(lab: &LabEntry, name: &str) -> String {
    format!("there is no host {name}; there are {}", lab.hosts.join(", "))
}

fn check_hosts(lab: &LabEntry) -> Checked<'_> {
    if lab.hosts.is_empty() || lab.hosts.len() > HOSTS_MAX {
        let what = format!("{} hosts; write 1 to {HOSTS_MAX}", lab.hosts.len());
        return wrong(&["lab", "hosts"], what, Some("hosts = [\"client\", \"server\"]"));
    }
    let mut names = lab.hosts.iter().enumerate();
    if let Some((_, name)) = names.find(|(index, name)| name.is_empty() || lab.hosts[..*index].contains(name))
    {
        return wrong(&["lab", "hosts"], format!("host '{name}' is empty or there twice"), None);
    }
    if !lab.hosts.iter().any(|host| host == lab.worker()) {
        return wrong(&["lab", "worker"], no_host(lab, lab.worker()), None);
    }
    for (name, cores) in &lab.cores {
        if !lab.hosts.contains(name) {
            return wrong(&["lab", "cores", name], no_host(lab, name), None);
        }
        if cores.is_empty() {
            let what = format!("host {name} is kept on no core at all");
            return wrong(&["lab", "cores", name], what, Some("write such as [0], or leave it out"));
        }
    }
    Ok(())
}

fn check_links(lab: &LabEntry) -> Checked<'_> {
    if lab.links.len() > LINKS_MAX {
        return wrong(&["lab", "links"], format!("more than {LINKS_MAX} links"), None);
    }
    lab.links.iter().try_for_each(|(name, link)| check_link(lab, name, link))
}

fn check_link<'a>(lab: &'a LabEntry, name: &'a str, link: &'a LinkEntry) -> Checked<'a> {
    let at = |key| ["lab", "links", name, key];
    if let Some(host) = link.between.iter().find(|host| !lab.hosts.contains(host)) {
        return wrong(&at("between"), no_host(lab, host), None);
    }
    let same = |other: &LinkEntry| link.between.iter().all(|host| other.between.contains(host));
    if let Some((other, _)) = lab.links.iter().find(|(other, entry)| other.as_str() < name && same(entry)) {
        let what = format!("{other} joins these hosts already");
        return wrong(&at("between"), what, Some("a link carries both ways; leave one out"));
    }
    if link.between[0] == link.between[1] {
        return wrong(&at("between"), format!("{} is joined to itself", link.between[0]), None);
    }
    if let Some(unknown) = link.preset.as_deref().filter(|name| preset(name).is_none()) {
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        let what = format!("there is no preset {unknown}; there are {}", names.join(", "));
        return wrong(&at("preset"), what, None);
    }
    if !(MTU_MIN..=MTU_MAX).contains(&link.mtu()) {
        let what = format!("an MTU of {}; write {MTU_MIN} to {MTU_MAX}", link.mtu());
        return wrong(&at("mtu"), what, Some("1500, or 9000 for jumbo frames"));
    }
    for settings in link.settings() {
        if let Err(SettingsError { key, what, .. }) = settings.check() {
            return wrong(&at(key), format!("{key}: {what}"), None);
        }
        if link.carrier == CarrierName::Bare && !settings.is_clear() {
            let what = "a bare wire does nothing to packets";
            return wrong(&at("carrier"), what, Some("leave carrier out"));
        }
    }
    Ok(())
}
