//! A table of bounded size that keeps the heaviest entries. When it is full, a new entry replaces the lightest
//! of a few candidates, and the lost weight is counted. Heavy entries are updated often, so they stay.
//!
//! The error of each entry is bounded as in the space-saving algorithm (Metwally and others, 2005): the key of a new
//! entry may have been evicted before, with at most the largest weight ever evicted, including what that entry may
//! itself have lost.

use brunt_core::prefetch;
use hashbrown::HashTable;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The place of a missing entry.
pub const NOWHERE: usize = usize::MAX;
/// Entries considered for eviction.
const SAMPLE: usize = 16;

/// How important an entry is: the least important entries are evicted first.
pub trait Weight {
    /// Entries with a larger weight are kept longer.
    fn weight(&self) -> u64;
}

/// Aligned to a cache line, so an access costs a single cache miss.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
struct Slot<V> {
    key: u64,
    value: V,
}

/// Entries by 64-bit key; the bits of a key must be random.
#[derive(Clone, Debug)]
pub struct Bounded<V> {
    table: HashTable<u32>,
    entries: Vec<Slot<V>>,
    max: usize,
    hand: usize,
    evicted: u64,
    evicted_weight: u64,
    /// Upper bound on the weight of any key without an entry.
    evicted_max: u64,
    /// For each entry, the most weight that earlier evictions of its key may have lost.
    lost_max: Vec<u64>,
}

/// The serialized form: entries sorted by key, so that equal tables serialize equally.
#[derive(Serialize, Deserialize)]
struct Stored<V> {
    max: usize,
    evicted: u64,
    evicted_weight: u64,
    #[serde(default)]
    evicted_max: u64,
    entries: Vec<(u64, V)>,
}

impl<V: Serialize + Weight + Default> Serialize for Bounded<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entries: Vec<_> = self
            .entries
            .iter()
            .map(|slot| (slot.key, &slot.value))
            .collect();
        entries.sort_by_key(|(key, _)| *key);
        let (evicted, evicted_weight) = (self.evicted, self.evicted_weight);
        Stored {
            max: self.max,
            evicted,
            evicted_weight,
            evicted_max: self.undercount_max(),
            entries,
        }
        .serialize(serializer)
    }
}

impl<'de, V: Deserialize<'de> + Weight + Default> Deserialize<'de> for Bounded<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bounded<V>, D::Error> {
        let stored = Stored::<V>::deserialize(deserializer)?;
        if stored.entries.len() > stored.max {
            return Err(D::Error::custom("a table exceeds its capacity"));
        }
        let mut table = Bounded::new(stored.max);
        for (key, value) in stored.entries {
            *table.entry(key) = value;
        }
        (table.evicted, table.evicted_weight) = (stored.evicted, stored.evicted_weight);
        table.evicted_max = stored.evicted_max;
        table.lost_max.fill(stored.evicted_max);
        Ok(table)
    }
}

impl<V: Weight + Default> Bounded<V> {
    /// A table of at most `max` entries.
    pub fn new(max: usize) -> Bounded<V> {
        Bounded {
            table: HashTable::new(),
            entries: Vec::new(),
            max: max.max(1),
            hand: 0,
            evicted: 0,
            evicted_weight: 0,
            evicted_max: 0,
            lost_max: Vec::new(),
        }
    }

    /// The place of an entry, created if missing. The place is valid until another entry is created.
    #[inline]
    pub fn place(&mut self, key: u64) -> usize {
        match self.find(key) {
            Some(place) => place,
            None => self.insert(key),
        }
    }

    /// The place of an entry, if present.
    #[inline]
    pub fn find(&self, key: u64) -> Option<usize> {
        self.table
            .find(key, |&i| self.entries[i as usize].key == key)
            .map(|&i| i as usize)
    }

    /// The likely place of an entry, found by its hash alone, without reading the entry. [`NOWHERE`] if it is
    /// missing.
    #[inline]
    pub fn guess(&self, key: u64) -> usize {
        // Without comparing keys, the table still compares seven bits of the hash.
        self.table
            .find(key, |_| true)
            .map_or(NOWHERE, |&i| i as usize)
    }

    /// Prefetches the entry at a place, if there is one.
    #[inline]
    pub fn prefetch(&self, place: usize) {
        if let Some(slot) = self.entries.get(place) {
            prefetch(slot);
        }
    }

    /// The place of an entry; avoids the lookup if the entry is at `guess`.
    #[inline]
    pub fn place_near(&mut self, key: u64, guess: usize) -> usize {
        if self.entries.get(guess).is_some_and(|slot| slot.key == key) {
            guess
        } else {
            self.place(key)
        }
    }

    /// The entry at a place.
    #[inline]
    pub fn at(&self, place: usize) -> &V {
        &self.entries[place].value
    }

    /// The entry at a place, if there is one.
    #[inline]
    pub fn try_at(&self, place: usize) -> Option<&V> {
        self.entries.get(place).map(|slot| &slot.value)
    }

