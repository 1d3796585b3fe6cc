//! NFS URLs, and everything they configure.
//!
//! ```text
//! nfs://server[:port]/export/path/file
//! nfs://server[:port]/export/path/folder/
//! ```
//!
//! With a slash at its end, the path names a folder, for loads whose calls differ from a device's. It may be
//! percent-encoded. It doesn't say which part is the export: that depends on the server. The one rule: the identity
//! that calls carry is the process's own unless the URL names another one.

use std::time::Duration;

use brunt_block::open::host_and_port;
use brunt_block::socket::SocketOptions;
use brunt_block::table::{OpenError, UrlOptions};
use brunt_core::device_url::{percent_decode, percent_encode};
use brunt_wire::nfs::NAME_BYTES_MAX;
use brunt_wire::nfs::mount::MOUNT_PATH_BYTES_MAX;
use brunt_wire::nfs::v3::Status;
use brunt_wire::nfs::v4;

/// Maximum connections of one device.
const CONNECTIONS_MAX: u64 = 16;

/// The version of NFS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NfsVersion {
    /// NFSv3 (RFC 1813).
    #[default]
    V3,
    /// NFSv4.1 (RFC 8881).
    V41,
}

impl NfsVersion {
    /// The version of a connection: NFSv4.1 if it has a session.
    pub fn with_session(session: bool) -> NfsVersion {
        match session {
            false => NfsVersion::V3,
            true => NfsVersion::V41,
        }
    }

    /// Its name, for messages.
    pub fn name(self) -> &'static str {
        match self {
            NfsVersion::V3 => "NFSv3",
            NfsVersion::V41 => "NFSv4.1",
        }
    }

    /// The text of a status: its name in this version's RFC, and its number.
    pub fn status_text(self, status: Status) -> String {
        let name = match self {
            NfsVersion::V3 => status.name(),
            NfsVersion::V41 => v4::Status(status.0).name(),
        };
        match name {
            Some(name) => format!("{name} ({})", status.0),
            None => format!("unknown status {}", status.0),
        }
    }
}

/// Keys with a one-line help text each, for the table of backends.
pub const OPTIONS: &[(&str, &str)] = &[
    (
        "create",
        "yes: create the file, or extend it to size; never truncates",
    ),
    ("size", "size of the file, with create=yes"),
    (
        "uid",
        "user id in every call (AUTH_SYS); default: this process's",
    ),
    ("gid", "group id in every call; default: this process's"),
    (
        "write_back",
        "yes (default): writes are UNSTABLE, and stable after a flush (COMMIT); no: all writes \
         are FILE_SYNC",
    ),
    (
        "port",
        "NFS port, as an alternative to host:port; default: from the port mapper, or 2049 with version=4.1",
    ),
    ("version", "NFS version: 3 (default) or 4.1"),
    (
        "mountport",
        "port of the MOUNT service (version=3); default: from the port mapper",
    ),
    (
        "reserved_port",
        "yes: call from ports below 1024, as Linux's server requires by default; needs root; no \
         (default)",
    ),
    ("connections", "connections per thread, 1 to 16; default 1"),
    (
        "timeout",
        "time limit for connecting and for each attempt at a call; default 30s",
    ),
    (
        "reconnect",
        "how long to try to re-establish a lost connection; default 60s; 0: never try",
    ),
    ("tries", "maximum attempts per call; default 8"),
    ("block", "logical block size, 512 or 4096; default 512"),
    ("read_only", "yes: refuse writes"),
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

/// What is wrong with an NFS URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NfsUrlError {
    /// The scheme is not followed by `//`.
    #[error("'//' must follow the scheme")]
    NoSlashes,
    /// Not a name or an address, or the port is 0 or invalid.
    #[error("server[:port] is invalid")]
    Host,
    /// No file below an export, a component that is empty or too long, or one that is badly encoded.
    #[error(
        "the path must name a file below an export, in at most 1024 bytes, without '.' and '..'; \
         percent-encode special characters"
    )]
    Path,
    /// Options of files for a folder.
    #[error(
        "a path that ends in '/' is a directory; create, size, write_back and block need a file"
    )]
    Folder,
    /// Both `:port` and `port=`.
    #[error("the port is given twice: after the server, and as an option")]
    TwoPorts,
    /// A version that this client doesn't support.
    #[error("version={0} is not supported; write version=3 or version=4.1")]
    Version(String),
    /// The port of a service that NFSv4.1 doesn't have.
    #[error("mountport= has no effect with version=4.1, which has no MOUNT service; omit it")]
    MountPort,
    /// `size` without `create`, or the other way round.
    #[error("create=yes needs size=, and size= needs create=yes")]
    Size,
}

