//! `--profile`: adds a CPU profile to an experiment.
//!
//! The rule: the experiment that is saved with the results also has the profile.

use brunt_study::experiment::Experiment;

/// `--profile`.
#[derive(Debug, clap::Args)]
pub(super) struct ProfileFlag {
    /// Record where CPU time is spent: user, system and interrupt time and the hottest functions of worker and
    /// targets, with a flame graph in the report. Needs root or CAP_PERFMON; profile.hz in the file sets the rate
    #[arg(long)]
    profile: bool,
}

impl ProfileFlag {
    /// The table to append to an experiment file; empty without the flag.
    pub fn text(&self) -> &'static str {
        if self.profile { "\n[profile]\n" } else { "" }
    }

    /// Adds a profile to an experiment that has none, and to its text.
    pub fn add_to(&self, experiment: &mut Experiment, text: &mut String) {
        if self.profile && experiment.profile.is_none() {
            experiment.profile = Some(Default::default());
            text.push_str(self.text());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str =
        "name = \"x\"\n[targets.t]\nurl = \"null:1MiB\"\n[workloads.w]\nstop = { time = \"1s\" }";

    /// Parsing the saved text yields the changed experiment.
    #[test]
    fn the_saved_text_has_the_profile() {
        for (file, profile) in [
            (FILE.to_string(), true),
            (FILE.to_string(), false),
            (format!("{FILE}\n[profile]\nhz = 49\n"), true),
        ] {
            let mut experiment = Experiment::parse("x.toml", &file).unwrap();
            let before = experiment.profile;
            let mut text = file.clone();
            ProfileFlag { profile }.add_to(&mut experiment, &mut text);
            assert_eq!(Experiment::parse("x.toml", &text).unwrap(), experiment);
            assert_eq!(experiment.profile.is_some(), profile || before.is_some());
            assert!(before.is_none() || experiment.profile == before);
        }
    }
}
