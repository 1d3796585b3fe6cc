//! Measures duplicate data from block checksums.

use brunt_core::HyperLogLog;
use brunt_core::sketch::spread;
use brunt_result::capture::{AnalysisSection, SectionColumn, SectionUnit};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::analyse::Analyse;
use crate::checksum::{BLOCK_BYTES, sum};
use crate::operation::ChecksumRun;

/// The figures of this analysis's section.
const FIGURES: &[SectionColumn] = &[
    SectionColumn::new("blocks_read", "blocks read", SectionUnit::Count),
    SectionColumn::new("blocks_written", "blocks written", SectionUnit::Count),
    SectionColumn::new("duplicate_share", "duplicates", SectionUnit::Share),
    SectionColumn::new(
        "duplicate_share_error",
        "standard error",
        SectionUnit::Share,
    ),
    SectionColumn::new("zero_share", "zeros", SectionUnit::Share),
];

/// Blocks seen, and sketches of the distinct ones.
#[derive(Debug, Serialize, Deserialize)]
pub struct Duplicates {
    zero: u64,
    blocks: [u64; 2],
    zeros: [u64; 2],
    /// Distinct contents of the blocks read and written, taken together.
    contents: HyperLogLog,
    /// Distinct pairs of place and content.
    placed: HyperLogLog,
}

impl Default for Duplicates {
    fn default() -> Duplicates {
        Duplicates {
            zero: sum(&[0; BLOCK_BYTES]),
            blocks: [0; 2],
            zeros: [0; 2],
            contents: HyperLogLog::default(),
            placed: HyperLogLog::default(),
        }
    }
}

impl Analyse for Duplicates {
    const HELP: &'static str = "how much of the data is duplicated";
    const SQL: Option<&'static str> = Some(include_str!("../../sql/duplicates.sql"));

    fn on_checksums(&mut self, run: &ChecksumRun<'_>) {
        let write = usize::from(run.write);
        self.blocks[write] += run.sums.len() as u64;
        let first = run.offset / BLOCK_BYTES as u64;
        for (block, &sum) in (first..).zip(run.sums) {
            self.zeros[write] += u64::from(sum == self.zero);
            self.contents.insert(sum);
            // The block's place, spread over 64 bits by the golden ratio, then mixed with its content.
            let place = run
                .file
                .0
                .wrapping_add(block.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            self.placed.insert(spread(sum ^ place));
        }
    }

    fn merge(&mut self, other: Duplicates) {
        for index in 0..2 {
            self.blocks[index] += other.blocks[index];
            self.zeros[index] += other.zeros[index];
        }
        self.contents.merge(&other.contents);
        self.placed.merge(&other.placed);
    }

    fn sections(&self) -> Vec<AnalysisSection> {
        let [read, written] = self.blocks;
        let columns = match read + written {
            0 => &[],
            _ => FIGURES,
        };
        let figures = json!({
            "blocks_read": read,
            "blocks_written": written,
            "duplicate_share": self.duplicate_share(),
            "duplicate_share_error": self.duplicate_share_error(),
            "zero_share": self.zero_share(),
        });
        let section = AnalysisSection::figures("duplicates", "Duplicate data", columns, figures);
        vec![section.note(
            "In blocks of 512 bytes; a block is a duplicate if its content also exists elsewhere.",
        )]
    }
}

impl Duplicates {
    /// Number of blocks read and of blocks written.
    pub fn blocks(&self) -> [u64; 2] {
        self.blocks
    }

    /// Share of zero-filled blocks among those read and written; `None` without blocks.
    pub fn zero_share(&self) -> Option<f64> {
        let (blocks, zeros): (u64, u64) = (self.blocks.iter().sum(), self.zeros.iter().sum());
        (blocks > 0).then(|| zeros as f64 / blocks as f64)
    }

    /// Share of the distinct blocks (place and content) whose content also exists elsewhere: the space that
    /// deduplication would save. `None` without blocks.
    pub fn duplicate_share(&self) -> Option<f64> {
        let (contents, placed) = (self.contents.count() as f64, self.placed.count() as f64);
        (placed > 0.0).then(|| (1.0 - contents / placed).max(0.0))
    }

    /// Standard error of [`Duplicates::duplicate_share`]; `None` without blocks. The share is the quotient of
    /// two estimated counts, each with its own error.
    pub fn duplicate_share_error(&self) -> Option<f64> {
        let of_counts = self
            .contents
            .standard_error()
            .hypot(self.placed.standard_error());
        self.duplicate_share()
            .map(|share| (1.0 - share) * of_counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::FileKey;

    /// With 30 % repeated contents, the share is 30 %; re-reading the same place is not a duplicate.
    #[test]
    fn repeated_contents_are_duplicates_and_rereads_are_not() {
        let mut duplicates = Duplicates::default();
        let shares = |of: &Duplicates| (of.duplicate_share(), of.zero_share());
        assert_eq!(shares(&duplicates), (None, None));
        for pass in 0..2 {
            for block in 0..100_000u64 {
                let content = if block % 10 < 3 {
                    spread(1)
                } else {
                    spread(block + 7)
                };
                let run = ChecksumRun {
                    record_id: 0,
                    file: FileKey(spread(5)),
                    write: pass == 0,
                    offset: block * 512,
                    sums: &[content],
                };
                duplicates.on_checksums(&run);
            }
        }
        let (share, zeros) = shares(&duplicates);
        assert!((share.unwrap() - 0.3).abs() < 0.03, "{share:?}");
        assert_eq!(zeros, Some(0.0));
        assert_eq!(duplicates.blocks(), [100_000, 100_000]);
    }
}