impl From<NfsUrlError> for OpenError {
    fn from(error: NfsUrlError) -> OpenError {
        OpenError::Url {
            source: Box::new(error),
            advice: "write an NFS URL as nfs://server[:port]/export/path/file, with \
                ?create=yes&size=1GiB for a new file",
        }
    }
}

/// The configuration given by a URL and its options.
#[derive(Clone, Debug)]
pub struct NfsConfig {
    /// The server.
    pub host: String,
    /// The version of NFS.
    pub version: NfsVersion,
    /// The NFS port; `None`: ask the port mapper or, with NFSv4.1, use 2049.
    pub port: Option<u16>,
    /// The port of the MOUNT service; `None`: ask the port mapper.
    pub mount_port: Option<u16>,
    /// The components of the path to the file or folder.
    pub path: Vec<String>,
    /// Whether the path names a folder.
    pub is_folder: bool,
    /// The size in bytes up to which the file is created or extended.
    pub create_bytes: Option<u64>,
    /// The user in every call.
    pub uid: u32,
    /// The group in every call.
    pub gid: u32,
    /// Whether completed writes are stable only after a flush rather than at once.
    pub write_back: bool,
    /// Whether to call from ports below 1024.
    pub reserved_port: bool,
    /// Connections of each thread's device.
    pub connections: u32,
    /// Time limit for one attempt of a call, and for connecting.
    pub timeout: Duration,
    /// How long to try to reconnect after a loss.
    pub reconnect: Duration,
    /// Maximum attempts per call.
    pub tries: u32,
    /// Logical block size in bytes.
    pub block_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Socket options of every connection.
    pub sockets: SocketOptions,
}

impl NfsConfig {
    /// The server, for messages.
    pub fn server(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match self.port {
            Some(port) => format!("{host}:{port}"),
            None => host,
        }
    }

    /// The URL without its options, for messages.
    pub fn name(&self) -> String {
        let path = percent_encode(&self.path_text(self.path.len()));
        let end = if self.is_folder { "/" } else { "" };
        format!("nfs://{}{path}{end}", self.server())
    }

    /// The first `count` components of the path.
    pub fn path_text(&self, count: usize) -> String {
        let components = self.path[..count].iter();
        let text: String = components.flat_map(|component| ["/", component]).collect();
        if text.is_empty() {
            "/".to_string()
        } else {
            text
        }
    }

    /// Parses what follows the scheme and the colon, and the options.
    ///
    /// # Errors
    /// The error says what is wrong and what would be correct.
    pub fn parse(place: &str, options: &mut UrlOptions) -> Result<NfsConfig, OpenError> {
        let rest = place.strip_prefix("//").ok_or(NfsUrlError::NoSlashes)?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        // No server offers NFS on port 0, so 0 means no port.
        let (host, given) = host_and_port(host, 0).ok_or(NfsUrlError::Host)?;
        let option = port(options, "port")?;
        let port_given = match (given, option) {
            (0, option) => option,
            (_, Some(_)) => return Err(NfsUrlError::TwoPorts.into()),
            (given, None) => Some(given),
        };
        let version = match options.take("version").as_deref() {
            None | Some("3") => NfsVersion::V3,
            Some("4.1") => NfsVersion::V41,
            Some(other) => return Err(NfsUrlError::Version(other.to_string()).into()),
        };
        let mount_port = port(options, "mountport")?;
        if mount_port.is_some() && version == NfsVersion::V41 {
            return Err(NfsUrlError::MountPort.into());
        }
        let create = options.flag("create")?.unwrap_or(false);
        let create_bytes = match (create, options.size("size")?) {
            (true, Some(bytes)) => Some(bytes),
            (false, None) => None,
            _ => return Err(NfsUrlError::Size.into()),
        };
        let (path, is_folder) = match path.strip_suffix('/') {
            Some(path) => (path, true),
            None => (path, false),
        };
        let (write_back, block) = (options.flag("write_back")?, options.block()?);
        if is_folder && (create || write_back.is_some() || block.is_some()) {
            return Err(NfsUrlError::Folder.into());
        }
        let mut id = |key, own| options.number(key, u64::from(own), 0, u32::MAX.into());
        let uid = id("uid", rustix::process::geteuid().as_raw())? as u32;
        let gid = id("gid", rustix::process::getegid().as_raw())? as u32;
        Ok(NfsConfig {
            host,
            version,
            port: port_given,
            mount_port,
            path: components(path)?,
            is_folder,
            create_bytes,
            uid,
            gid,
            write_back: write_back.unwrap_or(true),
            reserved_port: options.flag("reserved_port")?.unwrap_or(false),
            connections: options.number("connections", 1, 1, CONNECTIONS_MAX)? as u32,
            timeout: options.time("timeout", Duration::from_secs(30), Duration::from_millis(1))?,
            reconnect: options.time("reconnect", Duration::from_secs(60), Duration::ZERO)?,
            tries: options.number("tries", 8, 1, 1_000_000)? as u32,
            block_bytes: block.unwrap_or(512),
            read_only: options.flag("read_only")?.unwrap_or(false),
            sockets: SocketOptions::take(options)?,
        })
    }
}

