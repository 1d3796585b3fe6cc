//! Common parts of devices that use a store's own client library, which is loaded on demand.
//!
//! - [`brunt_block::library`]: finds the library and its functions;
//! - [`inbox`]: collects the operations completed by its threads, and wakes the device's thread;
//! - [`slots`]: requests that the library is processing, with their buffers;
//! - [`device`]: translates requests to library operations;
//! - [`time_limit`]: blocking library calls with a time limit.
//!
//! The one rule: a buffer belongs to the library from `begin` until the operation has completed.

pub(crate) mod device;
mod error;
mod inbox;
#[allow(unsafe_code, reason = "buffers owned by a library until its callback")]
pub(crate) mod slots;
pub(crate) mod time_limit;

pub use error::LibraryError;
