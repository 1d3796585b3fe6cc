//! The initiator: a session to a remote LUN, as a `brunt_block::Device`.
//!
//! Start with [`device`], which opens the initiator's entry in the table of backends ([`ENTRY`]): sessions on a ring,
//! and the recovery of lost sessions. [`session`] implements the rules of full-feature phase, [`login`] and
//! [`discovery`] the rules of the earlier phases; all three are pure. [`connect`] creates a session and blocks.
//! [`command`] translates block requests to CDBs, [`url`] parses the configuration.

pub mod command;
pub mod connect;
pub mod device;
pub mod discovery;
pub mod login;
pub mod login_error;
pub mod session;
pub mod url;

pub use device::{ENTRY, Initiator};
