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

/// All intervals. They begin at multiples of their width since 1970, so that those of several
/// pipelines can be added.
#[derive(Debug)]
pub struct Rates {
    start_ns: Option<u64>,
    end_ns: u64,
    width_ns: u64,
    /// When the first interval begins, in widths.
    first: u64,
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
            first: 0,
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
        self.find(time_ns)
    }

    #[cold]
    fn find(&mut self, time_ns: u64) -> &mut Interval {
        self.start_ns = Some(self.start_ns.map_or(time_ns, |start| start.min(time_ns)));
        let index = self.make_room(time_ns);
        self.last = index;
        self.last_from_ns = (self.first + index as u64) * self.width_ns;
        &mut self.intervals[index]
    }

    /// The interval of a time, with all between it and those that are there.
    fn make_room(&mut self, time_ns: u64) -> usize {
        if self.intervals.is_empty() {
            self.first = time_ns / self.width_ns;
        }
        loop {
            let at = time_ns / self.width_ns;
            let first = self.first.min(at);
            let end = (self.first + self.intervals.len() as u64).max(at + 1);
            if end - first > INTERVALS_MAX as u64 {
                self.fold();
                continue;
            }
            // Packets of several interfaces may come a little before the first.
            let before = (self.first - first) as usize;
            self.intervals.splice(0..0, std::iter::repeat_n(Interval::default(), before));
            self.first = first;
            self.intervals.resize((end - first) as usize, Interval::default());
            return (at - first) as usize;
        }
    }

    /// Makes pairs of intervals one.
    fn fold(&mut self) {
        if !self.first.is_multiple_of(2) {
            self.first -= 1;
            self.intervals.insert(0, Interval::default());
        }
        self.width_ns *= 2;
        self.first /= 2;
        let folded = self.intervals.chunks(2).map(|pair| {
            let mut sum = pair[0];
            pair.get(1).inspect(|second| sum.add(second));
            sum
        });
        self.intervals = folded.collect();
        self.last_from_ns = u64::MAX;
    }

    /// Adds what another pipeline saw.
    pub(super) fn merge(&mut self, other: &Rates) {
        let Some(start) = other.start_ns else { return };
        self.start_ns = Some(self.start_ns.map_or(start, |mine| mine.min(start)));
        self.end_ns = self.end_ns.max(other.end_ns);
        while self.width_ns < other.width_ns {
            self.fold();
        }
        for (index, interval) in (other.first..).zip(&other.intervals) {
            let index = self.make_room(index * other.width_ns);
            self.intervals[index].add(interval);
        }
        self.last_from_ns = u64::MAX;
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

    /// The intervals and their width in nanoseconds. The first begins at a multiple of the width,
    /// at or before the first packet.
    pub fn intervals(&self) -> (&[Interval], u64) {
        (&self.intervals, self.width_ns)
    }

    /// When the first interval begins: nanoseconds since 1970.
    pub fn first_from_ns(&self) -> u64 {
        self.first * self.width_ns
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
    /// The goal: what two pipelines saw adds up to what one would have seen, whoever began first.
    #[test]
    fn merges() {
        let start = 1_700_000_000_123_456_789u64;
        let (mut one, mut halves) = (Rates::default(), [Rates::default(), Rates::default()]);
        for i in 0..5000u64 {
            // The second half begins late and ends early.
            let half = usize::from(i % 3 == 1 && (500..4000).contains(&i));
            for rates in [&mut one, &mut halves[half]] {
                rates.on_packet(start + i * 7_000_000, 100);
            }
        }
        let [mut a, mut b] = halves;
        b.merge(&a);
        assert_eq!((b.intervals(), b.first_from_ns()), (one.intervals(), one.first_from_ns()));
        assert_eq!((b.start_ns(), b.duration_s()), (one.start_ns(), one.duration_s()));
        a.merge(&Rates::default());
        assert_eq!(a.start_ns(), start);
    }
}
