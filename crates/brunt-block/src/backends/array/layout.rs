//! Maps an array's bytes to its members: pure arithmetic. A *stripe* consists of one chunk per slot; slots are
//! positions that members fill.

/// RAID levels (SNIA DDF 2.0, 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Striping: no redundancy.
    Raid0,
    /// Mirroring: every slot holds all data.
    Raid1,
    /// Striping with rotating parity, left-symmetric (the default of Linux md).
    Raid5,
}

impl Level {
    /// Parses a level as written in a URL.
    pub fn parse(text: &str) -> Option<Level> {
        Some(match text {
            "raid0" => Level::Raid0,
            "raid1" => Level::Raid1,
            "raid5" => Level::Raid5,
            _ => return None,
        })
    }

    /// The level as written in a URL.
    pub fn name(self) -> &'static str {
        match self {
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid5 => "raid5",
        }
    }

    /// Minimum number of members.
    pub fn members_min(self) -> usize {
        match self {
            Level::Raid0 | Level::Raid1 => 2,
            Level::Raid5 => 3,
        }
    }
}

/// The shape of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Its level.
    pub level: Level,
    /// Number of slots.
    pub slots: usize,
    /// Chunk size in bytes, a power of two.
    pub chunk_bytes: u64,
    /// Number of whole stripes.
    pub stripes: u64,
}

/// A part of a request within one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkExtent {
    /// The stripe.
    pub stripe: u64,
    /// The slot that holds the data; any slot for RAID 1.
    pub slot: usize,
    /// Offset in the member.
    pub member_offset: u64,
    /// Length in bytes, at most to the end of the chunk.
    pub len: u64,
}

impl Layout {
    /// Number of slots of a stripe that hold data.
    pub fn data_slots(&self) -> usize {
        match self.level {
            Level::Raid0 => self.slots,
            Level::Raid1 => 1,
            Level::Raid5 => self.slots - 1,
        }
    }

    /// Bytes of data in a stripe.
    pub fn stripe_bytes(&self) -> u64 {
        self.data_slots() as u64 * self.chunk_bytes
    }

    /// Usable size of the array in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.stripes * self.stripe_bytes()
    }

    /// The slot that holds the parity of a stripe (RAID 5).
    pub fn parity_slot(&self, stripe: u64) -> usize {
        self.slots - 1 - (stripe % self.slots as u64) as usize
    }

    /// The slot that holds the data chunk `index` of a stripe.
    pub fn data_slot(&self, stripe: u64, index: usize) -> usize {
        match self.level {
            Level::Raid0 | Level::Raid1 => index,
            Level::Raid5 => (self.parity_slot(stripe) + 1 + index) % self.slots,
        }
    }

    /// The first part of the `len` bytes at `offset`, up to the end of its chunk.
    pub fn place(&self, offset: u64, len: u64) -> ChunkExtent {
        let chunk = offset / self.chunk_bytes;
        let within = offset % self.chunk_bytes;
        let (stripe, index) = (
            chunk / self.data_slots() as u64,
            chunk % self.data_slots() as u64,
        );
        ChunkExtent {
            stripe,
            slot: self.data_slot(stripe, index as usize),
            member_offset: stripe * self.chunk_bytes + within,
            len: len.min(self.chunk_bytes - within),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte has a unique location, never on the parity, and the parity rotates.
    #[test]
    fn every_byte_has_a_unique_location() {
        for (level, slots) in [(Level::Raid0, 3), (Level::Raid5, 3), (Level::Raid5, 5)] {
            let layout = Layout {
                level,
                slots,
                chunk_bytes: 4096,
                stripes: 10,
            };
            let mut taken = std::collections::HashSet::new();
            let mut offset = 0;
            while offset < layout.size_bytes() {
                let place = layout.place(offset, 1 << 20);
                assert_eq!(
                    (place.len, place.member_offset),
                    (4096, place.stripe * 4096)
                );
                assert!(taken.insert((place.stripe, place.slot)));
                assert!(level != Level::Raid5 || place.slot != layout.parity_slot(place.stripe));
                offset += place.len;
            }
            assert_eq!(taken.len() as u64, 10 * layout.data_slots() as u64);
        }
        let layout = Layout {
            level: Level::Raid5,
            slots: 4,
            chunk_bytes: 4096,
            stripes: 10,
        };
        assert_eq!(
            (0..5)
                .map(|stripe| layout.parity_slot(stripe))
                .collect::<Vec<_>>(),
            [3, 2, 1, 0, 3]
        );
        // Left-symmetric: the first data chunk follows the parity.
        assert_eq!(layout.data_slot(1, 0), 3);
        assert_eq!(
            layout.place(5000, 9000),
            ChunkExtent {
                stripe: 0,
                slot: 1,
                member_offset: 904,
                len: 3192
            }
        );
    }
}
