//! What a new plug-in costs: the table in `docs/extending.md` says how many lines in existing files each kind needs.
//! The test-only plug-ins show whether these figures are right.

use std::collections::BTreeMap;

/// A plug-in that only tests use.
#[derive(Clone, Copy, Debug)]
pub struct PlugInSample {
    /// Kind of the plug-in, as in the table.
    pub kind: &'static str,
    /// The only file of the plug-in.
    pub file: &'static str,
    /// The folder in which other files may mention the plug-in.
    pub folder: &'static str,
    /// The plug-in's type; other files mention the plug-in by this type or by its module.
    pub name: &'static str,
}

/// Lists differences between the table and the sources, which are given by their paths; `page` is the text of
/// `docs/extending.md`.
pub fn differences(
    samples: &[PlugInSample],
    sources: &BTreeMap<String, String>,
    page: &str,
) -> Vec<String> {
    let mut found = Vec::new();
    for sample in samples {
        let Some(stated) = lines_of(page, sample.kind) else {
            found.push(format!(
                "{}: the table lacks it, or states no number of lines",
                sample.kind
            ));
            continue;
        };
        if !sources.contains_key(sample.file) {
            found.push(format!("{}: there is no {}", sample.kind, sample.file));
        }
        let places = places(sample, sources);
        if places.len() != stated {
            let all = places.join(", ");
            found.push(format!(
                "{}: the table states {stated} lines, but these mention it: {all}",
                sample.kind
            ));
        }
    }
    found
}

/// The number at the start of the third column in this kind's row: how many lines in existing files the kind needs.
fn lines_of(page: &str, kind: &str) -> Option<usize> {
    let row = page
        .lines()
        .find(|line| line.starts_with(&format!("| {kind} |")))?;
    let lines = row.split('|').nth(3)?.trim();
    let end = lines
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(lines.len());
    lines[..end].parse().ok()
}

/// The lines in other files that mention the plug-in, as `file:line`. `tests.rs` files are ignored.
fn places(sample: &PlugInSample, sources: &BTreeMap<String, String>) -> Vec<String> {
    let module = sample.file.rsplit('/').next().unwrap_or(sample.file);
    let module = module.trim_end_matches(".rs");
    let marks = [format!("mod {module};"), format!("{module}::")];
    let others = sources.iter().filter(|(path, _)| {
        path.starts_with(sample.folder) && *path != sample.file && !path.ends_with("/tests.rs")
    });
    let mut found = Vec::new();
    for (path, text) in others {
        for (index, line) in text.lines().enumerate() {
            let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            let is_named = words.into_iter().any(|word| word == sample.name);
            if is_named || marks.iter().any(|mark| line.contains(mark.as_str())) {
                found.push(format!("{path}:{}", index + 1));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: PlugInSample = PlugInSample {
        kind: "load",
        file: "loads/nap.rs",
        folder: "loads/",
        name: "Nap",
    };

    fn found(table: &str, line: &str) -> Vec<String> {
        let sources = [
            ("loads/nap.rs", "struct Nap;"),
            ("loads/mod.rs", line),
            ("loads/tests.rs", "Nap"),
            ("others/mod.rs", "nap::Nap"),
        ];
        let sources = sources.map(|(path, text)| (path.to_string(), text.to_string()));
        differences(&[SAMPLE], &sources.into(), table)
    }

    #[test]
    fn a_line_that_the_table_does_not_count_is_found() {
        let table = "| kind | files |\n| load | 1 | 2, and a test | none |";
        let lines = "mod nap;\nuse thread::nap;\nnap::LINE,\n";
        assert!(found(table, lines).is_empty());
        assert_eq!(found(table, &format!("{lines}let x: Nap;")).len(), 1);
        assert_eq!(found(table, "mod nap;").len(), 1);
        assert_eq!(found("| pattern | 1 | 2 |", lines).len(), 1);
        assert_eq!(found("| load | 1 | some |", lines).len(), 1);
    }
}
