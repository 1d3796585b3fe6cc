//! Workloads that run on other hosts (`hosts = […]`): which hosts they need, and how these hosts open the targets.
//! The restrictions on a workload itself are checked with its other keys (`brunt_load::Workload`), restrictions on
//! the whole experiment in `remote_check.rs`.
//!
//! The rule: a workload for other hosts never runs on this machine unnoticed.

use std::collections::BTreeMap;
use std::sync::Arc;

use brunt_core::device_url::UrlOptionChanges;
use brunt_host::{
    Fleet, HostLoad, HostPlace, HostedTarget, HostedUrl, Lane, RunMembers, SILENCE_MAX, TargetUrl,
};
use brunt_load::together::load_of;
use brunt_load::{Load, LoadContext, Workload};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mistake::Source;
use super::{Experiment, Target};
use crate::host::{HostName, HostSettings};

/// This program's name and version, for greetings.
const PROGRAM: &str = concat!("brunt ", env!("CARGO_PKG_VERSION"));

/// What a lost host means for the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnHostFailure {
    /// The experiment ends.
    Abort,
    /// Runs continue without that host, and each of these runs is marked.
    Continue,
}

/// What a workload on other hosts needs in addition to its own settings.
#[derive(Clone, Debug)]
pub(super) struct RemoteSetup {
    /// The workload's targets as the hosts open them.
    targets: Vec<HostedTarget>,
    fleet: Arc<Fleet>,
}

impl RemoteSetup {
    /// Makes the hosts open this target with these changes to its options.
    pub(super) fn set_options(&mut self, target: &str, changes: &UrlOptionChanges) {
        let targets = self.targets.iter_mut();
        for hosted in targets.filter(|hosted| hosted.name == target) {
            hosted.url = hosted.url.with_options(changes);
        }
    }

    /// The load of a workload that names hosts. For one of several simultaneous jobs, `members` has its lane and the
    /// members of the run.
    pub(super) fn load(
        self,
        workload: Workload,
        context: &LoadContext,
        members: Option<(Lane, Arc<RunMembers>)>,
    ) -> Arc<dyn Load> {
        let RemoteSetup {
            targets: joined,
            fleet,
        } = self;
        let HostedTarget { url, overwrite, .. } = joined[0].clone();
        // Without device names, the whole trace goes to the only target.
        let joined = if workload.devices.is_empty() {
            Vec::new()
        } else {
            joined
        };
        let load = load_of(workload, context).hosted();
        let load = load.expect("other hosts can run workloads");
        let load = HostLoad::new(load, url, overwrite, fleet).on_targets(joined);
        Arc::new(match members {
            Some((lane, members)) => load.together(lane, members),
            None => load,
        })
    }
}

impl Experiment {
    /// Resolves the paths of hosts' identity files relative to the file that names them.
    pub(super) fn settle_hosts(&mut self, source: &Source<'_>) {
        for (name, settings) in &mut self.hosts {
            if let HostSettings::AgentHost(host) = settings
                && host.identity.is_relative()
            {
                let folder = source.folder(&["hosts", name.as_str(), "identity"]);
                host.identity = folder.join(&host.identity);
            }
        }
    }

    /// Remote hosts, and the lab hosts that workloads name. A host is contacted only when one of its loads is opened.
    pub(super) fn fleet(&self) -> Arc<Fleet> {
        let hosts = self.hosts().unwrap_or_default();
        let places = hosts
            .places()
            .into_iter()
            .map(|(name, place)| (name.to_string(), place));
        let mut places: BTreeMap<String, HostPlace> = places.collect();
        let place = |host: &String| {
            Some((
                host.clone(),
                hosts.runs_loads_at(&HostName::from(host.as_str()))?,
            ))
        };
        places.extend(
            self.remote_loads()
                .flat_map(|(_, named)| named)
                .filter_map(place),
        );
        let silence = self.host_silence.map_or(SILENCE_MAX, |silence| silence.0);
        Arc::new(Fleet::new(
            PROGRAM.to_string(),
            places,
            self.continues_without_hosts(),
            silence,
        ))
    }

