//! Renders a JSON Schema as a reference for readers: one section per table, one line per key with its kind of value,
//! default, meaning and an example. It doesn't depend on what the schema describes.
//!
//! The rule: every word of the reference comes from the schema (descriptions are the types' doc comments) or from
//! documents known to be valid (examples). Keys that lack a description or an example are listed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

use serde_json::{Map, Value};

/// The notation of values and keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Notation {
    /// `key = value`
    Toml,
    /// `"key": value`
    Json,
}

/// The inputs for a reference.
pub struct Reference<'a> {
    pub schema: &'a Value,
    /// Valid documents, from which the example for each key is taken.
    pub examples: &'a [Value],
    pub notation: Notation,
    /// The document's keys in the best reading order; all other keys follow.
    pub order: &'a [&'a str],
}

/// The text of the reference, and the keys that have no description or no example.
pub struct Rendered {
    pub text: String,
    pub lacking: Vec<String>,
}

/// Longer examples and defaults are avoided or replaced with a link.
const EXAMPLE_CHARS_MAX: usize = 60;

/// The kind of value of a key, with references resolved and "or null" left out.
#[derive(Clone)]
enum Shape<'a> {
    /// A separate table, identified by the name of its type.
    Table(&'a str),
    /// A text, a number, or a list of these.
    Plain(String),
    /// One of several fixed words.
    Words(&'a str),
    /// Tables or values under names that the user chooses.
    Named(Box<Shape<'a>>),
    List(Box<Shape<'a>>),
    /// One of several shapes, for example a table or a list of tables.
    Either(Vec<Shape<'a>>),
}

/// A table, or one of several alternatives that are distinguished by a `kind` or another key.
struct Variant<'a> {
    /// `None` for a table without alternatives.
    title: Option<String>,
    node: &'a Value,
}

impl<'a> Reference<'a> {
    pub fn render(&self) -> Rendered {
        let mut writer = Writer {
            reference: self,
            found: BTreeMap::new(),
            ..Writer::default_for(self)
        };
        for example in self.examples {
            writer.collect(ROOT, example);
        }
        writer.sections();
        Rendered {
            text: writer.text,
            lacking: writer.lacking,
        }
    }

    fn definition(&self, name: &str) -> &'a Value {
        if name == ROOT {
            self.schema
        } else {
            &self.schema["$defs"][name]
        }
    }

    /// The shape of a property or an element.
    fn shape(&self, node: &'a Value) -> Shape<'a> {
        if let Some(name) = node["$ref"]
            .as_str()
            .and_then(|name| name.strip_prefix("#/$defs/"))
        {
            return self.shape_of_definition(name);
        }
        if let Some(choices) = choices(node) {
            return self.alternatives(choices);
        }
        match type_of(node) {
            "array" => Shape::List(Box::new(self.shape(&node["items"]))),
            "object" => match &node["additionalProperties"] {
                element @ Value::Object(_) => Shape::Named(Box::new(self.shape(element))),
                _ => Shape::Plain("table".into()),
            },
            other => Shape::Plain(plain(other, node)),
        }
    }

    fn shape_of_definition(&self, name: &'a str) -> Shape<'a> {
        let node = self.definition(name);
        let is_table =
            |node: &Value| type_of(node) == "object" && node["additionalProperties"].is_boolean();
        match choices(node) {
            _ if is_unit(node) => Shape::Plain(format!("[{}](#values-with-units)", spoken(name))),
            Some(choices) if choices.iter().any(|choice| is_table(self.resolved(choice))) => {
                Shape::Table(name)
            }
            Some(choices) if choices.iter().all(is_word) => Shape::Words(name),
            Some(choices) => self.alternatives(choices),
            None if node["properties"].is_object() => Shape::Table(name),
            None if node["enum"].is_array() => Shape::Words(name),
            None => self.shape(node),
        }
    }

    fn resolved(&self, node: &'a Value) -> &'a Value {
        match node["$ref"]
            .as_str()
            .and_then(|name| name.strip_prefix("#/$defs/"))
        {
            Some(name) => self.resolved(self.definition(name)),
            None => node,
        }
    }

    fn alternatives(&self, choices: &'a [Value]) -> Shape<'a> {
        let some = choices.iter().filter(|choice| choice["type"] != "null");
        let mut shapes: Vec<Shape<'_>> = some.map(|choice| self.shape(choice)).collect();
        if shapes.len() == 1 {
            shapes.swap_remove(0)
        } else {
            Shape::Either(shapes)
        }
    }

    /// Describes the kind of value of a key.
    fn kind(&self, shape: &Shape<'a>) -> String {
        match shape {
            Shape::Table(_) => "table".into(),
            Shape::Plain(words) => words.clone(),
            Shape::Words(name) => {
                let words: Vec<String> = self
                    .words(name)
                    .iter()
                    .map(|(word, _)| format!("`{}`", self.literal(word)))
                    .collect();
                if words.len() > 4 {
                    "one of the words below".into()
                } else {
                    words.join(" or ")
                }
            }
            Shape::Named(element) => format!("{}, by name", plural(&self.kind(element))),
            Shape::List(element) => format!("list of {}", plural(&self.kind(element))),
            Shape::Either(shapes) => shapes
                .iter()
                .map(|shape| self.kind(shape))
                .collect::<Vec<_>>()
                .join(" or "),
        }
    }

    /// The words of an enumeration, with their meanings.
    fn words(&self, name: &str) -> Vec<(&'a Value, &'a str)> {
        let node = self.definition(name);
        match choices(node) {
            Some(choices) => choices
                .iter()
                .flat_map(|choice| {
                    let told = choice["description"].as_str().unwrap_or_default();
                    let several = choice["enum"]
                        .as_array()
                        .map(Vec::as_slice)
                        .unwrap_or_default();
                    choice
                        .get("const")
                        .into_iter()
                        .chain(several)
                        .map(move |word| (word, told))
                })
                .collect(),
            None => node["enum"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|word| (word, ""))
                .collect(),
        }
    }

    /// The variants of the table that a type describes.
    fn variants(&self, name: &str) -> Vec<Variant<'a>> {
        let node = self.definition(name);
        let Some(choices) = choices(node) else {
            return vec![Variant { title: None, node }];
        };
        let tables: Vec<&Value> = choices
            .iter()
            .map(|choice| self.resolved(choice))
            .filter(|choice| type_of(choice) == "object")
            .collect();
        if let [node] = tables[..] {
            return vec![Variant { title: None, node }];
        }
        let title = |node: &'a Value| {
            let word = properties(node)
                .find_map(|(key, value)| value.get("const").map(|word| self.pair(key, word)));
            let needed = || required(node).next().map(|key| format!("with {key}"));
            word.or_else(needed).unwrap_or_else(|| "otherwise".into())
        };
        tables
            .into_iter()
            .map(|node| Variant {
                title: Some(title(node)),
                node,
            })
            .collect()
    }

    /// The variant that a table in a document matches.
    fn variant(&self, name: &str, table: &Map<String, Value>) -> Option<usize> {
        self.variants(name).iter().position(|variant| {
            let known = |key: &String| variant.node["properties"].get(key).is_some();
            let fits = |(key, value): (&str, &Value)| {
                value
                    .get("const")
                    .is_none_or(|word| table.get(key) == Some(word))
            };
            required(variant.node).all(|key| table.contains_key(key))
                && (variant.node["additionalProperties"] != false || table.keys().all(known))
                && properties(variant.node).all(fits)
        })
    }

    fn literal(&self, value: &Value) -> String {
        match (self.notation, value) {
            (Notation::Json, _) => value.to_string(),
            (Notation::Toml, Value::Array(items)) => {
                let items: Vec<String> = items.iter().map(|item| self.literal(item)).collect();
                format!("[{}]", items.join(", "))
            }
            (Notation::Toml, Value::Object(table)) if table.is_empty() => "{}".into(),
            (Notation::Toml, Value::Object(table)) => {
                let pairs: Vec<String> = table
                    .iter()
                    .map(|(key, value)| self.pair(key, value))
                    .collect();
                format!("{{ {} }}", pairs.join(", "))
            }
            // A TOML basic string is written like a JSON string.
            (Notation::Toml, scalar) => scalar.to_string(),
        }
    }

    fn pair(&self, key: &str, value: &Value) -> String {
        match self.notation {
            Notation::Toml => format!("{key} = {}", self.literal(value)),
            Notation::Json => format!("\"{key}\": {}", self.literal(value)),
        }
    }
}

/// The type name of the document itself.
const ROOT: &str = "";

struct Writer<'r, 'a> {
    reference: &'r Reference<'a>,
    /// Examples by type, variant and key.
    found: BTreeMap<(String, usize, String), Vec<Value>>,
    text: String,
    lacking: Vec<String>,
    /// The section that describes each type.
    sections: BTreeMap<&'a str, String>,
    /// Enumerations that have already been explained.
    told: BTreeSet<&'a str>,
}

impl<'r, 'a> Writer<'r, 'a> {
    fn default_for(reference: &'r Reference<'a>) -> Writer<'r, 'a> {
        let (found, text, lacking) = Default::default();
        Writer {
            reference,
            found,
            text,
            lacking,
            sections: BTreeMap::new(),
            told: BTreeSet::new(),
        }
    }

    /// Collects the value of every key in a table of this type.
    fn collect(&mut self, name: &str, document: &Value) {
        let Some(table) = document.as_object() else {
            return;
        };
        let Some(index) = self.reference.variant(name, table) else {
            return;
        };
        let node = self.reference.variants(name).swap_remove(index).node;
        for (key, value) in table {
            let Some(property) = node["properties"].get(key) else {
                continue;
            };
            self.found
                .entry((name.to_string(), index, key.clone()))
                .or_default()
                .push(value.clone());
            let shape = self.reference.shape(property);
            self.collect_in(&shape, value);
        }
    }

    fn collect_in(&mut self, shape: &Shape<'a>, value: &Value) {
        match (shape, value) {
            (Shape::Table(name), value) => self.collect(name, value),
            (Shape::Either(shapes), value) => shapes
                .iter()
                .for_each(|shape| self.collect_in(shape, value)),
            (Shape::Named(element), Value::Object(table)) => {
                table
                    .values()
                    .for_each(|value| self.collect_in(element, value));
            }
            (Shape::List(element), Value::Array(items)) => {
                items
                    .iter()
                    .for_each(|value| self.collect_in(element, value));
            }
            _ => {}
        }
    }

    fn sections(&mut self) {
        self.places();
        self.section(ROOT, "The file", 2);
        self.units();
    }

    /// Assigns each type the section to which the shortest path to the type leads; of several shortest paths, the
    /// first.
    fn places(&mut self) {
        let mut open = VecDeque::from([(ROOT, String::new())]);
        while let Some((name, path)) = open.pop_front() {
            for (key, property) in self.keys_of(name) {
                for (table, place) in inner(&self.reference.shape(property), &joined(&path, key)) {
                    let is_taken = self.sections.values().any(|taken| *taken == place);
                    if !is_taken && !self.sections.contains_key(table) {
                        self.sections.insert(table, place.clone());
                        open.push_back((table, place));
                    }
                }
            }
        }
    }

    /// All keys of a type, variant by variant.
    fn keys_of(&self, name: &str) -> Vec<(&'a str, &'a Value)> {
        let mut keys: Vec<(&str, &Value)> = Vec::new();
        for variant in self.reference.variants(name) {
            for (key, property) in properties(variant.node) {
                if keys.iter().all(|(known, _)| *known != key) {
                    keys.push((key, property));
                }
            }
        }
        if name == ROOT {
            let place = |key: &str| self.reference.order.iter().position(|known| *known == key);
            keys.sort_by_key(|(key, _)| place(key).unwrap_or(usize::MAX));
        }
        keys
    }

    fn section(&mut self, name: &'a str, heading: &str, level: usize) {
        let reference = self.reference;
        let _ = write!(self.text, "\n{} {heading}\n", "#".repeat(level));
        if name != ROOT {
            self.paragraph(reference.definition(name), heading);
        }
        for (index, variant) in reference.variants(name).into_iter().enumerate() {
            if let Some(title) = &variant.title {
                let told = one_line(variant.node["description"].as_str().unwrap_or_default());
                if told.is_empty() {
                    self.lacking
                        .push(format!("{heading}, {title}: no description"));
                }
                let _ = write!(self.text, "\n**`{title}`**: {told}\n");
            }
            self.table(name, index, &variant, heading);
        }
        for (_, property) in self.keys_of(name) {
            if let Shape::Words(words) = innermost(&reference.shape(property)) {
                self.explain(words);
            }
        }
        for (key, property) in self.keys_of(name) {
            let path = if name == ROOT {
                ""
            } else {
                heading.trim_matches('`')
            };
            for (table, place) in inner(&reference.shape(property), &joined(path, key)) {
                if self.sections.get(table) == Some(&place) {
                    let level = if name == ROOT { 2 } else { 3 };
                    self.section(table, &format!("`{place}`"), level);
                }
            }
        }
    }

    fn paragraph(&mut self, node: &Value, heading: &str) {
        match node["description"].as_str() {
            Some(text) => {
                let _ = write!(self.text, "\n{}\n", one_line(text));
            }
            None => self.lacking.push(format!("{heading}: no description")),
        }
    }

    fn table(&mut self, name: &str, index: usize, variant: &Variant<'a>, heading: &str) {
        let needed: BTreeSet<&str> = required(variant.node).collect();
        let mut keys: Vec<(&str, &Value)> = properties(variant.node)
            .filter(|(_, property)| property.get("const").is_none())
            .collect();
        if keys.is_empty() {
            return;
        }
        let place = |key: &str| match name {
            ROOT => self
                .reference
                .order
                .iter()
                .position(|known| *known == key)
                .unwrap_or(usize::MAX),
            _ => usize::from(!needed.contains(key)),
        };
        keys.sort_by_key(|(key, _)| place(key));
        self.text += "\n| Key | Value | Default | Meaning | Example |\n|---|---|---|---|---|\n";
        for (key, property) in keys {
            let what = format!("{heading}: {key}");
            let shape = self.reference.shape(property);
            // If a variant's only key has no description, that of the variant applies.
            let said = property
                .get("description")
                .or_else(|| variant.node.get("description"));
            let told = said
                .and_then(Value::as_str)
                .map(one_line)
                .unwrap_or_default();
            if told.is_empty() {
                self.lacking.push(format!("{what}: no description"));
            }
            let default = match property.get("default") {
                _ if needed.contains(key) => "required".to_string(),
                None | Some(Value::Null) => "none".to_string(),
                Some(Value::Array(items)) if items.is_empty() => "none".to_string(),
                Some(value @ (Value::Object(_) | Value::Array(_))) => {
                    let text = self.reference.literal(value);
                    if text == "{}" || text.len() > EXAMPLE_CHARS_MAX {
                        "none".into()
                    } else {
                        format!("`{text}`")
                    }
                }
                Some(value) => format!("`{}`", self.reference.literal(value)),
            };
            let example = self.example(name, index, key, property, &shape, &what);
            let kind = self.reference.kind(&shape);
            let cells = [format!("`{key}`"), kind, default, told, example]
                .map(|cell| cell.replace('|', "\\|"));
            let _ = writeln!(self.text, "| {} |", cells.join(" | "));
        }
    }

    /// A representative value from a valid document, or a link to the description of its table.
    fn example(
        &mut self,
        name: &str,
        index: usize,
        key: &str,
        property: &Value,
        shape: &Shape<'a>,
        what: &str,
    ) -> String {
        let leads_to = inner(shape, "").first().map(|(table, _)| {
            let place = &self.sections[table];
            format!("[`{place}`](#{})", anchor(place))
        });
        let values = self.found.get(&(name.to_string(), index, key.to_string()));
        let Some(values) = values else {
            self.lacking.push(format!("{what}: no example"));
            return leads_to.unwrap_or_default();
        };
        let texts = values.iter().map(|value| {
            (
                Some(value) == property.get("default"),
                self.reference.pair(key, value),
            )
        });
        let best = texts.enumerate().min_by_key(|(order, (usual, text))| {
            (
                *usual,
                text.len() > EXAMPLE_CHARS_MAX,
                if text.len() > EXAMPLE_CHARS_MAX {
                    text.len()
                } else {
                    *order
                },
            )
        });
        let (_, (_, text)) = best.expect("an entry has at least one value");
        match leads_to {
            Some(link) if text.len() > EXAMPLE_CHARS_MAX => link,
            Some(link) => format!("`{text}`, see {link}"),
            None => format!("`{text}`"),
        }
    }

    /// Explains the words of each enumeration once.
    fn explain(&mut self, name: &'a str) {
        let words = self.reference.words(name);
        if !self.told.insert(name) || words.iter().all(|(_, told)| told.is_empty()) {
            return;
        }
        let title = self.reference.definition(name)["description"]
            .as_str()
            .map(one_line)
            .unwrap_or_default();
        let title = title.trim_end_matches('.').replace('|', "\\|");
        let _ = write!(self.text, "\n| Word | {title} |\n|---|---|\n");
        for (word, told) in words {
            let cells = [
                format!("`{}`", self.reference.literal(word)),
                one_line(told),
            ];
            let cells = cells.map(|cell| cell.replace('|', "\\|"));
            let _ = writeln!(self.text, "| {} |", cells.join(" | "));
        }
    }

    /// Lists the types that are written as text with a unit.
    fn units(&mut self) {
        let definitions = self.reference.schema["$defs"].as_object();
        let units: Vec<_> = definitions
            .into_iter()
            .flatten()
            .filter(|(_, node)| is_unit(node))
            .collect();
        if units.is_empty() {
            return;
        }
        self.text += "\n## Values with units\n\n| Kind | How it is written |\n|---|---|\n";
        for (name, node) in units {
            let told = one_line(node["description"].as_str().unwrap_or_default());
            let told = told.trim_end_matches('.').replace('|', "\\|");
            let _ = writeln!(self.text, "| {} | {told} |", spoken(name));
        }
    }
}

/// The types of the tables to which a shape leads, each with the path to one of them.
fn inner<'a>(shape: &Shape<'a>, path: &str) -> Vec<(&'a str, String)> {
    match shape {
        Shape::Table(name) => vec![(name, path.to_string())],
        Shape::Named(element) => inner(element, &format!("{path}.NAME")),
        Shape::List(element) => inner(element, &format!("{path}[]")),
        Shape::Either(shapes) => shapes.iter().flat_map(|shape| inner(shape, path)).collect(),
        Shape::Plain(_) | Shape::Words(_) => Vec::new(),
    }
}

fn innermost<'s, 'a>(shape: &'s Shape<'a>) -> &'s Shape<'a> {
    match shape {
        Shape::Named(element) | Shape::List(element) => innermost(element),
        other => other,
    }
}

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_string()
    } else {
        format!("{path}.{key}")
    }
}

/// The anchor that common sites generate for a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

fn choices(node: &Value) -> Option<&Vec<Value>> {
    node["oneOf"]
        .as_array()
        .or_else(|| node["anyOf"].as_array())
}

fn properties(node: &Value) -> impl Iterator<Item = (&str, &Value)> {
    node["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value))
}

fn required(node: &Value) -> impl Iterator<Item = &str> {
    node["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

fn is_word(choice: &Value) -> bool {
    choice.get("const").is_some() || choice["enum"].is_array()
}

/// Whether values of a type are written as text in a certain form.
fn is_unit(node: &Value) -> bool {
    let has_form = |node: &Value| node["pattern"].is_string();
    has_form(node) || choices(node).is_some_and(|choices| choices.iter().any(has_form))
}

/// The type, without "or null".
fn type_of(node: &Value) -> &str {
    match &node["type"] {
        Value::Array(types) => types
            .iter()
            .filter_map(Value::as_str)
            .find(|name| *name != "null")
            .unwrap_or(""),
        other => other.as_str().unwrap_or(""),
    }
}

fn plain(name: &str, node: &Value) -> String {
    let most = node["maximum"]
        .as_u64()
        .map(|most| format!(", {} to {most}", node["minimum"].as_u64().unwrap_or(0)));
    match name {
        "string" => "text".into(),
        "integer" => format!("whole number{}", most.unwrap_or_default()),
        "number" => "number".into(),
        "boolean" => "`true` or `false`".into(),
        other => other.to_string(),
    }
}

fn plural(kind: &str) -> String {
    match kind {
        "text" => "texts".into(),
        "table" => "tables".into(),
        "number" | "whole number" => format!("{kind}s"),
        other => other.replace("](#values-with-units)", "s](#values-with-units)"),
    }
}

/// Converts `BitRate` to "bit rate".
fn spoken(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push(' ');
        }
        text.extend(c.to_lowercase());
    }
    text
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
