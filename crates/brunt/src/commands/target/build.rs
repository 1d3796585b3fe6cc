//! Builds what a server serves from a [`TargetFile`]: portals, users and logical units. Called when the target starts
//! and when its file is reloaded. The rule: nothing is served until everything has been checked and opened.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brunt_host::read_private;
use brunt_iscsi::chap::{ChapUser, Credentials};
use brunt_iscsi::scsi::{AccessState, Alua, LogicalUnit, PortGroup};
use brunt_iscsi::target_node::{Portal, TargetConfig, chap_user};
use brunt_study::control::PortState;

use super::file::{AluaWord, Misplaced, PortalEntry, TargetEntry, TargetFile};
use super::lun::{self, LunWords};
use crate::cli::Failure;

/// Highest LUN: 14 bits in flat addressing (SAM-5, 4.7.7.3).
const LUN_MAX: u16 = 0x3fff;

/// A target whose users and LUNs have been checked and opened.
pub struct BuiltTarget {
    pub name: String,
    pub users: Vec<ChapUser>,
    pub units: BTreeMap<u16, Arc<LogicalUnit>>,
}

/// Opens all targets of a file.
///
/// # Errors
/// Returns the first mistake.
pub fn targets(file: &TargetFile, ports: &Ports) -> Result<Vec<BuiltTarget>, Misplaced> {
    let described = describe(file)?;
    let targets = file.targets.iter().zip(described).enumerate();
    targets
        .map(|(index, (entry, luns))| target(index, entry, luns, ports))
        .collect()
}

/// Opens one target, whose LUNs were already parsed by [`describe`].
///
/// # Errors
/// Returns the first mistake.
pub fn target(
    index: usize,
    entry: &TargetEntry,
    luns: BTreeMap<u16, LunWords>,
    ports: &Ports,
) -> Result<BuiltTarget, Misplaced> {
    let mut units = BTreeMap::new();
    for (number, words) in luns {
        let key = number.to_string();
        let unit = lun::open(&entry.luns[&key], &words, number, &entry.name, ports)
            .map_err(|failure| lun_is_wrong(index, &key, failure))?;
        units.insert(number, unit);
    }
    let users = users_of(entry).map_err(|failure| wrong(index, "chap", failure))?;
    Ok(BuiltTarget {
        name: entry.name.clone(),
        users,
        units,
    })
}

/// Parses the descriptions of all LUNs, by target and number, and checks them and the targets' names against each
/// other.
///
/// # Errors
/// Returns the first mistake.
pub fn describe(file: &TargetFile) -> Result<Vec<BTreeMap<u16, LunWords>>, Misplaced> {
    let mut seen: Vec<SeenLun> = Vec::new();
    let mut all = Vec::new();
    for (index, target) in file.targets.iter().enumerate() {
        check_name(&target.name).map_err(|failure| wrong(index, "name", failure))?;
        if file.targets[..index]
            .iter()
            .any(|other| other.name.eq_ignore_ascii_case(&target.name))
        {
            let failure = Failure::usage(format!("{}: two targets have this name", target.name))
                .advise("give each target its own name");
            return Err(wrong(index, "name", failure));
        }
        let mut luns = BTreeMap::new();
        for (key, text) in &target.luns {
            let here = |failure| lun_is_wrong(index, key, failure);
            let number = key
                .parse()
                .ok()
                .filter(|number: &u16| *number <= LUN_MAX && key == &number.to_string());
            let number: u16 = number.ok_or_else(|| {
                let failure = Failure::usage(format!("'{key}' is not a LUN"));
                here(failure.advise(format!("write a number from 0 to {LUN_MAX}")))
            })?;
            let words = lun::parse(text).map_err(here)?;
            let of = if file.targets.len() > 1 {
                format!(" of {}", target.name)
            } else {
                String::new()
            };
            let one = SeenLun::new(format!("LUN {number}{of}"), words.clone());
            one.check(text, &seen).map_err(here)?;
            seen.push(one);
            luns.insert(number, words);
        }
        all.push(luns);
    }
    Ok(all)
}

