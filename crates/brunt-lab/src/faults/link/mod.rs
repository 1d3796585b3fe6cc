//! Changes a link's settings for a while: more delay, loss, a lower rate. The proof consists of separate probe packets
//! between the two hosts, which arrive late, damaged, marked, duplicated, out of order or slowly, or not at all.
//!
//! The rule: every new setting must be observed at the receiving host; afterwards no effect may be observed over a
//! number of packets large enough to show it.

pub(super) mod check;
mod close;
pub(super) mod probe;
pub(super) mod signs;

use brunt_core::{Clock, Nanos};

use crate::link::{Direction, Settings};
use crate::{Fault, FaultError, Host, LinkHandle, Proof};
use check::{LinkCheck, Quick, Unseen};
pub(crate) use signs::longest;

/// Both directions, in array order.
const DIRECTIONS: [Direction; 2] = [Direction::There, Direction::Back];

/// Changes the settings of a link, in one or both directions, and restores them.
pub struct LinkChange {
    link: LinkHandle,
    hosts: [Host; 2],
    before: [Settings; 2],
    during: [Settings; 2],
    /// The only direction that changes; the other must be seen to carry packets as before.
    only: Option<Direction>,
    injected: bool,
}

impl LinkChange {
    /// Changes the settings of the link between these hosts, which are in the link's own order.
    pub(crate) fn new(
        link: LinkHandle,
        hosts: [Host; 2],
        before: [Settings; 2],
        during: [Settings; 2],
    ) -> LinkChange {
        LinkChange {
            link,
            hosts,
            before,
            during,
            only: None,
            injected: false,
        }
    }

    /// Like [`LinkChange::new`], but changes a single direction.
    pub(crate) fn one_way(
        link: LinkHandle,
        hosts: [Host; 2],
        before: [Settings; 2],
        direction: Direction,
        during: Settings,
    ) -> LinkChange {
        let mut both = before.clone();
        both[direction as usize] = during;
        LinkChange {
            link,
            hosts,
            before,
            during: both,
            only: Some(direction),
            injected: false,
        }
    }

    fn refused(&self, what: &str, source: std::io::Error) -> FaultError {
        FaultError::refused(self.describe(), what, source)
    }

    fn set(&self, settings: &[Settings; 2]) -> Result<Nanos, FaultError> {
        let mut since = Nanos(0);
        for (direction, settings) in DIRECTIONS.into_iter().zip(settings) {
            since = self
                .link
                .change(direction, settings.clone())
                .map_err(|error| {
                    self.refused("cannot change the link", std::io::Error::other(error))
                })?;
        }
        Ok(since)
    }

    fn checks(&self) -> LinkCheck<'_> {
        LinkCheck {
            link: &self.link,
            hosts: &self.hosts,
            before: &self.before,
            during: &self.during,
        }
    }

    /// Checks both directions. Returns what was seen, or an error with the direction and what was not seen.
    fn both(
        &self,
        mut look: impl FnMut(usize) -> Result<String, Unseen>,
        unseen: impl Fn(String) -> FaultError,
    ) -> Result<String, FaultError> {
        let mut shown = Vec::new();
        for (way, name) in ["there", "back"].iter().enumerate() {
            match look(way) {
                Ok(seen) if seen.is_empty() => {}
                Ok(seen) => shown.push(format!("{name}: {seen}")),
                Err(Unseen::Probe(error)) => {
                    return Err(self.refused("cannot probe the link", error));
                }
                Err(seen) => return Err(unseen(format!("{name}: {seen}"))),
            }
        }
        Ok(shown.join("; "))
    }

    /// Whether this direction must not change.
    fn stays(&self, way: usize) -> bool {
        self.only.is_some_and(|only| only as usize != way)
    }
}

impl Fault for LinkChange {
    fn describe(&self) -> String {
        let Some(only) = self.only else {
            return format!("link {} changed", self.link.name());
        };
        let (from, to) = (&self.hosts[only as usize], &self.hosts[1 - only as usize]);
        let what = if self.during[only as usize].loss_share() >= 1.0 {
            "cut"
        } else {
            "changed"
        };
        format!(
            "link {} {what} from {} to {}",
            self.link.name(),
            from.name(),
            to.name()
        )
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        if self.injected {
            return Err(FaultError::Misuse {
                fault: self.describe(),
                what: "it is already injected",
            });
        }
        if self.during == self.before {
            let seen = "the link already has these settings".to_string();
            return Err(FaultError::NotShown {
                fault: self.describe(),
                seen,
            });
        }
        let before = |way| self.checks().before(way, clock);
        let quick: Result<Vec<Quick>, _> = [0, 1].into_iter().map(before).collect();
        let quick = quick.map_err(|error| self.refused("cannot probe the link", error))?;
        // From here on, dropping the fault restores the settings, even if only one direction was changed.
        self.injected = true;
        let at = self.set(&self.during)?;
        let look = |way: usize| match self.stays(way) {
            true => self.checks().for_passing(way, clock),
            false => self.checks().for_change(way, &quick[way], clock),
        };
        let what = self.both(look, |seen| FaultError::NotShown {
            fault: self.describe(),
            seen,
        })?;
        Ok(Proof {
            at,
            seen: clock.now(),
            what,
            value: None,
        })
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        if !std::mem::take(&mut self.injected) {
            return Err(FaultError::Misuse {
                fault: self.describe(),
                what: "it is not injected",
            });
        }
        let at = self.set(&self.before)?;
        let look = |way| self.checks().for_return(way, clock);
        let what = self.both(look, |seen| FaultError::NotGone {
            fault: self.describe(),
            seen,
        })?;
        Ok(Proof {
            at,
            seen: clock.now(),
            what,
            value: None,
        })
    }
}

impl Drop for LinkChange {
    fn drop(&mut self) {
        if self.injected {
            let _ = self.set(&self.before);
        }
    }
}
