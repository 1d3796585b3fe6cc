//! Rates over time, at a width that doubles as the capture grows: at most 512 intervals.

use super::{Event, Kind};

const INTERVALS_MAX: usize = 512;
const WIDTH_NS_MIN: u64 = 10_000_000;

/// What happened in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Bytes on the wire.
    pub wire_bytes: u64,
    /// Operations called.
    pub operations: u64,
    /// Bytes of READ data.
    pub read_bytes: u64,
    /// Bytes of WRITE data.
    pub write_bytes: u64,
    /// Operations that failed.
    pub errors: u64,
}

impl Interval {
    fn add(&mut self, other: &Interval) {
        self.wire_bytes += other.wire_bytes;
        self.operations += other.operations;
        self.read_bytes += other.read_bytes;
        self.write_bytes += other.write_bytes;
        self.errors += other.errors;
    }
}

/// All intervals.
#[derive(Debug)]
pub struct Rates {
    start_ns: Option<u64>,
    end_ns: u64,
    width_ns: u64,
    intervals: Vec<Interval>,
    /// The interval looked at last and where it begins: times come in rows, divisions cost.
    last: usize,
    last_from_ns: u64,
}

impl Default for Rates {
    fn default() -> Rates {
        Rates {
            start_ns: None,
            end_ns: 0,
            width_ns: WIDTH_NS_MIN,
            intervals: Vec::new(),
            last: 0,
            last_from_ns: u64::MAX,
        }
    }
}

impl Rates {
    #[inline]
    fn at(&mut self, time_ns: u64) -> &mut Interval {
        if time_ns.wrapping_sub(self.last_from_ns) < self.width_ns && self.last_from_ns != u64::MAX {
            return &mut self.intervals[self.last];
        }
        let start = *self.start_ns.get_or_insert(time_ns);
        let mut index = (time_ns.saturating_sub(start) / self.width_ns) as usize;
        if index >= self.intervals.len() {
            index = self.grow(time_ns - start);
        }
        self.last = index;
        self.last_from_ns = start + index as u64 * self.width_ns;
        &mut self.intervals[index]
    }

    #[cold]
    fn grow(&mut self, since_start_ns: u64) -> usize {
        while since_start_ns / self.width_ns >= INTERVALS_MAX as u64 {
            self.width_ns *= 2;
            let folded = self.intervals.chunks(2).map(|pair| {
                let mut sum = pair[0];
                pair.get(1).inspect(|second| sum.add(second));
                sum
            });
            self.intervals = folded.collect();
        }
        let index = (since_start_ns / self.width_ns) as usize;
        self.intervals.resize(index + 1, Interval::default());
        index
    }

    #[inline]
    pub(super) fn on_packet(&mut self, time_ns: u64, wire_len: u32) {
        self.end_ns = self.end_ns.max(time_ns);
        self.at(time_ns).wire_bytes += u64::from(wire_len);
    }

    #[inline]
    pub(super) fn on_event(&mut self, event: &Event) {
        let interval = self.at(event.time_ns);
        interval.operations += 1;
        interval.errors += u64::from(event.error.is_some());
        match event.kind {
            Kind::Read => interval.read_bytes += u64::from(event.bytes),
            Kind::Write => interval.write_bytes += u64::from(event.bytes),
            Kind::Other => {}
        }
    }

    /// From the first packet to the last, in seconds.
    pub fn duration_s(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns.unwrap_or(self.end_ns)) as f64 / 1e9
    }

    /// When the first packet was seen: nanoseconds since 1970.
    pub fn start_ns(&self) -> u64 {
        self.start_ns.unwrap_or(0)
    }

    /// The intervals and their width in nanoseconds.
    pub fn intervals(&self) -> (&[Interval], u64) {
        (&self.intervals, self.width_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The goal: however long it takes, nothing is lost and the table stays small.
    #[test]
    fn folds() {
        let mut rates = Rates::default();
        for second in 0..100_000u64 {
            rates.on_packet(second * 1_000_000_000, 100);
        }
        let (intervals, width) = rates.intervals();
        assert!(intervals.len() <= INTERVALS_MAX && width > WIDTH_NS_MIN);
        assert_eq!(intervals.iter().map(|i| i.wire_bytes).sum::<u64>(), 10_000_000);
        assert_eq!(rates.duration_s(), 99_999.0);
    }
}
