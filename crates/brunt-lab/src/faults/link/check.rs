//! Checks with probe packets that a link's new settings take effect, and that no effect remains after they end.
//!
//! Called by [`super::LinkChange`]. The rule: only packets that arrived at the receiving host count as seen; the link's
//! own counters only distinguish two reasons for a missing packet.

use std::io;
use std::time::Duration;

use brunt_core::{Clock, Span};
use brunt_result::link::LinkCounts;

use super::close;
use super::probe::{Probe, ProbeTrain, Seen};
use super::signs::{
    EXPECTED, EXPECTED_GONE, EXPECTED_LEAST, LATE, PACKETS_MAX, PACKETS_MIN, TIMED_MIN, Trouble,
    adds, between, beyond, hardest, later, longest, missing, more_jitter, packets, plainer,
    shortest, slower, still, upwards,
};
use crate::link::Settings;
use crate::{Host, LinkHandle};

/// Smaller changes in the delay are not checked: a link isn't that precise.
const DELAY_LEAST: Duration = Duration::from_micros(50);
/// Number of packet trains sent to measure a line's rate.
const TRAINS: u32 = 4;
/// Maximum attempts, before the change, to see probes arrive faster than they will during it.
const LOOKS_BEFORE: u32 = 8;
/// Maximum attempts, during the change, to see no packet of all trains arrive faster than the line allows: a link
/// assumes that a frame came right after the previous poll, so frames arrive early if its thread was preempted.
const LOOKS_DURING: u32 = 8;
/// Maximum attempts, before the change, to see packets less spread out than they will be during it.
const LOOKS_APART: u32 = 64;
/// A line counts as slowed down if its measured rate is at most this times the new rate (clocks and polling are
/// inexact) ...
const RATE_SLACK: f64 = 1.1;
/// ... and as no longer limited if its measured rate is more than this times that rate.
const RATE_GONE: f64 = 1.3;
/// A rate at least this many times lower than that of the trains can be distinguished from it.
const RATE_SURE: f64 = 1.5;
/// Maximum time per direction, plus the time that a slow line takes to drain its queue.
pub(in super::super) const PATIENCE: Duration = Duration::from_secs(15);

/// Why a change was not seen.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum Unseen {
    /// The probes failed.
    #[error("cannot probe the link ({0})")]
    Probe(#[from] io::Error),
    /// Only the queue's length changes, or the order of packets under jitter.
    #[error(
        "probe packets cannot show this change alone; also change a setting that they can show, such as delay = \"1ms\""
    )]
    NotOnProbes,
    #[error(
        "{what} is too rare, or changes too little, to be seen with {PACKETS_MAX} probe packets; \
         {instead}"
    )]
    TooRare { what: String, instead: String },
    #[error(
        "a delay of {delay} cannot be distinguished from the previous {:.3} ms; write delay = \
         \"{}\" or more",
        *.took_nanos as f64 / 1e6,
        upwards(Duration::from_nanos(*.took_nanos) * 2)
    )]
    DelayHidden { delay: Span, took_nanos: u64 },
    #[error("a delay of {is} cannot be distinguished from one of {was}; write delay = \"{}\" or more", upwards(was.0 + *.blur))]
    DelayAlike { is: Span, was: Span, blur: Duration },
    #[error(
        "a jitter of {jitter} cannot be distinguished from the previous variation of {:.3} ms; \
         write jitter = \"{}\" or more",
        .apart.as_secs_f64() * 1e3,
        upwards(*.apart * 2)
    )]
    JitterHidden { jitter: Span, apart: Duration },
    #[error("no {} in {seen}{instead}", listed(.absent, ", no "))]
    Absent {
        absent: Vec<Trouble>,
        seen: Seen,
        instead: String,
    },
    #[error(
        "a rate of {:.3} Mb/s is not visible: packet trains arrived at {:.3} Mb/s, compared with \
         {:.3} Mb/s before; write rate = \"{}kb/s\" or less",
        *.rate as f64 / 1e6,
        *.now / 1e6,
        *.before / 1e6,
        (*.before / RATE_SURE / 1e3).max(1.0) as u64
    )]
    NoLine { rate: u64, now: f64, before: f64 },
    #[error("still {} in {seen}{instead}", listed(.present, ", "))]
    Still {
        present: Vec<Trouble>,
        seen: Box<str>,
        instead: String,
    },
    #[error(
        "packets are lost that should pass: {seen}; write a loss below 1 for the links between \
         these hosts, or end the fault that stops them first"
    )]
    Stopped { seen: Seen },
    #[error("packets pass although they should be dropped: {seen}")]
    Passes { seen: Seen },
    #[error(
        "a FIN delay of {held} cannot be distinguished from the {:.3} ms that closing took before; write slow_close = \"{}\" or more",
        .took.as_secs_f64() * 1e3,
        upwards(*.took * 2)
    )]
    CloseHidden { held: Span, took: Duration },
    #[error("a connection closed within {:.3} ms; its FIN was not delayed by {held}", .took.as_secs_f64() * 1e3)]
    ClosedSoon { held: Span, took: Duration },
    #[error("a connection still took {:.3} ms to close", .took.as_secs_f64() * 1e3)]
    ClosedLate { took: Duration },
}

