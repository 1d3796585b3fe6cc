//! What differs between compared results apart from their figures: keys of the experiments, what the targets
//! reported, the program's version and the machine. `brunt compare` prints it first, and the comparison page starts
//! with it.
//!
//! The rule: only what results recorded is compared. Experiments in results contain no secrets, so the differences
//! contain none either.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use brunt_lake::{LakeError, read_table};
use brunt_result::summary::Summary;
use brunt_result::tables::environment;
use serde::Serialize;

use crate::page::{Cell, PageTable, Section};

/// Maximum number of rows on the page.
const ROWS_MAX: usize = 200;

/// A fact about the machine, the program or a target, as recorded in the table `environment`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentFact {
    /// `machine`, `brunt`, `experiment`, or `target` and its name.
    pub subject: String,
    /// Name of the fact, such as `kernel`.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// Reads a result's recorded environment; the second list names damaged parts, which are left out.
///
/// # Errors
/// The table cannot be read.
pub fn read_environment(
    folder: &Path,
) -> Result<(Vec<EnvironmentFact>, Vec<LakeError>), LakeError> {
    let mut facts = Vec::new();
    let damaged = read_table(folder, &environment::TABLE, |batch| {
        let keys = batch.texts("subject").zip(batch.texts("key"));
        let rows = keys.zip(batch.texts("value"));
        facts.extend(rows.map(|((subject, key), value)| EnvironmentFact {
            subject: subject.into(),
            key: key.into(),
            value: value.into(),
        }));
    })?;
    Ok((facts, damaged))
}

/// What a difference is about; differences are listed in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DifferenceSubject {
    /// A key of the experiment.
    Experiment,
    /// What a target reported, or where the target is.
    Target,
    /// The program.
    Program,
    /// The machine.
    Machine,
}

impl DifferenceSubject {
    /// The subject's name in tables.
    pub fn word(self) -> &'static str {
        match self {
            DifferenceSubject::Experiment => "experiment",
            DifferenceSubject::Target => "target",
            DifferenceSubject::Program => "program",
            DifferenceSubject::Machine => "machine",
        }
    }
}

/// Something that differs between compared results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResultDifference {
    /// What the difference is about.
    pub about: DifferenceSubject,
    /// Path of the key, such as `workloads.oltp.queue_depth`, or name of the fact.
    pub name: String,
    /// Its value in each result; `None` where the result lacks it.
    pub values: Vec<Option<String>>,
}

/// A result and its environment.
pub type WithEnvironment<'a> = (&'a Summary, &'a [EnvironmentFact]);

type Facts = BTreeMap<(DifferenceSubject, String), String>;

