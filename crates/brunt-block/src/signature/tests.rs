use super::table::{At, KNOWN};
use super::*;
use crate::backends::memory::MemoryBackend;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const SIZE: u64 = 64 << 20;

/// The content of a disk with a signature: offsets and bytes.
type Parts = Vec<(u64, Vec<u8>)>;

fn at(offset: u64, bytes: &[u8]) -> (u64, Vec<u8>) {
    (offset, bytes.to_vec())
}

/// The data around a magic number that makes it valid, also for libblkid, which verifies more.
fn around(kind: &str, offset: u64, magic: &[u8], size: u64) -> Parts {
    let le32 = u32::to_le_bytes;
    match kind {
        "LVM2_member" => lvm2(offset, magic),
        "LVM1_member" => vec![at(offset + 2, &[1, 0])],
        "hfs" => vec![at(offset + 20, &4096u32.to_be_bytes())],
        "minix" if magic == b"\x5a\x4d" || magic == b"\x4d\x5a" => {
            let big = magic[0] == 0x4d;
            let two = |value: u16| {
                if big {
                    value.to_be_bytes()
                } else {
                    value.to_le_bytes()
                }
            };
            let four = |value: u32| {
                if big {
                    value.to_be_bytes()
                } else {
                    value.to_le_bytes()
                }
            };
            let start = offset - 0x18;
            let maps = [two(1), two(1), two(5)].concat();
            vec![
                at(start, &four(64)),
                at(start + 6, &maps),
                at(start + 0x14, &four(100)),
                at(start + 0x1c, &two(1024)),
            ]
        }
        "minix" => {
            let big = matches!(magic[0], 0x13 | 0x24);
            let two = |value: u16| {
                if big {
                    value.to_be_bytes()
                } else {
                    value.to_le_bytes()
                }
            };
            let start = offset - 0x10;
            let fields = [two(64), two(100), two(1), two(1), two(5)].concat();
            let zones = if big { 100u32.to_be_bytes() } else { le32(100) };
            vec![at(start, &fields), at(start + 0x14, &zones)]
        }
        "nilfs2" => nilfs2(offset, size),
        "cs_fvault2" => vec![at(offset - 80, &[1, 0]), at(offset + 2, &le32(1))],
        "adaptec_raid_member" => vec![at(offset + 256, b"DPTM")],
        "silicon_medley_raid_member" => vec![at(offset - 0x60 + 0x13e, &0xd100u16.to_le_bytes())],
        "via_raid_member" => vec![at(offset + 50, &[0xff])],
        "jmicron_raid_member" => vec![at(offset + 4, &0xb2b6u16.to_le_bytes())],
        "sun" => vec![at(offset + 2, &[0xda, 0xbe])],
        "mac" => vec![
            at(2, &512u16.to_be_bytes()),
            at(512, b"PM"),
            at(516, &1u32.to_be_bytes()),
        ],
        "linux_raid_member"
            if matches!(magic[0], 0xfc) && offset < SIZE - 65536 || offset == size - 8192 =>
        {
            md1(offset)
        }
        "DM_verity_hash" => vec![at(8, &le32(1))],
        "DM_integrity" => vec![at(8, &[1])],
        "drbd" => vec![
            at(offset - 60 + 80, &4096u32.to_be_bytes()),
            at(offset - 60 + 84, &4096u32.to_be_bytes()),
        ],
        "hpfs" => vec![at(offset + 0x200, b"\x49\x18\x91\xf9")],
        "swap" => vec![at(1024, &le32(1)), at(1028, &le32(100))],
        "gpt" => vec![at(510, b"\x55\xaa"), at(446 + 4, &[0xee])],
        _ => Vec::new(),
    }
}

fn lvm2(offset: u64, magic: &[u8]) -> Parts {
    let start = if magic == b"LABELONE" {
        offset
    } else {
        offset - 0x18
    };
    vec![
        at(start, b"LABELONE"),
        at(start + 8, &(start / 512).to_le_bytes()),
        at(start + 0x18, b"LVM2 001"),
    ]
}

