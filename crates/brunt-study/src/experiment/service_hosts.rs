//! Checks which hosts can reach a service. Every host reaches the services on other hosts (`[hosts.NAME]`); only this
//! machine reaches services on this machine, because they listen on loopback. A service's folder is a path on its
//! host, even if other hosts can reach the service.
//!
//! The rule: hosts of a lab, which are all on this machine, reach each other's services and folders, but no service
//! outside the lab; other machines reach no service inside it.

use super::mistake::{FileError, Source};
use super::services::{ServiceEntry, ServicePlace};
use super::{Experiment, Target};
use crate::host::{HostName, Hosts};

/// A mistake in a service's host: what is wrong, and what would be correct.
type Wrong = (String, String);

impl Experiment {
    /// Names of the services that other hosts start, each with its host.
    pub fn remote_services(&self) -> Vec<(String, HostName)> {
        let hosts = self.hosts().unwrap_or_default();
        let place = |(name, service): (&String, &ServiceEntry)| {
            let host = self.host_of_service(service);
            hosts.is_remote(&host).then(|| (name.clone(), host))
        };
        self.services.iter().filter_map(place).collect()
    }

    /// Checks that every service is reachable from the services that wait for it, and from the hosts that open
    /// targets on it.
    pub(super) fn check_service_hosts(
        &self,
        source: &Source<'_>,
        hosts: &Hosts,
    ) -> Result<(), Box<FileError>> {
        for (name, service) in &self.services {
            if let Some((what, help)) = self.waits_for_unreached(service, hosts) {
                let path = ["services", name.as_str(), "after"];
                return Err(source.mistake(&path, format!("service {name}: {what}"), Some(help)));
            }
        }
        for name in self.targets.keys() {
            if let Some((what, help)) = self.opens_unreached(name, hosts) {
                let path = ["targets", name.as_str(), "url"];
                return Err(source.mistake(&path, format!("target {name}: {what}"), Some(help)));
            }
        }
        Ok(())
    }

    /// Whether programs on the host `from` reach services on the host `service`.
    fn reaches(&self, hosts: &Hosts, from: &HostName, service: &HostName) -> bool {
        let is_far = hosts.is_remote(service);
        match self.lab {
            Some(_) => is_far == hosts.is_remote(from),
            None => is_far || from == service,
        }
    }

    /// The mistake if a host does not reach this service.
    fn unreached(&self, from: &HostName, service: &str) -> Wrong {
        match self.lab {
            Some(_) => (
                format!(
                    "service {service} and host {from}: no route leads into the lab or out of it"
                ),
                "use hosts of the lab for both, or other machines for both".to_string(),
            ),
            None => (
                format!(
                    "service {service} listens on this machine's loopback, which host {from} cannot reach"
                ),
                format!("write host = a host of [hosts] for service {service}"),
            ),
        }
    }

    /// Why a service cannot wait for a service that its host does not reach.
    fn waits_for_unreached(&self, service: &ServiceEntry, hosts: &Hosts) -> Option<Wrong> {
        let host = self.host_of_service(service);
        let is_unreached = |other: &&String| {
            // An unknown service is reported elsewhere.
            self.services.get(*other).is_some_and(|entry| {
                let there = self.host_of_service(entry);
                entry.ready.port.is_some() && !self.reaches(hosts, &host, &there)
            })
        };
        let other = service.after.iter().find(is_unreached)?;
        Some(self.unreached(&host, other))
    }

    /// Why a host that opens a target cannot reach a service in the target's URL.
    fn opens_unreached(&self, name: &str, hosts: &Hosts) -> Option<Wrong> {
        let opened = self.as_opened(name).into_iter();
        let by = opened.flat_map(|(own, target)| match own {
            Some(host) => vec![(host, target)],
            None => self
                .requesters(name)
                .into_iter()
                .map(|host| (host, target.clone()))
                .collect(),
        });
        by.into_iter()
            .find_map(|(opener, target)| self.is_unreached_by(&opener, &target, hosts))
    }

