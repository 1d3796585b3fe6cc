//! The initiator: a session to a remote LUN, seen as a `brunt_block::Device`.

pub mod command;
pub mod connect;
pub mod login;
pub mod session;
pub mod url;
