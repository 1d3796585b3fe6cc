//! Estimates how far another host's clock is ahead of ours, as an interval, from request/reply rounds.
//!
//! A round has four times: on our clock, when the request is sent and when its reply arrives; on the other host's
//! clock, when the request is received and when the reply is sent. The request cannot be received before it was sent,
//! and the reply cannot arrive before it was sent, so
//!
//! ```text
//! answered - back  <=  offset  <=  heard - sent        (offset = their clock - ours)
//! ```
//!
//! however long each direction took (Cristian 1989, without the host's processing time). On a link with different
//! delays in each direction, the true offset differs from the middle by at most half the round trip, but it is still
//! in the interval. No measurement from the two ends can do better: the error due to asymmetry can be as large as
//! half the round trip.
//!
//! Clocks run at different rates, so a bound becomes less certain with age. [`ClockTrack::estimate`] considers all
//! straight lines that pass between all bounds; the range of these lines at a given time is the estimate. It assumes
//! that the rate of one clock relative to the other stays within [`RATE_WANDER`] of a constant. If no line fits (one of
//! the clocks is being slewed), it assumes only [`RATE_MAX`], and reports that; if even that fails, a clock was set,
//! and there is no estimate.
//!
//! The rule: no clock is read here, and a peer's times are not trusted to make sense.

use std::time::Duration;

use brunt_core::Nanos;

/// How far the rate of one clock relative to another is assumed to deviate from its mean. Quartz changes by about 1
/// ppm over a range of 10 K.
pub const RATE_WANDER: f64 = 1e-6;
/// The largest difference between the rates of two clocks: each is at most 500 ppm off, the kernel's limit for NTP.
pub const RATE_MAX: f64 = 1e-3;
/// No two clocks differ by more than a century, so sums of two such offsets don't overflow.
const OFFSET_MAX: i64 = i64::MAX / 3;
/// Maximum number of bounds kept per side; when full, the one with the longer round trip is dropped from each pair of
/// neighbours.
const BOUNDS_MAX: usize = 256;
/// Older bounds are dropped: a clock's rate changes with its temperature, and no straight line fits a whole day.
const WINDOW: Duration = Duration::from_secs(600);
/// Steps of a search along a concave function. Each narrows the range to two thirds, and 80 of them narrow 2000 ppm to
/// 2e-17: a nanosecond in a year.
const SEARCH_STEPS: usize = 80;

/// Converts a time to the time on a clock that is `ahead_ns` ahead.
pub(crate) fn moved(at: Nanos, ahead_ns: i64) -> Nanos {
    Nanos(at.0.saturating_add_signed(ahead_ns))
}

/// A request and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockRound {
    /// When the request was sent, on our clock: read just before.
    pub sent: Nanos,
    /// When the request was received, on the host's clock.
    pub heard: Nanos,
    /// When the reply was sent, on the host's clock: read just before.
    pub answered: Nanos,
    /// When the reply arrived, on our clock.
    pub back: Nanos,
}

impl ClockRound {
    /// The time spent in transit, in both directions together.
    pub fn round_trip(&self) -> Duration {
        self.back
            .since(self.sent)
            .saturating_sub(self.answered.since(self.heard))
    }
}

/// Why a round is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClockError {
    /// The reply precedes its request, or the times are otherwise impossible.
    #[error("a host's clock reported impossible times: received at {} ns, answered at {} ns", .0.heard.0, .0.answered.0)]
    Impossible(ClockRound),
}

/// The range of how far a clock is ahead of ours, in nanoseconds; negative if it is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// Minimum.
    pub low: i64,
    /// Maximum.
    pub high: i64,
}

impl ClockOffset {
    /// The best estimate.
    pub fn middle(&self) -> i64 {
        self.low + (self.high - self.low) / 2
    }

    /// The largest possible distance of the true offset from the middle.
    pub fn error(&self) -> Duration {
        Duration::from_nanos((self.high.abs_diff(self.low)).div_ceil(2))
    }

    /// Whether the true offset could be `offset`.
    pub fn contains(&self, offset: i64) -> bool {
        (self.low..=self.high).contains(&offset)
    }

    /// Converts a time on the other clock to ours, using the middle.
    pub fn to_ours(&self, theirs: Nanos) -> Nanos {
        moved(theirs, self.middle().saturating_neg())
    }

