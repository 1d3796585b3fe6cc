//! Rows on their way to the writer threads, and the assignment of tables to these threads. A table is described next
//! to the code that fills it. Registering a table returns a handle for adding rows, and that is the only way to get
//! one. Used by the recorder, the groups of tables, and `store`.
//!
//! The one rule: a handle's type contains its table, so a row has that table's columns, known at compile time.

use std::marker::PhantomData;

use brunt_lake::{Batch, Row, Table, WordRow, Words, text_at};

/// Which of a pipeline's threads writes a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenBy {
    /// The thread for packets, checksums and attributes, which are half of the work.
    Bulk,
    /// The thread for all other tables.
    Rest,
}

/// Writer threads per pipeline.
pub const LANES: usize = 2;

/// A table and how it is written.
pub trait Tabled {
    /// The table's definition.
    const TABLE: &'static Table;
    /// The thread that writes the table.
    const BY: WrittenBy = WrittenBy::Rest;
    /// The column by which parts are sorted, so that similar rows are next to each other.
    const ORDER: Option<&'static str> = None;
    /// Whether other tables refer to this one, or it describes the capture itself: such tables are deleted last
    /// within a generation.
    const REFERRED_TO: bool = false;
    /// Decodes a word of a text column, if words are codes rather than texts stored with the row.
    const CODES: Option<fn(i64) -> &'static str> = None;
}

/// What [`Tabled`] declares, as a value for the writers.
#[derive(Clone, Copy, Debug)]
pub struct TableEntry {
    pub table: &'static Table,
    pub order: Option<&'static str>,
    pub is_referred_to: bool,
    codes: Option<fn(i64) -> &'static str>,
}

/// The location of a table's rows: lane and index.
#[derive(Debug)]
pub struct Handle<T> {
    lane: usize,
    index: usize,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Handle<T> {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> Handle<T> {
    /// The lane, and the table's index there.
    pub fn place(self) -> (usize, usize) {
        (self.lane, self.index)
    }
}

/// Assigns tables to lanes.
#[derive(Debug, Default)]
pub struct Registry {
    lanes: [Vec<TableEntry>; LANES],
}

impl Registry {
    /// Adds a table and returns its handle.
    ///
    /// # Panics
    /// Panics if the table, or another one with the same name, is already registered, which is a bug in brunt.
    pub fn add<T: Tabled>(&mut self) -> Handle<T> {
        let table = T::TABLE;
        assert!(
            self.entries().all(|entry| entry.table.name != table.name),
            "{} appears twice",
            table.name
        );
        let lane = T::BY as usize;
        let entries = &mut self.lanes[lane];
        entries.push(TableEntry {
            table,
            order: T::ORDER,
            is_referred_to: T::REFERRED_TO,
            codes: T::CODES,
        });
        Handle {
            lane,
            index: entries.len() - 1,
            of: PhantomData,
        }
    }

    /// All tables.
    pub fn entries(&self) -> impl Iterator<Item = &TableEntry> {
        self.lanes.iter().flatten()
    }

    /// The tables of each lane.
    pub fn into_lanes(self) -> [Vec<TableEntry>; LANES] {
        self.lanes
    }
}

/// A table's rows on their way to a lane: as columns, or as words, which can be added faster.
#[derive(Debug)]
pub struct Chunk {
    rows: Batch,
    words: Words,
    codes: Option<fn(i64) -> &'static str>,
}

impl Chunk {
    pub fn new(entry: &TableEntry) -> Chunk {
        Chunk {
            rows: Batch::new(entry.table),
            words: Words::default(),
            codes: entry.codes,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.words.rows() == 0
    }

    /// The rows stored as columns.
    pub fn rows(&self) -> &Batch {
        &self.rows
    }

    /// Some columns of the rows stored as words.
    pub fn words<const N: usize>(
        &self,
        columns: [usize; N],
    ) -> impl Iterator<Item = [Option<i64>; N]> {
        self.words.columns(self.rows.table(), columns)
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.rows.bytes() + self.words.bytes(self.rows.table().columns.len())
    }

    pub fn count(&self) -> u64 {
        (self.rows.rows() + self.words.rows()) as u64
    }

    pub fn clear(&mut self) {
        self.rows.clear();
        self.words.clear();
    }

    /// Appends the rows to a batch of the same table.
    pub fn append_to(&self, rows: &mut Batch) {
        rows.append(&self.rows);
        match self.codes {
            Some(name) => rows.append_codes(&self.words, name),
            None => {
                let texts = self.words.texts();
                rows.append_words(&self.words, |word| text_at(texts, word));
            }
        }
    }
}

/// A pipeline's rows of all tables that have not been sent yet.
#[derive(Debug)]
pub struct Rows {
    lanes: [Vec<Chunk>; LANES],
}

impl Rows {
    /// Rows that will be stored in these chunks, per lane.
    pub fn new(lanes: [Vec<Chunk>; LANES]) -> Rows {
        Rows { lanes }
    }

    /// Starts a row, to be filled column by column.
    #[inline]
    pub fn row<T: Tabled>(&mut self, handle: Handle<T>) -> Row<'_> {
        self.lanes[handle.lane][handle.index].rows.row()
    }

    /// Starts a row of words, which is filled faster than one of columns; for frequent rows.
    #[inline(always)]
    pub fn line<T: Tabled>(&mut self, handle: Handle<T>) -> WordRow<'_> {
        self.words(handle).line(T::TABLE)
    }

    /// The words of a table, which also store the texts of its rows.
    #[inline]
    pub fn words<T: Tabled>(&mut self, handle: Handle<T>) -> &mut Words {
        &mut self.lanes[handle.lane][handle.index].words
    }

    /// Bytes of a lane's rows in memory.
    pub fn bytes(&self, lane: usize) -> usize {
        self.lanes[lane].iter().map(Chunk::bytes).sum()
    }

    /// Whether no rows are waiting for a lane.
    pub fn is_empty(&self, lane: usize) -> bool {
        self.lanes[lane].iter().all(Chunk::is_empty)
    }

    /// Removes a lane's rows and replaces them with empty chunks.
    pub fn take(&mut self, lane: usize, empty: Vec<Chunk>) -> Vec<Chunk> {
        assert_eq!(self.lanes[lane].len(), empty.len());
        std::mem::replace(&mut self.lanes[lane], empty)
    }
}
