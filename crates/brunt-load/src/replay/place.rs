//! Where the requests of a trace go on a target: its devices one after the other, and the addresses as they are, wrapped,
//! scaled or packed. Made by the pass before the start, used by the reader.
//!
//! The rule: whatever goes in, what comes out is whole blocks inside the target.

use std::collections::BTreeMap;

use super::settings::AddressMap;

/// What is packed is kept or left out in parts of this size.
const EXTENT_BYTES: u64 = 64 << 10;
/// Extents in a chunk: 256 MiB of addresses.
const CHUNK_EXTENTS: u64 = 4096;
/// Most chunks, each 520 bytes: 34 MB.
const CHUNKS_MAX: usize = 1 << 16;
/// Devices of a trace begin at multiples of this.
const DEVICE_ALIGN: u64 = 1 << 20;

/// The extents that a trace touches.
#[derive(Debug, Default)]
pub(super) struct Extents {
    chunks: BTreeMap<(u32, u64), Chunk>,
    extents: u64,
}

#[derive(Debug)]
struct Chunk {
    /// Extents in the chunks before this one.
    before: u64,
    bits: Box<[u64; 64]>,
}

impl Extents {
    /// Marks what a request touches; `false` when there are too many chunks.
    pub(super) fn touch(&mut self, device: u32, offset: u64, len: u64) -> bool {
        for extent in offset / EXTENT_BYTES..=(offset + len - 1) / EXTENT_BYTES {
            let key = (device, extent / CHUNK_EXTENTS);
            if !self.chunks.contains_key(&key) {
                if self.chunks.len() == CHUNKS_MAX {
                    return false;
                }
                self.chunks.insert(key, Chunk { before: 0, bits: Box::new([0; 64]) });
            }
            let bit = extent % CHUNK_EXTENTS;
            let chunk = self.chunks.get_mut(&key).expect("inserted above");
            chunk.bits[(bit / 64) as usize] |= 1 << (bit % 64);
        }
        true
    }

    /// All were marked: counts those before each chunk.
    pub(super) fn settle(&mut self) {
        let mut before = 0;
        for chunk in self.chunks.values_mut() {
            chunk.before = before;
            before += chunk.bits.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        }
        self.extents = before;
    }

    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> u64 {
        self.extents * EXTENT_BYTES
    }

    /// Where an address is when only these extents are there.
    fn place(&self, device: u32, offset: u64) -> u64 {
        let extent = offset / EXTENT_BYTES;
        let chunk = self.chunks.get(&(device, extent / CHUNK_EXTENTS)).expect("touched by the pass before");
        let bit = extent % CHUNK_EXTENTS;
        let (word, below) = ((bit / 64) as usize, (1u64 << (bit % 64)) - 1);
        let rank = chunk.bits[..word].iter().map(|word| u64::from(word.count_ones())).sum::<u64>()
            + u64::from((chunk.bits[word] & below).count_ones());
        (chunk.before + rank) * EXTENT_BYTES + offset % EXTENT_BYTES
    }
}

/// Where each request goes.
#[derive(Debug)]
pub(super) struct Placement<'a> {
    map: AddressMap,
    /// Where each device of the trace begins, in one address space of all.
    bases: Vec<u64>,
    /// The end of that address space.
    span: u64,
    extents: &'a Extents,
    /// Bytes of the target, whole blocks.
    room: u64,
    block: u64,
}

/// Where one request goes, and what was done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) offset: u64,
    pub(super) len: u64,
    /// It had to become whole blocks.
    pub(super) rounded: bool,
    /// Its place is not its address.
    pub(super) moved: bool,
}

/// Where each device of the trace begins when they lie one after the other, and where the last one ends.
pub(super) fn bases(ends: &[u64]) -> (Vec<u64>, u64) {
    let (mut next, mut last) = (0u64, 0);
    let bases = ends.iter().map(|end| {
        let base = next;
        last = if *end > 0 { base.saturating_add(*end) } else { last };
        next = base.saturating_add(*end).checked_next_multiple_of(DEVICE_ALIGN).unwrap_or(u64::MAX);
        base
    });
    (bases.collect(), last)
}

