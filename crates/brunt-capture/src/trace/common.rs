//! State shared by all table writers: the rows, pseudonyms, and the numbers that distinguish pipelines. The
//! one rule: everything that pipelines number from zero goes through [`Common::number`], so that a number has
//! one meaning.

use brunt_lake::{Coding, Column};

use super::pseudonyms::Pseudonyms;
use super::rows::Rows;

/// What links a row to its operation.
pub const RECORD: Column = Column::int(
    "record_id",
    "The operation it belongs to: `operations.record_id`.",
);
/// What stands for a file.
pub const FILE: Column =
    Column::int("file", "The file or directory: `handles.file`.").coded(Coding::Dictionary);

/// Pipelines number what they find from zero: the number of the pipeline goes above.
const PIPELINE_SHIFT: u32 = 48;

/// What all groups of tables share.
#[derive(Debug)]
pub struct Common {
    /// Rows that were not sent yet.
    pub rows: Rows,
    /// What stands for names and ids.
    pub hide: Pseudonyms,
    /// The pipeline's number.
    pub pipeline: u64,
    /// Attributes are stored with every reply, and not only when they change.
    pub repeats_attributes: bool,
}

impl Common {
    /// A number of this pipeline as one of all.
    #[inline]
    pub fn number(&self, number: u64) -> i64 {
        (number | self.pipeline << PIPELINE_SHIFT) as i64
    }
}