/// A superblock of md version 1.
fn md1(offset: u64) -> Parts {
    vec![
        at(offset + 4, &1u32.to_le_bytes()),
        at(offset + 144, &(offset / 512).to_le_bytes()),
    ]
}

fn nilfs2(offset: u64, size: u64) -> Parts {
    let start = offset - 6;
    vec![
        at(start, &2u32.to_le_bytes()),
        at(start + 8, &280u16.to_le_bytes()),
        at(start + 32, &size.to_le_bytes()),
    ]
}

/// Disks with each magic number of the table at each of its locations, and the data that makes it valid.
fn disks(size: u64) -> Vec<(&'static str, u64, Parts)> {
    let mut disks = Vec::new();
    for known in KNOWN {
        for place in known.places {
            for magic in known.magics {
                let offset = place.offset(size).unwrap();
                let mut parts = around(known.kind, offset, magic, size);
                parts.push(at(offset, magic));
                disks.push((known.kind, offset, parts));
            }
        }
    }
    for shift in 14..=22 {
        let offset = 1u64 << shift;
        let mut header = b"SKUL\xba\xbe\0\x02".to_vec();
        header.resize(512, 0);
        header[256..264].copy_from_slice(&offset.to_be_bytes());
        disks.push(("crypto_LUKS", offset, vec![(offset, header)]));
    }
    let label = 256 << 10;
    let whole = size / label * label;
    for start in [0, label, whole - 2 * label, whole - label] {
        let uber = |slot: u64| at(start + label / 2 + slot * 1024, b"\x0c\xb1\xba\0\0\0\0\0");
        disks.push(("zfs_member", start + label / 2, (0..8).map(uber).collect()));
    }
    let mut log = b"\xfe\xed\xba\xbe\0\0\0\0\0\0\0\x02\0\0\x02\0".to_vec();
    log.resize(304, 0);
    log[303] = 1;
    disks.push(("xfs_external_log", 1024, vec![(1024, log)]));
    let partition = [
        b"\x01GEM".as_slice(),
        &2u32.to_be_bytes(),
        &100u32.to_be_bytes(),
    ]
    .concat();
    let atari = vec![at(450, &1000u32.to_be_bytes()), at(454, &partition)];
    disks.push(("atari", 454, atari));
    disks
}

/// Every signature is found at its location, on devices of either block size and any maximum request size.
#[test]
fn each_signature_of_the_table_is_found_on_any_device() {
    for (block, size) in [(512, SIZE), (4096, SIZE), (512, SIZE + 512 * 77)] {
        for (kind, offset, parts) in disks(size) {
            let backend = MemoryBackend::new(size, block).unwrap();
            for (at, bytes) in &parts {
                backend.memory().write(*at, bytes);
            }
            let found = table::find(&read(&backend).unwrap());
            let found = found.unwrap_or_else(|| panic!("{kind} at {offset:#x} is missed"));
            let first = KNOWN.iter().any(|known| known.kind == found.kind);
            assert!(
                first || found.kind == kind,
                "{kind} at {offset:#x}: {found}"
            );
        }
    }
}

/// Empty disks, and disks filled with a single byte value or with random data, contain no signature.
#[test]
fn empty_and_random_disks_contain_no_signature() {
    let check = |fill: &dyn Fn(u64) -> u8| {
        let backend = MemoryBackend::new(SIZE, 512).unwrap();
        let mut page = vec![0; 4096];
        for (from, to) in ranges(SIZE, 512) {
            for offset in (from..to).step_by(4096) {
                page.iter_mut()
                    .zip(offset..)
                    .for_each(|(byte, at)| *byte = fill(at));
                backend.memory().write(offset, &page);
            }
        }
        assert_eq!(scan(&backend).unwrap().found, None);
        assert_eq!(table::find(&read(&backend).unwrap()), None);
    };
    check(&|_| 0);
    check(&|_| 0xa5);
    check(&|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8);
}

