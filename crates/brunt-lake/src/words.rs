//! Rows from a thread that has no time to sort values into columns, on their way to a [`Batch`]: every value
//! is a word, stored once. Another thread appends them ([`Batch::append_words`]).
//!
//! Words lie in tiles of 128 rows, a tile's columns one after the other: small enough to stay in the nearest
//! cache while it is filled row by row, and column by column it is copied as it lies.
//!
//! The rule: a row has a word for each column of its table, and one whose bit `n` says that column `n` has
//! no value.
//!
//! [`Batch`]: crate::Batch
//! [`Batch::append_words`]: crate::Batch::append_words

use std::ops::Range;

use crate::cells::make_room;
use crate::table::Table;

/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 128;
/// Words from one column of a tile to the next. A power of two would put the same row of all columns into
/// the same few sets of the cache.
const COLUMN_WORDS: usize = TILE_ROWS + 8;

/// Words of one column in a tile.
pub(crate) type TileColumn = [i64; COLUMN_WORDS];

/// Rows of one table as words.
#[derive(Clone, Debug, Default)]
pub struct Words {
    /// What is beyond the rows is zero or old.
    tiles: Vec<TileColumn>,
    rows: usize,
    /// The texts that words stand for, end to end, in UTF-8.
    texts: Vec<u8>,
}