impl<'a> Placement<'a> {
    /// On a target of `size` bytes with blocks of `block`; `ends` is where each device of the trace ends.
    pub(super) fn new(
        map: AddressMap,
        ends: &[u64],
        extents: &'a Extents,
        size: u64,
        block: u64,
    ) -> Placement<'a> {
        let (bases, span) = bases(ends);
        Placement { map, bases, span, extents, room: size / block * block, block }
    }

    /// Where a request goes; a request longer than the target is cut to it.
    pub(super) fn place(&self, device: u32, offset: u64, len: u64) -> Placed {
        if len == 0 {
            return Placed { offset: 0, len: 0, rounded: false, moved: false };
        }
        let first = offset / self.block * self.block;
        let end = (offset.saturating_add(len)).next_multiple_of(self.block);
        let rounded = first != offset || end != offset + len;
        let whole = (end - first).min(self.room);
        let flat = self.bases[device as usize].saturating_add(first);
        let to = match self.map {
            AddressMap::AsIs => flat,
            AddressMap::Wrap => flat % self.room,
            AddressMap::Scale => {
                let scaled = u128::from(flat) * u128::from(self.room) / u128::from(self.span.max(1));
                scaled as u64 / self.block * self.block
            }
            AddressMap::Pack => self.extents.place(device, first),
        };
        let to = to.min(self.room - whole);
        Placed { offset: to, len: whole, rounded, moved: to != first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(requests: &[(u32, u64, u64)]) -> Extents {
        let mut extents = Extents::default();
        requests.iter().for_each(|(device, offset, len)| assert!(extents.touch(*device, *offset, *len)));
        extents.settle();
        extents
    }

    /// Packed, every block keeps a place of its own, in the order of addresses, and requests stay in one piece.
    #[test]
    fn packing_keeps_places_apart_and_in_order() {
        let requests =
            [(0, 0, 4096), (0, 33 << 30, 65536 * 3), (0, (33 << 30) + 65536 * 3, 512), (1, 4096, 512)];
        let extents = touched(&requests);
        assert_eq!(extents.bytes(), 65536 * 6);
        let placement = Placement::new(AddressMap::Pack, &[40 << 30, 1 << 20], &extents, 1 << 20, 512);
        let places: Vec<u64> = requests.iter().map(|(d, o, l)| placement.place(*d, *o, *l).offset).collect();
        assert_eq!(places, [0, 65536, 65536 * 4, 65536 * 5 + 4096]);
    }

    #[test]
    fn places_are_whole_blocks_inside_the_target() {
        let none = Extents::default();
        for map in [AddressMap::Wrap, AddressMap::Scale] {
            let placement = Placement::new(map, &[1 << 40], &none, (1 << 30) + 100, 4096);
            for offset in [0u64, 1, 511, 1 << 29, (1 << 30) - 512, 1 << 35, (1 << 40) - 512] {
                let placed = placement.place(0, offset, 5000);
                assert!(placed.offset.is_multiple_of(4096) && placed.len.is_multiple_of(4096), "{placed:?}");
                assert!(placed.offset + placed.len <= 1 << 30 && placed.rounded, "{placed:?}");
            }
        }
        let placement = Placement::new(AddressMap::AsIs, &[5000, 0, 8192], &none, 1 << 30, 512);
        let expected = Placed { offset: (1 << 20) + 512, len: 1024, rounded: false, moved: true };
        assert_eq!(placement.place(2, 512, 1024), expected);
        assert_eq!(bases(&[5000, 0, 8192]), (vec![0, 1 << 20, 1 << 20], (1 << 20) + 8192));
    }
}
