//! In-memory columns for rows that are about to be written or have just been read. The buffers are reused from part to
//! part, so appending stops allocating once the columns have grown to their working size.
//!
//! The rule: a row has a value or a null in every column, in the table's order.

use brunt_core::Nanos;

use crate::cells::{ByteStrings, Cells, Texts, Values};
use crate::table::{Coding, Column, Table};
use crate::words::{TileColumn, Words};

/// Columns of the same length.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    table: &'static Table,
    rows: usize,
    columns: Vec<Cells>,
}

impl Batch {
    /// An empty batch.
    pub fn new(table: &'static Table) -> Batch {
        Batch {
            table,
            rows: 0,
            columns: table
                .columns
                .iter()
                .map(|column| Cells::new(column.kind))
                .collect(),
        }
    }

    /// The table.
    pub fn table(&self) -> &'static Table {
        self.table
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Memory used by the values, in bytes.
    pub fn bytes(&self) -> usize {
        self.columns.iter().map(Cells::bytes).sum()
    }

    /// Starts a row: append every value in the table's order, then call [`Row::end`].
    #[inline]
    pub fn row(&mut self) -> Row<'_> {
        Row {
            batch: self,
            column: 0,
        }
    }

    /// Direct access to an integer column, to append many rows at once; call [`Batch::end_rows`] afterwards. The column
    /// must not be nullable.
    ///
    /// # Panics
    /// The column is nullable or not an integer column.
    pub fn ints_mut(&mut self, column: usize) -> &mut Vec<i64> {
        let Column { name, nullable, .. } = self.table.columns[column];
        match &mut self.columns[column].values {
            Values::Ints(values) if !nullable => values,
            _ => panic!(
                "{}.{name} is not an integer column without nulls",
                self.table.name
            ),
        }
    }

    /// Appends rows given as words. Booleans are 0 and 1; `text` maps the word of a text column to its text.
    ///
    /// # Panics
    /// There are rows, and the table has more than 64 columns, a bug in this program.
    pub fn append_words<'t>(&mut self, words: &Words, text: impl Fn(i64) -> &'t str) {
        self.append_tiles(words, |_, values, words| match values {
            Values::Texts(texts) => words.iter().for_each(|word| texts.push(text(*word))),
            _ => panic!("texts of codes"),
        });
    }

    /// Like [`Batch::append_words`], but the words of text columns are codes. `name` maps a code to its text and must
    /// always return the same text for the same code. Codes are kept until the file is encoded; each text is then
    /// stored once, in the dictionary.
    ///
    /// # Panics
    /// As for [`Batch::append_words`]; also if a code doesn't fit in 16 bits or a text column isn't dictionary-coded.
    pub fn append_codes(&mut self, words: &Words, name: fn(i64) -> &'static str) {
        self.append_tiles(words, |column, values, words| {
            assert_eq!(
                column.coding,
                Coding::Dictionary,
                "codes in column {}, which is not dictionary-coded",
                column.name
            );
            values.codes_of(name).extend(words);
        });
    }

    /// Appends rows tile by tile; `texts` appends the words of a text column.
    fn append_tiles(&mut self, words: &Words, mut texts: impl FnMut(&Column, &mut Values, &[i64])) {
        if words.rows() == 0 {
            return;
        }
        let count = self.columns.len();
        // One word holds the null bits of all columns.
        assert!(count <= 64, "{} columns of {}", count, self.table.name);
        for (cells, column) in self.columns.iter_mut().zip(self.table.columns) {
            cells.make_room(words.rows(), column.nullable);
        }
        for (tile, rows) in words.tiles(count) {
            let nulls = Nulls::of(&tile[count], rows);
            let columns = self.columns.iter_mut().zip(self.table.columns).zip(tile);
            for (index, ((cells, column), words)) in columns.enumerate() {
                let words = &words[..rows];
                match &mut cells.values {
                    Values::Ints(values) => values.extend_from_slice(words),
                    Values::Floats(values) => values.extend(words.iter().map(|word| *word as f64)),
                    Values::Bools(values) => values.extend(words.iter().map(|word| *word != 0)),
                    values => texts(column, values, words),
                }
                if column.nullable {
                    nulls.append_to(cells, index);
                }
            }
            self.rows += rows;
        }
    }

    /// Counts the rows appended through [`Batch::ints_mut`].
    ///
    /// # Panics
    /// The columns have different lengths, a bug in this program.
    pub fn end_rows(&mut self) {
        self.rows = self.columns.first().map_or(0, Cells::len);
        for (index, cells) in self.columns.iter().enumerate() {
            assert_eq!(cells.len(), self.rows, "length of {}", self.name_of(index));
        }
    }

    /// Appends all rows of another batch of the same table.
    ///
    /// # Panics
    /// The other batch is of a different table.
    pub fn append(&mut self, other: &Batch) {
        assert_eq!(self.table, other.table);
        self.columns
            .iter_mut()
            .zip(&other.columns)
            .for_each(|(own, more)| own.append(more));
        self.rows += other.rows;
    }

    /// Replaces the contents with the given rows of another batch of the same table, in the given order.
    ///
    /// # Panics
    /// The other batch is of a different table or lacks one of the rows.
    pub fn select(&mut self, other: &Batch, rows: &[u32]) {
        assert_eq!(self.table, other.table);
        self.columns
            .iter_mut()
            .zip(&other.columns)
            .for_each(|(own, from)| from.in_order(rows, own));
        self.columns
            .iter_mut()
            .zip(self.table.columns)
            .for_each(|(own, column)| {
                own.complete(rows.len(), column.nullable);
            });
        self.rows = rows.len();
    }

    /// Sorts the rows by an integer column (stable, nulls first).
    ///
    /// # Panics
    /// The column is not an integer column.
    pub fn sort_by(&mut self, column: &str) {
        let mut order = RowOrder::default();
        if let Some(rows) = order.of(self, column) {
            let unsorted = self.clone();
            self.select(&unsorted, rows);
        }
    }

    /// Adds a number to each non-null integer of a column.
    ///
    /// # Panics
    /// The column is not an integer column.
    pub fn add_to(&mut self, column: &str, more: i64) {
        let cells = &mut self.columns[self.table.index_of(column)];
        match &mut cells.values {
            Values::Ints(values) => values
                .iter_mut()
                .for_each(|value| *value = value.wrapping_add(more)),
            _ => panic!("{}.{column} is not an integer column", self.table.name),
        }
    }

    /// Replaces nulls in an integer column with a value.
    ///
    /// # Panics
    /// The column is not an integer column.
    pub fn fill_nulls(&mut self, column: &str, value: i64) {
        let cells = &mut self.columns[self.table.index_of(column)];
        let Values::Ints(values) = &mut cells.values else {
            panic!("{}.{column} is not an integer column", self.table.name)
        };
        for (own, level) in values.iter_mut().zip(&mut cells.levels) {
            if std::mem::replace(level, 1) == 0 {
                *own = value;
            }
        }
        cells.nulls = 0;
    }

    /// Removes all rows, keeping the memory.
    pub fn clear(&mut self) {
        self.columns.iter_mut().for_each(Cells::clear);
        self.rows = 0;
    }

    /// The integers of a column; nulls have arbitrary values, see [`Batch::is_null`].
    ///
    /// # Panics
    /// The table has no such column, or the column has a different type. The other column accessors panic in the same
    /// cases.
    pub fn ints(&self, column: &str) -> &[i64] {
        match &self.columns[self.table.index_of(column)].values {
            Values::Ints(values) => values,
            _ => panic!("{}.{column} is not an integer column", self.table.name),
        }
    }

    /// The doubles of a column.
    pub fn floats(&self, column: &str) -> &[f64] {
        match &self.columns[self.table.index_of(column)].values {
            Values::Floats(values) => values,
            _ => panic!("{}.{column} is not a double column", self.table.name),
        }
    }

    /// The booleans of a column.
    pub fn bools(&self, column: &str) -> &[bool] {
        match &self.columns[self.table.index_of(column)].values {
            Values::Bools(values) => values,
            _ => panic!("{}.{column} is not a boolean column", self.table.name),
        }
    }

    /// The text values of a column, row by row.
    pub fn texts(&self, column: &str) -> impl ExactSizeIterator<Item = &str> {
        match &self.columns[self.table.index_of(column)].values {
            values @ (Values::Texts(_) | Values::Codes(_)) => {
                (0..values.len()).map(move |row| match values {
                    Values::Texts(texts) => &texts.bytes[texts.range(row)],
                    Values::Codes(codes) => codes.name(row),
                    _ => unreachable!("texts or codes"),
                })
            }
            _ => panic!("{}.{column} is not a text column", self.table.name),
        }
    }

    /// The byte strings of a column, row by row.
    pub fn byte_strings(&self, column: &str) -> impl ExactSizeIterator<Item = &[u8]> {
        match &self.columns[self.table.index_of(column)].values {
            Values::Bytes(strings) => (0..strings.ends.len()).map(|row| strings.string(row)),
            _ => panic!("{}.{column} is not a bytes column", self.table.name),
        }
    }

    /// Whether a row is null in a column.
    pub fn is_null(&self, column: &str, row: usize) -> bool {
        self.columns[self.table.index_of(column)].levels.get(row) == Some(&0)
    }

    pub(crate) fn cells(&self) -> &[Cells] {
        &self.columns
    }

    pub(crate) fn cells_mut(&mut self) -> &mut [Cells] {
        &mut self.columns
    }

    fn name_of(&self, column: usize) -> String {
        format!("{}.{}", self.table.name, self.table.columns[column].name)
    }
}

