//! A device that serves each request during submission. Opened by `null` and `memory`.

use std::collections::VecDeque;

use brunt_core::Nanos;

use super::in_size;
use crate::{Completion, Device, DeviceInfo, Request};

/// Serves requests that lie within the device by calling a function; others complete with an error.
pub(super) struct Immediate<S, F> {
    info: DeviceInfo,
    /// The current size in bytes.
    size: S,
    serve: F,
    done: Vec<Completion>,
    depth: usize,
}

impl<S: Fn() -> u64, F: FnMut(&mut Request)> Immediate<S, F> {
    pub(super) fn new(info: &DeviceInfo, depth: u32, size: S, serve: F) -> Immediate<S, F> {
        let depth = depth as usize;
        Immediate {
            info: info.clone(),
            size,
            serve,
            done: Vec::with_capacity(depth),
            depth,
        }
    }
}

impl<S: Fn() -> u64, F: FnMut(&mut Request)> Device for Immediate<S, F> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        while self.done.len() < self.depth {
            let Some(mut request) = batch.pop_front() else {
                break;
            };
            let result =
                in_size(&self.info, (self.size)(), &request).map(|()| (self.serve)(&mut request));
            self.done.push(Completion {
                tag: request.tag,
                buf: request.buf,
                result,
            });
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
        if self.done.is_empty() {
            Nanos::MAX
        } else {
            Nanos(0)
        }
    }
}
