//! What a trace format is: what is said of it, and how its files are decoded. Each file in `formats/` has one or more.
//!
//! The rule: no format is known here; their table is in [`crate::table`].

use crate::record::{BlockRequest, Devices};

/// One format.
pub struct Format {
    /// What the user types.
    pub name: &'static str,
    /// Where it comes from, in a line.
    pub help: &'static str,
    /// What its fields leave open and how that was decided; empty where nothing is.
    pub note: &'static str,
    /// It was held against a file of its publisher's, not only against published lines.
    pub checked: bool,
    /// The beginning of a file of it.
    pub example: &'static [u8],
    /// A decoder at the beginning of a file.
    pub decoder: fn() -> Box<dyn Decode + Send>,
}

/// A row that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedRow {
    /// Which row of the file, from 1: lines, or records.
    pub row: u64,
}

/// Reads a file, a piece after another.
pub trait Decode {
    /// Reads the whole rows of `bytes`, and says how many bytes that were. `last`: the file ends here, and what is left
    /// is a row or damaged. Requests go to `requests`, rows that cannot be read to `damaged`.
    fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        devices: &mut Devices,
        requests: &mut Vec<BlockRequest>,
        damaged: &mut Vec<DamagedRow>,
    ) -> usize;
}
