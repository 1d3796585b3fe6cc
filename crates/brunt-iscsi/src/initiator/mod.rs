//! The initiator: a session to a remote LUN, seen as a `brunt_block::Device`.

pub mod login;
