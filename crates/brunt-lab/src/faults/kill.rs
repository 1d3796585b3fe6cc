//! A process of ours that dies without a word (SIGKILL) and is started again: a controller that
//! crashes and reboots.
//!
//! The rule: how to start it, and when it serves again, is the caller's knowledge; that it is dead is
//! the kernel's word.

use std::fs;
use std::io;
use std::time::Duration;

use brunt_core::Clock;
use rustix::process::{Pid, Signal, kill_process};

use crate::{Fault, FaultError, Proof};

/// How long the kernel gets to end a process; one in the middle of a disk access ends when that is done.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts the process again, waits until it serves, and answers its id.
pub type Restart = Box<dyn FnMut() -> io::Result<u32> + Send>;

/// Kills a process, and starts it again when removed.
pub struct Kill {
    pid: u32,
    restart: Restart,
    killed: bool,
}

impl Kill {
    /// For a process that the caller started and has not waited for: so the number is not another's.
    pub fn new(pid: u32, restart: Restart) -> Kill {
        Kill { pid, restart, killed: false }
    }

    /// The process as it is now: another one after each restart.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl Fault for Kill {
    fn describe(&self) -> String {
        format!("kill of process {}", self.pid)
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let at = clock.now();
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let sent = pid.ok_or(rustix::io::Errno::SRCH).and_then(|pid| kill_process(pid, Signal::KILL));
        sent.map_err(|error| {
            FaultError::refused(self.describe(), "cannot signal the process", error.into())
        })?;
        self.killed = true;
        loop {
            let now = clock.now();
            if is_dead(self.pid) {
                let what = format!("process {} is dead", self.pid);
                return Ok(Proof { at, seen: now, what, value: None });
            }
            if now.since(at) > PATIENCE {
                return Err(FaultError::NotShown { fault: self.describe(), seen: "it still runs".into() });
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let fault = self.describe();
        if !std::mem::take(&mut self.killed) {
            return Err(FaultError::Misuse { fault, what: "it was not injected" });
        }
        let at = clock.now();
        self.pid = (self.restart)().map_err(|source| FaultError::Refused {
            fault: fault.clone(),
            what: "cannot start the process again".into(),
            source,
            advice: "what it serves has to be there for a second start: see what it said, and that its port and files \
                     are free"
                .into(),
        })?;
        if is_dead(self.pid) {
            let seen = format!("its replacement, process {}, is dead, too", self.pid);
            return Err(FaultError::NotGone { fault, seen });
        }
        let what = format!("process {} has replaced it", self.pid);
        Ok(Proof { at, seen: clock.now(), what, value: None })
    }
}

/// Whether there is no such process, or only its body.
fn is_dead(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::sync::{Arc, Mutex};

    use super::*;

    struct Children(Arc<Mutex<Vec<Child>>>);

    impl Drop for Children {
        fn drop(&mut self) {
            for mut child in self.0.lock().unwrap().drain(..) {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    /// The process is seen dead, and another one lives afterwards.
    #[test]
    fn kills_and_starts_again() {
        let children = Children(Arc::default());
        let kept = children.0.clone();
        let start = move |program: &str| {
            let child = Command::new(program).arg("60").stdin(Stdio::null()).spawn()?;
            let pid = child.id();
            kept.lock().unwrap().push(child);
            io::Result::Ok(pid)
        };
        let first = start("sleep").unwrap();
        let mut kill = Kill::new(first, Box::new(move || start("sleep")));
        let clock = Clock::default();
        kill.inject(&clock).unwrap();
        assert!(is_dead(first));
        kill.remove(&clock).unwrap();
        assert!(kill.pid() != first && !is_dead(kill.pid()));
        assert!(matches!(kill.remove(&clock), Err(FaultError::Misuse { .. })));
    }

    /// A process that cannot be started again is an error with the reason.
    #[test]
    fn a_failed_restart_is_said() {
        let children = Children(Arc::default());
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        children.0.lock().unwrap().push(child);
        let mut kill = Kill::new(pid, Box::new(|| Err(io::Error::other("the port is taken"))));
        kill.inject(&Clock::default()).unwrap();
        let error = kill.remove(&Clock::default()).unwrap_err().to_string();
        assert!(error.contains("the port is taken"), "{error}");
    }
}
