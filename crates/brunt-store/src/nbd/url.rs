//! NBD URLs as specified by the protocol (doc/uri.md), and the resulting configuration.
//!
//! ```text
//! nbd://host[:port]/export          nbds://host[:port]/export
//! nbd+unix:///export?socket=PATH    nbds+unix:///export?socket=PATH
//! ```
//!
//! The export's name and the socket's path may be percent-encoded. The one rule: `nbds` never continues without TLS,
//! and `nbd` never claims to have it.

use std::path::PathBuf;
use std::time::Duration;

use brunt_block::open::host_and_port;
use brunt_block::socket::SocketOptions;
use brunt_block::table::{OpenError, UrlOptions};
use brunt_core::device_url::{percent_decode, percent_encode};
use brunt_wire::nbd::{BLOCK_BYTES_MAX, NbdHeaders, PORT, STRING_BYTES_MAX};

use super::tls::NbdTls;
use crate::parts::place_and_options;

/// The supported schemes.
const SCHEMES: [&str; 4] = ["nbd", "nbds", "nbd+unix", "nbds+unix"];
/// Maximum connections of one device.
const CONNECTIONS_MAX: u64 = 16;

/// Keys with a one-line help text each, for the table of backends.
pub const OPTIONS: &[(&str, &str)] = &[
    (
        "socket",
        "path of the Unix socket, for nbd+unix and nbds+unix",
    ),
    (
        "connections",
        "connections per thread, 1 to 16; default 1; more than 1 needs a server with \
         CAN_MULTI_CONN",
    ),
    (
        "multi_conn",
        "yes: use several connections although the server does not set CAN_MULTI_CONN",
    ),
    (
        "timeout",
        "time limit for a handshake and for each attempt at a command; default 30s",
    ),
    (
        "reconnect",
        "how long to try to re-establish a lost connection; default 60s; 0: never try",
    ),
    ("tries", "maximum attempts per command; default 8"),
    (
        "block",
        "logical block size, a power of two from 512 to 65536; default: the server's minimum, at least 512",
    ),
    (
        "headers",
        "best headers to request: simple, structured or extended; default: simple for data, extended for block status",
    ),
    (
        "read_only",
        "yes: refuse writes; default: as reported by the server",
    ),
    (
        "tls-certificates",
        "folder with ca-cert.pem, and client-cert.pem and client-key.pem if the server asks for them",
    ),
    (
        "tls-hostname",
        "expected name in the server's certificate; default: the URL's host",
    ),
    (
        "tls-verify-peer",
        "1 (default): verify the server's certificate; 0: accept any",
    ),
    ("tls-type", "only x509 is supported"),
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

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// Host and port.
    Tcp(String, u16),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl std::fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NbdAddress::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            NbdAddress::Tcp(host, port) => write!(f, "{host}:{port}"),
            NbdAddress::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Errors in an NBD URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NbdUrlError {
    /// The scheme is not followed by `//`.
    #[error("'//' must follow the scheme")]
    NoSlashes,
    /// The host is not a name or an address, or the port is 0 or invalid.
    #[error("host[:port] is invalid")]
    Host,
    /// The URL contains `user@`.
    #[error("user names are not supported")]
    User,
    /// A Unix socket URL with a host.
    #[error("a URL with a Unix socket has no host")]
    UnixHost,
    /// A Unix socket URL without a socket path.
    #[error("socket=PATH is missing")]
    NoSocket,
    /// A TCP URL with a socket path.
    #[error("socket=PATH needs nbd+unix or nbds+unix")]
    Socket,
    /// A percent sign without two digits, invalid UTF-8, or a NUL.
    #[error("invalid percent-encoding, or the name is not UTF-8")]
    Encoding,
    /// An export name of more than 4096 bytes.
    #[error("the export's name is longer than 4096 bytes")]
    Export,
    /// TLS options in a URL without TLS.
    #[error("TLS options need nbds or nbds+unix")]
    Tls,
}

impl From<NbdUrlError> for OpenError {
    fn from(error: NbdUrlError) -> OpenError {
        OpenError::Url {
            source: Box::new(error),
            advice: "write an NBD URL as nbd://host[:port]/export or \
                nbd+unix:///export?socket=PATH; nbds for TLS",
        }
    }
}

/// The configuration given by a URL and its options.
#[derive(Clone, Debug)]
pub struct NbdConfig {
    /// `nbd`, `nbds`, `nbd+unix` or `nbds+unix`.
    pub scheme: &'static str,
    /// The server's address.
    pub address: NbdAddress,
    /// The export's name; empty for the default.
    pub export: String,
    /// The TLS configuration, if used.
    pub tls: Option<NbdTls>,
    /// Connections of each thread's device.
    pub connections: u32,
    /// Whether to use several connections regardless of what the server announces.
    pub multi_conn_forced: bool,
    /// Time limit for one attempt of a command and for a handshake.
    pub timeout: Duration,
    /// How long to try to reconnect after a loss.
    pub reconnect: Duration,
    /// Maximum attempts per command.
    pub tries: u32,
    /// Logical block size in bytes, if set in the URL.
    pub block_bytes: Option<u32>,
    /// The best headers to request for reading and writing data. With simple headers, a server just reads what is
    /// requested; with the others it may look for holes first (docs/stores.md), and some servers send each reply in
    /// more pieces.
    pub headers: NbdHeaders,
    /// The best headers to request for block status, which simple headers lack.
    pub status_headers: NbdHeaders,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Socket options of every connection.
    pub sockets: SocketOptions,
}

impl NbdConfig {
    /// The URL without its options, for messages.
    pub fn name(&self) -> String {
        let export = percent_encode(&self.export);
        match &self.address {
            NbdAddress::Tcp(..) => format!("{}://{}/{export}", self.scheme, self.address),
            NbdAddress::Unix(path) => {
                format!(
                    "{}:///{export}?socket={}",
                    self.scheme,
                    percent_encode(&path.to_string_lossy())
                )
            }
        }
    }

    /// Parses a whole URL; `None` for other schemes.
    pub fn of_url(url: &str) -> Option<Result<NbdConfig, OpenError>> {
        let (scheme, rest) = url.split_once(':')?;
        let scheme = SCHEMES.iter().find(|known| **known == scheme)?;
        let (place, mut options) = match place_and_options(rest, OPTIONS) {
            Ok(parts) => parts,
            Err(error) => return Some(Err(error)),
        };
        Some(NbdConfig::parse(scheme, place, &mut options))
    }

    /// Parses the part after the scheme and the colon, and the options.
    ///
    /// # Errors
    /// The error says what is wrong and what would be correct.
    pub fn parse(
        scheme: &'static str,
        place: &str,
        options: &mut UrlOptions,
    ) -> Result<NbdConfig, OpenError> {
        let rest = place.strip_prefix("//").ok_or(NbdUrlError::NoSlashes)?;
        let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
        let socket = options.take("socket");
        let address = match (scheme.ends_with("+unix"), socket) {
            (true, _) if !host.is_empty() => return Err(NbdUrlError::UnixHost.into()),
            (true, None) => return Err(NbdUrlError::NoSocket.into()),
            (true, Some(path)) => NbdAddress::Unix(decode(&path)?.into()),
            (false, Some(_)) => return Err(NbdUrlError::Socket.into()),
            (false, None) if host.contains('@') => return Err(NbdUrlError::User.into()),
            (false, None) if host.is_empty() => NbdAddress::Tcp("localhost".to_string(), PORT),
            (false, None) => {
                let (host, port) = host_and_port(host, PORT).ok_or(NbdUrlError::Host)?;
                NbdAddress::Tcp(host, port)
            }
        };
        let export = decode(export)?;
        if export.len() > STRING_BYTES_MAX {
            return Err(NbdUrlError::Export.into());
        }
        let tls = NbdTls::take(scheme.starts_with("nbds"), &address, options)?;
        let (headers, status_headers) = match options.take("headers").as_deref() {
            None => (NbdHeaders::Simple, NbdHeaders::Extended),
            Some("simple") => (NbdHeaders::Simple, NbdHeaders::Simple),
            Some("structured") => (NbdHeaders::Structured, NbdHeaders::Structured),
            Some("extended") => (NbdHeaders::Extended, NbdHeaders::Extended),
            Some(value) => {
                return Err(bad(
                    "headers",
                    value,
                    "write simple, structured or extended",
                ));
            }
        };
        let block_bytes = match options.size("block")? {
            None => None,
            Some(bytes)
                if bytes.is_power_of_two() && (512..=BLOCK_BYTES_MAX.into()).contains(&bytes) =>
            {
                Some(bytes as u32)
            }
            Some(bytes) => {
                return Err(bad(
                    "block",
                    &bytes.to_string(),
                    "write a power of two from 512 to 65536",
                ));
            }
        };
        Ok(NbdConfig {
            scheme,
            address,
            export,
            tls,
            connections: options.number("connections", 1, 1, CONNECTIONS_MAX)? as u32,
            multi_conn_forced: options.flag("multi_conn")?.unwrap_or(false),
            timeout: options.time("timeout", Duration::from_secs(30), Duration::from_millis(1))?,
            reconnect: options.time("reconnect", Duration::from_secs(60), Duration::ZERO)?,
            tries: options.number("tries", 8, 1, 1_000_000)? as u32,
            block_bytes,
            headers,
            status_headers,
            read_only: options.flag("read_only")?.unwrap_or(false),
            sockets: SocketOptions::take(options)?,
        })
    }
}

pub(super) fn bad(option: &str, value: &str, wanted: &str) -> OpenError {
    OpenError::BadValue {
        option: option.to_string(),
        value: value.to_string(),
        wanted: wanted.to_string(),
    }
}

fn decode(text: &str) -> Result<String, NbdUrlError> {
    percent_decode(text).ok_or(NbdUrlError::Encoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<NbdConfig, OpenError> {
        NbdConfig::of_url(url).expect("a scheme of NBD")
    }

    /// The examples in the table of doc/uri.md are parsed as specified, and names round-trip.
    #[test]
    fn urls_follow_the_nbd_uri_specification() {
        let check = |url: &str, address: &str, export: &str, name: &str| {
            let config = parse(url).unwrap();
            assert_eq!(config.address.to_string(), address, "{url}");
            assert_eq!(config.export, export, "{url}");
            assert_eq!(config.name(), name, "{url}");
        };
        check(
            "nbd://example.com/disk",
            "example.com:10809",
            "disk",
            "nbd://example.com:10809/disk",
        );
        check(
            "nbd://example.com/",
            "example.com:10809",
            "",
            "nbd://example.com:10809/",
        );
        check(
            "nbd://example.com",
            "example.com:10809",
            "",
            "nbd://example.com:10809/",
        );
        check(
            "nbd://example.com:9//disk",
            "example.com:9",
            "/disk",
            "nbd://example.com:9//disk",
        );
        check(
            "nbd://h/hello%20world",
            "h:10809",
            "hello world",
            "nbd://h:10809/hello%20world",
        );
        check(
            "nbd://[::1]:9/a%3Fb",
            "[::1]:9",
            "a?b",
            "nbd://[::1]:9/a%3Fb",
        );
        check("nbd://", "localhost:10809", "", "nbd://localhost:10809/");
        check(
            "nbd+unix:///disk?socket=/run/a%20b",
            "/run/a b",
            "disk",
            "nbd+unix:///disk?socket=/run/a%20b",
        );
        check(
            "nbd+unix://?socket=sock",
            "sock",
            "",
            "nbd+unix:///?socket=sock",
        );
    }

    /// Options are applied.
    #[test]
    fn options_are_applied() {
        let config =
            parse("nbd://h/e?connections=4&headers=simple&block=4k&timeout=2s&reconnect=0&tries=2")
                .unwrap();
        assert_eq!(
            (config.connections, config.headers, config.block_bytes),
            (4, NbdHeaders::Simple, Some(4096))
        );
        let headers = |url| {
            parse(url)
                .map(|config| (config.headers, config.status_headers))
                .unwrap()
        };
        assert_eq!(
            headers("nbd://h/e"),
            (NbdHeaders::Simple, NbdHeaders::Extended)
        );
        assert_eq!(
            headers("nbd://h/e?headers=simple"),
            (NbdHeaders::Simple, NbdHeaders::Simple)
        );
        assert_eq!(
            (config.timeout, config.reconnect, config.tries),
            (Duration::from_secs(2), Duration::ZERO, 2)
        );
        assert!(config.tls.is_none() && !config.read_only);
        let tls = parse("nbds://h/e?tls-verify-peer=0").unwrap();
        assert!(tls.tls.is_some());
    }

    /// Mistakes are named.
    #[test]
    fn mistakes_are_named() {
        let check = |url: &str, words: &str| {
            let error = parse(url).expect_err(url).to_string();
            assert!(error.contains(words), "{url}: {error}");
        };
        check("nbd:h/e", "'//'");
        check("nbd://h:0/e", "host[:port]");
        check("nbd://[::1/e", "host[:port]");
        check("nbd://me@h/e", "user name");
        check("nbd+unix:///e", "socket=PATH is missing");
        check("nbd+unix://h/e?socket=x", "has no host");
        check("nbd://h/e?socket=x", "needs nbd+unix");
        check("nbd://h/%zz", "percent");
        check("nbd://h/%ff", "UTF-8");
        check("nbd://h/%00", "UTF-8");
        check(&format!("nbd://h/{}", "x".repeat(4097)), "4096");
        check("nbd://h/e?connections=17", "1 to 16");
        check("nbd://h/e?block=1000", "power of two");
        check("nbd://h/e?headers=new", "simple, structured or extended");
        check("nbd://h/e?tls-hostname=x", "need nbds");
        check("nbds://h/e?tls-type=psk", "x509");
        check(
            "nbds://h/e?tls-certificates=/nowhere",
            "/nowhere/ca-cert.pem",
        );
    }
}
