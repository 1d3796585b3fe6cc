//! Checks the names in experiment files, which appear in tables, progress lines and logs. Called by the check of the
//! file.
//!
//! The rule: a name is one line and is displayed in the order in which it is written.

use crate::plain::moves_text;

use super::Experiment;
use super::mistake::{FileError, Source};

impl Experiment {
    /// Refuses names with line ends, other control characters, or characters that change the direction of text.
    pub(super) fn check_names(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        let keys = [
            ("targets", self.targets.keys().collect::<Vec<&String>>()),
            ("workloads", self.workloads.names().collect()),
        ];
        let named = keys.iter().flat_map(|(table, names)| {
            names
                .iter()
                .map(|name| (vec![*table, name.as_str()], *name))
        });
        let written = self.fault.iter().filter(|fault| fault.is_written());
        let faults: Vec<(String, _)> = (0..)
            .map(|index: usize| index.to_string())
            .zip(written)
            .collect();
        let faults = faults.iter();
        let faults = faults
            .map(|(index, fault)| (vec!["fault", index.as_str(), "name"], &fault.common.name));
        let names = [(vec!["name"], &self.name)].into_iter();
        let mut names = names.chain(named).chain(faults);
        match names.find(|(_, name)| name.chars().any(moves_text)) {
            None => Ok(()),
            Some((path, name)) => {
                let what = format!(
                    "{name:?} contains characters that end a line or change the direction of text"
                );
                Err(source.mistake(&path, what, Some("leave them out".into())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lines_that_read_as_written() {
        let check_with = |name: &str, target: &str, fault: &str, is_good: bool| {
            let text = format!(
                "name = {name:?}\n[targets.{target:?}]\nurl = \"null:1MiB\"\n[workloads.w]\nstop = {{ time = \"1s\" }}\n\
                 [[fault]]\ntarget = {target:?}\nname = {fault:?}\nstorage = \"slow:1ms\"\n"
            );
            let text = text.replace("\\u{202e}", "\\u202e");
            let read = Experiment::parse("x.toml", &text);
            assert_eq!(read.is_ok(), is_good, "{text}");
        };
        let check =
            |name: &str, target: &str, is_good: bool| check_with(name, target, "slow", is_good);
        check_with("test", "disk", "slow\nfast", false);
        check("test", "disk 1", true);
        check("Prüfung", "диск", true);
        check("two\nlines", "disk", false);
        check("test", "disk\nw", false);
        check("test", "disk\u{202e}w", false);
    }
}
