//! Brunt's own table of signatures, with the same types as libblkid's, for programs and machines without it. A test
//! compares it with `wipefs` for each type. Source: the magic numbers in util-linux, `libblkid/src/superblocks` and
//! `partitions`.
//!
//! The rule: a magic number shorter than four bytes is verified by a further check; only ext4, HFS+, Xenix and boot
//! sectors are reported without one.

use super::checks;
use super::{Detector, Image, Signature};

/// Location of a magic number.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    /// Bytes from the start.
    Start(u64),
    /// Bytes back from the end, then forward from there.
    End(u64, u64),
    /// The size of a unit, and a distance in bytes back from the end of the last whole unit.
    EndOf(u64, u64),
}

impl At {
    /// The offset in bytes from the start of a device of this size.
    pub(super) fn offset(self, size: u64) -> Option<u64> {
        match self {
            At::Start(offset) => Some(offset),
            At::End(back, on) => Some(size.checked_sub(back)? + on),
            At::EndOf(unit, back) => (size / unit * unit).checked_sub(back),
        }
    }
}

/// Further verifies a match, given the offset of its magic number.
pub(super) type Check = fn(&Image, u64) -> bool;

/// A type of signature.
pub(super) struct Known {
    /// The type's name in libblkid.
    pub kind: &'static str,
    /// Text that fits after "contains".
    pub what: &'static str,
    pub places: &'static [At],
    pub magics: &'static [&'static [u8]],
    pub check: Option<Check>,
}

const fn known(
    kind: &'static str,
    what: &'static str,
    places: &'static [At],
    magics: &'static [&'static [u8]],
) -> Known {
    Known {
        kind,
        what,
        places,
        magics,
        check: None,
    }
}

const fn checked(
    kind: &'static str,
    what: &'static str,
    places: &'static [At],
    magics: &'static [&'static [u8]],
    check: Check,
) -> Known {
    Known {
        check: Some(check),
        ..known(kind, what, places, magics)
    }
}

use At::{End, EndOf, Start};

const K: u64 = 1024;
const MD: &[&[u8]] = &[b"\xfc\x4e\x2b\xa9", b"\xa9\x2b\x4e\xfc"];
const PAGES: &[At] = &[
    Start(4 * K - 10),
    Start(8 * K - 10),
    Start(16 * K - 10),
    Start(32 * K - 10),
    Start(64 * K - 10),
];

