//! Remembers the attributes last written for each file, so that attributes are stored when they change, not with
//! every reply. The attribute tables check it before they write a row.
//!
//! The one rule: a row is omitted only if all its attributes equal those last written for the same file. Attributes
//! that were forgotten are written again, which is redundant but not wrong.

use brunt_core::prefetch;

/// Maximum files remembered, each at the one place that its number determines: 16,384 places of 104 bytes.
const FILES_MAX: usize = CHUNKS * CHUNK_PLACES;
/// Number of chunks, each with several places. A chunk is allocated when its first file is remembered, so a capture
/// of a few files uses little memory.
const CHUNKS: usize = 64;
const CHUNK_PLACES: usize = 256;

/// A file's number and its last value.
type Place<T> = Option<(i64, T)>;

/// The last value written for each file.
pub struct LastWritten<T> {
    chunks: [Box<[Place<T>]>; CHUNKS],
}

impl<T: Copy + PartialEq> LastWritten<T> {
    pub fn new() -> LastWritten<T> {
        LastWritten {
            chunks: std::array::from_fn(|_| Box::default()),
        }
    }

    /// Called when the rows written so far may be deleted: forgets all state, so that the rows are written again.
    pub fn forget(&mut self) {
        self.chunks.iter_mut().for_each(|chunk| chunk.fill(None));
    }

    /// A file's chunk and its place in the chunk. `file` is a hash, so its low bits are evenly distributed.
    #[inline]
    fn place(file: i64) -> (usize, usize) {
        let place = file as usize % FILES_MAX;
        (place / CHUNK_PLACES, place % CHUNK_PLACES)
    }

    /// The last value of a file, if remembered.
    #[inline]
    pub fn of(&self, file: i64) -> Option<&T> {
        let (chunk, place) = LastWritten::<T>::place(file);
        let last = self.chunks[chunk].get(place)?.as_ref();
        last.filter(|(owner, _)| *owner == file)
            .map(|(_, last)| last)
    }

    /// Prefetches a file's place.
    #[inline]
    pub fn prefetch(&self, file: i64) {
        let (chunk, place) = LastWritten::<T>::place(file);
        // A place spans two cache lines. The second is usually the line in which the next place begins.
        for place in self.chunks[chunk].iter().skip(place).take(2) {
            prefetch(place);
        }
    }

    /// Whether the value must be written for a file; if so, remembers it.
    #[inline]
    pub fn is_news(&mut self, file: i64, now: &T) -> bool {
        if self.of(file).is_some_and(|last| last == now) {
            return false;
        }
        let (chunk, place) = LastWritten::<T>::place(file);
        let chunk = &mut self.chunks[chunk];
        if chunk.is_empty() {
            *chunk = vec![None; CHUNK_PLACES].into();
        }
        chunk[place] = Some((file, *now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_values_equal_to_the_last_are_omitted() {
        let mut told = LastWritten::new();
        let rows = [(1, 'a'), (1, 'a'), (2, 'a'), (1, 'b'), (1, 'a'), (1, 'a')];
        assert_eq!(
            rows.map(|(file, now)| told.is_news(file, &now)),
            [true, false, true, true, true, false]
        );
        assert_eq!((told.of(1), told.of(3)), (Some(&'a'), None));
        // Another file in the same place: each replaces the other, so both are written every time.
        let rows = [1, 1 + FILES_MAX as i64, 1, 1].map(|file| told.is_news(file, &'a'));
        assert_eq!(rows, [false, true, true, false]);
        told.forget();
        assert!(told.is_news(2, &'a'));
    }
}
