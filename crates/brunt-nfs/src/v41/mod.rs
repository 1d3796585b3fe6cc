//! NFSv4.1 (RFC 8881) for callers that use NFSv3 calls: each call is one compound, and its results are returned as
//! NFSv3's, so the device, the loads and replays use one interface for both versions.
//!
//! - `call`: a call as a compound;
//! - `reply`: its results;
//! - `session`: slots with their sequence numbers, without I/O;
//! - `client`: how a client gets a session, keeps it across connections and gives it back.
//!
//! Files are not opened for reading and writing: READ, WRITE and SETATTR carry the anonymous stateid (RFC 8881, 8.2.3),
//! and CREATE opens and closes its file in the same compound. So after a restart of the server there are no opens,
//! locks or delegations to reclaim; a session has no back channel.
//!
//! The one rule: a call is sent with the same slot and sequence number until it is answered, as long as its session
//! lives, so that the server executes it once.

mod call;
mod client;
mod reply;
mod session;

pub(crate) use call::{encode_call, encode_renewal};
pub(crate) use client::NfsSetupError;
pub use client::{NfsGrant, NfsSeat};
pub use reply::NfsScratch;
pub(crate) use reply::translate;
pub(crate) use session::{NfsSlot, NfsSlots, Sequenced, asks_to_wait, put_slot, sequenced};
