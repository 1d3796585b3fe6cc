//! Opens a file or block device for [`super::file`] and determines its properties: size, blocks, alignment, O_DIRECT,
//! holes. Everything here happens once, on opening, in plain system calls; missing features become notes printed with
//! the results. All unsafe ioctls and `statx` calls for files are in this file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use brunt_core::FileLock;
use brunt_core::device_path::shown;
use brunt_core::random::Random;
use brunt_core::units::format_size;

use super::file::FileOptions;
use super::{holder, whole_blocks};
use crate::open::{DevicePreview, OpenError};
use crate::{Buf, StorageId};

/// ioctl for the size of a block device in bytes (linux/fs.h, `_IOR(0x12, 114, size_t)`; libc has no name for it).
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272u32 as libc::Ioctl;
/// ioctl for whether a block device is set read-only (linux/fs.h, `_IO(0x12, 94)`).
const BLKROGET: libc::Ioctl = 0x125e;
/// Bytes per write when laying out a file.
const LAY_OUT_BYTES: usize = 1 << 20;
/// Seed of the random data, so that the content is always the same.
const LAY_OUT_SEED: u64 = 0x6272_756e_7400_0001;
/// File systems by their `statfs` magic (linux/magic.h).
const FILE_SYSTEMS: &[(u64, &str)] = &[
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0xf2f5_2010, "f2fs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x794c_7630, "overlayfs"),
    (0x6969, "nfs"),
    (0x6573_5546, "fuse"),
    (0x2fc1_2fc1, "zfs"),
    (0x0102_1997, "9p"),
    (0xff53_4d42, "cifs"),
    (0x4d44, "vfat"),
    (0x2011_bab0, "exfat"),
];

/// An open file or block device and its properties.
pub(super) struct Medium {
    pub file: File,
    pub block_device: bool,
    /// Whether the file has a name in a directory, and should keep that name.
    pub named: bool,
    /// Whether the file or device was opened with O_DIRECT.
    pub direct: bool,
    /// Whether the file system is in memory.
    pub in_memory: bool,
    pub read_only: bool,
    /// Size in bytes, a whole number of blocks.
    pub size_bytes: u64,
    pub block_bytes: u32,
    pub physical_block_bytes: u32,
    /// Required memory alignment of buffers, in bytes.
    pub buffer_align: usize,
    /// Whether hole punching is supported and frees space.
    pub punch: bool,
    pub notes: Vec<String>,
    /// Where the data is stored.
    pub storage: Vec<StorageId>,
    /// Excludes other writers.
    _lock: Option<FileLock>,
}

impl Medium {
    /// The current size in bytes, and whether the file has been unlinked since it was opened.
    pub fn state(&self) -> io::Result<(u64, bool)> {
        if self.block_device {
            return Ok((ioctl_u64(&self.file, BLKGETSIZE64)?, false));
        }
        let metadata = self.file.metadata()?;
        Ok((metadata.len(), self.named && metadata.nlink() == 0))
    }
}

impl Medium {
    /// Truncates the file, or extends it with a hole.
    pub fn resize(&self, size_bytes: u64) -> io::Result<()> {
        if self.block_device || self.read_only {
            let what = if self.block_device {
                "a block device"
            } else {
                "a file that was opened read-only"
            };
            let why = format!("{what} cannot be resized here");
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        self.file.set_len(size_bytes)
    }
}

pub(super) fn open(path: &Path, options: &FileOptions) -> Result<Medium, OpenError> {
    if !options.temporary {
        return open_named(path, options);
    }
    if options.create {
        return Err(OpenError::Refused(
            "temporary=yes and create=yes exclude each other".to_string(),
        ));
    }
    let made = FileOptions {
        create: true,
        ..options.clone()
    };
    create(path, &made)?;
    // Unlink the name immediately, even if opening fails; the file is deleted when its last handle is closed.
    let opened = open_named(
        path,
        &FileOptions {
            temporary: false,
            ..made
        },
    );
    let removed = std::fs::remove_file(path);
    let medium = Medium {
        named: false,
        ..opened?
    };
    removed.map_err(|source| OpenError::Os {
        what: "cannot remove",
        path: path.to_path_buf(),
        source,
    })?;
    Ok(medium)
}

/// An open file or block device before its size and blocks are known.
struct OpenFile {
    file: File,
    block_device: bool,
    direct: bool,
    read_only: bool,
}

impl OpenFile {
    fn size_bytes(&self) -> io::Result<u64> {
        match self.block_device {
            true => ioctl_u64(&self.file, BLKGETSIZE64),
            false => Ok(self.file.metadata()?.len()),
        }
    }

