//! The inode object of a VDI (`struct sd_inode`): the properties of the disk, and which VDI wrote each of its data
//! objects. Used by the connection code in `brunt-store`.
//!
//! The rule: an inode that cannot describe a valid disk is malformed, and all parsed values are within the protocol's
//! limits.

use super::header::{u32_le, u64_le};
use super::{NAME_BYTES, OBJECTS_MAX, VDI_IDS};
use crate::{Cursor, Malformed, ParseError};

/// Offset of `data_vdi_id`: for each data object, 4 bytes with the VDI that wrote it, or 0 if none did. The 4096
/// bytes after the fixed fields contained the VDI's children before version 0.9, and contain the B-tree counter since
/// then.
pub const DATA_VDI_ID_OFFSET: u32 = FIELDS_BYTES as u32 + 4096;
/// Size of the fields that [`SheepdogInode::parse`] reads.
pub const FIELDS_BYTES: usize = 2 * NAME_BYTES + 5 * 8 + 4 + 3 * 4;
/// Data objects have 1 MiB to 2 GiB (`dog cluster format -z`, `dog vdi create -z`).
const OBJECT_SHIFTS: std::ops::RangeInclusive<u8> = 20..=31;

/// The fields of an inode that a client needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SheepdogInode {
    /// The VDI's name.
    pub name: String,
    /// A snapshot's tag, which may be empty.
    pub tag: String,
    /// Whether the VDI is a snapshot, which never changes.
    pub is_snapshot: bool,
    /// Size of the disk in bytes, as created.
    pub size_bytes: u64,
    /// Non-zero means erasure-coded, which the server handles for its clients.
    pub copy_policy: u8,
    /// Non-zero means a hypervolume, whose object map is a B-tree.
    pub store_policy: u8,
    /// Number of replicas of each object.
    pub copies: u8,
    /// Base-2 logarithm of an object's size in bytes.
    pub object_shift: u8,
    /// A snapshot's number.
    pub snapshot: u32,
    /// The VDI's id.
    pub vdi: u32,
    /// The snapshot from which the VDI was cloned; 0 means none.
    pub parent: u32,
}

impl SheepdogInode {
    /// Parses the fields.
    ///
    /// # Errors
    /// The fields are incomplete, or don't describe a valid disk.
    pub fn parse(bytes: &[u8]) -> Result<SheepdogInode, ParseError> {
        let mut cur = Cursor::new(bytes);
        let (name, tag) = (text(cur.take(NAME_BYTES)?), text(cur.take(NAME_BYTES)?));
        cur.skip(8)?; // create_time
        let is_snapshot = u64_le(&mut cur)? != 0;
        cur.skip(8)?; // vm_clock_nsec
        let at = cur.at();
        let size_bytes = u64_le(&mut cur)?;
        cur.skip(8)?; // vm_state_size
        let (copy_policy, store_policy) = (cur.u8()?, cur.u8()?);
        let copies = cur.u8()?;
        let object_shift = cur.u8()?;
        if !OBJECT_SHIFTS.contains(&object_shift) {
            return Err(cur.malformed(1, "object size is not 1 MiB to 2 GiB"));
        }
        let (snapshot, vdi, parent) = (u32_le(&mut cur)?, u32_le(&mut cur)?, u32_le(&mut cur)?);
        if vdi == 0 || vdi >= VDI_IDS || parent >= VDI_IDS {
            return Err(cur.malformed(8, "VDI id does not fit in 24 bits"));
        }
        let inode = SheepdogInode {
            name,
            tag,
            is_snapshot,
            size_bytes,
            copy_policy,
            store_policy,
            copies,
            object_shift,
            snapshot,
            vdi,
            parent,
        };
        match store_policy == 0 && size_bytes.div_ceil(inode.object_bytes()) > OBJECTS_MAX.into() {
            true => Err(Malformed::new(at, "more than 1048576 objects").into()),
            false => Ok(inode),
        }
    }