    /// Whether runs continue without lost hosts.
    pub fn continues_without_hosts(&self) -> bool {
        self.on_host_failure == Some(OnHostFailure::Continue)
    }

    /// What a workload on other hosts needs, for the targets with these names, which must exist.
    pub(super) fn remote_setup(&self, names: &[String], fleet: &Arc<Fleet>) -> RemoteSetup {
        let hosted = |name: &String| {
            let target = &self.targets[name];
            let url = |target: &Target, host: Option<&str>| match target.is_known_late() {
                true => fleet.served(name, host),
                false => TargetUrl::known(self.url_of(target, None)),
            };
            let own = |(host, target): (Option<HostName>, Target)| {
                let host = host?.to_string();
                let url = url(&target, Some(&host));
                Some((host, url))
            };
            let url = match target.is_each_clients_own() {
                true => HostedUrl::Own(self.as_opened(name).into_iter().filter_map(own).collect()),
                false => HostedUrl::Shared(url(target, None)),
            };
            let overwrite = self.allow_overwrite.iter().any(|url| url == target.place());
            HostedTarget {
                name: name.clone(),
                url,
                overwrite,
            }
        };
        RemoteSetup {
            targets: names.iter().map(hosted).collect(),
            fleet: Arc::clone(fleet),
        }
    }

    /// Names of the targets that other hosts serve, each with its host.
    pub fn served_remotely(&self) -> Vec<(String, HostName)> {
        let hosts = self.hosts().unwrap_or_default();
        let host = |target: &Target| target.host.clone().filter(|host| hosts.is_remote(host));
        let served = self
            .targets
            .iter()
            .filter(|(_, target)| target.serve.is_some());
        served
            .filter_map(|(name, target)| Some((name.clone(), host(target)?)))
            .collect()
    }

    /// The hosts whose workers send requests to a target: those that the target's workloads name, and the host of the
    /// experiment's own process if a workload names none.
    pub(crate) fn requesters(&self, target: &str) -> Vec<HostName> {
        let own = self.hosts().unwrap_or_default().worker().clone();
        let mut found: Vec<HostName> = Vec::new();
        for workload in self.workloads_on(target) {
            match workload.hosts.as_slice() {
                [] => found.push(own.clone()),
                named => found.extend(named.iter().map(|host| HostName::from(host.as_str()))),
            }
        }
        if found.is_empty() {
            found.push(own);
        }
        found.sort();
        found.dedup();
        found
    }

    /// A host that opens this target itself, if there is one.
    pub(super) fn opened_by<'a>(&'a self, target: &'a str) -> Option<&'a str> {
        self.workloads_on(target)
            .find_map(|workload| workload.hosts.first())
            .map(String::as_str)
    }

    fn workloads_on<'a>(&'a self, target: &'a str) -> impl Iterator<Item = &'a Workload> {
        self.loads_on(target).map(|(_, workload)| workload)
    }

    /// The workloads that run on a target, alone or together with others, by name.
    pub(super) fn loads_on<'a>(
        &'a self,
        target: &'a str,
    ) -> impl Iterator<Item = (&'a String, &'a Workload)> {
        self.workloads
            .on_targets()
            .filter(move |(name, workload)| self.is_load_on(target, (name.as_str(), *workload)))
    }

    pub(super) fn is_load_on(&self, target: &str, (name, workload): (&str, &Workload)) -> bool {
        match workload.devices.is_empty() {
            true => self.runs_on(target, name),
            false => workload.devices.values().any(|device| device == target),
        }
    }

    /// Workloads that name hosts, each with its hosts.
    pub(super) fn remote_loads(&self) -> impl Iterator<Item = (&str, &[String])> {
        let workloads = self.workloads.on_targets();
        let workloads = workloads.map(|(name, load)| (name.as_str(), &load.hosts[..]));
        let own = self.workloads.own();
        let own = own.map(|(name, entry)| (name.as_str(), entry.hosts()));
        workloads.chain(own).filter(|(_, hosts)| !hosts.is_empty())
    }
}

#[cfg(test)]
mod tests;
