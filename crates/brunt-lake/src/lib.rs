//! Tables as folders of Parquet files: what `brunt run` and `brunt capture` write, and what
//! `brunt report`, `brunt analyze`, DuckDB, pandas and Spark read. The one crate that knows Parquet.
//!
//! A [`Table`] describes its columns once; file schema and documentation follow from it. Rows go
//! into a [`Batch`], column by column in memory; a [`TableWriter`] turns them into *parts*:
//!
//! ```text
//! results/
//!   intervals/
//!     part-000000.parquet        complete: one row group and its footer
//!     part-000001.parquet
//!     part-000002.parquet.open   being written, and no glob over *.parquet sees it
//! ```
//!
//! The rule: whatever has a part's name is a complete Parquet file. A process that is killed leaves
//! every part readable without repair, and loses at most the rows of one row group.
#![forbid(unsafe_code)]

pub mod batch;
mod cells;
mod encode;
mod error;
pub mod markdown;
mod packing;
pub mod reader;
pub mod sizes;
mod sums;
pub mod table;
pub mod words;
pub mod writer;

pub use batch::{Batch, Row};
pub use error::LakeError;
pub use reader::{TableReader, read_table};
pub use sizes::{TableSizes, table_sizes};
pub use table::{Coding, Column, ColumnKind, Table, columns};
pub use words::{WordRow, WordRows, Words, text_at};
pub use writer::{ClosedPart, TableWriter, Workspace, WriterOptions, Written};
