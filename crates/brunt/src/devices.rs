//! Opens what a device URL names: the backends of `brunt-block`, and a LUN through the initiator.
//! Every command that takes a device URL comes here.

use std::sync::Arc;

use brunt_block::{Backend, OpenError, open_url_with, signature};

use crate::cli::Failure;

/// Opens a device; `read_only` when nothing will be written.
pub fn open(url: &str, read_only: bool) -> Result<Arc<dyn Backend>, Failure> {
    open_url_with(url, &[brunt_iscsi::initiator::ENTRY], read_only).map_err(|error| match error {
        // What is wrong with the text is one thing, a target that does not answer another.
        OpenError::Refused(_) | OpenError::Os { .. } | OpenError::InUse { .. } => Failure::failed(error),
        _ => Failure::usage(error),
    })
}

/// Refuses to write to a device that holds something, unless the user said that it may be lost.
pub fn guard(backend: &dyn Backend, overwrite: bool) -> Result<(), Failure> {
    if overwrite {
        return Ok(());
    }
    let name = &backend.info().name;
    match signature::look(backend) {
        Ok(None) => Ok(()),
        Ok(Some(what)) => Err(Failure::usage(format!("{name} holds {what}"))
            .advise("add --overwrite if what is on this device may be lost")),
        Err(error) => Err(Failure::failed(format!("cannot look at what {name} holds: {error}"))
            .advise("add --overwrite to write without looking")),
    }
}
