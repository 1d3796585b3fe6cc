//! The description of a target, from a file (`--config`) or from flags: both produce a [`TargetFile`], from which
//! everything else is built. The rule: every mistake is reported with its flag, or with the file, the line and the
//! key.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::path::Path;

use brunt_block::Congestion;
use brunt_core::Size;
use brunt_iscsi::params::DigestPolicy;
use brunt_iscsi::scsi::Alua;
use brunt_study::control::PortState;
use brunt_study::experiment::{mistake_in, read_toml};
use serde::Deserialize;

use crate::cli::Failure;
use crate::commands::sockets::Sockets;

/// Maximum file size in bytes: 16,384 LUNs with room for their URLs.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A target file: portals, targets, and settings that apply to all targets.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetFile {
    #[serde(default = "default_portals", rename = "portal")]
    pub portals: Vec<PortalEntry>,
    #[serde(default)]
    pub discovery: DiscoveryEntry,
    #[serde(rename = "target")]
    pub targets: Vec<TargetEntry>,
    #[serde(default)]
    pub alua: AluaWord,
    #[serde(default)]
    pub header_digest: Digest,
    #[serde(default)]
    pub data_digest: Digest,
    #[serde(default = "default_sessions")]
    pub max_sessions: NonZeroU16,
    #[serde(default)]
    pub send_buffer: Option<Size>,
    #[serde(default)]
    pub receive_buffer: Option<Size>,
    #[serde(default)]
    pub congestion: Option<Congestion>,
}

impl TargetFile {
    /// A file with these portals and targets, and defaults for everything else.
    pub fn of(portals: Vec<PortalEntry>, targets: Vec<TargetEntry>) -> TargetFile {
        TargetFile {
            portals,
            discovery: DiscoveryEntry::default(),
            targets,
            alua: AluaWord::default(),
            header_digest: Digest::default(),
            data_digest: Digest::default(),
            max_sessions: default_sessions(),
            send_buffer: None,
            receive_buffer: None,
            congestion: None,
        }
    }

    /// The socket settings, in the same form as from flags.
    pub fn sockets(&self) -> Sockets {
        let bytes = |size: Option<Size>| size.map(|Size(bytes)| bytes);
        Sockets {
            send_buffer: bytes(self.send_buffer),
            receive_buffer: bytes(self.receive_buffer),
            congestion: self.congestion,
        }
    }
}

/// Where the targets listen.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortalEntry {
    pub listen: String,
    #[serde(default)]
    pub advertise: Option<String>,
    #[serde(default = "first_group")]
    pub group: NonZeroU16,
    /// Initial access state of the portal's group.
    #[serde(default)]
    pub state: PortState,
    /// Whether initiators should prefer the group.
    #[serde(default)]
    pub preferred: bool,
}

impl PortalEntry {
    /// A portal in the first group.
    pub fn at(listen: &str) -> PortalEntry {
        PortalEntry {
            listen: listen.to_string(),
            advertise: None,
            group: first_group(),
            state: PortState::default(),
            preferred: false,
        }
    }
}

/// [`Alua`] as users write it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AluaWord {
    Off,
    #[default]
    Implicit,
    Explicit,
    Both,
}

impl AluaWord {
    pub fn alua(self) -> Alua {
        match self {
            AluaWord::Off => Alua::Off,
            AluaWord::Implicit => Alua::Implicit,
            AluaWord::Explicit => Alua::Explicit,
            AluaWord::Both => Alua::Both,
        }
    }
}

/// Who may discover the targets' names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiscoveryEntry {
    #[serde(default)]
    pub chap: Option<String>,
    #[serde(default)]
    pub mutual_chap: Option<String>,
}

/// One target.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetEntry {
    pub name: String,
    #[serde(default)]
    pub chap: Option<String>,
    #[serde(default)]
    pub mutual_chap: Option<String>,
    /// LUNs by number, in the syntax of `--lun`.
    #[serde(default)]
    pub luns: BTreeMap<String, String>,
}

/// [`DigestPolicy`] as users write it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Digest {
    Never,
    #[default]
    Allow,
    Prefer,
    Require,
}

impl Digest {
    pub fn policy(self) -> DigestPolicy {
        match self {
            Digest::Never => DigestPolicy::Never,
            Digest::Allow => DigestPolicy::Allow,
            Digest::Prefer => DigestPolicy::Prefer,
            Digest::Require => DigestPolicy::Require,
        }
    }
}

/// The default address to listen on.
pub const DEFAULT_PORTAL: &str = "127.0.0.1:3260";

fn default_portals() -> Vec<PortalEntry> {
    vec![PortalEntry::at(DEFAULT_PORTAL)]
}

fn default_sessions() -> NonZeroU16 {
    NonZeroU16::new(128).expect("not zero")
}

pub fn first_group() -> NonZeroU16 {
    NonZeroU16::MIN
}

/// What to serve, and whether a file or flags specified it.
pub struct Plan {
    pub file: TargetFile,
    origin: Origin,
}

enum Origin {
    Flags,
    File { name: String, text: String },
}

/// A mistake in a [`TargetFile`], with the key that contains it.
pub struct Misplaced {
    pub key: Vec<String>,
    pub failure: Failure,
}

impl Misplaced {
    pub fn at(key: &[&str], failure: Failure) -> Misplaced {
        Misplaced {
            key: key.iter().map(ToString::to_string).collect(),
            failure,
        }
    }
}

