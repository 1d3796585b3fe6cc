//! The experiments in `examples/` that need no files and no remote host, as starting points on the page. One line per
//! experiment.

use serde::Serialize;

/// An example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ShippedExample {
    /// The file name without the extension.
    pub name: &'static str,
    /// The experiment's name.
    pub title: &'static str,
    /// The file's contents.
    pub text: &'static str,
}

macro_rules! examples {
    ($($name:literal,)*) => {
        /// Names and texts, simplest first.
        static FILES: &[(&str, &str)] = &[$(
            ($name, include_str!(concat!("../../../../examples/", $name, ".toml"))),
        )*];
    };
}

examples! {
    "quick",
    "emulated-arrays",
    "block-sizes",
    "open-loop",
    "clients",
    "stall",
    "far-away",
    "apart",
    "lab-wan",
    "spek-figure-8",
    "spek-figure-9",
}

/// All examples.
pub fn examples() -> Vec<ShippedExample> {
    let example = |(name, text): &(&'static str, &'static str)| ShippedExample {
        name,
        title: title(text).unwrap_or(name),
        text,
    };
    FILES.iter().map(example).collect()
}

/// The experiment name in a file.
fn title(text: &str) -> Option<&str> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("name = \""))?;
    line.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use brunt_study::experiment::Experiment;

    use super::*;

    /// Every example works, wherever the server was started.
    #[test]
    fn every_example_works_wherever_the_server_was_started() {
        let nowhere = tempfile::tempdir().expect("a folder");
        for example in examples() {
            let name = nowhere.path().join("experiment.toml").display().to_string();
            let experiment = Experiment::parse(&name, example.text);
            let experiment = experiment.unwrap_or_else(|error| panic!("{}", error.one_line()));
            assert_eq!(experiment.name, example.title);
            assert!(
                experiment.include.is_none(),
                "{} needs another file",
                example.name
            );
            assert!(
                experiment
                    .hosts()
                    .is_ok_and(|hosts| hosts.places().is_empty()),
                "{}",
                example.name
            );
            assert!(experiment.allow_overwrite.is_empty(), "{}", example.name);
        }
    }
}