pub fn wrong(index: usize, key: &str, failure: Failure) -> Misplaced {
    Misplaced::at(&["target", &index.to_string(), key], failure)
}

pub fn lun_is_wrong(index: usize, key: &str, failure: Failure) -> Misplaced {
    Misplaced::at(&["target", &index.to_string(), "luns", key], failure)
}

/// A LUN, for comparison with later LUNs. They must not share identity or state: an initiator assumes that two disks
/// with the same serial number are two paths to one disk, and two LUNs on the same file don't see each other's
/// reservations and atomic commands.
struct SeenLun {
    name: String,
    words: LunWords,
    medium: Option<PathBuf>,
}

impl SeenLun {
    fn new(name: String, words: LunWords) -> SeenLun {
        let place = words.url.split('?').next().unwrap_or_default();
        let medium = std::fs::canonicalize(place.strip_prefix("file:").unwrap_or(place)).ok();
        SeenLun {
            name,
            words,
            medium,
        }
    }

    fn check(&self, text: &str, others: &[SeenLun]) -> Result<(), Failure> {
        let words = &self.words;
        if let Some(path) = &words.aptpl {
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            if !folder.unwrap_or(Path::new(".")).is_dir() || path.is_dir() {
                let what = format!("{text}: aptpl={} cannot be a file", path.display());
                let advice = "name a file, which need not exist, in a folder that does";
                return Err(Failure::usage(what).advise(advice));
            }
        }
        for other in others {
            let before = &other.words;
            let what = if self.medium.is_some() && self.medium == other.medium {
                if words.read_only && before.read_only {
                    continue;
                }
                "the same file or device"
            } else if words.serial.is_some() && words.serial == before.serial {
                "the same serial"
            } else if words.aptpl.is_some() && words.aptpl == before.aptpl {
                "the same aptpl file"
            } else {
                continue;
            };
            return Err(
                Failure::usage(format!("{text}: {} has {what}", other.name)).advise(
                    "give each LUN its own; only read-only LUNs (ro) may share a file or device",
                ),
            );
        }
        Ok(())
    }
}

/// The users that may log in to a target.
///
/// # Errors
/// The credentials are invalid.
pub fn users_of(target: &TargetEntry) -> Result<Vec<ChapUser>, Failure> {
    let Some(chap) = &target.chap else {
        return Ok(Vec::new());
    };
    Ok(vec![chap_pair(chap, target.mutual_chap.as_deref())?])
}

/// The users that may discover target names; `None` for those that may log in to a target.
///
/// # Errors
/// The credentials are invalid.
pub fn discovery(file: &TargetFile) -> Result<Option<Vec<ChapUser>>, Misplaced> {
    let entry = &file.discovery;
    match entry.chap.as_deref() {
        None => Ok(None),
        Some("none") => Ok(Some(Vec::new())),
        Some(chap) => match chap_pair(chap, entry.mutual_chap.as_deref()) {
            Ok(user) => Ok(Some(vec![user])),
            Err(failure) => Err(Misplaced::at(&["discovery", "chap"], failure)),
        },
    }
}

fn chap_pair(chap: &str, mutual: Option<&str>) -> Result<ChapUser, Failure> {
    chap_user(credentials(chap)?, mutual.map(credentials).transpose()?).map_err(|error| {
        Failure::usage(error)
            .advise("use a different secret for mutual CHAP than for the initiator")
    })
}

