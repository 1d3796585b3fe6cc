//! A series of bounded length: when it has too many parts, adjacent pairs are merged, and later parts are merged to
//! the same size.
//!
//! The rule: readers can always find out how many parts were merged into one.

/// A part that can be merged with the next one.
pub trait Joins {
    /// Merges the next part into this one.
    fn join(&mut self, next: &Self);
    /// The number of parts that were merged into this one.
    fn of(&self) -> u32;
}

/// A series with a maximum number of parts.
#[derive(Clone, Debug)]
pub struct ThinnedSeries<T> {
    parts_max: usize,
    each: u32,
    parts: Vec<T>,
}

impl<T: Joins> ThinnedSeries<T> {
    /// An empty series; it keeps at least two parts.
    pub fn new(parts_max: usize) -> ThinnedSeries<T> {
        ThinnedSeries {
            parts_max: parts_max.max(2),
            each: 1,
            parts: Vec::new(),
        }
    }

    /// Appends a part.
    pub fn push(&mut self, part: T) {
        match self.parts.last_mut() {
            Some(last) if last.of() < self.each => last.join(&part),
            _ => self.parts.push(part),
        }
        if self.parts.len() > self.parts_max {
            self.each = self.each.saturating_mul(2);
            let mut parts = std::mem::take(&mut self.parts).into_iter();
            while let Some(mut first) = parts.next() {
                if let Some(second) = parts.next() {
                    first.join(&second);
                }
                self.parts.push(first);
            }
        }
        assert!(self.parts.len() <= self.parts_max);
    }

    /// All parts, in order.
    pub fn parts(&self) -> &[T] {
        &self.parts
    }

    /// Number of original parts in each part, except for the last.
    pub fn each(&self) -> u32 {
        self.each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Joins for (u64, u32) {
        fn join(&mut self, next: &Self) {
            *self = (self.0 + next.0, self.1 + next.1);
        }
        fn of(&self) -> u32 {
            self.1
        }
    }

    #[test]
    fn a_long_series_is_thinned_and_loses_nothing() {
        for count in [1, 4, 5, 8, 9, 100, 1000] {
            let mut series = ThinnedSeries::new(4);
            (0..count).for_each(|value| series.push((value, 1)));
            let parts = series.parts();
            assert!(parts.len() <= 4, "{count}");
            assert_eq!(
                parts.iter().map(|part| part.0).sum::<u64>(),
                (0..count).sum::<u64>()
            );
            assert_eq!(
                parts.iter().map(|part| u64::from(part.1)).sum::<u64>(),
                count
            );
            let (_, whole) = parts.split_last().expect("not empty");
            assert!(
                whole.iter().all(|part| part.1 == series.each()),
                "{count}: {parts:?}"
            );
            assert_eq!(series.each() == 1, count <= 4);
        }
    }
}