    fn logical_block_bytes(&self) -> io::Result<u32> {
        match self.block_device {
            true => Ok(ioctl_i32(&self.file, libc::BLKSSZGET)? as u32),
            false => Ok(512),
        }
    }

    fn physical_block_bytes(&self, metadata: &std::fs::Metadata, logical: u32) -> u32 {
        match self.block_device {
            true => ioctl_i32(&self.file, libc::BLKPBSZGET).map_or(logical, |bytes| bytes as u32),
            false => (metadata.blksize() as u32).min(4096),
        }
    }

    /// Whether blocks can be discarded.
    fn punches(&self, metadata: &std::fs::Metadata, size_bytes: u64) -> bool {
        !self.read_only
            && match self.block_device {
                true => discards(metadata.rdev()),
                false => punches(&self.file, size_bytes),
            }
    }

    /// The block size to use: the configured one, or else the smallest: a block device's logical block size, or for a
    /// file the alignment that O_DIRECT requires.
    fn block_bytes(
        &self,
        path: &Path,
        options: &FileOptions,
        logical: u32,
        align: Align,
    ) -> Result<u32, OpenError> {
        let smallest = match self.direct {
            true => logical.max(align.offset),
            false => logical,
        };
        let block_bytes = options.block_bytes.unwrap_or(smallest);
        if block_bytes < smallest {
            let by_file_system = self.direct && !self.block_device;
            return Err(too_small(path, block_bytes, smallest, by_file_system));
        }
        Ok(block_bytes)
    }
}

fn open_named(path: &Path, options: &FileOptions) -> Result<Medium, OpenError> {
    let failed = |what: &'static str| {
        move |source| OpenError::Os {
            what,
            path: path.to_path_buf(),
            source,
        }
    };
    if options.create {
        create(path, options)?;
    }
    let metadata = std::fs::metadata(path).map_err(failed("cannot open"))?;
    let kind = metadata.file_type();
    let block_device = kind.is_block_device();
    if !block_device && !kind.is_file() {
        return Err(OpenError::Refused(format!(
            "{} is neither a file nor a block device",
            shown(path)
        )));
    }
    reject_create_options(path, options)?;
    let mut notes = Vec::new();
    let opened = open_with_fallbacks(path, options, block_device, &metadata, &mut notes)?;
    let (align, opened) = alignment(path, opened, &mut notes)?;
    let read_only = opened.read_only;
    let lock = match block_device || read_only || options.force || holder::are_files_shared() {
        true => None,
        false => holder::lock(&opened.file, path, &mut notes)?,
    };

    let size_bytes = opened
        .size_bytes()
        .map_err(failed("cannot read the size of"))?;
    let size_bytes = first_part(size_bytes, options, &mut notes);
    let logical = opened
        .logical_block_bytes()
        .map_err(failed("cannot read the block size of"))?;
    let block_bytes = opened.block_bytes(path, options, logical, align)?;
    let whole = whole_blocks(size_bytes, block_bytes, &mut notes);
    if whole == 0 {
        return Err(OpenError::Refused(format!(
            "{} has {size_bytes} bytes, less than one block of {block_bytes}; add \
             size=1GiB&create=yes to create a file",
            shown(path)
        )));
    }
    let physical_block_bytes = opened.physical_block_bytes(&metadata, logical);
    let punch = opened.punches(&metadata, whole);
    let OpenFile { file, direct, .. } = opened;
    let in_memory = !block_device && matches!(file_system(path), Some("tmpfs" | "ramfs"));
    let inline = in_memory && (direct || read_only) && complete_at_once(&file);
    let more = medium_notes(&file, block_device, read_only, whole, block_bytes, inline);
    notes.extend(more);
    Ok(Medium {
        storage: holder::storage(&metadata),
        _lock: lock,
        block_device,
        named: metadata.nlink() > 0,
        direct,
        in_memory,
        read_only,
        size_bytes: whole,
        block_bytes,
        physical_block_bytes: physical_block_bytes.max(block_bytes),
        buffer_align: align.memory as usize,
        punch,
        notes,
        file,
    })
}