#[test]
fn a_short_device_is_read_completely() {
    let backend = MemoryBackend::new(512, 512).unwrap();
    assert_eq!(scan(&backend).unwrap().found, None);
    backend.memory().write(510, b"\x55\xaa");
    let found = scan(&backend).unwrap().found.unwrap().to_string();
    assert!(
        found.starts_with("an MBR partition table or a boot sector ("),
        "{found}"
    );
}

/// The ranges don't overlap, consist of whole blocks, and cover all locations in the table.
#[test]
fn ranges_cover_every_location_in_the_table() {
    for (size, block) in [
        (512, 512),
        (4096, 4096),
        (SIZE, 4096),
        (1 << 40, 512),
        ((3 << 20) + 512, 512),
    ] {
        let ranges = ranges(size, block);
        assert!(
            ranges.windows(2).all(|pair| pair[0].1 < pair[1].0),
            "{ranges:?}"
        );
        assert!(
            ranges
                .iter()
                .all(|(from, to)| from % block == 0 && to % block == 0 && *to <= size)
        );
        for known in KNOWN {
            for place in known
                .places
                .iter()
                .filter_map(|place: &At| place.offset(size))
            {
                let within = |(from, to): &(u64, u64)| (*from..*to).contains(&place);
                assert!(
                    place + 16 > size || ranges.iter().any(within),
                    "{} at {place:#x} of {size:#x}",
                    known.kind
                );
            }
        }
    }
}

/// A device with a small maximum request size is read in pieces.
#[test]
fn requests_respect_the_devices_maximum_size() {
    let backend = crate::open_url("memory:64MiB").unwrap();
    let short = Arc::new(
        Short {
            inner: backend,
            info: None,
        }
        .limited(64 << 10),
    );
    assert_eq!(scan(&*short).unwrap().found, None);
}

/// A device with a smaller maximum request size, which refuses longer requests.
struct Short {
    inner: Arc<dyn Backend>,
    info: Option<crate::DeviceInfo>,
}

impl Short {
    fn limited(mut self, bytes: u32) -> Short {
        let info = crate::DeviceInfo {
            transfer_bytes_max: bytes,
            ..self.inner.info().clone()
        };
        self.info = Some(info);
        self
    }
}

impl Backend for Short {
    fn info(&self) -> &crate::DeviceInfo {
        self.info.as_ref().unwrap()
    }

    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn crate::Device>, crate::OpenError> {
        Ok(Box::new(ShortDevice {
            inner: self.inner.open(ring, depth)?,
            info: self.info().clone(),
        }))
    }
}

struct ShortDevice {
    inner: Box<dyn crate::Device>,
    info: crate::DeviceInfo,
}

impl crate::Device for ShortDevice {
    fn info(&self) -> &crate::DeviceInfo {
        &self.info
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        let longest = u64::from(self.info.transfer_bytes_max);
        assert!(
            batch.iter().all(|request| request.len <= longest),
            "{batch:?}"
        );
        self.inner.submit(batch);
    }

    fn poll(&mut self, done: &mut Vec<crate::Completion>) {
        self.inner.poll(done);
    }

    fn outstanding(&self) -> u32 {
        self.inner.outstanding()
    }

    fn deadline(&self) -> brunt_core::Nanos {
        self.inner.deadline()
    }
}

/// Search path that includes the directories of administration programs, which aren't on every PATH.
fn search() -> String {
    format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    )
}

fn needs(program: &str) {
    let required = std::env::var_os("BRUNT_REQUIRE_ALL").is_some_and(|value| value == "1");
    assert!(!required, "needs {program}");
    println!("skipped: needs {program}");
}

