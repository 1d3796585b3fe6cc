//! A link that changes for a while: more delay, loss, a slower line. Shown by probe packets of its own
//! between the two hosts: what arrives late, not at all, damaged, twice, out of turn, or slowly.
//!
//! The rule: everything that the new settings say has to be seen at the receiving host; and when it is
//! over, nothing of it may be seen any more, on so many packets that it would have been.

mod probe;

use std::io;
use std::time::Duration;

use brunt_core::{Clock, Nanos};
use brunt_result::link::LinkCounts;

use crate::link::{Direction, Settings};
use crate::{Fault, FaultError, Host, LinkHandle, Proof};
use probe::{Probe, Seen, Train};

/// A trouble has to be seen on so many times the packets on which it is expected once: it is missed once in
/// 10^5 times.
const EXPECTED: f64 = 11.5;
/// That it is gone is looked for on so many times as many packets; with less than half of what is expected
/// of it then, it is gone: a Poisson number with a mean of 20 is 10 or less once in a hundred times.
const EXPECTED_GONE: f64 = 20.0;
/// What is expected less often on the most packets is not even looked for.
const EXPECTED_LEAST: f64 = 5.0;
/// Most packets of a probe, and fewest.
const PACKETS_MAX: u64 = 60_000;
const PACKETS_MIN: u64 = 256;
/// A delay is shown by as many packets.
const TIMED_MIN: usize = 16;
/// A smaller change of a delay is not looked for: a link is not more exact.
const DELAY_LEAST: Duration = Duration::from_micros(50);
/// Trains that show how fast a line is.
const TRAINS: u32 = 4;
/// How often it is looked whether probes are quicker than it will be.
const LOOKS_BEFORE: u32 = 8;
/// A line is seen to be slower than this times its rate (clocks and looks are not exact) ...
const RATE_SLACK: f64 = 1.1;
/// ... and not to be so slow any more when it is faster than this times it.
const RATE_GONE: f64 = 1.3;
/// Packets may lie so far apart, in nanoseconds, without a jitter having been set; a busy machine's do.
const JITTER_LEAST: f64 = 500e3;
/// A packet may be late by so much without a delay having been set; a busy machine is.
const LATE: Duration = Duration::from_millis(150);
/// No direction is looked at for longer, but for what a slow line takes to send what waits.
const PATIENCE: Duration = Duration::from_secs(15);

/// Other settings of a link, for both directions, and back to those it had.
pub struct LinkChange {
    link: LinkHandle,
    hosts: [Host; 2],
    before: [Settings; 2],
    during: [Settings; 2],
    injected: bool,
}

impl LinkChange {
    /// Of the link between these hosts, in the order in which it joins them.
    pub(crate) fn new(
        link: LinkHandle,
        hosts: [Host; 2],
        before: [Settings; 2],
        during: [Settings; 2],
    ) -> LinkChange {
        LinkChange { link, hosts, before, during, injected: false }
    }

    fn refused(&self, what: &str, source: io::Error) -> FaultError {
        FaultError::Refused { fault: self.describe(), what: what.into(), source, advice: None }
    }

    fn set(&self, settings: &[Settings; 2]) -> Result<Nanos, FaultError> {
        let mut since = Nanos(0);
        for (direction, settings) in [Direction::There, Direction::Back].into_iter().zip(settings) {
            since = self
                .link
                .change(direction, settings.clone())
                .map_err(|error| self.refused("cannot change the link", error))?;
        }
        Ok(since)
    }

    fn counts(&self, way: usize) -> LinkCounts {
        let report = self.link.report();
        [report.there, report.back][way]
    }

    fn probe(&self, way: usize) -> io::Result<Probe> {
        Probe::new(&self.hosts[way], &self.hosts[1 - way])
    }

    /// How fast the line is seen to be, for a train that one of this rate takes.
    fn quickest(&self, way: usize, settings: &Settings, rate: u64, clock: &Clock) -> io::Result<f64> {
        let queue = self.before[way].queue.0.min(self.during[way].queue.0);
        let train = Train::for_line(rate, queue);
        let least = settings.delay.0.saturating_sub(settings.jitter.0);
        // Behind what the experiment itself has in the queue.
        let wait = longest(settings) + train.time(rate) * 2;
        let follow = train.time(rate) + settings.jitter.0 * 4 + LATE / 5;
        self.probe(way)?.quickest(clock, TRAINS, train, least, [wait, follow])
    }

