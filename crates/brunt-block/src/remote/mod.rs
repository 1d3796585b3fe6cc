//! Networked devices: the part that is the same for all protocols. A [`RemoteLink`] moves bytes between one connection
//! and its session, and reconnects; a [`RemoteDevice`] distributes a thread's requests over its links.
//!
//! - [`protocol`]: what a protocol implements;
//! - [`link`]: one connection with its session, which outlives it;
//! - [`device`]: one thread's links as a [`crate::Device`].
//!
//! The one rule: no protocol logic here. When a connection fails, all buffers are returned and the session waits.

pub mod device;
pub mod link;
pub mod protocol;

pub use device::RemoteDevice;
pub use link::{Opening, RemoteLink};
pub use protocol::{RemoteChannel, RemoteEvents, RemoteProtocol, RemoteSession, why_stream_ended};
