//! A link that changes for a while: more delay, loss, a slower line. Shown by probe packets of its own
//! between the two hosts: what arrives late, not at all, twice or out of turn.
//!
//! The rule: a delay has to be seen on the packets of a probe; what happens to single packets, by the
//! link's counts of what it did to them and to other traffic, because on a busy machine a probe packet
//! may be missing for other reasons. When it is over, neither may be seen any more.

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use crate::link::{Counts, Direction, Settings};
use crate::{Fault, FaultError, Host, LinkHandle, Proof};

/// Packets of one round of a probe.
const ROUND: u64 = 64;
/// Rounds until a trouble has to have been seen: enough for one packet in a thousand, to one in 10^5.
const ROUNDS_MAX: u64 = 200;
/// Rounds without trouble that show that it is over.
const ROUNDS_QUIET: u64 = 4;
/// Bytes of a probe packet; with its headers 1434.
const PROBE_BYTES: usize = 1392;
/// A packet may be late by so much without a delay having been set; a busy machine is.
const LATE: Duration = Duration::from_millis(100);

/// Other settings of a link, for both directions, and back to those it had.
pub struct LinkChange {
    link: LinkHandle,
    hosts: [Host; 2],
    before: [Settings; 2],
    during: [Settings; 2],
    injected: bool,
}

