//! `--set`, `--reps` and `--time` of `brunt run`: replace some keys of an experiment.
//!
//! The rule: the changed experiment is checked like a file, and it is what is run and saved with the results.

use std::path::Path;
use std::str::FromStr;

use brunt_core::Span;
use brunt_load::LOADS;
use brunt_study::experiment::Experiment;
use toml::{Table, Value};

use crate::cli::Failure;

/// `KEY=VALUE`: a dotted key of an experiment, and its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Override {
    path: Vec<String>,
    value: Value,
}

/// Why an override cannot be parsed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OverrideError {
    /// No `=`.
    #[error("write KEY=VALUE, such as workloads.w.queue_depth=32")]
    NoValue,
    /// The key is not a valid TOML key.
    #[error("'{0}' is not a key: separate table names with dots")]
    Key(String),
}

impl FromStr for Override {
    type Err = OverrideError;

    fn from_str(text: &str) -> Result<Override, OverrideError> {
        let (key, value) = text.split_once('=').ok_or(OverrideError::NoValue)?;
        let key = key.trim();
        let bad = || OverrideError::Key(key.to_string());
        // Let TOML parse the dotted key, so that quotes work.
        let document: Table = format!("{key} = 0").parse().map_err(|_| bad())?;
        let mut path = Vec::new();
        let mut level = &document;
        loop {
            let (name, inner) = level.iter().next().ok_or_else(bad)?;
            path.push(name.clone());
            match inner {
                Value::Table(inner) => level = inner,
                _ => break,
            }
        }
        // A word that isn't a TOML value is a string: --set name=test.
        let value = format!("value = {value}").parse::<Table>().ok();
        let value = value
            .filter(|read| read.len() == 1)
            .and_then(|mut read| read.remove("value"))
            .unwrap_or_else(|| Value::String(text[key.len()..].trim_start()[1..].trim().into()));
        Ok(Override { path, value })
    }
}

/// Changes to an experiment from the command line.
#[derive(Clone, Debug, Default)]
pub(super) struct Overrides {
    /// `--set`.
    pub set: Vec<Override>,
    /// `--reps`: number of runs of each point.
    pub reps: Option<u32>,
    /// `--time`: the length of each run.
    pub time: Option<Span>,
}

impl Overrides {
    /// Returns the changed experiment and its text.
    ///
    /// # Errors
    /// The changed experiment is invalid.
    pub fn apply(
        self,
        name: &Path,
        (experiment, text): (Experiment, String),
    ) -> Result<(Experiment, String), Failure> {
        if self.set.is_empty() && self.reps.is_none() && self.time.is_none() {
            return Ok((experiment, text));
        }
        let mut table: Table = text.parse().map_err(Failure::failed)?;
        if let Some(reps) = self.reps {
            table.insert("repetitions".into(), Value::Integer(reps.into()));
        }
        if let Some(time) = self.time {
            for (name, _) in experiment.workloads.on_targets() {
                let path = ["workloads", name, "stop", "time"].map(String::from);
                put(&mut table, &path, Value::String(time.to_string()));
            }
        }
        for Override { mut path, value } in self.set {
            find_workload(&table, &mut path);
            put(&mut table, &path, value);
        }
        let text = toml::to_string(&table).map_err(Failure::failed)?;
        let name = format!(
            "{} (as changed by --set, --reps and --time)",
            name.display()
        );
        let experiment = Experiment::parse(&name, &text)?;
        Ok((experiment, text))
    }
}

/// If a path names the wrong table for a workload, redirects it to the table that contains the workload: a kind's own
/// table and `[workloads]` are equivalent, and an experiment with includes is written out with the former.
fn find_workload(table: &Table, path: &mut [String]) {
    let tables = LOADS.iter().filter_map(|kind| kind.form.table());
    let tables: Vec<&str> = std::iter::once("workloads").chain(tables).collect();
    let [first, name, _, ..] = path else {
        return;
    };
    let has = |of: &str| {
        let of = table.get(of).and_then(Value::as_table);
        of.is_some_and(|of| of.contains_key(name.as_str()))
    };
    if !tables.contains(&first.as_str()) || has(first) {
        return;
    }
    if let Some(there) = tables.iter().find(|of| has(of)) {
        *first = there.to_string();
    }
}

