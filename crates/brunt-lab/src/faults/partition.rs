//! A network partition: for a while, some hosts cannot reach each other over any path, while all others can. It
//! separates two hosts, or every host of one group from every host of another. Every packet between them is dropped
//! by the first link on its path.
//!
//! The rule: the proof is probe packets between every pair of hosts, in both directions, counted where they are sent
//! and where they would arrive: they pass before, none passes during the fault, and they pass again afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use super::link::check::{PATIENCE, Unseen};
use super::link::probe::{Probe, Seen};
use super::link::signs::{PACKETS_MIN, TIMED_MIN};
use crate::link::{Direction, HostPair, LinkError};
use crate::{Fault, FaultError, Host, LinkHandle, Proof};

/// The first link and direction on the path between two hosts, and the maximum travel time of a packet.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) link: LinkHandle,
    pub(crate) direction: Direction,
    pub(crate) longest: Duration,
}

/// The traffic from one host to another, which the fault stops.
#[derive(Debug)]
pub(crate) struct Course {
    pub(crate) from: Host,
    pub(crate) to: Host,
    pub(crate) leaving: Leaving,
}

/// Separates hosts.
#[derive(Debug)]
pub struct Partition {
    /// The names of the hosts on each side.
    sides: [Vec<String>; 2],
    /// From each host to each host on the other side, in both directions.
    courses: Vec<Course>,
    injected: bool,
    /// The value of [`Partition::stopped`] before the injection.
    stopped_before: u64,
}

impl Course {
    fn pair(&self) -> HostPair {
        HostPair {
            from: self.from.address(),
            to: self.to.address(),
        }
    }

    /// Packets between separated hosts that the first link on the path has dropped so far.
    fn stopped(&self) -> u64 {
        let report = self.leaving.link.report();
        [report.there, report.back][self.leaving.direction as usize].parted
    }

    /// Probes until packets arrive.
    fn passes(&self, clock: &Clock) -> Result<Seen, Unseen> {
        let probe = Probe::new(&self.from, &self.to, false)?;
        let deadline = clock.now().after(PATIENCE);
        let enough = |seen: &Seen| Ok(seen.arrived() >= TIMED_MIN);
        // Other impairments let some packets through, so small batches are enough and slow lines aren't flooded.
        let longest = self.leaving.longest;
        let mut seen = Seen::default();
        while seen.arrived() < TIMED_MIN {
            if clock.now() >= deadline {
                return Err(Unseen::Stopped { seen });
            }
            seen = probe.flood(clock, PACKETS_MIN, None, longest, deadline, enough)?;
        }
        Ok(seen)
    }

    /// Sends probes, none of which may arrive.
    fn stops(&self, clock: &Clock) -> Result<Seen, Unseen> {
        let probe = Probe::new(&self.from, &self.to, false)?;
        let before = self.stopped();
        let longest = self.leaving.longest;
        let deadline = clock.now().after(PATIENCE + longest);
        let arrived = |seen: &Seen| Ok(seen.arrived() > 0);
        let seen = probe.flood(clock, PACKETS_MIN, None, longest, deadline, arrived)?;
        match seen.arrived() == 0 && seen.missing >= PACKETS_MIN && self.stopped() > before {
            true => Ok(seen),
            false => Err(Unseen::Passes { seen }),
        }
    }
}

impl Partition {
    /// `courses`: from each host of a side to each host of the other, in both directions.
    pub(crate) fn new(sides: [Vec<String>; 2], courses: Vec<Course>) -> Partition {
        Partition {
            sides,
            courses,
            injected: false,
            stopped_before: 0,
        }
    }

    fn refused(&self, what: &str, source: std::io::Error) -> FaultError {
        FaultError::refused(self.describe(), what, source)
    }

    fn part(&self) -> Result<Nanos, LinkError> {
        let mut since = Nanos(0);
        for course in &self.courses {
            since = course
                .leaving
                .link
                .part(course.leaving.direction, course.pair())?;
        }
        Ok(since)
    }

    fn join(&self) -> Result<Nanos, LinkError> {
        let mut since = Nanos(0);
        for course in &self.courses {
            since = course
                .leaving
                .link
                .join(course.leaving.direction, course.pair())?;
        }
        Ok(since)
    }

    /// Packets dropped by the links so far, counting each link and direction once.
    fn stopped(&self) -> u64 {
        let key = |course: &Course| {
            (
                course.leaving.link.name().to_string(),
                course.leaving.direction as usize,
            )
        };
        let stopped: BTreeMap<_, _> = self
            .courses
            .iter()
            .map(|course| (key(course), course.stopped()))
            .collect();
        stopped.values().sum()
    }

    /// Checks all courses concurrently. Returns what was seen, or an error that names what was not seen.
    fn all(
        &self,
        look: impl Fn(&Course) -> Result<Seen, Unseen> + Sync,
        unseen: impl Fn(String) -> FaultError,
    ) -> Result<String, FaultError> {
        let looks: Vec<_> = std::thread::scope(|scope| {
            let look = &look;
            let threads: Vec<_> = self
                .courses
                .iter()
                .map(|course| scope.spawn(move || look(course)))
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        let mut shown = Vec::new();
        for (course, look) in self.courses.iter().zip(looks) {
            let way = format!("from {} to {}", course.from.name(), course.to.name());
            match look {
                Ok(seen) => shown.push(format!("{way}: {seen}")),
                Err(Unseen::Probe(error)) => {
                    return Err(self.refused("cannot probe the path", error));
                }
                Err(seen) => return Err(unseen(format!("{way}: {seen}"))),
            }
        }
        Ok(shown.join("; "))
    }
}

impl Fault for Partition {
    fn describe(&self) -> String {
        format!(
            "partition between {} and {}",
            self.sides[0].join(", "),
            self.sides[1].join(", ")
        )
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        if self.injected {
            return Err(FaultError::Misuse {
                fault: self.describe(),
                what: "it is already injected",
            });
        }
        let not_shown = |seen| FaultError::NotShown {
            fault: self.describe(),
            seen,
        };
        self.all(|course| course.passes(clock), not_shown)?;
        self.stopped_before = self.stopped();
        // From here on, dropping the fault reconnects the hosts, even if only one direction has been separated.
        self.injected = true;
        let at = self.part().map_err(|error| {
            self.refused("cannot separate the hosts", std::io::Error::other(error))
        })?;
        let not_shown = |seen| FaultError::NotShown {
            fault: self.describe(),
            seen,
        };
        let seen = self.all(|course| course.stops(clock), not_shown)?;
        let stopped = self.stopped() - self.stopped_before;
        let what = format!("{seen}; {stopped} packets stopped");
        Ok(Proof {
            at,
            seen: clock.now(),
            what,
            value: Some(stopped as f64),
        })
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        if !std::mem::take(&mut self.injected) {
            return Err(FaultError::Misuse {
                fault: self.describe(),
                what: "it is not injected",
            });
        }
        let at = self.join().map_err(|error| {
            self.refused("cannot reconnect the hosts", std::io::Error::other(error))
        })?;
        let not_gone = |seen| FaultError::NotGone {
            fault: self.describe(),
            seen,
        };
        let stopped = self.stopped() - self.stopped_before;
        let seen = self.all(|course| course.passes(clock), not_gone)?;
        let what = format!("{stopped} packets stopped; {seen}");
        Ok(Proof {
            at,
            seen: clock.now(),
            what,
            value: None,
        })
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        if self.injected {
            let _ = self.join();
        }
    }
}
