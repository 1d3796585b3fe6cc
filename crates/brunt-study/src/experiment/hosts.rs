//! Resolves the host names in an experiment file: each name is looked up in [`Hosts`], and a
//! mistake is reported at its key.

use toml::Spanned;
use toml::de::DeValue;

use super::Experiment;
use super::mistake::{FileError, Source};
use crate::host::{HostMistake, HostName, HostSettings, Hosts};

/// The first `[hosts.NAME]` that cannot be read, as a mistake at its key.
pub(super) fn unreadable(source: &Source<'_>) -> Option<Box<FileError>> {
    let root = source.root();
    let (_, hosts) = root
        .get_ref()
        .iter()
        .find(|(key, _)| key.get_ref() == "hosts")?;
    let DeValue::Table(hosts) = hosts.get_ref() else {
        return None;
    };
    hosts.iter().find_map(|(_, host)| {
        let DeValue::Table(keys) = host.get_ref() else {
            return None;
        };
        let (place, error) = HostSettings::read(Spanned::new(host.span(), keys.clone())).err()?;
        Some(source.unreadable(&error, place))
    })
}

impl Experiment {
    /// Looks up every named host; faults look up their own hosts.
    pub(super) fn check_hosts(&self, source: &Source<'_>) -> Result<Hosts, Box<FileError>> {
        let hosts = self.hosts().map_err(|HostMistake { path, what, help }| {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            source.mistake(&path, what, Some(help))
        })?;
        for (path, name) in self.named_hosts() {
            let help = self
                .lab
                .is_none()
                .then(|| "add [lab] with hosts and links".to_string());
            hosts
                .find(name)
                .map_err(|error| source.mistake(&path, error.to_string(), help))?;
        }
        Ok(hosts)
    }

    /// The keys that name hosts, in the order in which mistakes are easiest to understand.
    fn named_hosts(&self) -> Vec<(Vec<&str>, &HostName)> {
        let mut named = Vec::new();
        if let Some(lab) = &self.lab {
            named.extend(lab.worker.iter().map(|name| (vec!["lab", "worker"], name)));
            named.extend(
                lab.cores
                    .keys()
                    .map(|name| (vec!["lab", "cores", name.as_str()], name)),
            );
            for (link, entry) in &lab.links {
                let ends = ["0", "1"].into_iter().zip(&entry.between);
                named.extend(
                    ends.map(|(end, name)| (vec!["lab", "links", link, "between", end], name)),
                );
            }
        }
        for (target, entry) in &self.targets {
            named.extend(
                entry
                    .host
                    .iter()
                    .map(|name| (vec!["targets", target.as_str(), "host"], name)),
            );
        }
        named
    }
}
