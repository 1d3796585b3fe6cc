//! The settings of a target server and their defaults.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use brunt_block::socket::SocketOptions;

use super::connection::KeepAlive;
use super::event::Listener;
use super::listeners::{Listeners, OpenPortals, Portal};
use crate::chap::ChapUser;
use crate::params::Preferences;

/// Settings of a target server, independent of its targets.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// The portals to listen on.
    pub portals: Vec<Portal>,
    /// Users who may run discovery; `None`: everyone, or the users of all targets if any target has users.
    pub discovery: Option<Vec<ChapUser>>,
    /// Parameters to negotiate for.
    pub wishes: Preferences,
    /// Maximum number of sessions.
    pub sessions_max: usize,
    /// Maximum number of connections that have not logged in; beyond it, the oldest is dropped.
    pub half_open_max: usize,
    /// Maximum duration of a login, even if data keeps arriving.
    pub login_timeout: Duration,
    /// How to check that idle initiators are alive.
    pub keep_alive: KeepAlive,
    /// Socket options of connections that have logged in.
    pub sockets: SocketOptions,
    /// Whether workers poll instead of sleeping while they have connections
    /// ([`brunt_block::RingConfig::never_sleeps`]).
    pub poll: bool,
    /// Receives events.
    pub listener: Listener,
}

/// Default limit on connections that have not logged in.
const HALF_OPEN_MAX: usize = 256;
/// Default time limit for a login: as long as open-iscsi waits for the login response
/// (`node.conn[0].timeo.login_timeout`).
const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);

impl Default for TargetConfig {
    fn default() -> TargetConfig {
        let mut wishes = Preferences::default();
        wishes.values.max_connections = 8;
        TargetConfig {
            portals: vec![SocketAddr::from(([127, 0, 0, 1], 3260)).into()],
            discovery: None,
            wishes,
            sessions_max: 128,
            half_open_max: HALF_OPEN_MAX,
            login_timeout: LOGIN_TIMEOUT,
            // Initiators without a separate thread for the connection (libiscsi's tools) respond only when their
            // program calls them, so a program that pauses for a minute is not a dead peer.
            keep_alive: KeepAlive {
                idle: Duration::from_secs(30),
                patience: Duration::from_secs(90),
            },
            sockets: SocketOptions::default(),
            poll: false,
            listener: Listener::default(),
        }
    }
}

impl TargetConfig {
    /// The part of the settings that applies to new connections.
    pub(super) fn listeners(&self, open: OpenPortals) -> Listeners {
        Listeners {
            open,
            wishes: Arc::new(self.wishes.clone()),
            sockets: self.sockets,
        }
    }
}
