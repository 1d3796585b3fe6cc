//! iSCSI URLs in libiscsi's syntax, and the resulting configuration.
//!
//! ```text
//! iscsi://[user[%secret]@]host[:port][/target-name/lun][?option=value&…]
//! ```
//!
//! Secrets may also come from the environment, as with libiscsi: `LIBISCSI_CHAP_USERNAME`, `LIBISCSI_CHAP_PASSWORD`,
//! and for mutual CHAP `LIBISCSI_CHAP_TARGET_USERNAME`, `LIBISCSI_CHAP_TARGET_PASSWORD`; the URL takes precedence. The
//! one rule: no name, message or `{:?}` output from this module contains a secret.

use std::time::Duration;

use brunt_block::open::host_and_port;
use brunt_block::socket::SocketOptions;
use brunt_block::table::{OpenError, UrlOptions};
use brunt_wire::iscsi::pdu::lun_field;

use super::session::TagKind;
use crate::chap::Credentials;
use crate::params::{DigestPolicy, Preferences};

/// The default iSCSI port (RFC 7143, 14).
pub const PORT: u16 = 3260;
/// Maximum number of connections per session, and of sessions per device.
const LINKS_MAX: u64 = 16;

/// Option keys with one line of help each, for the table of backends.
pub const OPTIONS: &[(&str, &str)] = &[
    ("connections", "connections per session, 1 to 16; default 1"),
    (
        "sessions",
        "sessions to the LUN per thread, 1 to 16; default 1",
    ),
    (
        "header_digest",
        "none (default), allow, prefer or crc32c (required)",
    ),
    (
        "data_digest",
        "none (default), allow, prefer or crc32c (required)",
    ),
    (
        "timeout",
        "time limit for a login and for each attempt at a command; default 30s",
    ),
    (
        "reconnect",
        "how long to try to re-establish a lost session; default 60s; 0: never try",
    ),
    (
        "keepalive",
        "interval without PDUs from the target after which a NOP-Out is sent; default 5s",
    ),
    ("tries", "maximum attempts per request; default 8"),
    (
        "tag",
        "task attribute of commands: simple (default), ordered or head-of-queue",
    ),
    (
        "initiator",
        "the initiator's iSCSI name; default iqn.2026-11.io.brunt:<host name>",
    ),
    (
        "target_user",
        "user name the target must authenticate with (mutual CHAP)",
    ),
    (
        "target_password",
        "the target's secret; better set in LIBISCSI_CHAP_TARGET_PASSWORD",
    ),
    ("immediate_data", "yes (default) or no"),
    ("initial_r2t", "yes or no (default)"),
    ("max_recv", "MaxRecvDataSegmentLength; default 1MiB"),
    ("max_burst", "MaxBurstLength; default 16MiB less one page"),
    ("first_burst", "FirstBurstLength; default 256KiB"),
    ("outstanding_r2t", "MaxOutstandingR2T; default 8"),
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

/// Address of a portal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortalAddress {
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl std::fmt::Display for PortalAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl PortalAddress {
    /// Parses `host[:port]` or `[v6][:port]`; anything
    /// after a comma (a portal group tag) is ignored.
    pub fn parse(text: &str) -> Option<PortalAddress> {
        let (host, port) = host_and_port(text.split(',').next()?, PORT)?;
        Some(PortalAddress { host, port })
    }
}

/// Errors in an iSCSI URL. No message contains a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The URL does not start with `iscsi://`.
    #[error("'//' must follow 'iscsi:'")]
    NoSlashes,
    /// The host is neither a name nor an address, or the port is invalid.
    #[error("host[:port] is missing or invalid")]
    Portal,
    /// A target is given without a LUN.
    #[error("the LUN is missing")]
    NoLun,
    /// The LUN is not a number that fits in SAM-5's flat format.
    #[error("the LUN must be a number from 0 to 16383")]
    Lun,
    /// The target name is empty, over 223 bytes, or contains a slash.
    #[error("the target name is missing or not a valid iSCSI name")]
    TargetName,
    /// Only half of our own credentials is given.
    #[error("the CHAP {0} is missing")]
    Credentials(MissingCredential),
    /// Only half of the target's credentials is given.
    #[error("the target's CHAP {0} is missing")]
    TargetCredentials(MissingCredential),
    /// The target must authenticate itself, but no credentials are given for us.
    #[error("mutual CHAP requires the initiator's user and secret, too")]
    OwnCredentials,
}

