//! The user's settings for the replay of NFS calls: the `nfs_replay` table of a workload.
//!
//! The rule: a key without effect is an error.

use brunt_result::choice::EngineSetting;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::block::workload::Workload;
use crate::load::{WorkloadError, wrong};

/// How the NFS calls of a trace are replayed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NfsReplaySettings {
    /// Whose credentials calls carry. With `trace`, files belong to the trace's owners, which needs
    /// a user who may change owners (`uid=0` in the URL).
    pub callers: NfsCallers,
    /// Creates files with their length but without data.
    pub sparse: bool,
    /// Leaves the files on the server instead of removing them after each run.
    pub keep: bool,
}

/// Whose credentials calls have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NfsCallers {
    /// The user and group of the target's URL.
    #[default]
    Target,
    /// The user and groups of each call in the trace, where it uses AUTH_SYS; files belong to the trace's owners.
    Trace,
}

impl NfsCallers {
    pub(super) fn as_traced(self) -> bool {
        self == NfsCallers::Trace
    }

    /// Returns the setting's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            NfsCallers::Target => "target",
            NfsCallers::Trace => "trace",
        }
    }
}

impl Workload {
    /// Checks that a replay of NFS calls has no conflicting keys.
    ///
    /// # Errors
    /// The error names the first invalid key.
    pub(crate) fn check_nfs_replay(&self) -> Result<(), WorkloadError> {
        if self.nfs_replay.is_none() {
            return Ok(());
        }
        let plain = Workload::default();
        let stated = [
            ("format", self.format.is_some()),
            ("reading", self.reading.is_some()),
            ("map", self.map.is_some()),
            ("from", self.from.is_some()),
            ("for", self.length.is_some()),
            ("loop", self.repeat.is_some()),
            ("devices", !self.devices.is_empty()),
            ("conflicts", self.conflicts.is_some()),
            ("contents", self.contents.is_some()),
            ("data", self.data != plain.data),
            ("sync", self.sync.is_some()),
            ("verify", self.verify.is_some()),
            ("hosts", !self.hosts.is_empty()),
            ("workers", self.workers != plain.workers),
            // A repeated REMOVE would fail.
            ("retry", self.retry != plain.retry),
        ];
        if let Some((key, _)) = stated.into_iter().find(|(_, stated)| *stated) {
            wrong(
                key,
                "this key doesn't apply to replays of NFS calls; omit it",
            )?;
        }
        match self.engine {
            Some(EngineSetting::Auto) => {
                wrong("engine", "with `nfs_replay`, choose io_uring or threads")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_without_effect_are_refused() {
        let check = |text: &str, key: Option<&str>| {
            let text = format!("nfs_replay = {{ callers = \"trace\", sparse = true }}\n{text}");
            let workload: Workload = toml::from_str(&text).unwrap();
            assert_eq!(workload.check().err().map(|error| error.key), key, "{text}");
            let written: Workload = toml::from_str(&toml::to_string(&workload).unwrap()).unwrap();
            assert_eq!(written, workload);
        };
        check("stop = { time = \"1s\" }", Some("nfs_replay"));
        check("trace = \"x\"", None);
        check(
            "trace = \"x\"\ntiming = \"dependency\"\nspeed = 2\nspin = \"0\"\nqueue_depth = 9",
            None,
        );
        check("trace = \"x\"\nmap = \"pack\"", Some("map"));
        check("trace = \"x\"\nworkers = 2", Some("workers"));
        check("trace = \"x\"\nretry = { count = 2 }", Some("retry"));
        check("trace = \"x\"\nread = 0.5", Some("read"));
        check("trace = \"x\"\nengine = \"auto\"", Some("engine"));
    }
}
