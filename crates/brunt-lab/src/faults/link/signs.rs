//! Determines which effects a change in a link's settings must have on probe packets, and how many packets are needed
//! to see them: impairments that increase, those not seen yet, and those still seen from settings that have ended.
//!
//! Used by [`super::check`]. Nothing here sends or waits. The rule: an effect that probe packets cannot be expected to
//! show is never reported as checked.

use std::fmt;
use std::time::Duration;

use brunt_core::Span;

use super::probe::Seen;
use crate::link::Settings;

/// An impairment must be seen within this many times the number of packets on which it is expected once: it is missed
/// with a probability of 10^-5.
pub(super) const EXPECTED: f64 = 11.5;
/// The absence of an impairment is checked on this many times the number of packets on which it is expected once.
/// Fewer than half of the expected occurrences means that it is gone: a Poisson variable with mean 20 is 10 or less
/// once in a hundred times.
pub(super) const EXPECTED_GONE: f64 = 20.0;
/// An impairment expected less often than this over the maximum number of packets is not checked.
pub(super) const EXPECTED_LEAST: f64 = 5.0;
/// Maximum and minimum packets per probe.
pub(super) const PACKETS_MAX: u64 = 60_000;
pub(in super::super) const PACKETS_MIN: u64 = 256;
/// Minimum number of packets to show a delay.
pub(in super::super) const TIMED_MIN: usize = 16;
/// Spread of packets, in nanoseconds, that occurs without jitter on a busy machine.
const JITTER_LEAST: f64 = 500e3;
/// Lateness that occurs without a delay on a busy machine.
pub(super) const LATE: Duration = Duration::from_millis(150);

/// An impairment of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Trouble {
    Loss,
    LossOfAll,
    Damage,
    Mark,
    Duplicate,
    Overtaken,
    Delay,
    Jitter,
    SlowLine,
    /// Packets are missing although none should be lost.
    Missing,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Trouble::Loss => "loss",
            Trouble::LossOfAll => "loss of all packets",
            Trouble::Damage => "damaged packet",
            Trouble::Mark => "packet marked with congestion",
            Trouble::Duplicate => "duplicated packet",
            Trouble::Overtaken => "reordered packet",
            Trouble::Delay => "delay",
            Trouble::Jitter => "jitter",
            Trouble::SlowLine => "slow line",
            Trouble::Missing => "missing packets",
        })
    }
}

impl Trouble {
    /// The setting that causes the impairment, if it affects a share of packets.
    fn key(self) -> Option<&'static str> {
        match self {
            Trouble::Loss => Some("loss"),
            Trouble::Damage => Some("corrupt"),
            Trouble::Mark => Some("ecn"),
            Trouble::Duplicate => Some("duplicate"),
            Trouble::Overtaken => Some("reorder"),
            _ => None,
        }
    }
}

/// The new rate of a line that becomes slower; `None` if it doesn't, or if all packets are lost, so that none can
/// show the rate.
pub(super) fn slower(before: &Settings, during: &Settings) -> Option<u64> {
    let arrives = during.loss_share() < 1.0;
    arrives
        .then(|| during.rate_bits())
        .flatten()
        .filter(|rate| before.rate_bits().is_none_or(|before| *rate < before))
}

/// Maximum travel time: a packet doesn't arrive after this.
pub(crate) fn longest(settings: &Settings) -> Duration {
    let queued = settings.rate_bits().map_or(0.0, |rate| {
        settings.queue_bytes() as f64 * 8.0 / rate as f64
    });
    let held = if settings.reorder > 0.0 {
        settings.reorder_by.0
    } else {
        Duration::ZERO
    };
    // At most 2 s are allowed for the queue, which a load may keep full.
    settings.delay.0
        + settings.jitter.0 * 4
        + held
        + LATE
        + Duration::from_secs_f64(queued.min(2.0))
}

/// Minimum travel time.
pub(super) fn shortest(settings: &Settings) -> Duration {
    // The values of a table end at four times the jitter.
    let early = if settings.distribution.is_some() {
        4
    } else {
        1
    };
    settings.delay.0.saturating_sub(settings.jitter.0 * early)
}

