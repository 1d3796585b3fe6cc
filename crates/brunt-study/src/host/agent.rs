//! A machine with a listening agent (`brunt agent --listen`), behind TLS with certificates on both sides.

use std::path::PathBuf;
use std::sync::Arc;

use brunt_host::HostPlace;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HostName;
use super::kind::{
    HostInfo, HostKind, KeyMistake, LabLaunchers, LaunchError, Launcher, check_address,
};

pub(super) const INFO: HostInfo = HostInfo {
    name: "host by agent",
    keys: &[
        "agent",
        "identity",
        "bridge",
        "capture",
        "address",
        "interfaces",
    ],
    marked: true,
    help: "a machine with a listening agent",
    example: Some(
        "agent = \"node8:7420\"\nidentity = \"certificates/controller.pem\"\nbridge = [\"eth0\", \"eth1\"]\ncapture = \"/var/tmp/wire.pcapng\"\naddress = \"10.0.0.9\"\ninterfaces = [\"eth1\"]",
    ),
};

/// The address where the agent listens, and the identity that we present to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentHost {
    /// A machine that runs workloads: the address of its agent, `host:port`, with the host as in the agent's
    /// certificate (docs/agents.md).
    pub agent: String,
    /// With `agent`: the controller's certificate and key, a file from `brunt agent init`, next to the experiment
    /// file.
    pub identity: PathBuf,
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

impl HostKind for AgentHost {
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
        let address = format!("agent:{}", self.agent)
            .parse()
            .map_err(|_| KeyMistake {
                key: "agent",
                what: format!("'{}' is not a host and port", self.agent),
                help: "write host:port; [::1]:7420 for IPv6".to_string(),
            })?;
        let identity = Some(self.identity.clone());
        Ok(Some(HostPlace {
            address,
            identity,
            ssh: Vec::new(),
            program: None,
        }))
    }
}