/// The missing half of a user and secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingCredential {
    /// The name.
    #[error("user name")]
    User,
    /// The secret.
    #[error("secret")]
    Secret,
}

impl From<UrlError> for OpenError {
    fn from(error: UrlError) -> OpenError {
        OpenError::Url {
            source: Box::new(error),
            advice: "write an iSCSI URL as iscsi://[user%secret@]host[:port]/target-name/lun",
        }
    }
}

/// A URL without its options.
struct UrlPlace {
    address: PortalAddress,
    /// Empty if the URL only names a portal.
    target: String,
    lun: u16,
    user: Option<String>,
    secret: Option<String>,
    /// The URL has no `user@`, so the environment may provide a user.
    anonymous: bool,
}

impl UrlPlace {
    fn parse(text: &str) -> Result<UrlPlace, UrlError> {
        let rest = text.strip_prefix("//").ok_or(UrlError::NoSlashes)?;
        // A secret may contain '@', a host may not; the path starts after the host.
        let authority_end = rest.rfind('@').map_or(0, |at| at + 1);
        let (login, host_and_path) = rest.split_at(authority_end);
        let (host, path) = host_and_path.split_once('/').unwrap_or((host_and_path, ""));
        let address = PortalAddress::parse(host).ok_or(UrlError::Portal)?;
        let (target, lun) = match path {
            "" => ("", 0),
            path => {
                let (target, lun) = path.rsplit_once('/').ok_or(UrlError::NoLun)?;
                (
                    target,
                    lun.parse()
                        .ok()
                        .filter(|lun| *lun < 16384)
                        .ok_or(UrlError::Lun)?,
                )
            }
        };
        if !path.is_empty() && (target.is_empty() || target.len() > 223 || target.contains('/')) {
            return Err(UrlError::TargetName);
        }
        let (user, secret) = match login.strip_suffix('@') {
            Some(login) => {
                let (user, secret) = login
                    .split_once('%')
                    .map_or((login, None), |(u, s)| (u, Some(s)));
                (Some(user.to_string()), secret.map(str::to_string))
            }
            None => (None, None),
        };
        let anonymous = user.is_none();
        Ok(UrlPlace {
            address,
            target: target.to_string(),
            lun,
            user,
            secret,
            anonymous,
        })
    }
}

/// The configuration given by a URL and its options.
#[derive(Clone, Debug)]
pub struct InitiatorConfig {
    /// The first portal to contact.
    pub address: PortalAddress,
    /// The target's name; empty if the URL only names a portal.
    pub target: String,
    /// The logical unit.
    pub lun: u16,
    /// Our iSCSI name.
    pub initiator: String,
    /// Our credentials.
    pub credentials: Option<Credentials>,
    /// The credentials with which the target must authenticate itself.
    pub target_credentials: Option<Credentials>,
    /// Operational keys.
    pub wishes: Preferences,
    /// Number of connections per session.
    pub connections: u16,
    /// Number of sessions per device.
    pub sessions: u16,
    /// Time limit for one attempt of a command and for a login.
    pub timeout: Duration,
    /// How long to try to restore a lost session.
    pub reconnect: Duration,
    /// Silence after which the target is pinged.
    pub keepalive: Duration,
    /// Maximum attempts per request.
    pub tries: u32,
    /// Task attribute of the commands.
    pub attribute: TagKind,
    /// Socket options of all connections in full-feature phase.
    pub sockets: SocketOptions,
}

impl InitiatorConfig {
    /// The URL without user and secret, for messages.
    pub fn name(&self) -> String {
        match self.target.as_str() {
            "" => format!("iscsi://{}", self.address),
            target => format!("iscsi://{}/{target}/{}", self.address, self.lun),
        }
    }

    /// The LUN field for PDU headers.
    pub fn lun_field(&self) -> [u8; 8] {
        lun_field(self.lun)
    }