    /// The entry at a place.
    #[inline]
    pub fn at_mut(&mut self, place: usize) -> &mut V {
        &mut self.entries[place].value
    }

    /// The entry, created if missing.
    #[inline]
    pub fn entry(&mut self, key: u64) -> &mut V {
        let place = self.place(key);
        &mut self.entries[place].value
    }

    #[cold]
    fn insert(&mut self, key: u64) -> usize {
        let index = if self.entries.len() < self.max {
            self.entries.push(Slot {
                key,
                value: V::default(),
            });
            self.lost_max.push(self.evicted_max);
            self.entries.len() - 1
        } else {
            let count = self.entries.len();
            let sample = (0..SAMPLE.min(count)).map(|i| (self.hand + i) % count);
            let index = sample
                .min_by_key(|&i| self.entries[i].value.weight())
                .expect("the table is not empty");
            self.hand = (self.hand + SAMPLE) % count;
            let old = self.entries[index].key;
            if let Ok(entry) = self.table.find_entry(old, |&i| i as usize == index) {
                entry.remove();
            }
            self.evicted += 1;
            let weight = self.entries[index].value.weight();
            self.evicted_weight += weight;
            self.evicted_max = self.evicted_max.max(weight + self.lost_max[index]);
            self.lost_max[index] = self.evicted_max;
            self.entries[index] = Slot {
                key,
                value: V::default(),
            };
            index
        };
        if self.entries.len() == self.max {
            // Prefetch the candidates for the next eviction.
            (0..SAMPLE.min(self.max)).for_each(|i| self.prefetch((self.hand + i) % self.max));
        }
        let entries = &self.entries;
        self.table
            .insert_unique(key, index as u32, |&i| entries[i as usize].key);
        index
    }

    #[cfg(test)]
    fn get(&self, key: u64) -> Option<&V> {
        self.find(key).map(|place| self.at(place))
    }

    /// Merges another table: `add` combines entries with the same key; other entries are moved. If they don't all
    /// fit, the lightest candidates are evicted, as for new entries; the error bounds of the tables add up.
    pub fn merge(&mut self, other: Bounded<V>, mut add: impl FnMut(&mut V, V)) {
        self.evicted += other.evicted;
        self.evicted_weight += other.evicted_weight;
        self.lost_max
            .iter_mut()
            .for_each(|lost| *lost += other.evicted_max);
        for (Slot { key, value }, lost) in other.entries.into_iter().zip(other.lost_max) {
            let place = match self.find(key) {
                Some(place) => {
                    add(&mut self.entries[place].value, value);
                    self.lost_max[place] -= other.evicted_max;
                    place
                }
                None => {
                    let place = self.place(key);
                    self.entries[place].value = value;
                    place
                }
            };
            self.lost_max[place] += lost;
        }
        self.evicted_max += other.evicted_max;
    }

    /// The most weight that any entry may have lost or any missing entry may have had.
    pub fn undercount_max(&self) -> u64 {
        self.lost_max
            .iter()
            .copied()
            .fold(self.evicted_max, u64::max)
    }

    /// All entries, ordered by place.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.entries.iter().map(|slot| (slot.key, &slot.value))
    }

    /// All entries, mutable.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.iter_mut().map(|slot| &mut slot.value)
    }

    /// Number of evicted entries, and [`Bounded::undercount_max`].
    pub fn forgotten(&self) -> (u64, u64) {
        (self.evicted, self.undercount_max())
    }

    /// Number of evicted entries, and their total weight.
    pub fn evicted(&self) -> (u64, u64) {
        (self.evicted, self.evicted_weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_core::sketch::spread;

    #[derive(Default)]
    struct Count(u64);
    impl Weight for Count {
        fn weight(&self) -> u64 {
            self.0
        }
    }

    /// In a flood of light entries, the heavy ones stay and are counted exactly.
    #[test]
    fn heavy_entries_survive_a_flood_of_light_ones() {
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

    /// However many entries were evicted and tables merged, no entry lacks more than the reported weight.
    #[test]
    fn no_entry_lacks_more_than_the_stated_weight() {
        let mut random = brunt_core::random::Random::new(3);
        let mut tables = [(); 2].map(|()| Bounded::<Count>::new(64));
        let mut truth = std::collections::HashMap::<u64, u64>::new();
        for _ in 0..20_000u64 {
            let chosen = random.next_u64();
            // A few keys are frequent, but only for a while.
            let key = spread((chosen % 1000).min(chosen >> 32 & 255));
            tables[(chosen >> 63) as usize].entry(key).0 += 1;
            *truth.entry(key).or_default() += 1;
        }
        let [mut all, other] = tables;
        assert!(all.undercount_max() > 0);
        all.merge(other, |mine, theirs| mine.0 += theirs.0);
        let lacks =
            |(key, true_count): (&u64, &u64)| true_count - all.get(*key).map_or(0, |count| count.0);
        let most = truth.iter().map(lacks).max().unwrap();
        assert!(most > 0 && most <= all.undercount_max(), "{most}");
    }
}
