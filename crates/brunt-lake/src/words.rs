//! Collects rows from a thread that has no time to sort values into columns: every value is a 64-bit word, stored once.
//! Another thread appends the rows to a [`Batch`] ([`Batch::append_words`]).
//!
//! Words are stored column by column in tiles of 128 rows: a tile is small enough to stay in the L1 cache while it is
//! filled row by row, and its columns are then copied unchanged.
//!
//! The rule: a row has one word for each column of its table and a final word whose bit `n` is set if column `n` is
//! null.
//!
//! [`Batch`]: crate::Batch
//! [`Batch::append_words`]: crate::Batch::append_words

use std::ops::Range;

use crate::cells::make_room;
use crate::table::Table;

/// Rows per tile.
pub(crate) const TILE_ROWS: usize = 128;
/// Words per column of a tile. If this were a power of two, the same row of all columns would map to the same few cache
/// sets.
const COLUMN_WORDS: usize = TILE_ROWS + 8;

/// Words of one column in a tile.
pub(crate) type TileColumn = [i64; COLUMN_WORDS];

/// Rows of one table as words.
#[derive(Clone, Debug, Default)]
pub struct Words {
    /// Contents beyond `rows` are zero or stale.
    tiles: Vec<TileColumn>,
    rows: usize,
    /// The concatenated texts that words refer to, in UTF-8.
    texts: Vec<u8>,
}

impl Words {
    /// Starts a row of a table, which must be the same in all calls: append a word for each column, then call
    /// [`WordRow::end`].
    // Always inlined, so that column positions are constants and a row is just one store per column.
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

    /// Starts up to `count` rows at once, as many as fit in the tile. Append their columns one after another, then call
    /// [`WordRows::end`]. For runs of rows that differ in few columns.
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

    /// The tile columns for the next row, and the row's index in the tile.
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

    /// Stores a text and returns its word: start and length.
    #[inline]
    pub fn text(&mut self, text: &str) -> i64 {
        self.ascii(text.as_bytes())
    }

    /// Stores bytes that are known to be ASCII; verified when the rows are appended.
    #[inline]
    pub fn ascii(&mut self, text: &[u8]) -> i64 {
        let word = (self.texts.len() as i64) << 32 | text.len() as i64;
        self.texts.extend_from_slice(text);
        word
    }

    /// All texts; [`text_at`] extracts one by its word.
    ///
    /// # Panics
    /// Bytes passed as ASCII were not UTF-8, a bug in this program.
    pub fn texts(&self) -> &str {
        std::str::from_utf8(&self.texts).expect("texts are UTF-8")
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Memory used by the rows in a table with this many columns, in bytes.
    pub fn bytes(&self, columns: usize) -> usize {
        self.rows * (columns + 1) * size_of::<i64>() + self.texts.len()
    }

    /// Removes all rows, keeping the memory.
    pub fn clear(&mut self) {
        self.rows = 0;
        self.texts.clear();
    }

    /// Values of the columns with the given indexes, row by row; `None` is null.
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

    /// The columns of each tile, of which the last one has the null bits, and the tile's number of rows.
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

/// The text for a word, from [`Words::texts`].
#[inline]
pub fn text_at(texts: &str, word: i64) -> &str {
    let (start, len) = ((word >> 32) as usize, (word & 0xffff_ffff) as usize);
    &texts[start..start + len]
}

/// A row being appended.
#[must_use = "only end() adds the row"]
pub struct WordRow<'a> {
    columns: &'a mut [TileColumn],
    rows: &'a mut usize,
    row: usize,
    nulls: i64,
    at: usize,
}

// Always inlined, like `Words::line`.
impl WordRow<'_> {
    /// Appends the next column's word.
    #[inline(always)]
    pub fn int(mut self, value: i64) -> Self {
        self.columns[self.at][self.row % TILE_ROWS] = value;
        self.at += 1;
        self
    }

    /// Appends the next column's word, or null.
    #[inline(always)]
    pub fn int_or_null(mut self, value: Option<i64>) -> Self {
        self.nulls |= i64::from(value.is_none()) << self.at;
        self.int(value.unwrap_or(0))
    }

    /// Appends a null.
    #[inline(always)]
    pub fn null(self) -> Self {
        self.int_or_null(None)
    }

    /// Appends a boolean.
    #[inline(always)]
    pub fn bool(self, value: bool) -> Self {
        self.int(value.into())
    }

    /// Appends a boolean, or null.
    #[inline(always)]
    pub fn bool_or_null(self, value: Option<bool>) -> Self {
        self.int_or_null(value.map(i64::from))
    }

    /// Completes the row.
    ///
    /// # Panics
    /// A column is missing or extra, a bug in this program.
    #[inline(always)]
    pub fn end(self) {
        assert_eq!(self.at, self.columns.len() - 1);
        self.columns[self.at][self.row % TILE_ROWS] = self.nulls;
        *self.rows += 1;
    }
}

/// Rows being appended, column by column.
#[must_use = "only end() adds the rows"]
pub struct WordRows<'a> {
    columns: &'a mut [TileColumn],
    rows: &'a mut usize,
    row: usize,
    len: usize,
    nulls: i64,
    at: usize,
}

impl WordRows<'_> {
    /// Number of rows.
    #[inline]
    pub fn count(&self) -> usize {
        self.len
    }

    /// Appends the next column's words, taking one for each row from the start of `values`.
    #[inline]
    pub fn ints(mut self, values: impl IntoIterator<Item = i64>) -> Self {
        let words = self.columns[self.at][self.row..][..self.len].iter_mut();
        words.zip(values).for_each(|(word, value)| *word = value);
        self.at += 1;
        self
    }

    /// Appends the same word for each row.
    #[inline]
    pub fn same(mut self, value: i64) -> Self {
        self.columns[self.at][self.row..][..self.len].fill(value);
        self.at += 1;
        self
    }

    /// Appends the same word for each row, or a null for each.
    #[inline]
    pub fn same_or_null(mut self, value: Option<i64>) -> Self {
        self.nulls |= i64::from(value.is_none()) << self.at;
        self.same(value.unwrap_or(0))
    }

    /// Completes the rows.
    ///
    /// # Panics
    /// A column is missing or extra, a bug in this program.
    #[inline]
    pub fn end(self) {
        assert_eq!(self.at, self.columns.len() - 1);
        self.columns[self.at][self.row..][..self.len].fill(self.nulls);
        *self.rows += self.len;
    }
}
