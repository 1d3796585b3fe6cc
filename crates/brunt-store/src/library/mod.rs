//! Devices that use a store's own client library, which is loaded on demand: their common parts.
//!
//! - [`brunt_block::library`]: finds the library and its functions;
//! - [`inbox`]: where its threads put completed operations, and how the device's thread is woken;
//! - [`slots`]: requests that the library has, with their buffers;
//! - [`device`]: translates requests to operations of the library;
//! - [`time_limit`]: blocking calls of the library, with a time limit.
//!
//! The one rule: a buffer belongs to the library from `begin` until the operation has completed.

pub(crate) mod device;
mod error;
mod inbox;
#[allow(
    unsafe_code,
    reason = "buffers that a library holds until it calls back"
)]
pub(crate) mod slots;
pub(crate) mod time_limit;

pub use error::LibraryError;
