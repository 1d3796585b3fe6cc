//! A machine reached over ssh: the experiment starts an agent there, which ends with the experiment and leaves
//! nothing behind.

use std::sync::Arc;

use brunt_host::{HostPlace, is_plain_word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HostName;
use super::kind::{
    HostInfo, HostKind, KeyMistake, LabLaunchers, LaunchError, Launcher, check_address,
};

pub(super) const INFO: HostInfo = HostInfo {
    name: "host by ssh",
    keys: &[
        "ssh",
        "command",
        "program",
        "bridge",
        "capture",
        "address",
        "interfaces",
    ],
    marked: true,
    help: "a machine reached over ssh, with nothing installed there",
    example: Some(
        "ssh = \"root@node7\"\ncommand = \"ssh -F lab.conf\"\nprogram = \"/opt/brunt/brunt\"\nbridge = [\"eth0\", \"eth1\"]\ncapture = \"/var/tmp/wire.pcapng\"\naddress = \"10.0.0.9\"\ninterfaces = [\"eth1\"]",
    ),
};

/// How to reach the machine over ssh.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SshHost {
    /// A machine that runs workloads, as written for ssh: `user@host`, or a host name from ssh's configuration.
    /// Nothing has to be installed there (docs/agents.md).
    pub ssh: String,
    /// With `ssh`: the ssh command, with options separated by spaces; default: `ssh`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// With `ssh`: path of the brunt binary to run there; default: the binary in its PATH if that has this version,
    /// otherwise a copy of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// With `ssh` or `agent`: two interfaces of this machine, which is in the network path between other machines.
    /// The machine forwards everything between them while the experiment lasts; `bridge` faults impair that traffic.
    /// This requires root on that machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<[String; 2]>,
    /// With `bridge`: absolute path of a new file on that machine, to which the packets of both
    /// sides are saved as they arrive; pcapng with both interfaces if its name ends in `.pcapng`,
    /// otherwise pcap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<String>,
    /// With `ssh` or `agent`: the name or IP address at which targets (`serve`) and services on this host listen and
    /// other hosts reach them; default: the host part of `agent` or `ssh`. An address on another network keeps
    /// control traffic off the measured network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// With `ssh` or `agent`: interfaces of this machine whose bytes count for data-transfer efficiency during each
    /// run (docs/indexes.md); default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
}

impl HostKind for SshHost {
    fn interfaces(&self) -> &[String] {
        &self.interfaces
    }

    fn bridge(&self) -> Option<&[String; 2]> {
        self.bridge.as_ref()
    }

    fn capture(&self) -> Option<&str> {
        self.capture.as_deref()
    }

    fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    fn has_links(&self) -> bool {
        false
    }

    fn launcher(
        &self,
        name: &HostName,
        _lab: Option<&dyn LabLaunchers>,
    ) -> Result<Arc<dyn Launcher>, LaunchError> {
        Err(LaunchError::OtherMachine(name.clone()))
    }

    fn place(&self) -> Result<Option<HostPlace>, KeyMistake> {
        check_address(self.address())?;
        let wrong = |key, what: String, help: &str| KeyMistake {
            key,
            what,
            help: help.to_string(),
        };
        let address = format!("ssh:{}", self.ssh).parse();
        let address = address.map_err(|_| {
            wrong(
                "ssh",
                format!("'{}' is not a host name", self.ssh),
                "write user@host, as for ssh itself",
            )
        })?;
        let command = self.command.as_deref().unwrap_or("ssh");
        let ssh: Vec<String> = command.split_whitespace().map(String::from).collect();
        if ssh.is_empty() {
            return Err(wrong(
                "command",
                "the ssh command is empty".into(),
                "write \"ssh -F FILE\", for example",
            ));
        }
        if let Some(program) = self
            .program
            .as_deref()
            .filter(|program| !is_plain_word(program))
        {
            let what = format!(
                "'{program}' contains characters that the remote host's shell treats specially"
            );
            return Err(wrong("program", what, "use a plain path"));
        }
        Ok(Some(HostPlace {
            address,
            identity: None,
            ssh,
            program: self.program.clone(),
        }))
    }
}
