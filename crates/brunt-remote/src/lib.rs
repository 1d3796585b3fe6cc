//! Moves parts of tables to an object store and back. Implements `brunt capture --to`, `brunt lake push` and
//! `brunt lake pull`.
//!
//! ```text
//!   folder, or running capture ──parts──► mover ──steps── plan (pure)
//!                                           │
//!                                           └──► store: S3, by object_store behind the feature `s3`
//! ```
//!
//! A part is moved in steps: check whether the store has it, send it if not, compare the stored object, delete the
//! local file. No state is kept between steps: a part's progress follows from the two sides, so a killed move resumes
//! with the same steps. [`plan`] decides, [`mover`] executes, [`store`] defines the interface to a store. A single
//! version of a compacted [`lake`] is copied: first the parts that it names, then the objects that name them.
//!
//! The one rule: a local file is deleted only after the store has proven that it holds the same bytes, and an object is
//! never replaced.
#![forbid(unsafe_code)]

pub mod address;
pub mod background;
mod error;
pub mod folder;
pub mod lake;
pub mod mover;
pub mod plan;
pub mod pull;
pub mod retry;
#[cfg(feature = "s3")]
mod s3;
pub mod store;

pub use address::RemoteAddress;
pub use background::BackgroundMover;
pub use error::RemoteError;
pub use folder::{FolderLock, FolderSource, LakeMark, LocalPart};
pub use lake::{LakePlan, StoredLake};
pub use mover::{MoveCounts, MoveOptions, Mover, PartSource};
pub use retry::StoreRetry;
pub use store::{RemoteStore, StopWaiting, open_store};
