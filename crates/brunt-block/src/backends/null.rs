//! `null:SIZE`: discards writes; reads return zeros. The diskless mode of Aiken and Grunwald, 2003, section 2.2:
//! measures everything except the disk. Served inline.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::immediate::Immediate;
use crate::open::{BackendEntry, OpenError};
use crate::{Backend, Device, DeviceInfo, Inline, MediumState, Op, Request, Ring};

/// The table entry.
pub const ENTRY: BackendEntry = BackendEntry {
    name: "null",
    help: "discards writes; reads return zeros",
    example: "null:1GiB",
    options: &[
        (
            "block",
            "logical block size in bytes, 512 (default) or 4096",
        ),
        (
            "fill",
            "yes (default): reads return zeros; no: reads leave the buffer untouched, to measure \
             the load generator alone",
        ),
    ],
    open: |size, options| {
        let block_bytes = options.block()?.unwrap_or(512);
        let mut backend = NullBackend::new(super::size_of(size, block_bytes)?, block_bytes);
        if options.flag("fill")? == Some(false) {
            backend.fill = false;
            backend.info.name += "?fill=no";
            backend
                .info
                .notes
                .push("reads leave buffers untouched".into());
        }
        Ok(Arc::new(backend))
    },
    preview: |size, options| {
        options.flag("fill")?;
        super::preview(size, options)
    },
};

/// A device without a medium.
pub struct NullBackend {
    info: DeviceInfo,
    size_bytes: Arc<AtomicU64>,
    fill: bool,
}

impl NullBackend {
    /// A device of `size_bytes` in blocks of `block_bytes`.
    pub fn new(size_bytes: u64, block_bytes: u32) -> NullBackend {
        let name = format!("null:{}", brunt_core::units::format_size_exact(size_bytes));
        let info = DeviceInfo {
            name,
            unmap: true,
            ..super::inline_info(size_bytes, block_bytes)
        };
        NullBackend {
            size_bytes: Arc::new(info.size_bytes.into()),
            info,
            fill: true,
        }
    }
}

impl Backend for NullBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn open(&self, _ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        let fill = self.fill;
        let size_bytes = Arc::clone(&self.size_bytes);
        let size = move || size_bytes.load(Ordering::Relaxed);
        Ok(Box::new(Immediate::new(
            &self.info,
            depth,
            size,
            move |request: &mut Request| {
                if fill && request.op == Op::Read {
                    request.buf[..request.len as usize].fill(0);
                }
            },
        )))
    }

    fn may_wait(&self) -> bool {
        false
    }

    fn medium_state(&self) -> MediumState {
        MediumState {
            size_bytes: self.size_bytes.load(Ordering::Relaxed),
            deleted: false,
        }
    }

    fn resize(&self, size_bytes: u64) -> std::io::Result<()> {
        self.size_bytes.store(size_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn inline(&self) -> Inline {
        if self.fill { Inline::Zeros } else { Inline::No }
    }
}