    /// What is seen before the change, where that has to be known to tell the change from it.
    fn look_before(&self, way: usize, clock: &Clock) -> io::Result<Quick> {
        let (before, during) = (&self.before[way], &self.during[way]);
        let mut quick = Quick { line: None, least: None };
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
                let enough = |seen: &Seen| Ok(seen.least().is_some_and(|least| (least as f64) < soon));
                let seen =
                    self.probe(way)?.flood(clock, PACKETS_MIN, None, longest(before), deadline, enough)?;
                quick.least = quick.least.into_iter().chain(seen.least()).min();
                if quick.least.is_none_or(|least| (least as f64) < soon) {
                    break;
                }
            }
        }
        Ok(quick)
    }

    /// Probes one direction until the change from the one to the other was seen, all of it; `Err` says what was
    /// seen instead.
    fn look(&self, way: usize, quick: &Quick, clock: &Clock) -> io::Result<Result<String, String>> {
        let (before, during) = (&self.before[way], &self.during[way]);
        if during == before {
            return Ok(Ok(String::new()));
        }
        let (adds, lessens) = (adds(before, during), adds(during, before));
        if !adds && !lessens {
            return Ok(Err("what changes does not show on probe packets by itself".into()));
        }
        let mut told = String::new();
        if adds {
            match self.look_for(way, before, during, quick, clock)? {
                Ok(seen) => told = seen,
                Err(seen) => return Ok(Err(seen)),
            }
        }
        if lessens {
            match self.look_quiet(way, before, during, clock)? {
                Ok(seen) if told.is_empty() => told = seen,
                Ok(seen) => told = format!("{told}; {seen}"),
                Err(seen) => return Ok(Err(format!("still {seen}"))),
            }
        }
        Ok(Ok(told))
    }

    /// The same of the way back to what was before.
    fn look_back(&self, way: usize, clock: &Clock) -> io::Result<Result<String, String>> {
        let (before, during) = (&self.before[way], &self.during[way]);
        let mut told = String::new();
        if adds(before, during) {
            match self.look_quiet(way, during, before, clock)? {
                Ok(seen) => told = seen,
                Err(seen) => return Ok(Err(seen)),
            }
        }
        if adds(during, before) {
            let quick = Quick { line: None, least: None };
            match self.look_for(way, during, before, &quick, clock)? {
                Ok(seen) if told.is_empty() => told = seen,
                Ok(seen) => told = format!("{told}; {seen}"),
                Err(seen) => return Ok(Err(seen)),
            }
        }
        Ok(Ok(told))
    }

    /// Probes until every trouble was seen that `during` has more of than `before`.
    fn look_for(
        &self,
        way: usize,
        before: &Settings,
        during: &Settings,
        quick: &Quick,
        clock: &Clock,
    ) -> io::Result<Result<String, String>> {
        if packets(before, during, EXPECTED_LEAST) > PACKETS_MAX {
            return Ok(Err(format!(
                "{} is too rare, or changes too little, to be seen on {PACKETS_MAX} probe packets",
                hardest(before, during)
            )));
        }
        if let Some(least) = quick.least.filter(|least| *least as f64 >= between(before, during)) {
            return Ok(Err(format!(
                "a delay of {} cannot be told from the {:.3} ms that packets took before",
                during.delay,
                least as f64 / 1e6
            )));
        }
        let blur = DELAY_LEAST.max(before.jitter.0.max(during.jitter.0) / 4);
        if later(before, during) && during.delay.0 - before.delay.0 < blur {
            let (was, is) = (before.delay, during.delay);
            return Ok(Err(format!("a delay of {is} cannot be told from one of {was}")));
        }
        let packets = packets(before, during, EXPECTED).min(PACKETS_MAX);
        let start = self.counts(way);
        // What the link counts says which of two troubles a missing packet met, where it counts.
        let missing = |seen: &Seen| {
            let mut missing = missing(before, during, seen);
            let lost = || self.counts(way).since(&start).lost;
            if during.loss_share() > before.loss_share() && self.link.counts() && lost() == 0 {
                missing.push("loss");
            }
            missing.dedup();
            missing
        };
        let deadline = clock.now().after(PATIENCE);
        let enough = |seen: &Seen| Ok(missing(seen).is_empty());
        let seen =
            self.probe(way)?.flood(clock, packets, during.rate_bits(), longest(during), deadline, enough)?;
        let absent = missing(&seen);
        if !absent.is_empty() {
            return Ok(Err(format!("no {} on {seen}", absent.join(", no "))));
        }
        let (Some(rate), Some(quick)) = (slower(before, during), quick.line) else {
            return Ok(Ok(seen.to_string()));
        };
        let now = self.quickest(way, during, rate, clock)?;
        let line = format!("trains of packets at {:.3} Mb/s, before at {:.3} Mb/s", now / 1e6, quick / 1e6);
        match now > 0.0 && now <= rate as f64 * RATE_SLACK && quick > rate as f64 * RATE_GONE {
            true => Ok(Ok(format!("{seen}; {line}"))),
            false => Ok(Err(format!("no line of {:.3} Mb/s on {line}", rate as f64 / 1e6))),
        }
    }

    /// Probes until nothing is seen any more of what `was` has more of than `now`.
    fn look_quiet(
        &self,
        way: usize,
        was: &Settings,
        now: &Settings,
        clock: &Clock,
    ) -> io::Result<Result<String, String>> {
        // What waits in front of a slow line is sent first, at its rate.
        let queued = was.rate_bits().map_or(0.0, |rate| was.queue.0 as f64 * 8.0 / rate as f64);
        let deadline = clock.now().after(PATIENCE + Duration::from_secs_f64(queued.min(60.0)) + was.delay.0);
        let packets = packets(now, was, EXPECTED_GONE).min(PACKETS_MAX);
        loop {
            let start = self.counts(way);
            // Trouble ends a look early, and then there is another one: a packet that was on its way when the
            // fault ended counts as the fault's.
            let hurts = |seen: &Seen| still(now, was, seen, packets);
            let wait = longest(now);
            let seen = self
                .probe(way)?
                .flood(clock, packets, now.rate_bits(), wait, deadline, |seen| Ok(!hurts(seen).is_empty()))?;
            let carried = self.counts(way).since(&start);
            let mut present = hurts(&seen);
            if now.loss_share() == 0.0 && carried.lost > 0 {
                present.push("loss");
            }
            // What comes much too late waits behind a slow line still.
            let whole = now.loss_share() + now.corrupt == 0.0 && carried.queue_full == 0;
            if whole && seen.missing * 20 > seen.known {
                present.push("missing packets");
            }
            let mut told = seen.to_string();
            if let (true, Some(rate)) = (present.is_empty(), slower(now, was)) {
                let line = self.quickest(way, now, rate, clock)?;
                told = format!("{told}; trains of packets at {:.3} Mb/s", line / 1e6);
                if line <= rate as f64 * RATE_GONE {
                    present.push("slow line");
                }
            }
            if present.is_empty() && seen.known >= packets {
                return Ok(Ok(told));
            }
            if clock.now() >= deadline {
                return Ok(Err(format!("{} on {told}", present.join(", "))));
            }
        }
    }

    fn both(
        &self,
        mut look: impl FnMut(usize) -> io::Result<Result<String, String>>,
    ) -> Result<Result<String, String>, FaultError> {
        let mut told = Vec::new();
        for (way, name) in ["there", "back"].iter().enumerate() {
            match look(way).map_err(|error| self.refused("cannot probe the link", error))? {
                Ok(seen) if seen.is_empty() => {}
                Ok(seen) => told.push(format!("{name}: {seen}")),
                Err(seen) => return Ok(Err(format!("{name}: {seen}"))),
            }
        }
        Ok(Ok(told.join("; ")))
    }
}

