//! The names of this machine's SCSI disks, as reported by their LUNs: a LUN may also be a disk of this machine.
//!
//! The rule: the pages come from the kernel, which has read them; no commands are sent to the disk.

use std::fs;
use std::path::{Path, PathBuf};

use brunt_block::StorageId;
use brunt_wire::scsi::unit_names::{self, UnitNames};

/// Adds the disks' own names, by which a LUN is known over any path.
pub fn with_names(mut storage: Vec<StorageId>) -> Vec<StorageId> {
    let names: Vec<StorageId> = storage
        .iter()
        .filter_map(|id| match id {
            StorageId::Disk { number, whole } => Some(whole.unwrap_or(*number)),
            _ => None,
        })
        .flat_map(|number| disk_names(&disk_folder(number)))
        .collect();
    storage.extend(names);
    storage
}

fn disk_folder(number: u64) -> PathBuf {
    let (major, minor) = (libc::major(number), libc::minor(number));
    Path::new("/sys/dev/block").join(format!("{major}:{minor}"))
}

/// The names of a SCSI disk, from its folder in sysfs; none for other disks.
fn disk_names(folder: &Path) -> Vec<StorageId> {
    let device = folder.join("device");
    let text = |name: &str| {
        let text = fs::read_to_string(device.join(name)).ok()?;
        Some(text.trim().to_string())
    };
    let Ok(page) = fs::read(device.join("vpd_pg83")) else {
        return Vec::new();
    };
    let names = UnitNames::parse(&page);
    let serial = fs::read(device.join("vpd_pg80")).ok();
    let serial = serial.and_then(|page| unit_names::serial(&page));
    let sectors = fs::read_to_string(folder.join("size")).ok();
    let sectors = sectors.and_then(|text| text.trim().parse::<u64>().ok());
    let alike = match (text("vendor"), text("model"), sectors) {
        (Some(vendor), Some(product), Some(sectors)) => {
            let size_bytes = sectors.saturating_mul(512);
            unit_names::likeness(&vendor, &product, serial.as_deref(), &names, size_bytes)
        }
        _ => None,
    };
    let unique = names.unique.into_iter().map(StorageId::Remote);
    unique.chain(alike.map(StorageId::Alike)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(code: u8, body: &[u8]) -> Vec<u8> {
        brunt_wire::scsi::inquiry::vpd(code, body)
    }

    /// A folder like a SCSI disk's folder in sysfs, with these designators.
    fn disk(designators: &[u8]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().join("device");
        fs::create_dir(&device).unwrap();
        for (name, bytes) in [
            ("vpd_pg83", page(0x83, designators)),
            ("vpd_pg80", page(0x80, b"  beaf11")),
            ("vendor", b"IET     \n".to_vec()),
            ("model", b"VIRTUAL-DISK    \n".to_vec()),
        ] {
            fs::write(device.join(name), bytes).unwrap();
        }
        fs::write(folder.path().join("size"), "2048\n").unwrap();
        folder
    }

    #[test]
    fn a_local_disk_is_known_by_the_names_of_its_lun() {
        let naa = [1, 3, 0, 8, 0x50, 0x01, 0x4e, 0xe2, 0xb5, 0xf0, 0xa1, 0xc3];
        let found = disk_names(disk(&naa).path());
        let lun = StorageId::Remote("naa.50014ee2b5f0a1c3".into());
        assert!(found[0].overlaps(&lun));
        assert_eq!(found, [lun]);
        assert!(disk_names(Path::new("/nowhere")).is_empty());
    }

    #[test]
    fn disks_without_unique_names_may_be_the_same() {
        let naa = [1, 3, 0, 8, 0x30, 0, 0, 1, 0, 0, 0, 1];
        let found = disk_names(disk(&naa).path());
        let names = UnitNames::parse(&page(0x83, &naa));
        let lun = |size| {
            let serial = Some("beaf11");
            unit_names::likeness("IET", "VIRTUAL-DISK", serial, &names, size).map(StorageId::Alike)
        };
        let words = "IET VIRTUAL-DISK, serial number beaf11, naa.3000000100000001, 1048576 bytes";
        let [found] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(found.likeness(&lun(1 << 20).unwrap()), Some(words));
        assert_eq!(found.likeness(&lun(1 << 21).unwrap()), None);
    }
}
