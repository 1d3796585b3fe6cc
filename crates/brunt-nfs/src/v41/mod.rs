//! NFSv4.1 (RFC 8881) for callers that use NFSv3 calls: each call is one compound, and its results are returned as
//! NFSv3's, so the device, the loads and replays use one interface for both versions.
//!
//! - `call`: a call as a compound;
//! - `reply`: its results;
//! - `session`: slots with their sequence numbers, without I/O;
//! - `opens`: the files that it has open;
//! - `locks`: the locks that it has on them, and the calls for that;
//! - `client`: how a client gets a session, keeps it across connections, and reclaims its open files after a restart of
//!   the server;
//! - `farewell`: how it gives all of it back;
//! - `shared`: a client that two threads share.
//!
//! The first READ or WRITE of a file opens it in the same compound, by its handle and with the access that it needs; later
//! ones use the stateid. CREATE opens and closes its file. SETATTR of the length carries the stateid of a file that its
//! caller has open for writing, and otherwise, as any other SETATTR, the anonymous one (RFC 8881, 8.2.3). A session has
//! no back channel, on which a server could recall a delegation: calls ask for none, and return one that is granted
//! nevertheless.
//!
//! The one rule: a call is sent with the same slot and sequence number until it is answered, as long as its session
//! lives, so that the server executes it once.

mod call;
mod client;
mod farewell;
mod locks;
mod opens;
mod reply;
mod session;
mod shared;

pub(crate) use call::{NfsEncoded, NfsFileAccess, access_of, encode_call, encode_renewal};
pub(crate) use client::NfsSetupError;
pub use client::{NfsGrant, NfsSeat};
pub use farewell::NfsFarewell;
pub use locks::{NfsLock, NfsLockOp, NfsRange};
pub(crate) use locks::{begin_lock, encode_lock, encode_test, encode_unlock, lock_results, locked};
pub use opens::NfsOpened;
pub(crate) use opens::{
    NfsClosing, NfsFileUse, NfsOpenFile, NfsOpens, OPENS_MAX, encode_closing, encode_open,
    is_state_lost, opened,
};
pub use reply::NfsScratch;
pub(crate) use reply::translate;
pub(crate) use session::{NfsSlot, NfsSlots, Sequenced, asks_to_wait, put_slot, sequenced};
pub use shared::NfsClient;
