//! Computes figures from the difference between two readings and the time between them. Used by all probes.
//!
//! The rule: a counter that went backwards has wrapped at 32 bits if it was near that limit, and was reset otherwise; a
//! reset yields no figure and is counted.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use brunt_result::event::SampleValue;

/// Maximum number of instances (CPUs, interfaces, disks) per probe; further ones are left out.
pub const INSTANCES_MAX: usize = 1024;

/// A text that is not in the documented format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} (in '{line}')")]
pub struct Malformed {
    /// What is wrong.
    pub what: &'static str,
    /// The line, or its beginning.
    pub line: String,
}

impl Malformed {
    /// Reports a problem with a line.
    pub fn new(what: &'static str, line: &str) -> Malformed {
        Malformed {
            what,
            line: line.chars().take(60).collect(),
        }
    }
}

/// The contents of a probe's files, in order.
pub struct Texts<'a>(pub &'a [Option<Cow<'a, str>>]);

impl Texts<'_> {
    /// Returns the contents of a file, if it exists.
    pub fn get(&self, index: usize) -> Option<&str> {
        self.0.get(index)?.as_deref()
    }

    /// Returns the contents of a required file.
    ///
    /// # Errors
    /// The file is missing.
    pub fn need(&self, index: usize) -> Result<&str, Malformed> {
        self.get(index).ok_or(Malformed {
            what: "the file is missing",
            line: String::new(),
        })
    }
}

/// Counters by instance.
pub type Rows<const N: usize> = Vec<(Arc<str>, [u64; N])>;

/// Returns the integers at the start of a line's fields, up to the first field that is not a number.
///
/// # Errors
/// There are fewer than `N`.
pub fn numbers<'a, const N: usize>(
    fields: impl Iterator<Item = &'a str>,
    line: &str,
) -> Result<[u64; N], Malformed> {
    let mut numbers = [0; N];
    let mut fields = fields.map_while(|field| field.parse().ok());
    for number in &mut numbers {
        *number = fields
            .next()
            .ok_or_else(|| Malformed::new("too few numbers", line))?;
    }
    Ok(numbers)
}

/// Returns the number after a name in a text of `name value` lines; `None` if this kernel has no such line.
///
/// # Errors
/// The value is not a number.
pub fn named(text: &str, name: &str) -> Result<Option<u64>, Malformed> {
    for line in text.lines() {
        let Some(rest) = line.strip_prefix(name) else {
            continue;
        };
        if !rest.starts_with([' ', ':', '\t']) {
            continue;
        }
        let value = rest
            .trim_start_matches(':')
            .split_ascii_whitespace()
            .next()
            .unwrap_or_default();
        return value
            .parse()
            .map(Some)
            .map_err(|_| Malformed::new("not a number", line));
    }
    Ok(None)
}

/// Returns the increase of a counter; `None` if it was reset. The kernel's millisecond counters, and every `unsigned
/// long` on a 32-bit machine, have 32 bits.
pub fn advance(before: u64, now: u64) -> Option<u64> {
    const WRAP: u64 = 1 << 32;
    match now.checked_sub(before) {
        Some(difference) => Some(difference),
        // Going backwards by more than half of the range is a wrap; by less, a reset.
        None if before < WRAP && before - now > WRAP / 2 => Some(now + WRAP - before),
        None => None,
    }
}

/// The shortest interval for which CPU times are reported. The kernel updates them every tick, which is 1 to 10 ms, so
/// a 10 ms tick counted within one millisecond would look like ten CPUs.
pub const STRETCH_MIN: Duration = Duration::from_millis(50);

/// Tick-based counters, and the reading from which the next figures are computed: the previous one, or an earlier one
/// while the interval is too short.
pub struct Ticked<T> {
    now: T,
    /// An earlier reading, from which the next figures are computed, and how long before `now` it was taken.
    base: Option<(T, Duration)>,
}

impl<T> Ticked<T> {
    /// Wraps a new reading.
    pub fn new(now: T) -> Ticked<T> {
        Ticked { now, base: None }
    }

    /// Returns the reading itself.
    pub fn now(&self) -> &T {
        &self.now
    }

    /// Returns the reading from which to compute figures `elapsed` after this one, and the interval's length; `None`
    /// while that is too short.
    pub fn since(&self, elapsed: Duration) -> Option<(&T, Duration)> {
        let (base, earlier) = self
            .base
            .as_ref()
            .map_or((&self.now, Duration::ZERO), |(base, by)| (base, *by));
        let stretch = earlier + elapsed;
        (stretch >= STRETCH_MIN).then_some((base, stretch))
    }