/// Sets a value, creating the tables on the path. A value on the path that isn't a table is replaced with a table.
fn put(table: &mut Table, path: &[String], value: Value) {
    let (last, tables) = path.split_last().expect("a key has a name");
    let mut level = table;
    for name in tables {
        let inner = level
            .entry(name.as_str())
            .or_insert_with(|| Value::Table(Table::new()));
        if !inner.is_table() {
            *inner = Value::Table(Table::new());
        }
        level = inner.as_table_mut().expect("just made a table");
    }
    level.insert(last.clone(), value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, path: &[&str], value: Value) {
        let read: Override = text.parse().unwrap();
        assert_eq!(read.path, path, "{text}");
        assert_eq!(read.value, value, "{text}");
    }

    #[test]
    fn an_override_reads_as_toml_and_words_need_no_quotes() {
        check(
            "workloads.w.queue_depth=32",
            &["workloads", "w", "queue_depth"],
            Value::Integer(32),
        );
        check(
            "workloads.w.read=0.7",
            &["workloads", "w", "read"],
            Value::Float(0.7),
        );
        check("name=test", &["name"], Value::String("test".into()));
        check(
            "name = \"two words\"",
            &["name"],
            Value::String("two words".into()),
        );
        check(
            "targets.d.url=/dev/x?a=b",
            &["targets", "d", "url"],
            Value::String("/dev/x?a=b".into()),
        );
        check(
            "targets.\"my disk\".url=/x",
            &["targets", "my disk", "url"],
            Value::String("/x".into()),
        );
        check(
            "sweep.queue_depth=[1, 4]",
            &["sweep", "queue_depth"],
            Value::Array(vec![1.into(), 4.into()]),
        );
        assert_eq!(
            "queue_depth".parse::<Override>(),
            Err(OverrideError::NoValue)
        );
        for key in ["=1", "a b=1", "a.=1", "a\nb=1"] {
            assert!(
                matches!(key.parse::<Override>(), Err(OverrideError::Key(_))),
                "{key:?}"
            );
        }
    }

    #[test]
    fn overrides_change_the_experiment_and_the_text_that_is_kept() {
        let text = "name = \"n\"\n[targets.d]\nurl = \"null:1MiB\"\n[workloads.w]\nstop = { time = \"1s\" }\n";
        let experiment = Experiment::parse("n.toml", text).unwrap();
        let overrides = Overrides {
            set: vec!["workloads.w.queue_depth=32".parse().unwrap()],
            reps: Some(7),
            time: Some(Span(std::time::Duration::from_secs(3))),
        };
        let read = (experiment, text.to_string());
        let (changed, text) = overrides.apply(Path::new("n.toml"), read).unwrap();
        let workload = &changed.workloads["w"];
        assert_eq!((changed.repetitions, workload.queue_depth), (7, 32));
        assert_eq!(workload.stop.time.unwrap().0.as_secs(), 3);
        assert_eq!(Experiment::parse("kept", &text).unwrap(), changed);
    }

    /// A workload may be in a kind's own table or in `[workloads]`; the path may name either.
    #[test]
    fn an_override_finds_the_table_that_has_the_workload() {
        let changed = |table: &str, key: &str| {
            let text =
                format!("name = \"n\"\n[{table}.home]\nkind = \"file\"\ndirectory = \"/tmp\"\n");
            let read = (Experiment::parse("n.toml", &text).unwrap(), text);
            let overrides = Overrides {
                set: vec![format!("{key}.home.files=3").parse().unwrap()],
                ..Overrides::default()
            };
            overrides.apply(Path::new("n.toml"), read).unwrap().0
        };
        let right = changed("workloads", "workloads");
        for (table, key) in [
            ("workloads", "filesystems"),
            ("filesystems", "workloads"),
            ("filesystems", "filesystems"),
        ] {
            assert_eq!(changed(table, key), right, "{table}, {key}");
        }
    }

    #[test]
    fn a_wrong_override_is_reported_as_a_command_line_mistake() {
        let text = "name = \"n\"\n[targets.d]\nurl = \"null:1MiB\"\n[workloads.w]\nstop = { time = \"1s\" }\n";
        let read = (Experiment::parse("n.toml", text).unwrap(), text.to_string());
        let set = vec!["workloads.w.queue_dept=32".parse().unwrap()];
        let overrides = Overrides {
            set,
            ..Overrides::default()
        };
        let failure = overrides.apply(Path::new("n.toml"), read).unwrap_err();
        assert!(failure.what().contains("queue_dept"), "{}", failure.what());
    }
}
