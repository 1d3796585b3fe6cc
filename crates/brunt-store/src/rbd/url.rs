//! URLs of RBD images, in the syntax of the `rbd` program, and the resulting configuration.
//!
//! ```text
//! rbd:pool/image      rbd:pool/namespace/image      rbd:pool/image@snapshot
//! ```
//!
//! The one rule: a namespace or snapshot is given only once, either in the place or by an option.

use std::path::PathBuf;
use std::time::Duration;

use brunt_block::table::{OpenError, UrlOptions};

use crate::parts::place_and_options;

/// Keys with a one-line help text each, for the table of backends.
pub const OPTIONS: &[(&str, &str)] = &[
    (
        "conf",
        "the cluster's configuration file; default: $CEPH_CONF, then /etc/ceph/CLUSTER.conf and ~/.ceph/CLUSTER.conf",
    ),
    ("id", "user without 'client.'; default admin"),
    (
        "cluster",
        "cluster name, which is part of the default paths; default ceph",
    ),
    ("namespace", "namespace in the pool; default: none"),
    (
        "snapshot",
        "open this snapshot of the image; writes are refused",
    ),
    (
        "cache",
        "yes: use librbd's cache, so writes are stable only after a flush; no (default): bypass it",
    ),
    (
        "timeout",
        "time limit for opening; default 30s. Requests have none, as in librbd: they wait for the cluster",
    ),
    (
        "block",
        "logical block size in bytes, 512 (default) or 4096",
    ),
    ("read_only", "yes: refuse writes"),
];

/// Errors in the URL of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RbdUrlError {
    /// The image isn't given as two or three names.
    #[error("write an image as pool/image or pool/namespace/image")]
    Names,
    /// Slashes after the scheme.
    #[error(
        "'rbd:' is not followed by '//'; the cluster's addresses are in its configuration file"
    )]
    Slashes,
    /// A snapshot without a name.
    #[error("the snapshot's name after '@' is missing")]
    Snapshot,
    /// A name contains a NUL.
    #[error("a name contains a NUL")]
    Nul,
    /// A namespace in both the place and an option.
    #[error("the namespace is given twice")]
    TwoNamespaces,
    /// A snapshot in both the place and an option.
    #[error("the snapshot is given twice")]
    TwoSnapshots,
}

impl From<RbdUrlError> for OpenError {
    fn from(error: RbdUrlError) -> OpenError {
        OpenError::Url {
            source: Box::new(error),
            advice: "write an RBD URL as rbd:pool/[namespace/]image[@snapshot], with ?conf=PATH \
                for a cluster that is not in /etc/ceph/ceph.conf",
        }
    }
}

/// The configuration given by a URL and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RbdConfig {
    /// The pool's name.
    pub pool: String,
    /// The pool's namespace, if not the default one.
    pub namespace: Option<String>,
    /// The image's name.
    pub image: String,
    /// The snapshot's name.
    pub snapshot: Option<String>,
    /// The configuration file, if not in one of the default locations.
    pub conf: Option<PathBuf>,
    /// The user, without `client.`.
    pub id: String,
    /// The cluster's name.
    pub cluster: String,
    /// Whether to use librbd's cache.
    pub cache: bool,
    /// Time limit for opening.
    pub timeout: Duration,
    /// Logical block size in bytes.
    pub block_bytes: u32,
    /// Whether writes are refused, even if the image is writable.
    pub read_only: bool,
}

impl RbdConfig {
    /// Parses a whole URL; `None` for other schemes.
    pub fn of_url(url: &str) -> Option<Result<RbdConfig, OpenError>> {
        let parts = place_and_options(url.strip_prefix("rbd:")?, OPTIONS);
        Some(parts.and_then(|(place, mut options)| RbdConfig::parse(place, &mut options)))
    }

    /// Parses the part after `rbd:`, and the options.
    ///
    /// # Errors
    /// The error says what is wrong and what would be correct.
    pub fn parse(place: &str, options: &mut UrlOptions) -> Result<RbdConfig, OpenError> {
        if place.starts_with("//") {
            return Err(RbdUrlError::Slashes.into());
        }
        let (place, snapshot) = match place.split_once('@') {
            None => (place, None),
            Some((_, "")) => return Err(RbdUrlError::Snapshot.into()),
            Some((place, snapshot)) => (place, Some(snapshot.to_string())),
        };
        let names: Vec<&str> = place.split('/').collect();
        let (pool, namespace, image) = match names[..] {
            [pool, image] => (pool, None, image),
            [pool, namespace, image] => (pool, Some(namespace.to_string()), image),
            _ => return Err(RbdUrlError::Names.into()),
        };
        let other_namespace = options.take("namespace").filter(|name| !name.is_empty());
        let other_snapshot = options.take("snapshot").filter(|name| !name.is_empty());
        if names.contains(&"") {
            return Err(RbdUrlError::Names.into());
        }
        if namespace.is_some() && other_namespace.is_some() {
            return Err(RbdUrlError::TwoNamespaces.into());
        }
        if snapshot.is_some() && other_snapshot.is_some() {
            return Err(RbdUrlError::TwoSnapshots.into());
        }
        let config = RbdConfig {
            pool: pool.to_string(),
            namespace: namespace.or(other_namespace),
            image: image.to_string(),
            snapshot: snapshot.or(other_snapshot),
            conf: options.take("conf").map(PathBuf::from),
            id: options.take("id").unwrap_or_else(|| "admin".to_string()),
            cluster: options
                .take("cluster")
                .unwrap_or_else(|| "ceph".to_string()),
            cache: options.flag("cache")?.unwrap_or(false),
            timeout: options.time("timeout", Duration::from_secs(30), Duration::from_millis(1))?,
            block_bytes: options.block()?.unwrap_or(512),
            read_only: options.flag("read_only")?.unwrap_or(false),
        };
        let conf = config
            .conf
            .iter()
            .map(|path| path.to_string_lossy().into_owned());
        if conf
            .chain([config.name(), config.id.clone(), config.cluster.clone()])
            .any(|text| text.contains('\0'))
        {
            return Err(RbdUrlError::Nul.into());
        }
        Ok(config)
    }

