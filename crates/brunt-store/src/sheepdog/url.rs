//! Sheepdog URLs and the resulting configuration.
//!
//! ```text
//! sheepdog://host[:port]/vdi[?snapshot=TAG_OR_NUMBER]
//! ```
//!
//! The names of the VDI and the snapshot may be percent-encoded. The one rule: a snapshot is never opened for writing.

use std::time::Duration;

use brunt_block::open::host_and_port;
use brunt_block::socket::SocketOptions;
use brunt_block::table::{OpenError, UrlOptions};
use brunt_core::device_url::{percent_decode, percent_encode};
use brunt_wire::sheepdog::{NAME_BYTES, PORT};

/// Maximum connections of one device.
const CONNECTIONS_MAX: u64 = 16;

/// Keys with a one-line help text each, for the table of backends.
pub const OPTIONS: &[(&str, &str)] = &[
    (
        "snapshot",
        "read a snapshot of the VDI: its tag or its number",
    ),
    (
        "lock",
        "yes (default): lock the VDI against other writers; no: don't lock it",
    ),
    (
        "cache",
        "no (default): bypass the object cache of old versions; yes: use it, so writes are stable \
         after a flush",
    ),
    ("connections", "connections per thread, 1 to 16; default 1"),
    (
        "timeout",
        "time limit for connecting and for each attempt at a request; default 30s",
    ),
    (
        "reconnect",
        "how long to try to re-establish a lost connection; default 60s; 0: never try",
    ),
    ("tries", "maximum attempts per request; default 8"),
    (
        "block",
        "logical block size, a power of two from 512 to 65536; default 512",
    ),
    ("read_only", "yes: refuse writes, and do not lock the VDI"),
    (
        "send_buffer",
        "socket send buffer; default: chosen by the kernel",
    ),
    (
        "receive_buffer",
        "socket receive buffer; default: chosen by the kernel",
    ),
    (
        "no_delay",
        "yes (default): set TCP_NODELAY; no: leave Nagle's algorithm on",
    ),
    (
        "congestion",
        "TCP congestion control, such as cubic; default: chosen by the kernel",
    ),
];

/// Errors in a Sheepdog URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SheepdogUrlError {
    /// The scheme is not followed by `//`.
    #[error("'//' must follow the scheme")]
    NoSlashes,
    /// The host is not a name or an address, or the port is 0 or invalid.
    #[error("host[:port] is invalid")]
    Host,
    /// A name is empty, too long or badly encoded.
    #[error(
        "names of VDIs and snapshots have 1 to 255 bytes of UTF-8; percent-encode special \
         characters"
    )]
    Name,
}

impl From<SheepdogUrlError> for OpenError {
    fn from(error: SheepdogUrlError) -> OpenError {
        OpenError::Url {
            source: Box::new(error),
            advice: "write a Sheepdog URL as sheepdog://host[:port]/vdi, with ?snapshot=TAG for a \
                snapshot",
        }
    }
}

/// The configuration given by a URL and its options.
#[derive(Clone, Debug)]
pub struct SheepdogConfig {
    /// The host of a sheep.
    pub host: String,
    /// The sheep's port.
    pub port: u16,
    /// The VDI's name.
    pub vdi: String,
    /// A snapshot's tag, or its number as text.
    pub snapshot: Option<String>,
    /// Whether to lock the VDI.
    pub lock: bool,
    /// Whether to use the server's object cache.
    pub cache: bool,
    /// Connections of each thread's device.
    pub connections: u32,
    /// Time limit for one attempt of a request and for connecting.
    pub timeout: Duration,
    /// How long to try to reconnect after a loss.
    pub reconnect: Duration,
    /// Maximum attempts per request.
    pub tries: u32,
    /// Logical block size in bytes.
    pub block_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Socket options of every connection.
    pub sockets: SocketOptions,
}