/// Whether packets are delayed longer during the change than before.
pub(super) fn later(before: &Settings, during: &Settings) -> bool {
    during.delay.0 > before.delay.0 && during.loss_share() < 1.0
}

/// Maximum travel time, in nanoseconds, of this share of the packets.
fn quantile(settings: &Settings, share: f64) -> f64 {
    let table = settings
        .distribution
        .as_ref()
        .and_then(|named| named.table());
    let jitters = table.map_or(2.0 * share - 1.0, |table| table.quantile(share));
    (settings.delay.0.as_nanos() as f64 + jitters * settings.jitter.0.as_nanos() as f64).max(0.0)
}

/// The share of packets whose travel time is used to judge a delay: half, unless the middle of the distribution is a
/// gap. In that case, the median of a sample may lie on either side of the gap, so the middle of the slower peak is
/// used.
fn judged(during: &Settings) -> f64 {
    let apart = |from, to| quantile(during, to) - quantile(during, from);
    if apart(0.4, 0.6) * 2.0 > apart(0.1, 0.9) {
        0.8
    } else {
        0.5
    }
}

/// The travel time, in nanoseconds, of the [`judged`] share of packets. If that share is above half, slightly less of
/// it: where a peak begins just below the share, a sample with fewer packets than expected would miss the peak.
fn typical(settings: &Settings, share: f64) -> f64 {
    if share > 0.5 {
        quantile(settings, share - 0.1)
    } else {
        quantile(settings, share)
    }
}

/// The jitter, in nanoseconds, of a uniform distribution whose middle 80 % have the same spread.
fn jitter(settings: &Settings) -> f64 {
    let table = settings
        .distribution
        .as_ref()
        .and_then(|named| named.table());
    let apart = table.map_or(1.0, |table| {
        (table.quantile(0.9) - table.quantile(0.1)) / 1.6
    });
    apart * settings.jitter.0.as_nanos() as f64
}

/// The spread that packets must stay below beforehand so that more jitter can be recognized; `None` if jitter doesn't
/// increase.
pub(super) fn more_jitter(before: &Settings, during: &Settings) -> Option<Duration> {
    (jitter(during) > jitter(before))
        .then(|| Duration::from_nanos((jitter(before) + jitter(during) / 4.0) as u64))
}

/// The midpoint between two delays in nanoseconds, as the threshold that separates them.
pub(super) fn between(before: &Settings, during: &Settings) -> f64 {
    let share = judged(during);
    f64::midpoint(typical(during, share), quantile(before, share))
}

/// Whether any impairment that probe packets can show increases.
pub(super) fn adds(before: &Settings, during: &Settings) -> bool {
    let more = shares(before, during)
        .iter()
        .any(|share| share.during > share.before);
    let times = during.delay.0 > before.delay.0 || jitter(during) > jitter(before);
    more || times || slower(before, during).is_some()
}

/// An impairment that affects a share of packets, and the rate of its independent occurrences.
struct Share {
    what: Trouble,
    before: f64,
    during: f64,
    /// Independent occurrences per packet; the losses of a burst count as one.
    events: f64,
}

impl Share {
    /// The number of packets on which a new impairment is expected `times` times. If an existing impairment
    /// increases: the number of packets for which the counts before and during differ so much that their midpoint is
    /// 4.3 standard deviations from both.
    fn packets(&self, times: f64) -> f64 {
        let Share {
            before,
            during,
            events,
            ..
        } = *self;
        if before == 0.0 {
            return times / events;
        }
        let clumped = during / events;
        4.0 * 4.3f64.powi(2) * during * clumped / (during - before).powi(2)
    }

    /// The smallest share that the maximum number of packets would show, all else unchanged.
    fn least_that_shows(&self) -> f64 {
        let most = PACKETS_MAX as f64;
        if self.before == 0.0 {
            return (self.during * self.packets(EXPECTED_LEAST) / most).min(1.0);
        }
        let clumps = self.during / self.events;
        let mut during = self.during;
        while during < 1.0
            && (Share {
                during,
                events: during / clumps,
                ..*self
            })
            .packets(EXPECTED_LEAST)
                > most
        {
            during = (self.before + (during - self.before) * 1.5).min(1.0);
        }
        during
    }

