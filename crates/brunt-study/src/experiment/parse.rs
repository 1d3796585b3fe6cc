//! Reads an experiment file with what it includes, and checks it.
//!
//! The rule: the first mistake is reported, and everything that can be checked without the devices is checked before any
//! of them is opened.

use brunt_block::CongestionError;
use brunt_probe::ProbesError;
use serde::Deserialize;

use super::mistake::{FileError, Source};
use super::{Experiment, REPETITIONS_MAX, Target, fault, hosts, include};
use crate::fault::FileMistake;

impl Experiment {
    /// Reads a file's text and what it includes, and checks everything that can be checked without its devices. `name`
    /// is the file's path: included files are resolved relative to it.
    ///
    /// # Errors
    /// The first mistake, with its position.
    pub fn parse(name: &str, text: &str) -> Result<Experiment, Box<FileError>> {
        Experiment::parse_with(name, text, &include::load)
    }

    pub(super) fn parse_with(
        name: &str,
        text: &str,
        load: include::Loader<'_>,
    ) -> Result<Experiment, Box<FileError>> {
        let texts = include::Texts::default();
        let source = include::read(name, text, &texts, load)?;
        let mut experiment = Experiment::deserialize(toml::de::Deserializer::from(source.root()))
            .map_err(|error| {
            let nearer = fault::unreadable(&source).or_else(|| hosts::unreadable(&source));
            nearer.unwrap_or_else(|| source.unreadable(&error, None))
        })?;
        experiment.read_files(&source)?;
        experiment.settle_faults(&source)?;
        experiment.settle_replays(&source);
        experiment.settle_intervals(&source);
        experiment.settle_hosts(&source);
        experiment.check(&source)?;
        Ok(experiment)
    }

    /// Reads the tables that links and their faults name, each relative to the file that names it.
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
        for (name, workload) in &self.workloads {
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
        let hosts = self.check_hosts(source)?;
        self.check_services(source, &hosts)?;
        self.check_remote(source, &hosts)?;
        self.check_service_hosts(source, &hosts)?;
        self.check_faults(source)?;
        self.check_performability(source)?;
        self.check_clients(source)?;
        self.check_sweep(source)?;
        self.check_phases(source)?;
        self.check_lab(source, &hosts)
    }

    /// Checks that there is something to measure, and the number of repetitions.
    fn check_basics(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        let nothing = |key: &str, example: &str| {
            let help = format!("add one, such as\n{example}");
            Err(source.mistake(&[key], format!("there are no {key}"), Some(help)))
        };
        let blocks = !self.targets.is_empty()
            || !self.workloads.is_empty()
            || self.entries().next().is_none();
        if blocks && self.targets.is_empty() {
            return nothing("targets", "[targets.disk]\nurl = \"memory:1GiB\"");
        }
        if blocks && self.workloads.is_empty() {
            return nothing(
                "workloads",
                "[workloads.random-read]\nstop = { time = \"10s\" }",
            );
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
            let unknown = |workload: &&String| !self.workloads.contains_key(*workload);
            if let Some(unknown) = target.workloads.iter().flatten().find(unknown) {
                let what = format!("target {name}: there is no workload {unknown}");
                let known: Vec<&str> = self.workloads.keys().map(String::as_str).collect();
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

    /// Checks that the kernel supports the congestion control. In a lab, every user may use any that the kernel has.
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
