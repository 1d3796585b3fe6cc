//! Parts of tables on their way to an object store and back: what `brunt capture --to`, `brunt lake push` and
//! `brunt lake pull` do.
//!
//! ```text
//!   folder, or running capture ──parts──► mover ──steps── plan (pure)
//!                                           │
//!                                           └──► store: S3, by object_store behind the feature `s3`
//! ```
//!
//! A part is moved in steps: look whether the store has it, send it if not, compare what the store then has, delete the
//! local file. Nothing is remembered between them: where a part stands follows from the two ends, so that a move that
//! was killed goes on with the same steps. [`plan`] decides, [`mover`] carries out, [`store`] says what is needed of a
//! store. Of a compacted [`lake`], a version is copied: first what it names, then what names it.
//!
//! The one rule: a local file is deleted only after the store has shown that it holds the same bytes, and an object is
//! never replaced.
#![forbid(unsafe_code)]

pub mod address;
pub mod asking;
pub mod background;
mod error;
pub mod folder;
pub mod lake;
pub mod mover;
pub mod plan;
pub mod pull;
#[cfg(feature = "s3")]
mod s3;
pub mod store;

pub use address::RemoteAddress;
pub use asking::Asking;
pub use background::BackgroundMover;
pub use error::RemoteError;
pub use folder::{FolderLock, FolderSource, LakeMark, LocalPart};
pub use lake::{LakePlan, StoredLake};
pub use mover::{MoveCounts, MoveOptions, Mover, PartSource};
pub use store::{RemoteStore, StopWaiting, open_store};
