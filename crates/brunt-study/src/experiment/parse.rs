//! Reads an experiment file and everything that it includes, and checks it.
//!
//! The rule: the first mistake is reported, and everything that can be checked without the devices is checked before any
//! of them is opened.

use brunt_block::CongestionError;
use brunt_probe::ProbesError;
use brunt_profile::HZ_MAX;
use serde::Deserialize;

use super::mistake::{FileError, Source};
use super::wording::unknown_key;
use super::{Experiment, REPETITIONS_MAX, Target, fault, hosts, include, workloads};
use crate::fault::FileMistake;

impl Experiment {
    /// Reads a file and everything that it includes, and checks all that can be checked without its devices. `name`
    /// is the file's path: included files are resolved relative to it.
    ///
    /// # Errors
    /// Returns the first mistake, with its position.
    pub fn parse(name: &str, text: &str) -> Result<Experiment, Box<FileError>> {
        Experiment::parse_with(name, text, &include::load)
    }

    pub(super) fn parse_with(
        name: &str,
        text: &str,
        load: include::Loader<'_>,
    ) -> Result<Experiment, Box<FileError>> {
        let texts = include::Texts::default();
        let mut source = include::read(name, text, &texts, load)?;
        workloads::gather(&mut source)?;
        let mut root = source.root();
        let (kinds, stated) = workloads::read_kinds(root.get_mut(), &source)?;
        let experiment = Experiment::deserialize(toml::de::Deserializer::from(root));
        let mut experiment = experiment.map_err(|error| {
            let nearer = fault::unreadable(&source).or_else(|| hosts::unreadable(&source));
            let nearer = nearer.or_else(|| unknown_table(&source));
            nearer.unwrap_or_else(|| source.unreadable(&error, None))
        })?;
        experiment.workloads.extend(kinds);
        experiment.check_kinds(&source, &stated)?;
        experiment.read_files(&source)?;
        experiment.settle_faults(&source)?;
        experiment.settle_replays(&source);
        experiment.settle_intervals(&source);
        experiment.settle_hosts(&source);
        experiment.check(&source)?;
        Ok(experiment)
    }