/// The first match wins, so where several types match, the order decides which one is reported.
#[rustfmt::skip] // one kind per line
pub(super) static KNOWN: &[Known] = &[
    known("gpt", "a GPT partition table", &[Start(512), Start(4096)], &[b"EFI PART"]),
    known("crypto_LUKS", "a LUKS volume", &[Start(0)], &[b"LUKS\xba\xbe"]),
    known("LVM2_member", "an LVM physical volume", &[Start(0), Start(512), Start(1024), Start(1536)], &[b"LABELONE"]),
    known("LVM2_member", "an LVM physical volume", &[Start(0x18), Start(0x218), Start(0x418), Start(0x618)], &[b"LVM2 001"]),
    checked("LVM1_member", "an LVM1 physical volume", &[Start(0)], &[b"HM"], checks::lvm1),
    known("linux_raid_member", "a member of an md array", &[Start(0), Start(4096), EndOf(4096, 8192), EndOf(65536, 65536)], MD),
    known("xfs", "an XFS file system", &[Start(0)], &[b"XFSB"]),
    known("exfs", "an EXFS file system", &[Start(0)], &[b"EXFS"]),
    known("btrfs", "a btrfs file system", &[Start(64 * K + 64)], &[b"_BHRfS_M"]),
    known("BitLocker", "a BitLocker volume", &[Start(3)], &[b"-FVE-FS-"]),
    known("BitLocker", "a BitLocker volume", &[Start(0)], &[b"\xeb\x58\x90MSWIN4.1"]),
    known("ntfs", "an NTFS file system", &[Start(3)], &[b"NTFS    "]),
    known("exfat", "an exFAT file system", &[Start(3)], &[b"EXFAT   "]),
    known("ReFS", "a ReFS file system", &[Start(0)], &[b"\0\0\0ReFS\0"]),
    known("vfat", "a FAT file system", &[Start(0x36)], &[b"FAT1", b"FAT     ", b"MSDOS"]),
    known("vfat", "a FAT file system", &[Start(0x52)], &[b"FAT32   ", b"MSWIN"]),
    known("f2fs", "an F2FS file system", &[Start(1024), Start(5 * K)], &[b"\x10\x20\xf5\xf2"]),
    known("erofs", "an EROFS file system", &[Start(1024)], &[b"\xe2\xe1\xf5\xe0"]),
    known("squashfs", "a SquashFS file system", &[Start(0)], &[b"hsqs", b"sqsh"]),
    known("cramfs", "a cramfs file system", &[Start(0)], &[b"\x45\x3d\xcd\x28", b"\x28\xcd\x3d\x45"]),
    known("romfs", "a romfs file system", &[Start(0)], &[b"-rom1fs-"]),
    known("zonefs", "a zonefs file system", &[Start(0)], &[b"SFOZ"]),
    known("ubi", "a UBI volume", &[Start(0)], &[b"UBI#"]),
    known("ubifs", "a UBIFS file system", &[Start(0)], &[b"\x31\x18\x10\x06"]),
    known("mpool", "an mpool device", &[Start(0)], &[b"mpoolDev"]),
    known("bfs", "a BFS file system", &[Start(0)], &[b"\xce\xfa\xad\x1b"]),
    known("befs", "a BeFS file system", &[Start(32), Start(0x220)], &[b"BFS1", b"1SFB"]),
    known("swap", "swap space", PAGES, &[b"SWAPSPACE2", b"SWAP-SPACE"]),
    known("swsuspend", "swap space with a suspended system", PAGES, &[b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND", b"LINHIB0001"]),
    known("swsuspend", "swap space with a suspended system", &[Start(0)], &[b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c"]),
    known("udf", "a UDF file system", &[Start(32 * K + 1)], &[b"BEA01", b"BOOT2", b"CDW02", b"NSR02", b"NSR03", b"TEA01"]),
    known("iso9660", "an ISO 9660 file system", &[Start(32 * K + 1)], &[b"CD001"]),
    known("iso9660", "a High Sierra file system", &[Start(32 * K + 9)], &[b"CDROM"]),
    known("jfs", "a JFS file system", &[Start(32 * K)], &[b"JFS1"]),
    known("reiserfs", "a ReiserFS file system", &[Start(8 * K + 0x34), Start(8 * K + 20), Start(64 * K + 0x34)],
        &[b"ReIsErFs", b"ReIsEr2Fs", b"ReIsEr3Fs"]),
    known("reiser4", "a Reiser4 file system", &[Start(64 * K)], &[b"ReIsEr4"]),
    known("gfs2", "a GFS or GFS2 file system", &[Start(64 * K)], &[b"\x01\x16\x19\x70"]),
    known("ocfs", "an OCFS file system", &[Start(8 * K)], &[b"OracleCFS"]),
    known("ocfs2", "an OCFS2 file system", &[Start(K), Start(2 * K), Start(4 * K), Start(8 * K)], &[b"OCFSV2"]),
    known("oracleasm", "an Oracle ASM disk", &[Start(32)], &[b"ORCLDISK"]),
    known("apfs", "an APFS container", &[Start(32)], &[b"NXSB"]),
    known("hfsplus", "an HFS+ file system", &[Start(1024)], &[b"H+", b"HX"]),
    checked("hfs", "an HFS file system", &[Start(1024)], &[b"BD"], checks::hfs),
    known("vxfs", "a VxFS file system", &[Start(1024)], &[b"\xf5\xfc\x01\xa5"]),
    known("vxfs", "a VxFS file system", &[Start(8 * K)], &[b"\xa5\x01\xfc\xf5"]),
    known("ufs", "a UFS file system", &[Start(1372), Start(8 * K + 1372), Start(64 * K + 1372), Start(256 * K + 1372)], &[
        b"\x19\x54\x01\x19", b"\x19\x01\x54\x19", b"\x00\x01\x19\x54", b"\x54\x19\x01\x00", b"\x00\x19\x56\x12", b"\x12\x56\x19\x00",
        b"\x00\x09\x50\x14", b"\x14\x50\x09\x00", b"\x00\x61\x21\x95", b"\x95\x21\x61\x00", b"\x05\x23\x19\x94", b"\x94\x19\x23\x05",
    ]),
    known("hpfs", "an HPFS file system", &[Start(8 * K)], &[b"\x49\xe8\x95\xf9"]),
    known("nss", "a NetWare volume", &[Start(4 * K)], &[b"SPB5"]),
    known("xenix", "a Xenix file system", &[Start(2 * K)], &[b"\x2b\x55\x44", b"\x44\x55\x2b"]),
    known("sysv", "a System V file system", &[Start(1016), Start(9 * K + 1016), Start(15 * K + 1016), Start(18 * K + 1016)],
        &[b"\x20\x7e\x18\xfd", b"\xfd\x18\x7e\x20"]),
    checked("minix", "a Minix file system", &[Start(K + 0x10)],
        &[b"\x7f\x13", b"\x8f\x13", b"\x13\x7f", b"\x13\x8f", b"\x68\x24", b"\x78\x24", b"\x24\x68", b"\x24\x78"], checks::minix),
    checked("minix", "a Minix file system", &[Start(K + 0x18)], &[b"\x5a\x4d", b"\x4d\x5a"], checks::minix3),
    checked("nilfs2", "a NILFS2 file system", &[Start(K + 6), End(4096, 6)], &[b"\x34\x34"], checks::nilfs2),
    known("VMFS", "a VMFS file system", &[Start(2 << 20)], &[b"\x5e\xf1\xab\x2f"]),
    known("VMFS_volume_member", "a VMFS volume", &[Start(1 << 20)], &[b"\x0d\xd0\x01\xc0"]),
    known("scoutfs", "a ScoutFS device", &[Start(64 * K + 4)], &[b"\x8b\x42\x3c\x10"]),
    known("bcache", "a bcache device", &[Start(4096 + 24)], &[b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"]),
    known("bcachefs", "a bcachefs file system", &[Start(4096 + 24), Start((2 << 20) + 24), End(1 << 20, 24)],
        &[b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"]),
    known("ceph_bluestore", "a Ceph OSD", &[Start(0)], &[b"bluestore block device"]),
    known("vdo", "a VDO volume", &[Start(0)], &[b"dmvdo001"]),
    known("stratis", "a Stratis device", &[Start(512 + 4), Start(9 * 512 + 4)], &[b"!Stra0tis\x86\xff\x02^\x41rh"]),
    known("DM_snapshot_cow", "a device-mapper snapshot", &[Start(0)], &[b"SnAp"]),
    known("DM_verity_hash", "a dm-verity hash device", &[Start(0)], &[b"verity\0\0"]),
    known("DM_integrity", "a dm-integrity device", &[Start(0)], &[b"integrt\0"]),
    known("drbd", "a DRBD device", &[End(4096, 60)], &[b"\x83\x74\x02\x6b", b"\x83\x74\x02\x6c", b"\x83\x74\x02\x6d"]),
    known("drbdmanage_control_volume", "a drbdmanage control volume", &[Start(0)], &[b"$DRBDmgr=q"]),
    known("drbdproxy_datalog", "a DRBD Proxy data log", &[Start(0)], &[b"DRBDdlh*"]),
    checked("cs_fvault2", "a FileVault 2 volume", &[Start(88)], &[b"CS"], checks::file_vault),
    known("isw_raid_member", "a member of an Intel RAID (IMSM)", &[End(1024, 0), End(8192, 0)], &[b"Intel Raid ISM Cfg Sig. "]),
    known("ddf_raid_member", "a member of a DDF RAID", &[End(512, 0), End(257 * 512, 0)], &[b"\xde\x11\xde\x11"]),
    known("lsi_mega_raid_member", "a member of an LSI MegaRAID", &[End(512, 0)], &[b"$XIDE$"]),
    known("nvidia_raid_member", "a member of an NVIDIA RAID", &[End(1024, 0)], &[b"NVIDIA  "]),
    known("promise_fasttrack_raid_member", "a member of a Promise FastTrak RAID", &[
        End(63 * 512, 0), End(255 * 512, 0), End(256 * 512, 0), End(16 * 512, 0), End(399 * 512, 0), End(591 * 512, 0),
        End(675 * 512, 0), End(735 * 512, 0), End(911 * 512, 0), End(974 * 512, 0), End(991 * 512, 0), End(951 * 512, 0),
        End(3087 * 512, 0),
    ], &[b"Promise Technology, Inc."]),
    known("hpt45x_raid_member", "a member of a HighPoint RAID", &[End(11 * 512, 0)], &[b"\xf3\x16\x78\x5a", b"\xfd\x16\x78\x5a"]),
    known("hpt37x_raid_member", "a member of a HighPoint RAID", &[Start(9 * 512 + 32)], &[b"\xf0\x16\x78\x5a", b"\xfd\x16\x78\x5a"]),
    checked("adaptec_raid_member", "a member of an Adaptec RAID", &[End(512, 0)], &[b"\x37\xfc\x4d\x1e"], checks::adaptec),
    checked("silicon_medley_raid_member", "a member of a Silicon Image RAID", &[End(512, 0x60)], &[b"\0\0\0\x2f"], checks::silicon),
    checked("via_raid_member", "a member of a VIA RAID", &[End(512, 0)], &[b"\x55\xaa"], checks::via),
    checked("jmicron_raid_member", "a member of a JMicron RAID", &[End(512, 0)], &[b"JM"], checks::jmicron),
    known("ext4", "an ext2, ext3 or ext4 file system", &[Start(1080)], &[b"\x53\xef"]),
    known("aix", "an AIX physical volume", &[Start(0)], &[b"\xc9\xc2\xd4\xc1"]),
    known("sgi", "an SGI partition table", &[Start(0)], &[b"\x0b\xe5\xa9\x41"]),
    known("bsd", "a BSD disk label", &[Start(512), Start(64), Start(128)], &[b"\x57\x45\x56\x82"]),
    known("ultrix", "an Ultrix disk label", &[Start(16 * K - 72)], &[b"\x57\x29\x03\0"]),
    known("dasd", "a DASD volume label", &[Start(1024), Start(2 * K), Start(4 * K), Start(8 * K)], &[b"\xd3\xd5\xe7\xf1", b"\xc3\xd4\xe2\xf1"]),
    known("dasd", "a DASD volume label", &[Start(1028), Start(2 * K + 4), Start(4 * K + 4), Start(8 * K + 4)], &[b"\xe5\xd6\xd3\xf1"]),
    checked("sun", "a Sun partition table", &[Start(508)], &[b"\xda\xbe"], checks::sun),
    checked("mac", "an Apple partition map", &[Start(0)], &[b"ER"], checks::mac),
    // FAT and NTFS boot sectors end the same way; those types were checked above.
    known("dos", "an MBR partition table or a boot sector", &[Start(510)], &[b"\x55\xaa"]),
    known("gpt", "a GPT partition table (backup copy)", &[End(512, 0), End(4096, 0)], &[b"EFI PART"]),
];

/// Returns the location of a signature of this type, if any.
type Search = fn(&Image) -> Option<u64>;

/// Types without a magic number at a fixed location.
#[rustfmt::skip]
static SEARCHED: &[(&str, &str, Search)] = &[
    ("zfs_member", "a ZFS pool", checks::zfs),
    ("crypto_LUKS", "a LUKS2 volume (second header)", checks::luks2_second),
    ("xfs_external_log", "an XFS log", checks::xfs_log),
    ("atari", "an Atari partition table", checks::atari),
];

/// The text for a type named by libblkid.
pub(super) fn words(kind: &str) -> Option<&'static str> {
    let kind = match kind {
        "ext2" | "ext3" | "ext4dev" | "jbd" => "ext4",
        "gfs" => "gfs2",
        "squashfs3" => "squashfs",
        "scoutfs_meta" | "scoutfs_data" => "scoutfs",
        kind => kind,
    };
    let by_magic = KNOWN.iter().map(|known| (known.kind, known.what));
    let searched = SEARCHED.iter().map(|(kind, what, _)| (*kind, *what));
    by_magic
        .chain(searched)
        .find(|(known, _)| *known == kind)
        .map(|(_, what)| what)
}

/// The first signature in the table that is found in the image.
pub(super) fn find(image: &Image) -> Option<Signature> {
    let signature = |kind: &str, what: &str, offset| Signature {
        what: what.to_string(),
        kind: kind.to_string(),
        offset_bytes: Some(offset),
        by: Detector::Table,
    };
    let by_magic = KNOWN.iter().find_map(|known| {
        let mut places = known.places.iter().filter_map(|at| at.offset(image.size));
        let offset = places.find(|offset| {
            known.magics.iter().any(|magic| image.has(*offset, magic))
                && known.check.is_none_or(|check| check(image, *offset))
        })?;
        Some(signature(known.kind, known.what, offset))
    });
    by_magic.or_else(|| {
        SEARCHED.iter().find_map(|(kind, what, search)| {
            search(image).map(|offset| signature(kind, what, offset))
        })
    })
}
