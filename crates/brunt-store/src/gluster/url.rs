//! URLs of files on GlusterFS volumes, as in QEMU, and the resulting configuration.
//!
//! ```text
//! gluster://host[:port]/volume/path
//! ```
//!
//! The one rule: names are used literally, without percent-encoding.

use std::time::Duration;

use brunt_block::open::host_and_port;
use brunt_block::table::{OpenError, UrlOptions};

use crate::parts::place_and_options;

/// Default port of glusterd, which provides the volume's description.
const PORT: u16 = 24007;

/// Keys with a one-line help text each, for the table of backends.
pub const OPTIONS: &[(&str, &str)] = &[
    (
        "cache",
        "yes: with the client's caches; no (default): the file is opened with O_DIRECT, bypassing \
         write-behind",
    ),
    ("log", "log file of the library; default: none"),
    (
        "timeout",
        "time limit for opening; default 30s. The volume's own limits apply to requests \
         (network.ping-timeout)",
    ),
    (
        "block",
        "logical block size in bytes, 512 or 4096 (default)",
    ),
    ("read_only", "yes: refuse writes"),
];

/// Errors in the URL of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GlusterUrlError {
    /// The scheme is not followed by `//`.
    #[error("'//' must follow the scheme")]
    NoSlashes,
    /// The host is not a name or an address, or the port is 0 or invalid.
    #[error("host[:port] is invalid")]
    Host,
    /// The volume or the path is missing.
    #[error("the URL lacks a volume and a path after the host")]
    Place,
    /// A name contains a NUL.
    #[error("a name contains a NUL")]
    Nul,
}

impl From<GlusterUrlError> for OpenError {
    fn from(error: GlusterUrlError) -> OpenError {
        OpenError::Url {
            source: Box::new(error),
            advice: "write a GlusterFS URL as gluster://host[:port]/volume/path",
        }
    }
}

/// The configuration given by a URL and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlusterConfig {
    /// Host of a glusterd that manages the volume.
    pub host: String,
    /// The port of that glusterd.
    pub port: u16,
    /// The volume's name.
    pub volume: String,
    /// The file's path from the volume's root.
    pub path: String,
    /// Whether to use the client's caches.
    pub cache: bool,
    /// The library's log file.
    pub log: Option<String>,
    /// Time limit for opening.
    pub timeout: Duration,
    /// Logical block size in bytes.
    pub block_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
}

impl GlusterConfig {
    /// Parses a whole URL; `None` for other schemes.
    pub fn of_url(url: &str) -> Option<Result<GlusterConfig, OpenError>> {
        let parts = place_and_options(url.strip_prefix("gluster:")?, OPTIONS);
        Some(parts.and_then(|(place, mut options)| GlusterConfig::parse(place, &mut options)))
    }

    /// Parses the part after `gluster:`, and the options.
    ///
    /// # Errors
    /// The error says what is wrong and what would be correct.
    pub fn parse(place: &str, options: &mut UrlOptions) -> Result<GlusterConfig, OpenError> {
        let rest = place.strip_prefix("//").ok_or(GlusterUrlError::NoSlashes)?;
        let (host, rest) = rest.split_once('/').ok_or(GlusterUrlError::Place)?;
        let (host, port) = host_and_port(host, PORT).ok_or(GlusterUrlError::Host)?;
        let (volume, path) = rest.split_once('/').ok_or(GlusterUrlError::Place)?;
        if volume.is_empty() || path.is_empty() || path.ends_with('/') {
            return Err(GlusterUrlError::Place.into());
        }
        let log = options.take("log").filter(|path| !path.is_empty());
        if place.contains('\0') || log.as_ref().is_some_and(|path| path.contains('\0')) {
            return Err(GlusterUrlError::Nul.into());
        }
        Ok(GlusterConfig {
            host,
            port,
            volume: volume.to_string(),
            path: path.to_string(),
            cache: options.flag("cache")?.unwrap_or(false),
            log,
            timeout: options.time("timeout", Duration::from_secs(30), Duration::from_millis(1))?,
            block_bytes: options.block()?.unwrap_or(4096),
            read_only: options.flag("read_only")?.unwrap_or(false),
        })
    }

    /// The URL without its options, for messages.
    pub fn name(&self) -> String {
        let GlusterConfig {
            host,
            port,
            volume,
            path,
            ..
        } = self;
        match host.contains(':') {
            true => format!("gluster://[{host}]:{port}/{volume}/{path}"),
            false => format!("gluster://{host}:{port}/{volume}/{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(place: &str, options: &[(&str, &str)]) -> Result<GlusterConfig, OpenError> {
        let mut all = UrlOptions::default();
        options.iter().for_each(|(key, value)| all.set(key, value));
        GlusterConfig::parse(place, &mut all)
    }

    #[test]
    fn urls_are_parsed() {
        let check = |place: &str, name: &str, volume: &str, path: &str| {
            let config = parse(place, &[]).unwrap();
            assert_eq!((&*config.volume, &*config.path), (volume, path), "{place}");
            assert_eq!(config.name(), name);
        };
        check(
            "//h/v/disk.img",
            "gluster://h:24007/v/disk.img",
            "v",
            "disk.img",
        );
        check("//h:9/v/a/b c", "gluster://h:9/v/a/b c", "v", "a/b c");
        check("//[::1]:9/v/d", "gluster://[::1]:9/v/d", "v", "d");
    }

    #[test]
    fn options_reach_the_configuration() {
        let config = parse("//h/v/d", &[]).unwrap();
        assert_eq!(
            (config.cache, config.block_bytes, config.read_only),
            (false, 4096, false)
        );
        let options = [
            ("cache", "yes"),
            ("log", "/tmp/l"),
            ("timeout", "2s"),
            ("block", "512"),
            ("read_only", "yes"),
        ];
        let config = parse("//h/v/d", &options).unwrap();
        assert_eq!(
            (config.cache, config.block_bytes, config.read_only),
            (true, 512, true)
        );
        assert_eq!(
            (config.log.as_deref(), config.timeout),
            (Some("/tmp/l"), Duration::from_secs(2))
        );
    }

    #[test]
    fn mistakes_are_named() {
        let check = |place: &str, words: &str| {
            let error = parse(place, &[]).expect_err(place).to_string();
            assert!(error.contains(words), "{place}: {error}");
        };
        check("h/v/d", "'//'");
        check("//h", "volume and a path");
        check("//h/v", "volume and a path");
        check("//h/v/", "volume and a path");
        check("//h//d", "volume and a path");
        check("//h/v/folder/", "volume and a path");
        check("///v/d", "host[:port]");
        check("//h:0/v/d", "host[:port]");
        check("//h/v/d\0", "NUL");
    }
}
