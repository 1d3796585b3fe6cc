//! Workloads that run on other hosts (`hosts = […]`): checks that their hosts exist, and that the experiment contains
//! nothing that isn't supported together with them. The restrictions of a workload itself are checked with its other
//! keys (`brunt_load::Workload`).
//!
//! The rule: anything that would not happen on another host is refused here by name; nothing is quietly done on this
//! machine instead.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use brunt_core::device_url::UrlOptionChanges;
use brunt_host::{
    Fleet, HostLoad, HostPlace, HostedTarget, HostedUrl, Lane, RunMembers, SILENCE_MAX, TargetUrl,
};
use brunt_load::together::load_of;
use brunt_load::{Load, LoadContext, Workload};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mistake::{FileError, Source};
use super::{Experiment, JobEntry, Target};
use crate::fault::FaultEntry;
use crate::host::{BridgeHost, HostName, HostSettings, Hosts};

/// Limits of `host_silence`. Hosts are polled four times a second, so less than two polls is no silence.
const SILENCE: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(3600)];
/// This program's name and version, for greetings.
const PROGRAM: &str = concat!("brunt ", env!("CARGO_PKG_VERSION"));

/// What a lost host means for the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnHostFailure {
    /// Its end.
    Abort,
    /// Runs without that host, each of them marked.
    Continue,
}

/// What a workload on other hosts needs in addition to its own settings.
#[derive(Clone, Debug)]
pub(super) struct RemoteSetup {
    /// The workload's targets, as the hosts open them.
    targets: Vec<HostedTarget>,
    fleet: Arc<Fleet>,
}

impl RemoteSetup {
    /// Makes the hosts open a target with other options.
    pub(super) fn set_options(&mut self, target: &str, changes: &UrlOptionChanges) {
        let targets = self.targets.iter_mut();
        for hosted in targets.filter(|hosted| hosted.name == target) {
            hosted.url = hosted.url.with_options(changes);
        }
    }

    /// The load of a workload that names hosts. For one of several simultaneous jobs, `members` has its lane and the
    /// other jobs.
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
        // Without names, all of the trace goes to the only target.
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
    /// Resolves the paths of hosts' identities relative to the file that names them.
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

