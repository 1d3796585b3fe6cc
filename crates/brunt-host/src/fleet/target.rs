//! The URL that a load's hosts open: a given URL, or the URL of a target that the experiment serves, whose port is
//! known only once it starts, after the loads were planned. Either all hosts open the same device, or each host has
//! its own.
//!
//! The rule: a served target is started before any load on it is opened.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use brunt_core::device_url::UrlOptionChanges;
use brunt_protocol::Secret;

/// The URL of a target as hosts open it. Clones share the URL.
#[derive(Clone, Debug, Default)]
pub struct TargetUrl {
    url: Arc<OnceLock<Secret>>,
    /// Options that differ from the shared URL's.
    changes: UrlOptionChanges,
}

impl TargetUrl {
    /// A URL that is already known.
    pub fn known(url: impl Into<String>) -> TargetUrl {
        TargetUrl {
            url: Arc::new(OnceLock::from(Secret(url.into()))),
            changes: UrlOptionChanges::default(),
        }
    }

    /// Returns this target with other options for opening it.
    #[must_use]
    pub fn with_options(&self, changes: &UrlOptionChanges) -> TargetUrl {
        TargetUrl {
            url: Arc::clone(&self.url),
            changes: changes.clone(),
        }
    }

    /// Sets the URL at which the target listens.
    ///
    /// # Panics
    /// The URL is already known: a target is started only once.
    pub fn listens(&self, url: String) {
        assert!(
            self.url.set(Secret(url)).is_ok(),
            "a target is started once"
        );
    }

    /// The URL.
    ///
    /// # Panics
    /// The target was not started.
    pub fn get(&self) -> Secret {
        let Secret(url) = self
            .url
            .get()
            .expect("a target is started before its loads are opened");
        Secret(match self.changes.is_empty() {
            true => url.clone(),
            false => self.changes.applied_to(url),
        })
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
    /// The target was not started, or the map has no entry for this host.
    pub fn of(&self, host: &str) -> Secret {
        match self {
            HostedUrl::Shared(url) => url.get(),
            HostedUrl::Own(urls) => urls[host].get(),
        }
    }

    /// Returns these targets with other options for opening them.
    #[must_use]
    pub fn with_options(&self, changes: &UrlOptionChanges) -> HostedUrl {
        match self {
            HostedUrl::Shared(url) => HostedUrl::Shared(url.with_options(changes)),
            HostedUrl::Own(urls) => {
                let changed =
                    |(host, url): (&String, &TargetUrl)| (host.clone(), url.with_options(changes));
                HostedUrl::Own(urls.iter().map(changed).collect())
            }
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