/// Parses `USER:SECRET`, `@FILE` or `env:VARIABLE`. Errors never contain the secret.
fn credentials(text: &str) -> Result<Credentials, Failure> {
    let (found, place) = if let Some(path) = text.strip_prefix('@') {
        let wrong = |error: &dyn std::fmt::Display| {
            Failure::usage(format!("cannot read the CHAP secret: {error}"))
        };
        let content = read_private(Path::new(path)).map_err(|error| wrong(&error))?;
        let content =
            String::from_utf8(content).map_err(|_| wrong(&format_args!("{path}: not UTF-8")))?;
        (
            content.trim_end_matches(['\n', '\r']).to_string(),
            format!(" in the file {path}"),
        )
    } else if let Some(variable) = text.strip_prefix("env:") {
        let content = std::env::var(variable)
            .map_err(|error| Failure::usage(format!("environment variable {variable}: {error}")))?;
        (content, format!(" in the environment variable {variable}"))
    } else {
        (text.to_string(), String::new())
    };
    match found.split_once(':') {
        Some((user, secret)) if !user.is_empty() && !secret.is_empty() => {
            Ok(Credentials::new(user, secret))
        }
        _ => Err(Failure::usage(format!(
            "the CHAP credentials{place} do not have the form USER:SECRET"
        ))
        .advise("write the user name, a colon and the secret")),
    }
}

/// The addresses on which the portals of a file listen.
///
/// # Errors
/// Returns the first invalid portal.
pub fn portals(file: &TargetFile) -> Result<Vec<Portal>, Misplaced> {
    let mut portals = Vec::new();
    for (
        index,
        PortalEntry {
            listen,
            advertise,
            group,
            ..
        },
    ) in file.portals.iter().enumerate()
    {
        let here = |key, failure| Misplaced::at(&["portal", &index.to_string(), key], failure);
        let address = address(listen, ISCSI_PORT).map_err(|failure| here("listen", failure))?;
        if let Some(text) = advertise {
            check_advertised(text).map_err(|failure| here("advertise", failure))?;
        }
        portals.push(Portal {
            listen: address,
            advertise: advertise.clone(),
            group: group.get(),
        });
    }
    Ok(portals)
}

/// Configures how a server admits initiators.
///
/// # Errors
/// A portal is invalid.
pub fn listeners(file: &TargetFile, config: &mut TargetConfig) -> Result<(), Misplaced> {
    config.portals = portals(file)?;
    config.sessions_max = usize::from(file.max_sessions.get());
    config.sockets = file.sockets().options();
    config.wishes.header_digest = file.header_digest.policy();
    config.wishes.data_digest = file.data_digest.policy();
    Ok(())
}

/// The ports through which LUNs are reached.
#[derive(Clone)]
pub struct Ports {
    /// Target port groups by their numbers.
    pub groups: BTreeMap<u16, PortWords>,
    pub alua: Alua,
}

/// The state of a target port group, as users write it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortWords {
    pub state: PortState,
    pub preferred: bool,
}

impl fmt::Display for PortWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}{}",
            self.state,
            if self.preferred { " and preferred" } else { "" }
        )
    }
}

impl Ports {
    /// The groups as SCSI describes them.
    pub fn groups(&self) -> Vec<PortGroup> {
        let group = |(id, words): (&u16, &PortWords)| PortGroup {
            preferred: words.preferred,
            ..PortGroup::new(*id, access_state(words.state))
        };
        self.groups.iter().map(group).collect()
    }
}

/// The port groups of a file.
///
/// # Errors
/// Portals of the same group describe it differently.
pub fn ports(file: &TargetFile) -> Result<Ports, Misplaced> {
    let mut groups = BTreeMap::new();
    for (index, portal) in file.portals.iter().enumerate() {
        let (place, words) = (
            index.to_string(),
            PortWords {
                state: portal.state,
                preferred: portal.preferred,
            },
        );
        let first = *groups.entry(portal.group.get()).or_insert(words);
        if first.state != words.state {
            let what = format!(
                "{}: group {} is already {}",
                portal.listen, portal.group, first.state
            );
            let failure = Failure::usage(what).advise("give all portals of a group the same state");
            return Err(Misplaced::at(&["portal", &place, "state"], failure));
        }
        if first.preferred != words.preferred {
            let what = format!(
                "{}: only some portals of group {} are preferred",
                portal.listen, portal.group
            );
            let failure = Failure::usage(what)
                .advise("set preferred for all portals of a group, or for none");
            return Err(Misplaced::at(&["portal", &place, "preferred"], failure));
        }
        let key = if words.preferred {
            "preferred"
        } else {
            "state"
        };
        if file.alua == AluaWord::Off && words != PortWords::default() {
            let failure = Failure::usage(format!("{}: {key} needs ALUA", portal.listen))
                .advise(format!("omit {key}, or alua = \"off\" (--alua off)"));
            return Err(Misplaced::at(&["portal", &place, key], failure));
        }
    }
    Ok(Ports {
        groups,
        alua: file.alua.alua(),
    })
}

