//! `[targets.NAME]`: something to measure. Either it is there already and has a URL, or the experiment
//! serves it itself, in a process of its own on a free port, and measures it through the initiator:
//!
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
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::HostName;

/// Most LUNs of a target that an experiment serves itself.
pub const LUNS_MAX: usize = 64;
/// The iSCSI name of a target that an experiment serves itself.
pub const TARGET_NAME: &str = "iqn.2026-11.io.brunt:t0";

/// Something to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// A path (file or block device), `null:SIZE`, `memory:SIZE`, `iscsi://host/name/lun`,
    /// `tcp://host:port`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// In place of a URL: what the experiment serves itself while it lasts, and measures over TCP. A LUN as
    /// `brunt target --lun` takes it, a list of them, or `tcp` for the network alone (`brunt sink`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve: Option<Serve>,
    /// The host on which it is served: one of the lab's, or `local`, the machine that runs the experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// Which of the served LUNs is measured; the first one by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun: Option<u16>,
    /// Options of the URL with which what is served is opened: `sessions=2&send_buffer=64k`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<String>,
    /// Names of the workloads that are run against this target; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workloads: Option<Vec<String>>,
}

/// What an experiment serves itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected what is served: a LUN such as \"memory:1GiB\", a list of LUNs, or \"tcp\""
)]
pub enum Serve {
    /// One LUN, or `tcp`.
    One(String),
    /// LUNs, from 0.
    Luns(Vec<String>),
}

impl Serve {
    /// Whether it is a sink and no target.
    pub fn is_sink(&self) -> bool {
        matches!(self, Serve::One(text) if text == "tcp")
    }

    /// The LUNs; none of a sink.
    pub fn luns(&self) -> &[String] {
        match self {
            _ if self.is_sink() => &[],
            Serve::One(lun) => std::slice::from_ref(lun),
            Serve::Luns(luns) => luns,
        }
    }
}

impl Target {
    /// What is measured, as it is written: a URL, or what is served.
    pub fn place(&self) -> &str {
        match &self.serve {
            None => &self.url,
            Some(serve) if serve.is_sink() => "tcp",
            Some(serve) => serve.luns().get(usize::from(self.lun.unwrap_or(0))).map_or("", String::as_str),
        }
    }

    /// Where it is opened once its role listens at `address`; the URL of what is not served.
    pub fn url_at(&self, address: std::net::SocketAddr) -> String {
        let Some(serve) = &self.serve else { return self.url.clone() };
        let mut url = match serve.is_sink() {
            true => format!("tcp://{address}"),
            false => format!("iscsi://{address}/{TARGET_NAME}/{}", self.lun.unwrap_or(0)),
        };
        if let Some(options) = &self.options {
            url += &format!("?{options}");
        }
        url
    }

    /// The key that is wrong, what, and what would be right.
    pub(super) fn check(&self) -> Result<(), (&'static str, String, Option<String>)> {
        let help = |text: &str| Some(text.to_string());
        let Some(serve) = &self.serve else {
            if self.url.is_empty() {
                let what = "it has neither a url nor something to serve".to_string();
                return Err(("url", what, help("add url = \"memory:1GiB\", or serve = \"memory:1GiB\"")));
            }
            let there = [
                ("lun", self.lun.is_some()),
                ("options", self.options.is_some()),
                ("host", self.host.is_some()),
            ];
            for (key, there) in there {
                if there {
                    let what = format!("{key} belongs to what is served; this target has a url");
                    return Err((key, what, help("write it into the url")));
                }
            }
            return Ok(());
        };
        if !self.url.is_empty() {
            let what = "it has a url and something to serve: which of them is measured?".to_string();
            return Err(("serve", what, help("leave one of the two out")));
        }
        let luns = serve.luns();
        if !serve.is_sink() && !(1..=LUNS_MAX).contains(&luns.len()) {
            return Err(("serve", format!("{} LUNs; write 1 to {LUNS_MAX}", luns.len()), None));
        }
        if let Some(empty) = luns.iter().position(|lun| lun.trim().is_empty()) {
            return Err((
                "serve",
                format!("LUN {empty} names nothing"),
                help("write a LUN such as \"memory:1GiB\""),
            ));
        }
        match self.lun {
            Some(_) if serve.is_sink() => Err(("lun", "a sink has no LUNs".into(), help("leave lun out"))),
            Some(lun) if usize::from(lun) >= luns.len() => {
                let what = format!("LUN {lun} is measured, but {} are served, from 0", luns.len());
                Err(("lun", what, None))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Target, String> {
        let target: Target = toml::from_str(text).map_err(|error| error.to_string())?;
        target.check().map_err(|(key, what, _)| format!("{key}: {what}"))?;
        Ok(target)
    }

    /// What is served is opened where its role listens.
    #[test]
    fn places() {
        let at = "127.0.0.1:9".parse().unwrap();
        let check = |text: &str, place: &str, url: &str| {
            let target = parse(text).unwrap();
            assert_eq!((target.place(), target.url_at(at).as_str()), (place, url), "{text}");
        };
        check("url = \"null:1GiB\"", "null:1GiB", "null:1GiB");
        check("serve = \"null:1GiB\"", "null:1GiB", &format!("iscsi://127.0.0.1:9/{TARGET_NAME}/0"));
        check("serve = \"tcp\"\noptions = \"connections=2\"", "tcp", "tcp://127.0.0.1:9?connections=2");
        let two = "serve = [\"null:1GiB\", \"memory:1MiB,wb\"]\nlun = 1";
        check(two, "memory:1MiB,wb", &format!("iscsi://127.0.0.1:9/{TARGET_NAME}/1"));
    }

    /// Contradictions are named.
    #[test]
    fn mistakes() {
        let check = |text: &str, words: &str| {
            let error = parse(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        };
        check("", "neither a url");
        check("url = \"a\"\nserve = \"b\"", "which of them");
        check("url = \"a\"\nlun = 1", "belongs to what is served");
        check("url = \"a\"\noptions = \"x=1\"", "belongs to what is served");
        check("serve = 7", "a LUN such as");
        check("serve = []", "0 LUNs");
        check("serve = [\"null:1M\", \"\"]", "LUN 1 names nothing");
        check("serve = \"null:1M\"\nlun = 1", "from 0");
        check("serve = \"tcp\"\nlun = 0", "a sink has no LUNs");
    }
}
