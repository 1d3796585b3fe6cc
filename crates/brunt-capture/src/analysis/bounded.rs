//! A table of bounded size that keeps the heavy ones. When it is full, a newcomer takes the
//! place of the lightest of a few that are looked at, and what was lost with it is counted.
//! Who is heavy is seen again and again, so it stays; the count says how much a total may be
//! short.

use hashbrown::HashTable;

/// Entries looked at to find a light one.
const SAMPLE: usize = 16;

/// How much an entry matters.
pub trait Weight {
    /// Heavier ones stay.
    fn weight(&self) -> u64;
}

/// Entries by a 64-bit key whose bits are random.
#[derive(Debug)]
pub struct Bounded<V> {
    table: HashTable<u32>,
    entries: Vec<(u64, V)>,
    max: usize,
    hand: usize,
    evicted: u64,
    evicted_weight: u64,
}

impl<V: Weight + Default> Bounded<V> {
    /// At most `max` entries.
    pub fn new(max: usize) -> Bounded<V> {
        Bounded {
            table: HashTable::new(),
            entries: Vec::new(),
            max: max.max(1),
            hand: 0,
            evicted: 0,
            evicted_weight: 0,
        }
    }

    /// The entry, made when it is not there.
    #[inline]
    pub fn entry(&mut self, key: u64) -> &mut V {
        if let Some(&index) = self.table.find(key, |&i| self.entries[i as usize].0 == key) {
            return &mut self.entries[index as usize].1;
        }
        self.insert(key)
    }

    #[cold]
    fn insert(&mut self, key: u64) -> &mut V {
        let index = if self.entries.len() < self.max {
            self.entries.push((key, V::default()));
            self.entries.len() - 1
        } else {
            let count = self.entries.len();
            let sample = (0..SAMPLE.min(count)).map(|i| (self.hand + i) % count);
            let index = sample.min_by_key(|&i| self.entries[i].1.weight()).expect("the table is not empty");
            self.hand = (self.hand + SAMPLE) % count;
            let old = self.entries[index].0;
            if let Ok(entry) = self.table.find_entry(old, |&i| i as usize == index) {
                entry.remove();
            }
            self.evicted += 1;
            self.evicted_weight += self.entries[index].1.weight();
            self.entries[index] = (key, V::default());
            index
        };
        let entries = &self.entries;
        self.table.insert_unique(key, index as u32, |&i| entries[i as usize].0);
        &mut self.entries[index].1
    }

    /// The entry, if it is there.
    pub fn get(&self, key: u64) -> Option<&V> {
        let index = *self.table.find(key, |&i| self.entries[i as usize].0 == key)?;
        Some(&self.entries[index as usize].1)
    }

    /// Takes in another table: `add` adds an entry to the one of the same key. Their bounds are
    /// the same, so what does not fit goes as a newcomer's place would: the lightest first.
    pub fn merge(&mut self, other: Bounded<V>, mut add: impl FnMut(&mut V, V)) {
        self.evicted += other.evicted;
        self.evicted_weight += other.evicted_weight;
        for (key, value) in other.entries {
            add(self.entry(key), value);
        }
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.entries.iter().map(|(key, value)| (*key, value))
    }

    /// Entries that had to go, and their weight.
    pub fn evicted(&self) -> (u64, u64) {
        (self.evicted, self.evicted_weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::sketch::spread;

    #[derive(Default)]
    struct Count(u64);
    impl Weight for Count {
        fn weight(&self) -> u64 {
            self.0
        }
    }

    /// The goal: among a flood of light ones the heavy ones stay, exactly counted.
    #[test]
    fn heavy_ones_stay() {
        let mut table = Bounded::<Count>::new(256);
        for i in 0..200_000u64 {
            table.entry(spread(1_000_000 + i)).0 += 1;
            table.entry(spread(i % 50)).0 += 1;
        }
        assert_eq!(table.iter().count(), 256);
        for heavy in 0..50 {
            assert_eq!(table.get(spread(heavy)).unwrap().0, 4000);
        }
        let kept: u64 = table.iter().map(|(_, c)| c.0).sum();
        assert_eq!(kept + table.evicted().1, 400_000);
    }
}