/// Converts a state to its SCSI equivalent.
pub fn access_state(state: PortState) -> AccessState {
    match state {
        PortState::Optimized => AccessState::ActiveOptimized,
        PortState::NonOptimized => AccessState::ActiveNonOptimized,
        PortState::Standby => AccessState::Standby,
        PortState::Unavailable => AccessState::Unavailable,
        PortState::Offline => AccessState::Offline,
        PortState::Transitioning => AccessState::Transitioning,
    }
}

/// Converts a SCSI state back.
pub fn port_state(state: AccessState) -> PortState {
    match state {
        AccessState::ActiveOptimized => PortState::Optimized,
        AccessState::ActiveNonOptimized => PortState::NonOptimized,
        AccessState::Standby => PortState::Standby,
        AccessState::Unavailable => PortState::Unavailable,
        AccessState::Offline => PortState::Offline,
        AccessState::Transitioning => PortState::Transitioning,
    }
}

/// The port that IANA assigned to iSCSI.
const ISCSI_PORT: u16 = 3260;

/// Parses an address to listen on; `port` is the default.
///
/// # Errors
/// The text isn't an address.
pub fn address(text: &str, port: u16) -> Result<SocketAddr, Failure> {
    let wrong = |what: String| {
        Failure::usage(format!("{text}: {what}")).advise(format!(
            "write ADDRESS:PORT, such as 127.0.0.1:{port} or [::1]:0"
        ))
    };
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    // An address with a zone needs the system's resolver, which doesn't accept brackets.
    let zoned = text.strip_prefix('[').and_then(|text| text.split_once(']'));
    let zoned = zoned.filter(|(host, _)| host.contains('%'));
    let found = match zoned {
        None => text.to_socket_addrs(),
        Some((host, rest)) => match rest.strip_prefix(':').map_or(Ok(port), str::parse) {
            Ok(port) => (host.replacen("%25", "%", 1).as_str(), port).to_socket_addrs(),
            Err(_) => return Err(wrong("the port is not a number".to_string())),
        },
    };
    let mut found = found.map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => wrong("this is not an address".to_string()),
        _ => wrong(error.to_string()),
    })?;
    found
        .next()
        .ok_or_else(|| wrong("no such host".to_string()))
}

/// Addresses in discovery answers must have the form `host:port` (RFC 7143, 13.8); whether the name resolves matters
/// only to initiators.
fn check_advertised(text: &str) -> Result<(), Failure> {
    let clean = |host: &str| {
        !host.is_empty()
            && host
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
    };
    let is_host = text.rsplit_once(':').is_some_and(|(host, port)| {
        clean(host) && host.len() <= 253 && port.parse::<u16>().is_ok_and(|port| port != 0)
    });
    if is_host
        || text
            .parse::<SocketAddr>()
            .is_ok_and(|address| address.port() != 0)
    {
        return Ok(());
    }
    Err(
        Failure::usage(format!("{text} is not an address for initiators")).advise(
            "write HOST:PORT, such as 203.0.113.5:3260, [2001:db8::5]:3260 or san.example:3260",
        ),
    )
}

