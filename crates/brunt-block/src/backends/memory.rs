//! `memory:SIZE`: blocks in anonymous memory. Only written blocks take up space, so a LUN may be larger than the
//! machine's memory. Served inline: a target sends directly from the medium and receives into it.

use std::io;
use std::sync::Arc;

use brunt_core::device_url::split_options;
use brunt_core::units::parse_size;

use super::array::{in_brackets, split};
use super::immediate::Immediate;
use crate::open::{BackendEntry, NESTING_MAX, OpenError};
use crate::sparse::{Allocation, SparseMemory};
use crate::{Backend, Device, DeviceInfo, Inline, MediumState, Op, Request, Ring};

/// The table entry.
pub const ENTRY: BackendEntry = BackendEntry {
    name: "memory",
    help: "a sparse disk in memory: only written blocks take up space",
    example: "memory:64MiB",
    options: &[(
        "block",
        "logical block size in bytes, 512 (default) or 4096",
    )],
    open: |size, options| {
        let block_bytes = options.block()?.unwrap_or(512);
        let size_bytes = super::size_of(size, block_bytes)?;
        let backend = MemoryBackend::new(size_bytes, block_bytes).map_err(|error| {
            OpenError::Failed(
                format!("memory:{size}: cannot reserve address space: {error}").into(),
            )
        })?;
        Ok(Arc::new(backend))
    },
    preview: super::preview,
};

/// Address space reserved for growth: this multiple of the size, at least `ROOM_BYTES_MIN`.
const ROOM_FACTOR: u64 = 16;
const ROOM_BYTES_MIN: u64 = 64 << 30;

/// Bytes of memory that a device takes once it has been written completely: the total size of the `memory:` devices in
/// its URL, including those within arrays and joins. Opens nothing, and skips invalid parts; opening reports them.
pub fn memory_in(url: &str) -> u64 {
    memory_within(url, NESTING_MAX - 1)
}

fn memory_within(url: &str, nesting_left: u32) -> u64 {
    let (place, _) = split_options(url.trim());
    let members = match place.split_once(':') {
        Some(("memory", size)) => return parse_size(size).unwrap_or(0),
        Some(("array" | "join", members)) => members,
        _ => return 0,
    };
    let Some(nesting_left) = nesting_left.checked_sub(1) else {
        return 0;
    };
    let words = split(members).unwrap_or_default().into_iter();
    words
        .filter_map(|word| in_brackets(word.strip_prefix("spare=").unwrap_or(word)))
        .map(|member| memory_within(member, nesting_left))
        .fold(0, u64::saturating_add)
}

/// A disk in memory.
pub struct MemoryBackend {
    info: DeviceInfo,
    memory: Arc<SparseMemory>,
}

impl MemoryBackend {
    /// Creates a device with `size_bytes` of zeros in blocks of `block_bytes`.
    ///
    /// # Errors
    /// See [`SparseMemory::new`].
    pub fn new(size_bytes: u64, block_bytes: u32) -> io::Result<MemoryBackend> {
        let info = DeviceInfo {
            name: format!(
                "memory:{}",
                brunt_core::units::format_size_exact(size_bytes)
            ),
            unmap: true,
            ..super::inline_info(size_bytes, block_bytes)
        };
        let room = info
            .size_bytes
            .saturating_mul(ROOM_FACTOR)
            .max(ROOM_BYTES_MIN);
        Ok(MemoryBackend {
            memory: Arc::new(SparseMemory::with_room(info.size_bytes, room)?),
            info,
        })
    }

    /// The underlying memory.
    pub fn memory(&self) -> &Arc<SparseMemory> {
        &self.memory
    }
}

impl Backend for MemoryBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn open(&self, _ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        let memory = Arc::clone(&self.memory);
        let limit = Arc::clone(&self.memory);
        let size = move || limit.len();
        Ok(Box::new(Immediate::new(
            &self.info,
            depth,
            size,
            move |request: &mut Request| {
                let (offset, len) = (request.offset, request.len);
                match request.op {
                    Op::Read => memory.read(offset, &mut request.buf[..len as usize]),
                    Op::Write => memory.write(offset, &request.buf[..len as usize]),
                    Op::Unmap => memory.unmap(offset, len),
                    Op::WriteZeroes => memory.write_zeroes(offset, len),
                    Op::Flush => {}
                }
            },
        )))
    }

    fn may_wait(&self) -> bool {
        false
    }

    fn unmap_reads_zeros(&self) -> bool {
        true
    }

    fn medium_state(&self) -> MediumState {
        MediumState {
            size_bytes: self.memory.len(),
            deleted: false,
        }
    }

    fn resize(&self, size_bytes: u64) -> io::Result<()> {
        self.memory.resize(size_bytes)
    }

    fn inline(&self) -> Inline {
        Inline::Memory(Arc::clone(&self.memory))
    }

    fn allocation(&self, offset: u64) -> Option<(Allocation, u64)> {
        Some(self.memory.allocation(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_nested_devices_adds_up() {
        let check =
            |url: &str, mebibytes: u64| assert_eq!(memory_in(url), mebibytes << 20, "{url}");
        check("memory:64MiB", 64);
        check(" memory:64MiB?block=4096&delay=const:1ms", 64);
        check("null:64MiB", 0);
        check("/dev/memory:1MiB", 0);
        check(
            "array:raid1,[memory:1MiB?fault=off],[memory:2MiB],spare=[memory:4MiB]?retry=3",
            7,
        );
        check(
            "join:[array:raid0,chunk=64k,[memory:8MiB],[null:8MiB]],[memory:1MiB]",
            9,
        );
        check("array:raid1,[memory:1MiB],[memory:lots", 0);
    }
}
