//! Maps the requests of a trace to a target: the trace's devices one after the other, with addresses unchanged,
//! wrapped, scaled or packed. Created by the survey before the start, used by the reader.
//!
//! The rule: for any input, the output consists of whole blocks inside the target.

use std::collections::BTreeMap;
use std::ops::Range;

use super::settings::AddressMap;

/// Packing keeps or drops addresses in units of this size.
const EXTENT_BYTES: u64 = 64 << 10;
/// Number of extents in a chunk: 256 MiB of addresses.
const CHUNK_EXTENTS: u64 = 4096;
/// Maximum number of chunks, each 520 bytes: 34 MB.
const CHUNKS_MAX: usize = 1 << 16;
/// Devices of a trace are aligned to multiples of this.
const DEVICE_ALIGN: u64 = 1 << 20;

/// The extents that a trace touches.
#[derive(Debug, Default)]
pub(super) struct Extents {
    chunks: BTreeMap<(u32, u64), Chunk>,
    /// Number of extents per target.
    extents: Vec<u64>,
}

#[derive(Debug)]
struct Chunk {
    /// Number of extents in the earlier chunks of the same target.
    before: u64,
    bits: Box<[u64; 64]>,
}

impl Extents {
    /// Marks the extents that a request touches; returns `false` if there are too many chunks.
    pub(super) fn touch(&mut self, device: u32, offset: u64, len: u64) -> bool {
        for extent in offset / EXTENT_BYTES..=(offset + len - 1) / EXTENT_BYTES {
            let key = (device, extent / CHUNK_EXTENTS);
            if !self.chunks.contains_key(&key) {
                if self.chunks.len() == CHUNKS_MAX {
                    return false;
                }
                self.chunks.insert(
                    key,
                    Chunk {
                        before: 0,
                        bits: Box::new([0; 64]),
                    },
                );
            }
            let bit = extent % CHUNK_EXTENTS;
            let chunk = self.chunks.get_mut(&key).expect("inserted above");
            chunk.bits[(bit / 64) as usize] |= 1 << (bit % 64);
        }
        true
    }

    /// Counts the extents before each chunk, after all of them have been marked. `devices` contains each device's
    /// target, out of this number of `targets`.
    pub(super) fn settle(&mut self, devices: &[DeviceEnd], targets: usize) {
        let mut before = vec![0; targets];
        for ((device, _), chunk) in &mut self.chunks {
            let before = &mut before[usize::from(devices[*device as usize].target)];
            chunk.before = *before;
            *before += chunk
                .bits
                .iter()
                .map(|word| u64::from(word.count_ones()))
                .sum::<u64>();
        }
        self.extents = before;
    }

    /// Returns the total size of a target's extents in bytes.
    pub(super) fn bytes(&self, target: usize) -> u64 {
        self.extents[target] * EXTENT_BYTES
    }

    /// Returns the packed address when only these extents are kept; `None` for an address in an unknown chunk.
    fn place(&self, device: u32, offset: u64) -> Option<u64> {
        let extent = offset / EXTENT_BYTES;
        let chunk = self.chunks.get(&(device, extent / CHUNK_EXTENTS))?;
        let bit = extent % CHUNK_EXTENTS;
        let (word, below) = ((bit / 64) as usize, (1u64 << (bit % 64)) - 1);
        let rank = chunk.bits[..word]
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum::<u64>()
            + u64::from((chunk.bits[word] & below).count_ones());
        Some((chunk.before + rank) * EXTENT_BYTES + offset % EXTENT_BYTES)
    }
}

/// Maps each request to its target.
#[derive(Debug)]
pub(super) struct Placement<'a> {
    map: AddressMap,
    layout: Layout,
    /// The target of each device of the trace.
    devices: &'a [DeviceEnd],
    extents: &'a Extents,
    /// For each target, its start and its size in bytes, as whole blocks.
    rooms: Vec<(u64, u64)>,
    block: u64,
}

