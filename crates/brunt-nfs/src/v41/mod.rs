//! NFSv4.1 (RFC 8881) for callers that use NFSv3 calls: each call is one compound, and its results are returned as
//! NFSv3's, so the device, the loads and replays use one interface for both versions.
//!
//! - `call`: a call as a compound;
//! - `reply`: its results;
//! - `session`: slots with their sequence numbers, without I/O;
//! - `opens`: the files that the client has open;
//! - `locks`: the locks that the client holds, and the lock operations;
//! - `client`: how a client gets a session, keeps it across connections, and reclaims its open files after a server
//!   restart;
//! - `farewell`: how it releases all of that;
//! - `shared`: a client that two threads share.
//!
//! The first READ or WRITE of a file opens it in the same compound, by its handle and with the access that it needs;
//! later calls use the stateid. CREATE opens and closes its file. A SETATTR of the length carries the file's stateid
//! if its caller has the file open for writing; otherwise, like any other SETATTR, it carries the anonymous one (RFC
//! 8881, 8.2.3). A session has no back channel on which a server could recall a delegation, so calls ask for no
//! delegation, and one that is granted anyway is returned.
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