    /// Parses the part of the URL after `iscsi:`, and the options; missing secrets come from the environment (`env` is
    /// `std::env::var`, or a test's function).
    ///
    /// # Errors
    /// The error says what is wrong and what would be correct, without secrets.
    pub fn parse(
        place: &str,
        options: &mut UrlOptions,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<InitiatorConfig, OpenError> {
        let place = UrlPlace::parse(place)?;
        let user = place.user.or_else(|| {
            place
                .anonymous
                .then(|| env("LIBISCSI_CHAP_USERNAME"))
                .flatten()
        });
        let secret = place
            .secret
            .or_else(|| user.as_ref().and_then(|_| env("LIBISCSI_CHAP_PASSWORD")));
        let credentials = pair(user, secret).map_err(UrlError::Credentials)?;
        let target_user = options
            .take("target_user")
            .or_else(|| env("LIBISCSI_CHAP_TARGET_USERNAME"));
        let target_secret = options.take("target_password").or_else(|| {
            target_user
                .as_ref()
                .and_then(|_| env("LIBISCSI_CHAP_TARGET_PASSWORD"))
        });
        let target_credentials =
            pair(target_user, target_secret).map_err(UrlError::TargetCredentials)?;
        if target_credentials.is_some() && credentials.is_none() {
            return Err(UrlError::OwnCredentials.into());
        }
        let connections = options.number("connections", 1, 1, LINKS_MAX)? as u16;
        let wishes = wishes(options, connections)?;
        Ok(InitiatorConfig {
            address: place.address,
            target: place.target,
            lun: place.lun,
            initiator: options.take("initiator").unwrap_or_else(default_initiator),
            credentials,
            target_credentials,
            wishes,
            connections,
            sessions: options.number("sessions", 1, 1, LINKS_MAX)? as u16,
            timeout: options.time("timeout", Duration::from_secs(30), Duration::from_millis(1))?,
            reconnect: options.time("reconnect", Duration::from_secs(60), Duration::ZERO)?,
            keepalive: options.time(
                "keepalive",
                Duration::from_secs(5),
                Duration::from_millis(1),
            )?,
            tries: options.number("tries", 8, 1, 1_000_000)? as u32,
            attribute: attribute(options)?,
            sockets: SocketOptions::take(options)?,
        })
    }
}

/// The task attribute from the options.
fn attribute(options: &mut UrlOptions) -> Result<TagKind, OpenError> {
    Ok(match options.take("tag").as_deref() {
        None | Some("simple") => TagKind::Simple,
        Some("ordered") => TagKind::Ordered,
        Some("head-of-queue") => TagKind::HeadOfQueue,
        Some(other) => {
            return Err(OpenError::BadValue {
                option: "tag".to_string(),
                value: other.to_string(),
                wanted: "write simple, ordered or head-of-queue".to_string(),
            });
        }
    })
}

/// The operational keys from the options.
fn wishes(options: &mut UrlOptions, connections: u16) -> Result<Preferences, OpenError> {
    let mut wishes = Preferences {
        header_digest: digest(options, "header_digest")?,
        data_digest: digest(options, "data_digest")?,
        ..Preferences::default()
    };
    let values = &mut wishes.values;
    values.max_connections = connections;
    values.immediate_data = options
        .flag("immediate_data")?
        .unwrap_or(values.immediate_data);
    values.initial_r2t = options.flag("initial_r2t")?.unwrap_or(values.initial_r2t);
    let length = |options: &mut UrlOptions, key, default| {
        size(options, key, default, 512, 0x00ff_ffff).map(|bytes| bytes as u32)
    };
    values.max_recv_data_segment_length =
        length(options, "max_recv", values.max_recv_data_segment_length)?;
    values.max_burst_length = length(options, "max_burst", values.max_burst_length)?;
    values.first_burst_length = length(
        options,
        "first_burst",
        values.first_burst_length.min(values.max_burst_length),
    )?;
    let r2t = u64::from(values.max_outstanding_r2t);
    values.max_outstanding_r2t = options.number("outstanding_r2t", r2t, 1, 65535)? as u16;
    Ok(wishes)
}

/// Requires both name and secret, or neither.
fn pair(
    user: Option<String>,
    secret: Option<String>,
) -> Result<Option<Credentials>, MissingCredential> {
    match (user, secret) {
        (None, None) => Ok(None),
        (Some(user), Some(secret)) if !user.is_empty() && !secret.is_empty() => {
            Ok(Some(Credentials::new(user, secret)))
        }
        (Some(user), _) if !user.is_empty() => Err(MissingCredential::Secret),
        _ => Err(MissingCredential::User),
    }
}

fn bad(option: &str, value: &str, wanted: String) -> OpenError {
    OpenError::BadValue {
        option: option.to_string(),
        value: value.to_string(),
        wanted,
    }
}

fn digest(options: &mut UrlOptions, key: &str) -> Result<DigestPolicy, OpenError> {
    let Some(value) = options.take(key) else {
        return Ok(DigestPolicy::Never);
    };
    match value.to_lowercase().as_str() {
        "none" => Ok(DigestPolicy::Never),
        "allow" | "none_crc32c" => Ok(DigestPolicy::Allow),
        "prefer" | "crc32c_none" => Ok(DigestPolicy::Prefer),
        "crc32c" => Ok(DigestPolicy::Require),
        _ => Err(bad(
            key,
            &value,
            "write none, allow, prefer or crc32c".to_string(),
        )),
    }
}

fn size(
    options: &mut UrlOptions,
    key: &str,
    default: u32,
    min: u64,
    max: u64,
) -> Result<u64, OpenError> {
    match options.size(key)? {
        None => Ok(default.into()),
        Some(bytes) if (min..=max).contains(&bytes) => Ok(bytes),
        Some(bytes) => Err(bad(
            key,
            &bytes.to_string(),
            format!("write a size from {min} to {max} bytes"),
        )),
    }
}

/// A name that identifies the host in a target's access list and log.
fn default_initiator() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host
        .trim()
        .to_lowercase()
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' || c == '-' {
                c
            } else {
                '-'
            }
        })
        .take(64)
        .collect();
    format!(
        "iqn.2026-11.io.brunt:{}",
        if host.is_empty() { "localhost" } else { &host }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_with(url: &str, env: &[(&str, &str)]) -> Result<InitiatorConfig, OpenError> {
        let place = url.strip_prefix("iscsi:").unwrap();
        let (place, query) = place.split_once('?').unwrap_or((place, ""));
        let mut options = UrlOptions::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap();
            options.set(key, value);
        }
        let env = |key: &str| {
            env.iter()
                .find(|(k, _)| *k == key)
                .map(|(_, value)| value.to_string())
        };
        InitiatorConfig::parse(place, &mut options, &env)
    }

    fn parse(url: &str) -> Result<InitiatorConfig, OpenError> {
        parse_with(url, &[])
    }

    /// Commands carry the task attribute given in the URL.
    #[test]
    fn commands_carry_the_task_attribute_of_the_url() {
        let tag = |query: &str| parse(&format!("iscsi://h/iqn.2026-11.io.brunt:t/0{query}"));
        let flags = |query: &str| tag(query).unwrap().attribute.flags();
        assert_eq!(
            (
                flags(""),
                flags("?tag=simple"),
                flags("?tag=ordered"),
                flags("?tag=head-of-queue")
            ),
            (1, 1, 2, 3)
        );
        assert!(tag("?tag=aca").is_err());
    }

    /// Link-local addresses have a zone, written with RFC 6874's %25 or as the system writes it.
    #[test]
    fn link_local_addresses_may_have_a_zone() {
        for place in ["[fe80::1%25eth0]:3261", "[fe80::1%eth0]:3261"] {
            let config = parse(&format!("iscsi://{place}/iqn.2026-11.io.brunt:t/0")).unwrap();
            assert_eq!(
                (config.address.host.as_str(), config.address.port),
                ("fe80::1%eth0", 3261)
            );
            let with_user = parse(&format!(
                "iscsi://u%s3cret@{place}/iqn.2026-11.io.brunt:t/0"
            ));
            assert_eq!(with_user.unwrap().address.host, "fe80::1%eth0");
        }
    }

    /// URLs mean the same as with libiscsi, and the names derived from them contain no secret.
    #[test]
    fn urls_mean_the_same_as_for_libiscsi() {
        let check = |url: &str, name: &str, user: Option<&str>| {
            let config = parse(url).unwrap();
            assert_eq!(config.name(), name, "{url}");
            assert_eq!(
                config.credentials.as_ref().map(|c| c.user.as_str()),
                user,
                "{url}"
            );
            assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
        };
        check("iscsi://h/iqn.a:b/0", "iscsi://h:3260/iqn.a:b/0", None);
        check(
            "iscsi://10.0.0.1:3261/iqn.a/12",
            "iscsi://10.0.0.1:3261/iqn.a/12",
            None,
        );
        check(
            "iscsi://[fe80::1]:860/iqn.a/1",
            "iscsi://[fe80::1]:860/iqn.a/1",
            None,
        );
        check(
            "iscsi://u%s3cret@h/iqn.a/1",
            "iscsi://h:3260/iqn.a/1",
            Some("u"),
        );
        check(
            "iscsi://u%s3cret@with/odd%chars@h/iqn.a/1",
            "iscsi://h:3260/iqn.a/1",
            Some("u"),
        );
        check("iscsi://h:3261", "iscsi://h:3261", None);
    }

    /// Secrets come from the environment if the URL has none.
    #[test]
    fn secrets_come_from_the_environment_if_the_url_has_none() {
        let env = [
            ("LIBISCSI_CHAP_PASSWORD", "s3cret"),
            ("LIBISCSI_CHAP_TARGET_USERNAME", "t"),
            ("LIBISCSI_CHAP_TARGET_PASSWORD", "other"),
        ];
        let config = parse_with("iscsi://u@h/iqn.a/1", &env).unwrap();
        assert_eq!(config.credentials.unwrap().user, "u");
        assert_eq!(config.target_credentials.unwrap().user, "t");
        let all = [("LIBISCSI_CHAP_USERNAME", "v"), env[0]];
        assert_eq!(
            parse_with("iscsi://h/iqn.a/1", &all)
                .unwrap()
                .credentials
                .unwrap()
                .user,
            "v"
        );
    }

    /// Options are parsed, and a session's preferences follow them.
    #[test]
    fn a_sessions_wishes_follow_the_options() {
        let config = parse(
            "iscsi://h/iqn.a/1?connections=2&sessions=3&header_digest=crc32c&data_digest=prefer&timeout=5s\
             &reconnect=0&max_recv=256k&max_burst=64k&initial_r2t=yes&immediate_data=no&outstanding_r2t=1",
        )
        .unwrap();
        assert_eq!((config.connections, config.sessions), (2, 3));
        assert_eq!(config.wishes.header_digest, DigestPolicy::Require);
        assert_eq!(config.wishes.data_digest, DigestPolicy::Prefer);
        assert_eq!(
            (config.timeout, config.reconnect),
            (Duration::from_secs(5), Duration::ZERO)
        );
        let values = &config.wishes.values;
        assert_eq!(
            (values.max_recv_data_segment_length, values.max_burst_length),
            (262_144, 65_536)
        );
        assert_eq!(
            (values.first_burst_length, values.max_outstanding_r2t),
            (65_536, 1)
        );
        assert!(values.initial_r2t && !values.immediate_data);
        assert_eq!(values.max_connections, 2);
        assert!(config.initiator.starts_with("iqn.2026-11.io.brunt:"));
    }

    /// Errors name the mistake, without revealing the secret.
    #[test]
    fn errors_name_the_mistake_without_the_secret() {
        let check = |url: &str, words: &str| {
            let error = parse(url).expect_err(url).to_string();
            assert!(error.contains(words), "{url}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        };
        check("iscsi:h/iqn.a/1", "'//'");
        check("iscsi:///iqn.a/1", "host");
        check("iscsi://h:0/iqn.a/1", "host");
        check("iscsi://h:x/iqn.a/1", "host");
        check("iscsi://[::1/iqn.a/1", "host");
        check("iscsi://h/iqn.a", "LUN is missing");
        check("iscsi://h/iqn.a/x", "0 to 16383");
        check("iscsi://h/iqn.a/16384", "0 to 16383");
        check("iscsi://h//1", "name is missing");
        check("iscsi://u@h/iqn.a/1", "secret is missing");
        check("iscsi://%s3cret@h/iqn.a/1", "user name is missing");
        check(
            "iscsi://u%s3cret@h/iqn.a/1?target_user=t",
            "target's CHAP secret",
        );
        check(
            "iscsi://h/iqn.a/1?target_user=t&target_password=s3cret",
            "the initiator's user",
        );
        check("iscsi://h/iqn.a/1?connections=0", "1 to 16");
        check("iscsi://h/iqn.a/1?data_digest=md5", "crc32c");
        check("iscsi://h/iqn.a/1?timeout=30", "30");
        check("iscsi://h/iqn.a/1?max_recv=100", "512");
        check("iscsi://h/iqn.a/1?send_buffer=0", "1 byte");
    }
}
