//! Looks with probe packets whether a link's new settings show, and whether nothing is seen of them when they are
//! over.
//!
//! Called by [`super::LinkChange`]. The rule: an answer of "seen" rests on what arrived at the receiving host; the
//! link's own counts only tell two troubles of a missing packet apart.

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

/// A smaller change of a delay is not looked for: a link is not more exact.
const DELAY_LEAST: Duration = Duration::from_micros(50);
/// Trains that show how fast a line is.
const TRAINS: u32 = 4;
/// How often it is looked whether probes are quicker than it will be.
const LOOKS_BEFORE: u32 = 8;
/// How often it is looked whether packets lie closer together than they will.
const LOOKS_APART: u32 = 64;
/// A line is seen to be slower than this times its rate (clocks and looks are not exact) ...
const RATE_SLACK: f64 = 1.1;
/// ... and not to be so slow any more when it is faster than this times it.
const RATE_GONE: f64 = 1.3;
/// So much below the rate that trains are seen at, a line can be told from it.
const RATE_SURE: f64 = 1.5;
/// No direction is looked at for longer, but for what a slow line takes to send what waits.
pub(in super::super) const PATIENCE: Duration = Duration::from_secs(15);

/// Why a change was not seen.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum Unseen {
    /// The probes themselves did not work.
    #[error("cannot probe the link ({0})")]
    Probe(#[from] io::Error),
    /// A queue's length, the order under jitter.
    #[error(
        "probe packets cannot show this change alone; also change a setting that they can show, such as delay = \"1ms\""
    )]
    NotOnProbes,
    #[error(
        "{what} is too rare or changes too little to be seen with {PACKETS_MAX} probe packets; {instead}"
    )]
    TooRare { what: String, instead: String },
    #[error(
        "a delay of {delay} cannot be distinguished from the {:.3} ms that packets took before; write delay = \"{}\" or more",
        *.took_nanos as f64 / 1e6,
        upwards(Duration::from_nanos(*.took_nanos) * 2)
    )]
    DelayHidden { delay: Span, took_nanos: u64 },
    #[error("a delay of {is} cannot be distinguished from one of {was}; write delay = \"{}\" or more", upwards(was.0 + *.blur))]
    DelayAlike { is: Span, was: Span, blur: Duration },
    #[error(
        "a jitter of {jitter} cannot be distinguished from the {:.3} ms of variation before; write jitter = \"{}\" or more",
        .apart.as_secs_f64() * 1e3,
        upwards(*.apart * 2)
    )]
    JitterHidden { jitter: Span, apart: Duration },
    #[error("no {} on {seen}{instead}", listed(.absent, ", no "))]
    Absent {
        absent: Vec<Trouble>,
        seen: Seen,
        instead: String,
    },
    #[error(
        "a rate of {:.3} Mb/s is not visible: trains of packets passed at {:.3} Mb/s, before at {:.3} Mb/s; write rate = \"{}kb/s\" or less",
        *.rate as f64 / 1e6,
        *.now / 1e6,
        *.before / 1e6,
        (*.before / RATE_SURE / 1e3).max(1.0) as u64
    )]
    NoLine { rate: u64, now: f64, before: f64 },
    #[error("still {} on {seen}{instead}", listed(.present, ", "))]
    Still {
        present: Vec<Trouble>,
        seen: Box<str>,
        instead: String,
    },
    #[error(
        "packets do not pass although they should: {seen}; write a loss below 1 for the links between these hosts, or end the fault that stops them first"
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

/// A link, its hosts, and the settings that it has and is to have.
pub(super) struct Look<'a> {
    pub(super) link: &'a LinkHandle,
    pub(super) hosts: &'a [Host; 2],
    pub(super) before: &'a [Settings; 2],
    pub(super) during: &'a [Settings; 2],
}

/// What was seen of one direction before its settings changed.
#[derive(Default)]
pub(super) struct Quick {
    /// Bits a second, if the line becomes slower.
    line: Option<f64>,
    /// Nanoseconds on the way of the quickest packet, if there is to be more delay.
    least: Option<u64>,
    /// How far the packets of one look lay apart (the middle 80 %), if they are to lie farther apart.
    apart: Option<Duration>,
    /// How long the end of a connection took, if it is to take longer.
    close: Option<Duration>,
}

