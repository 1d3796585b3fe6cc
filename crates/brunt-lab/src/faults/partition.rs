//! Two hosts that cannot reach each other for a while, over any path, while both reach all others: a network
//! partition. Each packet between them is stopped by the first link that it takes.
//!
//! The rule: proven by probe packets between the two hosts, both ways: they pass before, none passes during, and they
//! pass again afterwards.

use std::time::Duration;

use brunt_core::{Clock, Nanos};

use super::link::look::{PATIENCE, Unseen};
use super::link::probe::{Probe, Seen};
use super::link::signs::{PACKETS_MIN, TIMED_MIN};
use crate::link::{Direction, LinkError, Pair};
use crate::{Fault, FaultError, Host, LinkHandle, Proof};

/// The link by which packets of one host to the other leave, and how long they are under way at the most.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) link: LinkHandle,
    pub(crate) direction: Direction,
    pub(crate) longest: Duration,
}

/// Keeps two hosts apart.
#[derive(Debug)]
pub struct Partition {
    hosts: [Host; 2],
    /// From the first host, and from the second.
    leaving: [Leaving; 2],
    injected: bool,
}

impl Partition {
    pub(crate) fn new(hosts: [Host; 2], leaving: [Leaving; 2]) -> Partition {
        Partition { hosts, leaving, injected: false }
    }

    fn refused(&self, what: &str, source: std::io::Error) -> FaultError {
        FaultError::Refused { fault: self.describe(), what: what.into(), source, advice: None }
    }

    fn pair(&self, from: usize) -> Pair {
        Pair { from: self.hosts[from].address(), to: self.hosts[1 - from].address() }
    }

    fn part(&self) -> Result<Nanos, LinkError> {
        let mut since = Nanos(0);
        for (from, leaving) in self.leaving.iter().enumerate() {
            since = leaving.link.part(leaving.direction, self.pair(from))?;
        }
        Ok(since)
    }

    fn join(&self) -> Result<Nanos, LinkError> {
        let mut since = Nanos(0);
        for (from, leaving) in self.leaving.iter().enumerate() {
            since = leaving.link.join(leaving.direction, self.pair(from))?;
        }
        Ok(since)
    }

    fn stopped(&self, from: usize) -> u64 {
        let report = self.leaving[from].link.report();
        [report.there, report.back][self.leaving[from].direction as usize].parted
    }

    /// Probes from one host to the other until packets arrive.
    fn passes(&self, from: usize, clock: &Clock) -> Result<Seen, Unseen> {
        let probe = Probe::new(&self.hosts[from], &self.hosts[1 - from], false)?;
        let deadline = clock.now().after(PATIENCE);
        let enough = |seen: &Seen| Ok(seen.arrived() >= TIMED_MIN);
        // Whatever else the links do to packets, some arrive; slow lines are not flooded for it.
        let longest = self.leaving[from].longest;
        let mut seen = Seen::default();
        while seen.arrived() < TIMED_MIN {
            if clock.now() >= deadline {
                return Err(Unseen::Stopped { seen });
            }
            seen = probe.flood(clock, PACKETS_MIN, None, longest, deadline, enough)?;
        }
        Ok(seen)
    }

    /// Probes from one host to the other: nothing may arrive.
    fn stops(&self, from: usize, clock: &Clock) -> Result<Seen, Unseen> {
        let probe = Probe::new(&self.hosts[from], &self.hosts[1 - from], false)?;
        let before = self.stopped(from);
        let deadline = clock.now().after(PATIENCE + self.leaving[from].longest);
        let arrived = |seen: &Seen| Ok(seen.arrived() > 0);
        let longest = self.leaving[from].longest;
        let seen = probe.flood(clock, PACKETS_MIN, None, longest, deadline, arrived)?;
        match seen.arrived() == 0 && seen.missing >= PACKETS_MIN && self.stopped(from) > before {
            true => Ok(seen),
            false => Err(Unseen::Passes { seen }),
        }
    }

    /// Looks from both hosts; what was seen, or what was not.
    fn both(
        &self,
        look: impl Fn(usize) -> Result<Seen, Unseen>,
        unseen: impl Fn(String) -> FaultError,
    ) -> Result<String, FaultError> {
        let mut told = Vec::new();
        for from in 0..2 {
            let way = format!("from {} to {}", self.hosts[from].name(), self.hosts[1 - from].name());
            match look(from) {
                Ok(seen) => told.push(format!("{way}: {seen}")),
                Err(Unseen::Probe(error)) => return Err(self.refused("cannot probe the path", error)),
                Err(seen) => return Err(unseen(format!("{way}: {seen}"))),
            }
        }
        Ok(told.join("; "))
    }
}

impl Fault for Partition {
    fn describe(&self) -> String {
        format!("partition between {} and {}", self.hosts[0].name(), self.hosts[1].name())
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        if self.injected {
            return Err(FaultError::Misuse { fault: self.describe(), what: "it is injected already" });
        }
        let not_shown = |seen| FaultError::NotShown { fault: self.describe(), seen };
        self.both(|from| self.passes(from, clock), not_shown)?;
        // From here on dropping it joins them again, one direction alone included.
        self.injected = true;
        let at = self
            .part()
            .map_err(|error| self.refused("cannot part the hosts", std::io::Error::other(error)))?;
        let not_shown = |seen| FaultError::NotShown { fault: self.describe(), seen };
        let what = self.both(|from| self.stops(from, clock), not_shown)?;
        Ok(Proof { at, seen: clock.now(), what, value: None })
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        if !std::mem::take(&mut self.injected) {
            return Err(FaultError::Misuse { fault: self.describe(), what: "it was not injected" });
        }
        let at = self
            .join()
            .map_err(|error| self.refused("cannot join the hosts", std::io::Error::other(error)))?;
        let not_gone = |seen| FaultError::NotGone { fault: self.describe(), seen };
        let what = self.both(|from| self.passes(from, clock), not_gone)?;
        Ok(Proof { at, seen: clock.now(), what, value: None })
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        if self.injected {
            let _ = self.join();
        }
    }
}
