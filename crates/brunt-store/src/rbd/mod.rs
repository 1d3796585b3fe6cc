//! RBD images in Ceph clusters as devices, using librbd, which is loaded on demand.
//!
//! - `url`: URLs and their options;
//! - `bindings`: the functions of librados and librbd, and an open image that uses them.
//!
//! All threads share one image and one connection to the cluster: with the `exclusive-lock` feature, only one client of
//! an image can write at a time, and threads acting as separate clients would take the lock from each other.
//!
//! The one rule: librbd's cache is off unless the URL enables it, and settings of an image or pool that override this
//! are detected.

#[allow(unsafe_code, reason = "calls of librados and librbd")]
mod bindings;
pub mod url;

use std::sync::Arc;

use brunt_block::backends::{TRANSFER_BYTES_MAX, whole_blocks};
use brunt_block::table::{BackendEntry, OpenError};
use brunt_block::{Backend, Device, DeviceInfo, Ring, StorageId};

use crate::library::LibraryError;
use crate::library::device::LibraryDevice;
use crate::library::time_limit::opened;
use bindings::RbdImage;
use url::{OPTIONS, RbdConfig};

/// The entry in the table of backends.
pub const RBD: BackendEntry = BackendEntry {
    name: "rbd",
    help: "an RBD image in a Ceph cluster, through librbd",
    example: "rbd:pool/image",
    options: OPTIONS,
    open: |place, options| {
        Ok(Arc::new(RbdBackend::open(RbdConfig::parse(
            place, options,
        )?)?))
    },
    preview: |place, options| RbdConfig::parse(place, options).map(|_| None),
};

/// An open image.
pub(crate) struct RbdBackend {
    info: DeviceInfo,
    image: Arc<RbdImage>,
}

impl RbdBackend {
    /// Connects to the cluster and opens the image.
    fn open(config: RbdConfig) -> Result<RbdBackend, LibraryError> {
        let (name, time) = (config.name(), config.timeout);
        let advice =
            "check that the cluster's monitors and OSDs are up ('ceph health'), or raise timeout=";
        opened(name, time, advice, move || {
            let image = RbdImage::open(&config)?;
            Ok(RbdBackend {
                info: describe(&config, &image)?,
                image: Arc::new(image),
            })
        })
    }
}

/// The properties of a device on this image.
fn describe(config: &RbdConfig, image: &RbdImage) -> Result<DeviceInfo, LibraryError> {
    let name = config.name();
    let about = image.about()?;
    let block_bytes = config.block_bytes;
    let mut notes = Vec::new();
    let size_bytes = whole_blocks(about.size_bytes, block_bytes, &mut notes);
    if size_bytes == 0 {
        let what = format!(
            "an image of {} bytes is smaller than one block of {block_bytes} bytes",
            about.size_bytes
        );
        return Err(LibraryError::Unusable(name, what));
    }
    let mut facts = vec![format!("librbd {}", about.version)];
    facts.push(format!(
        "objects of {} bytes; features: {}",
        about.object_bytes,
        features(about.features)
    ));
    let is_on = |value: &str| matches!(value, "true" | "1" | "yes" | "on");
    let cached = about.setting("rbd_cache").is_none_or(is_on);
    let persistent = about
        .setting("rbd_persistent_cache_mode")
        .is_some_and(|mode| mode != "disabled");
    if cached && !config.cache {
        notes.push(
            "librbd's cache is on (rbd_cache in the image's or the pool's settings)".to_string(),
        );
    }
    if cached && config.cache {
        notes.push("librbd's cache is on (cache=yes)".to_string());
    }
    if persistent {
        notes.push(
            "the image has a persistent write-back cache (rbd_persistent_cache_mode)".to_string(),
        );
    }
    if about.setting("rbd_skip_partial_discard").is_some_and(is_on) {
        notes.push(
            "unmap skips partial objects (rbd_skip_partial_discard in the image's or the pool's \
             settings): they do not read as zeros"
                .to_string(),
        );
    }
    Ok(DeviceInfo {
        name,
        block_bytes,
        size_bytes,
        physical_block_bytes: 4096,
        buffer_align: 1,
        transfer_bytes_max: TRANSFER_BYTES_MAX,
        read_only: config.is_read_only(),
        // Without a cache, a write completes when all copies are on stable storage.
        volatile_cache: cached || persistent,
        unmap: true,
        facts,
        notes,
    })
}

/// The names of an image's features, as printed by `rbd info`.
fn features(bits: u64) -> String {
    const NAMES: [&str; 9] = [
        "layering",
        "striping",
        "exclusive-lock",
        "object-map",
        "fast-diff",
        "deep-flatten",
        "journaling",
        "data-pool",
        "operations",
    ];
    let names: Vec<&str> = NAMES
        .iter()
        .enumerate()
        .filter(|(bit, _)| bits >> bit & 1 == 1)
        .map(|(_, name)| *name)
        .collect();
    if names.is_empty() {
        "none".to_string()
    } else {
        names.join(", ")
    }
}

impl Backend for RbdBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn storage(&self) -> Vec<StorageId> {
        vec![StorageId::Remote(self.info.name.clone())]
    }

    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        LibraryDevice::open(&self.info, &self.image, ring, depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_have_names() {
        assert_eq!(
            features(61),
            "layering, exclusive-lock, object-map, fast-diff, deep-flatten"
        );
        assert_eq!(features(0), "none");
    }
}
