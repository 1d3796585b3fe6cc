//! Rows on their way to the threads that write them, and the places of their tables. A table is described
//! beside the code that fills it; registering it gives the handle with which rows are begun, and nothing
//! else does. Used by the recorder, the groups of tables, and `store`.
//!
//! The one rule: a handle is typed by its table, so that a row has the columns of the table it goes to, and
//! the compiler knows them.

use std::marker::PhantomData;

use brunt_lake::{Batch, Row, Table, WordRow, Words, text_at};

/// Which of a pipeline's threads writes a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenBy {
    /// That for packets, sums and attributes: half of the work.
    Bulk,
    /// That for everything else.
    Rest,
}

/// Threads that write, for each pipeline.
pub const LANES: usize = 2;

/// A table with its place.
pub trait Tabled {
    /// What it is.
    const TABLE: &'static Table;
    /// Who writes it.
    const BY: WrittenBy = WrittenBy::Rest;
    /// By which column its parts are sorted: what is alike then lies next to each other.
    const ORDER: Option<&'static str> = None;
    /// Whether other tables refer to it, or it counts the capture itself: of a generation it goes last.
    const REFERRED_TO: bool = false;
    /// What a word in a text column stands for, where it is a code and not a text of the row's own.
    const CODES: Option<fn(i64) -> &'static str> = None;
}

/// The same as a value, for those who write.
#[derive(Clone, Copy, Debug)]
pub struct TableEntry {
    pub table: &'static Table,
    pub order: Option<&'static str>,
    pub is_referred_to: bool,
    codes: Option<fn(i64) -> &'static str>,
}

/// The place of a table.
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
    /// The lane, and the table's place there.
    pub fn place(self) -> (usize, usize) {
        (self.lane, self.index)
    }
}

/// Gives tables their places.
#[derive(Debug, Default)]
pub struct Registry {
    lanes: [Vec<TableEntry>; LANES],
}

impl Registry {
    /// A place for a table.
    ///
    /// # Panics
    /// It has one, or another table has its name: our own mistake.
    pub fn add<T: Tabled>(&mut self) -> Handle<T> {
        let table = T::TABLE;
        assert!(
            self.entries().all(|entry| entry.table.name != table.name),
            "{} is there twice",
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

/// A table's rows on their way to a lane: as columns, or as words where the feeder has no time.
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

    /// The rows that came as columns.
    pub fn rows(&self) -> &Batch {
        &self.rows
    }

    /// Some columns of the rows that came as words.
    pub fn words<const N: usize>(
        &self,
        columns: [usize; N],
    ) -> impl Iterator<Item = [Option<i64>; N]> {
        self.words.columns(self.rows.table(), columns)
    }

    /// What it takes in memory.
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

    /// Adds the rows to those of its table.
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

/// The rows that a pipeline has and has not yet sent, of all its tables.
#[derive(Debug)]
pub struct Rows {
    lanes: [Vec<Chunk>; LANES],
}

impl Rows {
    /// In these chunks, for each lane.
    pub fn new(lanes: [Vec<Chunk>; LANES]) -> Rows {
        Rows { lanes }
    }

    /// Begins a row, column by column.
    #[inline]
    pub fn row<T: Tabled>(&mut self, handle: Handle<T>) -> Row<'_> {
        self.lanes[handle.lane][handle.index].rows.row()
    }

    /// Begins a row as words: the faster way, for what comes often.
    #[inline(always)]
    pub fn line<T: Tabled>(&mut self, handle: Handle<T>) -> WordRow<'_> {
        self.words(handle).line(T::TABLE)
    }

    /// Where texts of such rows go.
    #[inline]
    pub fn words<T: Tabled>(&mut self, handle: Handle<T>) -> &mut Words {
        &mut self.lanes[handle.lane][handle.index].words
    }

    /// What the rows of a lane take in memory.
    pub fn bytes(&self, lane: usize) -> usize {
        self.lanes[lane].iter().map(Chunk::bytes).sum()
    }

    /// Whether a lane has no rows.
    pub fn is_empty(&self, lane: usize) -> bool {
        self.lanes[lane].iter().all(Chunk::is_empty)
    }

    /// Takes a lane's rows out, and puts empty chunks in their place.
    pub fn take(&mut self, lane: usize, empty: Vec<Chunk>) -> Vec<Chunk> {
        assert_eq!(self.lanes[lane].len(), empty.len());
        std::mem::replace(&mut self.lanes[lane], empty)
    }
}