impl Fault for LinkChange {
    fn describe(&self) -> String {
        format!("link {} changed", self.link.name())
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        if self.injected {
            return Err(FaultError::Misuse { fault: self.describe(), what: "it is injected already" });
        }
        if self.during == self.before {
            let seen = "these are the settings that the link has already".to_string();
            return Err(FaultError::NotShown { fault: self.describe(), seen });
        }
        let before = |way| self.look_before(way, clock);
        let quick = [before(0), before(1)];
        let [there, back] =
            quick.map(|quick| quick.map_err(|error| self.refused("cannot probe the link", error)));
        let quick = [there?, back?];
        // From here on dropping it takes back what was set, one direction alone included.
        self.injected = true;
        let at = self.set(&self.during)?;
        match self.both(|way| self.look(way, &quick[way], clock))? {
            Ok(what) => Ok(Proof { at, seen: clock.now(), what, value: None }),
            Err(seen) => Err(FaultError::NotShown { fault: self.describe(), seen }),
        }
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        if !std::mem::take(&mut self.injected) {
            return Err(FaultError::Misuse { fault: self.describe(), what: "it was not injected" });
        }
        let at = self.set(&self.before)?;
        match self.both(|way| self.look_back(way, clock))? {
            Ok(what) => Ok(Proof { at, seen: clock.now(), what, value: None }),
            Err(seen) => Err(FaultError::NotGone { fault: self.describe(), seen }),
        }
    }
}

