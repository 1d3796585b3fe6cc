//! A mistake in an experiment file: where it is, and what would be correct.
//!
//! The rule: every message has a line, as close to the mistake as possible, and contains no secret from the file.

use std::ops::Range;
use std::path::{Path, PathBuf};

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};
use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

use super::secrets::Concealed;
use super::wording::reworded;

/// A mistake in an experiment file, ready to be shown with its line.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct FileError {
    what: String,
    help: Option<String>,
    /// The text with secrets masked.
    source_code: NamedSource<String>,
    /// Position in the masked text.
    span: Option<Range<usize>>,
    /// Line in the user's text.
    line: usize,
    places: Option<[(usize, usize); 2]>,
}

impl Diagnostic for FileError {
    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        self.help
            .as_ref()
            .map(|help| Box::new(help) as Box<dyn std::fmt::Display>)
    }
    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.source_code)
    }
    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = self.span.clone()?;
        Some(Box::new(std::iter::once(LabeledSpan::new(
            Some("here".into()),
            span.start,
            span.len(),
        ))))
    }
}

impl FileError {
    /// The line number, counting from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The file with the mistake: the experiment's own, or one that it includes.
    pub fn file(&self) -> &str {
        self.source_code.name()
    }

    /// Start and end of the mistake: line and column from 1, columns in UTF-16 units, as browsers and editors count.
    /// `None` if the file has no such position.
    pub fn places(&self) -> Option<[(usize, usize); 2]> {
        self.places
    }

    /// Formats the mistake as `file:line: what`, for logs and for terminals without graphics.
    pub fn one_line(&self) -> String {
        format!("{}:{}: {}", self.source_code.name(), self.line(), self.what)
    }

    /// The line and the previous one, with the mistake underlined; `None` if the file has no such position.
    pub fn excerpt(&self) -> Option<String> {
        let (span, text) = (self.span.as_ref()?, self.source_code.inner());
        let number = self.line();
        let start = text[..span.start.min(text.len())]
            .rfind('\n')
            .map_or(0, |end| end + 1);
        let wrong = text[start..].lines().next()?;
        let width = number.to_string().len();
        let before = number
            .checked_sub(2)
            .and_then(|before| text.lines().nth(before));
        let above = before
            .map(|line| format!("  {:>width$} | {line}\n", number - 1))
            .unwrap_or_default();
        let indent: String = text[start..span.start.min(text.len())]
            .chars()
            .map(|c| if c == '\t' { c } else { ' ' })
            .collect();
        let marked = text
            .get(span.clone())
            .and_then(|part| part.lines().next())
            .unwrap_or_default();
        let mark = "^".repeat(marked.chars().count().max(1));
        Some(format!(
            "{above}  {number:>width$} | {wrong}\n  {:>width$} | {indent}{mark}",
            ""
        ))
    }

    /// What would be valid instead.
    pub fn help_text(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

/// Reads another file that contains TOML, such as a target's.
///
/// # Errors
/// Returns the file's first mistake, with its position.
pub fn read_toml<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, Box<FileError>> {
    let mut source = Source::default();
    let base = source.add(name, text);
    let root = DeTable::parse(text).map_err(|error| source.unreadable_in(base, &error))?;
    source.unite(root.into_inner());
    T::deserialize(toml::de::Deserializer::from(source.root()))
        .map_err(|error| source.unreadable(&error, None))
}

/// Reports a mistake at the value that `path` leads to in a file read by [`read_toml`].
pub fn mistake_in(name: &str, text: &str, path: &[&str], what: String) -> Box<FileError> {
    let mut source = Source::default();
    source.add(name, text);
    // If the text can't be parsed, the mistake only lacks its position.
    source.unite(
        DeTable::parse(text)
            .map(toml::Spanned::into_inner)
            .unwrap_or_default(),
    );
    source.mistake(path, what, None)
}

/// The files of an experiment and their merged content, for messages. Positions count from the start of the first
/// file's text, as if the others followed it.
#[derive(Default)]
pub(super) struct Source<'a> {
    files: Vec<File<'a>>,
    root: DeTable<'a>,
}

struct File<'a> {
    name: String,
    text: &'a str,
    /// Offset of this file's text in the text of all files.
    base: usize,
}

impl<'a> Source<'a> {
    /// Adds a file; returns the offset of its text in the text of all files.
    pub(super) fn add(&mut self, name: &str, text: &'a str) -> usize {
        // One byte between two files, so that the end of a file differs from the start of the next one.
        let base = self
            .files
            .last()
            .map_or(0, |file| file.base + file.text.len() + 1);
        self.files.push(File {
            name: name.to_string(),
            text,
            base,
        });
        base
    }

    /// Sets the merged content of the files.
    pub(super) fn unite(&mut self, root: DeTable<'a>) {
        self.root = root;
    }

