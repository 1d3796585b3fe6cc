//! Network storage. [`nbd`] implements the NBD protocol: a client as a `brunt_block::Device`, and a server of backends.
//! [`sheepdog`] implements Sheepdog's protocol. [`rbd`] and [`gluster`] use their stores' own client libraries.
//!
//! The one rule: protocol rules are structs that take messages and return actions, without I/O; only drivers
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

/// The entries that this crate adds to the backend table of `brunt-block`; every program that opens device URLs passes
/// them in.
pub static BACKENDS: &[brunt_block::table::BackendEntry] = &[
    nbd::NBD,
    nbd::NBDS,
    nbd::NBD_UNIX,
    nbd::NBDS_UNIX,
    rbd::RBD,
    gluster::GLUSTER,
    sheepdog::SHEEPDOG,
];
