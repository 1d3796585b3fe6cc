//! libblkid, which detects the same signatures as `wipefs`. Loaded when the first device is checked;
//! called only from [`super`].
//!
//! libblkid reads files, so it gets a sparse in-memory file: as long as the device, with the bytes that were read from
//! it. Data that it would verify elsewhere on the device (the MFT of NTFS) is a hole there; [`super::table`] covers
//! those cases.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use super::table::words;
use super::{Detector, Image, Signature};
use crate::library::{LibraryFile, LibraryLoadError, Loaded, functions, once};

const FILE: LibraryFile = LibraryFile {
    file: "libblkid.so.1",
    package: "libblkid1",
    needs: "util-linux 2.30",
};

// libblkid/src/blkid.h: BLKID_SUBLKS_TYPE, _MAGIC and _BADCSUM; BLKID_PARTS_FORCE_GPT and _MAGIC.
const SUPERBLOCK_FLAGS: c_int = 1 << 5 | 1 << 9 | 1 << 10;
const PARTITION_FLAGS: c_int = 1 << 1 | 1 << 3;

functions! {
    /// The required functions of libblkid (blkid.h).
    Blkid, None, {
        fn blkid_new_probe() -> *mut c_void;
        fn blkid_free_probe(*mut c_void);
        fn blkid_probe_set_device(*mut c_void, c_int, i64, i64) -> c_int;
        fn blkid_probe_set_sectorsize(*mut c_void, c_uint) -> c_int;
        fn blkid_probe_enable_superblocks(*mut c_void, c_int) -> c_int;
        fn blkid_probe_set_superblocks_flags(*mut c_void, c_int) -> c_int;
        fn blkid_probe_enable_partitions(*mut c_void, c_int) -> c_int;
        fn blkid_probe_set_partitions_flags(*mut c_void, c_int) -> c_int;
        fn blkid_do_probe(*mut c_void) -> c_int;
        fn blkid_probe_lookup_value(*mut c_void, *const c_char, *mut *const c_char, *mut usize) -> c_int;
    }
}

static LOADED: OnceLock<Blkid> = OnceLock::new();

/// The first signature that libblkid finds; `None` without libblkid, or if it fails.
pub(super) fn find(image: &Image) -> Option<Option<Signature>> {
    let load = || -> Result<Blkid, LibraryLoadError> { Blkid::find(&Loaded::open(FILE)?) };
    let library = once(&LOADED, load).ok()?;
    let copy = copy(image)?;
    let probe = Probe::new(library)?;
    probe.run(&copy, image.block_bytes)
}

/// Creates the sparse copy.
fn copy(image: &Image) -> Option<File> {
    // SAFETY: a NUL-terminated name and a flag.
    let fd = unsafe { libc::memfd_create(c"brunt-signatures".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the descriptor was just created and has no other owner.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(image.size).ok()?;
    for (offset, bytes) in &image.pieces {
        // Leave zero pages as holes.
        for (number, page) in bytes.chunks(4096).enumerate() {
            if page.iter().any(|byte| *byte != 0) {
                file.write_all_at(page, offset + number as u64 * 4096)
                    .ok()?;
            }
        }
    }
    Some(file)
}

/// A libblkid probe, freed on drop.
struct Probe {
    library: &'static Blkid,
    probe: *mut c_void,
}

impl Probe {
    fn new(library: &'static Blkid) -> Option<Probe> {
        // SAFETY: no arguments.
        let probe = unsafe { (library.blkid_new_probe)() };
        (!probe.is_null()).then_some(Probe { library, probe })
    }

    /// The first signature in a file; the outer `None` means failure.
    fn run(&self, file: &File, block_bytes: u32) -> Option<Option<Signature>> {
        let Probe { library, probe } = *self;
        // SAFETY: a probe of this library, and a file that outlives the calls.
        let outcome = unsafe {
            if (library.blkid_probe_set_device)(probe, file.as_raw_fd(), 0, 0) != 0 {
                return None;
            }
            // If this fails, the default of 512 applies.
            (library.blkid_probe_set_sectorsize)(probe, block_bytes);
            (library.blkid_probe_enable_superblocks)(probe, 1);
            (library.blkid_probe_set_superblocks_flags)(probe, SUPERBLOCK_FLAGS);
            (library.blkid_probe_enable_partitions)(probe, 1);
            (library.blkid_probe_set_partitions_flags)(probe, PARTITION_FLAGS);
            (library.blkid_do_probe)(probe)
        };
        match outcome {
            0 => {}
            1 => return Some(None),
            _ => return None,
        }
        let (kind, place) = match self.value(c"TYPE") {
            Some(kind) => (kind, self.value(c"SBMAGIC_OFFSET")),
            None => (self.value(c"PTTYPE")?, self.value(c"PTMAGIC_OFFSET")),
        };
        Some(Some(Signature {
            what: words(&kind).map_or_else(|| format!("a signature of {kind}"), str::to_string),
            offset_bytes: place.and_then(|place| place.parse().ok()),
            kind,
            by: Detector::Blkid,
        }))
    }

    fn value(&self, name: &CStr) -> Option<String> {
        let mut data: *const c_char = std::ptr::null();
        // SAFETY: a probe of this library, a NUL-terminated string, and a local pointer to set.
        let found = unsafe {
            (self.library.blkid_probe_lookup_value)(
                self.probe,
                name.as_ptr(),
                &raw mut data,
                std::ptr::null_mut(),
            )
        };
        if found != 0 || data.is_null() {
            return None;
        }
        // SAFETY: these values are NUL-terminated strings that stay valid until the next probe.
        Some(
            unsafe { CStr::from_ptr(data) }
                .to_string_lossy()
                .into_owned(),
        )
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // SAFETY: created by this library, and freed once.
        unsafe { (self.library.blkid_free_probe)(self.probe) };
    }
}