/// How much of a file of this length to use: all of it, or with `create` the requested size.
fn first_part(size_bytes: u64, options: &FileOptions, notes: &mut Vec<String>) -> u64 {
    match options.size_bytes {
        Some(wanted) if options.create && wanted < size_bytes => {
            let (wanted_text, all) = (format_size(wanted), format_size(size_bytes));
            notes.push(format!(
                "the file already exists and has {all}; only the first {wanted_text} are used"
            ));
            wanted
        }
        _ => size_bytes,
    }
}

/// Rejects file creation options unless creation was requested.
fn reject_create_options(path: &Path, options: &FileOptions) -> Result<(), OpenError> {
    if options.create {
        return Ok(());
    }
    if options.lay_out {
        return Err(OpenError::Refused(format!(
            "lay_out=yes fills a file created by create=yes or temporary=yes; {} already exists",
            shown(path)
        )));
    }
    if options.size_bytes.is_some() {
        return Err(OpenError::Refused(format!(
            "size= creates a file of that size and needs create=yes; {} already exists",
            shown(path)
        )));
    }
    Ok(())
}

/// Properties of a file or device that distort results.
fn medium_notes(
    file: &File,
    block_device: bool,
    read_only: bool,
    size_bytes: u64,
    block_bytes: u32,
    inline: bool,
) -> impl Iterator<Item = String> {
    let hollow = (!block_device && has_hole(file, size_bytes)).then_some(
        "the file has holes, which are read without accessing the disk (remove it, and create it \
         again with create=yes&lay_out=yes to fill all of it)",
    );
    let slow = (!inline && !starts_without_waiting(file, block_bytes)).then_some(
        "this file system does not support asynchronous requests: each one occupies a \
            kernel worker thread",
    );
    let may_fill = !block_device && !read_only;
    let full = may_fill.then(|| no_space(file)).into_iter().flatten();
    let performance = hollow.into_iter().chain(slow).map(str::to_string);
    performance.chain(full)
}

/// What is known about a file or block device without opening it.
pub(super) fn preview(
    path: &Path,
    options: &FileOptions,
) -> Result<Option<DevicePreview>, OpenError> {
    let made = options.create || options.temporary;
    let size_bytes = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && !options.temporary => metadata
            .len()
            .max(options.size_bytes.filter(|_| made).unwrap_or(0)),
        Ok(metadata) if metadata.file_type().is_block_device() => match sectors(metadata.rdev()) {
            Some(sectors) => sectors.saturating_mul(512),
            None => return Ok(None),
        },
        Err(error) if !(made && error.kind() == io::ErrorKind::NotFound) => {
            return Err(OpenError::Os {
                what: "cannot open",
                path: path.to_path_buf(),
                source: error,
            });
        }
        // A file to be created, or a path that opening will reject.
        _ => match options.size_bytes {
            Some(size_bytes) => size_bytes,
            None => return Ok(None),
        },
    };
    let block_bytes = options.block_bytes.unwrap_or(512);
    let usable = size_bytes >= u64::from(block_bytes);
    Ok(usable.then_some(DevicePreview {
        size_bytes,
        block_bytes,
        read_only: options.read_only,
    }))
}

/// Whether the kernel refuses all writes to a block device that can nevertheless be opened for writing
/// (`blockdev --setro`).
fn is_set_read_only(path: &Path) -> bool {
    File::open(path)
        .and_then(|file| ioctl_i32(&file, BLKROGET))
        .is_ok_and(|read_only| read_only != 0)
}

/// A note about a sparse file whose file system has no room for it.
fn no_space(file: &File) -> Option<String> {
    let metadata = file.metadata().ok()?;
    let hollow = metadata.len().saturating_sub(metadata.blocks() * 512);
    // SAFETY: an all-zero statvfs is a valid value of this plain struct.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: an open descriptor and a local struct to fill.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), &mut stat) } != 0 {
        return None;
    }
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    (hollow > free).then(|| {
        format!(
            "{} of the sparse file are not allocated yet and its file system has only {} free: \
             writes will fail (ENOSPC)",
            format_size(hollow),
            format_size(free)
        )
    })
}