/// What a probe saw in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    sent: u64,
    missing: u64,
    twice: u64,
    overtaken: u64,
    /// Least and median time on the way, in nanoseconds.
    least: u64,
    median: u64,
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

    /// Probes one direction until what `settings` name was seen; `Err` says what was seen instead.
    fn look(&self, way: usize, clock: &Clock) -> io::Result<Result<String, String>> {
        let settings = &self.during[way];
        if settings == &self.before[way] {
            return Ok(Ok(String::new()));
        }
        let start = self.counts(way);
        let mut all = Seen::default();
        let mut probe = Probe::new(&self.hosts[way], &self.hosts[1 - way])?;
        for round in 1..=ROUNDS_MAX {
            let wait = settings.delay.0 + settings.jitter.0 * 4 + settings.reorder_by.0 + LATE;
            all.add(probe.round(clock, wait)?);
            let carried = self.counts(way).since(&start);
            let missing = missing(settings, &self.before[way], &all, &carried);
            if missing.is_empty() {
                return Ok(Ok(all.to_string()));
            }
            if round == ROUNDS_MAX {
                return Ok(Err(format!("no {} on {all}", missing.join(", no "))));
            }
        }
        unreachable!("the last round returns")
    }

    /// Probes one direction until it is as before.
    fn look_quiet(&self, way: usize, clock: &Clock) -> io::Result<Result<String, String>> {
        let (settings, during) = (&self.before[way], &self.during[way]);
        if settings == during {
            return Ok(Ok(String::new()));
        }
        let mut probe = Probe::new(&self.hosts[way], &self.hosts[1 - way])?;
        let wait = settings.delay.0 + settings.jitter.0 * 4 + settings.reorder_by.0 + LATE;
        let mut quiet = 0;
        let mut all = Seen::default();
        for _ in 0..ROUNDS_MAX {
            let start = self.counts(way);
            let seen = probe.round(clock, wait)?;
            let carried = self.counts(way).since(&start);
            let lossless = settings.loss_share() + settings.corrupt == 0.0;
            let single = settings.duplicate == 0.0;
            let slow = during.delay.0 > settings.delay.0
                && u128::from(seen.least) >= during.delay.0.as_nanos().max(1) + during.jitter.0.as_nanos();
            let lost = carried.lost + carried.corrupted;
            let still = (lossless && lost > 0) || (single && carried.duplicated > 0) || slow;
            // A packet that was on its way when the fault ended counts as the fault's.
            quiet = if still { 0 } else { quiet + 1 };
            all = seen;
            if quiet == ROUNDS_QUIET {
                return Ok(Ok(all.to_string()));
            }
        }
        Ok(Err(all.to_string()))
    }

    fn both(
        &self,
        look: impl Fn(usize) -> io::Result<Result<String, String>>,
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
        let at = self.set(&self.during)?;
        self.injected = true;
        match self.both(|way| self.look(way, clock))? {
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

/// What the settings name and was not seen yet.
fn missing(settings: &Settings, before: &Settings, seen: &Seen, carried: &Counts) -> Vec<&'static str> {
    let mut missing = Vec::new();
    // Less delay than before is not a trouble that could be seen on the least delay.
    if settings.delay.0 > before.delay.0 && u128::from(seen.median) < settings.delay.0.as_nanos() * 9 / 10 {
        missing.push("delay");
    }
    let lossy = settings.loss_share() + settings.corrupt > 0.0;
    // A probe packet may be missing because the machine is busy; what the link lost, it lost.
    if lossy && carried.lost + carried.corrupted == 0 {
        missing.push("loss");
    }
    if settings.duplicate > 0.0 && seen.twice == 0 && carried.duplicated == 0 {
        missing.push("packet twice");
    }
    if settings.reorder > 0.0 && seen.overtaken == 0 && carried.held == 0 {
        missing.push("packet overtaken");
    }
    missing
}

impl Seen {
    fn add(&mut self, round: Seen) {
        self.sent += round.sent;
        self.missing += round.missing;
        self.twice += round.twice;
        self.overtaken += round.overtaken;
        (self.least, self.median) = (round.least, round.median);
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Seen { sent, missing, twice, overtaken, median, .. } = self;
        write!(f, "{sent} probe packets, {missing} missing, {twice} twice, {overtaken} overtaken, ")?;
        write!(f, "{:.3} ms on the way", *median as f64 / 1e6)
    }
}

/// A pair of sockets that sends packets one way.
struct Probe {
    from: UdpSocket,
    to: UdpSocket,
    next: u64,
}

impl Probe {
    fn new(from: &Host, to: &Host) -> io::Result<Probe> {
        let open = |host: &Host| host.run(|| UdpSocket::bind((host.address(), 0)));
        let (from, to) = (open(from)?, open(to)?);
        from.connect(to.local_addr()?)?;
        to.connect(from.local_addr()?)?;
        Ok(Probe { from, to, next: 0 })
    }

    /// Sends a round and takes what arrives of it within `wait` after the last.
    fn round(&mut self, clock: &Clock, wait: Duration) -> io::Result<Seen> {
        let first = self.next;
        let mut packet = [0u8; PROBE_BYTES];
        for number in first..first + ROUND {
            packet[..8].copy_from_slice(&number.to_le_bytes());
            packet[8..16].copy_from_slice(&clock.now().0.to_le_bytes());
            self.from.send(&packet)?;
        }
        self.next += ROUND;
        let sent = clock.now();
        let mut times = Vec::new();
        let mut arrived = [0u8; ROUND as usize];
        let mut seen = Seen { sent: ROUND, ..Seen::default() };
        let mut latest = None;
        loop {
            let left = wait.saturating_sub(clock.now().since(sent));
            let all = arrived.iter().all(|count| *count > 0);
            if left.is_zero() || all {
                break;
            }
            self.to.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match self.to.recv(&mut packet) {
                Ok(PROBE_BYTES) => {}
                Ok(_) => continue,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let word = |at: usize| u64::from_le_bytes(packet[at..at + 8].try_into().expect("eight bytes"));
            // A late one of an earlier round was counted as missing then.
            let Some(index) = word(0).checked_sub(first).filter(|index| *index < ROUND) else { continue };
            times.push(clock.now().0.saturating_sub(word(8)));
            arrived[index as usize] = arrived[index as usize].saturating_add(1);
            seen.overtaken += u64::from(latest.is_some_and(|latest| index < latest));
            latest = latest.max(Some(index));
        }
        seen.missing = arrived.iter().filter(|count| **count == 0).count() as u64;
        seen.twice = arrived.iter().filter(|count| **count > 1).count() as u64;
        times.sort_unstable();
        seen.least = times.first().copied().unwrap_or(u64::MAX);
        seen.median = times.get(times.len() / 2).copied().unwrap_or(u64::MAX);
        Ok(seen)
    }
}