    /// Converts a time on our clock to the other, using the middle.
    pub fn to_theirs(&self, ours: Nanos) -> Nanos {
        moved(ours, self.middle())
    }
}

/// The assumption that an estimate relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateModel {
    /// The two clocks drifted apart at a constant rate, within [`RATE_WANDER`].
    Constant,
    /// The rate changed by more than that: a clock was slewed. Only [`RATE_MAX`] is assumed.
    Changing,
}

/// How far a clock is ahead of ours at a given time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockEstimate {
    /// The time on our clock.
    pub at: Nanos,
    /// How far the other clock is ahead at that time.
    pub offset: ClockOffset,
    /// How much faster the other clock runs, minimum and maximum: nanoseconds gained per nanosecond of ours.
    pub rate: [f64; 2],
    /// The assumption that the estimate relies on.
    pub model: RateModel,
}

impl ClockEstimate {
    /// Converts a time on the other clock to ours, using the middles. Only valid near [`ClockEstimate::at`], as the
    /// rate's uncertainty accumulates.
    pub fn to_ours(&self, theirs: Nanos) -> Nanos {
        let near = self.offset.to_ours(theirs);
        moved(near, self.drifted(near).saturating_neg())
    }

    /// Converts a time on our clock to the other, in the same way.
    pub fn to_theirs(&self, ours: Nanos) -> Nanos {
        moved(self.offset.to_theirs(ours), self.drifted(ours))
    }

    /// How much the other clock has gained on ours by this time on our clock, since [`ClockEstimate::at`].
    fn drifted(&self, ours: Nanos) -> i64 {
        let since = (i128::from(ours.0) - i128::from(self.at.0)) as f64;
        ((self.rate[0] + self.rate[1]) / 2.0 * since) as i64
    }
}

/// A bound on the offset at a given time. Times and offsets are nanoseconds from the track's origin: over a day,
/// their differences are exact in a double.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bound {
    at: f64,
    offset: f64,
    round_trip: Duration,
}

/// The rounds with one host over the last ten minutes. The number of rounds is bounded.
#[derive(Clone, Debug, Default)]
pub struct ClockTrack {
    /// Our time and the offset in the first round.
    origin: Option<(Nanos, i64)>,
    at_least: Vec<Bound>,
    at_most: Vec<Bound>,
    rounds: u64,
    impossible: u64,
    shortest: Option<Duration>,
}

impl ClockTrack {
    /// Adds a round.
    ///
    /// # Errors
    /// The round's times are impossible; it is counted and ignored.
    pub fn add(&mut self, round: ClockRound) -> Result<(), ClockError> {
        let offset = |theirs: Nanos, ours: Nanos| {
            let offset = i128::from(theirs.0) - i128::from(ours.0);
            i64::try_from(offset)
                .ok()
                .filter(|offset| offset.abs() <= OFFSET_MAX)
        };
        let bounds = offset(round.answered, round.back).zip(offset(round.heard, round.sent));
        // The interval is empty: the host claims to have spent more time than the whole round took.
        let Some((low, high)) =
            bounds.filter(|(low, high)| low <= high && round.heard <= round.answered)
        else {
            self.impossible += 1;
            return Err(ClockError::Impossible(round));
        };
        let (origin_at, origin_offset) = *self.origin.get_or_insert((round.sent, high));
        let place = |at: Nanos, offset: i64| Bound {
            at: (i128::from(at.0) - i128::from(origin_at.0)) as f64,
            offset: (offset - origin_offset) as f64,
            round_trip: round.round_trip(),
        };
        keep(&mut self.at_most, place(round.sent, high));
        keep(&mut self.at_least, place(round.back, low));
        self.rounds += 1;
        self.shortest = Some(
            self.shortest
                .map_or(round.round_trip(), |least| least.min(round.round_trip())),
        );
        Ok(())
    }

    /// Number of valid rounds.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Number of rounds with impossible times.
    pub fn impossible(&self) -> u64 {
        self.impossible
    }

    /// The shortest round trip. Half of this is the smallest error of a single round.
    pub fn round_trip_min(&self) -> Option<Duration> {
        self.shortest
    }

