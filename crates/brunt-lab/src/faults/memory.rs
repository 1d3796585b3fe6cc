//! Memory taken away: a stated amount, filled and locked, so that the system cannot use it for
//! anything, its caches included.
//!
//! The rule: proven by what the kernel counts as locked (`VmLck`), and refused where it would bring
//! the machine down instead of into trouble.

use std::fs;
use std::io;
use std::sync::Mutex;

use brunt_core::{Clock, Size};

use crate::sys::LockedMemory;
use crate::{Fault, FaultError, Proof};

/// What has to stay available, in bytes: with less, the kernel kills processes.
const LEFT_BYTES_MIN: u64 = 256 << 20;

/// Two hogs at once could not tell their locked bytes apart.
static ONE_CHANGE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Locks an amount of memory.
pub struct MemoryHog {
    bytes: u64,
    memory: Option<LockedMemory>,
}

impl MemoryHog {
    /// Of so many bytes; rounded up to whole pages by the kernel.
    pub fn new(bytes: u64) -> MemoryHog {
        MemoryHog { bytes, memory: None }
    }

    fn refused(&self, what: &str, source: io::Error, advice: Option<String>) -> FaultError {
        FaultError::Refused { fault: self.describe(), what: what.into(), source, advice }
    }
}

impl Fault for MemoryHog {
    fn describe(&self) -> String {
        format!("memory hog, {} locked", Size(self.bytes))
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        if self.memory.is_some() {
            return Err(FaultError::Misuse { fault: self.describe(), what: "it is injected already" });
        }
        let _turn = ONE_CHANGE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let available = field("/proc/meminfo", "MemAvailable:").unwrap_or(u64::MAX);
        if self.bytes.saturating_add(LEFT_BYTES_MIN) > available {
            let source = io::Error::from(io::ErrorKind::OutOfMemory);
            let mut advice =
                format!("{} are available and {} have to stay so", Size(available), Size(LEFT_BYTES_MIN));
            // Some of it will be somebody else's a moment later.
            if let free @ 1.. = (available.saturating_sub(LEFT_BYTES_MIN) / 10 * 9) >> 20 {
                advice += &format!("; write memory = \"{free}MiB\" or less");
            }
            return Err(self.refused("too much", source, Some(advice)));
        }
        let before = locked();
        let at = clock.now();
        let memory = LockedMemory::new(self.bytes as usize).map_err(|error| {
            let mut advice =
                "raise the limit of locked memory (ulimit -l, RLIMIT_MEMLOCK), run as root".to_string();
            let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
            advice += &match limit.map(|limit| limit.saturating_sub(before) >> 10) {
                Some(free @ 1..) => format!(", or write memory = \"{free}KiB\" or less"),
                _ => String::new(),
            };
            self.refused("cannot lock memory", error, Some(advice))
        })?;
        self.memory = Some(memory);
        let taken = locked().saturating_sub(before);
        let what = format!("{} more are locked (VmLck)", Size(taken));
        if taken < self.bytes {
            return Err(FaultError::NotShown { fault: self.describe(), seen: what });
        }
        Ok(Proof { at, seen: clock.now(), what, value: Some(taken as f64) })
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let fault = self.describe();
        let _turn = ONE_CHANGE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let before = locked();
        let at = clock.now();
        if self.memory.take().is_none() {
            return Err(FaultError::Misuse { fault, what: "it was not injected" });
        }
        let given = before.saturating_sub(locked());
        let what = format!("{} fewer are locked (VmLck)", Size(given));
        match given >= self.bytes {
            true => Ok(Proof { at, seen: clock.now(), what, value: Some(given as f64) }),
            false => Err(FaultError::NotGone { fault, seen: what }),
        }
    }
}

/// Bytes that this process has locked.
fn locked() -> u64 {
    field("/proc/self/status", "VmLck:").unwrap_or(0)
}

/// A field of a /proc file, which counts in KiB.
fn field(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel counts the memory as locked, and no more when it is given back. Four MiB are
    /// below any usual limit.
    #[test]
    fn locks_and_gives_back() {
        let mut hog = MemoryHog::new(4 << 20);
        match hog.inject(&Clock::default()) {
            Ok(proof) => {
                assert!(proof.value.unwrap() >= f64::from(4 << 20), "{proof:?}");
                assert!(hog.remove(&Clock::default()).unwrap().value.unwrap() >= f64::from(4 << 20));
            }
            Err(error) => assert!(error.to_string().contains("RLIMIT_MEMLOCK"), "{error}"),
        }
        assert!(matches!(hog.remove(&Clock::default()), Err(FaultError::Misuse { .. })));
    }

    /// More than the machine has is refused before anything is taken.
    #[test]
    fn refuses_to_kill_the_machine() {
        let error = MemoryHog::new(1 << 60).inject(&Clock::default()).unwrap_err().to_string();
        assert!(error.contains("have to stay") && error.contains("; write memory = "), "{error}");
    }
}
