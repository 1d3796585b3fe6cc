//! The clients of a replay as a single device: each call is sent on the connections of its client.
//!
//! The rule: calls of a client keep their order if it has only one connection; the target's `connections` may give it
//! more.

use std::collections::VecDeque;
use std::sync::Arc;

use brunt_block::{Completion, Device, DeviceInfo, Health, Request};
use brunt_core::Nanos;

use super::plan::ReplayActions;

/// A device for one client, or for several of them.
pub(super) struct ClientDevices {
    devices: Vec<Box<dyn Device>>,
    /// Each client's remaining actions.
    batches: Vec<VecDeque<Request>>,
    plan: Arc<ReplayActions>,
}

impl ClientDevices {
    /// The offset of a request is the index of its call.
    pub(super) fn new(devices: Vec<Box<dyn Device>>, plan: Arc<ReplayActions>) -> ClientDevices {
        ClientDevices {
            batches: devices.iter().map(|_| VecDeque::new()).collect(),
            devices,
            plan,
        }
    }

    fn pass_on(&mut self) {
        for (device, batch) in self.devices.iter_mut().zip(&mut self.batches) {
            if !batch.is_empty() {
                device.submit(batch);
            }
        }
    }
}

impl Device for ClientDevices {
    fn info(&self) -> &DeviceInfo {
        self.devices[0].info()
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        for request in batch.drain(..) {
            let client = self.plan.actions[request.offset as usize].client;
            let index = client as usize % self.devices.len();
            self.batches[index].push_back(request);
        }
        self.pass_on();
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        self.devices.iter_mut().for_each(|device| device.poll(done));
        self.pass_on();
    }

    fn outstanding(&self) -> u32 {
        let waiting: usize = self.batches.iter().map(VecDeque::len).sum();
        let taken: u32 = self.devices.iter().map(|device| device.outstanding()).sum();
        taken + waiting as u32
    }

    fn deadline(&self) -> Nanos {
        let deadlines = self.devices.iter().map(|device| device.deadline());
        deadlines.min().unwrap_or(Nanos::MAX)
    }

    fn cancel(&mut self, tag: u64) {
        self.devices
            .iter_mut()
            .for_each(|device| device.cancel(tag));
    }

    fn health(&self) -> Health {
        let mut all = Health::default();
        self.devices
            .iter()
            .for_each(|device| all.add(device.health()));
        all
    }
}
