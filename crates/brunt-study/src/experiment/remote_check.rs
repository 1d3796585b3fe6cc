//! Checks that the hosts that workloads name exist, and that the experiment contains nothing that isn't supported for
//! workloads on other hosts.
//!
//! The rule: anything in the file that would have no effect on loads on other hosts is refused, and the message names
//! it.

use std::time::Duration;

use super::mistake::{FileError, Source};
use super::{Experiment, JobEntry, Target};
use crate::fault::FaultEntry;
use crate::host::{HostName, Hosts};

/// Limits of `host_silence`. Hosts are polled four times a second, so a silence shorter than two polls means nothing.
const SILENCE: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(3600)];

impl Experiment {
    /// Checks that the hosts of workloads exist and support what the experiment requires of them.
    pub(super) fn check_remote(
        &self,
        source: &Source<'_>,
        hosts: &Hosts,
    ) -> Result<(), Box<FileError>> {
        self.check_host_settings(source, hosts)?;
        self.check_probed(source, hosts)?;
        self.check_interfaces(source, hosts)?;
        self.check_guests(source, hosts)?;
        for (name, named) in self.remote_loads() {
            for (index, host) in named.iter().enumerate() {
                let place = index.to_string();
                let path = ["workloads", name, "hosts", place.as_str()];
                self.check_worker(source, hosts, &path, host)?;
            }
            let is_on = |target: &str| {
                let workload = self.workloads.on_target(name);
                workload.is_some_and(|workload| self.is_load_on(target, (name, workload)))
            };
            self.check_company(source, name, &is_on)?;
        }
        Ok(())
    }

    /// Checks the settings that concern all other hosts.
    fn check_host_settings(
        &self,
        source: &Source<'_>,
        hosts: &Hosts,
    ) -> Result<(), Box<FileError>> {
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
        Ok(())
    }

    /// Checks that the host named at `path` can run a load.
    fn check_worker(
        &self,
        source: &Source<'_>,
        hosts: &Hosts,
        path: &[&str],
        host: &str,
    ) -> Result<(), Box<FileError>> {
        let known = hosts.find(&HostName::from(host));
        let known = known.map_err(|error| {
            let help = match self.lab {
                Some(_) => format!(
                    "add '{host}' to the hosts of [lab], or [hosts.{host}] with ssh = \"user@host\" or agent = \"host:port\""
                ),
                None => {
                    format!("add [hosts.{host}] with ssh = \"user@host\" or agent = \"host:port\"")
                }
            };
            source.mistake(path, error.to_string(), Some(help))
        })?;
        let wrong =
            |what: String, help: &str| Err(source.mistake(path, what, Some(help.to_string())));
        if hosts.runs_loads_at(&known.name).is_none() {
            let what = format!(
                "host '{host}' is not a remote host: {}",
                known.settings.info().help
            );
            let help = match self.lab {
                Some(_) => {
                    "name hosts of the lab, or hosts that have ssh or agent; without hosts a workload runs on the lab's \
                     worker"
                }
                None => "name hosts that have ssh or agent; without hosts a workload runs here",
            };
            return wrong(what, help);
        }
        Ok(())
    }

    /// Checks that the services that run virtual machines exist. Each virtual machine has one connection, so it can
    /// run only one load at a time.
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
                return wrong(what, Some("add a service for each host".to_string()));
            }
            let is_on = |job: &&JobEntry| {
                let workload = self.workloads.on_target(&job.workload);
                workload
                    .is_some_and(|workload| workload.hosts.iter().any(|host| host == name.as_str()))
            };
            let group = self
                .workloads
                .groups()
                .find(|(_, group)| group.jobs.iter().any(|job| is_on(&job)));
            if let Some((group, _)) = group {
                let what = format!(
                    "together {group}: host {name} is a guest, which can run only one load at a time"
                );
                let help =
                    Some("remove the group, or name other hosts in its workloads".to_string());
                return Err(source.mistake(&["workloads", group, "jobs"], what, help));
            }
        }
        Ok(())
    }

    /// Checks that the rest of the experiment is compatible with a load that other hosts run: a workload on these
    /// targets, or a file system.
    fn check_company(
        &self,
        source: &Source<'_>,
        name: &str,
        is_on: &dyn Fn(&str) -> bool,
    ) -> Result<(), Box<FileError>> {
        let apart = |path: &[&str], what: &str| {
            let help = format!("remove it, or the hosts of {name}; or make two experiments");
            Err(source.mistake(path, what.to_string(), Some(help)))
        };
        if self.lab.is_some() {
            // The lab's checks cover which hosts reach which targets. Its faults act on the path or at its targets.
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
        // For targets on services, the checks of services cover this.
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
