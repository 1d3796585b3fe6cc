//! A link that changes for a while: more delay, loss, a slower line. Shown by probe packets of its own
//! between the two hosts: what arrives late, not at all, damaged, twice, out of turn, or slowly.
//!
//! The rule: everything that the new settings say has to be seen at the receiving host; and when it is
//! over, nothing of it may be seen any more, on so many packets that it would have been.

mod probe;

use std::io;
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use crate::link::{Counts, Direction, Settings};
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
/// Trains that show how fast a line is.
const TRAINS: u32 = 4;
/// How often it is looked whether probes are quicker than it will be.
const LOOKS_BEFORE: u32 = 8;
/// A line is seen to be slower than this times its rate (clocks and looks are not exact) ...
const RATE_SLACK: f64 = 1.1;
/// ... and not to be so slow any more when it is faster than this times it.
const RATE_GONE: f64 = 1.3;
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

    fn counts(&self, way: usize) -> Counts {
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

    /// How fast the line is before it becomes slower, where it does.
    fn look_before(&self, way: usize, clock: &Clock) -> io::Result<Option<f64>> {
        let Some(rate) = slower(&self.before[way], &self.during[way]) else { return Ok(None) };
        let mut quick = 0.0f64;
        // A busy machine is slow now and then, too.
        for _ in 0..LOOKS_BEFORE {
            quick = quick.max(self.quickest(way, &self.before[way], rate, clock)?);
            if quick > rate as f64 * RATE_GONE {
                break;
            }
        }
        Ok(Some(quick))
    }

    /// Probes one direction until what its settings name was seen; `Err` says what was seen instead.
    fn look(&self, way: usize, quick: Option<f64>, clock: &Clock) -> io::Result<Result<String, String>> {
        let (before, during) = (&self.before[way], &self.during[way]);
        if during == before {
            return Ok(Ok(String::new()));
        }
        let share = rarest(before, during);
        if share * (PACKETS_MAX as f64) < EXPECTED_LEAST {
            return Ok(Err(format!(
                "a share of {share} is too rare to be seen on {PACKETS_MAX} probe packets"
            )));
        }
        let start = self.counts(way);
        // What the link counts says which of two troubles a missing packet met, where it counts.
        let carried =
            |seen: &Seen| self.link.counts().then(|| (self.counts(way).since(&start), seen.missing));
        let missing = |seen: &Seen| {
            let mut missing = missing(before, during, seen);
            if carried(seen).is_some_and(|(counts, _)| during.loss_share() > 0.0 && counts.lost == 0) {
                missing.push("loss");
            }
            missing.dedup();
            missing
        };
        let deadline = clock.now().after(PATIENCE);
        let packets = packets(before, during, EXPECTED);
        let enough = |seen: &Seen| Ok(missing(seen).is_empty());
        let seen =
            self.probe(way)?.flood(clock, packets, during.rate_bits(), longest(during), deadline, enough)?;
        let absent = missing(&seen);
        if !absent.is_empty() {
            return Ok(Err(format!("no {} on {seen}", absent.join(", no "))));
        }
        let (Some(rate), Some(quick)) = (slower(before, during), quick) else {
            return Ok(Ok(seen.to_string()));
        };
        let now = self.quickest(way, during, rate, clock)?;
        let line = format!("trains of packets at {:.3} Mb/s, before at {:.3} Mb/s", now / 1e6, quick / 1e6);
        match now > 0.0 && now <= rate as f64 * RATE_SLACK && quick > rate as f64 * RATE_GONE {
            true => Ok(Ok(format!("{seen}; {line}"))),
            false => Ok(Err(format!("no line of {:.3} Mb/s on {line}", rate as f64 / 1e6))),
        }
    }

    /// Probes one direction until it is as before.
    fn look_quiet(&self, way: usize, clock: &Clock) -> io::Result<Result<String, String>> {
        let (before, during) = (&self.before[way], &self.during[way]);
        if before == during {
            return Ok(Ok(String::new()));
        }
        // What waits in front of a slow line is sent first, at its rate.
        let queued = during.rate_bits().map_or(0.0, |rate| during.queue.0 as f64 * 8.0 / rate as f64);
        let deadline =
            clock.now().after(PATIENCE + Duration::from_secs_f64(queued.min(60.0)) + during.delay.0);
        let packets = packets(before, during, EXPECTED_GONE);
        loop {
            let start = self.counts(way);
            // Trouble ends a look early, and then there is another one: a packet that was on its way when the
            // fault ended counts as the fault's.
            let hurts = |seen: &Seen| still(before, during, seen, packets);
            let wait = longest(before);
            let seen =
                self.probe(way)?.flood(clock, packets, before.rate_bits(), wait, deadline, |seen| {
                    Ok(!hurts(seen).is_empty())
                })?;
            let carried = self.counts(way).since(&start);
            let mut present = hurts(&seen);
            if before.loss_share() == 0.0 && carried.lost > 0 {
                present.push("loss");
            }
            // What comes much too late waits behind a slow line still.
            let whole = before.loss_share() + before.corrupt == 0.0 && carried.queue_full == 0;
            if whole && seen.missing * 20 > seen.known {
                present.push("missing packets");
            }
            let mut told = seen.to_string();
            if let (true, Some(rate)) = (present.is_empty(), slower(before, during)) {
                let now = self.quickest(way, before, rate, clock)?;
                told = format!("{told}; trains of packets at {:.3} Mb/s", now / 1e6);
                if now <= rate as f64 * RATE_GONE {
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
        let before = |way| self.look_before(way, clock);
        let quick = [before(0), before(1)];
        let [there, back] =
            quick.map(|quick| quick.map_err(|error| self.refused("cannot probe the link", error)));
        let quick = [there?, back?];
        // From here on dropping it takes back what was set, one direction alone included.
        self.injected = true;
        let at = self.set(&self.during)?;
        match self.both(|way| self.look(way, quick[way], clock))? {
            Ok(what) => Ok(Proof { at, seen: clock.now(), what, value: None }),
            Err(seen) => Err(FaultError::NotShown { fault: self.describe(), seen }),
        }
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        if !std::mem::take(&mut self.injected) {
            return Err(FaultError::Misuse { fault: self.describe(), what: "it was not injected" });
        }
        let at = self.set(&self.before)?;
        match self.both(|way| self.look_quiet(way, clock))? {
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

/// The smallest share of packets that anything new meets; 1 where nothing does.
fn rarest(before: &Settings, during: &Settings) -> f64 {
    let shares =
        |settings: &Settings| [settings.loss_share(), settings.corrupt, settings.duplicate, settings.reorder];
    let more = shares(during).into_iter().zip(shares(before)).filter(|(during, before)| during > before);
    more.map(|(during, _)| during).fold(1.0, f64::min)
}

/// Packets on which each trouble is expected so many times.
fn packets(before: &Settings, during: &Settings, times: f64) -> u64 {
    ((times / rarest(before, during)) as u64).clamp(PACKETS_MIN, PACKETS_MAX)
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
    if during.delay.0 > before.delay.0 && !(timed && time(0.5) >= delay * 0.9) {
        missing.push("delay");
    }
    let between = f64::midpoint(delay, before.delay.0.as_nanos() as f64);
    if during.delay.0 < before.delay.0 && !(timed && time(0.0) < between) {
        missing.push("shorter delay");
    }
    // Packets that keep their order under jitter come late together rather than apart.
    let jitter = during.jitter.0.as_nanos() as f64;
    let apart = time(0.9) - time(0.1) >= jitter / 4.0 || time(0.5) >= delay + jitter / 2.0;
    if during.jitter.0 > before.jitter.0 && !(timed && apart) {
        missing.push("jitter");
    }
    if during.loss_share() > 0.0 && seen.missing == 0 {
        missing.push("loss");
    }
    if during.corrupt > 0.0 && seen.damaged == 0 {
        missing.push("damaged packet");
    }
    if during.duplicate > 0.0 && seen.twice == 0 {
        missing.push("packet twice");
    }
    if during.reorder > 0.0 && seen.overtaken == 0 {
        missing.push("packet overtaken");
    }
    missing
}

/// What is still to be seen of settings that are over, on up to `packets` packets.
fn still(before: &Settings, during: &Settings, seen: &Seen, packets: u64) -> Vec<&'static str> {
    let mut still = Vec::new();
    let delay = during.delay.0.as_nanos() as f64;
    let between = f64::midpoint(delay, before.delay.0.as_nanos() as f64);
    let least = seen.time(0.0).map_or(0.0, |time| time as f64);
    if during.delay.0 > before.delay.0 && seen.arrived() >= TIMED_MIN && least > between {
        still.push("delay");
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