    /// Whether `hit` of `known` packets are more than the previous share explains.
    fn shows(&self, hit: u64, known: u64, packets: u64) -> bool {
        match self.before == 0.0 {
            true => hit > 0,
            false => {
                known >= packets
                    && hit as f64 > f64::midpoint(self.before, self.during) * known as f64
            }
        }
    }
}

fn shares(before: &Settings, during: &Settings) -> [Share; 5] {
    let share = |what, before: f64, during: f64| Share {
        what,
        before,
        during,
        events: during,
    };
    let lost = Share {
        events: during.loss_model().events(),
        ..share(Trouble::Loss, before.loss_share(), during.loss_share())
    };
    [
        lost,
        share(Trouble::Damage, before.corrupt, during.corrupt),
        share(Trouble::Mark, before.ecn, during.ecn),
        share(Trouble::Duplicate, before.duplicate, during.duplicate),
        share(Trouble::Overtaken, before.reorder, during.reorder),
    ]
}

/// Number of packets affected by each of [`shares`].
fn hits(seen: &Seen) -> [u64; 5] {
    [
        seen.missing,
        seen.damaged,
        seen.marked,
        seen.twice,
        seen.overtaken,
    ]
}

/// The number of packets needed to see every impairment that increases; see [`Share::packets`].
pub(super) fn packets(before: &Settings, during: &Settings, times: f64) -> u64 {
    let all = shares(before, during);
    let more = all.iter().filter(|share| share.during > share.before);
    more.map(|share| share.packets(times) as u64)
        .fold(PACKETS_MIN, u64::max)
}

/// Describes the impairment that needs the most packets, and a value that could be seen instead.
pub(super) fn hardest(before: &Settings, during: &Settings) -> (String, String) {
    let all = shares(before, during);
    let more = all.iter().filter(|share| share.during > share.before);
    let most = more.max_by(|a, b| a.packets(EXPECTED).total_cmp(&b.packets(EXPECTED)));
    let Some(share) = most else {
        return Default::default();
    };
    let what = match share.before {
        0.0 => format!("{} with a probability of {}", share.what, share.during),
        before => format!(
            "{} with a probability of {} instead of {before}",
            share.what, share.during
        ),
    };
    let least = two_digits_up(share.least_that_shows());
    let key = share.what.key().unwrap_or("loss");
    // Burst losses have no single setting for their share.
    let instead = match during.loss_bursts {
        Some(_) if key == "loss" => format!("write loss_bursts with a share of {least} or more"),
        _ => format!("write {key} = {least} or more"),
    };
    (what, instead)
}

/// Suggests settings twice as large for impairments that were set but not seen; empty if there are none.
pub(super) fn plainer(absent: &[Trouble], during: &Settings) -> String {
    let shares = shares(during, during);
    let written = |trouble: &Trouble| match trouble {
        Trouble::Delay => Some(format!("delay = \"{}\"", upwards(during.delay.0 * 2))),
        Trouble::Jitter => Some(format!("jitter = \"{}\"", upwards(during.jitter.0 * 2))),
        _ => {
            let share = shares.iter().find(|share| share.what == *trouble)?;
            Some(format!(
                "{} = {}",
                trouble.key()?,
                two_digits_up((share.during * 2.0).min(1.0))
            ))
        }
    };
    advised(absent.iter().filter_map(written))
}

/// Suggests settings for impairments that are still seen although they have ended: twice what remains. `line` is the
/// rate of the packet trains in bits per second.
pub(super) fn beyond(present: &[Trouble], seen: &Seen, line: Option<f64>) -> String {
    let twice = |nanos: u64| upwards(Duration::from_nanos(nanos) * 2);
    let hits = shares(&Settings::default(), &Settings::default())
        .map(|share| share.what)
        .into_iter()
        .zip(hits(seen));
    let hits: Vec<(Trouble, u64)> = hits.collect();
    let written = |trouble: &Trouble| match trouble {
        Trouble::Delay => Some(format!("delay = \"{}\"", twice(seen.least()?))),
        Trouble::Jitter => Some(format!(
            "jitter = \"{}\"",
            twice(seen.time(0.75)? - seen.time(0.25)?)
        )),
        Trouble::SlowLine => Some(format!("rate = \"{}kb/s\"", (line? / 2e3).max(1.0) as u64)),
        _ => {
            let (_, hit) = hits
                .iter()
                .find(|(what, hit)| what == trouble && *hit > 0)?;
            let share = (*hit as f64 / seen.known.max(1) as f64 * 2.0).min(1.0);
            Some(format!("{} = {}", trouble.key()?, two_digits_up(share)))
        }
    };
    advised(present.iter().filter_map(written))
}

