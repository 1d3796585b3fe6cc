//! The protocol between a client and a sheep (the Sheepdog server), as defined in include/sheepdog_proto.h of
//! github.com/sheepdog/sheepdog. Covers only the bytes; client logic is in `brunt-store`.
//!
//! Requests and responses consist of a 48-byte header and data; both contain an id, and responses may arrive in any
//! order ([`header`]). A virtual disk (VDI) consists of an inode object ([`inode`]) and data objects of equal size,
//! each identified by the VDI that wrote it and its position in the disk. All numbers are little-endian.
//!
//! The one rule: a length is checked against a limit of this module before it is used as a size.

pub mod header;
pub mod inode;
pub mod result;

pub use header::{SheepdogOpcode, SheepdogRequest, SheepdogResponse};
pub use inode::SheepdogInode;

/// The default port of a sheep (SD_LISTEN_PORT).
pub const PORT: u16 = 7000;
/// The protocol version in our requests (SD_PROTO_VER). All sheep accept 1; with 2, some omit leading and trailing
/// zeros from the data of reads.
pub const PROTOCOL_VERSION: u8 = 1;
/// Maximum length of a VDI's name and of a snapshot's tag, including the final NUL (SD_MAX_VDI_LEN,
/// SD_MAX_VDI_TAG_LEN).
pub const NAME_BYTES: usize = 256;
/// Maximum number of data objects in a VDI (SD_INODE_DATA_INDEX).
pub const OBJECTS_MAX: u32 = 1 << 20;
/// VDI ids have 24 bits (SD_NR_VDIS).
pub const VDI_IDS: u32 = 1 << 24;

/// Encodes the names of a VDI and of one of its snapshots for LOCK_VDI, RELEASE_VDI and GET_VDI_INFO.
///
/// # Panics
/// Panics if either name is too long or contains a NUL.
pub fn encode_names(vdi: &str, tag: &str) -> Vec<u8> {
    let mut bytes = vec![0; 2 * NAME_BYTES];
    for (name, at) in [(vdi, 0), (tag, NAME_BYTES)] {
        assert!(
            name.len() < NAME_BYTES && !name.contains('\0'),
            "name longer than 255 bytes, or contains NUL"
        );
        bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
    }
    bytes
}

/// The id of the inode object of a VDI.
pub fn inode_object(vdi: u32) -> u64 {
    1 << 63 | u64::from(vdi) << 32
}

/// The id of a data object: the VDI that wrote it, and its index within the disk.
pub fn data_object(vdi: u32, index: u32) -> u64 {
    u64::from(vdi) << 32 | u64::from(index)
}