/// The null bits of a tile's rows.
struct Nulls<'a> {
    rows: &'a [i64],
    /// Bit masks of the columns with a null in any of the rows, and of the columns with a null in every row.
    any: i64,
    all: i64,
}

impl Nulls<'_> {
    fn of(words: &TileColumn, rows: usize) -> Nulls<'_> {
        let rows = &words[..rows];
        let (any, all) = rows
            .iter()
            .fold((0, !0), |(any, all), nulls| (any | nulls, all & nulls));
        Nulls { rows, any, all }
    }

    /// Appends the definition levels of a column.
    fn append_to(&self, cells: &mut Cells, index: usize) {
        let (before, rows) = (cells.levels.len(), self.rows.len());
        if self.any >> index & 1 == 0 {
            cells.levels.resize(before + rows, 1);
        } else if self.all >> index & 1 == 1 {
            cells.levels.resize(before + rows, 0);
            cells.nulls += rows;
        } else {
            cells.levels.extend(
                self.rows
                    .iter()
                    .map(|nulls| 1 - (nulls >> index & 1) as i16),
            );
            cells.nulls += cells.levels[before..]
                .iter()
                .filter(|level| **level == 0)
                .count();
        }
    }
}

/// Keys that span at most this many bits are radix-sorted.
const RADIX_BITS_MAX: u32 = 24;

