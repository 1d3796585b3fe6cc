//! Helpers for several tests of this crate.

use brunt_protocol::{Assignment, LoadStep, Secret};

/// An assignment for run 1: a block load with a single worker on `target`.
pub(crate) fn assignment(load: &str, target: &str) -> Assignment {
    Assignment {
        run: 1,
        seed: 1,
        first_worker: 0,
        workers_of_all: 1,
        workers_on_device: 1,
        kind: "block".into(),
        load: load.into(),
        member: String::new(),
        step: LoadStep::Run,
        target: Secret(target.into()),
        overwrite: false,
        journals: false,
        joined: Vec::new(),
    }
}
