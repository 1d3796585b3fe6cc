//! `include`: composes an experiment from several files, so that, for example, a store of twenty hosts is described
//! once and used in many experiments, with parameters.
//!
//! ```toml
//! include = ["hosts.toml", { file = "stores/ceph.toml", with = { replicas = 3 } }]
//! ```
//!
//! An included file declares its parameters, and uses each as `${name}`, in keys and in strings; a string that consists
//! only of `${name}` takes the parameter's type, and `${name * 0.5}` is a number:
//!
//! ```toml
//! [parameters]
//! replicas = { default = 3, help = "copies of each object" }
//! size = { help = "of each disk" }          # without a default it has to be given
//! [targets."copies-${replicas}"]
//! serve = "memory:${size}"
//! ```
//!
//! Paths are relative to the file that contains them. Tables are merged. Setting the same key in two files is a
//! mistake, because parameters express what varies; only the lists in [`COLLECTED`] are concatenated, included files
//! first. A name that begins with `brunt:` refers to a ready-made file ([`super::ready_made`]).
//!
//! The rule: every value keeps its source position, so that a mistake is reported in the file that contains it.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use brunt_core::input::InputFile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::FILE_BYTES_MAX;
use super::mistake::{FileError, Source};
use super::ready_made::{self, UnknownName};

/// Maximum number of files in an experiment: more indicate a cycle or a typing error.
pub const FILES_MAX: usize = 64;
/// Maximum nesting depth of included files.
pub const DEPTH_MAX: usize = 8;
/// Lists that several files may add to; any other key may be set in one file only.
pub const COLLECTED: [&[&str]; 3] = [&["fault"], &["allow_overwrite"], &["lab", "hosts"]];

/// One or more files that an experiment includes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a file, or a list of files and { file = …, with = { … } }"
)]
pub enum Includes {
    /// One file.
    One(Include),
    /// Several files, included in this order.
    Several(Vec<Include>),
}

/// An included file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a file, or { file = …, with = { … } }")]
pub enum Include {
    /// A file whose parameters keep their defaults.
    File(PathBuf),
    /// With parameters.
    With(IncludeWith),
}

/// A file, with values for its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IncludeWith {
    /// Path, relative to the including file.
    pub file: PathBuf,
    /// Values for the parameters that the file declares under `[parameters]`.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub with: BTreeMap<String, toml::Value>,
}

/// The declaration of a parameter in an included file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameter {
    default: Option<toml::Value>,
    #[serde(default)]
    help: String,
}

/// The source of included files: the file system, or a test.
pub(super) type Loader<'a> = &'a dyn Fn(&Path) -> io::Result<String>;

type Span = std::ops::Range<usize>;
type Result<T> = std::result::Result<T, Box<FileError>>;

/// Reads a file, but not much more than the largest permitted experiment file, which is enough for parsing to report
/// that it is too large.
pub(super) fn load(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let limit = FILE_BYTES_MAX as u64 + 1;
    InputFile::open(path)?
        .take(limit)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// Reads a file and everything that it includes, and merges them.
///
/// # Errors
/// Returns the first mistake, in the file that contains it.
pub(super) fn read<'a>(
    name: &str,
    text: &str,
    texts: &'a Texts,
    load: Loader<'_>,
) -> Result<Source<'a>> {
    let mut reader = Reader {
        source: Source::default(),
        texts,
        load,
        chain: vec![PathBuf::from(name)],
    };
    let root = reader.file(name, text.to_string(), None)?;
    let mut source = reader.source;
    source.unite(root);
    Ok(source)
}

/// Parameters as given, and the position where they were given.
struct GivenParameters {
    values: BTreeMap<String, toml::Value>,
    span: Span,
}

/// Texts that don't move when more are added, because values parsed from them borrow from them.
#[derive(Default)]
pub(super) struct Texts {
    text: OnceCell<String>,
    next: OnceCell<Box<Texts>>,
}

impl Texts {
    fn add(&self, text: String) -> &str {
        let mut last = self;
        while last.text.get().is_some() {
            last = last.next.get_or_init(Box::default);
        }
        last.text.get_or_init(|| text)
    }
}

struct Reader<'a, 'l> {
    source: Source<'a>,
    texts: &'a Texts,
    load: Loader<'l>,
    /// The files being read, each included by the previous one.
    chain: Vec<PathBuf>,
}