impl Look<'_> {
    fn counts(&self, way: usize) -> LinkCounts {
        let report = self.link.report();
        [report.there, report.back][way]
    }

    fn probe(&self, way: usize) -> io::Result<Probe> {
        // Marks are looked for on packets that can be marked.
        let marks = self.before[way].ecn > 0.0 || self.during[way].ecn > 0.0;
        Probe::new(&self.hosts[way], &self.hosts[1 - way], marks)
    }

    /// How fast the line is seen to be, for a train that one of this rate takes.
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
        // Behind what the experiment itself has in the queue.
        let wait = longest(settings) + train.time(rate) * 2;
        let follow = train.time(rate) + settings.jitter.0 * 4 + LATE / 5;
        self.probe(way)?
            .quickest(clock, TRAINS, train, shortest(settings), [wait, follow])
    }

    /// What is seen before the change, where that has to be known to tell the change from it.
    pub(super) fn before(&self, way: usize, clock: &Clock) -> io::Result<Quick> {
        let (before, during) = (&self.before[way], &self.during[way]);
        let mut quick = Quick::default();
        // A busy machine is slow now and then, too.
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
        // Behind a queue packets come late for other reasons.
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
            quick.close = Some(self.close(way)?);
        }
        Ok(quick)
    }

    /// How far packets lie apart in the quietest of some short looks, of which one is short enough between what
    /// else keeps a busy machine; the first that is below `most` does.
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

    /// How long the end of a connection takes on its way.
    fn close(&self, way: usize) -> io::Result<Duration> {
        let held = self.before[way]
            .slow_close
            .0
            .max(self.during[way].slow_close.0);
        // A handshake and an end, each sent a few times where packets are lost.
        let patience =
            PATIENCE + held + (longest(&self.before[way]) + longest(&self.during[way])) * 4;
        close::time(&self.hosts[way], &self.hosts[1 - way], patience)
    }

    /// Closes a connection, which has to take as long as the settings say.
    fn look_slow(&self, way: usize, quick: &Quick) -> Result<String, Unseen> {
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

    /// Closes connections until one takes less than what it was held for.
    fn look_quick(&self, way: usize, was: Span, clock: &Clock) -> Result<String, Unseen> {
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

    /// Probes one direction until the change was seen, all of it; empty where nothing changes.
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
            seen.push(self.look_for(way, before, during, quick, clock)?);
        }
        if lessens {
            seen.push(self.look_quiet(way, before, during, clock)?);
        }
        if held.0 > was_held.0 {
            seen.push(self.look_slow(way, quick)?);
        }
        if held.0 < was_held.0 {
            seen.push(self.look_quick(way, was_held, clock)?);
        }
        Ok(seen.join("; "))
    }

    /// The same of the way back to what was before.
    pub(super) fn for_return(&self, way: usize, clock: &Clock) -> Result<String, Unseen> {
        let (before, during) = (&self.before[way], &self.during[way]);
        let mut seen = Vec::new();
        if adds(before, during) {
            seen.push(self.look_quiet(way, during, before, clock)?);
        }
        if adds(during, before) {
            seen.push(self.look_for(way, during, before, &Quick::default(), clock)?);
        }
        if during.slow_close.0 > before.slow_close.0 {
            seen.push(self.look_quick(way, during.slow_close, clock)?);
        }
        Ok(seen.join("; "))
    }

    /// Probes a direction that was to stay as it was, until it was seen to carry; empty where it carries nothing
    /// by its own settings.
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
            true => Ok(format!(
                "passes as before, {} probe packets",
                seen.arrived()
            )),
            false => Err(Unseen::Stopped { seen }),
        }
    }

    /// Probes until every trouble was seen that `during` has more of than `before`.
    fn look_for(
        &self,
        way: usize,
        before: &Settings,
        during: &Settings,
        quick: &Quick,
        clock: &Clock,
    ) -> Result<String, Unseen> {
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
        let packets = packets(before, during, EXPECTED).min(PACKETS_MAX);
        let start = self.counts(way);
        // What the link counts says which of two troubles a missing packet met, where it counts.
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
        let (Some(rate), Some(quick)) = (slower(before, during), quick.line) else {
            return Ok(seen.to_string());
        };
        let now = self.quickest(way, during, rate, clock)?;
        match now > 0.0 && now <= rate as f64 * RATE_SLACK && quick > rate as f64 * RATE_GONE {
            true => Ok(format!(
                "{seen}; trains of packets at {:.3} Mb/s, before at {:.3} Mb/s",
                now / 1e6,
                quick / 1e6
            )),
            false => Err(Unseen::NoLine {
                rate,
                now,
                before: quick,
            }),
        }
    }

    /// Probes until nothing is seen any more of what `was` has more of than `now`.
    fn look_quiet(
        &self,
        way: usize,
        was: &Settings,
        now: &Settings,
        clock: &Clock,
    ) -> Result<String, Unseen> {
        // What waits in front of a slow line is sent first, at its rate.
        let queued = was
            .rate_bits()
            .map_or(0.0, |rate| was.queue_bytes() as f64 * 8.0 / rate as f64);
        let deadline = clock
            .now()
            .after(PATIENCE + Duration::from_secs_f64(queued.min(60.0)) + was.delay.0);
        let packets = packets(now, was, EXPECTED_GONE).min(PACKETS_MAX);
        loop {
            let start = self.counts(way);
            // Trouble ends a look early, and then there is another one: a packet that was on its way when the
            // fault ended counts as the fault's.
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
            // What comes much too late waits behind a slow line still.
            let whole = now.loss_share() + now.corrupt == 0.0 && carried.queue_full == 0;
            if whole && seen.missing * 20 > seen.known {
                present.push(Trouble::Missing);
            }
            let (mut told, mut line) = (seen.to_string(), None);
            if let (true, Some(rate)) = (present.is_empty(), slower(now, was)) {
                let quickest = *line.insert(self.quickest(way, now, rate, clock)?);
                told = format!("{told}; trains of packets at {:.3} Mb/s", quickest / 1e6);
                if quickest <= rate as f64 * RATE_GONE {
                    present.push(Trouble::SlowLine);
                }
            }
            if present.is_empty() && seen.known >= packets {
                return Ok(told);
            }
            if clock.now() >= deadline {
                let instead = beyond(&present, &seen, line);
                return Err(Unseen::Still {
                    present,
                    seen: told.into(),
                    instead,
                });
            }
        }
    }
}