fn advised(settings: impl Iterator<Item = String>) -> String {
    let settings: Vec<String> = settings.collect();
    if settings.is_empty() {
        String::new()
    } else {
        format!("; write {}", settings.join(", "))
    }
}

/// Rounds a time up to two digits, for use in a file.
pub(super) fn upwards(time: Duration) -> Span {
    let nanos = time.as_nanos().max(1) as u64;
    let unit = 10u64.pow(nanos.ilog10().saturating_sub(1));
    Span(Duration::from_nanos(nanos.div_ceil(unit) * unit))
}

/// Rounds a share up to two digits.
fn two_digits_up(share: f64) -> f64 {
    let unit = 10f64.powi(share.log10().floor() as i32 - 1);
    // Rounds up to whole units, ignoring the division's rounding error.
    let units = (share / unit - 1e-9).ceil();
    format!("{:.6}", units * unit).parse().unwrap_or(share)
}

/// Impairments that the settings cause and that have not been seen yet.
pub(super) fn missing(before: &Settings, during: &Settings, seen: &Seen) -> Vec<Trouble> {
    let mut missing = Vec::new();
    if during.loss_share() >= 1.0 {
        // If no packets arrive, no other impairment can be seen.
        return if seen.missing >= PACKETS_MIN && seen.arrived() == 0 {
            missing
        } else {
            vec![Trouble::LossOfAll]
        };
    }
    let timed = seen.arrived() >= TIMED_MIN;
    let time = |share: f64| seen.time(share).map_or(0.0, |time| time as f64);
    let share = judged(during);
    let late = (typical(during, share) * 0.9).max(between(before, during));
    if during.delay.0 > before.delay.0 && !(timed && time(share) >= late) {
        missing.push(Trouble::Delay);
    }
    // Packets that keep their order under jitter are all late rather than spread out.
    let (was, is) = (jitter(before), jitter(during));
    let apart = time(0.9) - time(0.1) >= is / 4.0 || time(0.5) >= quantile(during, 0.5) + is / 2.0;
    if is > was && !(timed && apart) {
        missing.push(Trouble::Jitter);
    }
    // An impairment that doesn't increase proves nothing.
    let needed = packets(before, during, EXPECTED).min(PACKETS_MAX);
    for (share, hit) in shares(before, during).iter().zip(hits(seen)) {
        if share.during > share.before && !share.shows(hit, seen.known, needed) {
            missing.push(share.what);
        }
    }
    missing
}

