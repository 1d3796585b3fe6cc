//! A mistake in an experiment file: where it is, and what would be right.
//!
//! The rule: every message has a line, as near to the mistake as the file goes.

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};
use toml::de::{DeTable, DeValue};

/// A mistake in an experiment file, ready to be shown with its line.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct FileError {
    what: String,
    help: Option<String>,
    source_code: NamedSource<String>,
    span: Option<std::ops::Range<usize>>,
}

impl Diagnostic for FileError {
    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn std::fmt::Display>)
    }
    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.source_code)
    }
    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = self.span.clone()?;
        Some(Box::new(std::iter::once(LabeledSpan::new(Some("here".into()), span.start, span.len()))))
    }
}

impl FileError {
    /// The line, from 1.
    pub fn line(&self) -> usize {
        let start = self.span.as_ref().map_or(0, |span| span.start);
        let text = self.source_code.inner();
        text.as_bytes()[..start.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
    }

    /// `file:line: what`, for terminals and logs without graphics.
    pub fn one_line(&self) -> String {
        format!("{}:{}: {}", self.source_code.name(), self.line(), self.what)
    }

    /// What would be right.
    pub fn help_text(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

/// A file's text beside its name, for messages.
pub(super) struct Source<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// A mistake at the value that `path` leads to, or as near to it as the file goes.
    pub(super) fn mistake(&self, path: &[&str], what: String, help: Option<String>) -> Box<FileError> {
        let span = self.find(path);
        self.mistake_at(span, what, help)
    }

    /// What the parser of the file's language says.
    pub(super) fn unreadable(&self, error: &toml::de::Error) -> Box<FileError> {
        let message = error.message().to_string();
        let help = help_for(&message);
        self.mistake_at(error.span(), message, help)
    }

    fn mistake_at(
        &self,
        span: Option<std::ops::Range<usize>>,
        what: String,
        help: Option<String>,
    ) -> Box<FileError> {
        let source_code = NamedSource::new(self.name, self.text.to_string()).with_language("toml");
        Box::new(FileError { what, help, source_code, span })
    }

    fn find(&self, path: &[&str]) -> Option<std::ops::Range<usize>> {
        let root = DeTable::parse(self.text).ok()?;
        let (mut table, mut span) = (root.get_ref(), None);
        let mut steps = path.iter();
        while let Some(step) = steps.next() {
            let Some((key, value)) = table.iter().find(|(key, _)| key.get_ref() == step) else { break };
            span = Some(key.span());
            match value.get_ref() {
                DeValue::Table(inner) => table = inner,
                // The next step is a place in it, from 0.
                DeValue::Array(items) => {
                    let item = steps.next().and_then(|step| items.get(step.parse::<usize>().ok()?));
                    span = Some(item.map_or(value.span(), |item| item.span()));
                    break;
                }
                _ => {
                    span = Some(value.span());
                    break;
                }
            }
        }
        span
    }
}

/// What a parser's message leaves to be said.
fn help_for(message: &str) -> Option<String> {
    if let Some((_, known)) =
        message.strip_prefix("unknown field `").and_then(|rest| rest.split_once("`, expected "))
    {
        let field = message.split('`').nth(1)?;
        let nearest = known.split('`').skip(1).step_by(2).min_by_key(|name| distance(field, name))?;
        return (distance(field, nearest) <= 3).then(|| format!("did you mean {nearest}?"));
    }
    if let Some(field) = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
        return Some(format!("add {field} = …"));
    }
    None
}

/// Levenshtein's, for names of a few letters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let cost = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
