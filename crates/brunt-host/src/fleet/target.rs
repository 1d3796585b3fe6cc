//! What the hosts of a load open: a URL that is written, or that of a target which the experiment serves and which gets its
//! port when it starts, after the loads were planned.
//!
//! The rule: a served target is started before any load on it is opened.

use std::sync::{Arc, OnceLock};

use brunt_result::message::Secret;

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
        self.0.get().cloned().expect("a target is started before its loads are opened")
    }
}

impl From<&str> for TargetUrl {
    fn from(url: &str) -> TargetUrl {
        TargetUrl::known(url)
    }
}
