//! Generates the requests of one worker: operation, offset and length. Pure: the same workload, region and seed give
//! the same sequence on any machine and device.

use std::num::NonZeroU64;

use brunt_block::Op;
use brunt_core::random::Random;
use brunt_result::OpKind;

use crate::block::patterns::OffsetSampler;
use crate::block::sizes::SizeSampler;
use crate::block::stride::Walk;
use crate::block::workload::Workload;
use crate::record::kind_of;

/// A request without a buffer or a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The kind under which the request is counted: that of the operation, except on devices whose requests represent
    /// other calls.
    pub index: u64,
    /// The operation.
    pub op: Op,
    /// The kind it counts as: that of the operation, except on devices whose requests represent other calls.
    pub kind: OpKind,
    /// Offset in bytes from the device's start. For a request without a length, the device defines what the offset
    /// means.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Whether its data must be on stable storage before it completes, regardless of the workload's settings.
    pub force_unit_access: bool,
    /// Identifies the request's data if known: equal numbers mean equal data.
    pub content: Option<NonZeroU64>,
}

impl Planned {
    /// Placeholder before the first request has been written.
    pub const NOTHING: Planned = Planned::new(0, Op::Read, 0, 0);

    /// Creates a request with default values for the other fields.
    pub const fn new(index: u64, op: Op, offset: u64, len: u64) -> Planned {
        Planned {
            index,
            op,
            kind: kind_of(op),
            offset,
            len,
            force_unit_access: false,
            content: None,
        }
    }

    /// Returns the offset for display; 0 for a request without a length.
    #[inline]
    pub fn address(&self) -> u64 {
        if self.len > 0 { self.offset } else { 0 }
    }

    /// Returns true if the request changes what later reads return.
    #[inline]
    pub fn changes_data(&self) -> bool {
        matches!(self.op, Op::Write | Op::Unmap | Op::WriteZeroes)
    }

    /// Returns true if the request needs a buffer.
    #[inline]
    pub fn moves_data(&self) -> bool {
        matches!(self.op, Op::Read | Op::Write)
    }

    /// Returns the number of bytes transferred to or from the device.
    #[inline]
    pub fn bytes(&self) -> u64 {
        if self.moves_data() { self.len } else { 0 }
    }
}

/// The part of a device that a worker uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Start in bytes from the device's start.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Alignment of random offsets, in bytes.
    pub align: u64,
    /// Offset of the first sequential request.
    pub first: u64,
}

impl Area {
    /// Returns the area of the region `start`, `len` that worker `index` uses. With `exclusive` each worker has its
    /// own part; otherwise all use the whole region and differ only in where they start.
    pub fn of_worker(
        start: u64,
        len: u64,
        align: u64,
        index: u32,
        workers: u32,
        exclusive: bool,
    ) -> Area {
        let part = len / u64::from(workers) / align * align;
        let own = start + part * u64::from(index);
        if exclusive {
            Area {
                start: own,
                len: part,
                align,
                first: own,
            }
        } else {
            Area {
                start,
                len,
                align,
                first: own,
            }
        }
    }
}

/// The generator of a worker's requests.
#[derive(Clone, Debug)]
pub struct Generator {
    random: Random,
    pattern: OffsetSampler,
    sizes: SizeSampler,
    read: f64,
    /// Operations other than reads and writes, if the workload has any.
    others: Option<Others>,
    sequential: f64,
    area: Area,
    /// Where the previous request ended.
    next: u64,
    /// Offsets of sequential requests, if they don't simply follow each other.
    walk: Option<Box<Walk>>,
    index: u64,
}

/// Shares of requests that are neither reads nor writes.
#[derive(Clone, Copy, Debug)]
struct Others {
    /// Cumulative shares among requests other than reads: trims, then trims plus `zeroes`.
    trim: f64,
    zeroes: f64,
    /// 0 means never.
    flush_every: u64,
    /// Number of data-changing requests since the last flush.
    unflushed: u64,
}

impl Others {
    fn of(workload: &Workload) -> Option<Others> {
        let Workload {
            read,
            trim,
            write_zeroes,
            flush_every,
            ..
        } = *workload;
        let rest = (1.0 - read).max(f64::MIN_POSITIVE);
        let others = Others {
            trim: trim / rest,
            zeroes: (trim + write_zeroes) / rest,
            flush_every,
            unflushed: 0,
        };
        (others.zeroes > 0.0 || flush_every > 0).then_some(others)
    }

