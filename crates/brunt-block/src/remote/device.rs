//! One thread's links to a remote device.
//!
//! The rule: requests that the device's properties rule out never reach a session.

use std::collections::VecDeque;

use brunt_core::{Clock, Nanos};

use super::link::RemoteLink;
use super::protocol::RemoteProtocol;
use crate::backends::{in_bounds, in_range};
use crate::{Completion, Device, DeviceError, DeviceInfo, Health, Op, Request, hand_out};

/// A device on one or more links. `K`, for example a count of connections in use, is kept as long as the device exists.
#[derive(Debug)]
pub struct RemoteDevice<P: RemoteProtocol, K> {
    info: DeviceInfo,
    links: Vec<RemoteLink<P>>,
    clock: Clock,
    _kept: K,
}

impl<P: RemoteProtocol, K> RemoteDevice<P, K> {
    /// Creates a device with these properties on these links.
    pub fn new(info: DeviceInfo, links: Vec<RemoteLink<P>>, kept: K) -> RemoteDevice<P, K> {
        RemoteDevice {
            info,
            links,
            clock: Clock::Monotonic,
            _kept: kept,
        }
    }
}

/// Whether a request has work to do. An empty request doesn't, wherever it lies in the device.
#[inline]
fn check(info: &DeviceInfo, request: &Request) -> Result<bool, DeviceError> {
    if request.len == 0 && request.op != Op::Flush {
        return in_range(info, request).map(|()| false);
    }
    in_bounds(info, request).map(|()| true)
}

impl<P: RemoteProtocol, K> Device for RemoteDevice<P, K> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        if batch.is_empty() {
            return;
        }
        let now = self.clock.now();
        let info = &self.info;
        hand_out(&mut self.links, batch, |link, request| {
            match check(info, &request) {
                Ok(true) => link.submit(request, now),
                Ok(false) => link.answer(request, Ok(())),
                Err(error) => link.answer(request, Err(error)),
            }
        });
        self.links.iter_mut().for_each(RemoteLink::send);
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        for link in &mut self.links {
            link.poll(&self.clock, done);
        }
    }

    fn outstanding(&self) -> u32 {
        self.links.iter().map(RemoteLink::outstanding).sum()
    }

    fn deadline(&self) -> Nanos {
        self.links
            .iter()
            .map(RemoteLink::deadline)
            .min()
            .unwrap_or(Nanos::MAX)
    }

    fn cancel(&mut self, tag: u64) {
        self.links.iter_mut().for_each(|link| link.cancel(tag));
    }

    fn health(&self) -> Health {
        let mut health = Health::default();
        self.links
            .iter()
            .for_each(|link| link.add_health(&mut health));
        health
    }
}