/// The end of a device of the trace, and its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceEnd {
    /// 0 for a device that is not replayed.
    pub(super) end: u64,
    /// Number of the device's target.
    pub(super) target: u16,
}

/// The mapped address of one request, and how it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) offset: u64,
    pub(super) len: u64,
    /// Whether the request was extended to whole blocks.
    pub(super) rounded: bool,
    /// Whether the request's address was changed.
    pub(super) moved: bool,
}

/// Arranges the devices of the trace one after the other on each target.
#[derive(Debug)]
pub(super) struct Layout {
    /// Start of each device on its target.
    bases: Vec<u64>,
    /// End of the last device on each target.
    pub(super) spans: Vec<u64>,
}

impl Layout {
    /// Creates the layout of devices on this number of targets.
    pub(super) fn of(devices: &[DeviceEnd], targets: usize) -> Layout {
        let (mut next, mut spans) = (vec![0u64; targets], vec![0; targets]);
        let bases = devices.iter().map(|DeviceEnd { end, target }| {
            let target = usize::from(*target);
            let base = next[target];
            if *end > 0 {
                spans[target] = base.saturating_add(*end);
            }
            next[target] = base
                .saturating_add(*end)
                .checked_next_multiple_of(DEVICE_ALIGN)
                .unwrap_or(u64::MAX);
            base
        });
        Layout {
            bases: bases.collect(),
            spans,
        }
    }
}

