//! What the hosts of a load open: a URL that is written, or that of a target which the experiment serves and which gets its
//! port when it starts, after the loads were planned. All hosts open the same device, or each has its own.
//!
//! The rule: a served target is started before any load on it is opened.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use brunt_protocol::Secret;

/// The URL of a target as hosts open it. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct TargetUrl(Arc<OnceLock<Secret>>);

impl TargetUrl {
    /// One that is known already.
    pub fn known(url: impl Into<String>) -> TargetUrl {
        TargetUrl(Arc::new(OnceLock::from(Secret(url.into()))))
    }

    /// The target listens there.
    ///
    /// # Panics
    /// When it was known already: a target is started once.
    pub fn listens(&self, url: String) {
        assert!(self.0.set(Secret(url)).is_ok(), "a target is started once");
    }

    /// The URL.
    ///
    /// # Panics
    /// When the target was not started.
    pub fn get(&self) -> Secret {
        self.0
            .get()
            .cloned()
            .expect("a target is started before its loads are opened")
    }
}

/// What each host of a load opens.
#[derive(Clone, Debug)]
pub enum HostedUrl {
    /// The same device, whose region their workers share.
    Shared(TargetUrl),
    /// A device of its own, by the host's name. Workers of other hosts are not on it.
    Own(BTreeMap<String, TargetUrl>),
}

impl HostedUrl {
    /// What this host opens.
    ///
    /// # Panics
    /// When the target was not started, or the host is not among those that have their own.
    pub fn of(&self, host: &str) -> Secret {
        match self {
            HostedUrl::Shared(url) => url.get(),
            HostedUrl::Own(urls) => urls[host].get(),
        }
    }

    /// Whether each host has its own.
    pub fn is_own(&self) -> bool {
        matches!(self, HostedUrl::Own(_))
    }
}

impl From<&str> for HostedUrl {
    fn from(url: &str) -> HostedUrl {
        HostedUrl::Shared(TargetUrl::known(url))
    }
}
