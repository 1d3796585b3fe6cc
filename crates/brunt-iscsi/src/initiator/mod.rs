//! The initiator: a session to a remote LUN, seen as a `brunt_block::Device`.
//!
//! Start at [`device`], which the table of backends opens ([`ENTRY`]): sessions on a ring, and what
//! happens when one is lost. [`session`] has the rules of full feature phase, [`login`] and [`discovery`]
//! those before; all are pure. [`connect`] makes a session, blocking. [`command`] turns block requests into
//! CDBs, [`url`] says what can be configured.

pub mod command;
pub mod connect;
pub mod device;
pub mod discovery;
pub mod login;
pub mod login_error;
pub mod session;
pub mod url;

pub use device::{ENTRY, Initiator};
