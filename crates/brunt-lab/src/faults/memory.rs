//! Memory hog: allocates, fills and locks a given amount of memory, so that the system cannot use it for anything else,
//! including its caches.
//!
//! The rule: the proof is the amount that the kernel reports as locked (`VmLck`). A request that would exhaust the
//! machine's memory is rejected.

use std::io;

use brunt_core::{Clock, Size};
use brunt_probe::limits::Cgroups;

use crate::helper::MemoryHelper;
use crate::{Fault, FaultError, Proof};

/// Memory that must stay available, in bytes: with less, the kernel starts killing processes.
const LEFT_BYTES_MIN: u64 = 256 << 20;

/// Locks memory in a separate process. The program has to call [`crate::helper::serve_if_asked`].
pub struct MemoryHog {
    bytes: u64,
    helper: Option<MemoryHelper>,
}

impl MemoryHog {
    /// Locks `bytes`, which the kernel rounds up to whole pages.
    pub fn new(bytes: u64) -> MemoryHog {
        MemoryHog {
            bytes,
            helper: None,
        }
    }

    fn refused(&self, what: &str, source: io::Error, advice: String) -> FaultError {
        FaultError::Refused {
            fault: self.describe(),
            what: what.into(),
            source,
            advice,
        }
    }
}

impl Fault for MemoryHog {
    fn describe(&self) -> String {
        format!("memory hog, {} locked", Size(self.bytes))
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        if self.helper.is_some() {
            return Err(FaultError::Misuse {
                fault: self.describe(),
                what: "it is already injected",
            });
        }
        let available = available_memory().unwrap_or(u64::MAX);
        if self.bytes.saturating_add(LEFT_BYTES_MIN) > available {
            let source = io::Error::from(io::ErrorKind::OutOfMemory);
            let mut advice = format!(
                "{} are available, of which {} must stay available",
                Size(available),
                Size(LEFT_BYTES_MIN)
            );
            // Suggests 90 % of the memory that is free, because other processes may use part of it in the meantime.
            if let free @ 1.. = (available.saturating_sub(LEFT_BYTES_MIN) / 10 * 9) >> 20 {
                advice += &format!("; write memory = \"{free}MiB\" or less");
            }
            return Err(self.refused("too much", source, advice));
        }
        let at = clock.now();
        let helper = MemoryHelper::start(self.bytes).map_err(|error| {
            let mut advice =
                "raise the limit of locked memory (ulimit -l, RLIMIT_MEMLOCK), or run as root"
                    .to_string();
            let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
            advice += &match limit.map(|limit| limit >> 10) {
                Some(free @ 1..) => format!(", or write memory = \"{free}KiB\" or less"),
                _ => String::new(),
            };
            self.refused("cannot lock memory", error, advice)
        })?;
        let taken = helper.locked_bytes();
        self.helper = Some(helper);
        let seen = clock.now();
        let what = format!(
            "{} more locked (VmLck), after {:.2} s",
            Size(taken),
            seen.since(at).as_secs_f64()
        );
        if taken < self.bytes {
            return Err(FaultError::NotShown {
                fault: self.describe(),
                seen: what,
            });
        }
        Ok(Proof {
            at,
            seen,
            what,
            value: Some(taken as f64),
        })
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let fault = self.describe();
        let at = clock.now();
        let Some(mut helper) = self.helper.take() else {
            return Err(FaultError::Misuse {
                fault,
                what: "it is not injected",
            });
        };
        if let Ok(Some(status)) = helper.ended() {
            let seen = format!(
                "the helper process that held the memory ended early ({status}); lock less memory, or see dmesg"
            );
            return Err(FaultError::NotShown { fault, seen });
        }
        let given = helper.locked_bytes();
        if let Err(error) = helper.end() {
            return Err(FaultError::NotGone {
                fault,
                seen: format!("cannot wait for the helper process: {error}"),
            });
        }
        let what = format!(
            "{} less locked (VmLck); the helper process has ended",
            Size(given)
        );
        match given >= self.bytes {
            true => Ok(Proof {
                at,
                seen: clock.now(),
                what,
                value: Some(given as f64),
            }),
            false => Err(FaultError::NotShown {
                fault,
                seen: format!("only {} were locked at the end of the fault", Size(given)),
            }),
        }
    }
}

/// Bytes of memory available to processes: the kernel's estimate, or what cgroup limits leave of it.
pub fn available_memory() -> Option<u64> {
    Cgroups::own().available_memory()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request beyond the machine's memory is rejected before anything is allocated.
    #[test]
    fn a_request_beyond_the_machines_memory_is_refused() {
        let error = MemoryHog::new(1 << 60)
            .inject(&Clock::default())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("must stay") && error.contains("; write memory = "),
            "{error}"
        );
    }
}
