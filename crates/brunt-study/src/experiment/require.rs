//! Checks the names in `[[require]]`. `brunt_result::require` defines what a requirement means.

use super::Experiment;
use super::mistake::{FileError, Source};

impl Experiment {
    /// Checks that each requirement names an existing target and workload.
    pub(super) fn check_requirements(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        if self.require.is_empty() {
            return Ok(());
        }
        let summary = self.summary();
        let targets: Vec<&str> = summary.targets.keys().map(String::as_str).collect();
        let workloads: Vec<&str> = summary.workloads.keys().map(String::as_str).collect();
        for (index, requirement) in self.require.iter().enumerate() {
            let named = [
                ("target", requirement.target(), &targets),
                ("workload", requirement.workload(), &workloads),
            ];
            for (key, name, known) in named {
                let Some(name) = name.filter(|name| !known.contains(name)) else {
                    continue;
                };
                let what = format!("no {key} named '{name}'; available: {}", known.join(", "));
                return Err(source.mistake(&["require", &index.to_string(), key], what, None));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "name = \"x\"\n[targets.disk]\nurl = \"memory:1MiB\"\n[workloads.w]\n\
                        stop = { time = \"1s\" }\n[[require]]\n";

    fn mistake(require: &str) -> String {
        let error = Experiment::parse("x.toml", &format!("{FILE}{require}")).unwrap_err();
        error.one_line()
    }

    #[test]
    fn requirements_are_read_and_kept_with_the_results() {
        let text = format!("{FILE}figure = \"p99\"\nbelow = \"2ms\"\nworkload = \"w\"\n");
        let experiment = Experiment::parse("x.toml", &text).unwrap();
        assert_eq!(experiment.require[0].to_string(), "p99 below 2ms");
        let again = Experiment::parse("again.toml", &experiment.summary().toml).unwrap();
        assert_eq!(again.require, experiment.require);
    }

    #[test]
    fn mistakes_name_the_line_and_what_there_is() {
        let found = mistake("figure = \"p99\"\nbelow = \"2ms\"\nworkload = \"v\"\n");
        assert_eq!(found, "x.toml:9: no workload named 'v'; available: w");
        let found = mistake("figure = \"p99\"\nbelow = \"2ms\"\ntarget = \"d\"\n");
        assert_eq!(found, "x.toml:9: no target named 'd'; available: disk");
        assert!(mistake("figure = \"p100\"\nbelow = \"2ms\"\n").contains("no figure named 'p100'"));
        assert!(mistake("figure = \"p99\"\n").contains("either below or above"));
        assert!(mistake("figure = \"p99\"\nbelow = true\n").contains("its unit such as \"2ms\""));
    }
}