/// The size of a block device in units of 512 bytes, regardless of its block size (proc_sysfs, `block/*/size`).
fn sectors(rdev: u64) -> Option<u64> {
    let path = format!(
        "/sys/dev/block/{}:{}/size",
        libc::major(rdev),
        libc::minor(rdev)
    );
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The error for blocks smaller than the minimum transfer; with `direct` on a file, it suggests direct=no.
fn too_small(path: &Path, block_bytes: u32, smallest: u32, direct: bool) -> OpenError {
    let way_out = if direct {
        ", or direct=no to go through the page cache"
    } else {
        ""
    };
    OpenError::Refused(format!(
        "{}: blocks of {block_bytes} bytes are smaller than the minimum transfer of this device or \
         file system, {smallest} bytes; use block={smallest}{way_out}",
        shown(path)
    ))
}

/// Whether device nodes appear under this path. A file created there would be in memory, and would occupy the
/// device's name when the device returns.
pub fn is_device_name(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}

/// The requested size of a file to be created.
fn size_to_create(path: &Path, options: &FileOptions) -> Result<u64, OpenError> {
    let key = if options.temporary {
        "temporary"
    } else {
        "create"
    };
    let Some(size_bytes) = options.size_bytes else {
        return Err(OpenError::Refused(format!(
            "{key}=yes needs a size, for example size=1GiB"
        )));
    };
    if options.read_only {
        return Err(OpenError::Refused(format!(
            "{key}=yes and read_only=yes exclude each other: omit read_only=yes; a run that only reads writes nothing to \
             the file"
        )));
    }
    if is_device_name(path) && !path.exists() {
        return Err(OpenError::Refused(format!(
            "{} does not exist, and a file created there would be in memory: create files \
             elsewhere",
            shown(path)
        )));
    }
    Ok(size_bytes)
}

/// Creates the file, or extends a shorter one; only the first part of a longer one will be used. A temporary file
/// must not exist yet.
fn create(path: &Path, options: &FileOptions) -> Result<(), OpenError> {
    let failed = |source| OpenError::Os {
        what: "cannot create",
        path: path.to_path_buf(),
        source,
    };
    let size_bytes = size_to_create(path, options)?;
    let mut way = OpenOptions::new();
    way.write(true)
        .create(true)
        .create_new(options.temporary)
        .truncate(false);
    let file = way.open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(OpenError::Refused(format!(
            "{} is not a file: omit size= and create=",
            shown(path)
        )));
    }
    if metadata.len() > size_bytes {
        return Ok(());
    }
    let grows = metadata.len() < size_bytes;
    let _lock = match grows && !options.force {
        true => holder::lock(&file, path, &mut Vec::new())?,
        false => None,
    };
    // The file grows as it is written, so an interrupted layout can continue where it stopped.
    let written = if options.lay_out && grows {
        lay_out(&file, metadata.len(), size_bytes).map_err(|source| OpenError::Os {
            what: "cannot fill all of",
            path: path.to_path_buf(),
            source,
        })
    } else {
        Ok(())
    };
    let made = written.and_then(|()| file.set_len(size_bytes).map_err(failed));
    if made.is_err() && options.temporary {
        // The file was created above, and no other code would remove it after an error.
        let _ = std::fs::remove_file(path);
    }
    made
}

