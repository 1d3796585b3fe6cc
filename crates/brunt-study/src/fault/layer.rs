//! The fault layer that storage faults need on a device, in this process or in a target that the experiment serves.

use std::sync::Arc;

use brunt_block::Backend;
use brunt_block::layers::fault::{FaultBackend, FaultSwitch};
use brunt_core::Clock;

/// Returns the device with a fault layer on top, named `fault`, unless it already has a fault layer.
pub fn with_fault_layer(backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
    let has_one = backend
        .handles()
        .iter()
        .any(|(_, handle)| handle.downcast_ref::<FaultSwitch>().is_some());
    match has_one {
        true => backend,
        false => Arc::new(FaultBackend::new(
            backend,
            FaultSwitch::new("fault"),
            Clock::Monotonic,
        )),
    }
}
