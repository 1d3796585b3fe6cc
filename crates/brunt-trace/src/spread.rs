//! Counts requests over the time of a trace, and by size. Used by [`crate::info`].
//!
//! The rule: memory does not grow with the trace; intervals become longer, not more numerous, and
//! sizes are counted by powers of two.

use serde::Serialize;

use crate::record::{BlockRequest, TraceOp};

/// Maximum number of intervals; above it, their length doubles.
const STRETCHES_MAX: usize = 512;
/// The initial length of an interval.
const LENGTH_NS: u64 = 1_000_000;

/// The requests in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Stretch {
    /// Start of the interval, in seconds after the first request.
    pub from_s: f64,
    /// Length of the interval.
    pub for_s: f64,
    /// All requests.
    pub requests: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

/// Reads and writes in one class of sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SizeClass {
    /// The smallest size of the class, which includes sizes up to less than twice this; 0 is a separate class.
    pub from_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// Counts requests by time, in any order.
pub struct Stretches {
    length_ns: u64,
    /// Requests, bytes read and bytes written, by interval.
    counts: Vec<[u64; 3]>,
}

impl Default for Stretches {
    fn default() -> Stretches {
        Stretches {
            length_ns: LENGTH_NS,
            counts: Vec::new(),
        }
    }
}

impl Stretches {
    /// Adds a request, by its time since the first one.
    pub fn add(&mut self, since_ns: u64, request: &BlockRequest) {
        while since_ns / self.length_ns >= STRETCHES_MAX as u64 {
            self.lengthen();
        }
        let index = (since_ns / self.length_ns) as usize;
        if self.counts.len() <= index {
            self.counts.resize(index + 1, [0; 3]);
        }
        let [requests, read, written] = &mut self.counts[index];
        *requests += 1;
        match request.op {
            TraceOp::Read => *read += u64::from(request.len_bytes),
            TraceOp::Write => *written += u64::from(request.len_bytes),
            TraceOp::Flush | TraceOp::Unmap | TraceOp::Other => {}
        }
    }

    #[cold]
    fn lengthen(&mut self) {
        self.length_ns = self.length_ns.saturating_mul(2);
        let half = self.counts.len().div_ceil(2);
        for at in 0..half {
            let second = self.counts.get(at * 2 + 1).copied().unwrap_or_default();
            let first = self.counts[at * 2];
            self.counts[at] = [0, 1, 2].map(|what| first[what] + second[what]);
        }
        self.counts.truncate(half);
    }

    /// All intervals, including empty ones.
    pub fn finish(&self) -> Vec<Stretch> {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let stretch = |(index, [requests, read_bytes, write_bytes]): (usize, &[u64; 3])| Stretch {
            from_s: seconds(self.length_ns) * index as f64,
            for_s: seconds(self.length_ns),
            requests: *requests,
            read_bytes: *read_bytes,
            write_bytes: *write_bytes,
        };
        self.counts.iter().enumerate().map(stretch).collect()
    }
}

/// Counts reads and writes by size.
pub struct SizeClasses {
    /// Reads and writes: first those of zero bytes, then by power of two of their size.
    counts: [[u64; 2]; 33],
}

impl Default for SizeClasses {
    fn default() -> SizeClasses {
        SizeClasses {
            counts: [[0; 2]; 33],
        }
    }
}

impl SizeClasses {
    /// Adds a read or a write.
    #[inline]
    pub fn add(&mut self, request: &BlockRequest) {
        let class = request
            .len_bytes
            .checked_ilog2()
            .map_or(0, |power| power as usize + 1);
        self.counts[class][usize::from(request.op == TraceOp::Write)] += 1;
    }

    /// The classes from the smallest to the largest non-empty one.
    pub fn finish(&self) -> Vec<SizeClass> {
        let some = |counts: &[u64; 2]| counts[0] + counts[1] > 0;
        let Some(first) = self.counts.iter().position(some) else {
            return Vec::new();
        };
        let last = self.counts.iter().rposition(some).unwrap_or(first);
        let class = |index: usize| {
            let [reads, writes] = self.counts[index];
            SizeClass {
                from_bytes: if index == 0 { 0 } else { 1 << (index - 1) },
                reads,
                writes,
            }
        };
        (first..=last).map(class).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(op: TraceOp, len_bytes: u32) -> BlockRequest {
        BlockRequest::new(0, 0, op, 0, len_bytes)
    }

    #[test]
    fn intervals_grow_longer_and_lose_nothing() {
        let mut stretches = Stretches::default();
        for second in 0..1000u64 {
            let op = if second.is_multiple_of(4) {
                TraceOp::Read
            } else {
                TraceOp::Write
            };
            stretches.add(second * 1_000_000_000, &request(op, 512));
        }
        stretches.add(0, &request(TraceOp::Flush, 0));
        let all = stretches.finish();
        assert!(
            (STRETCHES_MAX / 2..=STRETCHES_MAX).contains(&all.len()),
            "{}",
            all.len()
        );
        let sum = |get: fn(&Stretch) -> u64| all.iter().map(get).sum::<u64>();
        assert_eq!(sum(|stretch| stretch.requests), 1001);
        assert_eq!(
            (sum(|s| s.read_bytes), sum(|s| s.write_bytes)),
            (250 * 512, 750 * 512)
        );
        assert!(
            all.windows(2)
                .all(|pair| (pair[0].from_s + pair[0].for_s - pair[1].from_s).abs() < 1e-6)
        );
        let mut far = Stretches::default();
        far.add(u64::MAX, &request(TraceOp::Read, 1));
        assert_eq!(
            far.finish()
                .iter()
                .map(|stretch| stretch.requests)
                .sum::<u64>(),
            1
        );
    }

    #[test]
    fn sizes_are_counted_by_powers_of_two() {
        let mut classes = SizeClasses::default();
        assert_eq!(classes.finish(), []);
        for (op, bytes) in [
            (TraceOp::Read, 4096),
            (TraceOp::Write, 8191),
            (TraceOp::Write, 16384),
        ] {
            classes.add(&request(op, bytes));
        }
        let class = |from_bytes, reads, writes| SizeClass {
            from_bytes,
            reads,
            writes,
        };
        assert_eq!(
            classes.finish(),
            [class(4096, 1, 1), class(8192, 0, 0), class(16384, 0, 1)]
        );
        classes.add(&request(TraceOp::Read, 0));
        classes.add(&request(TraceOp::Read, u32::MAX));
        let all = classes.finish();
        assert_eq!(
            (all[0], all[all.len() - 1]),
            (class(0, 1, 0), class(1 << 31, 1, 0))
        );
    }
}
