//! The iSCSI target node (RFC 7143, 2.2): portals, login, sessions, connections, and the threads that drive them.
//!
//! A connection's life: [`server`] accepts it and runs its [`login`] among all others in one thread;
//! then it gets its own thread, in which [`driver`] feeds a [`connection`] (the rules of
//! full-feature phase) from a socket and hands its commands to [`units`]. What connections of one
//! [`session`] share is behind one mutex, taken once a batch. [`directory`] lists the targets,
//! [`entrance`] says where they are reached.

pub mod connection;
pub mod directory;
pub mod driver;
pub mod entrance;
pub mod login;
pub mod server;
pub mod session;
pub mod text;
pub mod units;

pub use connection::ConnectionCounters;
pub use directory::{SameSecret, ServedTarget, chap_user};
pub use entrance::{OpenPortals, Portal, PortalError};
pub use server::{Listener, StartError, TargetConfig, TargetEvent, TargetServer, TargetStats};
