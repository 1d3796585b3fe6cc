//! The shape of a tree, with mdtest's numbers: the top directory is 0, and directory `d` contains directories `d *
//! branch + 1` to `d * branch + branch`. The items of directory `d` are numbered from `d * items`.
//!
//! The rule: numbers depend on the shape alone, so all workers and hosts agree on them.

use std::ops::Range;

/// The shape of a tree of directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TreeShape {
    /// Levels below the top directory.
    pub(super) depth: u32,
    /// Subdirectories of each directory.
    pub(super) branch: u32,
    /// Items per worker in each directory that has any.
    pub(super) items: u32,
    /// Only directories of the deepest level have items.
    pub(super) leaf_only: bool,
}

impl TreeShape {
    /// Returns the number of directories; `None` if there are more than `u32::MAX`.
    pub(super) fn directories(&self) -> Option<u32> {
        let (mut all, mut level) = (1_u32, 1_u32);
        for _ in 0..self.depth {
            level = level.checked_mul(self.branch)?;
            all = all.checked_add(level)?;
        }
        Some(all)
    }

    /// Returns the numbers of the directories that have items.
    ///
    /// # Panics
    /// Panics if the shape has too many directories.
    pub(super) fn with_items(&self) -> Range<u32> {
        let all = self.directories().expect("the shape was checked");
        let first = match (self.leaf_only, self.depth) {
            (false, _) | (_, 0) => 0,
            (true, depth) => all - self.branch.pow(depth),
        };
        first..all
    }

    /// Returns the numbers of a worker's items.
    pub(super) fn item_numbers(&self) -> Range<u64> {
        let Range { start, end } = self.with_items();
        u64::from(start) * u64::from(self.items)..u64::from(end) * u64::from(self.items)
    }

    /// Returns the directory of an item. Items beyond the last are spread over the same directories again.
    pub(super) fn directory_of(&self, item: u64) -> usize {
        let Range { start, end } = self.item_numbers();
        let place = start + (item - start) % (end - start);
        (place / u64::from(self.items)) as usize
    }

    /// Returns the directory that contains this one; `None` for the top directory.
    pub(super) fn parent_of(&self, directory: u32) -> Option<u32> {
        Some(directory.checked_sub(1)? / self.branch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(depth: u32, branch: u32, leaf_only: bool) -> TreeShape {
        TreeShape {
            depth,
            branch,
            items: 10,
            leaf_only,
        }
    }

    /// As mdtest counts them: (b^(z+1) - 1) / (b - 1) directories.
    #[test]
    fn directories_and_items_have_the_numbers_of_mdtest() {
        let check = |depth, branch, leaf_only, directories, items: Range<u64>| {
            let shape = shape(depth, branch, leaf_only);
            assert_eq!(shape.directories(), Some(directories), "{shape:?}");
            assert_eq!(shape.item_numbers(), items, "{shape:?}");
        };
        check(0, 1, false, 1, 0..10);
        check(0, 5, true, 1, 0..10);
        check(3, 1, false, 4, 0..40);
        check(3, 1, true, 4, 30..40);
        check(2, 3, false, 13, 0..130);
        check(2, 3, true, 13, 40..130);
        assert_eq!(shape(40, 2, false).directories(), None);
    }

    #[test]
    fn each_directory_is_in_one_with_a_lower_number() {
        let shape = shape(2, 3, false);
        let parents: Vec<Option<u32>> = (0..13).map(|one| shape.parent_of(one)).collect();
        let expected = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3].map(Some);
        assert_eq!((parents[0], &parents[1..]), (None, &expected[..]));
        assert_eq!(
            [9, 10, 129, 130, 145].map(|item| shape.directory_of(item)),
            [0, 1, 12, 0, 1]
        );
        let leaves = TreeShape {
            leaf_only: true,
            ..shape
        };
        assert_eq!(
            [40, 129, 130].map(|item| leaves.directory_of(item)),
            [4, 12, 4]
        );
    }
}
