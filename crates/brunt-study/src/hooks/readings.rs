//! Readings of counters during a run, for links of the lab and interfaces of other hosts: the bytes that were carried
//! between any two moments, and the part of a run's summary that is the same for both.
//!
//! The rule: counters at a moment between two readings are interpolated. If the load ends between two readings, its
//! traffic is extrapolated from the readings on one side of its end, and never exceeds the next reading.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brunt_core::readings::{ReadingLog, ReadingsAround};
use brunt_core::{Clock, Nanos};
use brunt_result::Outcome;
use brunt_result::summary::RunSummary;
use brunt_result::transfer::{PhaseTransfer, RunTransfer};

/// Interval between checks for an interruption during the idle time.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Waits without load before a run. Returns false if `interrupted` is set before the time is over.
pub(super) fn rest(idle: Duration, interrupted: &AtomicBool) -> bool {
    let clock = Clock::Monotonic;
    let until = clock.now().after(idle);
    while clock.now() < until {
        if interrupted.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(until.since(clock.now()).min(POLL_INTERVAL));
    }
    true
}

/// Bytes of each link or interface, in both directions.
pub(super) type Bytes = Vec<[u64; 2]>;

/// The end of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadEnd {
    pub at: Nanos,
    /// Whether no request was outstanding, in which case later traffic doesn't belong to the load.
    pub is_quiet: bool,
}

/// The run's record of traffic; if there is none yet, creates one without links and interfaces.
pub(super) fn transfer_of<'a>(run: &'a mut RunSummary, outcome: &Outcome) -> &'a mut RunTransfer {
    let moves = run.ops.iter().filter(|op| op.op.moves_bytes());
    // Requests that completed after the end of measuring don't count for the rates either.
    let useful_bytes: u64 = moves.map(|op| op.bytes.saturating_sub(op.late_bytes)).sum();
    let phases = run.phases.iter().map(|phase| PhaseTransfer {
        kind: phase.kind,
        faults: phase.faults.clone(),
        start_s: phase.start_s,
        end_s: phase.end_s,
        useful_bytes: (phase.bytes_per_second * (phase.end_s - phase.start_s)).round() as u64,
        ..PhaseTransfer::default()
    });
    let phases: Vec<PhaseTransfer> = phases.collect();
    run.transfer.get_or_insert_with(|| RunTransfer {
        seconds: outcome.end.since(outcome.start).as_secs_f64(),
        useful_bytes,
        phases,
        ..RunTransfer::default()
    })
}

/// When the run's load ended.
pub(super) fn load_end(run: &RunSummary, outcome: &Outcome) -> LoadEnd {
    let late: u64 = run.ops.iter().map(|op| op.late_bytes).sum();
    LoadEnd {
        at: outcome.end,
        is_quiet: late == 0,
    }
}

/// The time that is this many seconds after the start of measuring.
pub(super) fn phase_time(outcome: &Outcome, seconds: f64) -> Nanos {
    let after = Duration::from_secs_f64(seconds.max(0.0));
    outcome.start.after(after)
}

/// The bytes carried in a period, for a load that ended at `end`.
pub(super) fn between(log: &ReadingLog<Bytes>, from: Nanos, until: Nanos, end: LoadEnd) -> Bytes {
    let until = if until < end.at {
        at(log, until)
    } else {
        at_end(log, end)
    };
    let from = at(log, from);
    let less = |(until, from): (&[f64; 2], &[f64; 2])| {
        std::array::from_fn(|way| (until[way] - from[way]).max(0.0).round() as u64)
    };
    until.iter().zip(&from).map(less).collect()
}

/// The counters at the end of the load: extrapolated from the two previous readings, up to the next reading; or, if
/// two readings follow and later traffic doesn't belong to the load, extrapolated back from these.
pub(super) fn at_end(
    log: &ReadingLog<Bytes>,
    LoadEnd { at: end, is_quiet }: LoadEnd,
) -> Vec<[f64; 2]> {
    let made = log.all();
    let next = made.partition_point(|(at, _)| *at <= end);
    let Some(last) = next.checked_sub(1) else {
        return at(log, end);
    };
    let line = |from: &(Nanos, Bytes), to: &(Nanos, Bytes)| {
        let (low, high) = (&made[last].1, made.get(next).map(|(_, bytes)| bytes));
        extrapolated(from, to, end, low, high)
    };
    match (made.get(next), made.get(next + 1)) {
        (Some(first), Some(second)) if is_quiet => line(first, second),
        (Some(_), _) if last > 0 => line(&made[last - 1], &made[last]),
        _ => at(log, end),
    }
}