    /// How far the clock is ahead of ours at a given time on our clock, which is during the rounds that are kept, or
    /// shortly before or after. `None` if there are no rounds, or if one of the clocks was set in the meantime.
    pub fn estimate(&self, at: Nanos) -> Option<ClockEstimate> {
        let (origin_at, origin_offset) = self.origin?;
        let here = (i128::from(at.0) - i128::from(origin_at.0)) as f64;
        let (offset, rate, model) = match self.lines(here) {
            Some((offset, rate)) => (offset, rate, RateModel::Constant),
            None => (self.cone(here)?, [-RATE_MAX, RATE_MAX], RateModel::Changing),
        };
        // Rounded outwards, so that conversion to whole nanoseconds never narrows the interval.
        let whole = |part: f64| (part as i64).saturating_add(origin_offset);
        let offset = ClockOffset {
            low: whole(offset[0].floor()),
            high: whole(offset[1].ceil()),
        };
        Some(ClockEstimate {
            at,
            offset,
            rate,
            model,
        })
    }

    /// The range of all lines between the bounds at a given time, and the range of their slopes.
    fn lines(&self, here: f64) -> Option<([f64; 2], [f64; 2])> {
        let aged = |bound: &Bound| RATE_WANDER * (bound.at - here).abs();
        // The highest and the lowest line with a given slope at that time: concave and convex functions of the slope.
        let ceiling = |slope: f64| {
            let values = self
                .at_most
                .iter()
                .map(|one| one.offset + aged(one) - slope * (one.at - here));
            values.fold(f64::INFINITY, f64::min)
        };
        let floor = |slope: f64| {
            let values = self
                .at_least
                .iter()
                .map(|one| one.offset - aged(one) - slope * (one.at - here));
            values.fold(f64::NEG_INFINITY, f64::max)
        };
        let room = |slope: f64| ceiling(slope) - floor(slope);
        let best = highest(room, -RATE_MAX, RATE_MAX);
        if room(best) < 0.0 {
            return None;
        }
        let rate = [edge(room, best, -RATE_MAX), edge(room, best, RATE_MAX)];
        // The search only gets close to its optimum, so the values at `best` count, too.
        let high = ceiling(highest(ceiling, rate[0], rate[1])).max(ceiling(best));
        let low = floor(highest(|slope| -floor(slope), rate[0], rate[1])).min(floor(best));
        Some(([low, high], rate))
    }

    /// The range that all bounds allow at a given time if only [`RATE_MAX`] holds.
    fn cone(&self, here: f64) -> Option<[f64; 2]> {
        let aged = |bound: &Bound| RATE_MAX * (bound.at - here).abs();
        let high = self
            .at_most
            .iter()
            .map(|one| one.offset + aged(one))
            .fold(f64::INFINITY, f64::min);
        let low = self
            .at_least
            .iter()
            .map(|one| one.offset - aged(one))
            .fold(f64::NEG_INFINITY, f64::max);
        (low <= high).then_some([low, high])
    }
}

/// Adds a bound, and drops bounds that are too old; when full, keeps the one with the shorter round trip from each
/// pair of neighbours.
fn keep(bounds: &mut Vec<Bound>, bound: Bound) {
    let oldest = bound.at - WINDOW.as_nanos() as f64;
    bounds.retain(|one| one.at >= oldest);
    if bounds.len() == BOUNDS_MAX {
        let pairs = bounds.chunks(2).map(|pair| match pair {
            [one, other] if other.round_trip < one.round_trip => *other,
            _ => pair[0],
        });
        *bounds = pairs.collect();
    }
    bounds.push(bound);
}

/// The maximum of a concave function between two points.
fn highest(function: impl Fn(f64) -> f64, mut from: f64, mut to: f64) -> f64 {
    for _ in 0..SEARCH_STEPS {
        let third = (to - from) / 3.0;
        let (left, right) = (from + third, to - third);
        if function(left) < function(right) {
            from = left
        } else {
            to = right
        }
    }
    (from + to) / 2.0
}

/// The point on the way from `inside` to `outside` where a concave function that is not negative at `inside` becomes
/// negative; `outside` if it stays non-negative.
fn edge(function: impl Fn(f64) -> f64, mut inside: f64, mut outside: f64) -> f64 {
    if function(outside) >= 0.0 {
        return outside;
    }
    for _ in 0..SEARCH_STEPS {
        let middle = (inside + outside) / 2.0;
        if function(middle) >= 0.0 {
            inside = middle
        } else {
            outside = middle
        }
    }
    outside
}

#[cfg(test)]
mod tests;
