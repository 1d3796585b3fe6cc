//! Maps ranges of the device to the log entries that hold them. Pure; used by [`super::cache`].
//!
//! The rule: extents do not overlap, and a later entry replaces earlier ones.

use std::collections::BTreeMap;

/// A range of the device that is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// The extent's end, in bytes.
    pub end: u64,
    /// The entry that wrote the extent.
    pub entry: u64,
    /// Whether the extent has yet to reach the device.
    pub dirty: bool,
}

/// Extents, keyed by start offset.
#[derive(Debug, Default)]
pub(super) struct Index {
    extents: BTreeMap<u64, Extent>,
}

impl Index {
    /// Inserts a dirty entry; `removed` is called with the length of each piece that it replaces.
    pub(super) fn insert(
        &mut self,
        start: u64,
        end: u64,
        entry: u64,
        mut removed: impl FnMut(u64, Extent),
    ) {
        assert!(start < end, "entries are not empty");
        if let Some((_, extent)) = self.extents.range_mut(..start).next_back()
            && extent.end > start
        {
            let before = *extent;
            extent.end = start;
            removed(before.end.min(end) - start, before);
            if before.end > end {
                self.extents.insert(end, before);
            }
        }
        while let Some((&from, &extent)) = self.extents.range(start..end).next() {
            self.extents.remove(&from);
            removed(extent.end.min(end) - from, extent);
            if extent.end > end {
                self.extents.insert(end, extent);
            }
        }
        self.extents.insert(
            start,
            Extent {
                end,
                entry,
                dirty: true,
            },
        );
    }

    /// Visits a range in order: extents in the log, and `None` for gaps.
    pub(super) fn visit(&self, start: u64, end: u64, mut f: impl FnMut(u64, u64, Option<Extent>)) {
        let before = self
            .extents
            .range(..start)
            .next_back()
            .filter(|(_, extent)| extent.end > start);
        let mut at = start;
        for (&from, &extent) in before.into_iter().chain(self.extents.range(start..end)) {
            let from = from.max(start);
            if from > at {
                f(at, from, None);
            }
            at = extent.end.min(end);
            f(from, at, Some(extent));
        }
        if at < end {
            f(at, end, None);
        }
    }

    /// Marks the remaining extents of an entry as having reached the device; returns how many of their bytes were
    /// dirty.
    pub(super) fn clean(&mut self, start: u64, end: u64, entry: u64) -> u64 {
        let mut bytes = 0;
        for (from, extent) in self.extents.range_mut(start..end) {
            if extent.entry == entry && extent.dirty {
                extent.dirty = false;
                bytes += extent.end - from;
            }
        }
        bytes
    }

    /// Removes the remaining extents of an entry that is no longer in the log.
    pub(super) fn forget(&mut self, start: u64, end: u64, entry: u64) {
        let mut at = start;
        while at < end
            && let Some((&from, &extent)) = self.extents.range(at..end).next()
        {
            if extent.entry == entry {
                assert!(!extent.dirty, "only destaged entries are removed");
                self.extents.remove(&from);
            }
            at = extent.end;
        }
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) {
        self.extents.clear();
    }

    /// Number of extents.
    pub(super) fn len(&self) -> usize {
        self.extents.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_core::random::Random;

    /// The index matches a plain array with one element per byte.
    #[test]
    fn the_index_matches_a_plain_array() {
        const BYTES: u64 = 200;
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let (mut index, mut map) =
                (Index::default(), vec![None::<(u64, bool)>; BYTES as usize]);
            let mut entries = Vec::new();
            for entry in 0..60 {
                let start = random.below(BYTES);
                let end = start + 1 + random.below((BYTES - start).min(60));
                let mut gone = 0;
                index.insert(start, end, entry, |len, _| gone += len);
                let there = map[start as usize..end as usize]
                    .iter()
                    .filter(|byte| byte.is_some())
                    .count();
                assert_eq!(gone, there as u64);
                map[start as usize..end as usize].fill(Some((entry, true)));
                entries.push((start, end, entry));
                if random.chance(0.3) {
                    let (start, end, entry) = entries[random.below(entries.len() as u64) as usize];
                    let dirty = map
                        .iter()
                        .filter(|byte| **byte == Some((entry, true)))
                        .count();
                    assert_eq!(index.clean(start, end, entry), dirty as u64);
                    for byte in map.iter_mut().filter(|byte| **byte == Some((entry, true))) {
                        *byte = Some((entry, false));
                    }
                    if random.chance(0.5) {
                        index.forget(start, end, entry);
                        for byte in map.iter_mut().filter(|byte| **byte == Some((entry, false))) {
                            *byte = None;
                        }
                    }
                }
                let (from, to) = (
                    random.below(BYTES / 2),
                    BYTES / 2 + random.below(BYTES / 2) + 1,
                );
                let mut at = from;
                index.visit(from, to, |start, end, extent| {
                    assert!(start == at && end > start);
                    let expected = extent.map(|extent| (extent.entry, extent.dirty));
                    assert!(
                        map[start as usize..end as usize]
                            .iter()
                            .all(|byte| *byte == expected)
                    );
                    at = end;
                });
                assert_eq!(at, to);
            }
            assert!(index.len() <= 2 * entries.len());
        }
    }
}