fn listed(troubles: &[Trouble], between: &str) -> String {
    troubles
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(between)
}

/// A link, its hosts, and its settings before and during the change.
pub(super) struct LinkCheck<'a> {
    pub(super) link: &'a LinkHandle,
    pub(super) hosts: &'a [Host; 2],
    pub(super) before: &'a [Settings; 2],
    pub(super) during: &'a [Settings; 2],
}

/// Measurements of one direction before its settings change.
#[derive(Default)]
pub(super) struct Quick {
    /// Bits per second, if the line becomes slower.
    line: Option<f64>,
    /// Minimum travel time in nanoseconds, if delay is added.
    least: Option<u64>,
    /// Spread of the middle 80 % of packets within one short probe, if jitter increases.
    apart: Option<Duration>,
    /// Time to close a connection, if closing becomes slower.
    close: Option<Duration>,
}

impl LinkCheck<'_> {
    fn counts(&self, way: usize) -> LinkCounts {
        let report = self.link.report();
        [report.there, report.back][way]
    }

    fn probe(&self, way: usize) -> io::Result<Probe> {
        // Only ECN-capable packets can be marked.
        let marks = self.before[way].ecn > 0.0 || self.during[way].ecn > 0.0;
        Probe::new(&self.hosts[way], &self.hosts[1 - way], marks)
    }

    /// Measures the line's rate with trains sized for a line of `rate`.
    fn quickest(
        &self,
        way: usize,
        settings: &Settings,
        rate: u64,
        clock: &Clock,
    ) -> io::Result<f64> {
        let queue = self.before[way]
            .queue_bytes()
            .min(self.during[way].queue_bytes());
        let train = ProbeTrain::for_line(rate, queue);
        // The train queues behind the experiment's packets, so the wait includes the link's longest travel time.
        let wait = longest(settings) + train.time(rate) * 2;
        let follow = train.time(rate) + settings.jitter.0 * 4 + LATE / 5;
        self.probe(way)?
            .quickest(clock, TRAINS, train, shortest(settings), [wait, follow])
    }

    /// Takes the measurements before the change that are needed to recognize it.
    pub(super) fn before(&self, way: usize, clock: &Clock) -> io::Result<Quick> {
        let (before, during) = (&self.before[way], &self.during[way]);
        let mut quick = Quick::default();
        // A busy machine is slow at times, too, so the measurements are repeated.
        if let Some(rate) = slower(before, during) {
            let mut line = 0.0f64;
            for _ in 0..LOOKS_BEFORE {
                line = line.max(self.quickest(way, before, rate, clock)?);
                if line > rate as f64 * RATE_GONE {
                    break;
                }
            }
            quick.line = Some(line);
        }
        // Not for a rate-limited line, whose queue delays packets as well.
        if later(before, during) && before.rate_bits().is_none() {
            let soon = between(before, during);
            for _ in 0..LOOKS_BEFORE {
                let deadline = clock.now().after(PATIENCE);
                let enough =
                    |seen: &Seen| Ok(seen.least().is_some_and(|least| (least as f64) < soon));
                let seen = self.probe(way)?.flood(
                    clock,
                    PACKETS_MIN,
                    None,
                    longest(before),
                    deadline,
                    enough,
                )?;
                quick.least = quick.least.into_iter().chain(seen.least()).min();
                if quick.least.is_none_or(|least| (least as f64) < soon) {
                    break;
                }
            }
        }
        if let Some(most) = more_jitter(before, during) {
            quick.apart = self.apart(way, most, clock)?;
        }
        if during.slow_close.0 > before.slow_close.0 {
            let mut took = self.close(way)?;
            for _ in 1..LOOKS_BEFORE {
                if took < during.slow_close.0 {
                    break;
                }
                took = took.min(self.close(way)?);
            }
            quick.close = Some(took);
        }
        Ok(quick)
    }

    /// The spread of packets in the quietest of several short probes; the load on a busy machine leaves gaps that are
    /// long enough for one. Stops at the first spread below `most`.
    fn apart(&self, way: usize, most: Duration, clock: &Clock) -> io::Result<Option<Duration>> {
        let probe = self.probe(way)?;
        let mut least: Option<Duration> = None;
        for _ in 0..LOOKS_APART {
            let deadline = clock.now().after(PATIENCE);
            let enough = |seen: &Seen| Ok(seen.arrived() >= TIMED_MIN);
            let wait = longest(&self.before[way]);
            let seen = probe.flood(clock, 2 * TIMED_MIN as u64, None, wait, deadline, enough)?;
            least = least
                .into_iter()
                .chain(seen.apart().map(Duration::from_nanos))
                .min();
            if least.is_none_or(|least| least < most) {
                break;
            }
        }
        Ok(least)
    }

    /// Measures how long closing a connection takes in this direction.
    fn close(&self, way: usize) -> io::Result<Duration> {
        let held = self.before[way]
            .slow_close
            .0
            .max(self.during[way].slow_close.0);
        // Time for a handshake and a close, each with a few retransmissions if packets are lost.
        let patience =
            PATIENCE + held + (longest(&self.before[way]) + longest(&self.during[way])) * 4;
        close::time(&self.hosts[way], &self.hosts[1 - way], patience)
    }

    /// Closes a connection, which must take at least as long as the settings say.
    fn check_slow(&self, way: usize, quick: &Quick) -> Result<String, Unseen> {
        let held = self.during[way].slow_close;
        if let Some(took) = quick.close.filter(|took| *took >= held.0) {
            return Err(Unseen::CloseHidden { held, took });
        }
        let took = self.close(way)?;
        match took >= held.0 {
            true => Ok(format!(
                "a connection took {:.3} ms to close",
                took.as_secs_f64() * 1e3
            )),
            false => Err(Unseen::ClosedSoon { held, took }),
        }
    }

    /// Closes connections until one takes less than the former hold time.
    fn check_quick(&self, way: usize, was: Span, clock: &Clock) -> Result<String, Unseen> {
        let deadline = clock.now().after(PATIENCE + was.0);
        loop {
            let took = self.close(way)?;
            if took < was.0 {
                return Ok(format!(
                    "a connection took {:.3} ms to close",
                    took.as_secs_f64() * 1e3
                ));
            }
            if clock.now() >= deadline {
                return Err(Unseen::ClosedLate { took });
            }
        }
    }

    /// Probes one direction until the whole change has been seen; returns an empty string if nothing changes.
    pub(super) fn for_change(
        &self,
        way: usize,
        quick: &Quick,
        clock: &Clock,
    ) -> Result<String, Unseen> {
        let (before, during) = (&self.before[way], &self.during[way]);
        if during == before {
            return Ok(String::new());
        }
        let (adds, lessens) = (adds(before, during), adds(during, before));
        let (held, was_held) = (during.slow_close, before.slow_close);
        if !adds && !lessens && held == was_held {
            return Err(Unseen::NotOnProbes);
        }
        let mut seen = Vec::new();
        if adds {
            seen.push(self.check_effect(way, before, during, quick, clock)?);
        }
        if lessens {
            seen.push(self.check_absent(way, before, during, clock)?);
        }
        if held.0 > was_held.0 {
            seen.push(self.check_slow(way, quick)?);
        }
        if held.0 < was_held.0 {
            seen.push(self.check_quick(way, was_held, clock)?);
        }
        Ok(seen.join("; "))
    }

    /// Like [`LinkCheck::for_change`], after the settings have returned to their previous values.
    pub(super) fn for_return(&self, way: usize, clock: &Clock) -> Result<String, Unseen> {
        let (before, during) = (&self.before[way], &self.during[way]);
        let mut seen = Vec::new();
        if adds(before, during) {
            seen.push(self.check_absent(way, during, before, clock)?);
        }
        if adds(during, before) {
            seen.push(self.check_effect(way, during, before, &Quick::default(), clock)?);
        }
        if during.slow_close.0 > before.slow_close.0 {
            seen.push(self.check_quick(way, during.slow_close, clock)?);
        }
        Ok(seen.join("; "))
    }

    /// Probes a direction that must not change until it is seen to carry packets; returns an empty string if its own
    /// settings let nothing through.
    pub(super) fn for_passing(&self, way: usize, clock: &Clock) -> Result<String, Unseen> {
        let settings = &self.before[way];
        if settings.loss_share() >= 1.0 {
            return Ok(String::new());
        }
        let packets =
            (PACKETS_MIN as f64 / (1.0 - settings.loss_share())).min(PACKETS_MAX as f64) as u64;
        let deadline = clock.now().after(PATIENCE);
        let enough = |seen: &Seen| Ok(seen.arrived() >= TIMED_MIN);
        let wait = longest(settings);
        let seen =
            self.probe(way)?
                .flood(clock, packets, settings.rate_bits(), wait, deadline, enough)?;
        match seen.arrived() >= TIMED_MIN {
            true => Ok(format!("works as before, {} probe packets", seen.arrived())),
            false => Err(Unseen::Stopped { seen }),
        }
    }

    /// Probes until every impairment that is stronger in `during` than in `before` has been seen.
    fn check_effect(
        &self,
        way: usize,
        before: &Settings,
        during: &Settings,
        quick: &Quick,
        clock: &Clock,
    ) -> Result<String, Unseen> {
        check_visible(before, during, quick)?;
        let packets = packets(before, during, EXPECTED).min(PACKETS_MAX);
        let start = self.counts(way);
        // If the link keeps counters, they show which of two impairments caused a missing packet.
        let missing = |seen: &Seen| {
            let mut missing = missing(before, during, seen);
            let lost = || self.counts(way).since(&start).lost;
            if during.loss_share() > before.loss_share() && self.link.counts() && lost() == 0 {
                missing.push(Trouble::Loss);
            }
            missing.dedup();
            missing
        };
        let deadline = clock.now().after(PATIENCE);
        let enough = |seen: &Seen| Ok(missing(seen).is_empty());
        let seen = self.probe(way)?.flood(
            clock,
            packets,
            during.rate_bits(),
            longest(during),
            deadline,
            enough,
        )?;
        let absent = missing(&seen);
        if !absent.is_empty() {
            let instead = plainer(&absent, during);
            return Err(Unseen::Absent {
                absent,
                seen,
                instead,
            });
        }
        match (slower(before, during), quick.line) {
            (Some(rate), Some(line)) => {
                let trains = self.measure_line(way, during, rate, line, clock)?;
                Ok(format!("{seen}; {trains}"))
            }
            _ => Ok(seen.to_string()),
        }
    }

    /// Checks that packet trains arrive no faster than the new rate; `before` is the line's rate before the change.
    fn measure_line(
        &self,
        way: usize,
        during: &Settings,
        rate: u64,
        before: f64,
        clock: &Clock,
    ) -> Result<String, Unseen> {
        let is_line = |now: f64| now > 0.0 && now <= rate as f64 * RATE_SLACK;
        let mut now = 0.0;
        for _ in 0..LOOKS_DURING {
            now = self.quickest(way, during, rate, clock)?;
            if before <= rate as f64 * RATE_GONE || is_line(now) {
                break;
            }
        }
        match is_line(now) && before > rate as f64 * RATE_GONE {
            true => Ok(format!(
                "packet trains at {:.3} Mb/s, compared with {:.3} Mb/s before",
                now / 1e6,
                before / 1e6
            )),
            false => Err(Unseen::NoLine { rate, now, before }),
        }
    }

    /// Probes until no impairment that is stronger in `was` than in `now` is seen any more.
    fn check_absent(
        &self,
        way: usize,
        was: &Settings,
        now: &Settings,
        clock: &Clock,
    ) -> Result<String, Unseen> {
        // A slow line first drains its queue at its own rate.
        let queued = was
            .rate_bits()
            .map_or(0.0, |rate| was.queue_bytes() as f64 * 8.0 / rate as f64);
        let deadline = clock
            .now()
            .after(PATIENCE + Duration::from_secs_f64(queued.min(60.0)) + was.delay.0);
        let packets = packets(now, was, EXPECTED_GONE).min(PACKETS_MAX);
        loop {
            let start = self.counts(way);
            // Any impairment ends the probe early, and another probe follows: a packet that was in flight when the
            // fault ended is still affected by it.
            let hurts = |seen: &Seen| still(now, was, seen, packets);
            let wait = longest(now);
            let seen = self.probe(way)?.flood(
                clock,
                packets,
                now.rate_bits(),
                wait,
                deadline,
                |seen| Ok(!hurts(seen).is_empty()),
            )?;
            let carried = self.counts(way).since(&start);
            let mut present = hurts(&seen);
            if now.loss_share() == 0.0 && carried.lost > 0 {
                present.push(Trouble::Loss);
            }
            // Very late packets may still be queued behind a slow line.
            let whole = now.loss_share() + now.corrupt == 0.0 && carried.queue_full == 0;
            if whole && seen.missing * 20 > seen.known {
                present.push(Trouble::Missing);
            }
            let (mut shown, mut line) = (seen.to_string(), None);
            if let (true, Some(rate)) = (present.is_empty(), slower(now, was)) {
                let quickest = *line.insert(self.quickest(way, now, rate, clock)?);
                shown = format!("{shown}; packet trains at {:.3} Mb/s", quickest / 1e6);
                if quickest <= rate as f64 * RATE_GONE {
                    present.push(Trouble::SlowLine);
                }
            }
            if present.is_empty() && seen.known >= packets {
                return Ok(shown);
            }
            if clock.now() >= deadline {
                let instead = beyond(&present, &seen, line);
                return Err(Unseen::Still {
                    present,
                    seen: shown.into(),
                    instead,
                });
            }
        }
    }
}

/// Checks that probes can show the change, given the measurements before it.
fn check_visible(before: &Settings, during: &Settings, quick: &Quick) -> Result<(), Unseen> {
    if packets(before, during, EXPECTED_LEAST) > PACKETS_MAX {
        let (what, instead) = hardest(before, during);
        return Err(Unseen::TooRare { what, instead });
    }
    let most = more_jitter(before, during);
    if let Some(apart) = quick
        .apart
        .filter(|apart| most.is_some_and(|most| *apart >= most))
    {
        return Err(Unseen::JitterHidden {
            jitter: during.jitter,
            apart,
        });
    }
    if let Some(least) = quick
        .least
        .filter(|least| *least as f64 >= between(before, during))
    {
        return Err(Unseen::DelayHidden {
            delay: during.delay,
            took_nanos: least,
        });
    }
    let blur = DELAY_LEAST.max(before.jitter.0.max(during.jitter.0) / 4);
    if later(before, during) && during.delay.0 - before.delay.0 < blur {
        return Err(Unseen::DelayAlike {
            is: during.delay,
            was: before.delay,
            blur,
        });
    }
    Ok(())
}
