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
//! [`Compaction`] gathers such parts into a lake: fewer, larger ones by time, which a [`Catalog`] lists. Readers see either
//! through a [`LakeSnapshot`].
//!
//! The rule: whatever has a part's name is a complete Parquet file. A process that is killed leaves
//! every part readable without repair, and loses at most the rows of one row group.
#![forbid(unsafe_code)]

pub mod batch;
pub mod catalog;
mod cells;
pub mod check;
pub mod compact;
pub mod delta;
mod encode;
mod error;
pub mod foreign;
pub mod guard;
pub mod lock;
pub mod markdown;
mod origin;
mod packing;
pub mod part_writer;
pub mod place;
pub mod reader;
pub mod repeat;
pub mod runs;
pub mod sizes;
pub mod snapshot;
mod spread;
mod sums;
pub mod table;
pub mod twins;
pub mod words;
pub mod writer;

pub use batch::{Batch, Row};
pub use catalog::{Catalog, LakePart, LakeTap};
pub use compact::{Compaction, LakeLayout};
pub use delta::{DeltaError, DeltaVersion};
pub use error::LakeError;
pub use lock::{WriterLock, WriterState};
pub use reader::{TableReader, read_table};
pub use repeat::{Repeat, RepeatEnd};
pub use runs::{OrderedReader, OrderedRuns};
pub use sizes::{TableSizes, table_sizes};
pub use snapshot::LakeSnapshot;
pub use table::{Coding, Column, ColumnKind, Table, columns};
pub use words::{WordRow, WordRows, Words, text_at};
pub use writer::{ClosedPart, TableWriter, Workspace, WriterOptions, Written};