impl Plan {
    /// The plan for a target that is described by flags.
    pub fn of_flags(file: TargetFile) -> Plan {
        Plan {
            file,
            origin: Origin::Flags,
        }
    }

    /// Reads a target file.
    ///
    /// # Errors
    /// The file cannot be read, or contains a mistake.
    pub fn read(path: &Path) -> Result<Plan, Failure> {
        let name = path.display().to_string();
        let cannot = |error| Failure::usage(format!("{name}: {error}"));
        let bytes = std::fs::metadata(path).map_err(cannot)?.len();
        if bytes > FILE_BYTES_MAX {
            return Err(Failure::usage(format!(
                "{name}: {bytes} bytes are too many for a target file"
            )));
        }
        let text = brunt_core::input::read_to_string(path).map_err(cannot)?;
        let file: TargetFile = read_toml(&name, &text)?;
        let plan = Plan {
            file,
            origin: Origin::File { name, text },
        };
        plan.check().map_err(|wrong| plan.failure(wrong))?;
        Ok(plan)
    }

    /// Checks for mistakes that can't be made with flags.
    fn check(&self) -> Result<(), Misplaced> {
        let file = &self.file;
        if file.targets.is_empty() {
            let failure = Failure::usage("there is no target")
                .advise("add one, such as [[target]] with name = \"iqn.2026-11.io.brunt:t0\"");
            return Err(Misplaced::at(&["target"], failure));
        }
        if file.portals.is_empty() {
            let failure = Failure::usage("there is no portal").advise(
                "remove the key for 127.0.0.1:3260, or add [[portal]] with listen = \"ADDRESS:PORT\"",
            );
            return Err(Misplaced::at(&["portal"], failure));
        }
        if let Some(Err(error)) = file.congestion.map(|congestion| congestion.check()) {
            let failure = Failure::usage(format!("congestion: {error}"));
            let failure = match error.advice() {
                Some(advice) => failure.advise(advice),
                None => failure,
            };
            return Err(Misplaced::at(&["congestion"], failure));
        }
        for (index, target) in file.targets.iter().enumerate() {
            let place = index.to_string();
            if target.mutual_chap.is_some() && target.chap.is_none() {
                let failure = Failure::usage("mutual_chap needs chap")
                    .advise("add chap = \"@FILE\" with the user and secret of initiators");
                return Err(Misplaced::at(&["target", &place, "mutual_chap"], failure));
            }
        }
        if file.discovery.mutual_chap.is_some() && file.discovery.chap.is_none() {
            let failure = Failure::usage("mutual_chap needs chap").advise("add chap = \"@FILE\"");
            return Err(Misplaced::at(&["discovery", "mutual_chap"], failure));
        }
        Ok(())
    }

    /// Converts a mistake to a failure, with its flag or its line.
    pub fn failure(&self, wrong: Misplaced) -> Failure {
        let key: Vec<&str> = wrong.key.iter().map(String::as_str).collect();
        match &self.origin {
            Origin::File { name, text } => wrong
                .failure
                .located(|what| mistake_in(name, text, &key, what)),
            Origin::Flags => match key[..] {
                [.., "luns", _] => wrong.failure.prefixed("--lun "),
                [.., "name"] => wrong.failure.prefixed("--name "),
                [.., "listen"] => wrong.failure.prefixed("--portal "),
                [.., "advertise"] => wrong.failure.prefixed("--advertise "),
                _ => wrong.failure,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Plan, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("targets.toml");
        std::fs::write(&path, text).unwrap();
        Plan::read(&path)
    }

    /// Keys omitted in a file have the same defaults as omitted flags.
    #[test]
    fn omitted_keys_have_the_defaults_of_omitted_flags() {
        let plan =
            read("[[target]]\nname = \"iqn.2026-11.io.brunt:t0\"\nluns = { 0 = \"null:1MiB\" }\n")
                .unwrap();
        assert_eq!(plan.file.portals, default_portals());
        assert_eq!(
            (plan.file.max_sessions.get(), plan.file.header_digest),
            (128, Digest::Allow)
        );
        assert_eq!(plan.file.targets[0].luns["0"], "null:1MiB");
    }

    /// A mistake is reported with its line.
    #[test]
    fn a_mistake_is_reported_with_its_line() {
        let check = |text: &str, line: usize, words: &str| {
            let Err(failure) = read(text) else {
                panic!("{text} was read")
            };
            let shown = format!("{failure:?}");
            assert!(
                shown.contains(&format!("targets.toml:{line}: ")) && shown.contains(words),
                "{shown}"
            );
        };
        check(
            "[[target]]\nname = \"iqn.a\"\nlun = {}\n",
            3,
            "did you mean luns?",
        );
        check("[[target]]\nchap = \"x\"\n", 1, "key 'name' is missing");
        check(
            "[[portal]]\nlisten = \"::1\"\ngroup = 0\n[[target]]\nname = \"iqn.a\"\n",
            3,
            "a whole number, 1 or more",
        );
        check("target = []\n", 1, "there is no target");
        check("header_digest = \"maybe\"\n", 1, "unknown value");
        check(
            "[[target]]\nname = \"iqn.a\"\nmutual_chap = \"a:b\"\n",
            3,
            "mutual_chap needs chap",
        );
        check("[[target]\n", 1, "");
    }
}