/// Impairments still seen after their settings ended, over up to `packets` packets.
pub(super) fn still(
    before: &Settings,
    during: &Settings,
    seen: &Seen,
    packets: u64,
) -> Vec<Trouble> {
    let mut still = Vec::new();
    let timed = seen.arrived() >= TIMED_MIN;
    let time = |share: f64| seen.time(share).map_or(0.0, |time| time as f64);
    if during.delay.0 > before.delay.0 && timed && time(0.0) > between(before, during) {
        still.push(Trouble::Delay);
    }
    // The middle half of the packets spreads over about the jitter, for any distribution.
    let apart = f64::midpoint(jitter(before), jitter(during));
    if jitter(during) > jitter(before) && timed && time(0.75) - time(0.25) > apart.max(JITTER_LEAST)
    {
        still.push(Trouble::Jitter);
    }
    // Less than half of the expected number counts as gone.
    for (share, hit) in shares(before, during).iter().zip(hits(seen)) {
        let half = f64::midpoint(share.during, share.before) * packets as f64;
        if share.during > share.before && hit as f64 > half.max(1.0) {
            still.push(share.what);
        }
    }
    still
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use brunt_core::random::Random;
    use brunt_result::void::VoidReason;

    use super::*;
    use crate::link::Distribution;

    /// A delay is detected if and only if there is one, for any shape of its table, even if the middle of the table is
    /// a gap between two peaks and the median of a sample depends on chance.
    #[test]
    fn a_delay_is_seen_whatever_the_shape_of_its_table() {
        let table = |name: &str, values: &str| {
            let table = values.parse().expect("a table");
            Distribution::File {
                path: name.into(),
                table: Some(Arc::new(table)),
            }
        };
        let mut random = Random::new(7);
        for (distribution, jitter) in [
            (None, "1ms"),
            (Some(Distribution::Normal), "1ms"),
            (Some(Distribution::Pareto), "1ms"),
            (Some(table("even.dist", "-8192 8192")), "4ms"),
            (
                Some(table("even.dist", &"-8192 -8000 8000 8192 ".repeat(100))),
                "4ms",
            ),
            (
                Some(table(
                    "slow.dist",
                    &"-8192 -8192 8192 8192 8192 ".repeat(100),
                )),
                "4ms",
            ),
            (
                Some(table(
                    "quick.dist",
                    &"-8192 -8192 -8192 8192 8192 ".repeat(100),
                )),
                "4ms",
            ),
        ] {
            let before = Settings::default();
            let mut during: Settings =
                toml::from_str(&format!("delay = '5ms'\njitter = '{jitter}'")).unwrap();
            during.distribution.clone_from(&distribution);
            let mut look = |settings: &Settings| {
                let table = settings.distribution.as_ref().and_then(Distribution::table);
                let mut time = || {
                    let even = random.below(1 << 20) as f64 / f64::from(1 << 19) - 1.0;
                    let share = random.below(1 << 20) as f64 / f64::from(1 << 20);
                    let jitters = table.as_ref().map_or(even, |table| table.quantile(share));
                    let late = random.below(60_000) as f64;
                    let nanos = |span: Span| span.0.as_nanos() as f64;
                    ((nanos(settings.delay) + jitters * nanos(settings.jitter)).max(0.0) + late)
                        as u64
                };
                let times: Vec<u64> = (0..PACKETS_MIN).map(|_| time()).collect();
                Seen::of_times(times)
            };
            for _ in 0..300 {
                let absent = missing(&before, &during, &look(&during));
                assert!(absent.is_empty(), "{distribution:?}: {absent:?}");
                let absent = missing(&before, &during, &look(&before));
                assert!(
                    absent.contains(&Trouble::Delay),
                    "{distribution:?}: reports a delay that doesn't exist"
                );
            }
        }
    }

    /// Suggestions for effects that were not seen, or are still seen, contain settings that would make a difference.
    #[test]
    fn suggested_settings_would_make_a_difference() {
        let during: Settings =
            toml::from_str("delay = '3ms'\njitter = '250us'\nloss = 0.012\ncorrupt = 0.7").unwrap();
        let all = [
            Trouble::Delay,
            Trouble::Jitter,
            Trouble::Loss,
            Trouble::Damage,
        ];
        let advice = plainer(&all, &during);
        assert_eq!(
            advice,
            "; write delay = \"6ms\", jitter = \"500us\", loss = 0.024, corrupt = 1"
        );
        assert!(VoidReason::FaultWeak.is_named_in(&advice));
        assert_eq!(plainer(&[Trouble::LossOfAll], &during), "");
        let mut seen = Seen::default();
        (seen.known, seen.missing, seen.twice) = (1000, 12, 3);
        let advice = beyond(
            &[Trouble::Loss, Trouble::Duplicate, Trouble::SlowLine],
            &seen,
            Some(3e6),
        );
        assert_eq!(
            advice,
            "; write loss = 0.024, duplicate = 0.006, rate = \"1500kb/s\""
        );
        assert!(VoidReason::FaultNotGone.is_named_in(&advice));
        assert_eq!(
            beyond(&[Trouble::Missing, Trouble::Delay], &Seen::default(), None),
            ""
        );
    }
}
