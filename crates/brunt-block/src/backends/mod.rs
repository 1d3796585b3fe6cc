//! Backends, one file each. Their table is in `crate::table`.

pub mod array;
#[allow(
    unsafe_code,
    reason = "requests whose buffers the kernel holds until they complete"
)]
pub mod file;
mod holder;
pub use holder::share_files;
pub use medium::is_device_name;
mod immediate;
pub mod join;
#[allow(unsafe_code, reason = "ioctls and statx, once at opening")]
mod medium;
pub mod memory;
pub mod null;
pub mod tcp;

use brunt_core::units::parse_size;

use crate::open::{Foreseen, OpenError, UrlOptions};
use crate::{DeviceError, DeviceInfo, Op, Request};

/// What the backends without a medium below them have in common. The size is cut to whole blocks.
fn inline_info(size_bytes: u64, block_bytes: u32) -> DeviceInfo {
    let mut notes = Vec::new();
    let size_bytes = whole_blocks(size_bytes, block_bytes, &mut notes);
    DeviceInfo {
        name: String::new(),
        block_bytes,
        size_bytes,
        physical_block_bytes: block_bytes.max(4096),
        buffer_align: 1,
        transfer_bytes_max: TRANSFER_BYTES_MAX,
        read_only: false,
        volatile_cache: false,
        unmap: false,
        facts: Vec::new(),
        notes,
    }
}

/// A size cut to whole blocks; what is left out is noted.
pub fn whole_blocks(size_bytes: u64, block_bytes: u32, notes: &mut Vec<String>) -> u64 {
    let left_out = size_bytes % u64::from(block_bytes);
    if left_out > 0 {
        notes.push(format!(
            "the last {left_out} bytes are less than a block and are left out"
        ));
    }
    size_bytes - left_out
}

/// The argument of backends that have no medium: a size of at least one block.
fn size_of(text: &str, block_bytes: u32) -> Result<u64, OpenError> {
    let bytes = parse_size(text)?;
    if bytes < u64::from(block_bytes) {
        return Err(OpenError::Refused(format!(
            "{text} is less than one block of {block_bytes} bytes"
        )));
    }
    Ok(bytes)
}

/// What is known of backends that have no medium: all that their URL says.
fn foresee(size: &str, options: &mut UrlOptions) -> Result<Option<Foreseen>, OpenError> {
    let block_bytes = options.block()?.unwrap_or(512);
    Ok(Some(Foreseen {
        size_bytes: size_of(size, block_bytes)?,
        block_bytes,
        read_only: false,
    }))
}

/// The longest request any backend takes: 16 MiB, what initiators ask for at most.
pub const TRANSFER_BYTES_MAX: u32 = 16 << 20;

/// Whether a request lies in the device, in whole blocks, with a buffer that holds it.
///
/// # Errors
/// It does not, or would write to a device that refuses writes.
#[inline]
pub fn in_range(info: &DeviceInfo, request: &Request) -> Result<(), DeviceError> {
    in_size(info, info.size_bytes, request)
}

/// The same, and whether it is one that goes out as a single request: not empty unless it flushes, and with no more data than
/// the device takes at once.
///
/// # Errors
/// It is not, or as [`in_range`].
#[inline]
pub fn in_bounds(info: &DeviceInfo, request: &Request) -> Result<(), DeviceError> {
    in_range(info, request)?;
    let moves_data = matches!(request.op, Op::Read | Op::Write);
    let empty = request.len == 0 && request.op != Op::Flush;
    let long = moves_data && request.len > u64::from(info.transfer_bytes_max);
    if empty || long {
        Err(DeviceError::OutOfRange)
    } else {
        Ok(())
    }
}

/// The same as [`in_range`] on a medium that has `size_bytes` now.
#[inline]
fn in_size(info: &DeviceInfo, size_bytes: u64, request: &Request) -> Result<(), DeviceError> {
    let block = u64::from(info.block_bytes);
    let inside = request
        .offset
        .checked_add(request.len)
        .is_some_and(|end| end <= size_bytes);
    // Blocks are powers of two; a division would cost as much as all the rest of a null request.
    let whole = match block.is_power_of_two() {
        true => (request.offset | request.len) & (block - 1) == 0,
        false => request.offset.is_multiple_of(block) && request.len.is_multiple_of(block),
    };
    let moves_data = matches!(request.op, Op::Read | Op::Write);
    let fits = !moves_data || request.len <= request.buf.len() as u64;
    if !inside || !whole || !fits {
        return Err(DeviceError::OutOfRange);
    }
    if info.read_only && !matches!(request.op, Op::Read | Op::Flush) {
        return Err(DeviceError::Os(libc::EROFS));
    }
    Ok(())
}
