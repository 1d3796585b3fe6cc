//! Counts how full a line with a rate is while packets come without a pause and no core of the machine is idle. A line
//! that is not full then was limited by the machine: hosts and emulator share its cores, as real machines would not.
//!
//! Called by [`super::driver`] on every turn. The rule: only such windows count, and only of links that do nothing but send
//! at a rate. A sender that waits for answers, holds back because of losses, or is slow while there are cores to spare says
//! nothing about the link.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use brunt_core::Nanos;

use super::counters::add;
use super::driver::Shared;

/// Ticks are hundredths of a second: two cores have forty in a window.
const WINDOW: Duration = Duration::from_millis(200);
/// A thread that slept for more than this share of a window was not offered packets all the time.
const SLEPT_SHARE_MAX: f64 = 0.2;
/// Of a line that sent for less than this share of a window little was wanted.
const SENT_SHARE_MIN: f64 = 0.1;
/// Cores that were idle for less than this share of a window were all taken.
const IDLE_SHARE_MAX: f64 = 0.05;

/// What a window has seen so far.
pub(super) struct Crowding {
    start: Nanos,
    slept_nanos: u64,
    sent_nanos: [u64; 2],
    ticks: Option<Ticks>,
    stat: Option<File>,
}

/// Of all cores together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    all: u64,
}

impl Crowding {
    pub(super) fn new(now: Nanos) -> Crowding {
        // A container that hides it has no notices.
        let stat = File::open("/proc/stat").ok();
        Crowding { start: now, slept_nanos: 0, sent_nanos: [0; 2], ticks: stat.as_ref().and_then(read), stat }
    }

    /// The thread had nothing to do for so long.
    pub(super) fn on_sleep(&mut self, nanos: u64) {
        self.slept_nanos += nanos;
    }

    /// Ends a window that is long enough. `lines` are the directions that have a rate at most.
    #[inline]
    pub(super) fn on_turn(&mut self, now: Nanos, lines: [bool; 2], lanes: &[Shared; 2]) {
        if now.since(self.start) >= WINDOW {
            self.end(now, lines == [true; 2], lanes);
        }
    }

    #[cold]
    fn end(&mut self, now: Nanos, are_lines: bool, lanes: &[Shared; 2]) {
        let nanos = now.0 - self.start.0;
        let ticks = if are_lines { self.stat.as_ref().and_then(read) } else { None };
        let sent_nanos = [0, 1].map(|lane: usize| lanes[lane].counters.read().line_sent_nanos);
        let idle_share = self.ticks.zip(ticks).map(|(before, now)| idle_share(before, now));
        for lane in [0, 1] {
            let sent = sent_nanos[lane] - self.sent_nanos[lane];
            if is_crowded(nanos, self.slept_nanos, sent, idle_share) {
                add(&lanes[lane].counters.crowded_nanos, nanos);
                add(&lanes[lane].counters.crowded_sent_nanos, sent);
            }
        }
        *self = Crowding { start: now, slept_nanos: 0, sent_nanos, ticks, stat: self.stat.take() };
    }
}

/// Whether a window counts in which a direction sent for so many of its nanoseconds.
fn is_crowded(nanos: u64, slept: u64, sent: u64, idle_share: Option<f64>) -> bool {
    let share = |part: u64| part as f64 / nanos as f64;
    share(slept) < SLEPT_SHARE_MAX
        && share(sent) >= SENT_SHARE_MIN
        && idle_share.is_some_and(|share| share < IDLE_SHARE_MAX)
}

fn idle_share(before: Ticks, now: Ticks) -> f64 {
    now.idle.saturating_sub(before.idle) as f64 / now.all.saturating_sub(before.all).max(1) as f64
}

/// The first line of `/proc/stat`.
fn read(stat: &File) -> Option<Ticks> {
    let mut text = [0; 256];
    let count = stat.read_at(&mut text, 0).ok()?;
    ticks(std::str::from_utf8(&text[..count]).ok()?.lines().next()?)
}

/// `cpu  user nice system idle iowait irq softirq steal …` (proc_stat(5)); time of guests is in user already.
fn ticks(line: &str) -> Option<Ticks> {
    let fields: Vec<u64> = line
        .strip_prefix("cpu ")?
        .split_ascii_whitespace()
        .take(8)
        .map_while(|field| field.parse().ok())
        .collect();
    Some(Ticks { idle: fields.get(3)? + fields.get(4)?, all: fields.iter().sum() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read() {
        let line = "cpu  100 10 30 400 50 6 7 8 90 11";
        assert_eq!(ticks(line), Some(Ticks { idle: 450, all: 611 }));
        assert_eq!(ticks("cpu0 1 2 3 4 5"), None);
        assert_eq!(ticks("cpu  1 2"), None);
        let (before, now) = (Ticks { idle: 450, all: 611 }, Ticks { idle: 451, all: 651 });
        assert_eq!(idle_share(before, now), 0.025);
    }

    /// Only a line that was wanted without a pause, on a machine with nothing to spare, might have carried more elsewhere.
    #[test]
    fn all_three_are_needed() {
        let check = |slept: u64, sent: u64, idle: Option<f64>, expected: bool| {
            assert_eq!(is_crowded(1000, slept, sent, idle), expected, "{slept} {sent} {idle:?}");
        };
        check(0, 550, Some(0.0), true);
        check(100, 550, Some(0.04), true);
        check(300, 550, Some(0.0), false);
        check(0, 1050, Some(0.0), true);
        check(0, 20, Some(0.0), false);
        check(0, 550, Some(0.2), false);
        check(0, 550, None, false);
    }
}
