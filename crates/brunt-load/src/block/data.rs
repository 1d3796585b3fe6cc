//! Generates the content of writes: chunks of 4 KiB, of which a given share is compressible and a given share
//! duplicates others. Everything else is unique, so that no target appears faster than it is.

use std::num::NonZeroU64;

use brunt_core::random::Random;

use crate::block::workload::DataSettings;

/// The unit in which targets look for duplicates.
const CHUNK_BYTES: usize = 4096;
/// Number of distinct contents that duplicates are taken from.
const COPIES: u64 = 64;
/// Size of the stamp at the start of a chunk: worker and number.
const STAMP_BYTES: usize = 16;

/// Fills the buffers of one worker.
#[derive(Clone, Debug)]
pub struct DataSource {
    random: Random,
    /// Random bytes, with zeros where compression should save space; as long as the largest block.
    template: Vec<u8>,
    dedupable: f64,
    worker: u64,
    count: u64,
    seed: u64,
    compressible: f64,
}

impl DataSource {
    /// Creates a source for blocks of up to `block_bytes_max`.
    pub fn new(data: DataSettings, block_bytes_max: u64, seed: u64, worker: u32) -> DataSource {
        let mut random = Random::for_part(seed, u64::from(worker) * 4 + 2);
        // All workers share the same 64 duplicated contents.
        let mut common = Random::for_part(seed, u64::MAX);
        let mut template = vec![0; block_bytes_max as usize];
        for (index, chunk) in template.chunks_mut(CHUNK_BYTES).enumerate() {
            let noise = noise_bytes(chunk.len(), data.compressible);
            let source = if index == 0 { &mut common } else { &mut random };
            source.fill(&mut chunk[..noise]);
        }
        DataSource {
            random,
            template,
            dedupable: data.dedupable,
            worker: u64::from(worker) + 1,
            count: 0,
            seed,
            compressible: data.compressible,
        }
    }

    /// Fills `block` for a write. `stale` means that a read has overwritten the block since it was last filled;
    /// otherwise, only what differs from its previous content is changed.
    #[inline(always)] // once per write of a load
    pub fn fill(&mut self, block: &mut [u8], stale: bool) {
        if stale || self.dedupable > 0.0 {
            block.copy_from_slice(&self.template[..block.len()]);
        }
        for chunk in block.chunks_mut(CHUNK_BYTES) {
            let copy = self.dedupable > 0.0 && self.random.chance(self.dedupable);
            let (who, which) = if copy {
                let len = chunk.len();
                chunk.copy_from_slice(&self.template[..len]);
                (0, self.random.below(COPIES))
            } else {
                self.count += 1;
                (self.worker, self.count)
            };
            chunk[..8].copy_from_slice(&who.to_le_bytes());
            chunk[8..STAMP_BYTES].copy_from_slice(&which.to_le_bytes());
        }
    }
}

impl DataSource {
    /// Fills `block` with the data identified by `content`: for all workers, equal numbers give equal data and
    /// different numbers give different data. The data is as compressible as all other data.
    pub fn fill_by(&self, block: &mut [u8], content: NonZeroU64) {
        for (chunk, part) in block.chunks_mut(CHUNK_BYTES).zip(0u64..) {
            let mut random = Random::for_part(self.seed ^ content.get(), part);
            let noise = noise_bytes(chunk.len(), self.compressible);
            random.fill(&mut chunk[..noise]);
            chunk[noise..].fill(0);
            // Random data for different numbers may, in rare cases, be equal by chance; storing the number rules this
            // out.
            chunk[..8].copy_from_slice(&content.get().to_le_bytes());
            // A second word this high doesn't occur in stamps of other data, where it is a small count.
            chunk[8..STAMP_BYTES].copy_from_slice(&(u64::MAX - part).to_le_bytes());
        }
    }
}

/// Returns the number of incompressible bytes in a chunk.
fn noise_bytes(chunk: usize, compressible: f64) -> usize {
    let noise = (chunk as f64 * (1.0 - compressible)).round() as usize;
    noise.clamp(STAMP_BYTES.min(chunk), chunk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn blocks(data: DataSettings, count: usize) -> Vec<u8> {
        let mut all = Vec::new();
        for worker in 0..2 {
            let mut source = DataSource::new(data, 16384, 7, worker);
            let mut block = vec![0; 16384];
            for index in 0..count {
                source.fill(&mut block, index == 0);
                all.extend_from_slice(&block);
            }
        }
        all
    }

    /// Chunks are unique except for the configured share, also across workers.
    #[test]
    fn duplicates_have_their_share() {
        for dedupable in [0.0, 0.25, 0.9] {
            let all = blocks(
                DataSettings {
                    dedupable,
                    ..DataSettings::default()
                },
                500,
            );
            let chunks: Vec<&[u8]> = all.chunks(CHUNK_BYTES).collect();
            let distinct = chunks.iter().collect::<HashSet<_>>().len() as f64;
            let saved = 1.0 - distinct / chunks.len() as f64;
            // The 64 originals have to be stored once each.
            assert!((saved - dedupable).abs() < 0.03, "{dedupable}: {saved}");
        }
    }

    /// The same number gives the same data for every writer; a different number gives different data in every chunk.
    #[test]
    fn equal_content_numbers_give_equal_data() {
        let fill = |worker, number: u64, len| {
            let source = DataSource::new(
                DataSettings {
                    compressible: 0.5,
                    ..DataSettings::default()
                },
                16384,
                7,
                worker,
            );
            let mut block = vec![9; len];
            source.fill_by(&mut block, NonZeroU64::new(number).unwrap());
            block
        };
        assert_eq!(fill(0, 5, 8192), fill(3, 5, 8192));
        assert_eq!(fill(0, 5, 512)[..256], fill(0, 5, 8192)[..256]);
        let [a, b] = [fill(0, 5, 8192), fill(0, 6, 8192)];
        assert!(
            a.chunks(512)
                .take(4)
                .zip(b.chunks(512))
                .all(|(a, b)| a != b)
        );
        assert_ne!(a[..4096], a[4096..]);
        assert!(deflate(&a).len() < 8192 * 6 / 10);
    }

    /// A compressor saves the configured share and no more.
    #[test]
    fn a_compressor_saves_the_stated_share() {
        for compressible in [0.0, 0.3, 0.5, 0.9] {
            let all = blocks(
                DataSettings {
                    compressible,
                    ..DataSettings::default()
                },
                10,
            );
            // Compressed in units of 16 KiB, like a file system record, because the template repeats over longer
            // distances.
            let compressed: usize = all.chunks(16384).map(|part| deflate(part).len()).sum();
            let saved = 1.0 - compressed as f64 / all.len() as f64;
            assert!(
                (saved - compressible).abs() < 0.02,
                "{compressible}: {saved}"
            );
        }
    }

    fn deflate(bytes: &[u8]) -> Vec<u8> {
        miniz_oxide::deflate::compress_to_vec(bytes, 6)
    }
}