    /// Draws the operation of a request that is not a read.
    fn draw(&mut self, random: &mut Random) -> Op {
        self.unflushed += 1;
        if self.zeroes == 0.0 {
            return Op::Write;
        }
        match random.unit() {
            draw if draw < self.trim => Op::Unmap,
            draw if draw < self.zeroes => Op::WriteZeroes,
            _ => Op::Write,
        }
    }

    /// Returns true if a flush is due.
    fn flushes(&mut self) -> bool {
        let due = self.flush_every > 0 && self.unflushed >= self.flush_every;
        if due {
            self.unflushed = 0;
        }
        due
    }
}

impl Generator {
    /// Creates the sequence of worker `worker`.
    ///
    /// # Panics
    /// Panics if the area is too small for the largest block; [`Workload::check_device`] has ruled that out.
    pub fn new(workload: &Workload, area: Area, seed: u64, worker: u32) -> Generator {
        let longest = workload.block_bytes_max();
        assert!(
            area.len >= longest,
            "an area of {} bytes for blocks of {longest}",
            area.len
        );
        // Blocks of all sizes start at the positions of the largest size, so that a single distribution serves all of
        // them.
        let positions = (area.len - longest) / area.align + 1;
        Generator {
            random: Random::for_part(seed, u64::from(worker) * 4),
            pattern: OffsetSampler::new(&workload.distribution, positions),
            sizes: SizeSampler::new(&workload.blocks),
            read: workload.read,
            others: Others::of(workload),
            sequential: workload.sequential,
            area,
            next: area.first,
            walk: Walk::of(workload, area).map(Box::new),
            index: 0,
        }
    }

    /// Returns the index of the next request.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Writes the next request into `place`. The sequence is endless.
    #[inline(always)] // once per request, from a single call site
    pub fn next_request(&mut self, place: &mut Planned) {
        place.index = self.index;
        self.index += 1;
        if self.others.is_some() && self.flushes(place) {
            return;
        }
        let random = &mut self.random;
        let len = self.sizes.draw(random);
        place.len = len;
        place.op = match &mut self.others {
            _ if self.read >= 1.0 || random.chance(self.read) => Op::Read,
            None => Op::Write,
            Some(others) => others.draw(random),
        };
        place.kind = kind_of(place.op);
        let end = self.area.start + self.area.len;
        let offset = if self.sequential >= 1.0
            || (self.sequential > 0.0 && random.chance(self.sequential))
        {
            match &mut self.walk {
                None if self.next + len <= end => self.next,
                None => self.area.start,
                Some(walk) => walk.next(place.op, len),
            }
        } else {
            let offset = self.area.start + self.area.align * self.pattern.draw(random);
            if let Some(walk) = &mut self.walk {
                walk.moved(place.op, offset + len);
            }
            offset
        };
        place.offset = offset;
        self.next = offset + len;
    }

