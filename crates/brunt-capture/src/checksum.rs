//! 64-bit checksums (XXH3) of each 512-byte block at a 512-byte-aligned offset of a *file*, computed while its data
//! arrives in pieces of any size. Fed by [`crate::dissect`]. The one rule: a block is summed only if all of it was
//! seen. Data is not buffered: only a block that straddles two pieces is copied.

use twox_hash::XxHash3_64;

/// Bytes per block.
pub const BLOCK_BYTES: usize = 512;
/// Maximum checksums emitted at once.
const RUN_BLOCKS_MAX: usize = 128;

/// Computes the block checksums of one READ or WRITE.
// Field order: everything updated per piece of data fits in one cache line, and `straddling` starts on a cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct BlockSums {
    /// The start of a block that continues in the next piece.
    straddling: [u8; BLOCK_BYTES],
    straddling_len: usize,
    /// File offset of the next byte.
    offset: u64,
    /// Bytes to skip until the next aligned offset.
    skip: usize,
    /// File offset of the first block in `sums`.
    run_at: u64,
    sums: Vec<u64>,
}

/// The checksum of one block.
#[inline]
pub fn sum(block: &[u8; BLOCK_BYTES]) -> u64 {
    XxHash3_64::oneshot(block)
}

impl Default for BlockSums {
    fn default() -> BlockSums {
        BlockSums {
            straddling: [0; BLOCK_BYTES],
            straddling_len: 0,
            offset: 0,
            skip: 0,
            run_at: 0,
            sums: Vec::with_capacity(RUN_BLOCKS_MAX),
        }
    }
}

impl BlockSums {
    /// Starts a run of data at this file offset.
    #[inline]
    pub fn start(&mut self, offset: u64) {
        self.offset = offset;
        self.sums.clear();
        self.align();
    }

    #[inline]
    fn align(&mut self) {
        self.straddling_len = 0;
        self.skip = (self.offset.wrapping_neg() % BLOCK_BYTES as u64) as usize;
        self.run_at = self.offset.wrapping_add(self.skip as u64);
    }

    /// Adds the next bytes of the data. `emit` receives runs of checksums, with the offset of each run's first block.
    #[inline]
    pub fn update(&mut self, mut bytes: &[u8], mut emit: impl FnMut(u64, &[u64])) {
        self.offset = self.offset.wrapping_add(bytes.len() as u64);
        if self.skip > 0 {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
        }
        if self.straddling_len > 0 {
            let taken = (BLOCK_BYTES - self.straddling_len).min(bytes.len());
            self.straddling[self.straddling_len..][..taken].copy_from_slice(&bytes[..taken]);
            self.straddling_len += taken;
            bytes = &bytes[taken..];
            if self.straddling_len < BLOCK_BYTES {
                return;
            }
            self.straddling_len = 0;
            self.sums.push(sum(&self.straddling));
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
        for block in blocks {
            if self.sums.len() >= RUN_BLOCKS_MAX {
                self.flush(&mut emit);
            }
            self.sums.push(sum(block));
        }
        self.straddling[..rest.len()].copy_from_slice(rest);
        self.straddling_len = rest.len();
        if self.sums.len() >= RUN_BLOCKS_MAX {
            self.flush(&mut emit);
        }
    }

    /// Skips `len` bytes of the data that were not seen.
    pub fn hole(&mut self, len: u64, mut emit: impl FnMut(u64, &[u64])) {
        self.flush(&mut emit);
        self.offset = self.offset.wrapping_add(len);
        self.align();
    }

    /// Ends the data and emits the remaining checksums.
    #[inline]
    pub fn finish(&mut self, mut emit: impl FnMut(u64, &[u64])) {
        self.flush(&mut emit);
    }

    // Kept out of the per-segment path: it runs once per 64 KiB.
    #[inline(never)]
    fn flush(&mut self, emit: &mut impl FnMut(u64, &[u64])) {
        if !self.sums.is_empty() {
            emit(self.run_at, &self.sums);
            self.run_at = self
                .run_at
                .wrapping_add((self.sums.len() * BLOCK_BYTES) as u64);
            self.sums.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_core::random::Random;

    fn data(len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        Random::new(5).fill(&mut bytes);
        bytes
    }

    /// Checksums of whole aligned blocks of `data[range]`, computed directly.
    fn expected(data: &[u8], offset: u64, range: std::ops::Range<usize>) -> Vec<(u64, u64)> {
        let first = (offset + range.start as u64).next_multiple_of(512);
        (0..)
            .map(|i| first + i * 512)
            .take_while(|at| (at + 512 - offset) as usize <= range.end)
            .map(|at| {
                (
                    at,
                    sum(data[(at - offset) as usize..][..512].try_into().unwrap()),
                )
            })
            .collect()
    }

    /// The checksums are those of the file's aligned blocks, however the data is divided into pieces and wherever it
    /// starts.
    #[test]
    fn checksums_do_not_depend_on_cuts_or_the_starting_offset() {
        let bytes = data(70_000);
        let mut random = Random::new(1);
        for offset in [0, 1, 511, 512, 4096, 123_457, u64::from(u32::MAX)] {
            for _ in 0..20 {
                let mut seen = Vec::new();
                let mut emit = |at: u64, sums: &[u64]| {
                    seen.extend(
                        sums.iter()
                            .enumerate()
                            .map(|(i, s)| (at + i as u64 * 512, *s)),
                    );
                };
                let mut sums = BlockSums::default();
                sums.start(offset);
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let (piece, after) = rest.split_at(rest.len().min(random.below(3000) as usize));
                    sums.update(piece, &mut emit);
                    rest = after;
                }
                sums.finish(&mut emit);
                assert_eq!(seen, expected(&bytes, offset, 0..bytes.len()));
            }
        }
    }

    /// Blocks that touch a hole are not summed; all others are.
    #[test]
    fn blocks_that_touch_a_hole_are_not_summed() {
        let bytes = data(8192);
        for (from, to) in [(0, 1), (511, 512), (512, 1024), (700, 5000), (8000, 8192)] {
            let mut seen = Vec::new();
            let mut emit = |at: u64, sums: &[u64]| {
                seen.extend(
                    sums.iter()
                        .enumerate()
                        .map(|(i, s)| (at + i as u64 * 512, *s)),
                );
            };
            let mut sums = BlockSums::default();
            sums.start(100);
            sums.update(&bytes[..from], &mut emit);
            sums.hole((to - from) as u64, &mut emit);
            sums.update(&bytes[to..], &mut emit);
            sums.finish(&mut emit);
            let mut right = expected(&bytes, 100, 0..from);
            right.extend(expected(&bytes, 100, to..bytes.len()));
            assert_eq!(seen, right, "{from}..{to}");
        }
    }
}
