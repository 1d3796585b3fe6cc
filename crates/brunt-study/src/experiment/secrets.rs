//! Masks secrets in an experiment file's text before it appears in results, pages or error messages.
//!
//! The rule: the TOML parser finds strings, and the rules for device URLs find secrets in them. Only a file that
//! doesn't parse is searched as plain text; more than the secret may then be masked.

use std::ops::Range;

use brunt_core::device_url::{
    MASK, is_secret_key, is_sought, masked, secrets, secrets_in_text, text_without_these,
};
use toml::de::{DeTable, DeValue};

/// The text of an experiment, or of another TOML file, without its secrets.
pub fn toml_without_secrets(text: &str) -> String {
    Concealed::of(text).text
}

/// A file's text without secrets, and how the positions in it have changed.
#[derive(Default)]
pub(super) struct Concealed {
    pub text: String,
    /// The replaced ranges of the original and the length of each replacement in bytes, in order.
    replaced: Vec<(Range<usize>, usize)>,
    /// The secrets.
    known: Vec<String>,
}

impl Concealed {
    /// Finds the secrets of a file.
    pub fn of(text: &str) -> Concealed {
        let Ok(table) = DeTable::parse(text) else {
            let edits = secrets_of_unreadable(text).into_iter();
            return Concealed::with(text, Vec::new(), edits.map(masks).collect());
        };
        let mut search = Search::default();
        search.table(table.get_ref());
        let Search {
            mut strings,
            known,
            mut edits,
        } = search;
        strings.sort_by_key(|span| span.start);
        // Comments between the strings may also contain URLs, such as ones used earlier.
        let mut from = 0;
        for end in strings.iter().map(|span| span.start).chain([text.len()]) {
            if let Some(gap) = text.get(from..end) {
                let found = secrets_in_text(gap).into_iter();
                edits.extend(found.map(|part| masks(part.start + from..part.end + from)));
            }
            from = strings
                .iter()
                .find(|span| span.start == end)
                .map_or(end, |span| span.end);
        }
        for secret in known.iter().filter(|secret| is_sought(secret)) {
            let found = text.match_indices(secret.as_str());
            edits.extend(found.map(|(at, part)| masks(at..at + part.len())));
        }
        Concealed::with(text, known, edits)
    }

    /// `text` with these ranges replaced. If two ranges overlap, the one that begins first wins; if they begin
    /// together, the longer one.
    fn with(text: &str, known: Vec<String>, mut edits: Vec<(Range<usize>, String)>) -> Concealed {
        edits.sort_by_key(|(span, _)| (span.start, usize::MAX - span.end));
        let mut concealed = Concealed {
            known,
            ..Concealed::default()
        };
        let mut from = 0;
        for (span, shown) in edits {
            if span.start < from {
                continue;
            }
            concealed.text += &text[from..span.start];
            concealed.text += &shown;
            from = span.end;
            concealed.replaced.push((span, shown.len()));
        }
        concealed.text += &text[from..];
        concealed
    }

    /// The new position of the byte at `at` in the original text; for a masked byte, the start of the mask.
    pub fn place(&self, at: usize) -> usize {
        let (mut grown, mut shrunk) = (0, 0);
        for (span, bytes) in &self.replaced {
            if at < span.end {
                return at.min(span.start) + grown - shrunk;
            }
            grown += bytes;
            shrunk += span.len();
        }
        at + grown - shrunk
    }

    /// A message about the file, with its secrets masked.
    pub fn message(&self, text: &str) -> String {
        text_without_these(text, &self.known)
    }
}

fn masks(span: Range<usize>) -> (Range<usize>, String) {
    (span, MASK.to_string())
}

/// The strings of a file, and the secrets in them.
#[derive(Default)]
struct Search {
    /// The ranges of all strings, including quotes.
    strings: Vec<Range<usize>>,
    /// The strings with secrets: their ranges, and the texts to show instead.
    edits: Vec<(Range<usize>, String)>,
    known: Vec<String>,
}

impl Search {
    fn table(&mut self, table: &DeTable<'_>) {
        for (key, value) in table {
            self.string(key.span(), key.get_ref(), false);
            self.value(value.span(), value.get_ref(), is_secret_key(key.get_ref()));
        }
    }

    fn value(&mut self, span: Range<usize>, value: &DeValue<'_>, is_secret: bool) {
        match value {
            DeValue::String(text) => self.string(span, text, is_secret),
            DeValue::Array(items) => {
                for item in items {
                    self.value(item.span(), item.get_ref(), is_secret);
                }
            }
            DeValue::Table(table) => self.table(table),
            _ => {}
        }
    }

    fn string(&mut self, span: Range<usize>, text: &str, is_secret: bool) {
        // The name of a file or variable that holds the secret is not a secret.
        let is_place = text.starts_with(['@']) || text.starts_with("env:");
        let found = match is_secret && !is_place {
            true => std::iter::once(0..text.len()).collect(),
            // A URL contains no spaces before the secret in its login; other texts, such as commands, may contain
            // URLs.
            false => match secrets(text) {
                found if found.is_empty() => secrets_in_text(text),
                found => found,
            },
        };
        if !found.is_empty() {
            let shown = masked(text, &found);
            self.edits
                .push((span.clone(), toml::Value::from(shown).to_string()));
            self.known
                .extend(found.into_iter().map(|part| text[part].to_string()));
        }
        self.strings.push(span);
    }
}

/// For a file that is not valid TOML, whose string boundaries are unknown: everything in a line that may be a secret.
fn secrets_of_unreadable(text: &str) -> Vec<Range<usize>> {
    let mut found = secrets_in_text(text);
    let mut base = 0;
    for line in text.split_inclusive('\n') {
        let shown = line.trim_end();
        let scheme = shown.find("://");
        let from = scheme.unwrap_or(0);
        if let Some(percent) = shown[from..].find('%').map(|at| from + at + 1) {
            let end = shown.rfind('@').filter(|end| *end >= percent);
            let end = end.or(scheme.map(|_| shown.len()));
            found.extend(end.map(|end| base + percent..base + end));
        }
        if let Some((key, value)) = shown.split_once('=')
            && is_secret_key(key.trim())
            && !value.trim_start().starts_with(['@'])
        {
            found.push(base + key.len() + 1..base + shown.len());
        }
        base += line.len();
    }
    found.retain(|range| !range.is_empty());
    found
}
