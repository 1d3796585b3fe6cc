//! Tracks which bytes of a read have arrived. A server may send them in any order and in any number of parts, but each
//! byte only once.
//!
//! The rule: adjacent parts are merged, so a server that sends in order costs one entry; a server that leaves more than
//! [`GAPS_MAX`] gaps is refused.

/// Maximum number of separate parts.
const GAPS_MAX: usize = 1024;

/// The received parts, in order, separated by gaps.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    parts: Vec<(u64, u64)>,
}

impl Coverage {
    /// Forgets all parts.
    pub fn clear(&mut self) {
        self.parts.clear();
    }

    /// Whether a part is acceptable: none of it has arrived before, and there is room.
    pub fn takes(&self, start: u64, len: u64) -> bool {
        let index = self.parts.partition_point(|part| part.1 <= start);
        let free = self
            .parts
            .get(index)
            .is_none_or(|next| start + len <= next.0);
        free && self.parts.len() < GAPS_MAX
    }

    /// Adds a part.
    pub fn add(&mut self, start: u64, len: u64) {
        debug_assert!(self.takes(start, len), "a part arrives once");
        let end = start + len;
        let index = self.parts.partition_point(|part| part.1 <= start);
        let touches_before = index > 0 && self.parts[index - 1].1 == start;
        let touches_next = self.parts.get(index).is_some_and(|next| next.0 == end);
        match (touches_before, touches_next) {
            (true, true) => {
                self.parts[index - 1].1 = self.parts[index].1;
                self.parts.remove(index);
            }
            (true, false) => self.parts[index - 1].1 = end,
            (false, true) => self.parts[index].0 = start,
            (false, false) => self.parts.insert(index, (start, end)),
        }
    }

    /// Whether all bytes from `start` to `end` have arrived.
    pub fn is_whole(&self, start: u64, end: u64) -> bool {
        self.parts[..] == [(start, end)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts in any order make a whole, and none is accepted twice.
    #[test]
    fn parts_in_any_order_make_a_whole() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
            let mut coverage = Coverage::default();
            for part in order {
                assert!(!coverage.is_whole(512, 2560));
                let start = 512 + part * 512;
                assert!(coverage.takes(start, 512));
                coverage.add(start, 512);
                assert!(!coverage.takes(start, 512) && !coverage.takes(start + 511, 1));
                assert!(!coverage.takes(start, 1) && !coverage.takes(start - 1, 513 + 1));
            }
            assert!(coverage.is_whole(512, 2560), "{order:?}");
            assert!(coverage.takes(0, 512) && coverage.takes(2560, 1));
        }
    }

    /// The number of gaps is bounded.
    #[test]
    fn gaps_are_bounded() {
        let mut coverage = Coverage::default();
        let taken = (0..5000).take_while(|&index| {
            let takes = coverage.takes(index * 2, 1);
            takes.then(|| coverage.add(index * 2, 1)).is_some()
        });
        assert_eq!(taken.count(), GAPS_MAX);
    }
}