/// The counters at `when`, on the line through two readings, but at least `low` and at most `high`.
fn extrapolated(
    from: &(Nanos, Bytes),
    to: &(Nanos, Bytes),
    when: Nanos,
    low: &Bytes,
    high: Option<&Bytes>,
) -> Vec<[f64; 2]> {
    let seconds = |from: Nanos, to: Nanos| (to.0 as f64 - from.0 as f64) / 1e9;
    let share = seconds(from.0, when) / seconds(from.0, to.0);
    let of = |index: usize| {
        std::array::from_fn(|way| {
            let (first, second) = (from.1[index][way] as f64, to.1[index][way] as f64);
            let line = first + (second - first) * share;
            let most = high.map_or(f64::INFINITY, |high| high[index][way] as f64);
            line.max(low[index][way] as f64).min(most)
        })
    };
    (0..from.1.len()).map(of).collect()
}

/// The counters at a time: interpolated between readings; before the first and after the last reading, the counters
/// of that reading.
pub(super) fn at(log: &ReadingLog<Bytes>, when: Nanos) -> Vec<[f64; 2]> {
    let exact = |bytes: &Bytes| {
        bytes
            .iter()
            .map(|ways| ways.map(|bytes| bytes as f64))
            .collect()
    };
    let (before, after, share) = match log.around(when) {
        ReadingsAround::Between {
            before,
            after,
            share,
        } => (before, after, share),
        ReadingsAround::Only(only) => return exact(only),
        ReadingsAround::None => return Vec::new(),
    };
    let between = |(before, after): (&[u64; 2], &[u64; 2])| {
        std::array::from_fn(|way| {
            before[way] as f64 + (after[way] as f64 - before[way] as f64) * share
        })
    };
    before.iter().zip(after).map(between).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of readings kept in these tests, the same as for links.
    const READINGS_MAX: usize = 256;
    const PERIOD: Duration = Duration::from_millis(20);

    fn moment(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    fn ends(millis: u64, is_quiet: bool) -> LoadEnd {
        LoadEnd {
            at: moment(millis),
            is_quiet,
        }
    }

    fn empty() -> ReadingLog<Bytes> {
        ReadingLog::new(PERIOD, READINGS_MAX)
    }

    /// Readings during this time, for a link that carries 3 bytes per millisecond one way and 1 byte the other.
    fn even(millis: u64) -> ReadingLog<Bytes> {
        let mut log = empty();
        let mut now = 1_000;
        while now <= 1_000 + millis {
            log.add(moment(now), vec![[now * 3, now]]);
            now += log.period().as_millis() as u64;
        }
        log
    }

    /// Any period is valid; times outside all readings add nothing.
    #[test]
    fn bytes_of_any_stretch() {
        let log = even(2_000);
        let never = ends(u64::MAX / 2_000_000, false);
        let found = |from, until| between(&log, moment(from), moment(until), never);
        assert_eq!(found(1_000, 3_000), [[6_000, 2_000]]);
        assert_eq!(found(1_010, 1_035), [[75, 25]]);
        assert_eq!(found(0, 1_010), [[30, 10]]);
        assert_eq!(found(2_990, 9_000), [[30, 10]]);
        assert_eq!(found(5_000, 9_000), [[0, 0]]);
        assert!(between(&empty(), moment(0), moment(1), ends(1, true)).is_empty());
    }

    /// However long a run is, its readings are at least half the limit, at most the limit, and include the first.
    #[test]
    fn long_runs_are_read_less_often() {
        for hours in [1, 24] {
            let log = even(hours * 3_600_000);
            assert!(
                (READINGS_MAX / 2..=READINGS_MAX).contains(&log.all().len()),
                "{}",
                log.all().len()
            );
            assert_eq!(log.all()[0].0, moment(1_000));
            let end = hours * 3_600_000;
            let whole = between(&log, moment(1_000), moment(end), ends(end, false));
            let expected = end - 1_000;
            assert!(
                whole[0][1].abs_diff(expected) <= expected / 100,
                "{whole:?} of {expected}"
            );
        }
    }

    /// If a load ends between two readings, exactly the bytes that it moved count, because links are idle afterwards.
    #[test]
    fn a_load_ends_between_readings() {
        for (end, is_quiet) in [1_100, 1_101, 1_107, 1_119]
            .map(|end| [(end, false), (end, true)])
            .concat()
        {
            let mut log = empty();
            for now in (980..1_200).step_by(20) {
                let carried = now.clamp(1_000, end) - 1_000;
                log.add(moment(now), vec![[carried * 3, carried]]);
            }
            let whole = between(&log, moment(1_000), moment(end), ends(end, is_quiet));
            assert_eq!(whole, [[(end - 1_000) * 3, end - 1_000]], "{end}");
        }
    }

    /// A load that speeds up before its end and leaves background traffic of 1 byte per millisecond: if no requests
    /// are outstanding, the readings after its end show how much it moved.
    #[test]
    fn an_uneven_load_is_counted_by_readings_after_its_end() {
        let carried = |now: u64| (now - 1_000) + 50 * (now.min(1_109).saturating_sub(1_100));
        let mut log = empty();
        for now in (1_000..1_200).step_by(20) {
            log.add(moment(now), vec![[carried(now), 0]]);
        }
        let whole = between(&log, moment(1_000), moment(1_109), ends(1_109, true));
        assert_eq!(whole, [[carried(1_109), 0]]);
    }
}
