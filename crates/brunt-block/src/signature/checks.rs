//! Verifies signatures whose magic number is too short to be reliable or has no fixed location. Called by
//! [`super::table`]. Layouts are from util-linux, `libblkid/src`.
//!
//! The rule: a check rejects impossible values, but never requires a checksum that a damaged but valuable disk may
//! lack, unless the only other evidence of that type is two bytes.

use super::Image;

fn le16(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// LVM1: version 1 or 2.
pub(super) fn lvm1(image: &Image, at: u64) -> bool {
    image
        .get(at, 4)
        .is_some_and(|pv| matches!(le16(pv, 2), 1 | 2))
}

/// HFS: the allocation block size is a multiple of 512.
pub(super) fn hfs(image: &Image, at: u64) -> bool {
    image.get(at, 24).is_some_and(|mdb| {
        let allocation = be32(mdb, 20);
        allocation > 0 && allocation.is_multiple_of(512)
    })
}

/// Minix 1 and 2, at the magic number in the superblock: the bitmaps are long enough, in either byte order.
pub(super) fn minix(image: &Image, at: u64) -> bool {
    let Some(sb) = image.get(at - 0x10, 24) else {
        return false;
    };
    let swapped = matches!((sb[0x10], sb[0x11]), (0x13 | 0x24, _));
    let two = |at: usize| match swapped {
        true => u32::from(u16::from_be_bytes([sb[at], sb[at + 1]])),
        false => le16(sb, at),
    };
    let (inodes, inode_maps, zone_maps, zone_size) = (two(0), two(4), two(6), two(10));
    zone_size == 0 && inodes > 0 && inode_maps * 8192 > inodes && zone_maps > 0
}

/// Minix 3: like [`minix`].
pub(super) fn minix3(image: &Image, at: u64) -> bool {
    let Some(sb) = image.get(at - 0x18, 32) else {
        return false;
    };
    let swapped = sb[0x18] == 0x4d;
    let two = |at: usize| match swapped {
        true => u32::from(u16::from_be_bytes([sb[at], sb[at + 1]])),
        false => le16(sb, at),
    };
    let inodes = match swapped {
        true => be32(sb, 0),
        false => u32::from_le_bytes([sb[0], sb[1], sb[2], sb[3]]),
    };
    two(12) == 0 && inodes > 0 && u64::from(two(6)) * 8192 > u64::from(inodes)
}

/// NILFS2, at the magic number in a superblock: plausible revision and length.
pub(super) fn nilfs2(image: &Image, at: u64) -> bool {
    image.get(at - 6, 10).is_some_and(|sb| {
        u32::from_le_bytes([sb[0], sb[1], sb[2], sb[3]]) <= 16 && (20..=1024).contains(&le16(sb, 8))
    })
}

/// FileVault 2, at the magic number in its header: version 1, CRC-32C checksum.
pub(super) fn file_vault(image: &Image, at: u64) -> bool {
    let version = image.get(at - 88 + 8, 2);
    let algorithm = image.get(at + 2, 4);
    version == Some(&[1, 0]) && algorithm == Some(&[1, 0, 0, 0])
}

/// Adaptec: a second magic number.
pub(super) fn adaptec(image: &Image, at: u64) -> bool {
    image.has(at + 256, b"DPTM")
}

/// Silicon Image, at the magic number in its sector: the first checksum matches.
pub(super) fn silicon(image: &Image, at: u64) -> bool {
    let Some(sector) = image.get(at - 0x60, 512) else {
        return false;
    };
    let sum: u32 = (0..0x13e).step_by(2).map(|at| le16(sector, at)).sum();
    sector[0x116] < 8 && sum.wrapping_neg() & 0xffff == le16(sector, 0x13e)
}

/// VIA: version and checksum.
pub(super) fn via(image: &Image, at: u64) -> bool {
    image.get(at, 51).is_some_and(|sector| {
        let sum = sector[..50]
            .iter()
            .fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        sector[2] <= 2 && sum == sector[50]
    })
}

/// JMicron: an existing RAID level, and an array name of only printable characters or zeros.
pub(super) fn jmicron(image: &Image, at: u64) -> bool {
    image.get(at, 0x34).is_some_and(|sector| {
        let printable = |byte: &u8| *byte == 0 || byte.is_ascii_graphic() || *byte == b' ';
        sector[0x30] <= 5 && sector[0x20..0x30].iter().all(printable)
    })
}

/// Sun: the XOR of the sector's words is zero.
pub(super) fn sun(image: &Image, _at: u64) -> bool {
    image.get(0, 512).is_some_and(|sector| {
        let xor = (0..512)
            .step_by(2)
            .fold(0, |xor, at| xor ^ le16(sector, at));
        xor == 0
    })
}

/// Apple: a nonzero block size, and a map entry in the next block.
pub(super) fn mac(image: &Image, at: u64) -> bool {
    let Some(size) = image.get(at + 2, 2) else {
        return false;
    };
    let block = u64::from(u16::from_be_bytes([size[0], size[1]]));
    // CD-ROMs specify blocks of 2048 bytes but have map entries at 512.
    block > 0
        && [block, 512]
            .iter()
            .any(|block| image.has(*block, b"PM") || image.has(*block, b"TS"))
}

/// ZFS: an uberblock at each KiB (or a multiple) of the second half of one of the four labels, in either byte order.
pub(super) fn zfs(image: &Image) -> Option<u64> {
    const LABEL: u64 = 256 << 10;
    let whole = image.size / LABEL * LABEL;
    let labels = [
        Some(0),
        Some(LABEL),
        whole.checked_sub(2 * LABEL),
        whole.checked_sub(LABEL),
    ];
    labels
        .into_iter()
        .flatten()
        .flat_map(|label| (label + LABEL / 2..label + LABEL).step_by(1024))
        .find(|slot| {
            image.has(*slot, b"\x0c\xb1\xba\0\0\0\0\0")
                || image.has(*slot, b"\0\0\0\0\0\xba\xb1\x0c")
        })
}

/// LUKS2: the secondary header, which states its own location.
pub(super) fn luks2_second(image: &Image) -> Option<u64> {
    (14..=22).map(|shift| 1 << shift).find(|offset| {
        // `hdr_offset` follows 256 bytes of names, a salt and a UUID.
        image.has(*offset, b"SKUL\xba\xbe")
    })
}

/// An external XFS log: a record header in any of the first 512 sectors, with no file system starting there.
pub(super) fn xfs_log(image: &Image) -> Option<u64> {
    for offset in (0..256 << 10).step_by(512) {
        let header = image.get(offset, 304)?;
        if header.starts_with(b"XFSB") {
            return None;
        }
        if header.starts_with(b"\xfe\xed\xba\xbe")
            && matches!(be32(header, 8), 1..=3)
            && matches!(be32(header, 300), 1..=3)
        {
            return Some(offset);
        }
    }
    None
}

/// Atari: the root sector contains a partition that lies within the disk.
pub(super) fn atari(image: &Image) -> Option<u64> {
    let sector = image.get(0, 512)?;
    let disk = be32(sector, 450);
    let sectors = image.size / 512;
    if disk < 2 || u64::from(disk) > sectors || sectors > i32::MAX as u64 {
        return None;
    }
    let within = |start: u32, length: u32| {
        let end = start.checked_add(length);
        start > 0 && length > 0 && end.is_some_and(|end| end <= disk)
    };
    let (bad_start, bad_length) = (be32(sector, 502), be32(sector, 506));
    if (bad_start != 0 || bad_length != 0) && !within(bad_start, bad_length) {
        return None;
    }
    let part = (0..4).map(|index| 454 + index * 12).find(|at| {
        sector[*at] & 1 == 1
            && sector[at + 1..at + 4].iter().all(u8::is_ascii_alphanumeric)
            && within(be32(sector, at + 4), be32(sector, at + 8))
    });
    part.map(|at| at as u64)
}
