//! A kind of host for tests: it needs only this file and one line in the table.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HostName;
use super::here::Here;
use super::kind::{HostInfo, HostKind, LabLaunchers, LaunchError, Launcher};

pub(super) const INFO: HostInfo = HostInfo {
    name: "machine by test_only",
    keys: &["test_only"],
    marked: true,
    help: "this machine by another name",
    example: Some("test_only = \"somebody@somewhere\""),
};

/// Settings of this kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TestOnly {
    /// Selects this kind.
    pub test_only: String,
}

impl HostKind for TestOnly {
    fn has_links(&self) -> bool {
        false
    }

    fn launcher(
        &self,
        name: &HostName,
        lab: Option<&dyn LabLaunchers>,
    ) -> Result<Arc<dyn Launcher>, LaunchError> {
        Here {}.launcher(name, lab)
    }
}
