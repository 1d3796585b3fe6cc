//! `null:SIZE`: drops writes, reads zeros. The diskless mode of papers/iscsi-performance-analysis,
//! 2.2: what is left of a measurement when the disk is taken away. Served inline.

use std::collections::VecDeque;
use std::sync::Arc;

use brunt_core::Nanos;

use super::in_range;
use crate::table::BackendEntry;
use crate::{Backend, Completion, Device, DeviceError, DeviceInfo, Inline, Op, Request, Ring};

/// The line for the table.
pub const ENTRY: BackendEntry = BackendEntry {
    name: "null",
    help: "drops writes, reads zeros",
    example: "null:1GiB",
    options: &[("block", "logical block in bytes, 512 (default) or 4096")],
    open: |size, options| {
        let block_bytes = options.block()?.unwrap_or(512);
        Ok(Arc::new(NullBackend::new(super::size_of(size, block_bytes)?, block_bytes)))
    },
};

/// The backend.
pub struct NullBackend {
    info: DeviceInfo,
}

impl NullBackend {
    /// A device of `size_bytes` in blocks of `block_bytes`.
    pub fn new(size_bytes: u64, block_bytes: u32) -> NullBackend {
        let name = format!("null:{}", brunt_core::units::format_size(size_bytes));
        NullBackend { info: DeviceInfo { name, unmap: true, ..super::inline_info(size_bytes, block_bytes) } }
    }
}

impl Backend for NullBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn open(&self, _ring: &Ring, depth: u32) -> Result<Box<dyn Device>, DeviceError> {
        Ok(Box::new(NullDevice {
            info: self.info.clone(),
            done: Vec::with_capacity(depth as usize),
            depth: depth as usize,
        }))
    }

    fn inline(&self) -> Inline {
        Inline::Zeros
    }
}

struct NullDevice {
    info: DeviceInfo,
    done: Vec<Completion>,
    depth: usize,
}

impl Device for NullDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        while self.done.len() < self.depth {
            let Some(mut request) = batch.pop_front() else { break };
            let result = in_range(&self.info, &request);
            if result.is_ok() && request.op == Op::Read {
                request.buf[..request.len as usize].fill(0);
            }
            self.done.push(Completion { tag: request.tag, buf: request.buf, result });
        }
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }

    fn outstanding(&self) -> u32 {
        self.done.len() as u32
    }

    fn deadline(&self) -> Nanos {
        if self.done.is_empty() { Nanos::MAX } else { Nanos(0) }
    }
}
