//! The parameter list of UNMAP and the reply to GET LBA STATUS (SBC-3, 5.28 and 5.5).

use super::cdb::{be16, be32, be64};
use crate::Malformed;

/// A range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnmapDescriptor {
    /// First block.
    pub lba: u64,
    /// Number of blocks.
    pub blocks: u32,
}

/// Parses the block descriptors of an UNMAP parameter list. If the lengths in the list exceed the
/// data, only complete descriptors are returned (SBC-3, 5.28.2: truncation is not an error).
///
/// # Errors
/// The data is shorter than the header.
pub fn parse(list: &[u8]) -> Result<impl Iterator<Item = UnmapDescriptor> + '_, Malformed> {
    if list.len() < 8 {
        return Err(Malformed::new(
            list.len(),
            "UNMAP parameter list shorter than its 8-byte header",
        ));
    }
    let bytes = usize::from(be16(list, 2));
    let body = &list[8..list.len().min(8 + bytes)];
    Ok(body.chunks_exact(16).map(|d| UnmapDescriptor {
        lba: be64(d, 0),
        blocks: be32(d, 8),
    }))
}

/// The reply to GET LBA STATUS: extents with their provisioning status (0 mapped, 1 deallocated, 2 anchored).
pub fn lba_status(extents: &[(UnmapDescriptor, u8)]) -> Vec<u8> {
    let mut out = vec![0; 8];
    for (extent, status) in extents {
        out.extend_from_slice(&extent.lba.to_be_bytes());
        out.extend_from_slice(&extent.blocks.to_be_bytes());
        out.extend_from_slice(&[*status, 0, 0, 0]);
    }
    let length = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At every length of the list, a descriptor is parsed completely or not at all.
    #[test]
    fn descriptors_are_parsed_completely_or_not_at_all() {
        let mut list = vec![0, 38, 0, 32, 0, 0, 0, 0];
        for lba in [1u64, 2] {
            list.extend_from_slice(&lba.to_be_bytes());
            list.extend_from_slice(&[0, 0, 0, 9, 0, 0, 0, 0]);
        }
        for end in 0..=list.len() {
            match parse(&list[..end]) {
                Err(error) => assert!(end < 8 && error.offset == end),
                Ok(extents) => assert_eq!(extents.count(), (end - 8) / 16),
            }
        }
        let first = parse(&list).unwrap().next();
        assert_eq!(first, Some(UnmapDescriptor { lba: 1, blocks: 9 }));
    }

    #[test]
    fn the_status_list_contains_its_own_length() {
        let out = lba_status(&[(UnmapDescriptor { lba: 7, blocks: 8 }, 1)]);
        assert_eq!((out.len(), out[3], out[20]), (24, 20, 1));
    }
}