/// What differs between results, grouped by subject.
pub fn differences(results: &[WithEnvironment<'_>]) -> Vec<ResultDifference> {
    let facts: Vec<Facts> = results.iter().map(facts_of).collect();
    let keys: BTreeSet<&(DifferenceSubject, String)> =
        facts.iter().flat_map(BTreeMap::keys).collect();
    let is_everywhere = |about: DifferenceSubject| {
        let mut each = facts.iter();
        each.all(|facts| facts.keys().any(|(of, _)| *of == about))
    };
    let recorded: BTreeSet<DifferenceSubject> = keys
        .iter()
        .map(|(about, _)| *about)
        // A machine that isn't recorded doesn't count as a different one.
        .filter(|about| *about != DifferenceSubject::Machine || is_everywhere(*about))
        .collect();
    let found = keys.into_iter().filter_map(|key| {
        let values: Vec<Option<&String>> = facts.iter().map(|facts| facts.get(key)).collect();
        let differ = values.windows(2).any(|pair| pair[0] != pair[1]);
        (differ && recorded.contains(&key.0)).then(|| ResultDifference {
            about: key.0,
            name: key.1.clone(),
            values: values.into_iter().map(Option::<&String>::cloned).collect(),
        })
    });
    found.collect()
}

/// Everything in a result that can differ.
fn facts_of((summary, environment): &WithEnvironment<'_>) -> Facts {
    let mut facts = Facts::new();
    let experiment = &summary.experiment;
    if let Ok(table) = experiment.toml.parse::<toml::Table>() {
        let mut add = |path: String, value: String| {
            facts.insert((DifferenceSubject::Experiment, path), value);
        };
        // `written_for` only hides notes, so it is not compared.
        for (key, value) in table.iter().filter(|(key, _)| *key != "written_for") {
            flatten(key, value, &mut add);
        }
    }
    let program = (DifferenceSubject::Program, "Brunt".to_string());
    facts.insert(program, summary.brunt.clone());
    if let Some(congestion) = &experiment.congestion {
        let name = "TCP congestion control".to_string();
        facts.insert(
            (DifferenceSubject::Machine, name),
            congestion.algorithm.clone(),
        );
    }
    for (name, target) in &experiment.targets {
        let key = |what: &str| (DifferenceSubject::Target, format!("{name}, {what}"));
        facts.insert(key("place"), target.place.clone());
        if !target.facts.is_empty() {
            facts.insert(key("reported"), target.facts.join(" · "));
        }
    }
    for EnvironmentFact {
        subject,
        key,
        value,
    } in *environment
    {
        let word = key.replace('_', " ");
        let (about, name) = match (subject.as_str(), subject.strip_prefix("target ")) {
            ("machine", _) => (DifferenceSubject::Machine, word),
            // Everything else that is compared comes from the summary.
            (_, Some(target)) if !matches!(key.as_str(), "url" | "directory" | "fact" | "note") => {
                (DifferenceSubject::Target, format!("{target}, {word}"))
            }
            _ => continue,
        };
        facts.insert((about, name), value.clone());
    }
    facts
}

/// Adds the path and the value of each key below `path`; arrays of plain values are one value.
fn flatten(path: &str, value: &toml::Value, add: &mut dyn FnMut(String, String)) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                flatten(&format!("{path}.{key}"), value, add);
            }
        }
        toml::Value::Array(list) if list.iter().any(toml::Value::is_table) => {
            for (index, value) in list.iter().enumerate() {
                flatten(&format!("{path}[{index}]"), value, add);
            }
        }
        toml::Value::String(text) => add(path.into(), text.clone()),
        value => add(path.into(), value.to_string()),
    }
}

/// The keys below `prefix` in a result's experiment, with their values.
pub(super) fn keys_below(summary: &Summary, prefix: &[&str]) -> Vec<(String, String)> {
    let Ok(table) = summary.experiment.toml.parse::<toml::Table>() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let root = toml::Value::Table(table);
    let below = prefix.iter().try_fold(&root, |value, key| value.get(key));
    for (key, value) in below.and_then(toml::Value::as_table).into_iter().flatten() {
        flatten(key, value, &mut |path, value| found.push((path, value)));
    }
    found
}

