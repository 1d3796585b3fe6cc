//! Measures how full a rate-limited line is while the machine has no CPU core to spare: no core is idle and packets
//! keep arriving, or processes wait for cores. If the line isn't full, the machine was the limit: unlike real hosts,
//! emulated ones share its cores with the emulator.
//!
//! Called by [`super::driver`] on every turn. The rule: a window counts only if no core was free during it, only for
//! links that do nothing but limit the rate, and only if a queue formed at the line: a sender limited by the line
//! sends faster than the line whenever it has a core. A sender that waits for replies, paces its packets, backs off
//! after losses, or is slow while cores are idle says nothing about the link. A sender that paces bursts longer than
//! [`BACKLOG_BYTES_MIN`] can't be told from one that has more to send.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use brunt_core::Nanos;

use super::control::Shared;
use super::counters::add;

/// Length of a window: with ticks of a hundredth of a second, two cores have forty ticks per window.
const WINDOW: Duration = Duration::from_millis(200);
/// If the thread slept for more than this share of a window, packets didn't keep arriving.
const SLEPT_SHARE_MAX: f64 = 0.2;
/// Minimum share of a window in which processes waited for a core, so that a sender may have had none. At 10 Gb/s with
/// one TCP flow on two cores, the share was 0.02 to 0.15 for a full line, 0.40 to 0.45 for a line at two thirds of its
/// rate, and higher with CPU hogs running.
const WAITED_SHARE_MIN: f64 = 0.3;
/// A line that was sending for less than this share of a window had little to send.
const SENT_SHARE_MIN: f64 = 0.1;
/// If no more bytes than this ever queued at a line, the line was offered no more than it could send: single packets
/// come close together by chance, or because their sender had to wait for a core. This is 16 packets; a TCP sender
/// that has more to send than the line carries sends trains of up to 43, several in a row.
const BACKLOG_BYTES_MIN: u64 = 16 * 1514;
/// With cores idle for less than this share of a window, all of them count as busy.
const IDLE_SHARE_MAX: f64 = 0.05;
/// Like [`IDLE_SHARE_MAX`], but for windows in which processes waited for a core: a process may wait for one core
/// while another is free (0.20 to 0.25 on two cores).
const IDLE_SHARE_MAX_WAITING: f64 = 0.3;

/// Measurements of the current window.
pub(super) struct Crowding {
    start: Nanos,
    slept_nanos: u64,
    sent_nanos: [u64; 2],
    ticks: Option<Ticks>,
    /// Microseconds since boot during which any process waited for a core.
    waited_micros: Option<u64>,
    stat: Option<File>,
    pressure: Option<File>,
}

/// Ticks of all cores combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    all: u64,
}

impl Crowding {
    pub(super) fn new(now: Nanos) -> Crowding {
        // In a container that hides this file, no window counts.
        let stat = File::open("/proc/stat").ok();
        // Kernels without pressure stall information don't report waiting processes; then a window counts only if
        // packets kept arriving.
        let pressure = File::open("/proc/pressure/cpu").ok();
        Crowding {
            start: now,
            slept_nanos: 0,
            sent_nanos: [0; 2],
            ticks: stat.as_ref().and_then(|file| read(file, ticks)),
            waited_micros: pressure.as_ref().and_then(|file| read(file, waited)),
            stat,
            pressure,
        }
    }

    /// Records that the thread was idle for this long.
    pub(super) fn on_sleep(&mut self, nanos: u64) {
        self.slept_nanos += nanos;
    }

    /// Ends the window if it is long enough. `lines`: whether each direction does nothing but limit the rate.
    /// `backlogs`: the peak number of bytes queued in each direction; reset for the next window.
    #[inline]
    pub(super) fn on_turn(
        &mut self,
        now: Nanos,
        lines: [bool; 2],
        backlogs: [&mut u64; 2],
        lanes: &[Shared; 2],
    ) {
        if now.since(self.start) >= WINDOW {
            let backlogs = backlogs.map(std::mem::take);
            self.end(now, lines == [true; 2], backlogs, lanes);
        }
    }

    #[cold]
    fn end(&mut self, now: Nanos, are_lines: bool, backlogs: [u64; 2], lanes: &[Shared; 2]) {
        let nanos = now.0 - self.start.0;
        let [stat, pressure] =
            [&self.stat, &self.pressure].map(|file| file.as_ref().filter(|_| are_lines));
        let ticks = stat.and_then(|file| read(file, ticks));
        let waited_micros = pressure.and_then(|file| read(file, waited));
        let sent_nanos = [0, 1].map(|lane: usize| lanes[lane].counters.read().line_sent_nanos);
        let seen = Seen {
            nanos,
            slept: self.slept_nanos,
            idle_share: self
                .ticks
                .zip(ticks)
                .map(|(before, now)| idle_share(before, now)),
            waited: self
                .waited_micros
                .zip(waited_micros)
                .map_or(0, |(before, now)| now.saturating_sub(before) * 1000),
        };
        for lane in [0, 1] {
            let sent = sent_nanos[lane] - self.sent_nanos[lane];
            if seen.is_crowded(sent, backlogs[lane]) {
                add(&lanes[lane].counters.crowded_nanos, nanos);
                add(&lanes[lane].counters.crowded_sent_nanos, sent);
            }
        }
        self.start = now;
        self.slept_nanos = 0;
        self.sent_nanos = sent_nanos;
        self.ticks = ticks;
        self.waited_micros = waited_micros;
    }
}

