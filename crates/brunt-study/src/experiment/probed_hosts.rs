//! The other hosts whose counters are sampled during runs, the hosts that act as bridges, and
//! checks that they can do so.

use super::Experiment;
use super::mistake::{FileError, Source};
use crate::host::{BridgeHost, HostName, Hosts};

impl Experiment {
    /// The other hosts to sample: those that `[probes]` names; otherwise all other hosts.
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

    /// Checks that the hosts named for sampling exist, are remote hosts and are listed only once.
    pub(super) fn check_probed(
        &self,
        source: &Source<'_>,
        hosts: &Hosts,
    ) -> Result<(), Box<FileError>> {
        for (index, host) in self.probes.hosts.iter().flatten().enumerate() {
            let place = index.to_string();
            let path = ["probes", "hosts", place.as_str()];
            let name = HostName::from(host.as_str());
            hosts
                .find(&name)
                .map_err(|error| source.mistake(&path, error.to_string(), None))?;
            if !hosts.is_remote(&name) {
                let what =
                    format!("host '{host}' is not a remote host; this machine is recorded anyway");
                let help = match self.lab {
                    Some(_) => {
                        "omit it: with a lab, the network of each host is recorded under the host's \
                         name, and the rest of this machine as local"
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
        self.check_bridges(source, hosts)
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
                let what = format!(
                    "'{path}' depends on the directory in which the agent of host {host} was started"
                );
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
}