/// The first section of the comparison page.
pub(super) fn section(names: &[&str], results: &[WithEnvironment<'_>]) -> Section {
    let mut section = Section::new("What differs");
    let found = differences(results);
    let unknown: Vec<&str> = names
        .iter()
        .zip(results)
        .filter(|(_, (_, environment))| environment.is_empty())
        .map(|(name, _)| *name)
        .collect();
    if !unknown.is_empty() {
        section.prose(format!(
            "No machine is recorded for {}, so machines are not compared.",
            unknown.join(", ")
        ));
    }
    if found.is_empty() {
        let machine = if unknown.is_empty() { ", machine" } else { "" };
        section.prose(format!(
            "No recorded difference: the experiment{machine}, targets and program version are the same."
        ));
        return section;
    }
    let columns: Vec<&str> = ["about", "what"].iter().chain(names).copied().collect();
    let row = |one: &ResultDifference| {
        let values = one.values.iter().map(|value| match value {
            Some(value) => Cell::text(value),
            None => Cell::Empty,
        });
        let head = [Cell::text(one.about.word()), Cell::text(&one.name)];
        head.into_iter().chain(values).collect()
    };
    let rows = found.iter().take(ROWS_MAX).map(row);
    section.table(PageTable::new(
        "Experiment, targets, program and machine",
        &columns,
        rows,
    ));
    if found.len() > ROWS_MAX {
        section.prose(format!("The first {ROWS_MAX} of {}.", found.len()));
    }
    section
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_result::experiment::ExperimentSummary;
    use brunt_result::summary::FORMAT;

    fn result(toml: &str, brunt: &str) -> Summary {
        Summary {
            format: FORMAT,
            brunt: brunt.into(),
            complete: true,
            trouble: None,
            label: None,
            interleaved: None,
            waits: Vec::new(),
            experiment: ExperimentSummary {
                toml: toml.into(),
                ..ExperimentSummary::default()
            },
            points: Vec::new(),
            indexes: None,
            requirements: Vec::new(),
        }
    }

    fn kernel(version: &str) -> Vec<EnvironmentFact> {
        vec![EnvironmentFact {
            subject: "machine".into(),
            key: "kernel".into(),
            value: version.into(),
        }]
    }

    /// Keys, program and machine that differ are listed with all values; equal ones are left out.
    #[test]
    fn keys_program_and_machine_that_differ_are_listed() {
        let text = |depth: u32, more: &str| {
            format!(
                "seed = 1\n[workloads.w]\nqueue_depth = {depth}\nblocks = [{{ size = \"4KiB\" }}]\n{more}"
            )
        };
        let (a, b) = (
            result(&text(8, ""), "1.0"),
            result(&text(32, "burst = true\n"), "1.1"),
        );
        let found = differences(&[(&a, &kernel("6.1")), (&b, &kernel("6.12"))]);
        let row = |about, name: &str, values: [Option<&str>; 2]| ResultDifference {
            about,
            name: name.into(),
            values: values.map(|value| value.map(str::to_string)).to_vec(),
        };
        let expected = [
            row(
                DifferenceSubject::Experiment,
                "workloads.w.burst",
                [None, Some("true")],
            ),
            row(
                DifferenceSubject::Experiment,
                "workloads.w.queue_depth",
                [Some("8"), Some("32")],
            ),
            row(
                DifferenceSubject::Program,
                "Brunt",
                [Some("1.0"), Some("1.1")],
            ),
            row(
                DifferenceSubject::Machine,
                "kernel",
                [Some("6.1"), Some("6.12")],
            ),
        ];
        assert_eq!(found, expected);
        assert_eq!(
            differences(&[(&a, &kernel("6.1")), (&a, &kernel("6.1"))]),
            []
        );
    }

    /// A result whose machine isn't recorded doesn't count as different from one whose machine is, and the page says
    /// so.
    #[test]
    fn an_unknown_machine_is_not_a_difference() {
        let one = result("seed = 1\n", "1.0");
        let known = kernel("6.1");
        let results: [WithEnvironment<'_>; 2] = [(&one, &known), (&one, &[])];
        assert_eq!(differences(&results), []);
        let told = format!("{:?}", section(&["old", "new"], &results));
        assert!(told.contains("No machine is recorded for new"), "{told}");
        assert!(told.contains("are the same"), "{told}");
    }

    #[test]
    fn keys_of_a_workload_are_listed_with_their_values() {
        let one = result(
            "[workloads.w]\nalign = \"4KiB\"\nblocks = [{ size = \"8KiB\", weight = 2 }]\n",
            "1.0",
        );
        let found = keys_below(&one, &["workloads", "w"]);
        let line = |key: &str, value: &str| (key.to_string(), value.to_string());
        let expected = [
            line("align", "4KiB"),
            line("blocks[0].size", "8KiB"),
            line("blocks[0].weight", "2"),
        ];
        assert_eq!(found, expected);
        assert_eq!(keys_below(&one, &["workloads", "x"]), []);
    }
}