/// Writes random bytes to part of the file, through to the disk, and drops them from the page cache.
fn lay_out(file: &File, from: u64, to: u64) -> io::Result<()> {
    let mut random = Random::new(LAY_OUT_SEED);
    let mut bytes = vec![0; LAY_OUT_BYTES];
    let mut at = from;
    while at < to {
        let len = (to - at).min(LAY_OUT_BYTES as u64) as usize;
        random.fill(&mut bytes[..len]);
        file.write_all_at(&bytes[..len], at)?;
        at += len as u64;
    }
    file.sync_all()?;
    // SAFETY: integer arguments and an open descriptor.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Opens the path read-write, and with O_DIRECT if requested and possible.
fn open_with_fallbacks(
    path: &Path,
    options: &FileOptions,
    block_device: bool,
    metadata: &std::fs::Metadata,
    notes: &mut Vec<String>,
) -> Result<OpenFile, OpenError> {
    let failed = |source| OpenError::Os {
        what: "cannot open",
        path: path.to_path_buf(),
        source,
    };
    let in_use = |still: holder::StillInUse| OpenError::InUse {
        path: path.to_path_buf(),
        by: still.by,
    };
    let mut read_only = options.read_only;
    // Root may write to any file; still, a file without write permission bits should not be written.
    if !read_only && !block_device && metadata.permissions().readonly() {
        read_only = true;
        notes.push("the file is write-protected and was opened read-only".to_string());
    }
    let mut direct = options.direct;
    if !direct {
        notes.push(
            "direct=no: reads may be served from the page cache instead of the storage".to_string(),
        );
    }
    let attempts = holder::Attempts::begin();
    loop {
        // The kernel allows only one exclusive holder of a block device, and none while the device or one of its
        // partitions is mounted, used as swap, or part of a volume.
        let exclusive = block_device && !read_only && !options.force;
        let flags =
            if direct { libc::O_DIRECT } else { 0 } | if exclusive { libc::O_EXCL } else { 0 };
        let outcome = OpenOptions::new()
            .read(true)
            .write(!read_only)
            .custom_flags(flags)
            .open(path);
        let error = match outcome {
            Ok(_) if block_device && !read_only && is_set_read_only(path) => {
                read_only = true;
                notes.push("the block device is set read-only (blockdev --getro)".to_string());
                continue;
            }
            Ok(file) => {
                return Ok(OpenFile {
                    file,
                    block_device,
                    direct,
                    read_only,
                });
            }
            Err(error) => error,
        };
        match error.raw_os_error() {
            Some(libc::EINVAL) if direct => {
                direct = false;
                notes.push(no_direct_note(file_system(path)));
            }
            Some(libc::EACCES | libc::EPERM | libc::EROFS) if !read_only => {
                read_only = true;
                notes.push(format!("opened read-only: {error}"));
            }
            Some(libc::EBUSY) if exclusive => attempts.pause_for_disk(metadata).map_err(in_use)?,
            _ => return Err(failed(error)),
        }
    }
}

#[derive(Clone, Copy)]
struct Align {
    memory: u32,
    offset: u32,
}

/// The alignment required by O_DIRECT, from `statx` (Linux 6.1) or by trial. Reopens the file without O_DIRECT if the
/// file system accepted the flag but doesn't support it for this file.
fn alignment(
    path: &Path,
    opened: OpenFile,
    notes: &mut Vec<String>,
) -> Result<(Align, OpenFile), OpenError> {
    let none = Align {
        memory: 1,
        offset: 1,
    };
    if !opened.direct {
        return Ok((none, opened));
    }
    match direct_alignment(&opened.file) {
        Some(Align { offset: 0, .. }) => {
            notes.push(no_direct_note(file_system(path)));
            let file = OpenOptions::new()
                .read(true)
                .write(!opened.read_only)
                .open(path)
                .map_err(|source| OpenError::Os {
                    what: "cannot open",
                    path: path.to_path_buf(),
                    source,
                })?;
            let opened = OpenFile {
                file,
                direct: false,
                ..opened
            };
            Ok((none, opened))
        }
        Some(align) => Ok((align, opened)),
        None => {
            if file_system(path) == Some("tmpfs") {
                notes.push(
                    "on tmpfs the page cache is the medium, so O_DIRECT changes nothing"
                        .to_string(),
                );
            }
            let mut probe = Buf::zeroed(512);
            let small = opened.file.read_at(&mut probe, 0).is_ok();
            Ok((
                Align {
                    memory: 512,
                    offset: if small { 512 } else { 4096 },
                },
                opened,
            ))
        }
    }
}

fn no_direct_note(file_system: Option<&str>) -> String {
    format!(
        "{} does not support O_DIRECT: reads may be served from the page cache instead of the \
         storage",
        file_system.unwrap_or("this file system")
    )
}

/// The alignment required by O_DIRECT from `statx`; `None` if the kernel or the file system doesn't report it.
fn direct_alignment(file: &File) -> Option<Align> {
    // SAFETY: an all-zero statx is a valid value of this plain struct.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: an open descriptor with an empty path (AT_EMPTY_PATH), and a local struct to fill.
    let status = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &mut stat,
        )
    };
    let told = status == 0 && stat.stx_mask & libc::STATX_DIOALIGN != 0;
    told.then_some(Align {
        memory: stat.stx_dio_mem_align,
        offset: stat.stx_dio_offset_align,
    })
}

