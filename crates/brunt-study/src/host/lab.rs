//! A lab host: an emulated machine (network namespace). It is listed in `[lab] hosts`, or has its own table if it has
//! settings.

use std::sync::Arc;

use brunt_host::{HostAddress, HostPlace};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HostName;
use super::kind::{HostInfo, HostKind, LabLaunchers, LaunchError, Launcher};

pub(super) const INFO: HostInfo = HostInfo {
    name: "host of the lab",
    keys: &["cores"],
    marked: false,
    help: "an emulated machine (network namespace)",
    example: Some("cores = [0]"),
};

/// Settings of a lab host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LabHost {
    /// CPU cores, counted from 0, to which the processes of this lab host are pinned; default: all. Prevents the
    /// target and the workers from sharing a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<Vec<usize>>,
}

impl HostKind for LabHost {
    fn has_links(&self) -> bool {
        true
    }

    /// A separate agent in the host's network and on its cores runs the loads; it is the same program that ssh starts
    /// on another machine.
    fn runs_loads_at(&self, name: &HostName) -> Option<HostPlace> {
        let address = HostAddress::Lab {
            name: name.to_string(),
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
        lab: Option<&dyn LabLaunchers>,
    ) -> Result<Arc<dyn Launcher>, LaunchError> {
        let lab = lab.ok_or_else(|| LaunchError::NoLab(name.clone()))?;
        Ok(lab.launcher(name)?)
    }
}
