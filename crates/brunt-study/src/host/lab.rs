//! A host of the lab: a network namespace that stands for a machine. Named in `[lab] hosts`, or by a table of its own
//! where it has settings.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HostName;
use super::kind::{HostInfo, HostKind, LaunchError, Launcher};
use crate::lab::BuiltLab;

pub(super) const INFO: HostInfo = HostInfo {
    name: "host of the lab",
    keys: &["cores"],
    marked: false,
    help: "a network namespace that stands for a machine",
    example: Some("cores = [0]"),
};

/// What may be said of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LabHost {
    /// Cores that the processes of this host of the lab are kept on, from 0; any by default. So target and workers do
    /// not take turns on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<Vec<usize>>,
}

impl HostKind for LabHost {
    fn has_links(&self) -> bool {
        true
    }

    fn launcher(&self, name: &HostName, lab: Option<&BuiltLab>) -> Result<Arc<dyn Launcher>, LaunchError> {
        let lab = lab.ok_or_else(|| LaunchError::NoLab(name.clone()))?;
        Ok(lab.launcher(name)?)
    }
}
