//! A disk's service time, which depends on request positions: `delay=disk:55MB/s-39MB/s,seek=1ms-12ms`
//! ([`super::delayed`]).
//!
//! The model is a single arm over zones. The device's space is divided into zones of equal size. The first zone (on the
//! outer tracks) has the first transfer rate, the last zone the second, and those in between are interpolated linearly.
//! A request takes
//!
//! - its length at the transfer rate of the zone where it starts,
//! - unless it starts where the previous request ended, a seek: `least + (most - least) · √(distance / size)`, where
//!   `most` is the seek from one end to the other,
//! - and after a seek, a rotational delay distributed uniformly between zero and a full revolution.
//!
//! Requests from all threads are served one at a time in order of arrival. There is no cache, no reordering, and no
//! track or head switch: all bytes of a request transfer at its zone's rate. Requests without data (a flush) take no
//! time.
//!
//! The rule: this module is pure; the arm's position and the random numbers come from the caller.

use std::time::Duration;

use brunt_core::random::Random;
use brunt_core::units::{UnitError, parse_duration, parse_size};

/// Default number of zones; disks have ten to thirty.
const ZONES: u32 = 16;
/// Maximum number of zones.
const ZONES_MAX: u32 = 1024;
/// Default revolutions per minute.
const RPM: u32 = 10_000;
/// Maximum revolutions per minute.
const RPM_MAX: u32 = 1_000_000;
/// Default shortest and longest seek.
const SEEK: [Duration; 2] = [Duration::from_micros(600), Duration::from_millis(12)];

/// A disk with one arm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskModel {
    /// Transfer rates of the first and the last zone, in bytes per second.
    pub rates: [u64; 2],
    /// Number of zones.
    pub zones: u32,
    /// Seek times between adjacent tracks, and from one end to the other.
    pub seek: [Duration; 2],
    /// Revolutions per minute.
    pub rpm: u32,
}

/// Position of the arm: just after the last byte transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arm(u64);

/// Why a disk specification is invalid.
#[derive(Debug, thiserror::Error)]
pub enum DiskMistake {
    /// A malformed size or time.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// Any other mistake; states what would be correct.
    #[error("{0}")]
    Form(&'static str),
}

impl DiskModel {
    /// Parses transfer rates such as `55MB/s-39MB/s`, or a single rate for the whole disk.
    ///
    /// # Errors
    /// The rates are invalid.
    pub fn of_rates(text: &str) -> Result<DiskModel, DiskMistake> {
        let (outer, inner) = text.split_once('-').unwrap_or((text, text));
        let rate = |text: &str| {
            let bytes = text
                .strip_suffix("/s")
                .ok_or(DiskMistake::Form("write rates such as 55MB/s-39MB/s"))?;
            match parse_size(bytes)? {
                0 => Err(DiskMistake::Form("write rates above zero")),
                rate => Ok(rate),
            }
        };
        Ok(DiskModel {
            rates: [rate(outer)?, rate(inner)?],
            zones: ZONES,
            seek: SEEK,
            rpm: RPM,
        })
    }

