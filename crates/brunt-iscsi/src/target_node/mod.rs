//! The iSCSI target node (RFC 7143, 2.2): portals, login, sessions, connections, and the threads that drive them.
//!
//! The life of a connection: `acceptor` accepts it and runs its [`login`], in one thread for all connections; then
//! `workers` hands it to a worker thread, of which there are normally at most as many as cores. There, a `worker`
//! gives each of its connections a turn when it has something to process: [`driver`] passes PDUs from the
//! connection's socket to [`connection`] (the rules of full-feature phase) and commands to [`units`]. State shared by
//! a [`session`]'s connections is behind one mutex, which is locked once per batch. [`directory`] lists the targets,
//! [`listeners`] their portals.

mod acceptor;
mod config;
pub mod connection;
mod counters;
mod deadlines;
pub mod directory;
pub mod driver;
mod event;
pub mod listeners;
pub mod login;
pub mod server;
mod server_state;
pub mod session;
pub mod text;
pub mod units;
mod worker;
mod workers;

pub use config::TargetConfig;
pub use connection::ConnectionCounters;
pub use directory::{SameSecret, ServedTarget, chap_user};
pub use event::{Listener, TargetEvent};
pub use listeners::{OpenPortals, Portal, PortalError};
pub use server::{StartError, TargetServer};
pub use server_state::TargetStats;
