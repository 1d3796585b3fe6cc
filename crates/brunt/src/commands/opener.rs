//! Opens the targets of an experiment when it starts, using the table of all backends.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use brunt_block::Backend;
use brunt_study::experiment::Plan;
use brunt_study::startup::{DeviceOpener, StartupError};

use super::shared_storage;
use crate::cli::{Failure, Output};
use crate::devices;

/// Opens the targets of a plan.
pub(super) struct TargetOpener<'a> {
    pub plan: &'a Plan,
    pub output: &'a Output,
}

impl DeviceOpener for TargetOpener<'_> {
    type Error = Failure;

    fn open(&self, url: &str, read_only: bool) -> Result<Arc<dyn Backend>, Failure> {
        devices::open(url, read_only)
    }

    fn guard(&self, device: &dyn Backend, url: &str, allowed: bool) -> Result<(), Failure> {
        let allow = format!("allow it in the experiment: allow_overwrite = [\"{url}\"]");
        devices::guard(device, allowed, &allow, self.output)
    }

    fn check(&self, targets: &BTreeMap<String, Arc<dyn Backend>>) -> Result<(), Failure> {
        shared_storage::check(targets, self.plan, self.output)
    }

    fn note(&self, note: &dyn Display) {
        self.output.note(note);
    }
}

impl From<StartupError> for Failure {
    fn from(error: StartupError) -> Failure {
        let failure = match error.is_mistake() {
            true => Failure::usage(&error),
            false => Failure::failed(&error),
        };
        error.advice().into_iter().fold(failure, Failure::advise)
    }
}
