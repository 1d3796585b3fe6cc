//! A virtual machine run by a service of the experiment. The service opens the machine's disk on the service's host,
//! so a load in the machine passes through a guest's file system and page cache, and then over that host's links. Its
//! agent communicates over a serial port that ends at a Unix socket in the service's folder and is not part of the
//! measured network.

use std::sync::Arc;

use brunt_host::{HostAddress, HostPlace};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HostName;
use super::kind::{HostInfo, HostKind, LabLaunchers, LaunchError, Launcher};

pub(super) const INFO: HostInfo = HostInfo {
    name: "guest",
    keys: &["guest"],
    marked: true,
    help: "a virtual machine that a service runs",
    example: Some("guest = \"vm\""),
};

/// The service that runs the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestHost {
    /// A virtual machine that runs workloads: the name of the service that runs it. The agent in the machine (`brunt
    /// agent --stdio`) communicates over a serial port that is connected to the Unix socket `agent` in that service's
    /// folder (docs/indexes.md).
    pub guest: String,
}

impl HostKind for GuestHost {
    fn has_links(&self) -> bool {
        false
    }

    fn service(&self) -> Option<&str> {
        Some(&self.guest)
    }

    fn runs_loads_at(&self, _name: &HostName) -> Option<HostPlace> {
        let address = HostAddress::Guest {
            service: self.guest.clone(),
        };
        Some(HostPlace {
            address,
            identity: None,
            ssh: Vec::new(),
            program: None,
        })
    }

    fn launcher(
        &self,
        name: &HostName,
        _lab: Option<&dyn LabLaunchers>,
    ) -> Result<Arc<dyn Launcher>, LaunchError> {
        Err(LaunchError::OtherMachine(name.clone()))
    }
}