    /// The URL without its options, for messages.
    pub fn name(&self) -> String {
        let RbdConfig {
            pool,
            namespace,
            image,
            snapshot,
            ..
        } = self;
        let namespace = namespace
            .as_ref()
            .map(|name| format!("{name}/"))
            .unwrap_or_default();
        let snapshot = snapshot
            .as_ref()
            .map(|name| format!("@{name}"))
            .unwrap_or_default();
        format!("rbd:{pool}/{namespace}{image}{snapshot}")
    }

    /// Whether writes are refused; snapshots are always read-only.
    pub fn is_read_only(&self) -> bool {
        self.read_only || self.snapshot.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(place: &str, options: &[(&str, &str)]) -> Result<RbdConfig, OpenError> {
        let mut all = UrlOptions::default();
        options.iter().for_each(|(key, value)| all.set(key, value));
        RbdConfig::parse(place, &mut all)
    }

    #[test]
    fn urls_are_parsed() {
        let check = |place: &str,
                     pool: &str,
                     namespace: Option<&str>,
                     image: &str,
                     snapshot: Option<&str>| {
            let config = parse(place, &[]).unwrap();
            assert_eq!((&*config.pool, &*config.image), (pool, image), "{place}");
            assert_eq!(
                (config.namespace.as_deref(), config.snapshot.as_deref()),
                (namespace, snapshot)
            );
            assert_eq!(config.name(), format!("rbd:{place}"));
            assert_eq!(config.is_read_only(), snapshot.is_some());
        };
        check("rbd/disk", "rbd", None, "disk", None);
        check("rbd/vm-7/disk.img", "rbd", Some("vm-7"), "disk.img", None);
        check("rbd/disk@before", "rbd", None, "disk", Some("before"));
        check("a b/n/c:d@s", "a b", Some("n"), "c:d", Some("s"));
    }

    #[test]
    fn options_reach_the_configuration() {
        let config = parse("p/i", &[]).unwrap();
        assert_eq!(
            (
                &*config.id,
                &*config.cluster,
                config.cache,
                config.block_bytes
            ),
            ("admin", "ceph", false, 512)
        );
        let options = [
            ("conf", "/x/ceph.conf"),
            ("id", "brunt"),
            ("cluster", "west"),
            ("namespace", "n"),
            ("snapshot", "s"),
            ("cache", "yes"),
            ("timeout", "2s"),
            ("block", "4096"),
        ];
        let config = parse("p/i", &options).unwrap();
        assert_eq!(config.name(), "rbd:p/n/i@s");
        assert_eq!((&*config.id, &*config.cluster), ("brunt", "west"));
        assert_eq!(
            config.conf.as_deref(),
            Some(std::path::Path::new("/x/ceph.conf"))
        );
        assert!(config.cache && config.is_read_only() && !config.read_only);
        assert_eq!(
            (config.timeout, config.block_bytes),
            (Duration::from_secs(2), 4096)
        );
    }

    #[test]
    fn mistakes_are_named() {
        let check = |place: &str, options: &[(&str, &str)], words: &str| {
            let error = parse(place, options).expect_err(place).to_string();
            assert!(error.contains(words), "{place}: {error}");
        };
        check("disk", &[], "pool/image");
        check("a/b/c/d", &[], "pool/image");
        check("/disk", &[], "pool/image");
        check("rbd/", &[], "pool/image");
        check("//host/pool/image", &[], "configuration file");
        check("rbd/disk@", &[], "snapshot's name");
        check("rbd/di\0sk", &[], "NUL");
        check(
            "rbd/n/disk",
            &[("namespace", "m")],
            "namespace is given twice",
        );
        check(
            "rbd/disk@s",
            &[("snapshot", "t")],
            "snapshot is given twice",
        );
        check("rbd/disk", &[("cache", "maybe")], "yes or no");
        check("rbd/disk", &[("block", "1024")], "512 or 4096");
        check("rbd/disk", &[("timeout", "0s")], "at least");
    }
}
