//! Locks block ranges for commands that must not be interleaved with other commands. Shared by all connections of a
//! logical unit. READ and WRITE take shared locks; COMPARE AND WRITE, ORWRITE, WRITE SAME, UNMAP and WRITE ATOMIC
//! take exclusive locks, so that each is atomic with respect to other commands.
//!
//! The medium is divided into stripes that map to slots, each with a counter: a shared lock costs one atomic addition
//! and one subtraction per ordinary request, without a mutex and without waiting. Callers never wait: a refused command
//! is parked and retried.

use std::sync::atomic::{AtomicU32, Ordering};

/// One slot per bit of a `u64` mask.
const SLOTS: u64 = 64;
/// 1 MiB: most requests touch a single stripe, and random requests rarely touch the same one.
const STRIPE_SHIFT: u32 = 20;
/// Set while an exclusive holder has the slot or is still acquiring its other slots.
const EXCLUSIVE: u32 = 1 << 31;

/// Each slot has its own cache line, so that connections working on different stripes don't contend.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Slot(AtomicU32);

/// The lock table of a logical unit.
#[derive(Debug)]
pub struct RangeLocks {
    slots: Box<[Slot]>,
}

/// A lock held by a command; release it with [`RangeLocks::release`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Hold {
    mask: u64,
    exclusive: bool,
}

impl Hold {
    /// A hold without any locks.
    pub const NONE: Hold = Hold {
        mask: 0,
        exclusive: false,
    };
}

impl Default for RangeLocks {
    fn default() -> RangeLocks {
        RangeLocks {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
        }
    }
}

/// The slots of a byte range.
#[inline]
fn mask_of(offset: u64, len: u64) -> u64 {
    if len == 0 {
        return 0;
    }
    let first = offset >> STRIPE_SHIFT;
    let last = (offset + (len - 1)) >> STRIPE_SHIFT;
    if last - first >= SLOTS - 1 {
        return u64::MAX;
    }
    let ones = (1u64 << (last - first + 1)) - 1;
    ones.rotate_left((first % SLOTS) as u32)
}

impl RangeLocks {
    /// Whether no exclusive lock overlaps the range; for reads that copy nothing and take no lock.
    #[inline]
    pub fn is_free(&self, offset: u64, len: u64) -> bool {
        bits(mask_of(offset, len)).all(|i| self.slots[i].0.load(Ordering::Acquire) & EXCLUSIVE == 0)
    }

    /// Takes a shared lock on the range; `None` while an exclusive command holds or is acquiring part of it.
    #[inline]
    pub fn share(&self, offset: u64, len: u64) -> Option<Hold> {
        let mask = mask_of(offset, len);
        for i in bits(mask) {
            if self.slots[i].0.fetch_add(1, Ordering::AcqRel) & EXCLUSIVE != 0 {
                // Undo this increment and the previous ones.
                let taken = mask_up_to(mask, i);
                self.release(Hold {
                    mask: taken,
                    exclusive: false,
                });
                return None;
            }
        }
        Some(Hold {
            mask,
            exclusive: false,
        })
    }

    /// Acquires an exclusive lock on the range, or on the part that no other command holds exclusively; `Err` contains
    /// the locks acquired so far, for the next attempt. Slots are acquired in order, so two commands can't wait for
    /// each other.
    ///
    /// # Errors
    /// The lock is not complete yet.
    pub fn exclude(&self, offset: u64, len: u64, got: Hold) -> Result<Hold, Hold> {
        let mask = mask_of(offset, len);
        let mut got = Hold {
            mask: got.mask,
            exclusive: true,
        };
        for i in bits(mask & !got.mask) {
            if self.slots[i].0.fetch_or(EXCLUSIVE, Ordering::AcqRel) & EXCLUSIVE != 0 {
                return Err(got);
            }
            got.mask |= 1 << i;
        }
        let drained = bits(mask).all(|i| self.slots[i].0.load(Ordering::Acquire) & !EXCLUSIVE == 0);
        if drained { Ok(got) } else { Err(got) }
    }

    /// Releases a complete or partial lock.
    #[inline]
    pub fn release(&self, hold: Hold) {
        for i in bits(hold.mask) {
            if hold.exclusive {
                self.slots[i].0.fetch_and(!EXCLUSIVE, Ordering::AcqRel);
            } else {
                self.slots[i].0.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}

fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let i = mask.trailing_zeros();
            mask &= mask - 1;
            i as usize
        })
    })
}

/// The bits of `mask` up to and including `last`, in the order of [`bits`].
fn mask_up_to(mask: u64, last: usize) -> u64 {
    mask & (u64::MAX >> (63 - last))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The slots of a range that spans stripes, wraps around the slots, or covers the whole medium.
    #[test]
    fn a_range_maps_to_the_slots_of_its_stripes() {
        let check = |offset, len, slots: u32, first: u32| {
            let mask = mask_of(offset, len);
            assert_eq!(mask.count_ones(), slots, "{offset} {len}");
            assert!(slots == 0 || mask >> first & 1 == 1, "{offset} {len}");
        };
        check(0, 0, 0, 0);
        check(0, 512, 1, 0);
        check(MIB - 512, 1024, 2, 0);
        check(63 * MIB, 2 * MIB, 2, 63);
        check(5 * MIB, 62 * MIB, 62, 5);
        check(0, 64 * MIB, 64, 0);
        check(u64::MAX - MIB, MIB, 2, 63);
    }

    /// Shared locks are compatible with each other, exclusive locks aren't, and releasing both leaves the table empty.
    #[test]
    fn shared_locks_are_compatible_and_exclusive_locks_are_not() {
        let locks = RangeLocks::default();
        let a = locks.share(0, 2 * MIB).unwrap();
        let b = locks.share(0, 512).unwrap();
        let partial = locks.exclude(MIB, 4096, Hold::NONE).unwrap_err();
        // A waiting exclusive lock blocks new shared locks, so that it doesn't starve.
        assert!(locks.share(MIB, 512).is_none() && locks.share(0, 2 * MIB).is_none());
        assert!(!locks.is_free(MIB, 512) && locks.is_free(0, 512));
        locks.release(a);
        let hold = locks.exclude(MIB, 4096, partial).unwrap();
        assert!(locks.exclude(MIB, 4096, Hold::NONE).is_err());
        locks.release(hold);
        locks.release(b);
        assert!(
            locks
                .slots
                .iter()
                .all(|slot| slot.0.load(Ordering::Relaxed) == 0)
        );
    }

    /// Threads that add under shared locks and read under exclusive locks never see a partial sum.
    #[test]
    fn readers_under_exclusive_locks_never_see_a_partial_sum() {
        use std::sync::atomic::AtomicU64;
        let locks = RangeLocks::default();
        let (left, right) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let hold = loop {
                            if let Some(hold) = locks.share(0, 2 * MIB) {
                                break hold;
                            }
                            std::thread::yield_now();
                        };
                        left.fetch_add(1, Ordering::Relaxed);
                        right.fetch_add(1, Ordering::Relaxed);
                        locks.release(hold);
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..200 {
                    let mut hold = Hold::NONE;
                    loop {
                        match locks.exclude(MIB, 4096, hold) {
                            Ok(all) => break hold = all,
                            Err(part) => hold = part,
                        }
                        std::thread::yield_now();
                    }
                    assert_eq!(left.load(Ordering::Relaxed), right.load(Ordering::Relaxed));
                    locks.release(hold);
                }
            });
        });
        assert_eq!(right.load(Ordering::Relaxed), 4000);
    }
}
