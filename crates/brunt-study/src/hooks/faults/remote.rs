//! The driver for faults on other hosts: the host's agent injects the fault, proves it and removes it; times are
//! converted to our clock.
//!
//! The rule: a fault that an agent could not prove is not in effect. An agent that loses its connection to the
//! controller removes the fault itself.

use std::sync::Arc;

use brunt_core::Nanos;
use brunt_host::{FaultEnd, Fleet};
use brunt_lab::Proof;
use brunt_protocol::HostFault;

use crate::fault::{DriverError, FaultDriver, FaultEntry, Prepared};
use crate::host::HostName;

/// The driver of a fault on another host.
struct RemoteFault {
    fleet: Arc<Fleet>,
    host: HostName,
    what: HostFault,
    /// The fault's effect, as text.
    said: String,
    /// The fault's number and proof, once it is in effect.
    there: Option<(u32, Proof)>,
}

/// Prepares a fault on another host, which must have an agent in this fleet.
pub(super) fn prepare(
    entry: &FaultEntry,
    fleet: Option<&Arc<Fleet>>,
) -> Result<Prepared, DriverError> {
    let (Some(host), Some(what)) = (
        &entry.common.host,
        entry.kind.as_kind().on_host(&entry.common),
    ) else {
        unreachable!("the check of the file refuses faults that are not for other hosts")
    };
    let fleet = fleet.ok_or_else(|| {
        DriverError::unfit(format!("host {host} is not connected"), "see [hosts]")
    })?;
    let (fleet, host, said) = (
        Arc::clone(fleet),
        host.clone(),
        format!("{} on host {host}", entry.what()),
    );
    Ok(Prepared::new(move || {
        let (fleet, host, what, said) =
            (Arc::clone(&fleet), host.clone(), what.clone(), said.clone());
        Ok(Box::new(RemoteFault {
            fleet,
            host,
            what,
            said,
            there: None,
        }))
    }))
}

impl FaultDriver for RemoteFault {
    fn describe(&self) -> String {
        self.said.clone()
    }

    fn put(&mut self) -> Result<Option<Nanos>, DriverError> {
        let (number, seen) = self
            .fleet
            .put_fault(self.host.as_str(), self.what.clone())?;
        let (_, proof) = self.there.insert((number, seen));
        Ok(Some(proof.at))
    }

    fn poll(&mut self) -> Result<Option<Proof>, DriverError> {
        Ok(self.there.as_ref().map(|(_, proof)| proof.clone()))
    }

    fn take_away(&mut self) -> Result<Proof, DriverError> {
        let Some((number, _)) = self.there.take() else {
            return Err(DriverError::NotThere);
        };
        Ok(self.fleet.remove_fault(self.host.as_str(), number)?)
    }
}

impl Drop for RemoteFault {
    fn drop(&mut self) {
        if let Some((number, _)) = self.there.take() {
            // The result no longer matters; if the host is lost, its agent removes the fault.
            let _: Result<Proof, FaultEnd> = self.fleet.remove_fault(self.host.as_str(), number);
        }
    }
}
