//! Describes a table: its columns, their types, and a line of documentation for each. Writers, readers and the pages
//! under `docs/` all use these descriptions.
//!
//! The rules: a column's name ends with its unit (`start_ns`, `len_bytes`). Integers, including counts, are Int64,
//! because some engines return decimals when dividing unsigned types; [`Row::count`](crate::Row::count) saturates at
//! the largest Int64.

/// A table's description, usually a `const`.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// Name of the table and its folder.
    pub name: &'static str,
    /// What a row represents, in a sentence or two (Markdown).
    pub doc: &'static str,
    /// The columns, in file order.
    pub columns: &'static [Column],
}

/// A column's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, unit last.
    pub name: &'static str,
    /// What it means, in one line (Markdown).
    pub doc: &'static str,
    /// Its type.
    pub kind: ColumnKind,
    /// Whether values may be null; the doc then says when.
    pub nullable: bool,
    /// How values are encoded before compression.
    pub coding: Coding,
}

/// The column types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Int64.
    Int,
    /// A calendar time: Int64 nanoseconds since 1970, UTC (Parquet's TIMESTAMP).
    Time,
    /// Double.
    Float,
    /// Boolean.
    Bool,
    /// UTF-8 text.
    Text,
    /// Opaque bytes, such as a sketch for engines to merge.
    Bytes,
}

/// How a column's values are encoded, before zstd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Unencoded: for floats and for unordered integers such as random offsets.
    Plain,
    /// Bit-packed differences: for times, indexes, counts and lengths. For texts, only their lengths are encoded like
    /// this.
    Delta,
    /// Each distinct value once: for names and codes with few distinct values.
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

    /// An integer column, delta-coded by default.
    pub const fn int(name: &'static str, doc: &'static str) -> Column {
        Column::new(name, ColumnKind::Int, Coding::Delta, doc)
    }

    /// A column of calendar times, in nanoseconds since 1970. The unit is part of the type, not of the name.
    pub const fn time(name: &'static str, doc: &'static str) -> Column {
        Column::new(name, ColumnKind::Time, Coding::Delta, doc)
    }

    /// A column of doubles.
    pub const fn float(name: &'static str, doc: &'static str) -> Column {
        Column::new(name, ColumnKind::Float, Coding::Plain, doc)
    }

    /// A column of booleans.
    pub const fn bool(name: &'static str, doc: &'static str) -> Column {
        Column::new(name, ColumnKind::Bool, Coding::Plain, doc)
    }

    /// A text column, dictionary-coded by default.
    pub const fn text(name: &'static str, doc: &'static str) -> Column {
        Column::new(name, ColumnKind::Text, Coding::Dictionary, doc)
    }

    /// A column of bytes.
    pub const fn bytes(name: &'static str, doc: &'static str) -> Column {
        Column::new(name, ColumnKind::Bytes, Coding::Plain, doc)
    }

    /// The same column, made nullable.
    pub const fn nullable(mut self) -> Column {
        self.nullable = true;
        self
    }

    /// The same column with another encoding.
    pub const fn coded(mut self, coding: Coding) -> Column {
        self.coding = coding;
        self
    }
}

/// Concatenates lists of columns into an array of `N`, for tables that share groups of columns.
///
/// # Panics
/// The total isn't `N`; in a constant, this is a compile error.
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
    /// The type's name in SQL.
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
    /// The index of a column.
    ///
    /// # Panics
    /// There is no column of that name, a bug in this program.
    pub fn index_of(&self, column: &str) -> usize {
        let place = self
            .columns
            .iter()
            .position(|candidate| candidate.name == column);
        place.unwrap_or_else(|| panic!("table {} has no column {column}", self.name))
    }

    /// Mistakes in the description; used by the test that walks a crate's tables.
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
            say("a table needs a plain name, a description and columns".into());
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
                    "column {name} needs a plain name and a one-line description"
                ));
            }
            if self.columns[..index]
                .iter()
                .any(|before| before.name == name)
            {
                say(format!("column {name} appears twice"));
            }
            let odd = match kind {
                ColumnKind::Bool | ColumnKind::Bytes => coding != Coding::Plain,
                ColumnKind::Float => coding == Coding::Delta,
                ColumnKind::Time => coding != Coding::Delta,
                ColumnKind::Int | ColumnKind::Text => false,
            };
            if odd {
                say(format!(
                    "column {name}: {coding:?} has no effect on {kind:?}"
                ));
            }
        }
        mistakes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each kind of mistake in a description is reported, and a good description has none.
    #[test]
    fn each_mistake_in_a_description_is_reported() {
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