    /// If the interval has been too short for figures so far, passes the base on to `now`, which was read `elapsed`
    /// after this.
    pub fn carry(self, now: &mut Ticked<T>, elapsed: Duration) {
        if self.since(elapsed).is_none() {
            let (base, earlier) = self.base.unwrap_or((self.now, Duration::ZERO));
            now.base = Some((base, earlier + elapsed));
        }
    }
}

/// Collects a probe's figures.
pub struct Sink<'a> {
    probe: &'static str,
    /// The instance for figures that have none, such as those of a process.
    owner: Arc<str>,
    values: &'a mut Vec<SampleValue>,
    resets: &'a mut u64,
}

impl<'a> Sink<'a> {
    /// Collects the figures of `probe`; `owner` is the instance for figures that have none.
    pub fn new(
        probe: &'static str,
        owner: Arc<str>,
        values: &'a mut Vec<SampleValue>,
        resets: &'a mut u64,
    ) -> Sink<'a> {
        Sink {
            probe,
            owner,
            values,
            resets,
        }
    }

    /// Adds a total, or a figure of the probe's only instance.
    pub fn put(&mut self, metric: &'static str, value: f64) {
        let owner = Arc::clone(&self.owner);
        self.put_of(&owner, metric, value);
    }

    /// Adds a figure of one instance.
    pub fn put_of(&mut self, instance: &Arc<str>, metric: &'static str, value: f64) {
        if value.is_finite() {
            let instance = Arc::clone(instance);
            self.values.push(SampleValue {
                probe: self.probe.into(),
                instance,
                metric: metric.into(),
                value,
            });
        }
    }

    /// Adds a counter's rate, in `unit`s per second.
    pub fn rate(
        &mut self,
        metric: &'static str,
        counters: (u64, u64),
        unit: f64,
        elapsed: Duration,
    ) {
        let owner = Arc::clone(&self.owner);
        self.rate_of(&owner, metric, counters, unit, elapsed);
    }

    /// Adds the rate of an instance's counter, in `unit`s per second.
    pub fn rate_of(
        &mut self,
        instance: &Arc<str>,
        metric: &'static str,
        (before, now): (u64, u64),
        unit: f64,
        elapsed: Duration,
    ) {
        match advance(before, now) {
            Some(count) => self.put_of(
                instance,
                metric,
                count as f64 * unit / elapsed.as_secs_f64(),
            ),
            None => *self.resets += 1,
        }
    }
}

/// Returns the instances that are in both readings. Their order is usually the same.
pub fn pairs<'a, const N: usize>(
    before: &'a Rows<N>,
    now: &'a Rows<N>,
) -> impl Iterator<Item = (&'a Arc<str>, &'a [u64; N], &'a [u64; N])> {
    now.iter()
        .enumerate()
        .filter_map(|(index, (name, counters))| {
            let same = before.get(index).filter(|(other, _)| other == name);
            let (_, earlier) = same.or_else(|| before.iter().find(|(other, _)| other == name))?;
            Some((name, earlier, counters))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wraps are handled, and resets aren't mistaken for traffic.
    #[test]
    fn counters_wrap_and_reset() {
        let check =
            |before, now, expected| assert_eq!(advance(before, now), expected, "{before} {now}");
        check(5, 9, Some(4));
        check(u64::MAX - 1, u64::MAX, Some(1));
        check(u64::from(u32::MAX), 0, Some(1));
        check(u64::from(u32::MAX) - 9, 10, Some(20));
        check(1000, 3, None);
        check(1 << 40, 3, None);
        check((1 << 31) + 10, 20, None);
    }

    /// Instances are matched even if their order changes, and a new one doesn't have a figure yet.
    #[test]
    fn instances_are_matched_by_name() {
        let rows = |names: &[(&str, u64)]| -> Rows<1> {
            names
                .iter()
                .map(|(name, count)| ((*name).into(), [*count]))
                .collect()
        };
        let (before, now) = (
            rows(&[("a", 1), ("b", 2)]),
            rows(&[("b", 5), ("c", 9), ("a", 1)]),
        );
        let found: Vec<_> = pairs(&before, &now)
            .map(|(name, a, b)| (&**name, b[0] - a[0]))
            .collect();
        assert_eq!(found, [("b", 3), ("a", 0)]);
    }

    /// A name doesn't match inside a longer one, and a line without a number is an error.
    #[test]
    fn a_name_does_not_match_inside_a_longer_one() {
        assert_eq!(named("nr_freed 7\nnr_free 9\n", "nr_free"), Ok(Some(9)));
        assert_eq!(named("Swap:   12 kB\n", "Swap"), Ok(Some(12)));
        assert_eq!(named("a 1\n", "b"), Ok(None));
        assert!(
            named("a x\n", "a").is_err() && named("a\n", "a").is_ok_and(|found| found.is_none())
        );
        assert!(numbers::<2>("1 x 2".split(' '), "1 x 2").is_err());
    }
}
