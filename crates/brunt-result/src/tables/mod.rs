//! The tables of a result in Parquet files, for DuckDB, pandas and Spark (docs/results.md). A study's observer fills
//! them during the runs; `brunt report` reads them.
//!
//! To add a table, add one file here with its `TABLE` and a function that appends rows, one line in [`TABLES`], and a
//! call in the study's recorder of results for the event that fills it.
//!
//! The rule: rows contain plain data only; nothing here opens a file.

pub mod degradation;
pub mod environment;
pub mod faults;
mod figures;
pub mod histograms;
pub mod indexes;
pub mod intervals;
mod origin;
pub mod phases;
pub mod points;
pub mod probes;
pub mod profiles;
pub mod replay;
pub mod requests;
pub mod runs;
pub mod transfer;

use brunt_lake::Table;

pub use origin::RunOrigin;

/// All tables; each is a folder of the result.
#[rustfmt::skip]
pub const TABLES: &[&Table] = &[
    &points::TABLE,
    &points::AXES,
    &runs::TABLE,
    &intervals::TABLE,
    &intervals::OPS,
    &histograms::TABLE,
    &requests::TABLE,
    &probes::TABLE,
    &faults::TABLE,
    &degradation::TABLE,
    &phases::TABLE,
    &replay::TABLE,
    &indexes::TABLE,
    &indexes::CLIENTS,
    &transfer::TABLE,
    &profiles::TABLE,
    &profiles::TIMES,
    &environment::TABLE,
];

#[cfg(test)]
mod tests;
