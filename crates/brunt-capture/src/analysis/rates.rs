//! Rates over time. The interval width doubles as the capture grows, so there are at most 512 intervals.

use serde::{Deserialize, Serialize};

use super::analyse::Analyse;
use super::event::OperationEvent;
use crate::operation::TransferDirection;

const INTERVALS_MAX: usize = 512;
const WIDTH_NS_MIN: u64 = 10_000_000;

/// The counts of one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateInterval {
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

impl RateInterval {
    fn add(&mut self, other: &RateInterval) {
        self.wire_bytes += other.wire_bytes;
        self.operations += other.operations;
        self.read_bytes += other.read_bytes;
        self.write_bytes += other.write_bytes;
        self.errors += other.errors;
    }
}

/// All intervals. Intervals begin at multiples of their width since 1970, so that those of several pipelines can be
/// added.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Rates {
    /// The first and the last time seen; as long as there is none, `start_ns` is greater than `end_ns`.
    start_ns: u64,
    end_ns: u64,
    width_ns: u64,
    /// Start of the first interval, as a multiple of the width.
    first: u64,
    intervals: Vec<RateInterval>,
    /// The interval accessed last and its start: saves a division, since consecutive times are close together.
    last: usize,
    last_from_ns: u64,
    /// Requests sent before this time count at this time.
    floor_ns: u64,
}

impl Default for Rates {
    fn default() -> Rates {
        Rates {
            start_ns: u64::MAX,
            end_ns: 0,
            width_ns: WIDTH_NS_MIN,
            first: 0,
            intervals: Vec::new(),
            last: 0,
            last_from_ns: u64::MAX,
            floor_ns: 0,
        }
    }
}

/// The serialized form: intervals from the first to the last non-empty one.
#[derive(Serialize, Deserialize)]
struct Stored {
    start_ns: u64,
    end_ns: u64,
    width_ns: u64,
    first: u64,
    intervals: Vec<RateInterval>,
}

impl From<Rates> for Stored {
    fn from(rates: Rates) -> Stored {
        let Rates {
            start_ns,
            end_ns,
            width_ns,
            first,
            mut intervals,
            ..
        } = rates;
        let is_empty = |interval: &RateInterval| *interval == RateInterval::default();
        intervals.truncate(
            intervals
                .iter()
                .rposition(|interval| !is_empty(interval))
                .map_or(0, |at| at + 1),
        );
        let before = intervals
            .iter()
            .take_while(|interval| is_empty(interval))
            .count();
        intervals.drain(..before);
        Stored {
            start_ns,
            end_ns,
            width_ns,
            first: first + before as u64,
            intervals,
        }
    }
}

/// Stored rates with too many intervals, or with an impossible width or time.
#[derive(Debug, thiserror::Error)]
#[error("invalid intervals of rates")]
struct StoredRatesError;

impl TryFrom<Stored> for Rates {
    type Error = StoredRatesError;

    fn try_from(stored: Stored) -> Result<Rates, StoredRatesError> {
        let Stored {
            start_ns,
            end_ns,
            width_ns,
            first,
            intervals,
        } = stored;
        let last_from = first
            .checked_add(intervals.len().saturating_sub(1) as u64)
            .and_then(|last| last.checked_mul(width_ns));
        let is_doubled =
            width_ns.is_multiple_of(WIDTH_NS_MIN) && (width_ns / WIDTH_NS_MIN).is_power_of_two();
        if intervals.len() > INTERVALS_MAX || !is_doubled || last_from.is_none() {
            return Err(StoredRatesError);
        }
        Ok(Rates {
            start_ns,
            end_ns,
            width_ns,
            first,
            intervals,
            ..Rates::default()
        })
    }
}

impl Rates {
    #[inline]
    fn at(&mut self, time_ns: u64) -> &mut RateInterval {
        if time_ns.wrapping_sub(self.last_from_ns) < self.width_ns && self.last_from_ns != u64::MAX
        {
            return &mut self.intervals[self.last];
        }
        self.find(time_ns)
    }

    #[cold]
    fn find(&mut self, time_ns: u64) -> &mut RateInterval {
        let index = self.make_room(time_ns);
        self.last = index;
        self.last_from_ns = (self.first + index as u64) * self.width_ns;
        &mut self.intervals[index]
    }

