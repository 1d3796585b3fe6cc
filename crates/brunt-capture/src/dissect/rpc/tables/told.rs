//! Remembers the attributes last written for each file, so that attributes are stored when they change and
//! not with every reply. Checked by the tables of attributes before each row.
//!
//! The one rule: only attributes that equal the last row of the same file in every part are omitted.
//! Forgotten ones are written again, which is redundant but not wrong.

use brunt_core::prefetch;

/// Files that are remembered, each in the one place that its number leaves it: 16,384 of 104 bytes.
const FILES_MAX: usize = SHELVES * SHELF_PLACES;
/// Shelves of places. One has memory once a file is remembered on it: a capture of a few files touches little.
const SHELVES: usize = 64;
const SHELF_PLACES: usize = 256;

/// What is remembered of a file, and of which.
type Place<T> = Option<(i64, T)>;

/// The last of each file.
pub struct LastTold<T> {
    shelves: [Box<[Place<T>]>; SHELVES],
}

impl<T: Copy + PartialEq> LastTold<T> {
    pub fn new() -> LastTold<T> {
        LastTold {
            shelves: std::array::from_fn(|_| Box::default()),
        }
    }

    /// What was told may be gone: all is told again.
    pub fn forget(&mut self) {
        self.shelves.iter_mut().for_each(|shelf| shelf.fill(None));
    }

    /// A file's shelf and its place there. `file` is a hash, so that its low bits are as good as any.
    #[inline]
    fn place(file: i64) -> (usize, usize) {
        let place = file as usize % FILES_MAX;
        (place / SHELF_PLACES, place % SHELF_PLACES)
    }

    /// The last of a file, if it is remembered.
    #[inline]
    pub fn of(&self, file: i64) -> Option<&T> {
        let (shelf, place) = LastTold::<T>::place(file);
        let last = self.shelves[shelf].get(place)?.as_ref();
        last.filter(|(told, _)| *told == file).map(|(_, last)| last)
    }

    /// Asks for what is remembered in a file's place, before it is needed.
    #[inline]
    pub fn prefetch(&self, file: i64) {
        let (shelf, place) = LastTold::<T>::place(file);
        // It ends in another cache line than it begins in, which is most of the time the one where the next begins.
        for place in self.shelves[shelf].iter().skip(place).take(2) {
            prefetch(place);
        }
    }

    /// Whether this has to be told of a file; it is remembered then.
    #[inline]
    pub fn is_news(&mut self, file: i64, now: &T) -> bool {
        if self.of(file).is_some_and(|last| last == now) {
            return false;
        }
        let (shelf, place) = LastTold::<T>::place(file);
        let shelf = &mut self.shelves[shelf];
        if shelf.is_empty() {
            *shelf = vec![None; SHELF_PLACES].into();
        }
        shelf[place] = Some((file, *now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_equals_the_last_is_left_out() {
        let mut told = LastTold::new();
        let rows = [(1, 'a'), (1, 'a'), (2, 'a'), (1, 'b'), (1, 'a'), (1, 'a')];
        assert_eq!(
            rows.map(|(file, now)| told.is_news(file, &now)),
            [true, false, true, true, true, false]
        );
        assert_eq!((told.of(1), told.of(3)), (Some(&'a'), None));
        // Another file in the same place: both are told each time.
        let rows = [1, 1 + FILES_MAX as i64, 1, 1].map(|file| told.is_news(file, &'a'));
        assert_eq!(rows, [false, true, true, false]);
        told.forget();
        assert!(told.is_news(2, &'a'));
    }
}
