//! Backends, one file each. Their table is in `crate::table`.

pub mod array;
#[allow(
    unsafe_code,
    reason = "requests whose buffers the kernel holds until they complete"
)]
pub mod file;
pub(crate) mod holder;
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

use crate::open::{DevicePreview, OpenError, UrlOptions};
use crate::{DeviceError, DeviceInfo, Op, Request};

/// The common properties of backends without a medium. The size is rounded down to whole blocks.
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

/// Rounds a size down to whole blocks; adds a note about the bytes omitted.
pub fn whole_blocks(size_bytes: u64, block_bytes: u32, notes: &mut Vec<String>) -> u64 {
    let left_out = size_bytes % u64::from(block_bytes);
    if left_out > 0 {
        notes.push(format!(
            "the last {left_out} bytes are less than a block and are not used"
        ));
    }
    size_bytes - left_out
}

/// Parses the argument of backends without a medium: a size of at least one block.
fn size_of(text: &str, block_bytes: u32) -> Result<u64, OpenError> {
    let bytes = parse_size(text)?;
    if bytes < u64::from(block_bytes) {
        return Err(OpenError::Refused(format!(
            "{text} is less than one block of {block_bytes} bytes"
        )));
    }
    Ok(bytes)
}

/// The properties of backends without a medium, all of which are known from the URL.
fn preview(size: &str, options: &mut UrlOptions) -> Result<Option<DevicePreview>, OpenError> {
    let block_bytes = options.block()?.unwrap_or(512);
    Ok(Some(DevicePreview {
        size_bytes: size_of(size, block_bytes)?,
        block_bytes,
        read_only: false,
    }))
}

/// Maximum request size of any backend: 16 MiB, the largest that initiators request.
pub const TRANSFER_BYTES_MAX: u32 = 16 << 20;

/// Checks that a request lies within the device, covers whole blocks, and has a large enough buffer.
///
/// # Errors
/// The request breaks one of these rules, or writes to a read-only device.
#[inline]
pub fn in_range(info: &DeviceInfo, request: &Request) -> Result<(), DeviceError> {
    in_size(info, info.size_bytes, request)
}

/// Like [`in_range`]; also checks that the request can be sent as a single request: not empty unless it is a flush, and
/// no larger than the device's maximum transfer.
///
/// # Errors
/// The request can't be sent as a single one, or [`in_range`] fails.
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

/// Like [`in_range`], for a medium whose current size is `size_bytes`.
#[inline]
fn in_size(info: &DeviceInfo, size_bytes: u64, request: &Request) -> Result<(), DeviceError> {
    let block = u64::from(info.block_bytes);
    let inside = request
        .offset
        .checked_add(request.len)
        .is_some_and(|end| end <= size_bytes);
    // For powers of two, a mask replaces the divisions, which would cost as much as the rest of a null request.
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