/// Computes the row order for sorting by a column; the buffers are reused.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowOrder {
    rows: Vec<u32>,
    spare: Vec<u32>,
}

impl RowOrder {
    /// Row numbers sorted by an integer column (stable, nulls first). `None` if the rows are in order already.
    ///
    /// # Panics
    /// The column is not an integer column.
    pub fn of(&mut self, batch: &Batch, column: &str) -> Option<&[u32]> {
        let cells = &batch.columns[batch.table.index_of(column)];
        let values = batch.ints(column);
        let key = |row: usize| {
            if cells.levels.get(row) == Some(&0) {
                i64::MIN
            } else {
                values[row]
            }
        };
        if (1..batch.rows).all(|row| key(row - 1) <= key(row)) {
            return None;
        }
        self.rows.clear();
        self.rows.extend(0..batch.rows as u32);
        let keys = (0..batch.rows).map(key);
        let (min, max) = keys.fold((i64::MAX, i64::MIN), |(min, max), key| {
            (min.min(key), max.max(key))
        });
        let range = max.wrapping_sub(min) as u64;
        if cells.nulls == 0 && range < 1 << RADIX_BITS_MAX {
            self.sort_by_bytes(range, |row| (key(row as usize) - min) as u32);
        } else {
            self.rows.sort_by_key(|row| key(*row as usize));
        }
        Some(&self.rows)
    }