/// The types that `wipefs` finds in a file.
fn wipefs(path: &Path) -> Option<BTreeSet<String>> {
    let mut wipefs = Command::new("wipefs");
    wipefs
        .args(["-n", "-i", "--noheadings", "-O", "TYPE"])
        .arg(path)
        .env("PATH", search());
    let said = wipefs.output().ok()?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    Some(text.split_whitespace().map(str::to_string).collect())
}

/// The table finds every signature that `wipefs` finds; each type named by libblkid is on one of these disks, so that a
/// new type fails here.
#[test]
fn the_table_finds_everything_that_wipefs_finds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    let mut seen = BTreeSet::new();
    for (kind, offset, parts) in disks(SIZE) {
        let file = File::create(&path).unwrap();
        file.set_len(SIZE).unwrap();
        for (at, bytes) in &parts {
            file.write_all_at(bytes, *at).unwrap();
        }
        drop(file);
        let Some(kinds) = wipefs(&path) else {
            return needs("wipefs");
        };
        let backend = crate::open_url(path.to_str().unwrap()).unwrap();
        let image = read(&*backend).unwrap();
        let table = table::find(&image);
        assert!(
            table.is_some() || kinds.is_empty(),
            "{kind} at {offset:#x}: wipefs says {kinds:?}"
        );
        match blkid::find(&image) {
            None => needs("libblkid"),
            Some(found) => assert_eq!(
                found.is_some(),
                !kinds.is_empty(),
                "{kind}: wipefs says {kinds:?}, libblkid {found:?}"
            ),
        }
        seen.extend(kinds);
    }
    println!("{} types: {seen:?}", seen.len());
    let listed = Command::new("blkid")
        .arg("-k")
        .env("PATH", search())
        .output();
    let Ok(listed) = listed else {
        return needs("blkid");
    };
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let missed: Vec<&str> = listed
        .split_whitespace()
        .filter(|kind| !seen.contains(*kind) && table::words(kind).is_none())
        .collect();
    assert!(
        missed.is_empty(),
        "types that the table does not know: {missed:?}"
    );
    let unproven: Vec<&str> = listed
        .split_whitespace()
        .filter(|kind| !seen.contains(*kind))
        .collect();
    println!("not on any disk for wipefs: {unproven:?}");
}

/// Signatures written by the real tools are found, even by the table alone.
#[test]
fn signatures_written_by_real_tools_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    let check = |program: &str, arguments: &[&str], input: &str, kinds: &[&str]| {
        let file = File::create(&path).unwrap();
        file.set_len(512 << 20).unwrap();
        if !run(program, arguments, &path, input) {
            return needs(program);
        }
        let backend = crate::open_url(path.to_str().unwrap()).unwrap();
        let image = read(&*backend).unwrap();
        let looked = [scan(&*backend).unwrap().found, table::find(&image)];
        for found in looked {
            let found = found.unwrap_or_else(|| panic!("{program}: nothing found"));
            assert!(kinds.contains(&found.kind.as_str()), "{program}: {found}");
        }
    };
    check("mkfs.ext4", &["-q", "-F"], "", &["ext4"]);
    check("mkfs.xfs", &["-q", "-f"], "", &["xfs"]);
    check("mkfs.btrfs", &["-q", "-f"], "", &["btrfs"]);
    check("mkfs.vfat", &[], "", &["vfat"]);
    check("mkswap", &[], "", &["swap"]);
    check("sfdisk", &["-q"], "label: gpt\n,,\n", &["gpt"]);
    check("sfdisk", &["-q"], "label: dos\n,,\n", &["dos"]);
    check("sfdisk", &["-q"], "label: sun\n,,\n", &["sun"]);
    check("sfdisk", &["-q"], "label: sgi\n,,\n", &["sgi"]);
}

fn run(program: &str, arguments: &[&str], path: &Path, input: &str) -> bool {
    use std::io::Write;
    use std::process::Stdio;
    let child = Command::new(program)
        .args(arguments)
        .arg(path)
        .env("PATH", search())
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
