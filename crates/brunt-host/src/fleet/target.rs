//! The URL that a load's hosts open: a given one, or that of a target which the experiment serves and whose port is
//! known only when it starts, after the loads were planned. All hosts open the same device, or each has its own.
//!
//! The rule: a served target is started before any load on it is opened.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use brunt_protocol::Secret;

/// The URL of a target as hosts open it. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct TargetUrl(Arc<OnceLock<Secret>>);

impl TargetUrl {
    /// A URL that is already known.
    pub fn known(url: impl Into<String>) -> TargetUrl {
        TargetUrl(Arc::new(OnceLock::from(Secret(url.into()))))
    }

    /// Sets the URL at which the target listens.
    ///
    /// # Panics
    /// If it is already known: a target is started only once.
    pub fn listens(&self, url: String) {
        assert!(self.0.set(Secret(url)).is_ok(), "a target is started once");
    }

    /// The URL.
    ///
    /// # Panics
    /// If the target was not started.
    pub fn get(&self) -> Secret {
        self.0
            .get()
            .cloned()
            .expect("a target is started before its loads are opened")
    }
}

/// What the hosts of a load open.
#[derive(Clone, Debug)]
pub enum HostedUrl {
    /// The same device, whose region all workers share.
    Shared(TargetUrl),
    /// A separate device per host, keyed by the host's name. Only that host's workers use it.
    Own(BTreeMap<String, TargetUrl>),
}

impl HostedUrl {
    /// The URL that this host opens.
    ///
    /// # Panics
    /// If the target was not started, or the map has no entry for this host.
    pub fn of(&self, host: &str) -> Secret {
        match self {
            HostedUrl::Shared(url) => url.get(),
            HostedUrl::Own(urls) => urls[host].get(),
        }
    }

    /// Whether each host has its own device.
    pub fn is_own(&self) -> bool {
        matches!(self, HostedUrl::Own(_))
    }
}

impl From<&str> for HostedUrl {
    fn from(url: &str) -> HostedUrl {
        HostedUrl::Shared(TargetUrl::known(url))
    }
}