    /// LSD radix sort by keys up to `range`, one byte per pass. Each pass is stable, so it keeps the order of the
    /// previous ones.
    fn sort_by_bytes(&mut self, range: u64, key: impl Fn(u32) -> u32) {
        for shift in (0..RADIX_BITS_MAX)
            .step_by(8)
            .take_while(|shift| range >> shift > 0)
        {
            let digit = |row: u32| (key(row) >> shift & 0xff) as usize;
            let mut places = [0u32; 256];
            self.rows.iter().for_each(|row| places[digit(*row)] += 1);
            let mut before = 0;
            for place in &mut places {
                before += std::mem::replace(place, before);
            }
            self.spare.clear();
            self.spare.resize(self.rows.len(), 0);
            for row in &self.rows {
                let place = &mut places[digit(*row)];
                self.spare[*place as usize] = *row;
                *place += 1;
            }
            std::mem::swap(&mut self.rows, &mut self.spare);
        }
    }
}

/// A row being appended.
#[must_use = "only end() adds the row"]
pub struct Row<'a> {
    batch: &'a mut Batch,
    column: usize,
}

macro_rules! value {
    ($(#[$doc:meta])* $name:ident, $or_null:ident, $type:ty, $values:ident, $push:expr) => {
        $(#[$doc])*
        ///
        /// # Panics
        /// The table's next column is of another type.
        #[inline]
        pub fn $name(self, value: $type) -> Self {
            let cells = self.present();
            match &mut cells.batch.columns[cells.column - 1].values {
                Values::$values(values) => $push(values, value),
                _ => cells.wrong(),
            }
            cells
        }

        /// Appends the value, or null.
        #[inline]
        pub fn $or_null(self, value: Option<$type>) -> Self {
            match value {
                Some(value) => self.$name(value),
                None => self.null(),
            }
        }
    };
}

impl Row<'_> {
    value!(/// An integer.
        int, int_or_null, i64, Ints, Vec::push);
    value!(/// A double.
        float, float_or_null, f64, Floats, Vec::push);
    value!(/// A truth value.
        bool, bool_or_null, bool, Bools, Vec::push);
    value!(/// A text.
        text, text_or_null, &str, Texts, Texts::push);
    value!(/// Bytes.
        bytes, bytes_or_null, &[u8], Bytes, ByteStrings::push);

    /// Appends a count or size as an integer, saturating at `i64::MAX`.
    #[inline]
    pub fn count(self, value: u64) -> Self {
        self.int(i64::try_from(value).unwrap_or(i64::MAX))
    }

    /// Like [`Row::count`], but nullable.
    #[inline]
    pub fn count_or_null(self, value: Option<u64>) -> Self {
        self.int_or_null(value.map(|value| i64::try_from(value).unwrap_or(i64::MAX)))
    }

    /// Appends a time as nanoseconds after `origin`, negative if before it.
    #[inline]
    pub fn nanos_since(self, time: Nanos, origin: Nanos) -> Self {
        self.int(time.0.wrapping_sub(origin.0) as i64)
    }

    /// Like [`Row::nanos_since`], but nullable.
    #[inline]
    pub fn nanos_since_or_null(self, time: Option<Nanos>, origin: Nanos) -> Self {
        self.int_or_null(time.map(|time| time.0.wrapping_sub(origin.0) as i64))
    }

    /// Appends a null.
    ///
    /// # Panics
    /// The table's next column is not nullable.
    pub fn null(mut self) -> Self {
        let Some(column) = self.batch.table.columns.get(self.column) else {
            self.wrong()
        };
        assert!(
            column.nullable,
            "{} is not nullable",
            self.batch.name_of(self.column)
        );
        let cells = &mut self.batch.columns[self.column];
        match &mut cells.values {
            Values::Ints(values) => values.push(0),
            Values::Floats(values) => values.push(0.0),
            Values::Bools(values) => values.push(false),
            Values::Texts(texts) => texts.push(""),
            Values::Bytes(strings) => strings.push(&[]),
            Values::Codes(_) => self.wrong(),
        }
        cells.levels.push(0);
        cells.nulls += 1;
        self.column += 1;
        self
    }

    /// Completes the row.
    ///
    /// # Panics
    /// A column is missing.
    #[inline]
    pub fn end(self) {
        let table = self.batch.table;
        assert_eq!(
            self.column,
            table.columns.len(),
            "number of values in a row of {}",
            table.name
        );
        self.batch.rows += 1;
    }

    /// Advances to the next column, marking this one as non-null.
    #[inline]
    fn present(mut self) -> Self {
        let Some(column) = self.batch.table.columns.get(self.column) else {
            self.wrong()
        };
        if column.nullable {
            self.batch.columns[self.column].levels.push(1);
        }
        self.column += 1;
        self
    }

    #[cold]
    fn wrong(&self) -> ! {
        let at = self.column.saturating_sub(1);
        panic!(
            "value of the wrong type, or too many values, at {}",
            self.batch.name_of(at)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::text_at;

    const TABLE: Table = Table {
        name: "t",
        doc: "Rows.",
        columns: &[
            Column::int("a", "Integers."),
            Column::float("b", "Doubles.").nullable(),
            Column::text("c", "Texts.").nullable(),
            Column::bool("d", "Truth values."),
        ],
    };

    /// Values and nulls read back unchanged, batch after batch.
    #[test]
    fn values_and_nulls_read_back_unchanged() {
        let mut batch = Batch::new(&TABLE);
        batch
            .row()
            .count(u64::MAX)
            .float(0.5)
            .text("one")
            .bool(true)
            .end();
        batch
            .row()
            .nanos_since(Nanos(3), Nanos(5))
            .null()
            .text_or_null(None)
            .bool(false)
            .end();
        let mut both = batch.clone();
        both.append(&batch);
        assert_eq!(
            (both.rows(), both.ints("a")),
            (4, &[i64::MAX, -2, i64::MAX, -2][..])
        );
        assert_eq!(both.texts("c").collect::<Vec<_>>(), ["one", "", "one", ""]);
        assert_eq!(
            (
                both.is_null("b", 0),
                both.is_null("b", 3),
                both.is_null("a", 0)
            ),
            (false, true, false)
        );
        assert_eq!(
            (both.floats("b")[2], both.bools("d")),
            (0.5, &[true, false, true, false][..])
        );
        assert_eq!(both.bytes(), 2 * batch.bytes());
        both.clear();
        assert_eq!((both, batch.is_empty()), (Batch::new(&TABLE), false));
    }

    /// Rows appended as words equal rows appended by value, across several tiles, with and without nulls, and again
    /// after clearing the words.
    #[test]
    fn rows_appended_as_words_equal_rows_appended_by_value() {
        let (mut one, mut other, mut words) =
            (Batch::new(&TABLE), Batch::new(&TABLE), Words::default());
        for rows in [0..1, 1..300, 300..556] {
            words.clear();
            for row in rows {
                let float = (row / 130 == 1 || row % 3 == 0).then_some(row);
                let text = format!("{row}");
                one.row()
                    .int(-row)
                    .float_or_null(float.map(|float| float as f64))
                    .text(&text)
                    .bool(row % 2 == 0)
                    .end();
                let text = words.text(&text);
                words
                    .line(&TABLE)
                    .int(-row)
                    .int_or_null(float)
                    .int(text)
                    .bool(row % 2 == 0)
                    .end();
            }
            other.append_words(&words, |word| text_at(words.texts(), word));
            assert!(one == other);
        }
        assert_eq!((other.rows(), words.rows()), (556, 256));
        let short = move || words.line(&TABLE).int(1).end();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(short)).is_err());
    }

    /// Columns appended as codes equal text columns, with rows in order and with nulls.
    #[test]
    fn codes_equal_text_columns() {
        const CODED: Table = Table {
            name: "c",
            doc: "Rows.",
            columns: &[
                Column::int("a", "Integers."),
                Column::text("b", "Texts.").nullable(),
            ],
        };
        fn name(code: i64) -> &'static str {
            ["zero", "one", "two"][code as usize % 3]
        }
        let (mut one, mut other, mut words) =
            (Batch::new(&CODED), Batch::new(&CODED), Words::default());
        for row in 0..300_i64 {
            let code = (row % 7 != 0).then_some(row % 5);
            one.row().int(-row).text_or_null(code.map(name)).end();
            words.line(&CODED).int(-row).int_or_null(code).end();
        }
        other.append_codes(&words, name);
        let told = |batch: &Batch| -> Vec<Option<String>> {
            let texts = batch.texts("b").enumerate();
            texts
                .map(|(row, text)| (!batch.is_null("b", row)).then(|| text.to_string()))
                .collect()
        };
        assert_eq!(told(&other), told(&one));
        let mut order = RowOrder::default();
        let (one, sorted) = (
            in_order(&one, "a", &mut order),
            in_order(&other, "a", &mut order),
        );
        assert_eq!(told(&sorted), told(&one));
        let mut more = other.clone();
        more.append(&other);
        more.append(&Batch::new(&CODED));
        assert_eq!((more.rows(), told(&more).len()), (600, 600));
    }

    /// The rows in the order in which they would be written.
    fn in_order(batch: &Batch, by: &str, order: &mut RowOrder) -> Batch {
        let mut ordered = batch.clone();
        if let Some(order) = order.of(batch, by) {
            for (cells, into) in batch.columns.iter().zip(&mut ordered.columns) {
                cells.in_order(order, into);
                assert!(!cells.are_all_same() || cells == into);
            }
        }
        ordered
    }

    /// Sorting keeps the values of a row together and is stable.
    #[test]
    fn sorting_keeps_rows_together_and_is_stable() {
        let mut batch = Batch::new(&TABLE);
        for (index, a) in [3, 1, 2, 1].into_iter().enumerate() {
            let some = index != 1;
            batch
                .row()
                .int(a)
                .float_or_null(some.then_some(a as f64))
                .text(&format!("{a}.{index}"))
                .bool(some)
                .end();
        }
        let mut order = RowOrder::default();
        batch = in_order(&batch, "a", &mut order);
        assert!(order.of(&batch, "a").is_none());
        assert_eq!(batch.ints("a"), [1, 1, 2, 3]);
        assert_eq!(
            batch.texts("c").collect::<Vec<_>>(),
            ["1.1", "1.3", "2.2", "3.0"]
        );
        assert_eq!(
            (batch.bools("d"), batch.is_null("b", 0)),
            (&[false, true, true, true][..], true)
        );
    }

    /// Any set of keys, close together or far apart, with or without nulls, is sorted like by a stable sort.
    #[test]
    fn any_keys_are_sorted_stably() {
        const KEYS: Table = Table {
            name: "k",
            doc: "Rows.",
            columns: &[
                Column::int("key", "Integers.").nullable(),
                Column::int("row", "Integers."),
            ],
        };
        let mut random = brunt_core::random::Random::new(5);
        let mut order = RowOrder::default();
        for bits in [1, 8, 9, 17, 23, 24, 25, 64] {
            for nulls in [false, true] {
                let base = if bits < 64 { -1000 } else { 0 };
                let keys: Vec<Option<i64>> = (0..3000)
                    .map(|_| {
                        let key = base + (random.next_u64() >> (64 - bits)) as i64;
                        (!nulls || !random.chance(0.1)).then_some(key)
                    })
                    .collect();
                let mut batch = Batch::new(&KEYS);
                for (row, key) in (0..).zip(&keys) {
                    batch.row().int_or_null(*key).int(row).end();
                }
                batch = in_order(&batch, "key", &mut order);
                let mut expected: Vec<i64> = (0..3000).collect();
                expected.sort_by_key(|row| keys[*row as usize]);
                assert_eq!(batch.ints("row"), expected, "{bits} {nulls}");
                for (place, row) in expected.iter().enumerate() {
                    let key = (!batch.is_null("key", place)).then(|| batch.ints("key")[place]);
                    assert_eq!(key, keys[*row as usize]);
                }
            }
        }
    }

    /// Whole columns can be appended at once; columns of different lengths panic.
    #[test]
    fn whole_columns_can_be_appended_at_once() {
        const PLAIN: Table = Table {
            name: "p",
            doc: "Rows.",
            columns: &[Column::int("a", "Integers."), Column::int("b", "Integers.")],
        };
        let mut batch = Batch::new(&PLAIN);
        batch.ints_mut(0).extend([1, 2]);
        batch.ints_mut(1).extend([3, 4]);
        batch.end_rows();
        assert_eq!(batch.rows(), 2);
        batch.ints_mut(0).push(5);
        assert!(std::panic::catch_unwind(move || batch.end_rows()).is_err());
    }

    /// A value in the wrong column panics and isn't stored.
    #[test]
    fn wrong_values_are_refused() {
        let refused = |fill: fn(Row)| {
            std::panic::catch_unwind(|| fill(Batch::new(&TABLE).row())).expect_err("refused")
        };
        refused(|row| row.float(1.0).end());
        refused(|row| row.null().end());
        refused(|row| row.int(1).end());
        refused(|row| row.int(1).null().null().bool(true).bool(true).end());
    }
}