    /// The merged content of the files, mutable. Values keep their positions.
    pub(super) fn root_mut(&mut self) -> &mut DeTable<'a> {
        &mut self.root
    }

    /// The merged content of the files, for a deserializer.
    pub(super) fn root(&self) -> toml::Spanned<DeTable<'a>> {
        let len = self.files.first().map_or(0, |file| file.text.len());
        toml::Spanned::new(0..len, self.root.clone())
    }

    /// The number of files.
    pub(super) fn files(&self) -> usize {
        self.files.len()
    }

    /// `file:line`.
    pub(super) fn place(&self, at: usize) -> String {
        let file = self.file(at);
        format!("{}:{}", file.name, line(file.text, at - file.base))
    }

    /// Reports a mistake at the value that `path` leads to, or at the closest key that exists.
    pub(super) fn mistake(
        &self,
        path: &[&str],
        what: String,
        help: Option<String>,
    ) -> Box<FileError> {
        self.mistake_at(self.find(path), what, help)
    }

    /// Whether the files contain this key.
    pub(super) fn has(&self, path: &[&str]) -> bool {
        self.find(path).is_some()
            && path
                .split_last()
                .is_none_or(|(_, above)| self.find(path) != self.find(above))
    }

    /// Reports a value that cannot be deserialized; `near` is its position if the parser gives none.
    pub(super) fn unreadable(
        &self,
        error: &toml::de::Error,
        near: Option<Range<usize>>,
    ) -> Box<FileError> {
        let (what, help) = reworded(error.message());
        self.mistake_at(error.span().or(near), what, help)
    }

    /// Reports a value that cannot be deserialized, at this position instead of the parser's.
    pub(super) fn unreadable_at(
        &self,
        at: Range<usize>,
        error: &toml::de::Error,
    ) -> Box<FileError> {
        let (what, help) = reworded(error.message());
        self.mistake_at(Some(at), what, help)
    }

    /// Converts the parser's error about the file that starts at `base`.
    pub(super) fn unreadable_in(&self, base: usize, error: &toml::de::Error) -> Box<FileError> {
        let span = error
            .span()
            .map_or(base..base, |span| span.start + base..span.end + base);
        self.mistake_at(Some(span), error.message().to_string(), None)
    }

    pub(super) fn mistake_at(
        &self,
        span: Option<Range<usize>>,
        what: String,
        help: Option<String>,
    ) -> Box<FileError> {
        let file = self.file(span.as_ref().map_or(0, |span| span.start));
        let span =
            span.map(|span| span.start - file.base..(span.end - file.base).min(file.text.len()));
        let shown = Concealed::of(file.text);
        let places = span.as_ref().map(|span| {
            [span.start, span.end].map(|at| {
                let before = file.text.get(..at).unwrap_or(file.text);
                let start = before.rfind('\n').map_or(0, |end| end + 1);
                let column = before[start..].encode_utf16().count() + 1;
                (line(file.text, at), column)
            })
        });
        let line = places.map_or(1, |[(line, _), _]| line);
        let span = span.map(|span| shown.place(span.start)..shown.place(span.end));
        let source_code = NamedSource::new(&file.name, shown.text.clone()).with_language("toml");
        Box::new(FileError {
            what: shown.message(&what),
            help: help.map(|help| shown.message(&help)),
            source_code,
            span,
            line,
            places,
        })
    }

    /// The folder of the file that contains the value at `path`.
    pub(super) fn folder(&self, path: &[&str]) -> PathBuf {
        let at = self.find(path).map_or(0, |span| span.start);
        Path::new(&self.file(at).name)
            .parent()
            .unwrap_or(Path::new(""))
            .to_path_buf()
    }

    fn file(&self, at: usize) -> &File<'a> {
        let after = self.files.partition_point(|file| file.base <= at);
        &self.files[after.saturating_sub(1)]
    }

    fn find(&self, path: &[&str]) -> Option<Range<usize>> {
        let (mut table, mut span) = (&self.root, None);
        let mut steps = path.iter();
        while let Some(step) = steps.next() {
            let Some((key, value)) = table.iter().find(|(key, _)| key.get_ref() == step) else {
                break;
            };
            span = Some(key.span());
            match value.get_ref() {
                DeValue::Table(inner) => table = inner,
                // The next step is an index into the list, counting from 0.
                DeValue::Array(items) => {
                    let item = steps
                        .next()
                        .and_then(|step| items.get(step.parse::<usize>().ok()?));
                    span = Some(item.map_or(value.span(), |item| item.span()));
                    // If the item is a table, go on to its key, which is more precise.
                    match item.map(|item| item.get_ref()) {
                        Some(DeValue::Table(inner)) => table = inner,
                        _ => break,
                    }
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

fn line(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

/// Helpers for tests of mistakes in an experiment file.
#[cfg(test)]
pub(crate) mod tests {
    use super::FileError;
    use crate::experiment::Experiment;

    /// The text with the first `from` replaced.
    pub(crate) fn changed(good: &str, from: &str, to: &str) -> String {
        assert!(good.contains(from), "{from}");
        good.replacen(from, to, 1)
    }

    /// Asserts that an experiment is refused at this line with these words, in the message or in its help.
    pub(crate) fn assert_mistake(text: &str, line: usize, said: &str) -> Box<FileError> {
        let error = Experiment::parse("bad.toml", text).expect_err(text);
        let all = format!(
            "{} {}",
            error.one_line(),
            error.help_text().unwrap_or_default()
        );
        assert!(
            all.starts_with(&format!("bad.toml:{line}: ")) && all.contains(said),
            "{said}: {text}: {all}"
        );
        error
    }

    /// Asserts that an experiment is refused at the first line that begins with `begin`, with these words.
    pub(crate) fn assert_mistake_at(text: &str, begin: &str, said: &str) {
        let index = text
            .lines()
            .position(|line| line.starts_with(begin))
            .unwrap();
        assert_mistake(text, 1 + index, said);
    }
}
