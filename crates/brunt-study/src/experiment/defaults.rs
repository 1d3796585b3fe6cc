//! Defaults that changed: what to set in an experiment written for an older Brunt so that it keeps its meaning.
//!
//! The rule: a note names the key, its old and new meaning, and the value for each meaning.

use brunt_load::Workload;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Experiment, Target};

/// Versions whose defaults differ.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum DefaultsVersion {
    /// The first version.
    #[serde(rename = "0.1")]
    V0_1,
    /// Random requests start at multiples of the block size, and writes complete in the device's cache.
    #[serde(rename = "0.2")]
    V0_2,
}

impl DefaultsVersion {
    /// The defaults of this version.
    pub const NOW: DefaultsVersion = DefaultsVersion::V0_2;

    /// The key `written_for` with this program's version, as a line of an experiment file.
    pub const NOW_LINE: &'static str = "written_for = \"0.2\"";
}

/// The alignment of random offsets before Brunt 0.2, in bytes.
const OLD_ALIGN_BYTES: u64 = 512;

impl Experiment {
    /// Returns a note for each changed default that this experiment relies on, followed by how to hide them; none if
    /// it sets the keys itself or was written for the defaults of this version.
    pub fn changed_defaults(&self) -> Vec<String> {
        if self.written_for == Some(DefaultsVersion::NOW) {
            return Vec::new();
        }
        let aligned = |(_, workload): &(&String, &Workload)| relies_on_align(workload, self);
        let workloads: Vec<&str> = self
            .workloads
            .on_targets()
            .filter(aligned)
            .map(|(name, _)| name.as_str())
            .collect();
        let mut notes = Vec::new();
        if !workloads.is_empty() {
            notes.push(format!(
                "{}: random requests start at multiples of the block size (at multiples of 512 bytes before Brunt 0.2); \
                 set 'align' to choose: align = \"512\" is the old behaviour",
                workloads.join(", ")
            ));
        }
        let targets: Vec<&str> = self
            .targets
            .iter()
            .filter(|(name, target)| self.relies_on_write_back(name, target))
            .map(|(name, _)| name.as_str())
            .collect();
        if !targets.is_empty() {
            notes.push(format!(
                "{}: writes complete in the device's cache (on stable storage before Brunt 0.2); set 'write_back' in the \
                 url, or 'sync' in the workload, to choose: write_back=no is the old behaviour",
                targets.join(", ")
            ));
        }
        if !notes.is_empty() {
            notes.push(format!(
                "if these defaults are intended, write {} at the top of the experiment to hide these notes",
                DefaultsVersion::NOW_LINE
            ));
        }
        notes
    }

    /// Whether a target is a file or block device for which neither the URL nor any writing workload sets when writes
    /// complete.
    fn relies_on_write_back(&self, name: &str, target: &Target) -> bool {
        let writes = |(workload_name, workload): (&String, &Workload)| {
            let named = target.workloads.as_ref();
            let runs = named.is_none_or(|names| names.contains(workload_name));
            runs && workload.describes_blocks()
                && workload.changes_data()
                && workload.sync.is_none()
        };
        let is_file = target.url.starts_with("file:") || target.url.starts_with('/');
        let is_open = target.serve.is_none() && is_file && !target.url.contains("write_back=");
        let jobs = self.workloads.groups().flat_map(|(_, group)| &group.jobs);
        let mut jobs = jobs.filter(|job| job.target == name).map(|job| {
            let workload = self.workloads.on_target(&job.workload);
            workload.is_some_and(|workload| writes((&job.workload, workload)))
        });
        is_open && (self.workloads.on_targets().any(writes) || jobs.any(|writes| writes))
    }
}

/// Whether a workload's offsets differ from those that older versions chose.
fn relies_on_align(workload: &Workload, experiment: &Experiment) -> bool {
    let sizes = &experiment.sweep.block_size;
    let changes = match sizes.is_empty() {
        true => workload.align_bytes() != OLD_ALIGN_BYTES,
        false => sizes.iter().any(|size| size.0 != OLD_ALIGN_BYTES),
    };
    workload.align.is_none() && workload.describes_blocks() && workload.sequential < 1.0 && changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(target: &str, workload: &str) -> Vec<String> {
        let text = format!(
            "name = \"n\"\n[targets.d]\n{target}\n[workloads.w]\n{workload}\nstop = {{ time = \"1s\" }}\n"
        );
        let experiment = Experiment::parse("n.toml", &text).unwrap();
        experiment.changed_defaults()
    }

    #[test]
    fn a_changed_default_is_reported_with_its_key() {
        let file = "url = \"file:/tmp/x?size=1MiB&create=yes\"";
        assert!(matches!(&notes(file, "")[..], [align, _] if align.contains("align")));
        let both = notes(file, "read = 0.5");
        assert!(
            both[0].contains("align") && both[1].contains("write_back=no"),
            "{both:?}"
        );
    }

    /// The last note says how to hide the notes, and following it hides them.
    #[test]
    fn an_experiment_written_for_these_defaults_gets_no_note() {
        let text = "name = \"n\"\n[targets.d]\nurl = \"file:/tmp/x\"\n[workloads.w]\nstop = { time = \"1s\" }\n";
        let notes = |line: &str| {
            let text = format!("{line}\n{text}");
            Experiment::parse("n.toml", &text)
                .unwrap()
                .changed_defaults()
        };
        let old = notes("");
        assert_eq!(notes("written_for = \"0.1\""), old);
        let line = DefaultsVersion::NOW_LINE;
        assert!(
            old.last().is_some_and(|last| last.contains(line)),
            "{old:?}"
        );
        assert_eq!(notes(line), [""; 0]);
        let now = serde_json::to_string(&DefaultsVersion::NOW).unwrap();
        assert_eq!(line, format!("written_for = {now}"));
        let unknown = Experiment::parse("n.toml", &format!("written_for = \"later\"\n{text}"));
        let error = unknown.unwrap_err();
        let help = error.help_text().unwrap_or_default();
        assert!(help.contains("0.1") && help.contains("0.2"), "{error}");
    }

    #[test]
    fn an_experiment_that_sets_the_keys_gets_no_note() {
        let none: [String; 0] = [];
        let (file, stable) = (
            "url = \"file:/tmp/x\"",
            "url = \"file:/tmp/x?write_back=no\"",
        );
        assert_eq!(notes(file, "align = \"4k\""), none);
        assert_eq!(notes(file, "blocks = [{ size = \"512\" }]"), none);
        assert_eq!(notes(file, "sequential = 1.0"), none);
        assert_eq!(notes(stable, "align = \"4k\"\nread = 0.0"), none);
        assert_eq!(
            notes(file, "align = \"4k\"\nread = 0.0\nsync = \"dsync\""),
            none
        );
        for chosen in ["sync = \"none\"", "force_unit_access = false"] {
            let workload = format!("align = \"4k\"\nread = 0.0\n{chosen}");
            assert_eq!(notes(file, &workload), none, "{chosen}");
        }
        assert_eq!(
            notes("url = \"null:1MiB\"", "align = \"4k\"\nread = 0.0"),
            none
        );
        assert_eq!(
            notes("serve = \"memory:1MiB\"", "align = \"4k\"\nread = 0.0"),
            none
        );
    }
}