impl Drop for LinkChange {
    fn drop(&mut self) {
        if self.injected {
            let _ = self.set(&self.before);
        }
    }
}

/// What was seen of one direction before its settings changed.
struct Quick {
    /// Bits a second, if the line becomes slower.
    line: Option<f64>,
    /// Nanoseconds on the way of the quickest packet, if there is to be more delay.
    least: Option<u64>,
}

/// The rate of a line that has become slower, where that can be seen: of no line if nothing arrives.
fn slower(before: &Settings, during: &Settings) -> Option<u64> {
    let arrives = during.loss_share() < 1.0;
    arrives
        .then(|| during.rate_bits())
        .flatten()
        .filter(|rate| before.rate_bits().is_none_or(|before| *rate < before))
}

/// After so long a packet does not come any more.
fn longest(settings: &Settings) -> Duration {
    let queued = settings.rate_bits().map_or(0.0, |rate| settings.queue.0 as f64 * 8.0 / rate as f64);
    let held = if settings.reorder > 0.0 { settings.reorder_by.0 } else { Duration::ZERO };
    // A queue that never empties belongs to a load that fills it; a bound all the same.
    settings.delay.0 + settings.jitter.0 * 4 + held + LATE + Duration::from_secs_f64(queued.min(2.0))
}

/// Whether packets take longer.
fn later(before: &Settings, during: &Settings) -> bool {
    during.delay.0 > before.delay.0 && during.loss_share() < 1.0
}

/// Half way between two delays, in nanoseconds: what tells them apart.
fn between(before: &Settings, during: &Settings) -> f64 {
    f64::midpoint(during.delay.0.as_nanos() as f64, before.delay.0.as_nanos() as f64)
}

/// Whether there is more of a trouble that probe packets meet.
fn adds(before: &Settings, during: &Settings) -> bool {
    let more = shares(before, during).iter().any(|share| share.during > share.before);
    let times = during.delay.0 > before.delay.0 || during.jitter.0 > before.jitter.0;
    more || times || slower(before, during).is_some()
}

/// A trouble that meets a share of packets, and how many of them it meets independently of each other.
struct Share {
    what: &'static str,
    before: f64,
    during: f64,
    /// Losses in a burst count once.
    events: f64,
}

impl Share {
    /// Packets on which it is expected so many times if it is new; if there is more of it, packets on which the
    /// numbers before and during lie so far apart that half way between is 4.3 standard deviations from both.
    fn packets(&self, times: f64) -> f64 {
        let Share { before, during, events, .. } = *self;
        if before == 0.0 {
            return times / events;
        }
        let clumped = during / events;
        4.0 * 4.3f64.powi(2) * during * clumped / (during - before).powi(2)
    }

    /// Whether so many of `known` packets are more than `before`.
    fn shows(&self, hit: u64, known: u64, packets: u64) -> bool {
        match self.before == 0.0 {
            true => hit > 0,
            false => known >= packets && hit as f64 > f64::midpoint(self.before, self.during) * known as f64,
        }
    }
}