fn port(options: &mut UrlOptions, key: &str) -> Result<Option<u16>, OpenError> {
    let port = options.number(key, 0, 1, u16::MAX.into())?;
    Ok((port > 0).then_some(port as u16))
}

fn components(path: &str) -> Result<Vec<String>, NfsUrlError> {
    let decoded = percent_decode(path).filter(|path| path.len() < MOUNT_PATH_BYTES_MAX as usize);
    let decoded = decoded.ok_or(NfsUrlError::Path)?;
    let components: Vec<String> = decoded.split('/').map(str::to_string).collect();
    let fits = |name: &String| {
        !matches!(name.as_str(), "" | "." | "..") && name.len() <= NAME_BYTES_MAX as usize
    };
    match components.iter().all(fits) {
        true => Ok(components),
        false => Err(NfsUrlError::Path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(rest: &str) -> Result<NfsConfig, OpenError> {
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut options = UrlOptions::default();
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            options.set(key, value);
        }
        NfsConfig::parse(place, &mut options)
    }

    #[test]
    fn urls_are_parsed() {
        let check =
            |rest: &str, name: &str| assert_eq!(parse(rest).unwrap().name(), name, "{rest}");
        check("//h/e/disk", "nfs://h/e/disk");
        check("//h:2050/disk", "nfs://h:2050/disk");
        check("//h/e/disk?port=2050", "nfs://h:2050/e/disk");
        check("//[::1]:9/e/a%3Fb", "nfs://[::1]:9/e/a%3Fb");
        let config =
            parse("//h/e/d/f?create=yes&size=1MiB&uid=7&gid=8&mountport=9&write_back=no").unwrap();
        assert_eq!((config.uid, config.gid, config.mount_port), (7, 8, Some(9)));
        assert_eq!(
            (config.port, config.create_bytes, config.write_back),
            (None, Some(1 << 20), false)
        );
        assert_eq!(
            (config.path_text(2), config.path_text(0)),
            ("/e/d".to_string(), "/".to_string())
        );
        let config = parse("//h/disk").unwrap();
        assert_eq!(config.version, NfsVersion::V3);
        let config = parse("//h/disk?version=4.1").unwrap();
        assert_eq!(config.version, NfsVersion::V41);
        assert_eq!(config.uid, rustix::process::geteuid().as_raw());
        assert!(!config.is_folder);
        let config = parse("//h/e/d/?uid=7").unwrap();
        assert_eq!(
            (config.is_folder, config.path_text(2)),
            (true, "/e/d".to_string())
        );
        assert_eq!(config.name(), "nfs://h/e/d/");
    }

    #[test]
    fn malformed_urls_are_refused_with_a_reason() {
        let check = |rest: &str, words: &str| {
            let error = parse(rest).expect_err(rest).to_string();
            assert!(error.contains(words), "{rest}: {error}");
        };
        check("h/d", "'//'");
        check("//h:0/d", "server[:port]");
        check("//h", "must name a file");
        check("//h/e//f", "must name a file");
        check("//h/e/../f", "must name a file");
        check("//h/%zz", "must name a file");
        check(&format!("//h/{}x", "x/".repeat(512)), "must name a file");
        check("//h:1/d?port=2", "twice");
        check("//h/d?version=4", "version=4 is not supported; write");
        check("//h/d?version=4.1&mountport=1", "mountport= has no effect");
        check("//h/d?port=0", "1 to 65535");
        check("//h/d?create=yes", "needs size=");
        check("//h/d?size=1MiB", "needs size=");
        check("//h/d?uid=-1", "0 to 4294967295");
        check("//h/d?block=1000", "512 or 4096");
        check("//h/d/?create=yes&size=1MiB", "is a directory");
        check("//h/d/?block=4096", "is a directory");
        check("//h/", "must name a file");
    }
}