    /// The index of the interval that contains a time; if it is missing, adds it and all intervals between it and the
    /// existing ones.
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
            // Packets of several interfaces may be slightly earlier than the first packet.
            let before = (self.first - first) as usize;
            self.intervals
                .splice(0..0, std::iter::repeat_n(RateInterval::default(), before));
            self.first = first;
            self.intervals
                .resize((end - first) as usize, RateInterval::default());
            return (at - first) as usize;
        }
    }

    /// Merges pairs of intervals.
    fn fold(&mut self) {
        if !self.first.is_multiple_of(2) {
            self.first -= 1;
            self.intervals.insert(0, RateInterval::default());
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

    #[inline]
    fn reach(&mut self, time_ns: u64) {
        self.start_ns = self.start_ns.min(time_ns);
        self.end_ns = self.end_ns.max(time_ns);
    }

    /// Counts requests sent before `from_ns` at `from_ns`.
    pub(super) fn begin_at(&mut self, from_ns: u64) {
        self.floor_ns = from_ns;
    }

    /// Includes the time from `from_ns` to `until_ns`, even if nothing happened then.
    pub(super) fn cover(&mut self, from_ns: u64, until_ns: u64) {
        if from_ns < until_ns {
            self.at(from_ns);
            self.at(until_ns - 1);
            self.reach(from_ns);
            self.reach(until_ns);
        }
    }

    /// Time from the first packet or call to the last, in seconds.
    pub fn duration_s(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }

    /// Whether there are timestamps: in a file without them, all times are zero.
    pub fn is_timed(&self) -> bool {
        self.intervals.is_empty() || self.end_ns > 0
    }

    /// When the first packet or call was seen: nanoseconds since 1970.
    pub fn start_ns(&self) -> u64 {
        if self.intervals.is_empty() {
            0
        } else {
            self.start_ns
        }
    }

    /// The last time seen: nanoseconds since 1970.
    pub(super) fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Bytes read and written.
    pub fn data_bytes(&self) -> [u64; 2] {
        self.intervals.iter().fold([0; 2], |[read, written], of| {
            [read + of.read_bytes, written + of.write_bytes]
        })
    }

    /// The intervals: start and end, in nanoseconds since 1970, and counts. The first interval starts with the first
    /// packet, the last ends with the last packet; those between have equal lengths.
    pub fn intervals(&self) -> impl Iterator<Item = (u64, u64, RateInterval)> {
        // The end of the last interval may overflow.
        let ends = (self.first + 1..).map(|index| index.saturating_mul(self.width_ns));
        let mut count = self.intervals.len();
        // An interval that begins with the last packet has no length and therefore no rate; its counts are added to
        // the previous interval.
        let mut rest = None;
        if count > 1 && (self.first + count as u64 - 1) * self.width_ns == self.end_ns {
            count -= 1;
            rest = Some(self.intervals[count]);
        }
        self.intervals[..count].iter().zip(ends).enumerate().map(
            move |(index, (interval, until))| {
                let (mut interval, from) = (*interval, until - self.width_ns);
                if index + 1 == count {
                    rest.inspect(|rest| interval.add(rest));
                }
                (from.max(self.start_ns), until.min(self.end_ns), interval)
            },
        )
    }
}

impl Analyse for Rates {
    const HELP: &'static str = "rates over time";
    const SQL: Option<&'static str> = Some(include_str!("../../sql/rates.sql"));

    #[inline]
    fn on_packet(&mut self, time_ns: u64, wire_len: u32) {
        self.reach(time_ns);
        self.at(time_ns).wire_bytes += u64::from(wire_len);
    }

    #[inline]
    fn on_event(&mut self, event: &OperationEvent, _: usize) {
        // If a trace's packets were deleted, its calls determine the duration.
        let time_ns = event.time_ns.max(self.floor_ns);
        self.reach(time_ns);
        let interval = self.at(time_ns);
        interval.operations += 1;
        interval.errors += u64::from(event.error.is_some());
        match event.transfer() {
            Some(TransferDirection::Read) => interval.read_bytes += u64::from(event.bytes),
            Some(TransferDirection::Write) => interval.write_bytes += u64::from(event.bytes),
            None => {}
        }
    }

    fn merge(&mut self, other: Rates) {
        if other.intervals.is_empty() {
            return;
        }
        self.start_ns = self.start_ns.min(other.start_ns);
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long captures lose no counts, and the table stays small.
    #[test]
    fn long_captures_keep_the_table_small_and_lose_nothing() {
        let mut rates = Rates::default();
        for second in 0..100_000u64 {
            rates.on_packet(second * 1_000_000_000, 100);
        }
        assert!(rates.intervals.len() <= INTERVALS_MAX && rates.width_ns > WIDTH_NS_MIN);
        assert_eq!(
            rates.intervals().map(|(.., i)| i.wire_bytes).sum::<u64>(),
            10_000_000
        );
        assert_eq!(rates.duration_s(), 99_999.0);
    }

    /// A steady stream has the same rate in every interval, including the first and the last, regardless of its start
    /// time and the order of its packets; with a single packet, the interval has no length.
    #[test]
    fn a_steady_stream_has_the_same_rate_up_to_both_ends() {
        const SPACING_NS: u64 = 1_000_000;
        for (start, count, backwards) in [
            (1_700_000_000_000_000_000, 5000, false),
            // Ends at the start of an interval; its first 4 packets lie before the first boundary.
            (1_700_000_000_006_000_000, 105, false),
            (1_700_000_000_123_456_789, 100_000, false),
            (1_700_000_000_123_456_789, 100_000, true),
            (1_700_000_000_123_456_789, 1, false),
        ] {
            let mut rates = Rates::default();
            for i in 0..count {
                let i = if backwards { count - 1 - i } else { i };
                rates.on_packet(start + i * SPACING_NS, 100);
            }
            let end = start + (count - 1) * SPACING_NS;
            let rows: Vec<_> = rates.intervals().collect();
            assert_eq!((rows[0].0, rows[rows.len() - 1].1), (start, end));
            assert!(
                rows.windows(2).all(|pair| pair[0].1 == pair[1].0),
                "no gap, nothing twice"
            );
            assert_eq!(
                rows.iter().map(|(.., i)| i.wire_bytes).sum::<u64>(),
                count * 100
            );
            for (from, until, interval) in rows {
                let expected = (until - from) as f64 / SPACING_NS as f64 * 100.0;
                // Tolerance of one packet: an interval may include a packet at each of its ends.
                assert!(
                    (interval.wire_bytes as f64 - expected).abs() <= 100.0,
                    "{interval:?}, {expected}"
                );
                assert!(until > from || count == 1);
            }
        }
    }

    /// Times may be as far apart as their type allows, even in a saved trace.
    #[test]
    fn the_largest_times_do_not_overflow() {
        for first in [0, 1_400_000_000_000_000_000, i64::MAX as u64] {
            let mut rates = Rates::default();
            for time in [first, i64::MAX as u64] {
                rates.on_packet(time, 100);
            }
            let read = Rates::try_from(Stored::from(rates.clone())).unwrap();
            for rates in [rates, read] {
                let rows: Vec<_> = rates.intervals().collect();
                assert_eq!(rows.iter().map(|(.., i)| i.wire_bytes).sum::<u64>(), 200);
                assert_eq!(
                    (rows[0].0, rows[rows.len() - 1].1),
                    (first, i64::MAX as u64)
                );
            }
        }
    }

    /// The states of two pipelines add up to that of a single pipeline, whichever of them began first.
    #[test]
    fn merged_rates_equal_those_of_one_pipeline() {
        let start = 1_700_000_000_123_456_789u64;
        let (mut one, mut halves) = (Rates::default(), [Rates::default(), Rates::default()]);
        for i in 0..5000u64 {
            // The second pipeline's packets begin later and end earlier than the first pipeline's.
            let half = usize::from(i % 3 == 1 && (500..4000).contains(&i));
            for rates in [&mut one, &mut halves[half]] {
                rates.on_packet(start + i * 7_000_000, 100);
            }
        }
        let [mut a, mut b] = halves;
        b.merge(a.clone());
        assert!(b.intervals().eq(one.intervals()));
        assert_eq!(
            (b.start_ns(), b.duration_s()),
            (one.start_ns(), one.duration_s())
        );
        a.merge(Rates::default());
        assert_eq!(a.start_ns(), start);
    }
}
