//! `[targets.NAME]`: something to measure. Either it already exists and has a URL, or the experiment serves it, in a
//! separate process on a free port, and measures it through the initiator:
//! ```toml
//! [targets.disk]
//! url = "/dev/nvme0n1"
//! [targets.diskless]
//! serve = "null:1TiB"                  # brunt target --lun null:1TiB
//! [targets.full]
//! serve = ["/dev/nvme1n1,wb", "memory:1GiB"]
//! lun = 0
//! options = "sessions=2"
//! [targets.network]
//! serve = "tcp"                        # brunt sink
//! serve = "nfs"                        # brunt sink --nfs
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::HostName;
use crate::role::{RoleKind, Serve, serving};

/// Placeholder for the name of the host that opens a target, in the URL of a per-client target.
pub const CLIENT_PLACE: &str = "{client}";

/// Maximum number of LUNs in a target that an experiment serves itself.
pub const LUNS_MAX: usize = 64;

/// A target to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Device URL: a path (file or block device), `null:SIZE`, `memory:SIZE`, `iscsi://host/name/lun`,
    /// `nbd://host/export`, `nfs://host/export/file`, `tcp://host:port`; see `brunt help devices`. `{client}` in it
    /// stands for the name of the host that opens it: each of a workload's `hosts` then has its own target, such as
    /// `nbd://server/{client}`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// Instead of `url`: a target that the experiment starts itself and measures over TCP. A LUN in the form of
    /// `brunt target --lun`, a list of LUNs, `tcp` for the network alone (`brunt sink`), or `nfs` for
    /// the folder of an NFS server that keeps names but no data (`brunt sink --nfs`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve: Option<Serve>,
    /// With `serve`: the host that serves the target: one of the lab's, one of `[hosts]`, or `local` (the machine
    /// that runs the experiment).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// With several LUNs in `serve`: index of the LUN to measure; default: the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun: Option<u16>,
    /// With `serve`: options for the URL with which the target is opened, such as `sessions=2&send_buffer=64k`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<String>,
    /// Workloads to run against this target; default: all that are in no group under `together`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workloads: Option<Vec<String>>,
}

