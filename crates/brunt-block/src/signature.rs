//! Checks whether a device holds data that someone may still need. Any code about to write to a device checks
//! here first and refuses unless the user has named that very device. Detects the partition tables, file
//! systems and volume managers of Linux by their magic numbers (as `wipefs` does); finding nothing is no
//! guarantee.

use std::collections::VecDeque;
use std::io;

use crate::turn::turn;
use crate::{Backend, Op, Request, Ring, RingConfig};

/// Why a device could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// There is no ring to be had for any device, so that nothing could be written either.
    #[error(transparent)]
    Ring(io::Error),
    /// The device cannot be opened or read.
    #[error(transparent)]
    Device(#[from] io::Error),
}

/// Enough of the start for a ZFS label (its uberblocks are in the second 128 KiB).
const FIRST_BYTES: u64 = 256 << 10;
/// Enough of the end for any md superblock (0.90: in the last 128 KiB).
const LAST_BYTES: u64 = 128 << 10;

/// Offset in bytes, what is there, whose it is. The first that matches is the answer, so what
/// stands in front of others comes first.
const MAGICS: &[(usize, &[u8], &str)] = &[
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (0, b"LABELONE", "an LVM physical volume"),
    (512, b"LABELONE", "an LVM physical volume"),
    (1024, b"LABELONE", "an LVM physical volume"),
    (1536, b"LABELONE", "an LVM physical volume"),
    (0, b"\xfc\x4e\x2b\xa9", "a member of an md array"),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of an md array"),
    (0, b"XFSB", "an XFS file system"),
    (0x10040, b"_BHRfS_M", "a btrfs file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (3, b"-FVE-FS-", "a BitLocker volume"),
    (0x36, b"FAT1", "a FAT file system"),
    (0x52, b"FAT32   ", "a FAT file system"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (1024, b"\xe2\xe1\xf5\xe0", "an EROFS file system"),
    (0, b"hsqs", "a SquashFS file system"),
    (4096 - 10, b"SWAPSPACE2", "swap space"),
    (
        4096 - 10,
        b"S1SUSPEND",
        "swap space with a suspended system",
    ),
    (65536 - 10, b"SWAPSPACE2", "swap space"),
    (0x8001, b"CD001", "an ISO 9660 file system"),
    (0x8001, b"BEA01", "a UDF file system"),
    (0x8000, b"JFS1", "a JFS file system"),
    (0x10034, b"ReIsEr", "a ReiserFS file system"),
    (0x10000, b"\x01\x16\x19\x70", "a GFS2 file system"),
    (32, b"NXSB", "an APFS container"),
    (1024, b"H+", "an HFS+ file system"),
    (1024, b"HX", "an HFS+ file system"),
    (
        4096 + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
        "a bcache device",
    ),
    (
        4096 + 24,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
        "a bcachefs file system",
    ),
    (0, b"bluestore block device", "a Ceph OSD"),
    (0, b"dmvdo001", "a VDO volume"),
    (512, b"!Stra0tis", "a Stratis device"),
    (1080, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    // Boot sectors of FAT and NTFS end like this too; they were asked about above.
    (510, b"\x55\xaa", "an MBR partition table or a boot sector"),
];

/// What the device holds, in words that fit behind "holds"; `None` when nothing is known there.
///
/// # Errors
/// See [`LookError`].
pub fn look(backend: &dyn Backend) -> Result<Option<&'static str>, LookError> {
    let size = backend.info().size_bytes;
    let block = u64::from(backend.info().block_bytes);
    let whole = |bytes: u64| bytes.min(size) / block * block;
    let (first_bytes, last_bytes) = (whole(FIRST_BYTES), whole(LAST_BYTES));

    let config = RingConfig {
        entries: 8,
        arena_bytes: 0,
        ..RingConfig::default()
    };
    let ring = Ring::new(config).map_err(LookError::Ring)?;
    let mut device = backend.open(&ring, 2).map_err(io::Error::other)?;
    let read = |tag, offset, len| Request {
        tag,
        op: Op::Read,
        offset,
        len,
        buf: ring.pool().take(len as usize),
        force_unit_access: false,
    };
    let mut batch = VecDeque::from([
        read(0, 0, first_bytes),
        read(1, size - last_bytes, last_bytes),
    ]);
    let mut done = Vec::new();
    while !batch.is_empty() || device.outstanding() > 0 {
        turn(&ring, &mut *device, &mut batch, &mut done)?;
    }
    done.sort_by_key(|one| one.tag);
    for one in &done {
        one.result.map_err(io::Error::other)?;
    }
    Ok(find(&done[0].buf, &done[1].buf, size))
}

/// What is known by the first and the last bytes of `size` bytes.
fn find(first: &[u8], last: &[u8], size: u64) -> Option<&'static str> {
    let magic = MAGICS
        .iter()
        .find(|(offset, bytes, _)| has(first, *offset as u64, bytes));
    if let Some((_, _, what)) = magic {
        return Some(what);
    }
    // An uberblock each KiB (or a multiple) of the label's second half, in either byte order.
    for slot in (128 << 10..256 << 10).step_by(1024) {
        if has(first, slot, b"\x0c\xb1\xba\0\0\0\0\0")
            || has(first, slot, b"\0\0\0\0\0\xba\xb1\x0c")
        {
            return Some("a ZFS pool");
        }
    }
    let start = size - last.len() as u64;
    let at_end = |offset: Option<u64>, bytes: &[u8]| {
        offset
            .and_then(|offset| offset.checked_sub(start))
            .is_some_and(|offset| has(last, offset, bytes))
    };
    // The second copy of a GPT is in the last logical block.
    if [512, 4096]
        .iter()
        .any(|block| at_end(size.checked_sub(*block), b"EFI PART"))
    {
        return Some("a GPT partition table (its second copy)");
    }
    // md: 1.0 sits 8 to 12 KiB before the end on 4 KiB, 0.90 at the last whole 64 KiB but one.
    let md = b"\xfc\x4e\x2b\xa9";
    let places = [
        size.checked_sub(8192).map(|at| at & !4095),
        (size & !0xffff).checked_sub(0x1_0000),
    ];
    places
        .iter()
        .any(|at| at_end(*at, md))
        .then_some("a member of an md array")
}

fn has(bytes: &[u8], offset: u64, magic: &[u8]) -> bool {
    bytes
        .get(offset as usize..)
        .is_some_and(|rest| rest.starts_with(magic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::memory::MemoryBackend;
    use std::path::Path;
    use std::process::Command;

    /// Each magic is found where it is, on devices of either block size.
    #[test]
    fn magics_are_found() {
        for block in [512, 4096] {
            let size = 16 << 20;
            let check = |offset: u64, bytes: &[u8], what: Option<&str>| {
                let backend = MemoryBackend::new(size, block).unwrap();
                backend.memory().write(offset, bytes);
                assert_eq!(look(&backend).unwrap(), what, "{bytes:?} at {offset}");
            };
            check(0, &[0; 4096], None);
            check(0, &[0xa5; 65536], None);
            for (offset, bytes, what) in MAGICS {
                check(*offset as u64, bytes, Some(what));
            }
            check(
                (128 << 10) + 5 * 1024,
                b"\x0c\xb1\xba\0\0\0\0\0",
                Some("a ZFS pool"),
            );
            check(
                size - 512,
                b"EFI PART",
                Some("a GPT partition table (its second copy)"),
            );
            check(
                size - 4096,
                b"EFI PART",
                Some("a GPT partition table (its second copy)"),
            );
            check(
                size - 8192,
                b"\xfc\x4e\x2b\xa9",
                Some("a member of an md array"),
            );
            check(
                size - 65536,
                b"\xfc\x4e\x2b\xa9",
                Some("a member of an md array"),
            );
        }
    }

    /// A device shorter than what is looked at is looked at whole.
    #[test]
    fn short_devices() {
        let backend = MemoryBackend::new(512, 512).unwrap();
        assert_eq!(look(&backend).unwrap(), None);
        backend.memory().write(510, b"\x55\xaa");
        assert_eq!(
            look(&backend).unwrap(),
            Some("an MBR partition table or a boot sector")
        );
    }

    /// What the real tools write is found.
    #[test]
    fn real_tools() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        let check = |program: &str, arguments: &[&str], input: &str, what: &str| {
            std::fs::write(&path, vec![0; 8 << 20]).unwrap();
            if run(program, arguments, &path, input) {
                let backend = crate::open_url(path.to_str().unwrap()).unwrap();
                let found = look(&*backend).unwrap().unwrap_or("nothing");
                assert!(found.contains(what), "{program}: found {found}");
            } else {
                assert!(
                    std::env::var_os("BRUNT_REQUIRE_ALL").is_none_or(|value| value != "1"),
                    "needs {program}"
                );
                println!("skipped: needs {program}");
            }
        };
        check("mkfs.ext4", &["-q", "-F"], "", "ext4");
        check("mkswap", &[], "", "swap");
        check("sfdisk", &["-q"], "label: gpt\n,,\n", "GPT");
        check("sfdisk", &["-q"], "label: dos\n,,\n", "MBR");
    }

    fn run(program: &str, arguments: &[&str], path: &Path, input: &str) -> bool {
        use std::io::Write;
        use std::process::Stdio;
        // Where administrators' programs are; not on everybody's PATH.
        let search = format!(
            "{}:/usr/sbin:/sbin",
            std::env::var("PATH").unwrap_or_default()
        );
        let child = Command::new(program)
            .args(arguments)
            .arg(path)
            .env("PATH", search)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = child else { return false };
        let _ = child
            .stdin
            .take()
            .expect("piped")
            .write_all(input.as_bytes());
        child.wait().is_ok_and(|status| status.success())
    }
}