    /// Reads the jitter tables of links and of link faults; paths are relative to the file that contains them.
    fn read_files(&mut self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        for (link, entry) in self.lab.iter_mut().flat_map(|lab| &mut lab.links) {
            let whole = |key: &[&'static str]| [&["lab", "links", link.as_str()], key].concat();
            let read = entry.read_files(&|key| source.folder(&whole(key)));
            read.map_err(|(key, error)| {
                source.mistake(&whole(key), format!("distribution: {error}"), None)
            })?;
        }
        for (index, fault) in self.fault.iter_mut().enumerate() {
            let place = index.to_string();
            let read = fault
                .kind
                .as_kind_mut()
                .read_files(&|key| source.folder(&[&["fault", place.as_str()], key].concat()));
            read.map_err(|FileMistake { key, what }| {
                let what = format!("fault {}: {what}", index + 1);
                source.mistake(&[&["fault", place.as_str()], key].concat(), what, None)
            })?;
        }
        Ok(())
    }

    fn check(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        self.check_basics(source)?;
        self.check_names(source)?;
        self.check_precision(source)?;
        self.check_congestion(source)?;
        self.check_targets(source)?;
        for (name, workload) in self.workloads.on_targets() {
            if let Err(error) = workload.check() {
                let mut path = vec!["workloads", name.as_str()];
                path.extend(error.key.split('.'));
                return Err(source.mistake(&path, format!("{}: {}", error.key, error.what), None));
            }
        }
        self.check_replays(source)?;
        self.check_own_targets(source)?;
        self.check_together(source)?;
        self.check_requirements(source)?;
        self.check_entries(source)?;
        if let Err(ProbesError { key, what }) = self.probes.check() {
            return Err(source.mistake(&["probes", key], what, None));
        }
        if let Some(profile) = self.profile.filter(|profile| !profile.is_valid()) {
            let what = format!("{} samples per second; write 1 to {HZ_MAX}", profile.hz);
            return Err(source.mistake(&["profile", "hz"], what, None));
        }
        let hosts = self.check_hosts(source)?;
        self.check_host_links(source, &hosts)?;
        self.check_services(source, &hosts)?;
        self.check_remote(source, &hosts)?;
        self.check_service_hosts(source, &hosts)?;
        self.check_faults(source)?;
        self.check_performability(source)?;
        self.check_clients(source)?;
        self.check_sweep(source)?;
        self.check_phases(source)?;
        self.check_lab(source, &hosts)?;
        self.check_swept_host_links(source)
    }

    /// Checks that there is something to measure, and that the number of repetitions is valid.
    fn check_basics(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        let is_empty = workloads::none_on_targets(&self.workloads);
        let blocks = !self.targets.is_empty() || !is_empty || self.workloads.own().next().is_none();
        if blocks && self.targets.is_empty() {
            let help = "add one, such as\n[targets.disk]\nurl = \"memory:1GiB\"".to_string();
            return Err(source.mistake(&["targets"], "there are no targets".into(), Some(help)));
        }
        if blocks && is_empty {
            let what = "no workload sends requests to the targets".to_string();
            let help = "add one, such as\n[workloads.random-read]\nstop = { time = \"10s\" }";
            return Err(source.mistake(&["workloads"], what, Some(help.to_string())));
        }
        if !(1..=REPETITIONS_MAX).contains(&self.repetitions) {
            let what = format!(
                "{} repetitions; write 1 to {REPETITIONS_MAX}",
                self.repetitions
            );
            return Err(source.mistake(&["repetitions"], what, None));
        }
        Ok(())
    }

    /// Checks the targets, and the URLs that may be overwritten.
    fn check_targets(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        for (name, target) in &self.targets {
            if let Err((key, what, help)) = target.check() {
                return Err(source.mistake(
                    &["targets", name, key],
                    format!("target {name}: {what}"),
                    help,
                ));
            }
        }
        self.check_workloads_of_targets(source)?;
        for url in &self.allow_overwrite {
            if !self.targets.values().any(|target| target.place() == url) {
                let urls: Vec<&str> = self.targets.values().map(Target::place).collect();
                let what = format!(
                    "allow_overwrite names {url}, which is not a target of this experiment"
                );
                let help = format!("the targets' URLs are {}", urls.join(", "));
                return Err(source.mistake(&["allow_overwrite"], what, Some(help)));
            }
        }
        Ok(())
    }

    /// Checks that the workloads that targets list exist.
    fn check_workloads_of_targets(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        for (name, target) in &self.targets {
            let unknown = |workload: &&String| self.workloads.on_target(workload).is_none();
            if let Some(unknown) = target.workloads.iter().flatten().find(unknown) {
                let what = match self.workloads.names().any(|name| name == unknown) {
                    true => format!("target {name}: {unknown} sends no requests to targets"),
                    false => format!("target {name}: no workload named {unknown}"),
                };
                let known = self.workloads.on_targets();
                let known: Vec<&str> = known.map(|(name, _)| name.as_str()).collect();
                let help = Some(format!("available: {}", known.join(", ")));
                return Err(source.mistake(&["targets", name, "workloads"], what, help));
            }
            if target.workloads.as_ref().is_some_and(Vec::is_empty) && !self.is_of_a_group(name) {
                let what = format!("target {name} has no workload");
                return Err(source.mistake(&["targets", name, "workloads"], what, None));
            }
        }
        Ok(())
    }

    /// Checks that the kernel supports the congestion control. In a lab, every user may use any algorithm that the
    /// kernel has.
    fn check_congestion(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        let Some(congestion) = self.congestion else {
            return Ok(());
        };
        match congestion.check() {
            Err(CongestionError::Forbidden { .. }) if self.lab.is_some() => Ok(()),
            Err(error) => Err(source.mistake(
                &["congestion"],
                format!("congestion: {error}"),
                error.advice(),
            )),
            Ok(()) => Ok(()),
        }
    }
}

/// The first unknown key at the top level of the file. The deserializer doesn't know the tables of load kinds, so it
/// can't find unknown ones.
fn unknown_table(source: &Source<'_>) -> Option<Box<FileError>> {
    let schema = Experiment::schema();
    let known = schema.get("properties")?.as_object()?;
    let known: Vec<&str> = known.keys().map(String::as_str).collect();
    let root = source.root();
    let mut keys = root.get_ref().keys();
    let unknown = keys.find(|key| !known.contains(&key.get_ref().as_ref()))?;
    let (what, help) = unknown_key(unknown.get_ref(), &known);
    Some(source.mistake_at(Some(unknown.span()), what, help))
}

#[cfg(test)]
mod tests {
    use crate::experiment::{Experiment, assert_mistake_at};

    const PROFILED: &str = "name = \"x\"\n[targets.t]\nurl = \"null:1MiB\"\n[workloads.w]\nstop = { time = \"1s\" }\n\
                            [profile]\n";

    /// An empty table switches the profile on; its sampling rate has limits.
    #[test]
    fn the_rate_of_a_profile_has_limits() {
        let hz = |text: &str| {
            Experiment::parse("x.toml", text)
                .unwrap()
                .profile
                .unwrap()
                .hz
        };
        assert_eq!(hz(PROFILED), 199);
        for good in [1, 5000] {
            assert_eq!(hz(&format!("{PROFILED}hz = {good}")), good);
        }
        for bad in ["0", "5001"] {
            let text = format!("{PROFILED}hz = {bad}");
            assert_mistake_at(&text, "hz", "samples per second; write 1 to 5000");
        }
    }
}
