//! Stores on the network. [`nbd`] speaks its protocol: a client seen as a `brunt_block::Device`, and a server of
//! backends. [`sheepdog`] speaks that of its store. [`rbd`] and [`gluster`] go through the stores' own client libraries.
//!
//! The one rule: protocol rules are structs that take messages and give actions, without I/O; only drivers
//! (`connect`, `device`, `link`, `server::connection`) touch a ring, a socket or a clock.
#![deny(unsafe_code)]

mod channel;
pub mod gluster;
mod library;
pub mod nbd;
mod parts;
pub mod rbd;
pub mod sheepdog;

pub use library::LibraryError;

/// What this crate adds to the table of backends of `brunt-block`: every program that opens device URLs
/// hands these over.
pub static BACKENDS: &[brunt_block::table::BackendEntry] = &[
    nbd::NBD,
    nbd::NBDS,
    nbd::NBD_UNIX,
    nbd::NBDS_UNIX,
    rbd::RBD,
    gluster::GLUSTER,
    sheepdog::SHEEPDOG,
];
