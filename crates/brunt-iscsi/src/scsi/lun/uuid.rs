//! The UUID of a logical unit, for its device identification page. Called once when a LUN is opened. Serial numbers and
//! NAA identifiers are derived from the target's name, and targets on different machines may have the same name. The
//! one rule: two units have the same UUID only if data written to one can be read from the other.

use brunt_block::StorageId;
use sha2::{Digest, Sha256};

/// The UUID of a unit whose data is in `storage`, on the machine with this boot ID: the same for every process that
/// serves this storage, until the machine restarts. The UUID is random if no other process can reach the storage or
/// if the boot ID is unknown, because device and inode numbers are unique only within one running kernel.
///
/// # Panics
/// The kernel failed to provide random numbers.
pub fn unit_uuid(storage: &[StorageId], boot_id: Option<&str>) -> [u8; 16] {
    let mut uuid = [0; 16];
    let version = match boot_id {
        Some(boot_id) if storage.iter().any(is_certain) => {
            uuid.copy_from_slice(&hash(storage, boot_id)[..16]);
            8 // custom
        }
        _ => {
            getrandom::fill(&mut uuid).expect("random numbers from the kernel");
            4 // random
        }
    };
    // RFC 9562, 4.1 and 4.2: variant and version.
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid[6] = uuid[6] & 0x0f | version << 4;
    uuid
}

fn is_certain(storage: &StorageId) -> bool {
    !matches!(storage, StorageId::Served { .. } | StorageId::Alike(_))
}

fn hash(storage: &[StorageId], boot_id: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut field = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    field(b"brunt logical unit");
    field(boot_id.as_bytes());
    for place in storage {
        match place {
            StorageId::File { device, inode } => {
                field(b"file");
                field(&device.to_be_bytes());
                field(&inode.to_be_bytes());
            }
            StorageId::Disk { number, .. } => {
                field(b"disk");
                field(&number.to_be_bytes());
            }
            StorageId::Remote(name) => {
                field(b"remote");
                field(name.as_bytes());
            }
            // Left out of the hash: the server may restart, and different storage may look the same.
            StorageId::Served { .. } | StorageId::Alike(_) => {}
        }
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_the_same_only_for_the_same_storage_on_the_same_machine() {
        let file = |inode| StorageId::File { device: 1, inode };
        let disk = |number| StorageId::Disk {
            number,
            whole: None,
        };
        let one = unit_uuid(&[file(2)], Some("boot"));
        assert_eq!(one, unit_uuid(&[file(2)], Some("boot")));
        for (storage, boot_id) in [
            (vec![file(3)], Some("boot")),
            (vec![file(2), file(3)], Some("boot")),
            (vec![disk(2)], Some("boot")),
            (vec![StorageId::Remote("2".into())], Some("boot")),
            (vec![file(2)], Some("another boot")),
            (vec![file(2)], None),
            (vec![], Some("boot")),
            (vec![StorageId::Alike("2".into())], Some("boot")),
        ] {
            let other = unit_uuid(&storage, boot_id);
            assert_ne!(other, one, "{storage:?} {boot_id:?}");
        }
        let random = || unit_uuid(&[], Some("boot"));
        assert_ne!(random(), random());
        for (uuid, version) in [(one, 8), (random(), 4)] {
            assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (version, 0b10));
        }
    }
}
