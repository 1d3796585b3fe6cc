//! Loads that need no target, such as those on file systems. The rest of the experiment uses them only through
//! [`LoadEntry`].

use std::sync::Arc;

use brunt_core::Size;
use brunt_host::{Fleet, HostLoad};
use brunt_load::{Load, LoadEntry};

use super::Experiment;
use super::mistake::{FileError, Source};
use super::plan::{Draft, What};
use super::sweep::FILE_SIZE_AXIS;

/// One of the loads of a [`LoadEntry`], for the draft of a point.
#[derive(Clone)]
pub(super) struct EntryLoad {
    entry: Arc<dyn LoadEntry>,
    name: String,
    load: Arc<dyn Load>,
    fleet: Arc<Fleet>,
}

impl EntryLoad {
    /// The hosts that the entry runs on.
    pub(super) fn hosts(&self) -> &[String] {
        self.entry.hosts()
    }

    /// A copy of this load that runs on these hosts.
    pub(super) fn on_hosts(&self, hosts: Vec<String>) -> EntryLoad {
        let entry = self.entry.on_hosts(hosts);
        let same = entry
            .loads()
            .into_iter()
            .find(|(name, _)| *name == self.name);
        let (_, load) = same.expect("an entry has the same loads on any hosts");
        EntryLoad {
            entry,
            load,
            ..self.clone()
        }
    }

    /// The load to run; it runs on other hosts if the entry names any.
    pub(super) fn into_load(self) -> Arc<dyn Load> {
        if self.hosts().is_empty() {
            return self.load;
        }
        let load = self.load.hosted().expect("checked when the file was read");
        Arc::new(HostLoad::new(load, "".into(), false, self.fleet))
    }
}

impl Experiment {
    /// The drafts of all entries' loads, for each size of their files.
    pub(super) fn drafts_of_entries(&self, fleet: &Arc<Fleet>) -> Vec<Draft> {
        let mut drafts = Vec::new();
        for (target, entry) in self.workloads.own() {
            for (size, entry) in self.sized(entry) {
                for (name, load) in entry.loads() {
                    let what = What::Entry(EntryLoad {
                        entry: Arc::clone(&entry),
                        name: name.clone(),
                        load,
                        fleet: Arc::clone(fleet),
                    });
                    let axis = size.map(|size| (FILE_SIZE_AXIS.to_string(), size.to_string()));
                    let targets = vec![target.clone()];
                    let mut draft = self.draft(targets, entry.place(), &name, what);
                    draft.axes.extend(axis);
                    drafts.push(draft);
                }
            }
        }
        drafts
    }

    /// An entry at each value of the file-size axis; without that axis, or if the entry has no files, the entry as
    /// written.
    pub(super) fn sized(
        &self,
        entry: &Arc<dyn LoadEntry>,
    ) -> Vec<(Option<Size>, Arc<dyn LoadEntry>)> {
        let sizes = self.sweep.file_size.iter();
        let sized = sizes.filter_map(|size| Some((Some(*size), entry.with_file_size(*size)?)));
        let sized: Vec<_> = sized.collect();
        match sized.is_empty() {
            true => vec![(None, Arc::clone(entry))],
            false => sized,
        }
    }

    /// Checks each entry on its own, and that no target has the same name. In results, an entry's name takes the
    /// place of a target's name.
    pub(super) fn check_entries(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        for (name, entry) in self.workloads.own() {
            if let Err(error) = entry.check() {
                let path = ["workloads", name.as_str(), error.key];
                return Err(source.mistake(&path, format!("{}: {}", error.key, error.what), None));
            }
            if self.targets.contains_key(name) {
                let what = format!(
                    "{name} is both a target and a {}: results could not distinguish them",
                    entry.noun()
                );
                let help = Some("rename one of them".into());
                return Err(source.mistake(&["workloads", name], what, help));
            }
            let is_stuck = |load: Arc<dyn Load>| load.hosted().is_none();
            if !entry.hosts().is_empty()
                && entry.loads().into_iter().any(|(_, load)| is_stuck(load))
            {
                let what = format!("{} {name} cannot run on other hosts", entry.noun());
                let help = Some("omit hosts".into());
                return Err(source.mistake(&["workloads", name, "hosts"], what, help));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::{Experiment, assert_mistake_at, changed};
    use crate::study::describe;

    const TEXT: &str = r#"
name = "naps"
repetitions = 4
[hosts.a]
ssh = "root@a"
[hosts.b]
ssh = "root@b"
[beds.near]
naps = 3
[beds.far]
naps = 5
hosts = ["a", "b"]
"#;

    /// A load of a new kind is planned, described and run on other hosts like loads of the known kinds.
    #[test]
    fn an_entry_of_any_kind_is_planned_with_its_hosts() {
        let experiment = Experiment::parse("x.toml", TEXT)
            .unwrap_or_else(|error| panic!("{}", error.one_line()));
        let plan = experiment.plan();
        let labels: Vec<&str> = plan.points.iter().map(|point| &point.label[..]).collect();
        assert_eq!(labels, ["far nap", "near nap"]);
        assert_eq!(plan.points[0].hosts(), ["a", "b"]);
        assert!(plan.points[1].hosts().is_empty() && plan.fleet.is_some());
        let lines = describe(&experiment, &plan);
        for line in [
            "bed far: 5 naps per worker on a + b",
            "bed near: 3 naps per worker",
            "  near nap: 3 naps",
        ] {
            assert!(lines.iter().any(|one| one == line), "{line}: {lines:#?}");
        }
        let summary = experiment.summary();
        assert_eq!(summary.targets["near"].place, "bed");
        assert_eq!(summary.workloads["nap"].kind, "nap");
        let again = Experiment::parse("x.toml", &experiment.written_out()).unwrap();
        assert_eq!(again, experiment);
    }

    /// An entry of any kind can be in a phase, and a sweep over clients divides its hosts.
    #[test]
    fn an_entry_of_any_kind_is_swept() {
        let text = changed(TEXT, "[beds.near]\nnaps = 3\n", "");
        let text = format!("{text}[sweep]\nclients = [1, 2]\n[[phase]]\nworkloads = [\"far\"]\n");
        let experiment = Experiment::parse("x.toml", &text)
            .unwrap_or_else(|error| panic!("{}", error.one_line()));
        let points = experiment.plan().points;
        let hosts: Vec<String> = points.iter().map(|point| point.hosts().join("+")).collect();
        assert_eq!(hosts, ["a", "b", "a+b"]);
        assert!(points.iter().all(|point| point.phase == Some(0)));
    }

    #[test]
    fn mistakes_in_an_entry_of_any_kind_have_their_line() {
        let check = |from: &str, to: &str, at: &str, said: &str| {
            assert_mistake_at(&changed(TEXT, from, to), at, said);
        };
        check("naps = 3", "naps = 0", "naps = 0", "at least one nap");
        check("naps = 3", "nap = 3", "nap = 3", "did you mean naps?");
        let (from, to) = ("\"a\", \"b\"]", "\"a\", \"c\"]");
        check(from, to, "hosts =", "unknown host 'c'");
        let target = "[filesystems.near]\ndirectory = \"/tmp\"\n[beds.near]";
        let said = "near is in both [filesystems] and [beds]";
        check("[beds.near]", target, "[beds.near]", said);
        let sizes = format!("{TEXT}[sweep]\nfile_size = [\"1MiB\"]\n");
        assert_mistake_at(&sizes, "file_size", "file_size is swept");
        let clients = format!("{TEXT}[sweep]\nclients = [1]\n");
        assert_mistake_at(&clients, "clients", "bed near names no hosts");
    }
}
