//! Sets of logical blocks: those that a fault applies to, as listed by the user, and those cured by writes at run time.
//!
//! The rule: looking up a block takes no lock, and a block counts as cured once, however many threads write it.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of ranges in a list.
const RANGES_MAX: usize = 1024;

/// A list of blocks, such as `5+9+100-199`: one or more ranges in ascending order, neither overlapping nor adjacent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRanges(Vec<RangeInclusive<u64>>);

impl BlockRanges {
    /// Parses a list; `None` if it is invalid.
    pub fn parse(text: &str) -> Option<BlockRanges> {
        let mut ranges = Vec::new();
        for word in text.split('+') {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
            if first > last || ranges.len() >= RANGES_MAX {
                return None;
            }
            ranges.push(first..=last);
        }
        ranges.sort_by_key(|range| *range.start());
        let mut merged: Vec<RangeInclusive<u64>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(before) if *range.start() <= before.end().saturating_add(1) => {
                    *before = *before.start()..=*before.end().max(range.end());
                }
                _ => merged.push(range),
            }
        }
        Some(BlockRanges(merged))
    }

    /// The first listed block from `first` to `last`, inclusive.
    pub fn first_in(&self, first: u64, last: u64) -> Option<u64> {
        let index = self.0.partition_point(|range| *range.end() < first);
        let range = self.0.get(index)?;
        (*range.start() <= last).then(|| first.max(*range.start()))
    }
}

impl fmt::Display for BlockRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            let plus = if index == 0 { "" } else { "+" };
            match range.start() == range.end() {
                true => write!(f, "{plus}{}", range.start())?,
                false => write!(f, "{plus}{}-{}", range.start(), range.end())?,
            }
        }
        Ok(())
    }
}

/// Blocks per chunk: 4 KiB of bits.
const CHUNK_BLOCKS: u64 = 32 << 10;

/// A set that threads add blocks to: one bit per block, in chunks allocated on first use.
pub(super) struct BlockSet {
    chunks: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl BlockSet {
    /// Creates an empty set for `count` blocks.
    pub fn new(count: u64) -> BlockSet {
        BlockSet {
            chunks: (0..count.div_ceil(CHUNK_BLOCKS))
                .map(|_| OnceLock::new())
                .collect(),
        }
    }

    /// Whether the set contains a block.
    #[inline]
    pub fn has(&self, block: u64) -> bool {
        let bits = self.chunks[(block / CHUNK_BLOCKS) as usize].get();
        bits.is_some_and(|bits| {
            bits[(block % CHUNK_BLOCKS / 64) as usize].load(Ordering::Relaxed) >> (block % 64) & 1
                != 0
        })
    }

    /// Adds a block; returns whether it is new.
    pub fn add(&self, block: u64) -> bool {
        let bits = self.chunks[(block / CHUNK_BLOCKS) as usize]
            .get_or_init(|| (0..CHUNK_BLOCKS / 64).map(|_| AtomicU64::new(0)).collect());
        let bit = 1 << (block % 64);
        bits[(block % CHUNK_BLOCKS / 64) as usize].fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}

impl fmt::Debug for BlockSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockSet({} chunks)", self.chunks.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_parsed_in_any_order_and_printed_in_ascending_order() {
        let check = |text: &str, expected: &str| {
            assert_eq!(BlockRanges::parse(text).unwrap().to_string(), expected)
        };
        check("7", "7");
        check("20-29+3+30-31", "3+20-31");
        check("0-9+5-20", "0-20");
        check("0-18446744073709551615+5", "0-18446744073709551615");
        for wrong in ["", "5+", "9-3", "a", "1-2-3"] {
            assert_eq!(BlockRanges::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_first_block_of_a_range_is_found() {
        let blocks = BlockRanges::parse("10-19+40").unwrap();
        for ((first, last), expected) in [
            ((0, 9), None),
            ((0, 10), Some(10)),
            ((15, 50), Some(15)),
            ((20, 39), None),
            ((20, 40), Some(40)),
            ((41, u64::MAX), None),
        ] {
            assert_eq!(blocks.first_in(first, last), expected, "{first} to {last}");
        }
    }

    #[test]
    fn a_block_is_added_once() {
        let set = BlockSet::new(100_000);
        assert!(!set.has(99_999) && set.add(99_999) && set.has(99_999) && !set.add(99_999));
        assert!(!set.has(99_998) && !set.has(0));
    }
}
