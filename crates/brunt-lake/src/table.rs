//! What a table is: its columns, their types, and a line of documentation for each. Writers, readers
//! and the pages under `docs/` all follow these descriptions.
//!
//! The rules: a unit is the last word of a column's name (`start_ns`, `len_bytes`). Integers are
//! Int64, counts too, since unsigned types make some engines answer a division with a decimal;
//! [`Row::count`](crate::Row::count) keeps what does not fit at the largest Int64.

/// A table's description, usually a `const`.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// Name of the table, and of its folder.
    pub name: &'static str,
    /// What a row is, in a sentence or two (Markdown).
    pub doc: &'static str,
    /// In the order of the file.
    pub columns: &'static [Column],
}

/// A column's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, unit last.
    pub name: &'static str,
    /// What it says, in one line (Markdown).
    pub doc: &'static str,
    /// Its type.
    pub kind: ColumnKind,
    /// Whether a row may have no value here; then the doc says when.
    pub nullable: bool,
    /// How its values are laid out before compression.
    pub coding: Coding,
}

/// The types there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Int64.
    Int,
    /// A time on the calendar: Int64 nanoseconds since 1970, UTC (Parquet's TIMESTAMP).
    Time,
    /// Double.
    Float,
    /// Boolean.
    Bool,
    /// UTF-8 text.
    Text,
    /// Bytes without a meaning of their own, such as a sketch that engines merge.
    Bytes,
}

/// The layout of a column's values, before zstd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// As they are: for floats, and integers without any order, such as random offsets.
    Plain,
    /// Differences in as few bits as they need: for times, indexes, counts and lengths. Of texts,
    /// only their lengths.
    Delta,
    /// Each distinct value once: for names and codes, of which there are few.
    Dictionary,
}

impl Column {
    const fn new(
        name: &'static str,
        kind: ColumnKind,
        coding: Coding,
        doc: &'static str,
    ) -> Column {
        Column {
            name,
            doc,
            kind,
            nullable: false,
            coding,
        }
    }

    /// An integer column, delta-coded unless said otherwise.
    pub const fn int(name: &'static str, doc: &'static str) -> Column {
        Column::new(name, ColumnKind::Int, Coding::Delta, doc)
    }

    /// A column of times on the calendar, given as nanoseconds since 1970. Its name has no unit: engines know it.
    pub const fn time(name: &'static str, doc: &'static str) -> Column {
        Column::new(name, ColumnKind::Time, Coding::Delta, doc)
    }

    /// A column of doubles.
    pub const fn float(name: &'static str, doc: &'static str) -> Column {
        Column::new(name, ColumnKind::Float, Coding::Plain, doc)
    }

    /// A column of truth values.
    pub const fn bool(name: &'static str, doc: &'static str) -> Column {
        Column::new(name, ColumnKind::Bool, Coding::Plain, doc)
    }

    /// A text column, dictionary-coded unless said otherwise.
    pub const fn text(name: &'static str, doc: &'static str) -> Column {
        Column::new(name, ColumnKind::Text, Coding::Dictionary, doc)
    }

    /// A column of bytes.
    pub const fn bytes(name: &'static str, doc: &'static str) -> Column {
        Column::new(name, ColumnKind::Bytes, Coding::Plain, doc)
    }

    /// The same, but a row may have no value.
    pub const fn nullable(mut self) -> Column {
        self.nullable = true;
        self
    }

    /// The same in another layout.
    pub const fn coded(mut self, coding: Coding) -> Column {
        self.coding = coding;
        self
    }
}

/// Several lists of columns as one of `N`, for tables that share groups of columns.
///
/// # Panics
/// They are not `N` together; the compiler says so.
pub const fn columns<const N: usize>(groups: &[&[Column]]) -> [Column; N] {
    let mut all = [Column::bool("", ""); N];
    let (mut group, mut filled) = (0, 0);
    while group < groups.len() {
        let mut index = 0;
        while index < groups[group].len() {
            all[filled] = groups[group][index];
            (index, filled) = (index + 1, filled + 1);
        }
        group += 1;
    }
    assert!(filled == N);
    all
}

impl ColumnKind {
    /// As SQL engines call it.
    pub fn sql(self) -> &'static str {
        match self {
            ColumnKind::Int => "BIGINT",
            ColumnKind::Time => "TIMESTAMP",
            ColumnKind::Float => "DOUBLE",
            ColumnKind::Bool => "BOOLEAN",
            ColumnKind::Text => "VARCHAR",
            ColumnKind::Bytes => "BLOB",
        }
    }
}

impl Table {
    /// The place of a column.
    ///
    /// # Panics
    /// There is none of that name: our own mistake.
    pub fn index_of(&self, column: &str) -> usize {
        let place = self
            .columns
            .iter()
            .position(|candidate| candidate.name == column);
        place.unwrap_or_else(|| panic!("table {} has no column {column}", self.name))
    }

    /// What is wrong with the description; for the test that walks a crate's tables.
    pub fn mistakes(&self) -> Vec<String> {
        let plain = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_lowercase())
                && name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        let mut mistakes = Vec::new();
        let mut say = |what: String| mistakes.push(format!("{}: {what}", self.name));
        if !plain(self.name) || self.doc.is_empty() || self.columns.is_empty() {
            say("needs a plain name, a doc and columns".into());
        }
        for (index, column) in self.columns.iter().enumerate() {
            let Column {
                name,
                doc,
                kind,
                coding,
                ..
            } = *column;
            if !plain(name) || doc.is_empty() || doc.contains(['\n', '|']) {
                say(format!(
                    "column {name} needs a plain name and a doc of one line"
                ));
            }
            if self.columns[..index]
                .iter()
                .any(|before| before.name == name)
            {
                say(format!("column {name} is there twice"));
            }
            let odd = match kind {
                ColumnKind::Bool | ColumnKind::Bytes => coding != Coding::Plain,
                ColumnKind::Float => coding == Coding::Delta,
                ColumnKind::Time => coding != Coding::Delta,
                ColumnKind::Int | ColumnKind::Text => false,
            };
            if odd {
                say(format!(
                    "column {name}: {coding:?} does nothing for {kind:?}"
                ));
            }
        }
        mistakes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each mistake in a description is told, and a good one has none.
    #[test]
    fn mistakes_are_told() {
        const GOOD: Table = Table {
            name: "good",
            doc: "Rows.",
            columns: &[Column::int("a_ns", "A time.")],
        };
        const BAD: Table = Table {
            name: "bad",
            doc: "Rows.",
            columns: &[
                Column::int("a", "One."),
                Column::int("a", ""),
                Column::bool("b", "Two.").coded(Coding::Delta),
                Column::text("C c", "Three."),
            ],
        };
        assert_eq!(GOOD.mistakes(), Vec::<String>::new());
        let told = BAD.mistakes();
        assert_eq!(told.len(), 4, "{told:?}");
        assert_eq!((BAD.index_of("b"), ColumnKind::Text.sql()), (2, "VARCHAR"));
    }
}