/// A mistake in a target: the wrong key, what is wrong, and what would be correct.
type TargetMistake = (&'static str, String, Option<String>);

fn help(text: &str) -> Option<String> {
    Some(text.to_string())
}

impl Target {
    /// What is measured, as written in the file: a URL, or what is served.
    pub fn place(&self) -> &str {
        match &self.serve {
            None => &self.url,
            Some(serve) => serve
                .words()
                .get(usize::from(self.lun.unwrap_or(0)))
                .map_or("", String::as_str),
        }
    }

    /// The role that serves the target; `None` for a target with a URL.
    pub fn role(&self) -> Option<Box<dyn RoleKind>> {
        self.serve.as_ref().map(serving)
    }

    /// The URL that opens the target while its role listens on `address`; the target's own URL if the experiment
    /// doesn't serve it.
    pub fn url_at(&self, address: std::net::SocketAddr) -> String {
        let served = self
            .role()
            .and_then(|role| role.url(address, self.lun.unwrap_or(0)));
        let Some(mut url) = served else {
            return self.url.clone();
        };
        if let Some(options) = &self.options {
            let join = if url.contains('?') { '&' } else { '?' };
            url += &format!("{join}{options}");
        }
        url
    }

    /// Whether each host that opens the target has a separate one.
    pub fn is_each_clients_own(&self) -> bool {
        self.url.contains(CLIENT_PLACE)
    }

    /// The target as this host opens it.
    pub fn of_client(&self, host: &str) -> Target {
        Target {
            url: self.url.replace(CLIENT_PLACE, host),
            ..self.clone()
        }
    }

    /// Checks the target's keys against each other.
    pub(super) fn check(&self) -> Result<(), TargetMistake> {
        match self.role() {
            Some(role) => self.check_served(&*role),
            None => self.check_opened(),
        }
    }

    /// Checks a target that already exists.
    fn check_opened(&self) -> Result<(), TargetMistake> {
        if self.url.is_empty() {
            let what = "it has neither url nor serve".to_string();
            return Err((
                "url",
                what,
                help("add url = \"memory:1GiB\", or serve = \"memory:1GiB\""),
            ));
        }
        let there = [
            ("lun", self.lun.is_some()),
            ("options", self.options.is_some()),
            ("host", self.host.is_some()),
        ];
        for (key, there) in there {
            if there {
                let what = format!("{key} is only for served targets, but this target has a url");
                return Err((key, what, help("write it in the url")));
            }
        }
        Ok(())
    }

    /// Checks a target that the experiment serves in this role.
    fn check_served(&self, role: &dyn RoleKind) -> Result<(), TargetMistake> {
        if self
            .serve
            .iter()
            .flat_map(Serve::words)
            .any(|lun| lun.contains(CLIENT_PLACE))
        {
            let what =
                format!("serve contains {CLIENT_PLACE}, but one target is served for all clients");
            return Err((
                "serve",
                what,
                help("for each client, serve a target as a service, and write its url"),
            ));
        }
        if !self.url.is_empty() {
            let what = "it has both url and serve".to_string();
            return Err(("serve", what, help("remove one of the two")));
        }
        let Some(luns) = role.luns() else {
            return match self.lun {
                Some(_) => {
                    let what = format!("a {} has no LUNs", role.info().name);
                    Err(("lun", what, help("omit lun")))
                }
                None => Ok(()),
            };
        };
        if !(1..=LUNS_MAX).contains(&luns.len()) {
            return Err((
                "serve",
                format!("{} LUNs; write 1 to {LUNS_MAX}", luns.len()),
                None,
            ));
        }
        if let Some(empty) = luns.iter().position(|lun| lun.trim().is_empty()) {
            return Err((
                "serve",
                format!("LUN {empty} is empty"),
                help("write a LUN such as \"memory:1GiB\""),
            ));
        }
        match self.lun {
            Some(lun) if usize::from(lun) >= luns.len() => {
                let what = format!(
                    "LUN {lun} is measured, but only {} are served, numbered from 0",
                    luns.len()
                );
                Err(("lun", what, None))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role::TARGET_NAME;

    fn parse(text: &str) -> Result<Target, String> {
        let target: Target = toml::from_str(text).map_err(|error| error.to_string())?;
        target
            .check()
            .map_err(|(key, what, _)| format!("{key}: {what}"))?;
        Ok(target)
    }

    /// A served target is opened at the address where its role listens.
    #[test]
    fn a_served_target_is_opened_where_its_role_listens() {
        let at = "127.0.0.1:9".parse().unwrap();
        let check = |text: &str, place: &str, url: &str| {
            let target = parse(text).unwrap();
            assert_eq!(
                (target.place(), target.url_at(at).as_str()),
                (place, url),
                "{text}"
            );
        };
        check("url = \"null:1GiB\"", "null:1GiB", "null:1GiB");
        check(
            "serve = \"null:1GiB\"",
            "null:1GiB",
            &format!("iscsi://127.0.0.1:9/{TARGET_NAME}/0"),
        );
        check(
            "serve = \"tcp\"\noptions = \"connections=2\"",
            "tcp",
            "tcp://127.0.0.1:9?connections=2",
        );
        check(
            "serve = \"nfs\"\noptions = \"connections=2\"",
            "nfs",
            "nfs://127.0.0.1:9/export/?mountport=9&connections=2",
        );
        let two = "serve = [\"null:1GiB\", \"memory:1MiB,wb\"]\nlun = 1";
        check(
            two,
            "memory:1MiB,wb",
            &format!("iscsi://127.0.0.1:9/{TARGET_NAME}/1"),
        );
    }

    /// Contradictions are reported by name.
    #[test]
    fn contradictions_are_reported_by_name() {
        let check = |text: &str, words: &str| {
            let error = parse(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        };
        check("", "neither url");
        check("url = \"a\"\nserve = \"b\"", "both url and serve");
        check("url = \"a\"\nlun = 1", "is only for served targets");
        check(
            "url = \"a\"\noptions = \"x=1\"",
            "is only for served targets",
        );
        check("serve = 7", "a LUN such as");
        check("serve = []", "0 LUNs");
        check("serve = [\"null:1M\", \"\"]", "LUN 1 is empty");
        check("serve = \"null:1M\"\nlun = 1", "from 0");
        check("serve = \"tcp\"\nlun = 0", "a sink has no LUNs");
        check(
            "serve = \"/tmp/{client}.img\"",
            "one target is served for all clients",
        );
    }
}
