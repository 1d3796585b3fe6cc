//! Sizes between two limits, in equal steps: shared by the distributions over a range.

use brunt_core::Size;
use brunt_core::random::Random;

use crate::load::{WorkloadError, wrong};

/// Maximum number of redraws for sizes outside the range; after that, the nearest size is used.
const DRAWS_MAX: u32 = 64;

/// The sizes `min`, `min + step`, `min + 2 * step` and so on, up to `max`.
#[derive(Clone, Copy, Debug)]
pub(super) struct SizeRange {
    min: u64,
    max: u64,
    step: u64,
}

impl SizeRange {
    /// The default step is the smallest size.
    pub fn new(min: Size, max: Size, step: Option<Size>) -> SizeRange {
        SizeRange {
            min: min.0,
            max: max.0,
            step: step.unwrap_or(min).0,
        }
    }

    pub fn check(&self) -> Result<(), WorkloadError> {
        let sizes = [
            ("blocks.min", self.min),
            ("blocks.max", self.max),
            ("blocks.step", self.step),
        ];
        for (key, size) in sizes {
            if size == 0 || !size.is_multiple_of(512) {
                wrong(
                    key,
                    format!("{} is not a multiple of 512 bytes", Size(size)),
                )?;
            }
        }
        if self.max < self.min {
            let (min, max) = (Size(self.min), Size(self.max));
            wrong("blocks.max", format!("{max} is less than min, {min}"))?;
        }
        Ok(())
    }

    /// Returns the number of sizes.
    pub fn count(&self) -> u64 {
        self.max.saturating_sub(self.min) / self.step.max(1) + 1
    }

    /// Returns the size with this index; the last size for larger indexes.
    pub fn size(&self, number: u64) -> u64 {
        self.min + number.min(self.count() - 1) * self.step
    }

    /// Returns the first, second and last sizes.
    pub fn corners(&self) -> Vec<Size> {
        [0, 1, self.count() - 1]
            .map(|number| Size(self.size(number)))
            .to_vec()
    }

    pub fn describe(&self) -> String {
        let words = format!("{} to {}", Size(self.min), Size(self.size(u64::MAX)));
        match self.step == self.min {
            true => words,
            false => format!("{words} in steps of {}", Size(self.step)),
        }
    }

    /// Returns the end, in bytes, of the step that begins with the largest size.
    pub fn end(&self) -> u64 {
        self.size(u64::MAX) + self.step
    }

    /// Returns the largest size that is not above this number of bytes.
    pub fn floor(&self, bytes: f64) -> u64 {
        self.size(((bytes - self.min as f64).max(0.0) / self.step as f64) as u64)
    }

    /// Draws numbers of bytes until one is in the range, and returns the nearest size.
    pub fn draw(&self, random: &mut Random, mut bytes: impl FnMut(&mut Random) -> f64) -> u64 {
        let (least, most) = (self.min as f64, self.size(u64::MAX) as f64);
        let half = self.step as f64 / 2.0;
        let mut drawn = least;
        for _ in 0..DRAWS_MAX {
            drawn = bytes(random);
            if drawn >= least - half && drawn < most + half {
                break;
            }
        }
        let number = (drawn.clamp(least, most) - least + half) / self.step as f64;
        self.size(number as u64)
    }
}