impl Words {
    /// Begins a row of a table, always the same one; give it a word for each column, then [`WordRow::end`].
    // Inlined without exception: then the columns' places are known, and a row is so many stores.
    #[inline(always)]
    pub fn line(&mut self, table: &'static Table) -> WordRow<'_> {
        let (tile, row) = self.next_place(table);
        WordRow {
            columns: &mut self.tiles[tile],
            rows: &mut self.rows,
            row,
            nulls: 0,
            at: 0,
        }
    }

    /// Begins several rows at once, up to `count` of them: as many as the tile has room for. Give them their columns one
    /// after the other, then [`WordRows::end`]. For rows that come in runs and differ in few columns.
    #[inline]
    pub fn lines(&mut self, table: &'static Table, count: usize) -> WordRows<'_> {
        let (tile, row) = self.next_place(table);
        let len = count.min(TILE_ROWS - row);
        WordRows {
            columns: &mut self.tiles[tile],
            rows: &mut self.rows,
            row,
            len,
            nulls: 0,
            at: 0,
        }
    }

    /// The columns of the tile where the next row goes, and its row there.
    #[inline(always)]
    fn next_place(&mut self, table: &'static Table) -> (Range<usize>, usize) {
        let columns = table.columns.len() + 1;
        let (tile, row) = (self.rows / TILE_ROWS, self.rows % TILE_ROWS);
        let (start, end) = (tile * columns, (tile + 1) * columns);
        if self.tiles.len() < end {
            self.grow(end);
        }
        (start..end, row)
    }

    #[cold]
    fn grow(&mut self, end: usize) {
        let more = end - self.tiles.len();
        make_room(&mut self.tiles, more);
        self.tiles.resize(end, [0; COLUMN_WORDS]);
    }

    /// The word that stands for a text: where it begins, and its length.
    #[inline]
    pub fn text(&mut self, text: &str) -> i64 {
        self.ascii(text.as_bytes())
    }

    /// The same of bytes that are known to be ASCII; it is looked at again when the rows are appended.
    #[inline]
    pub fn ascii(&mut self, text: &[u8]) -> i64 {
        let word = (self.texts.len() as i64) << 32 | text.len() as i64;
        self.texts.extend_from_slice(text);
        word
    }

    /// All texts: [`text_at`] finds one by its word.
    ///
    /// # Panics
    /// What was given as ASCII was something else: our own mistake.
    pub fn texts(&self) -> &str {
        std::str::from_utf8(&self.texts).expect("texts are UTF-8")
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// What they take in memory, in a table of so many columns.
    pub fn bytes(&self, columns: usize) -> usize {
        self.rows * (columns + 1) * size_of::<i64>() + self.texts.len()
    }

    /// Forgets the rows and keeps the memory.
    pub fn clear(&mut self) {
        self.rows = 0;
        self.texts.clear();
    }

    /// Some columns, by their places in the table, row by row; `None` is no value.
    pub fn columns<const N: usize>(
        &self,
        table: &'static Table,
        columns: [usize; N],
    ) -> impl Iterator<Item = [Option<i64>; N]> {
        let count = table.columns.len();
        self.tiles(count).flat_map(move |(tile, rows)| {
            let value = move |row: usize, column: usize| {
                (tile[count][row] >> column & 1 == 0).then_some(tile[column][row])
            };
            (0..rows).map(move |row| columns.map(|column| value(row, column)))
        })
    }

    /// The columns of each tile, the last of which says what is null, and how many rows are in it.
    pub(crate) fn tiles(&self, columns: usize) -> impl Iterator<Item = (&[TileColumn], usize)> {
        let tiles = self.tiles.chunks(columns + 1).enumerate();
        tiles.map_while(|(index, tile)| {
            let rows = self
                .rows
                .checked_sub(index * TILE_ROWS)
                .filter(|rows| *rows > 0)?;
            Some((tile, rows.min(TILE_ROWS)))
        })
    }
}

/// The text that a word stands for, out of [`Words::texts`].
#[inline]
pub fn text_at(texts: &str, word: i64) -> &str {
    let (start, len) = ((word >> 32) as usize, (word & 0xffff_ffff) as usize);
    &texts[start..start + len]
}

/// A row under way.
#[must_use = "a row counts from its end() on"]
pub struct WordRow<'a> {
    columns: &'a mut [TileColumn],
    rows: &'a mut usize,
    row: usize,
    nulls: i64,
    at: usize,
}

// Inlined as `Words::line` is.
impl WordRow<'_> {
    /// The next column's word.
    #[inline(always)]
    pub fn int(mut self, value: i64) -> Self {
        self.columns[self.at][self.row % TILE_ROWS] = value;
        self.at += 1;
        self
    }

    /// The same, or no value.
    #[inline(always)]
    pub fn int_or_null(mut self, value: Option<i64>) -> Self {
        self.nulls |= i64::from(value.is_none()) << self.at;
        self.int(value.unwrap_or(0))
    }

    /// No value.
    #[inline(always)]
    pub fn null(self) -> Self {
        self.int_or_null(None)
    }

    /// A truth value.
    #[inline(always)]
    pub fn bool(self, value: bool) -> Self {
        self.int(value.into())
    }

    /// The same, or no value.
    #[inline(always)]
    pub fn bool_or_null(self, value: Option<bool>) -> Self {
        self.int_or_null(value.map(i64::from))
    }

    /// The row is complete.
    ///
    /// # Panics
    /// A column is missing, or there is one too many: our own mistake.
    #[inline(always)]
    pub fn end(self) {
        assert_eq!(self.at, self.columns.len() - 1);
        self.columns[self.at][self.row % TILE_ROWS] = self.nulls;
        *self.rows += 1;
    }
}

/// Rows under way, column by column.
#[must_use = "rows count from their end() on"]
pub struct WordRows<'a> {
    columns: &'a mut [TileColumn],
    rows: &'a mut usize,
    row: usize,
    len: usize,
    nulls: i64,
    at: usize,
}

impl WordRows<'_> {
    /// How many rows there are.
    #[inline]
    pub fn count(&self) -> usize {
        self.len
    }

    /// The next column's words: the first of these, one for each row.
    #[inline]
    pub fn ints(mut self, values: impl IntoIterator<Item = i64>) -> Self {
        let words = self.columns[self.at][self.row..][..self.len].iter_mut();
        words.zip(values).for_each(|(word, value)| *word = value);
        self.at += 1;
        self
    }

    /// The same word in each row.
    #[inline]
    pub fn same(mut self, value: i64) -> Self {
        self.columns[self.at][self.row..][..self.len].fill(value);
        self.at += 1;
        self
    }

    /// The same word in each row, or no value in any.
    #[inline]
    pub fn same_or_null(mut self, value: Option<i64>) -> Self {
        self.nulls |= i64::from(value.is_none()) << self.at;
        self.same(value.unwrap_or(0))
    }

    /// The rows are complete.
    ///
    /// # Panics
    /// A column is missing, or there is one too many: our own mistake.
    #[inline]
    pub fn end(self) {
        assert_eq!(self.at, self.columns.len() - 1);
        self.columns[self.at][self.row..][..self.len].fill(self.nulls);
        *self.rows += self.len;
    }
}