    /// Size of a data object in bytes.
    pub fn object_bytes(&self) -> u64 {
        1 << self.object_shift
    }

    /// Number of data objects in the disk; for a hypervolume, at most [`OBJECTS_MAX`].
    pub fn objects_count(&self) -> u32 {
        self.size_bytes
            .div_ceil(self.object_bytes())
            .min(OBJECTS_MAX.into()) as u32
    }

    /// Encodes the fields; the inverse of [`SheepdogInode::parse`].
    ///
    /// # Panics
    /// Panics if a name is too long or contains a NUL.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = super::encode_names(&self.name, &self.tag);
        for value in [0, u64::from(self.is_snapshot), 0, self.size_bytes, 0] {
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend([
            self.copy_policy,
            self.store_policy,
            self.copies,
            self.object_shift,
        ]);
        for value in [self.snapshot, self.vdi, self.parent] {
            bytes.extend(value.to_le_bytes());
        }
        bytes
    }
}

/// Parses a part of `data_vdi_id`.
///
/// # Errors
/// The part is incomplete, or contains invalid VDI ids.
pub fn parse_map(bytes: &[u8], count: u32) -> Result<Vec<u32>, ParseError> {
    let needed = count as usize * 4;
    let Some(bytes) = bytes.get(..needed) else {
        return Err(ParseError::Incomplete(needed));
    };
    let ids = bytes
        .chunks_exact(4)
        .map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]));
    let ids: Vec<u32> = ids.collect();
    match ids.iter().position(|id| *id >= VDI_IDS) {
        Some(index) => Err(Malformed::new(4 * index, "VDI id does not fit in 24 bits").into()),
        None => Ok(ids),
    }
}

/// A name up to its NUL; invalid UTF-8 is replaced.
fn text(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]);
    text.chars()
        .map(|one| if one.is_control() { ' ' } else { one })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> SheepdogInode {
        SheepdogInode {
            name: "disk".to_string(),
            tag: "before".to_string(),
            is_snapshot: true,
            size_bytes: 10 << 20,
            copy_policy: 0,
            store_policy: 0,
            copies: 3,
            object_shift: 22,
            snapshot: 2,
            vdi: 0xab_cdef,
            parent: 5,
        }
    }

    #[test]
    fn fields_survive_a_round_trip() {
        let bytes = disk().encode();
        assert_eq!((bytes.len(), DATA_VDI_ID_OFFSET), (FIELDS_BYTES, 4664));
        assert_eq!(SheepdogInode::parse(&bytes), Ok(disk()));
        assert_eq!(disk().objects_count(), 3);
        for end in 0..bytes.len() {
            assert!(
                matches!(
                    SheepdogInode::parse(&bytes[..end]),
                    Err(ParseError::Incomplete(_))
                ),
                "{end}"
            );
        }
    }

    #[test]
    fn impossible_inodes_are_malformed() {
        let check = |change: fn(&mut SheepdogInode)| {
            let mut inode = disk();
            change(&mut inode);
            let parsed = SheepdogInode::parse(&inode.encode());
            assert!(
                matches!(parsed, Err(ParseError::Malformed(_))),
                "{parsed:?}"
            );
        };
        check(|inode| inode.object_shift = 9);
        check(|inode| inode.object_shift = 32);
        check(|inode| inode.vdi = 0);
        check(|inode| inode.parent = VDI_IDS);
        check(|inode| inode.size_bytes = (4 << 40) + 1);
        check(|inode| inode.size_bytes = u64::MAX);
    }

    #[test]
    fn maps_with_invalid_ids_are_malformed() {
        let bytes = [1, 0, 0, 0, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1];
        assert_eq!(parse_map(&bytes, 2), Ok(vec![1, 0xff_ffff]));
        assert!(matches!(parse_map(&bytes, 3), Err(ParseError::Malformed(bad)) if bad.offset == 8));
        assert_eq!(parse_map(&bytes, 4), Err(ParseError::Incomplete(16)));
    }
}