    /// Turns the request into a flush of the whole device if one is due.
    #[cold]
    fn flushes(&mut self, place: &mut Planned) -> bool {
        let flushes = self.others.as_mut().is_some_and(Others::flushes);
        if flushes {
            (place.op, place.kind) = (Op::Flush, OpKind::Flush);
            (place.offset, place.len) = (0, 0);
        }
        flushes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::patterns::{
        HotZones, Normal, OffsetDistribution, Pareto, Shuffled, Zipf, Zone,
    };
    use crate::block::sizes::BlockSize;
    use brunt_core::Size;

    fn next(generator: &mut Generator) -> Planned {
        let mut planned = Planned::NOTHING;
        generator.next_request(&mut planned);
        planned
    }

    fn area() -> Area {
        Area {
            start: 1 << 20,
            len: 1 << 30,
            align: 4096,
            first: 1 << 20,
        }
    }

    fn mixed() -> Workload {
        let blocks =
            [(8u64, 10.0), (16, 20.0), (32, 30.0), (64, 40.0)].map(|(kib, weight)| BlockSize {
                size: Size(kib << 10),
                weight,
            });
        Workload {
            blocks: blocks.to_vec().into(),
            read: 0.6,
            sequential: 0.3,
            ..Workload::default()
        }
    }

    fn checksum(workload: &Workload, seed: u64, worker: u32) -> u32 {
        let mut generator = Generator::new(workload, area(), seed, worker);
        (0..10_000).fold(0, |sum, _| {
            let request = next(&mut generator);
            let sum = crc32c::crc32c_append(sum, &request.offset.to_le_bytes());
            let sum = crc32c::crc32c_append(sum, &request.len.to_le_bytes());
            crc32c::crc32c_append(sum, &[u8::from(request.op == Op::Read)])
        })
    }

    /// The sequence is frozen for every distribution. A change would alter the requests of every existing experiment;
    /// these numbers must be the same on every machine.
    #[test]
    fn the_sequence_is_frozen() {
        let with = |distribution| Workload {
            distribution,
            ..mixed()
        };
        let laws = [
            (mixed(), FROZEN[0]),
            (
                with(OffsetDistribution::Zipf(Zipf { theta: 1.1 })),
                FROZEN[1],
            ),
            (
                with(OffsetDistribution::Pareto(Pareto { skew: 0.2 })),
                FROZEN[2],
            ),
            (
                with(OffsetDistribution::Normal(Normal {
                    mean: 0.5,
                    deviation: 0.1,
                })),
                FROZEN[3],
            ),
        ];
        let got: Vec<u32> = laws
            .iter()
            .map(|(workload, _)| checksum(workload, 42, 0))
            .collect();
        let expected: Vec<u32> = laws.iter().map(|(_, sum)| *sum).collect();
        assert_eq!(got, expected);
        assert_ne!(checksum(&mixed(), 42, 0), checksum(&mixed(), 42, 1));
        assert_ne!(checksum(&mixed(), 42, 0), checksum(&mixed(), 43, 0));
    }

    /// Like [`the_sequence_is_frozen`], for the other distributions.
    #[test]
    fn the_sequences_of_shuffles_and_zones_are_frozen() {
        let zone = |access, size| Zone { access, size };
        let zones = vec![zone(0.9, 0.1), zone(0.1, 0.9)];
        let got = [
            OffsetDistribution::Shuffled(Shuffled {}),
            OffsetDistribution::HotZones(HotZones { zones }),
        ]
        .map(|distribution| {
            let workload = Workload {
                distribution,
                ..mixed()
            };
            checksum(&workload, 42, 0)
        });
        assert_eq!(got, [1850946243, 234154891]);
    }

    /// The generated shares match the description (SPEK, 2005, section 2.1).
    #[test]
    fn shares_are_as_described() {
        let mut generator = Generator::new(&mixed(), area(), 1, 0);
        let (mut reads, mut sequential, mut small, mut end) = (0, 0, 0, 0);
        for _ in 0..100_000 {
            let request = next(&mut generator);
            reads += u32::from(request.op == Op::Read);
            sequential += u32::from(request.offset == end);
            small += u32::from(request.len == 8 << 10);
            end = request.offset + request.len;
            assert!(request.offset >= 1 << 20 && end <= (1 << 20) + (1 << 30));
        }
        let check = |count: u32, share: f64| {
            assert!((f64::from(count) / 1e5 - share).abs() < 0.006, "{count}")
        };
        check(reads, 0.6);
        check(sequential, 0.3);
        check(small, 0.1);
    }

    /// A sequential worker reads its region from start to end and wraps around; workers start in different places.
    #[test]
    fn a_sequential_worker_wraps_around() {
        let workload = Workload {
            sequential: 1.0,
            ..Workload::default()
        };
        let area = Area::of_worker(0, 16384, 4096, 1, 2, false);
        let mut generator = Generator::new(&workload, area, 1, 1);
        let offsets: Vec<u64> = (0..5).map(|_| next(&mut generator).offset).collect();
        assert_eq!(offsets, [8192, 12288, 0, 4096, 8192]);
        assert_eq!(
            Area::of_worker(512, 10 << 10, 512, 2, 3, true).start,
            512 + 2 * 3072
        );
    }

    #[test]
    fn kinds_come_in_their_shares_and_flushes_after_changes() {
        let workload = Workload {
            trim: 0.1,
            write_zeroes: 0.05,
            flush_every: 10,
            ..mixed()
        };
        let mut generator = Generator::new(&workload, area(), 1, 0);
        let (mut counts, mut changes, mut requests) = ([0u32; 5], 0, 0);
        for index in 0..100_000 {
            let request = next(&mut generator);
            assert_eq!(request.index, index);
            counts[request.op as usize] += 1;
            if request.op == Op::Flush {
                assert_eq!((std::mem::take(&mut changes), request.len), (10, 0));
            } else {
                (requests, changes) = (requests + 1, changes + u32::from(request.changes_data()));
            }
        }
        let share = |op: Op| f64::from(counts[op as usize]) / f64::from(requests);
        for (op, expected) in [
            (Op::Read, 0.6),
            (Op::Unmap, 0.1),
            (Op::WriteZeroes, 0.05),
            (Op::Write, 0.25),
        ] {
            assert!((share(op) - expected).abs() < 0.006, "{op:?} {}", share(op));
        }
        assert!((share(Op::Flush) - 0.04).abs() < 0.002);
    }

    const FROZEN: [u32; 4] = [1915012567, 2682858663, 4241298668, 580830864];
}