/// Checks an iSCSI name (RFC 7143, 4.2.7): one of three types, at most 223 bytes, and of ASCII only what RFC 3722
/// permits: lower-case letters, digits, and `-.:`. An initiator that folds case would not find an upper-case name.
fn check_name(name: &str) -> Result<(), Failure> {
    let clean = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b':')
    };
    let hex = |text: &str, lens: &[usize]| {
        lens.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let dated = |text: &str| {
        let (date, authority) = text.split_once('.').unwrap_or((text, ""));
        let digits =
            |text: &str, len| text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
        let date = date
            .split_once('-')
            .is_some_and(|(year, month)| digits(year, 4) && digits(month, 2));
        date && !authority.is_empty() && authority.bytes().all(clean)
    };
    let is_name = match name.split_once('.') {
        Some(("iqn", rest)) => dated(rest),
        Some(("eui", rest)) => hex(rest, &[16]),
        Some(("naa", rest)) => hex(rest, &[16, 32]),
        _ => false,
    };
    if is_name && name.len() <= 223 {
        return Ok(());
    }
    Err(Failure::usage(format!("{name} is not an iSCSI name"))
        .advise("write iqn.YEAR-MONTH.reversed.domain:anything, such as iqn.2026-11.io.brunt:t0"))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::super::file::DEFAULT_PORTAL;
    use super::*;

    fn file(targets: &[(&str, &[&str])]) -> TargetFile {
        let targets = targets.iter().map(|(name, luns)| TargetEntry {
            name: name.to_string(),
            chap: None,
            mutual_chap: None,
            luns: luns
                .iter()
                .enumerate()
                .map(|(lun, text)| (lun.to_string(), text.to_string()))
                .collect(),
        });
        TargetFile::of(vec![PortalEntry::at(DEFAULT_PORTAL)], targets.collect())
    }

    /// LUNs that could be mistaken for one another, or corrupt each other's data, are rejected, even across targets.
    #[test]
    fn luns_that_could_be_confused_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk.img");
        std::fs::write(&disk, [0; 512]).unwrap();
        let path = disk.display().to_string();
        let check = |luns: &[&str], apart: bool| {
            let luns: Vec<String> = luns.iter().map(|lun| lun.replace("FILE", &path)).collect();
            let luns: Vec<&str> = luns.iter().map(String::as_str).collect();
            assert_eq!(
                describe(&file(&[("iqn.2026-11.io:a", &luns)])).is_ok(),
                apart,
                "{luns:?}"
            );
            let (first, rest) = luns.split_at(1);
            let two = file(&[("iqn.2026-11.io:a", first), ("iqn.2026-11.io:b", rest)]);
            assert_eq!(describe(&two).is_ok(), apart, "{luns:?}");
        };
        check(
            &["memory:1M", "memory:1M", "null:1M,serial=a", "FILE"],
            true,
        );
        check(
            &["null:1M,serial=a", "memory:1M", "memory:1M,serial=a"],
            false,
        );
        check(&["FILE", "file:FILE?direct=no"], false);
        check(&["FILE,ro", "FILE"], false);
        check(&["FILE,ro", "FILE,ro"], true);
        check(&["null:1M,aptpl=FILE.pr", "null:1M"], true);
        check(&["null:1M,aptpl=FILE.pr", "null:1M,aptpl=FILE.pr"], false);
        check(&["null:1M,aptpl=/nonexistent/folder/pr"], false);
    }

    /// A mistake is reported at its key.
    #[test]
    fn a_mistake_is_reported_at_its_key() {
        let check =
            |file: &TargetFile, key: &[&str]| match targets(file, &ports(file).ok().unwrap()) {
                Ok(_) => panic!("{file:?} is right"),
                Err(wrong) => assert_eq!(wrong.key, key),
            };
        let (a, b) = ("iqn.2026-11.io:a", "iqn.2026-11.io:b");
        check(&file(&[(a, &[]), ("b", &[])]), &["target", "1", "name"]);
        check(&file(&[(a, &[]), (a, &[])]), &["target", "1", "name"]);
        check(
            &file(&[(a, &["null:1M"]), (b, &["null:1M", "null:0"])]),
            &["target", "1", "luns", "1"],
        );
        let mut odd = file(&[(a, &["null:1M"])]);
        odd.targets[0].luns.insert("16384".into(), "null:1M".into());
        check(&odd, &["target", "0", "luns", "16384"]);
        let mut secret = file(&[(a, &[])]);
        secret.targets[0].chap = Some("nocolon".into());
        check(&secret, &["target", "0", "chap"]);
        secret.targets[0].chap = Some("me:twice".into());
        secret.targets[0].mutual_chap = Some("you:twice".into());
        check(&secret, &["target", "0", "chap"]);
    }

    /// Portals of the same group must agree on its description, and only portals in a group may have one.
    #[test]
    fn portals_of_one_group_must_agree() {
        let check = |portals: &[(u16, PortState, bool)], alua: AluaWord, wrong: Option<&str>| {
            let entry = |(group, state, preferred): &(u16, PortState, bool)| PortalEntry {
                group: NonZeroU16::new(*group).unwrap(),
                state: *state,
                preferred: *preferred,
                ..PortalEntry::at(DEFAULT_PORTAL)
            };
            let mut file = file(&[]);
            (file.portals, file.alua) = (portals.iter().map(entry).collect(), alua);
            let key = ports(&file)
                .err()
                .and_then(|wrong| wrong.key.last().cloned());
            assert_eq!(key.as_deref(), wrong, "{portals:?}");
        };
        use PortState::{Offline, Optimized};
        check(
            &[
                (1, Offline, true),
                (2, Optimized, false),
                (1, Offline, true),
            ],
            AluaWord::Implicit,
            None,
        );
        check(
            &[(1, Offline, false), (1, Optimized, false)],
            AluaWord::Implicit,
            Some("state"),
        );
        check(
            &[(1, Offline, false), (1, Offline, true)],
            AluaWord::Implicit,
            Some("preferred"),
        );
        check(&[(1, Optimized, false)], AluaWord::Off, None);
        check(&[(1, Offline, false)], AluaWord::Off, Some("state"));
        check(&[(1, Optimized, true)], AluaWord::Off, Some("preferred"));
    }

    #[test]
    fn addresses_are_parsed_and_advertised_ones_are_host_and_port() {
        assert!(address("nowhere", 1).is_err());
        assert_eq!(address("[::1]:0", 1).unwrap().port(), 0);
        assert_eq!(address("::1", ISCSI_PORT).unwrap().port(), 3260);
        assert!(address("localhost:7", 1).unwrap().ip().is_loopback());
        for good in ["203.0.113.5:3260", "[2001:db8::5]:3261", "san-1.example:1"] {
            assert!(check_advertised(good).is_ok(), "{good}");
        }
        for bad in [
            "203.0.113.5",
            "2001:db8::5:3261",
            "san example:1",
            "san:0",
            ":3260",
            "a,1:1",
            "a:65536",
        ] {
            assert!(check_advertised(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn credentials_are_read() {
        assert!(credentials("nocolon").is_err());
        assert!(credentials("@/nonexistent/secret").is_err());
        assert_eq!(credentials("me:a:b").unwrap().user, "me");
    }

    /// A name that initiators could not use is rejected at the start.
    #[test]
    fn a_name_that_initiators_could_not_use_is_refused() {
        for name in [
            "iqn.2026-11.io.brunt:t0",
            "iqn.1992-08.com.x",
            "eui.02004567A425678D",
            "naa.52004567ba64678d",
        ] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let long = format!("iqn.2026-11.io:{}", "a".repeat(223));
        for name in [
            "t0",
            "iqn.",
            "iqn.brunt",
            "iqn.2026-11.",
            "iqn.2026-11.io.brunt:T0",
            "iqn.26-11.io",
            &long,
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
        for name in [
            "iqn.2026-11.io.brunt:a b",
            "iqn.2026-11.io.brunt:a,1",
            "eui.1234",
            "naa.",
            "IQN.2026-11.io",
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
