//! State shared by all table writers: the rows, the pseudonyms, and the numbers that distinguish pipelines. The one
//! rule: everything that pipelines number from zero goes through [`Common::number`], so that numbers are unique in
//! the whole trace.

use brunt_lake::{Coding, Column};

use super::pseudonyms::Pseudonyms;
use super::rows::Rows;

/// The column that links a row to its operation.
pub const RECORD: Column = Column::int("record_id", "The operation: `operations.record_id`.");
/// The column that identifies a file.
pub const FILE: Column =
    Column::int("file", "The file or directory: `handles.file`.").coded(Coding::Dictionary);

/// Number of bits for what a pipeline numbers from zero; the bits above them contain the pipeline's own number.
const PIPELINE_SHIFT: u32 = 48;

/// State shared by all groups of tables.
#[derive(Debug)]
pub struct Common {
    /// Rows that have not been sent yet.
    pub rows: Rows,
    /// Pseudonyms for names and ids.
    pub hide: Pseudonyms,
    /// The pipeline's number.
    pub pipeline: u64,
    /// Whether attributes are stored with every reply, not only when they change.
    pub repeats_attributes: bool,
}

impl Common {
    /// Converts a number that is unique within the pipeline into one that is unique across all pipelines.
    #[inline]
    pub fn number(&self, number: u64) -> i64 {
        (number | self.pipeline << PIPELINE_SHIFT) as i64
    }
}
