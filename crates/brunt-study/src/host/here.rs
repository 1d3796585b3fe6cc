//! The machine that runs the experiment; it is part of every experiment, under a reserved name. Roles listen on
//! loopback, so lab hosts can't reach them.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HostName;
use super::kind::{HostInfo, HostKind, LabLaunchers, LaunchError, Launcher};

pub(super) const INFO: HostInfo = HostInfo {
    name: "this machine",
    keys: &[],
    marked: true,
    help: "the machine that runs the experiment; its name is local",
    example: None,
};

/// This machine has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Here {}

impl HostKind for Here {
    fn has_links(&self) -> bool {
        false
    }

    fn launcher(
        &self,
        name: &HostName,
        _lab: Option<&dyn LabLaunchers>,
    ) -> Result<Arc<dyn Launcher>, LaunchError> {
        Ok(Arc::new(LocalLauncher { name: name.clone() }))
    }
}

/// Starts programs on this machine.
#[derive(Clone, Debug)]
pub struct LocalLauncher {
    name: HostName,
}

impl Default for LocalLauncher {
    fn default() -> LocalLauncher {
        LocalLauncher {
            name: HostName::local(),
        }
    }
}

impl Launcher for LocalLauncher {
    fn host(&self) -> &HostName {
        &self.name
    }

    fn address(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    }

    fn place(&self, _command: &mut Command) -> io::Result<()> {
        Ok(())
    }
}