impl<'a> Reader<'a, '_> {
    /// Reads a file and everything that it includes. The experiment's own file has no parameters.
    fn file(
        &mut self,
        name: &str,
        text: String,
        with: Option<GivenParameters>,
    ) -> Result<DeTable<'a>> {
        let text = self.texts.add(text);
        let base = self.source.add(name, text);
        if text.len() > FILE_BYTES_MAX {
            let what = format!(
                "{} bytes exceed the maximum size of an experiment file ({FILE_BYTES_MAX})",
                text.len()
            );
            return Err(self.source.mistake_at(Some(base..base), what, None));
        }
        let parsed =
            DeTable::parse(text).map_err(|error| self.source.unreadable_in(base, &error))?;
        let mut own = shifted(parsed.into_inner(), base);
        // The experiment keeps its own `include`, which shows what it was composed of; that of an included file is
        // dropped.
        let own_includes = own.get("include").filter(|_| with.is_none()).cloned();
        if let Some(with) = with {
            let values = self.parameters(&mut own, with)?;
            own = self.substituted(own, &values)?;
        }
        let mut all = DeTable::new();
        for (include, span) in self.includes(&mut own)? {
            let included = self.included(include, span)?;
            self.unite(&mut all, included, &mut Vec::new())?;
        }
        self.unite(&mut all, own, &mut Vec::new())?;
        if let Some(includes) = own_includes {
            all.insert(Spanned::new(includes.span(), "include".into()), includes);
        }
        Ok(all)
    }

    /// Removes `include` from the file and returns the included files, each with its position.
    fn includes(&self, own: &mut DeTable<'a>) -> Result<Vec<(Include, Span)>> {
        let Some(value) = own.remove("include") else {
            return Ok(Vec::new());
        };
        let (span, value) = (value.span(), value.into_inner());
        let items = match value {
            DeValue::Array(items) => items.into_iter().map(|item| (item.span(), item)).collect(),
            other => vec![(span.clone(), Spanned::new(span, other))],
        };
        let read = |(span, item): (Span, Spanned<DeValue<'a>>)| {
            let include = Include::deserialize(toml::de::ValueDeserializer::from(item));
            let include =
                include.map_err(|error| self.source.unreadable(&error, Some(span.clone())))?;
            Ok((include, span))
        };
        items.into_iter().map(read).collect()
    }

    fn included(&mut self, include: Include, span: Span) -> Result<DeTable<'a>> {
        let (file, values) = match include {
            Include::File(file) => (file, BTreeMap::new()),
            Include::With(IncludeWith { file, with }) => (file, with),
        };
        let here = self
            .chain
            .last()
            .expect("the experiment's own file is the first");
        let ready_made = ready_made::text_of(&file);
        let path = match ready_made {
            Some(_) => file,
            None => here.parent().unwrap_or(Path::new("")).join(&file),
        };
        let wrong = |what: String, help: &str| {
            Err(self
                .source
                .mistake_at(Some(span.clone()), what, Some(help.to_string())))
        };
        if self.chain.contains(&path) {
            return wrong(
                format!("{} includes itself", path.display()),
                "remove this line",
            );
        }
        if self.chain.len() > DEPTH_MAX || self.source.files() >= FILES_MAX {
            let what = format!("more than {DEPTH_MAX} nested files, or {FILES_MAX} in total");
            return wrong(what, "merge some of the files");
        }
        let text = match ready_made.map_or_else(
            || Ok((self.load)(&path)),
            |text| text.map(|text| Ok(text.to_string())),
        ) {
            Ok(Ok(text)) => text,
            Err(UnknownName) => {
                let what = format!("no ready-made file is called {}", path.display());
                return wrong(what, &UnknownName::help());
            }
            Ok(Err(error)) => {
                let help = "paths are relative to the file that includes them";
                return wrong(format!("cannot read {}: {error}", path.display()), help);
            }
        };
        self.chain.push(path.clone());
        let table = self.file(
            &path.display().to_string(),
            text,
            Some(GivenParameters { values, span }),
        )?;
        self.chain.pop();
        Ok(table)
    }

    /// The values of a file's parameters: the given ones, and defaults for the others. Removes `[parameters]` from
    /// the file.
    fn parameters(
        &self,
        own: &mut DeTable<'a>,
        given: GivenParameters,
    ) -> Result<BTreeMap<String, toml::Value>> {
        let mut values = given.values;
        let wrong = |span: &Span, what: String, help: Option<String>| {
            Err(self.source.mistake_at(Some(span.clone()), what, help))
        };
        let mut known = BTreeMap::new();
        if let Some(declared) = own.remove("parameters") {
            let span = declared.span();
            let DeValue::Table(declared) = declared.into_inner() else {
                let help = "write [parameters], and NAME = { default = 3, help = \"…\" } for each";
                return wrong(&span, "parameters is not a table".into(), Some(help.into()));
            };
            for (name, value) in declared {
                let span = value.span();
                let parameter = Parameter::deserialize(toml::de::ValueDeserializer::from(value));
                let parameter = parameter
                    .map_err(|error| self.source.unreadable(&error, Some(span.clone())))?;
                known.insert(name.into_inner().into_owned(), parameter);
            }
        }
        for (name, value) in &values {
            let Some(parameter) = known.get(name) else {
                let names: Vec<&str> = known.keys().map(String::as_str).collect();
                let help = match names[..] {
                    [] => "the file has no [parameters]".to_string(),
                    _ => format!("it has {}", names.join(", ")),
                };
                return wrong(
                    &given.span,
                    format!("the file has no parameter {name}"),
                    Some(help),
                );
            };
            if let Some(default) = &parameter.default
                && !default.same_type(value)
            {
                let what = format!(
                    "{name} is {} here, but {} in the file",
                    article(value.type_str()),
                    article(default.type_str())
                );
                let help = format!("its default is {default}");
                return wrong(&given.span, what, Some(help));
            }
        }
        for (name, parameter) in known {
            if values.contains_key(&name) {
                continue;
            }
            let Some(default) = parameter.default else {
                let meaning = if parameter.help.is_empty() {
                    name.clone()
                } else {
                    parameter.help
                };
                let help = format!("write with = {{ {name} = … }}: {meaning}");
                return wrong(
                    &given.span,
                    format!("the file needs a value for {name}"),
                    Some(help),
                );
            };
            values.insert(name, default);
        }
        Ok(values)
    }

    /// The table with `${name}` replaced in keys and strings.
    fn substituted(
        &self,
        table: DeTable<'a>,
        values: &BTreeMap<String, toml::Value>,
    ) -> Result<DeTable<'a>> {
        let mut out = DeTable::new();
        for (key, value) in table {
            let span = key.span();
            let text = self.replaced(key.get_ref(), &span, values)?;
            out.insert(Spanned::new(span, text.into()), self.value(value, values)?);
        }
        Ok(out)
    }

    fn value(
        &self,
        value: Spanned<DeValue<'a>>,
        values: &BTreeMap<String, toml::Value>,
    ) -> Result<Spanned<DeValue<'a>>> {
        let span = value.span();
        let value = match value.into_inner() {
            DeValue::Table(table) => DeValue::Table(self.substituted(table, values)?),
            DeValue::Array(items) => {
                let items = items.into_iter().map(|item| self.value(item, values));
                DeValue::Array(items.collect::<Result<_>>()?)
            }
            DeValue::String(text) => match whole(&text) {
                Some(name) => {
                    let value = self.parameter(name, &span, values)?;
                    self.at(&value, &span)
                }
                None => DeValue::String(self.replaced(&text, &span, values)?.into()),
            },
            other => other,
        };
        Ok(Spanned::new(span, value))
    }

    /// `$${` stands for `${` itself.
    fn replaced(
        &self,
        text: &str,
        span: &Span,
        values: &BTreeMap<String, toml::Value>,
    ) -> Result<String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(place) = rest.find("${") {
            if rest[..place].ends_with('$') {
                out += &rest[..place - 1];
                out += "${";
                rest = &rest[place + 2..];
                continue;
            }
            out += &rest[..place];
            let inner = &rest[place + 2..];
            let Some(end) = inner.find('}') else {
                let help = Some("write ${name}, or $${ for the characters themselves".to_string());
                return Err(self.source.mistake_at(
                    Some(span.clone()),
                    "${ without its }".into(),
                    help,
                ));
            };
            let value = self.parameter(&inner[..end], span, values)?;
            out += &self.in_text(&value, span)?;
            rest = &inner[end + 1..];
        }
        out += rest;
        Ok(out)
    }

    /// The value of the text between `${` and `}`: a parameter's name, or `name * factor`.
    fn parameter<'v>(
        &self,
        text: &str,
        span: &Span,
        values: &'v BTreeMap<String, toml::Value>,
    ) -> Result<Cow<'v, toml::Value>> {
        let wrong = |what: String, help: String| {
            self.source.mistake_at(Some(span.clone()), what, Some(help))
        };
        let (name, factor) = match text.split_once('*') {
            Some((name, factor)) => (name.trim(), Some(factor.trim())),
            None => (text, None),
        };
        let Some(value) = values.get(name) else {
            let names: Vec<&str> = values.keys().map(String::as_str).collect();
            let help = match names[..] {
                [] => format!("write it under [parameters]: {name} = {{ default = … }}"),
                _ => format!("available: {}", names.join(", ")),
            };
            return Err(wrong(format!("unknown parameter {name}"), help));
        };
        let Some(factor) = factor else {
            return Ok(Cow::Borrowed(value));
        };
        let number = value
            .as_float()
            .or(value.as_integer().map(|whole| whole as f64));
        match (number, factor.parse::<f64>()) {
            (Some(number), Ok(factor)) if factor.is_finite() => {
                Ok(Cow::Owned(toml::Value::Float(number * factor)))
            }
            (None, _) => {
                let what = format!(
                    "{name} is {}, which cannot be multiplied",
                    article(value.type_str())
                );
                Err(wrong(what, "give it as a number".into()))
            }
            _ => {
                let what = format!("{factor} is not a number");
                Err(wrong(what, format!("write ${{{name} * 0.5}}")))
            }
        }
    }

    /// Formats a value as part of a string.
    fn in_text(&self, value: &toml::Value, span: &Span) -> Result<String> {
        match value {
            toml::Value::String(text) => Ok(text.clone()),
            toml::Value::Array(_) | toml::Value::Table(_) => {
                let what = format!("{} cannot be part of a string", article(value.type_str()));
                let help = Some("write \"${name}\" and nothing else".to_string());
                Err(self.source.mistake_at(Some(span.clone()), what, help))
            }
            other => Ok(other.to_string()),
        }
    }

    /// A parameter's value, with the position where it is used.
    fn at(&self, value: &toml::Value, span: &Span) -> DeValue<'a> {
        let table = toml::Table::from_iter([("value".to_string(), value.clone())]);
        let table = DeTable::parse(self.texts.add(table.to_string()));
        let table = table
            .expect("a file that was parsed can be parsed again")
            .into_inner();
        let value = table.into_iter().next().expect("there is one value").1;
        moved(value, &|_| span.clone()).into_inner()
    }

    /// Merges `more` into `all`.
    fn unite(
        &self,
        all: &mut DeTable<'a>,
        more: DeTable<'a>,
        path: &mut Vec<String>,
    ) -> Result<()> {
        for (key, value) in more {
            path.push(key.get_ref().to_string());
            let there = all
                .iter()
                .find(|(known, _)| known.get_ref() == key.get_ref());
            let there_span = there.map(|(known, _)| known.span());
            let span = value.span();
            match (
                all.get_mut(key.get_ref().as_ref()).map(Spanned::get_mut),
                value.into_inner(),
            ) {
                (None, value) => {
                    all.insert(key, Spanned::new(span, value));
                }
                (Some(DeValue::Table(there)), DeValue::Table(more)) => {
                    self.unite(there, more, path)?
                }
                (Some(DeValue::Array(there)), DeValue::Array(more)) if is_collected(path) => {
                    more.into_iter().for_each(|item| there.push(item));
                }
                (Some(_), _) => {
                    let first =
                        there_span.map_or_else(String::new, |span| self.source.place(span.start));
                    let what = format!("{} is already set in {first}", path.join("."));
                    let help = Some("remove one of them, or make it a parameter".to_string());
                    return Err(self.source.mistake_at(Some(key.span()), what, help));
                }
            }
            path.pop();
        }
        Ok(())
    }
}

