//! A load that makes calls to an NFS server by a weighted mix: `nfs = { … }` in a workload. The load creates its own
//! tree in the folder that its target names (`nfs://server/export/folder/`), without a kernel mount.
//!
//! Start reading at [`settings`], the user's description. `call` writes a call into a request and reads it back,
//! `requests` draws the calls of a worker, `tree` creates the files that they apply to, and `load` runs the workers
//! with the loop of the block load, so that arrival, ramp-up, limits and retries are the same; `hosted` runs them on
//! other hosts. The calls made on a connection are in `brunt_nfs::operations`.
//!
//! The rule: the same seed gives the same calls, and nothing outside the load's own tree is changed.

mod call;
mod hosted;
mod keys;
pub(crate) mod load;
pub mod op;
pub(crate) mod requests;
pub mod settings;
pub(crate) mod tree;

pub use load::{KIND, NfsLoad};
pub use settings::NfsSettings;

pub(crate) use load::LINE;