    /// Changes a setting; `false` if the setting doesn't exist.
    ///
    /// # Errors
    /// The value is invalid.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, DiskMistake> {
        let number = |most: u32, what: &'static str| {
            let number = value
                .parse::<u32>()
                .ok()
                .filter(|number| (1..=most).contains(number));
            number.ok_or(DiskMistake::Form(what))
        };
        match key {
            "zones" => self.zones = number(ZONES_MAX, "write 1 to 1024 zones")?,
            "rpm" => self.rpm = number(RPM_MAX, "write 1 to 1000000 rpm")?,
            "seek" => {
                let (least, most) = value
                    .split_once('-')
                    .ok_or(DiskMistake::Form("write a seek such as 600us-12ms"))?;
                self.seek = [parse_duration(least)?, parse_duration(most)?];
                if self.seek[0] > self.seek[1] {
                    return Err(DiskMistake::Form("write the shorter seek first"));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The transfer rate in bytes per second at `offset` of a device of `size` bytes.
    pub fn rate(&self, offset: u64, size: u64) -> f64 {
        let zone = (u128::from(offset) * u128::from(self.zones) / u128::from(size.max(1))) as u32;
        let share = f64::from(zone.min(self.zones - 1)) / f64::from((self.zones - 1).max(1));
        let [outer, inner] = self.rates.map(|rate| rate as f64);
        outer + (inner - outer) * share
    }

    /// A request's service time in nanoseconds on a device of `size` bytes. Moves the arm to the request's end.
    pub fn service(
        &self,
        arm: &mut Arm,
        offset: u64,
        len: u64,
        size: u64,
        random: &mut Random,
    ) -> u64 {
        if len == 0 {
            return 0;
        }
        let transfer = len as f64 / self.rate(offset, size) * 1e9;
        let moved = offset.abs_diff(arm.0);
        arm.0 = offset.saturating_add(len);
        if moved == 0 {
            return transfer.round() as u64;
        }
        let [least, most] = self.seek.map(|seek| seek.as_nanos() as f64);
        let seek = least + (most - least) * (moved as f64 / size.max(1) as f64).min(1.0).sqrt();
        let turn = 60e9 / f64::from(self.rpm);
        (seek + turn * random.unit() + transfer).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    fn disk() -> DiskModel {
        let mut disk = DiskModel::of_rates("55MB/s-39MB/s").unwrap();
        for (key, value) in [("zones", "9"), ("seek", "1ms-9ms"), ("rpm", "6000")] {
            assert!(disk.set(key, value).unwrap());
        }
        disk
    }

    /// A sequential pass over the device slows from the outer rate to the inner one, with one step per zone.
    #[test]
    fn sequential_requests_are_as_fast_as_their_zone() {
        let (disk, mut arm, mut random) = (disk(), Arm::default(), Random::new(1));
        let mut rates = Vec::new();
        for pass in 0..2 {
            for block in 0..1800u64 {
                let nanos =
                    disk.service(&mut arm, block * GB / 100, GB / 100, 18 * GB, &mut random);
                // Only the return to the beginning is a seek.
                if (pass, block) != (1, 0) {
                    rates.push((0.01e9 / (nanos as f64 / 1e9) / 1e6).round() as u64);
                }
            }
        }
        assert_eq!((rates[0], rates[1799], rates[1800]), (55, 39, 55));
        rates.truncate(1800);
        assert!(rates.is_sorted_by(|a, b| a >= b));
        rates.dedup();
        assert_eq!(rates, [55, 53, 51, 49, 47, 45, 43, 41, 39]);
    }

    /// Seek time grows with the square root of the distance, and the rotational delay averages half a revolution.
    #[test]
    fn seeks_grow_with_the_distance() {
        let (disk, mut random) = (disk(), Random::new(2));
        let mut mean = |from: u64, to: u64| {
            let sum: u64 = (0..20_000)
                .map(|_| disk.service(&mut Arm(from), to, 1, 16 * GB, &mut random))
                .sum();
            sum as f64 / 20_000.0 / 1e6
        };
        // Half a revolution at 6000 rpm takes 5 ms.
        for (to, expected) in [
            (16 * GB, 9.0 + 5.0),
            (4 * GB, 1.0 + 8.0 * 0.5 + 5.0),
            (1, 1.0 + 5.0),
        ] {
            let found = mean(0, to);
            assert!(
                (found - expected).abs() < 0.1,
                "to {to}: {found} ms, not {expected}"
            );
            assert_eq!(mean(to, 0) > 5.0, to > 0);
        }
        // Over all pairs of positions, the mean square root of the distance is 8/15 of the end-to-end value.
        let (mut arm, mut places, mut sum) = (Arm::default(), Random::new(3), 0.0);
        for _ in 0..20_000 {
            let to = places.below(16 * GB);
            sum += disk.service(&mut arm, to, 1, 16 * GB, &mut random) as f64 / 1e6;
        }
        let (found, expected) = (sum / 20_000.0, 1.0 + 8.0 * 8.0 / 15.0 + 5.0);
        assert!((found - expected).abs() < 0.1, "{found} ms, not {expected}");
    }

    #[test]
    fn invalid_disks_are_rejected() {
        for text in ["", "55MB", "0/s", "55MB/s-", "fast/s"] {
            assert!(DiskModel::of_rates(text).is_err(), "{text}");
        }
        assert_eq!(DiskModel::of_rates("1MB/s").unwrap().rates, [1_000_000; 2]);
        let mut disk = disk();
        for (key, value) in [
            ("zones", "0"),
            ("zones", "x"),
            ("rpm", "0"),
            ("seek", "1ms"),
            ("seek", "2ms-1ms"),
        ] {
            assert!(disk.set(key, value).is_err(), "{key}={value}");
        }
        assert!(!disk.set("heads", "4").unwrap());
        assert_eq!(
            disk.service(&mut Arm::default(), 5, 0, GB, &mut Random::new(1)),
            0,
            "a flush"
        );
        assert_eq!(disk.rate(u64::MAX, 0), 39e6, "beyond the end");
    }
}