impl<'a> Placement<'a> {
    /// Creates a placement on targets that use these parts of a device with this block size.
    pub(super) fn new(
        map: AddressMap,
        devices: &'a [DeviceEnd],
        extents: &'a Extents,
        parts: &[Range<u64>],
        block: u64,
    ) -> Placement<'a> {
        let rooms = parts
            .iter()
            .map(|part| (part.start, (part.end - part.start) / block * block))
            .collect();
        Placement {
            map,
            layout: Layout::of(devices, parts.len()),
            devices,
            extents,
            rooms,
            block,
        }
    }

    /// Returns the address of a request, truncated to the target's size if it is longer. A request without blocks,
    /// which is a flush, covers its whole target, or has no range if there is only one target. `None` if the survey did
    /// not see its device or, when packing, its extent.
    pub(super) fn place(&self, device: u32, offset: u64, len: u64) -> Option<Placed> {
        let target = usize::from(self.devices.get(device as usize)?.target);
        let (start, room) = self.rooms[target];
        if len == 0 {
            let (offset, len) = if self.rooms.len() > 1 {
                (start, room)
            } else {
                (0, 0)
            };
            return Some(Placed {
                offset,
                len,
                rounded: false,
                moved: false,
            });
        }
        let first = offset / self.block * self.block;
        let end = (offset.saturating_add(len)).next_multiple_of(self.block);
        let rounded = first != offset || end != offset + len;
        let whole = (end - first).min(room);
        let flat = self.layout.bases[device as usize].saturating_add(first);
        let to = match self.map {
            AddressMap::AsIs => flat,
            AddressMap::Wrap => flat % room,
            AddressMap::Scale => {
                let span = self.layout.spans[target].max(1);
                let scaled = u128::from(flat) * u128::from(room) / u128::from(span);
                scaled as u64 / self.block * self.block
            }
            AddressMap::Pack => self.extents.place(device, first)?,
        };
        let to = to.min(room - whole);
        Some(Placed {
            offset: start + to,
            len: whole,
            rounded,
            moved: to != first,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(requests: &[(u32, u64, u64)]) -> Extents {
        let mut extents = Extents::default();
        requests
            .iter()
            .for_each(|(device, offset, len)| assert!(extents.touch(*device, *offset, *len)));
        extents.settle(&on_one(&[40 << 30, 1 << 20]), 1);
        extents
    }

    fn on_one(ends: &[u64]) -> Vec<DeviceEnd> {
        ends.iter()
            .map(|end| DeviceEnd {
                end: *end,
                target: 0,
            })
            .collect()
    }

    fn whole(size: u64) -> Vec<Range<u64>> {
        std::iter::once(0..size).collect()
    }

    /// When packing, every block keeps a distinct address, in order, and requests stay contiguous.
    #[test]
    fn packing_keeps_addresses_distinct_and_in_order() {
        let requests = [
            (0, 0, 4096),
            (0, 33 << 30, 65536 * 3),
            (0, (33 << 30) + 65536 * 3, 512),
            (1, 4096, 512),
        ];
        let extents = touched(&requests);
        assert_eq!(extents.bytes(0), 65536 * 6);
        let devices = on_one(&[40 << 30, 1 << 20]);
        let parts = whole(1 << 20);
        let placement = Placement::new(AddressMap::Pack, &devices, &extents, &parts, 512);
        let places: Vec<u64> = requests
            .iter()
            .map(|(d, o, l)| placement.place(*d, *o, *l).unwrap().offset)
            .collect();
        assert_eq!(places, [0, 65536, 65536 * 4, 65536 * 5 + 4096]);
        assert_eq!(
            (placement.place(0, 1 << 30, 512), placement.place(2, 0, 512)),
            (None, None)
        );
    }

    #[test]
    fn mapped_requests_are_whole_blocks_inside_the_target() {
        let none = Extents::default();
        for map in [AddressMap::Wrap, AddressMap::Scale] {
            let (devices, parts) = (on_one(&[1 << 40]), whole((1 << 30) + 100));
            let placement = Placement::new(map, &devices, &none, &parts, 4096);
            for offset in [
                0u64,
                1,
                511,
                1 << 29,
                (1 << 30) - 512,
                1 << 35,
                (1 << 40) - 512,
            ] {
                let placed = placement.place(0, offset, 5000).unwrap();
                assert!(
                    placed.offset.is_multiple_of(4096) && placed.len.is_multiple_of(4096),
                    "{placed:?}"
                );
                assert!(
                    placed.offset + placed.len <= 1 << 30 && placed.rounded,
                    "{placed:?}"
                );
            }
        }
        let (devices, parts) = (on_one(&[5000, 0, 8192]), whole(1 << 30));
        let placement = Placement::new(AddressMap::AsIs, &devices, &none, &parts, 512);
        let expected = Placed {
            offset: (1 << 20) + 512,
            len: 1024,
            rounded: false,
            moved: true,
        };
        assert_eq!(placement.place(2, 512, 1024), Some(expected));
        let layout = Layout::of(&devices, 1);
        assert_eq!(
            (layout.bases, layout.spans),
            (vec![0, 1 << 20, 1 << 20], vec![(1 << 20) + 8192])
        );
    }

    /// Each target has its own addresses, and a flush only affects its own target.
    #[test]
    fn each_target_has_its_own_addresses() {
        let devices =
            [(8192, 1), (4096, 0), (4096, 1)].map(|(end, target)| DeviceEnd { end, target });
        let parts = [0..1 << 30, 1 << 30..3 << 30];
        let mut extents = Extents::default();
        for device in 0..3 {
            assert!(extents.touch(device, 0, 4096));
        }
        extents.settle(&devices, 2);
        assert_eq!([extents.bytes(0), extents.bytes(1)], [65536, 131_072]);
        let places = |map| {
            let placement = Placement::new(map, &devices, &extents, &parts, 512);
            [0, 1, 2]
                .map(|device| placement.place(device, 512, 512).unwrap())
                .map(|placed| (placed.offset, placed.moved))
        };
        let begin = 1 << 30;
        assert_eq!(
            places(AddressMap::AsIs),
            [
                (begin + 512, false),
                (512, false),
                (begin + (1 << 20) + 512, true)
            ]
        );
        assert_eq!(
            places(AddressMap::Pack),
            [
                (begin + 512, false),
                (512, false),
                (begin + 65536 + 512, true)
            ]
        );
        let placement = Placement::new(AddressMap::AsIs, &devices, &extents, &parts, 512);
        let flush = placement.place(0, 0, 0).unwrap();
        assert_eq!((flush.offset, flush.len), (1 << 30, 2 << 30));
    }
}
