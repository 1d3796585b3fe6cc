//! A load of metadata operations, in the role of mdtest and of PostMark: workers create, look up, list, read and remove
//! many files and directories in a tree, on a mounted file system or in a folder of an NFS server. Each
//! [`MetadataPhase`] is a separate run with the usual figures for each kind of operation.
//!
//! Start reading at [`settings`], the user's description. `shape` numbers directories and items, `walker` prepares
//! and runs a phase for one worker (`transactions` runs the phase of that name), and `load` runs the workers. A
//! walker accesses file systems only through `place`, which `mounted` and `export` implement. Names are mdtest's:
//!
//! ```text
//! brunt-7c5e…/mdtest_tree.0/mdtest_tree.1/file.mdtest.3.17     directories shared by all workers; item 17 of worker 3
//!            /mdtest_tree.3.0/mdtest_tree.3.1/…                 a worker's own directories
//! ```
//!
//! The rule: only what this load created is removed.

mod export;
mod load;
mod mounted;
mod place;
pub mod settings;
mod shape;
mod transactions;
mod walker;

pub use load::{KIND, MetadataLoad};
pub use settings::{MetadataPhase, MetadataSettings, MetadataTransactions};

pub(crate) use load::LINE;