    fn is_unreached_by(&self, opener: &HostName, target: &Target, hosts: &Hosts) -> Option<Wrong> {
        ServicePlace::all(&target.url).into_iter().find_map(|place| {
            let service = self.services.get(place.service())?;
            let host = self.host_of_service(service);
            let name = place.service();
            let is_reached = self.reaches(hosts, opener, &host);
            // All hosts of a lab are on this machine.
            let is_same_machine = match self.lab {
                Some(_) if !hosts.is_remote(&host) => is_reached,
                _ => *opener == host,
            };
            match place {
                ServicePlace::Address(_) if is_reached => None,
                ServicePlace::Address(_) => Some(self.unreached(opener, name)),
                ServicePlace::Folder(_) if is_same_machine => None,
                ServicePlace::Folder(_) if self.lab.is_some() && !is_reached => {
                    Some(self.unreached(opener, name))
                }
                ServicePlace::Folder(_) => Some((
                    format!("the folder of service {name} is on host {host}, but host {opener} opens the target"),
                    format!(
                        "write hosts = [\"{host}\"] for workloads on this target, or {{address:{name}}} in its url"
                    ),
                )),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{assert_mistake_at, changed};

    const TEXT: &str = r#"
name = "services on hosts"
[hosts.a]
ssh = "a"
[hosts.b]
ssh = "b"
[services.store]
command = ["nbdkit"]
host = "a"
ready = { port = 0 }
[services.mount]
command = ["mount"]
host = "b"
after = ["store"]
[services.here]
command = ["sleep", "1"]
after = ["mount"]
[targets.disk]
url = "nbd://{address:store}/"
workloads = ["here", "there"]
[targets.file]
url = "file:{folder:mount}/disk.img"
workloads = ["there"]
[workloads.here]
stop = { time = "9s" }
[workloads.there]
hosts = ["b"]
stop = { time = "9s" }
[[fault]]
service = "store"
kill = true
at = "1s"
for = "1s"
"#;

    /// All hosts reach services that other hosts start, and faults of these services need no `host`.
    #[test]
    fn services_may_be_on_other_hosts() {
        let experiment = Experiment::parse("x.toml", TEXT)
            .unwrap_or_else(|error| panic!("{}", error.one_line()));
        let place = |name: &str, host: &str| (name.to_string(), HostName::from(host));
        assert_eq!(
            experiment.remote_services(),
            [place("mount", "b"), place("store", "a")]
        );
        assert_eq!(experiment.reached_hosts(), ["a", "b"]);
        assert_eq!(
            Experiment::parse("x.toml", &experiment.written_out()).unwrap(),
            experiment
        );
        let own = changed(
            TEXT,
            "file:{folder:mount}/disk.img",
            "file:{folder:mount}/{client}.img",
        );
        assert!(Experiment::parse("x.toml", &own).is_ok());
    }

    #[test]
    fn what_is_not_reached_is_refused() {
        let check = |from: &str, to: &str, line: &str, said: &str| {
            assert_mistake_at(&changed(TEXT, from, to), line, said);
        };
        let here = |text: &str| {
            changed(
                text,
                "command = [\"nbdkit\"]\nhost = \"a\"\n",
                "command = [\"nbdkit\"]\n",
            )
        };
        let fault = "[[fault]]\nservice = \"store\"\nkill = true\nat = \"1s\"\nfor = \"1s\"\n";
        let whole = here(&changed(TEXT, fault, ""));
        assert_mistake_at(&whole, "after = [\"store\"]", "which host b cannot reach");
        let apart = changed(&whole, "after = [\"store\"]\n", "");
        assert_mistake_at(
            &apart,
            "url = \"nbd:",
            "loopback, which host b cannot reach",
        );
        assert_mistake_at(
            &here(TEXT),
            "[[fault]]",
            "a fault without a host is injected here",
        );
        let file = "workloads = [\"there\"]\n[workloads.here]";
        check(
            file,
            "workloads = [\"here\", \"there\"]\n[workloads.here]",
            "url = \"file:",
            "on host b, but host local opens",
        );
        let private = "host = \"a\"\nprivate = [\"/var/lib/x\"]\n";
        check(
            "host = \"a\"\n",
            private,
            "private =",
            "cannot be private without a lab",
        );
        check(
            "host = \"a\"\n",
            "host = \"c\"\n",
            "host =",
            "unknown host 'c'",
        );
        let file =
            "[targets.file]\nurl = \"file:{folder:mount}/disk.img\"\nworkloads = [\"there\"]\n";
        let there = "[workloads.there]\nhosts = [\"b\"]\nstop = { time = \"9s\" }\n";
        let near = changed(&changed(TEXT, file, ""), there, "")
            .replace("[\"here\", \"there\"]", "[\"here\"]");
        let slow = changed(&near, "kill = true\n", "disk = { requests = 20 }\n");
        assert_mistake_at(
            &slow,
            "service = \"store\"",
            "where disk faults are not supported",
        );
    }

    /// With a lab, services inside it serve workloads inside it, and services on other machines serve workloads on
    /// other machines.
    #[test]
    fn services_of_a_lab_and_of_other_machines_are_apart() {
        const BOTH: &str = r#"
name = "both"
[hosts.a]
ssh = "a"
[lab]
hosts = ["x", "y"]
[lab.links.wire]
between = ["x", "y"]
[services.far]
command = ["nbdkit"]
host = "a"
ready = { port = 0 }
[services.near]
command = ["nbdkit"]
host = "y"
ready = { port = 0 }
[services.last]
command = ["sleep", "1"]
host = "y"
after = ["near"]
[targets.far]
url = "nbd://{address:far}/"
workloads = ["far"]
[targets.near]
url = "nbd://{address:near}/"
workloads = ["near"]
[targets.folder]
url = "file:{folder:near}/disk"
workloads = ["near"]
[workloads.far]
hosts = ["a"]
stop = { time = "9s" }
[workloads.near]
stop = { time = "9s" }
"#;
        let experiment = Experiment::parse("x.toml", BOTH)
            .unwrap_or_else(|error| panic!("{}", error.one_line()));
        let far = ("far".to_string(), HostName::from("a"));
        assert_eq!(experiment.remote_services(), [far]);
        let check = |from: &str, to: &str, line: &str, said: &str| {
            assert_mistake_at(&changed(BOTH, from, to), line, said);
        };
        let apart = "no route leads into the lab or out of it";
        check(
            "nbd://{address:far}/",
            "nbd://{address:near}/",
            "url =",
            apart,
        );
        check(
            "file:{folder:near}",
            "file:{folder:far}",
            "url = \"file:",
            apart,
        );
        check("after = [\"near\"]", "after = [\"far\"]", "after =", apart);
        let private = "host = \"a\"\nprivate = [\"/var/lib/x\"]\n";
        check("host = \"a\"\n", private, "private =", "on a remote host");
    }
}
