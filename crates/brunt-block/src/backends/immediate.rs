//! A device that serves each request during submission. Opened by `null` and `memory`.

use std::collections::VecDeque;

use brunt_core::Nanos;

use super::in_range;
use crate::{Completion, Device, DeviceInfo, Request};

/// Serves requests that lie in the device with a function; the others complete with an error.
pub(super) struct Immediate<F> {
    info: DeviceInfo,
    serve: F,
    done: Vec<Completion>,
    depth: usize,
}

impl<F: FnMut(&mut Request)> Immediate<F> {
    pub(super) fn new(info: &DeviceInfo, depth: u32, serve: F) -> Immediate<F> {
        let depth = depth as usize;
        Immediate { info: info.clone(), serve, done: Vec::with_capacity(depth), depth }
    }
}

impl<F: FnMut(&mut Request)> Device for Immediate<F> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        while self.done.len() < self.depth {
            let Some(mut request) = batch.pop_front() else { break };
            let result = in_range(&self.info, &request).map(|()| (self.serve)(&mut request));
            self.done.push(Completion { tag: request.tag, buf: request.buf, result });
        }
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        debug_assert!(self.done.len() <= self.depth);
        done.append(&mut self.done);
    }

    fn outstanding(&self) -> u32 {
        self.done.len() as u32
    }

    fn deadline(&self) -> Nanos {
        if self.done.is_empty() { Nanos::MAX } else { Nanos(0) }
    }
}