fn is_collected(path: &[String]) -> bool {
    COLLECTED.iter().any(|list| list.iter().eq(path.iter()))
}

/// The parameter's name if the text consists only of `${name}`.
fn whole(text: &str) -> Option<&str> {
    let name = text.strip_prefix("${")?.strip_suffix('}')?;
    (!name.contains('}')).then_some(name)
}

fn article(kind: &str) -> String {
    let an = kind.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {kind}", if an { "an" } else { "a" })
}

/// The table, with positions counted from the start of all files.
fn shifted(table: DeTable<'_>, base: usize) -> DeTable<'_> {
    let place = |span: Span| span.start + base..span.end + base;
    table
        .into_iter()
        .map(|entry| moved_entry(entry, &place))
        .collect()
}

type Entry<'a> = (Spanned<Cow<'a, str>>, Spanned<DeValue<'a>>);

fn moved_entry<'a>((key, value): Entry<'a>, place: &dyn Fn(Span) -> Span) -> Entry<'a> {
    (
        Spanned::new(place(key.span()), key.into_inner()),
        moved(value, place),
    )
}

/// A value with its positions mapped by `place`.
fn moved<'a>(value: Spanned<DeValue<'a>>, place: &dyn Fn(Span) -> Span) -> Spanned<DeValue<'a>> {
    let span = place(value.span());
    let value = match value.into_inner() {
        DeValue::Table(table) => DeValue::Table(
            table
                .into_iter()
                .map(|entry| moved_entry(entry, place))
                .collect(),
        ),
        DeValue::Array(items) => {
            DeValue::Array(items.into_iter().map(|item| moved(item, place)).collect())
        }
        other => other,
    };
    Spanned::new(span, value)
}

#[cfg(test)]
mod tests;