/// The name of the file system that holds `path`.
pub(super) fn file_system(path: &Path) -> Option<&'static str> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: an all-zero statfs is a valid value of this plain struct.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a NUL-terminated path and a local struct to fill.
    if unsafe { libc::statfs(path.as_ptr(), &mut stat) } != 0 {
        return None;
    }
    let magic = stat.f_type as u64 & 0xffff_ffff;
    FILE_SYSTEMS
        .iter()
        .find(|(number, _)| *number == magic)
        .map(|(_, name)| *name)
}

/// Whether parts of the file are unallocated.
fn has_hole(file: &File, size_bytes: u64) -> bool {
    // SAFETY: integer arguments and an open descriptor; nothing here uses the file's own offset.
    let hole = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_HOLE) };
    u64::try_from(hole).is_ok_and(|hole| hole < size_bytes)
}

/// Whether the file supports RWF_NOWAIT, which a ring tries first.
fn starts_without_waiting(file: &File, block_bytes: u32) -> bool {
    let mut block = Buf::zeroed(block_bytes as usize);
    let piece = libc::iovec {
        iov_base: block.as_mut_ptr().cast(),
        iov_len: block.len(),
    };
    // SAFETY: a single local buffer, filled before the call returns.
    let got = unsafe { libc::preadv2(file.as_raw_fd(), &piece, 1, 0, libc::RWF_NOWAIT) };
    // EAGAIN means yes: the read would have had to wait.
    got >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EOPNOTSUPP)
}

/// Makes io_uring execute requests to an in-memory file when they are submitted. Since Linux 6.4 it otherwise passes
/// each request to a worker thread, because tmpfs does not declare that it supports RWF_NOWAIT. O_NONBLOCK, which has
/// no other effect on a file, makes it try the request first (io_uring/rw.c, `io_file_supports_nowait`) and use a
/// worker thread only if the request would have to wait. Has no effect on buffered writes, which io_uring always
/// passes to a worker thread. Returns whether the flag is set.
fn complete_at_once(file: &File) -> bool {
    // SAFETY: integer arguments and an open descriptor.
    unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
        flags >= 0 && libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) >= 0
    }
}

/// Whether holes can be punched into the file; tested beyond its end, where no data can be lost.
fn punches(file: &File, size_bytes: u64) -> bool {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let behind = size_bytes.next_multiple_of(1 << 20) + (1 << 20);
    // SAFETY: integer arguments and an open descriptor.
    unsafe { libc::fallocate(file.as_raw_fd(), mode, behind as libc::off_t, 4096) == 0 }
}

/// Whether the block device, or the disk that contains the partition, supports discards.
fn discards(rdev: u64) -> bool {
    let device = format!("/sys/dev/block/{}:{}", libc::major(rdev), libc::minor(rdev));
    ["queue", "../queue"].iter().any(|queue| {
        std::fs::read_to_string(format!("{device}/{queue}/discard_max_bytes"))
            .is_ok_and(|text| text.trim().parse::<u64>().is_ok_and(|bytes| bytes > 0))
    })
}

fn ioctl_u64(file: &File, request: libc::Ioctl) -> io::Result<u64> {
    let mut value = 0u64;
    // SAFETY: the ioctl fills one 64-bit number.
    match unsafe { libc::ioctl(file.as_raw_fd(), request, &raw mut value) } {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

fn ioctl_i32(file: &File, request: libc::Ioctl) -> io::Result<i32> {
    let mut value = 0i32;
    // SAFETY: the ioctl fills one int.
    match unsafe { libc::ioctl(file.as_raw_fd(), request, &raw mut value) } {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}