fn shares(before: &Settings, during: &Settings) -> [Share; 4] {
    let share = |what, before: f64, during: f64| Share { what, before, during, events: during };
    let lost = Share {
        events: during.loss_bursts.map_or(during.loss, |bursts| bursts.events()),
        ..share("loss", before.loss_share(), during.loss_share())
    };
    [
        lost,
        share("damaged packet", before.corrupt, during.corrupt),
        share("packet twice", before.duplicate, during.duplicate),
        share("packet overtaken", before.reorder, during.reorder),
    ]
}

/// Packets that it takes to see each trouble of which there is more; see [`Share::packets`].
fn packets(before: &Settings, during: &Settings, times: f64) -> u64 {
    let all = shares(before, during);
    let more = all.iter().filter(|share| share.during > share.before);
    more.map(|share| share.packets(times) as u64).fold(PACKETS_MIN, u64::max)
}

/// The trouble that takes the most packets, in words.
fn hardest(before: &Settings, during: &Settings) -> String {
    let all = shares(before, during);
    let more = all.iter().filter(|share| share.during > share.before);
    let most = more.max_by(|a, b| a.packets(EXPECTED).total_cmp(&b.packets(EXPECTED)));
    most.map_or(String::new(), |share| match share.before {
        0.0 => format!("{} at a share of {}", share.what, share.during),
        before => format!("{} at a share of {} in place of {before}", share.what, share.during),
    })
}

/// What the settings name and was not seen yet.
fn missing(before: &Settings, during: &Settings, seen: &Seen) -> Vec<&'static str> {
    let mut missing = Vec::new();
    if during.loss_share() >= 1.0 {
        // Nothing arrives that could show more.
        return if seen.missing >= PACKETS_MIN && seen.arrived() == 0 {
            missing
        } else {
            vec!["loss of all"]
        };
    }
    let delay = during.delay.0.as_nanos() as f64;
    let timed = seen.arrived() >= TIMED_MIN;
    let time = |share: f64| seen.time(share).map_or(0.0, |time| time as f64);
    if during.delay.0 > before.delay.0 && !(timed && time(0.5) >= (delay * 0.9).max(between(before, during)))
    {
        missing.push("delay");
    }
    // Packets that keep their order under jitter come late together rather than apart.
    let jitter = during.jitter.0.as_nanos() as f64;
    let apart = time(0.9) - time(0.1) >= jitter / 4.0 || time(0.5) >= delay + jitter / 2.0;
    if during.jitter.0 > before.jitter.0 && !(timed && apart) {
        missing.push("jitter");
    }
    // A trouble of which there is no more than before proves nothing.
    let needed = packets(before, during, EXPECTED).min(PACKETS_MAX);
    let hits = [seen.missing, seen.damaged, seen.twice, seen.overtaken];
    for (share, hit) in shares(before, during).iter().zip(hits) {
        if share.during > share.before && !share.shows(hit, seen.known, needed) {
            missing.push(share.what);
        }
    }
    missing
}

/// What is still to be seen of settings that are over, on up to `packets` packets.
fn still(before: &Settings, during: &Settings, seen: &Seen, packets: u64) -> Vec<&'static str> {
    let mut still = Vec::new();
    let timed = seen.arrived() >= TIMED_MIN;
    let time = |share: f64| seen.time(share).map_or(0.0, |time| time as f64);
    if during.delay.0 > before.delay.0 && timed && time(0.0) > between(before, during) {
        still.push("delay");
    }
    // The middle half of packets lies about as far apart as the jitter is long, whatever its shape.
    let apart = f64::midpoint(before.jitter.0.as_nanos() as f64, during.jitter.0.as_nanos() as f64);
    if during.jitter.0 > before.jitter.0 && timed && time(0.75) - time(0.25) > apart.max(JITTER_LEAST) {
        still.push("jitter");
    }
    // Less than half of what would be expected is none of it.
    let mut share = |what, seen: u64, before: f64, during: f64| {
        if during > before && seen as f64 > (f64::midpoint(during, before) * packets as f64).max(1.0) {
            still.push(what);
        }
    };
    share("loss", seen.missing, before.loss_share(), during.loss_share());
    share("damaged packets", seen.damaged, before.corrupt, during.corrupt);
    share("packets twice", seen.twice, before.duplicate, during.duplicate);
    share("packets overtaken", seen.overtaken, before.reorder, during.reorder);
    still
}
