//! `--require` and `--fail-undecided`, for the commands that run an experiment.

use std::collections::BTreeMap;

use brunt_result::require::{Requirement, RequirementVerdict};
use brunt_result::summary::Summary;
use brunt_study::experiment::Experiment;

/// Requirements on figures, in addition to those in the file.
#[derive(clap::Args)]
pub(super) struct RequireFlags {
    /// Require a figure at every point, such as 'p99 below 2ms' or 'write iops above 10000', in addition to the
    /// requirements in the file; exit with status 1 if one is not met. Can be repeated
    #[arg(long, value_name = "REQUIREMENT")]
    require: Vec<Requirement>,
    /// Also exit with status 1 if a requirement is undecided: its bound lies within the confidence interval, or there
    /// was only one run
    #[arg(long)]
    fail_undecided: bool,
}

impl RequireFlags {
    /// The requirements as text to append to an experiment file; empty if there are none.
    pub fn text(&self) -> String {
        if self.require.is_empty() {
            return String::new();
        }
        let table = BTreeMap::from([("require", &self.require)]);
        let text = toml::to_string(&table).expect("requirements can be serialized");
        format!("\n{text}")
    }

    /// Adds the requirements to an experiment and its text.
    pub fn add_to(&self, experiment: &mut Experiment, text: &mut String) {
        if self.require.is_empty() {
            return;
        }
        // In TOML, `[[…]]` tables can't be appended to a list that is written inline.
        let follows = experiment.require.is_empty();
        experiment.require.extend(self.require.iter().cloned());
        match follows {
            true => text.push_str(&self.text()),
            false => *text = experiment.written_out(),
        }
    }

    /// The requirements that the results don't meet, one per line.
    pub fn failed(&self, summary: &Summary) -> Vec<String> {
        let fails = |verdict| match verdict {
            RequirementVerdict::Met => false,
            RequirementVerdict::Missed => true,
            RequirementVerdict::Undecided => self.fail_undecided,
        };
        let failed = summary.requirements.iter().filter(|of| fails(of.verdict));
        failed
            .map(|outcome| format!("required of {outcome}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        required: RequireFlags,
    }

    const FILE: &str = "# a comment\nname = \"x\"\n[targets.t]\nurl = \"null:1MiB\"\n[workloads.w]\n\
                        stop = { time = \"1s\" }\n";
    const ITS_OWN: &str = "[[require]]\nfigure = \"max\"\nbelow = \"1s\"\n";

    /// The text of a file after applying these flags, and the experiment's requirements, which are also those that
    /// the text contains.
    fn with(file: &str, flags: &[&str]) -> (String, Vec<String>) {
        let words = std::iter::once(&"run").chain(flags);
        let required = Program::parse_from(words).required;
        let mut experiment = Experiment::parse("x.toml", file).unwrap();
        let mut text = file.to_string();
        required.add_to(&mut experiment, &mut text);
        let again = Experiment::parse("again.toml", &text).unwrap();
        assert_eq!(again.require, experiment.require, "{text}");
        let told = experiment.require.iter().map(ToString::to_string);
        (text, told.collect())
    }

    #[test]
    fn the_text_of_a_file_stays_as_it_is_without_flags() {
        for file in [FILE.to_string(), format!("{FILE}{ITS_OWN}")] {
            assert_eq!(with(&file, &[]).0, file);
        }
    }

    #[test]
    fn flags_come_after_what_the_file_requires() {
        let flag = ["--require", "p99 below 2ms"];
        let (text, told) = with(FILE, &flag);
        assert!(text.starts_with(FILE), "{text}");
        assert_eq!(told, ["p99 below 2ms"]);
        let inline = format!("require = [{{ figure = \"max\", below = \"1s\" }}]\n{FILE}");
        for file in [format!("{FILE}{ITS_OWN}"), inline] {
            assert_eq!(with(&file, &flag).1, ["max below 1s", "p99 below 2ms"]);
        }
    }
}