impl SheepdogConfig {
    /// The sheep's address, for messages.
    pub fn address(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// The URL without its options (except the snapshot), for messages.
    pub fn name(&self) -> String {
        let encode = percent_encode;
        let snapshot = self
            .snapshot
            .as_ref()
            .map(|name| format!("?snapshot={}", encode(name)));
        format!(
            "sheepdog://{}/{}{}",
            self.address(),
            encode(&self.vdi),
            snapshot.unwrap_or_default()
        )
    }

    /// Parses the part after the scheme and the colon, and the options.
    ///
    /// # Errors
    /// The error says what is wrong and what would be correct.
    pub fn parse(place: &str, options: &mut UrlOptions) -> Result<SheepdogConfig, OpenError> {
        let rest = place
            .strip_prefix("//")
            .ok_or(SheepdogUrlError::NoSlashes)?;
        let (host, vdi) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match host.is_empty() {
            true => ("localhost".to_string(), PORT),
            false => host_and_port(host, PORT).ok_or(SheepdogUrlError::Host)?,
        };
        let vdi = name(vdi)?;
        let snapshot = options
            .take("snapshot")
            .map(|text| name(&text))
            .transpose()?;
        let block_bytes = match options.size("block")?.unwrap_or(512) {
            bytes if bytes.is_power_of_two() && (512..=65536).contains(&bytes) => bytes as u32,
            bytes => {
                return Err(OpenError::BadValue {
                    option: "block".to_string(),
                    value: bytes.to_string(),
                    wanted: "write a power of two from 512 to 65536".to_string(),
                });
            }
        };
        let read_only = options.flag("read_only")?.unwrap_or(false) || snapshot.is_some();
        Ok(SheepdogConfig {
            host,
            port,
            vdi,
            snapshot,
            lock: options.flag("lock")?.unwrap_or(true) && !read_only,
            cache: options.flag("cache")?.unwrap_or(false),
            connections: options.number("connections", 1, 1, CONNECTIONS_MAX)? as u32,
            timeout: options.time("timeout", Duration::from_secs(30), Duration::from_millis(1))?,
            reconnect: options.time("reconnect", Duration::from_secs(60), Duration::ZERO)?,
            tries: options.number("tries", 8, 1, 1_000_000)? as u32,
            block_bytes,
            read_only,
            sockets: SocketOptions::take(options)?,
        })
    }
}

fn name(text: &str) -> Result<String, SheepdogUrlError> {
    let fits = |name: &String| (1..NAME_BYTES).contains(&name.len());
    percent_decode(text)
        .filter(fits)
        .ok_or(SheepdogUrlError::Name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::place_and_options;

    fn parse(rest: &str) -> Result<SheepdogConfig, OpenError> {
        let (place, mut options) = place_and_options(rest, OPTIONS)?;
        SheepdogConfig::parse(place, &mut options)
    }

    #[test]
    fn urls_are_parsed() {
        let check =
            |rest: &str, name: &str| assert_eq!(parse(rest).unwrap().name(), name, "{rest}");
        check("//h/disk", "sheepdog://h:7000/disk");
        check("///disk", "sheepdog://localhost:7000/disk");
        check("//[::1]:9/a%3Fb", "sheepdog://[::1]:9/a%3Fb");
        check(
            "//h/d?snapshot=before",
            "sheepdog://h:7000/d?snapshot=before",
        );
    }

    #[test]
    fn options_are_applied() {
        let config = parse("//h/d?cache=yes&connections=4&timeout=2s&block=4k&tries=2").unwrap();
        assert_eq!(
            (
                config.cache,
                config.connections,
                config.block_bytes,
                config.tries
            ),
            (true, 4, 4096, 2)
        );
        assert!(config.lock && !config.read_only);
        assert!(!parse("//h/d?read_only=yes").unwrap().lock);
        let snapshot = parse("//h/d?snapshot=2").unwrap();
        assert!(snapshot.read_only && !snapshot.lock);
    }

    #[test]
    fn mistakes_are_named() {
        let check = |rest: &str, words: &str| {
            let error = parse(rest).expect_err(rest).to_string();
            assert!(error.contains(words), "{rest}: {error}");
        };
        check("h/d", "'//'");
        check("//h:0/d", "host[:port]");
        check("//h", "1 to 255 bytes");
        check("//h/%zz", "1 to 255 bytes");
        check(&format!("//h/{}", "x".repeat(256)), "1 to 255 bytes");
        check("//h/d?snapshot=", "1 to 255 bytes");
        check("//h/d?block=1000", "power of two");
        check("//h/d?copies=3", "unknown option");
    }
}
