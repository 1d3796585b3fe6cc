//! Stores tables as folders of Parquet files. `brunt run` and `brunt capture` write them; `brunt report`,
//! `brunt analyze`, DuckDB, pandas and Spark read them. This is the only crate that knows Parquet.
//!
//! A [`Table`] describes its columns once; the file schema and the documentation are derived from it. Rows are appended
//! to a [`Batch`], an in-memory column store, which a [`TableWriter`] writes as *parts*:
//!
//! ```text
//! results/
//!   intervals/
//!     part-000000.parquet        complete: one row group and its footer
//!     part-000001.parquet
//!     part-000002.parquet.open   being written; no glob over *.parquet matches it
//! ```
//!
//! [`Compaction`] merges such parts into a lake: fewer, larger parts, ordered by time and listed in a [`Catalog`].
//! Readers access both forms through a [`LakeSnapshot`].
//!
//! The rule: a file with a part's name is a complete Parquet file. If a process is killed, every part stays readable
//! without repair, and at most the rows of one row group are lost.
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
pub mod integer_times;
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
pub mod words;
pub mod writer;

pub use batch::{Batch, Row};
pub use catalog::{Catalog, LakePart, LakeTap};
pub use compact::{Compaction, LakeLayout};
pub use delta::{DeltaError, DeltaVersion};
pub use encode::compression_time;
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