/// A window, with times in nanoseconds.
struct Seen {
    nanos: u64,
    /// Sleep time of the emulator's thread.
    slept: u64,
    idle_share: Option<f64>,
    /// Time during which any process waited for a core.
    waited: u64,
}

impl Seen {
    /// Whether the window counts for a direction whose line was sending for `sent` of its nanoseconds, with a queue
    /// of at most `backlog_bytes`.
    fn is_crowded(&self, sent: u64, backlog_bytes: u64) -> bool {
        let share = |part: u64| part as f64 / self.nanos as f64;
        let Some(idle) = self.idle_share else {
            return false;
        };
        let without_pause = share(self.slept) < SLEPT_SHARE_MAX && idle < IDLE_SHARE_MAX;
        let waiting = share(self.waited) >= WAITED_SHARE_MIN && idle < IDLE_SHARE_MAX_WAITING;
        let was_offered_more = share(sent) >= SENT_SHARE_MIN && backlog_bytes >= BACKLOG_BYTES_MIN;
        was_offered_more && (without_pause || waiting)
    }
}

fn idle_share(before: Ticks, now: Ticks) -> f64 {
    now.idle.saturating_sub(before.idle) as f64 / now.all.saturating_sub(before.all).max(1) as f64
}

/// Parses the first line of the file.
fn read<T>(file: &File, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
    let mut text = [0; 256];
    let count = file.read_at(&mut text, 0).ok()?;
    parse(std::str::from_utf8(&text[..count]).ok()?.lines().next()?)
}

/// `cpu  user nice system idle iowait irq softirq steal …` (proc_stat(5)); guest time is already part of user.
fn ticks(line: &str) -> Option<Ticks> {
    let fields: Vec<u64> = line
        .strip_prefix("cpu ")?
        .split_ascii_whitespace()
        .take(8)
        .map_while(|field| field.parse().ok())
        .collect();
    Some(Ticks {
        idle: fields.get(3)? + fields.get(4)?,
        all: fields.iter().sum(),
    })
}

/// `some avg10=0.12 avg60=0.34 avg300=0.56 total=78901`, the total in microseconds (Documentation/accounting/psi.rst).
fn waited(line: &str) -> Option<u64> {
    line.strip_prefix("some ")?
        .rsplit_once("total=")?
        .1
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_ticks_are_parsed() {
        let line = "cpu  100 10 30 400 50 6 7 8 90 11";
        assert_eq!(
            ticks(line),
            Some(Ticks {
                idle: 450,
                all: 611
            })
        );
        assert_eq!(ticks("cpu0 1 2 3 4 5"), None);
        assert_eq!(ticks("cpu  1 2"), None);
        let (before, now) = (
            Ticks {
                idle: 450,
                all: 611,
            },
            Ticks {
                idle: 451,
                all: 651,
            },
        );
        assert_eq!(idle_share(before, now), 0.025);
    }

    #[test]
    fn cpu_pressure_is_parsed() {
        let line = "some avg10=11.07 avg60=11.17 avg300=13.99 total=15838537960";
        assert_eq!(waited(line), Some(15_838_537_960));
        assert_eq!(
            waited("full avg10=0.00 avg60=0.00 avg300=0.00 total=0"),
            None
        );
        assert_eq!(waited("some avg10=11.07"), None);
    }

    /// A line may have been slowed down by the machine only if it had more to send while no core was free.
    #[test]
    fn only_a_queued_line_on_a_busy_machine_counts_as_crowded() {
        let check =
            |slept: u64, sent: u64, idle_share: Option<f64>, waited: u64, expected: bool| {
                let seen = Seen {
                    nanos: 1000,
                    slept,
                    idle_share,
                    waited,
                };
                assert_eq!(
                    seen.is_crowded(sent, BACKLOG_BYTES_MIN),
                    expected,
                    "{slept} {sent} {idle_share:?} {waited}"
                );
                assert!(!seen.is_crowded(sent, BACKLOG_BYTES_MIN - 1));
            };
        check(0, 550, Some(0.0), 0, true);
        check(100, 550, Some(0.04), 0, true);
        check(300, 550, Some(0.0), 0, false);
        check(0, 1050, Some(0.0), 0, true);
        check(0, 20, Some(0.0), 1000, false);
        check(0, 550, Some(0.2), 150, false);
        check(0, 550, Some(0.5), 1000, false);
        check(0, 550, None, 1000, false);
        // The sender waits for a core, so the thread is idle.
        check(700, 390, Some(0.0), 900, true);
        check(250, 660, Some(0.21), 400, true);
        check(700, 390, Some(0.0), 200, false);
    }
}
