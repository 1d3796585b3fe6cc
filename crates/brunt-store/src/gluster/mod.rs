//! Files on GlusterFS volumes as devices, using libgfapi, which is loaded on demand: no FUSE, no page cache.
//!
//! - `url`: URLs and their options;
//! - `bindings`: the libgfapi functions, and an open file that uses them.
//!
//! The one rule: a write is stable only after a flush, since neither the client's translators nor the bricks promise
//! more.

#[allow(unsafe_code, reason = "calls of libgfapi")]
mod bindings;
pub mod url;

use std::sync::Arc;

use brunt_block::backends::{TRANSFER_BYTES_MAX, whole_blocks};
use brunt_block::table::{BackendEntry, OpenError};
use brunt_block::{Backend, Device, DeviceInfo, Ring, StorageId};

use crate::library::LibraryError;
use crate::library::device::LibraryDevice;
use crate::library::time_limit::opened;
use bindings::GlusterFile;
use url::{GlusterConfig, OPTIONS};

/// The entry in the table of backends.
pub const GLUSTER: BackendEntry = BackendEntry {
    name: "gluster",
    help: "a file on a GlusterFS volume, through libgfapi",
    example: "gluster://127.0.0.1:24007/volume/disk.img",
    options: OPTIONS,
    open: |place, options| {
        Ok(Arc::new(GlusterBackend::open(GlusterConfig::parse(
            place, options,
        )?)?))
    },
    preview: |place, options| GlusterConfig::parse(place, options).map(|_| None),
};

/// An open file.
pub(crate) struct GlusterBackend {
    info: DeviceInfo,
    file: Arc<GlusterFile>,
}

impl GlusterBackend {
    /// Fetches the volume's description, connects to its bricks and opens the file.
    fn open(config: GlusterConfig) -> Result<GlusterBackend, LibraryError> {
        let (name, time) = (config.name(), config.timeout);
        let advice = "check that the volume's bricks are up ('gluster volume status'); for \
            details, set log=FILE";
        opened(name, time, advice, move || {
            let file = GlusterFile::open(&config)?;
            Ok(GlusterBackend {
                info: describe(&config, file.size_bytes()?)?,
                file: Arc::new(file),
            })
        })
    }
}

/// The properties of a device on this file.
fn describe(config: &GlusterConfig, file_bytes: u64) -> Result<DeviceInfo, LibraryError> {
    let name = config.name();
    let block_bytes = config.block_bytes;
    let mut notes = Vec::new();
    let size_bytes = whole_blocks(file_bytes, block_bytes, &mut notes);
    if size_bytes == 0 {
        let what = format!(
            "a file of {file_bytes} bytes is smaller than one block of {block_bytes} bytes"
        );
        return Err(LibraryError::Unusable(name, what));
    }
    if config.cache {
        notes.push("the client's caches are on (cache=yes)".to_string());
    }
    Ok(DeviceInfo {
        name,
        block_bytes,
        size_bytes,
        physical_block_bytes: block_bytes.max(4096),
        buffer_align: 1,
        transfer_bytes_max: TRANSFER_BYTES_MAX,
        read_only: config.read_only,
        volatile_cache: true,
        unmap: true,
        facts: Vec::new(),
        notes,
    })
}

impl Backend for GlusterBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn storage(&self) -> Vec<StorageId> {
        vec![StorageId::Remote(self.info.name.clone())]
    }

    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        LibraryDevice::open(&self.info, &self.file, ring, depth)
    }
}
