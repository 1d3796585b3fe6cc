//! Devices through a store's own client library, which is loaded when a URL asks for it: what they have in common.
//!
//! - [`brunt_block::library`]: finds the library and its functions;
//! - [`inbox`]: where its threads put what they completed, and how the device's thread is woken;
//! - [`slots`]: requests that the library has, with their buffers;
//! - [`device`]: requests of any load as operations of the library;
//! - [`patience`]: calls of the library that block, with a limit.
//!
//! The one rule: a buffer belongs to the library from `begin` until it said that the operation ended.

pub(crate) mod device;
mod error;
mod inbox;
pub(crate) mod patience;
#[allow(
    unsafe_code,
    reason = "buffers that a library holds until it calls back"
)]
pub(crate) mod slots;

pub use error::LibraryError;
