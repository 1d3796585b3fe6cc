//! The references in `docs/` match the program: they are generated from its schemas and from examples that it accepts.
//! Run `UPDATE=1 cargo test -p brunt --test it reference` to regenerate them.

mod render;

use std::path::{Path, PathBuf};

use crate::support::{brunt, root, succeed};
use brunt_result::summary::Summary;
use render::{Notation, Reference};
use serde_json::Value;

/// Compares a reference with the file in `docs/`, or writes that file.
fn keep(name: &str, head: &str, reference: &Reference<'_>) {
    let rendered = reference.render();
    assert!(
        rendered.lacking.is_empty(),
        "{name} lacks\n  {}",
        rendered.lacking.join("\n  ")
    );
    let text = format!("{head}{}", rendered.text);
    let path = root().join("docs").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, text).expect("the reference can be written");
        return;
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = written
        .lines()
        .zip(text.lines())
        .find(|(old, new)| old != new);
    assert!(
        written == text,
        "docs/{name} is out of date; run UPDATE=1 cargo test -p brunt --test it reference\nfirst difference: {differs:#?}"
    );
}

/// Files in a folder with this extension, sorted by name.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .expect("a folder of examples")
        .flatten();
    let mut files: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}

/// `docs/experiments.md` contains every key of experiment files, with its meaning, default and a working example.
#[test]
fn experiments_md_describes_every_key() {
    let schema: Value =
        serde_json::from_str(&succeed(brunt().arg("schema"), 20)).expect("the schema is JSON");
    let here = root().join("crates/brunt/tests/it/reference");
    let mut examples = Vec::new();
    let own = files(&here.join("experiments"), "toml");
    for path in files(&root().join("examples"), "toml").iter().chain(&own) {
        let text = std::fs::read_to_string(path).expect("an example");
        examples.push(toml::from_str(&text).expect("an example is TOML"));
    }
    // tests/it/examples.rs tests the files in examples/.
    for path in own {
        succeed(
            brunt()
                .args(["--json", "run", "--check"])
                .arg(&path)
                .args(["--out", "nowhere"]),
            20,
        );
    }
    let head = std::fs::read_to_string(here.join("experiments.md")).expect("the introduction");
    let order = [
        "name",
        "description",
        "written_for",
        "include",
        "repetitions",
        "precision",
        "repetitions_max",
        "time_max",
        "seed",
        "congestion",
        "allow_overwrite",
        "targets",
        "workloads",
        "together",
        "filesystems",
        "metadata",
        "sweep",
        "hosts",
        "on_host_failure",
        "host_silence",
        "host_idle",
        "lab",
        "links",
        "services",
        "fault",
        "performability",
        "probes",
    ];
    let reference = Reference {
        schema: &schema,
        examples: &examples,
        notation: Notation::Toml,
        order: &order,
    };
    keep("experiments.md", &head, &reference);
}

/// Each key in the table "Keys by task" is in the table of the section to which it links.
#[test]
fn each_key_of_the_index_is_in_the_section_that_it_names() {
    let text = std::fs::read_to_string(root().join("docs/experiments.md")).expect("it exists");
    let anchor = |title: &str| -> String {
        let title = title.trim_start_matches('#').trim().to_lowercase();
        let keeps = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        title
            .chars()
            .filter(keeps)
            .collect::<String>()
            .replace(' ', "-")
    };
    let section = |wanted: &str| {
        let mut lines = text
            .lines()
            .skip_while(|line| !line.starts_with('#') || anchor(line) != wanted);
        lines.next();
        let own: Vec<&str> = lines.take_while(|line| !line.starts_with('#')).collect();
        own.join("\n")
    };
    let index = section("keys-by-task");
    let links: Vec<(&str, &str)> = index
        .split("[`")
        .skip(1)
        .filter_map(|link| link.split(')').next()?.split_once("`](#"))
        .collect();
    assert!(links.len() > 40, "{links:?}");
    for (key, place) in links {
        let row = format!("\n| `{key}` |");
        assert!(section(place).contains(&row), "{key} isn't in #{place}");
    }
}

/// `docs/results.md` contains every reason that invalidates a run, with the setting and the value that its message
/// mentions.
#[test]
fn results_md_lists_every_reason_for_an_invalid_run() {
    let path = root().join("docs/results.md");
    let text = std::fs::read_to_string(&path).expect("docs/results.md");
    let table = brunt_result::void::markdown();
    let head = table.lines().next().expect("a head");
    let begin = text
        .find(head)
        .expect("docs/results.md has the table of void runs");
    let end = text[begin..]
        .find("\n\n")
        .map_or(text.len(), |end| begin + end + 1);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, format!("{}{table}{}", &text[..begin], &text[end..]))
            .expect("it can be written");
        return;
    }
    assert_eq!(
        &text[begin..end],
        table,
        "run UPDATE=1 cargo test -p brunt --test it reference"
    );
}

/// `docs/summary-json.md` contains every key of `summary.json`, with its meaning and an example from a valid file.
#[test]
fn summary_json_md_describes_every_key() {
    let schema = serde_json::to_value(Summary::schema()).expect("the schema is JSON");
    let here = root().join("crates/brunt/tests/it/reference");
    let text = std::fs::read_to_string(here.join("summary.json")).expect("an example");
    let read: Summary = serde_json::from_str(&text).expect("an example of this format");
    let example = serde_json::to_value(&read).expect("JSON");
    assert_eq!(
        example,
        serde_json::from_str::<Value>(&text).expect("JSON"),
        "keys that nobody reads"
    );
    let head = std::fs::read_to_string(here.join("summary-json.md")).expect("the introduction");
    let order = [
        "format",
        "brunt",
        "complete",
        "trouble",
        "experiment",
        "points",
        "indexes",
    ];
    let examples = [example];
    let reference = Reference {
        schema: &schema,
        examples: &examples,
        notation: Notation::Json,
        order: &order,
    };
    keep("summary-json.md", &head, &reference);
}