    /// Other machines, and the lab hosts that workloads name. None is contacted before one of its loads is opened.
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
                .flat_map(|(_, _, named)| named)
                .filter_map(place),
        );
        let silence = self.host_silence.map_or(SILENCE_MAX, |silence| silence.0);
        Arc::new(Fleet::new(
            PROGRAM.to_string(),
            places,
            self.goes_on_without_hosts(),
            silence,
        ))
    }

    /// Whether runs continue without lost hosts.
    pub fn goes_on_without_hosts(&self) -> bool {
        self.on_host_failure == Some(OnHostFailure::Continue)
    }

    /// What a workload that runs elsewhere needs, for the targets with these names, which must exist.
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

    /// Checks that the hosts of workloads exist and support what the experiment asks of them.
    pub(super) fn check_remote(
        &self,
        source: &Source<'_>,
        hosts: &Hosts,
    ) -> Result<(), Box<FileError>> {
        if let (Some((name, host)), true) = (self.served_remotely().first(), self.lab.is_some()) {
            let what = format!("target {name}: host {host} cannot be reached from a lab");
            let help = "remove [lab], or serve it on a host of the lab".to_string();
            return Err(source.mistake(&["targets", name, "host"], what, Some(help)));
        }
        let keys = [
            ("on_host_failure", self.on_host_failure.is_some()),
            ("host_silence", self.host_silence.is_some()),
        ];
        for (key, is_there) in keys {
            if is_there && hosts.places().is_empty() && self.remote_loads().next().is_none() {
                let what = format!("{key} without other hosts");
                return Err(source.mistake(&[key], what, Some("omit it".into())));
            }
        }
        if let Some(silence) = self
            .host_silence
            .filter(|silence| !(SILENCE[0]..=SILENCE[1]).contains(&silence.0))
        {
            let what = format!("host_silence {silence}: write 500ms to 1h");
            return Err(source.mistake(&["host_silence"], what, None));
        }
        self.check_probed(source, hosts)?;
        self.check_guests(source, hosts)?;
        for (table, name, named) in self.remote_loads() {
            for (index, host) in named.iter().enumerate() {
                let place = index.to_string();
                let path = [table, name, "hosts", place.as_str()];
                let known = hosts.find(&HostName::from(host.as_str()));
                let known = known.map_err(|error| {
                    let help = match self.lab {
                        Some(_) => format!("add '{host}' to the hosts of [lab]"),
                        None => {
                            format!("add [hosts.{host}] with ssh = \"user@host\" or agent = \"host:port\"")
                        }
                    };
                    source.mistake(&path, error.to_string(), Some(help))
                })?;
                let wrong = |what: String, help: &str| {
                    Err(source.mistake(&path, what, Some(help.to_string())))
                };
                if hosts.runs_loads_at(&known.name).is_none() {
                    let what = format!(
                        "host '{host}' is not another machine: {}",
                        known.settings.info().help
                    );
                    let help = match self.lab {
                        Some(_) => {
                            "name hosts of the lab; without hosts a workload runs on the lab's worker"
                        }
                        None => {
                            "name hosts that have ssh or agent; without hosts a workload runs here"
                        }
                    };
                    return wrong(what, help);
                }
                if self.lab.is_some() && hosts.is_remote(&known.name) {
                    let what = format!(
                        "host '{host}' cannot be reached from a lab, whose networks are isolated"
                    );
                    return wrong(what, "name hosts of the lab, or make two experiments");
                }
            }
            let is_on = |target: &str| {
                let workload = self
                    .workloads
                    .get_key_value(name)
                    .filter(|_| table == "workloads");
                workload.is_some_and(|workload| self.is_load_on(target, workload))
            };
            self.check_company(source, name, &is_on)?;
        }
        Ok(())
    }

    /// Checks that the services of virtual machines exist. Each machine has one connection, so
    /// it has one load at a time.
    fn check_guests(&self, source: &Source<'_>, hosts: &Hosts) -> Result<(), Box<FileError>> {
        for (name, service) in hosts.guests() {
            let wrong = |what: String, help: Option<String>| {
                Err(source.mistake(&["hosts", name.as_str(), "guest"], what, help))
            };
            let Some(entry) = self.services.get(service) else {
                return wrong(format!("host {name}: {}", self.no_service(service)), None);
            };
            let on = self.host_of_service(entry);
            if hosts.is_remote(&on) {
                let what = format!(
                    "host {name}: service {service} runs on host {on}, but guests run on this machine"
                );
                return wrong(
                    what,
                    Some("start the service here, or on a host of the lab".to_string()),
                );
            }
            if let Some((other, _)) = hosts
                .guests()
                .find(|(other, same)| *same == service && *other < name)
            {
                let what = format!(
                    "hosts {other} and {name} are guests of the same service, which runs only one machine"
                );
                return wrong(what, Some("add a service for each".to_string()));
            }
            let is_on = |job: &&JobEntry| {
                let workload = self.workloads.get(&job.workload);
                workload
                    .is_some_and(|workload| workload.hosts.iter().any(|host| host == name.as_str()))
            };
            let group = self
                .together
                .iter()
                .find(|(_, group)| group.jobs.iter().any(|job| is_on(&job)));
            if let Some((group, _)) = group {
                let what =
                    format!("together {group}: {name} is a guest, which runs one load at a time");
                let help =
                    Some("remove the group, or name other hosts in its workloads".to_string());
                return Err(source.mistake(&["together", group, "jobs"], what, help));
            }
        }
        Ok(())
    }

    /// Targets that other hosts serve, by name, with the host.
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

    /// The hosts whose workers send requests to a target: those that its workloads name, and the host of the
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

    /// A host that opens this target itself, if any.
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
            .iter()
            .filter(move |workload| self.is_load_on(target, *workload))
    }

    fn is_load_on(&self, target: &str, (name, workload): (&String, &Workload)) -> bool {
        match workload.devices.is_empty() {
            true => self.runs_on(target, name),
            false => workload.devices.values().any(|device| device == target),
        }
    }

    /// The other hosts to sample: those that `[probes]` names, or all.
    pub fn probed_hosts(&self) -> Vec<String> {
        let all = || {
            let hosts = self.hosts().unwrap_or_default();
            hosts
                .places()
                .into_iter()
                .map(|(name, _)| name.to_string())
                .collect()
        };
        if self.probes.is_on() {
            self.probes.hosts.clone().unwrap_or_else(all)
        } else {
            Vec::new()
        }
    }

    /// Checks that the hosts to sample can be sampled.
    fn check_probed(&self, source: &Source<'_>, hosts: &Hosts) -> Result<(), Box<FileError>> {
        for (index, host) in self.probes.hosts.iter().flatten().enumerate() {
            let place = index.to_string();
            let path = ["probes", "hosts", place.as_str()];
            let name = HostName::from(host.as_str());
            hosts
                .find(&name)
                .map_err(|error| source.mistake(&path, error.to_string(), None))?;
            if !hosts.is_remote(&name) {
                let what = format!(
                    "host '{host}' is not another machine; this machine is recorded anyway"
                );
                let help = match self.lab {
                    Some(_) => {
                        "omit it: the network of each host of a lab is recorded under its name, the rest of this \
                         machine as local"
                    }
                    None => "name hosts that have ssh or agent",
                };
                return Err(source.mistake(&path, what, Some(help.to_string())));
            }
            if self
                .probes
                .hosts
                .iter()
                .flatten()
                .take(index)
                .any(|other| other == host)
            {
                return Err(source.mistake(&path, format!("host '{host}' is listed twice"), None));
            }
        }
        self.check_bridges(source, hosts)?;
        match self.probed_hosts().first().filter(|_| self.lab.is_some()) {
            Some(host) => {
                let what = "other hosts cannot be reached from a lab, whose networks are isolated"
                    .to_string();
                let help =
                    format!("remove [lab] or [hosts.{host}], or write hosts = [] under [probes]");
                Err(source.mistake(&["lab"], what, Some(help)))
            }
            None => Ok(()),
        }
    }

    /// Checks the hosts that act as bridges.
    fn check_bridges(&self, source: &Source<'_>, hosts: &Hosts) -> Result<(), Box<FileError>> {
        for BridgeHost {
            name: host,
            interfaces,
            capture,
        } in hosts.bridges()
        {
            if interfaces[0] == interfaces[1] || interfaces.iter().any(String::is_empty) {
                let what = format!(
                    "host {host} cannot bridge '{}' and '{}'",
                    interfaces[0], interfaces[1]
                );
                let help =
                    "name the interfaces on both sides: bridge = [\"eth0\", \"eth1\"]".to_string();
                return Err(source.mistake(&["hosts", host.as_str(), "bridge"], what, Some(help)));
            }
            if let Some(path) = capture.filter(|path| !path.starts_with('/')) {
                let what =
                    format!("'{path}' depends on where the agent of host {host} was started");
                let help = "write an absolute path: capture = \"/var/tmp/wire.pcapng\"".to_string();
                return Err(source.mistake(&["hosts", host.as_str(), "capture"], what, Some(help)));
            }
        }
        match hosts.captures_of_none().next() {
            Some(host) => {
                let what = format!("host {host} has no bridge whose packets could be saved");
                let help = "write bridge = [\"eth0\", \"eth1\"], or omit capture".to_string();
                Err(source.mistake(&["hosts", host.as_str(), "capture"], what, Some(help)))
            }
            None => Ok(()),
        }
    }

    /// Workloads and file systems that name hosts: their table, name and hosts.
    fn remote_loads(&self) -> impl Iterator<Item = (&'static str, &str, &[String])> {
        let workloads = self
            .workloads
            .iter()
            .map(|(name, load)| ("workloads", name.as_str(), &load.hosts[..]));
        let files = self
            .filesystems
            .iter()
            .map(|(name, load)| ("filesystems", name.as_str(), &load.hosts[..]));
        workloads
            .chain(files)
            .filter(|(_, _, hosts)| !hosts.is_empty())
    }

    /// Checks what else is in the experiment with a workload or file system of other hosts. A workload runs on these
    /// targets; a file system on none.
    fn check_company(
        &self,
        source: &Source<'_>,
        name: &str,
        is_on: &dyn Fn(&str) -> bool,
    ) -> Result<(), Box<FileError>> {
        let apart = |path: &[&str], what: &str| {
            let help = format!("remove it, or hosts of {name}; or make two experiments");
            Err(source.mistake(path, what.to_string(), Some(help)))
        };
        if self.lab.is_some() {
            // The lab's hosts reach the targets served in it, and its faults are on the path or at its targets.
            return Ok(());
        }
        let (far, services) = (self.served_remotely(), self.remote_services());
        let is_far = |target: &str| far.iter().any(|(name, _)| name == target);
        let is_here = |fault: &FaultEntry| {
            let target = &fault.common.target;
            let is_met = target.is_empty() || is_on(target);
            let service = fault.kind.as_kind().service();
            let is_far_service =
                service.is_some_and(|service| services.iter().any(|(name, _)| name == service));
            is_met && fault.common.host.is_none() && !is_far(target) && !is_far_service
        };
        if let Some(index) = self.fault.iter().position(is_here) {
            let place = self.fault_in_file(index).to_string();
            return apart(
                &["fault", &place],
                "a fault without a host is injected here, where no worker runs",
            );
        }
        // Targets of services are checked with the services.
        let served = |(target, entry): &(&String, &Target)| {
            entry.serve.is_some() && !is_far(target) && is_on(target)
        };
        if let Some((target, _)) = self.targets.iter().find(served) {
            let what = format!(
                "target {target} is served on this machine's loopback, which no other host can reach"
            );
            let help = "write host = a host of [hosts], or start 'brunt target --portal ADDRESS:PORT' and write its url";
            return Err(source.mistake(
                &["targets", target, "serve"],
                what,
                Some(help.to_string()),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{assert_mistake, assert_mistake_at, changed};

    const TEXT: &str = r#"
name = "several hosts"
allow_overwrite = ["/dev/sdx"]
[hosts.a]
ssh = "root@a"
[hosts.b]
agent = "b:7420"
identity = "certificates/controller.pem"
[targets.disk]
url = "/dev/sdx"
[workloads.mixed]
read = 0.5
workers = 2
hosts = ["a", "b"]
stop = { time = "1s" }
[workloads.here]
stop = { time = "1s" }
[sweep]
queue_depth = [1, 8]
"#;

    /// A workload on other hosts is a load like any other, with the workers of all of them.
    #[test]
    fn workloads_of_other_hosts_are_points() {
        let experiment = Experiment::parse("/some/where/x.toml", TEXT).unwrap();
        let HostSettings::AgentHost(b) = &experiment.hosts[&HostName::from("b")] else {
            panic!("an agent")
        };
        assert_eq!(
            b.identity,
            std::path::Path::new("/some/where/certificates/controller.pem")
        );
        let plan = experiment.plan();
        let of = |workload: &'static str| {
            plan.points
                .iter()
                .filter(move |point| point.workload_name == workload)
        };
        assert_eq!((of("mixed").count(), of("here").count()), (2, 2));
        for point in of("mixed") {
            assert_eq!(point.hosts(), ["a", "b"]);
            let info = point.load.info();
            assert!(
                info.workers == 4
                    && info.writes
                    && point
                        .load
                        .describe()
                        .contains("2 workers on each host, closed loop, on a + b")
            );
        }
        assert!(of("here").all(|point| point.hosts().is_empty()));
        assert!(!plan.is_remote("disk"), "it is opened here too");
        let only = TEXT.replace("[workloads.here]\nstop = { time = \"1s\" }\n", "");
        assert!(
            Experiment::parse("x.toml", &only)
                .unwrap()
                .plan()
                .is_remote("disk")
        );
        assert_eq!(
            Experiment::parse("x.toml", &experiment.written_out()).unwrap(),
            experiment
        );
    }

    /// Phases on other hosts' file systems are points, too.
    #[test]
    fn file_systems_may_be_elsewhere() {
        let text = |hosts: &str| {
            format!(
                "name = \"x\"\n[hosts.a]\nssh = \"a\"\n[hosts.b]\nssh = \"b\"\n[filesystems.home]\n\
                 directory = \"/home\"\nhosts = [{hosts}]\nphases = [\"seeks\", \"rewrite\"]\nseekers = 3\n"
            )
        };
        let plan = Experiment::parse("x.toml", &text("\"a\", \"b\""))
            .unwrap()
            .plan();
        assert_eq!(plan.points.len(), 2);
        for point in &plan.points {
            assert_eq!(point.hosts(), ["a", "b"]);
            assert!(
                point
                    .load
                    .describe()
                    .ends_with("fsync at the end, on a + b"),
                "{}",
                point.load.describe()
            );
        }
        assert_eq!(plan.points[0].load.info().workers, 6);
        let seeks = serde_json::to_value(&plan.points[0]).unwrap();
        assert_eq!(
            (&seeks["phase"], &seeks["kind"]),
            (&"seeks".into(), &"file".into())
        );
        let check = |hosts: &str, said: &str| assert_mistake(&text(hosts), 8, said);
        // What other workloads do to a target of this machine doesn't affect a file system.
        let local =
            "[targets.disk]\nserve = \"memory:1MiB\"\n[workloads.here]\nstop = { time = \"2s\" }\n";
        let fault = "[[fault]]\ntarget = \"disk\"\nstorage = \"busy\"\n";
        let both = format!("{}{local}{fault}", text("\"a\", \"b\""));
        let parsed = Experiment::parse("x.toml", &both)
            .unwrap_or_else(|error| panic!("{}", error.one_line()));
        assert_eq!(parsed.plan().points.len(), 3);
        let hog = format!("{}{local}[[fault]]\ncpu = 0.5\n", text("\"a\", \"b\""));
        assert_mistake_at(&hog, "[[fault]]", "a fault without a host is injected here");
        check("\"a\", \"c\"", "unknown host 'c'");
        check("\"a\", \"a\"", "listed twice");
    }

    /// Jobs on other hosts and on this machine run at once; this process opens their target only
    /// for the jobs that run here.
    #[test]
    fn jobs_may_be_elsewhere() {
        let group = |jobs: [&str; 2]| {
            let job = |name: &str| {
                format!("{{ workload = \"{name}\", target = \"disk\", name = \"{name}-job\" }}")
            };
            let jobs = jobs.map(job).join(", ");
            let text = TEXT.replace(
                "[sweep]",
                &format!("[together.both]\njobs = [{jobs}]\n[sweep]"),
            );
            let text = text.replace(
                "[hosts.b]",
                "[workloads.more]\nhosts = [\"a\"]\nstop = { time = \"1s\" }\n[hosts.b]",
            );
            let text = text.replace("url = \"/dev/sdx\"", "url = \"/dev/sdx\"\nworkloads = []");
            Experiment::parse("x.toml", &text).unwrap().plan()
        };
        let plan = group(["mixed", "here"]);
        let all = &plan.points[0];
        assert_eq!((all.load.info().workers, all.hosts().len()), (5, 0));
        let jobs: Vec<&[String]> = plan
            .jobs_of(0)
            .map(|job| plan.points[job].hosts())
            .collect();
        assert_eq!(jobs, [&["a".to_string(), "b".into()][..], &[]]);
        assert!(!plan.is_remote("disk"));
        assert!(group(["mixed", "more"]).is_remote("disk"));
    }

    /// All hosts reach targets that other hosts serve, and faults of these targets need no host.
    #[test]
    fn targets_may_be_served_elsewhere() {
        let served =
            "[targets.disk]\nserve = [\"memory:1MiB?fault=off\", \"null:1GiB\"]\nhost = \"b\"";
        let faults = "[[fault]]\ntarget = \"disk\"\nfreeze = true\nat = \"100ms\"\nfor = \"100ms\"\n\
                      [[fault]]\ntarget = \"disk\"\nstorage = \"slow:1ms\"\nat = \"500ms\"\n[sweep]";
        let text = changed(TEXT, "[targets.disk]\nurl = \"/dev/sdx\"", served);
        let text = changed(&text, "allow_overwrite = [\"/dev/sdx\"]\n", "");
        let text = changed(&text, "[sweep]", faults);
        let experiment = Experiment::parse("x.toml", &text)
            .unwrap_or_else(|error| panic!("{}", error.one_line()));
        assert_eq!(
            experiment.served_remotely(),
            [("disk".to_string(), HostName::from("b"))]
        );
        assert!(experiment.reached_hosts().contains(&"b".to_string()));
        let machine = "freeze = true\nat = \"100ms\"\nfor = \"100ms\"";
        // Where the service runs doesn't depend on the target that selects the runs in which it fails.
        let service = format!("service = \"store\"\n{machine}");
        let with_service = changed(
            &changed(&text, machine, &service),
            "[sweep]",
            "[services.store]\ncommand = [\"x\"]\n[sweep]",
        );
        let parsed = Experiment::parse("x.toml", &with_service);
        parsed.unwrap_or_else(|error| panic!("{}", error.one_line()));
        let wrong = changed(&text, machine, "cpu = 0.5");
        assert_mistake_at(&wrong, "cpu =", "host b serves it");
        let wrong = changed(
            &text,
            machine,
            "reset = \"b\"\nat = \"100ms\"\nfor = \"100ms\"",
        );
        assert_mistake_at(&wrong, "reset =", "host b serves it");
        let lines = crate::study::describe(&experiment, &experiment.plan());
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("target disk is served on host b")),
            "{lines:?}"
        );
        let lab = "[lab]\nhosts = [\"x\", \"y\"]\n[lab.links.l]\nbetween = [\"x\", \"y\"]\n[sweep]";
        let wrong = changed(&text, "[sweep]", lab);
        assert_mistake_at(&wrong, "host = \"b\"", "cannot be reached from a lab");
        let nowhere = changed(
            &text,
            "agent = \"b:7420\"",
            "agent = \"b:7420\"\naddress = \"\"",
        );
        assert_mistake_at(&nowhere, "address =", "not a host's address");
    }

    const LAB: &str = r#"
name = "hosts of a lab"
[lab]
hosts = ["one", "two", "server", "alone"]
[lab.links.first]
between = ["one", "server"]
[lab.links.second]
between = ["two", "server"]
[targets.disk]
serve = "memory:1MiB"
host = "server"
[workloads.mixed]
hosts = ["one", "two"]
stop = { time = "10s" }
"#;

    /// Lab hosts run workloads like other machines do, on what is served in the lab; only the named ones have agents.
    #[test]
    fn hosts_of_a_lab_run_workloads() {
        let plan = |text: &str| {
            Experiment::parse("x.toml", text)
                .unwrap_or_else(|error| panic!("{}", error.one_line()))
                .plan()
        };
        let experiment = Experiment::parse("x.toml", LAB).unwrap();
        let planned = experiment.plan();
        assert_eq!(planned.points[0].hosts(), ["one", "two"]);
        assert!(planned.is_remote("disk") && planned.fleet.is_some());
        let requesters: Vec<String> = experiment
            .requesters("disk")
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(requesters, ["one", "two"]);
        assert!(
            experiment.probed_hosts().is_empty(),
            "the lab's own prober has them"
        );
        let here = changed(LAB, "hosts = [\"one\", \"two\"]\n", "");
        assert!(plan(&here).fleet.is_none() && plan(&here).points[0].hosts().is_empty());
        plan(&changed(LAB, "[lab]", "host_silence = \"2s\"\n[lab]"));
        // A host that runs nothing doesn't have to reach the target.
        plan(&changed(LAB, "[lab]", "[lab]\nworker = \"alone\""));
    }

    /// A service's virtual machine works alongside lab hosts and is not part of the lab's network.
    #[test]
    fn guests_run_loads() {
        let services = "[services.vm]\nhost = \"one\"\ncommand = [\"qemu\"]\n[services.vm-2]\nhost = \"two\"\ncommand = [\"qemu\"]\n\
             [hosts.guest]\nguest = \"vm\"\n[hosts.other]\nguest = \"vm-2\"\n";
        let files = "[filesystems.home]\ndirectory = \"/mnt\"\nhosts = [\"guest\", \"other\"]\nphases = [\"rewrite\"]\n";
        let text = format!("{LAB}{services}{files}");
        let experiment = Experiment::parse("x.toml", &text)
            .unwrap_or_else(|error| panic!("{}", error.one_line()));
        let plan = experiment.plan();
        let point = plan
            .points
            .iter()
            .find(|point| point.target == "home")
            .unwrap();
        assert_eq!(point.hosts(), ["guest", "other"]);
        assert!(experiment.probed_hosts().is_empty() && experiment.reached_hosts().is_empty());
        let lines = crate::study::describe(&experiment, &plan);
        assert!(
            lines.contains(&"host guest is a guest: service vm runs it".to_string()),
            "{lines:?}"
        );
        assert_eq!(
            Experiment::parse("x.toml", &experiment.written_out()).unwrap(),
            experiment
        );
        let check = |from: &str, to: &str, at: &str, said: &str| {
            assert_mistake_at(&changed(&text, from, to), at, said);
        };
        check(
            "guest = \"vm\"",
            "guest = \"vw\"",
            "guest = \"vw",
            "unknown service 'vw'",
        );
        assert_mistake(
            &changed(&text, "guest = \"vm-2\"", "guest = \"vm\""),
            24,
            "guests of the same service",
        );
        check(
            "between = [\"two\"",
            "between = [\"other\"",
            "between = [\"other",
            "other is not one of them",
        );
        check(
            "hosts = [\"one\", \"two\"]",
            "hosts = [\"guest\"]",
            "host = \"server\"",
            "no route from guest",
        );
        let jobs = "[together.both]\njobs = [{ workload = \"mixed\", target = \"disk\" }, { workload = \"more\", target = \"disk\" }]\n\
             [workloads.more]\nstop = { time = \"1s\" }\n[targets.disk]";
        let own = changed(
            &text,
            "serve = \"memory:1MiB\"\nhost = \"server\"",
            "url = \"/dev/vdd\"",
        );
        let own = changed(&own, "hosts = [\"one\", \"two\"]", "hosts = [\"guest\"]");
        assert_mistake_at(
            &changed(&own, "[targets.disk]", jobs),
            "jobs",
            "guest is a guest, which runs one load at a time",
        );
    }

    #[test]
    fn mistakes_of_hosts_of_a_lab() {
        let check = |from: &str, to: &str, at: &str, said: &str| {
            assert_mistake_at(&changed(LAB, from, to), at, said);
        };
        let named = "hosts = [\"one\", \"two\"]";
        check(
            named,
            "hosts = [\"one\", \"three\"]",
            "hosts = [\"one\", \"three",
            "unknown host 'three'",
        );
        check(
            named,
            "hosts = [\"local\"]",
            "hosts = [\"local",
            "name hosts of the lab",
        );
        check(
            named,
            "hosts = [\"one\", \"alone\"]",
            "host =",
            "no route from alone to server",
        );
        let machine = "[hosts.far]\nssh = \"far\"\n";
        let unwatched =
            format!("{machine}[probes]\nhosts = []\n[workloads.mixed]\nhosts = [\"far\"]");
        let text = changed(LAB, &format!("[workloads.mixed]\n{named}"), &unwatched);
        let said = "host 'far' cannot be reached from a lab, whose networks are isolated";
        assert_mistake_at(&text, "hosts = [\"far", said);
        check(
            "[lab]\n",
            &format!("{machine}[lab]\n"),
            "[lab]",
            "cannot be reached from a lab",
        );
        let probed = "[probes]\nhosts = [\"one\"]\n[lab]\n";
        check(
            "[lab]\n",
            probed,
            "hosts = [\"one\"]",
            "omit it: the network of each host",
        );
        let idle = changed(LAB, &format!("{named}\n"), "");
        let text = changed(&idle, "[lab]\n", "host_silence = \"2s\"\n[lab]\n");
        assert_mistake_at(&text, "host_silence", "without other hosts");
    }

    /// Faults that need to know where requests come from include every host that sends some; a fault of a device that
    /// only agents open is refused.
    #[test]
    fn faults_beside_hosts_of_a_lab() {
        let check = |fault: &str, said: Option<&str>| {
            let text = format!("{LAB}[[fault]]\n{fault}");
            match (Experiment::parse("x.toml", &text), said) {
                (Ok(_), None) => {}
                (Err(error), Some(said)) => {
                    let all = format!(
                        "{} {}",
                        error.one_line(),
                        error.help_text().unwrap_or_default()
                    );
                    assert!(all.contains(said), "{fault}: {all}");
                }
                (result, said) => panic!("{fault}: {said:?} {:?}", result.err()),
            }
        };
        let timed = "at = \"1s\"\nfor = \"1s\"";
        check("target = \"disk\"\nstorage = \"busy\"", None);
        check(&format!("target = \"disk\"\nfreeze = true\n{timed}"), None);
        check("link = \"first\"\nset = { loss = 0.1 }", None);
        check(&format!("partition = [\"two\", \"server\"]\n{timed}"), None);
        check(
            "partition = [\"two\", \"server\"]",
            Some("separates target disk from two for the whole run"),
        );
        check("partition = [\"alone\", \"server\"]", Some("no route"));
        check(
            &format!("target = \"disk\"\nreset = \"two\"\n{timed}"),
            None,
        );
        check(
            &format!("target = \"disk\"\nreset = \"server\"\nto = \"two\"\n{timed}"),
            None,
        );
        let several = "connections of disk come from one, two, and only one of them can be reset";
        check(
            &format!("target = \"disk\"\nreset = \"server\"\n{timed}"),
            Some(several),
        );
        check(
            &format!("target = \"disk\"\nreset = \"alone\"\n{timed}"),
            Some("between one, two and server"),
        );
        let apart = format!("partition = [\"two\", \"server\"]\n{timed}");
        let text = format!(
            "{LAB}[[fault]]\n{apart}\n[[fault]]\ntarget = \"disk\"\nstorage = \"busy\"\n{timed}"
        );
        let experiment = Experiment::parse("x.toml", &text).unwrap();
        let met = crate::fault::overlaps(&experiment.fault, &experiment);
        assert!(
            format!("{met:?}").contains("busy affects no request of two meanwhile"),
            "{met:?}"
        );
        let own = LAB.replace(
            "serve = \"memory:1MiB\"\nhost = \"server\"",
            "url = \"memory:1MiB\"",
        );
        let text = format!("{own}[[fault]]\ntarget = \"disk\"\nstorage = \"busy\"\n");
        assert_mistake_at(&text, "target =", "host one opens target disk itself");
    }

    #[test]
    fn mistakes_have_their_line() {
        let check = |from: &str, to: &str, at: &str, said: &str| {
            assert_mistake_at(&changed(TEXT, from, to), at, said);
        };
        check(
            "hosts = [\"a\", \"b\"]",
            "hosts = [\"a\", \"c\"]",
            "hosts =",
            "unknown host 'c'",
        );
        check(
            "hosts = [\"a\", \"b\"]",
            "hosts = [\"local\"]",
            "hosts =",
            "is not another machine",
        );
        let ssh = "ssh = \"root@a\"\n";
        let bridge = |more: &str| format!("{ssh}bridge = [\"eth0\", \"eth1\"]\n{more}\n");
        check(
            ssh,
            &bridge("capture = \"wire.pcapng\""),
            "capture =",
            "write an absolute path",
        );
        let alone = format!("{ssh}capture = \"/var/tmp/wire.pcapng\"\n");
        check(
            ssh,
            &alone,
            "capture =",
            "has no bridge whose packets could be saved",
        );
        check(
            "hosts = [\"a\", \"b\"]",
            "hosts = [\"a\", \"a\"]",
            "hosts =",
            "is listed twice",
        );
        check(
            "workers = 2",
            "workers = 200",
            "hosts =",
            "400 workers on all hosts",
        );
        check(
            "ssh = \"root@a\"",
            "ssh = \"-oProxyCommand=x\"",
            "ssh =",
            "user@host",
        );
        check(
            "ssh = \"root@a\"",
            "ssh = \"a\"\nprogram = \"x; reboot\"",
            "program",
            "a plain path",
        );
        check(
            "ssh = \"root@a\"",
            "ssh = \"a\"\ncommand = \" \"",
            "command",
            "is empty",
        );
        check(
            "ssh = \"root@a\"",
            "ssh = \"a\"\nagent = \"a:1\"",
            "agent",
            "unknown",
        );
        check(
            "agent = \"b:7420\"",
            "agent = \"b\"",
            "agent =",
            "write host:port",
        );
        check(
            "identity = \"certificates/controller.pem\"",
            "",
            "[hosts.b]",
            "identity",
        );
        check(
            "url = \"/dev/sdx\"",
            "url = \"/dev/sdx\"\n[targets.s]\nserve = \"memory:1MiB\"",
            "serve",
            "loopback",
        );
        check(
            "[hosts.a]",
            "on_host_failure = \"stop\"\n[hosts.a]",
            "on_host_failure",
            "continue",
        );
        check(
            "[hosts.a]",
            "host_silence = \"1ms\"\n[hosts.a]",
            "host_silence",
            "500ms to 1h",
        );
        let fault = "[[fault]]\nname = \"x\"\ncpu = 1\n[sweep]";
        check(
            "[sweep]",
            fault,
            "[[fault]]",
            "a fault without a host is injected here",
        );
        let lab = "[lab]\nhosts = [\"x\", \"y\"]\n[lab.links.l]\nbetween = [\"x\", \"y\"]\n[sweep]";
        check("[sweep]", lab, "[lab]", "cannot be reached from a lab");
    }
}
