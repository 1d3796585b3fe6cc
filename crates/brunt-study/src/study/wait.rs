//! Waits for the condition of a phase: runs a command until it exits with 0.
//!
//! The rule: an interruption ends the wait within a fraction of a second, and no command outlives it.

use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brunt_core::{Clock, Nanos, Span};

use crate::experiment::{PhaseEntry, WaitFor};
use brunt_result::phase_wait::{PhaseWait, WaitOutcome};

/// Interval between checks for the command's end and for an interruption.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Why a condition was not met.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// The command cannot be run.
    #[error("cannot run {command}: {source}")]
    Command {
        /// Its words.
        command: String,
        /// The system's error.
        source: io::Error,
    },
    /// The command did not exit with 0 in time.
    #[error(
        "{command} did not succeed within {time_max}: {last}; run it by hand, or write a longer wait_for.time_max"
    )]
    TooLong {
        /// Its words.
        command: String,
        /// How long the command was retried.
        time_max: Span,
        /// How the last attempt ended.
        last: String,
    },
}

/// Waits for the condition of a phase in a repetition, and records the wait; `None` if the phase has no condition.
/// Returns `false` if `stop` was set first.
pub(super) fn before_phase(
    phase: &PhaseEntry,
    repetition: usize,
    stop: &AtomicBool,
) -> Option<(PhaseWait, Result<bool, WaitError>)> {
    let condition = phase.wait_for.as_ref()?;
    let begun = Clock::Monotonic.now();
    let waited = wait(condition, stop);
    let record = PhaseWait {
        phase: phase.label(),
        repetition: repetition as u32,
        command: condition.command.join(" "),
        waited_s: Clock::Monotonic.now().since(begun).as_secs_f64(),
        outcome: match &waited {
            Ok(true) => WaitOutcome::Met,
            Ok(false) => WaitOutcome::Interrupted,
            Err(WaitError::TooLong { .. }) => WaitOutcome::TimedOut,
            Err(WaitError::Command { .. }) => WaitOutcome::NotRun,
        },
    };
    Some((record, waited))
}

/// Waits until the command succeeds; returns `false` if `stop` was set first.
///
/// # Errors
/// The command cannot be run, or did not succeed in time.
fn wait(wait: &WaitFor, stop: &AtomicBool) -> Result<bool, WaitError> {
    let words = wait.command.join(" ");
    let until = Clock::Monotonic.now().after(wait.time_max.0);
    loop {
        let status = attempt(&wait.command, until, stop).map_err(|source| WaitError::Command {
            command: words.clone(),
            source,
        })?;
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        if status.is_some_and(|status| status.success()) {
            return Ok(true);
        }
        let next = Clock::Monotonic.now().after(wait.every.0);
        if status.is_none() || next >= until {
            let last = status.map_or("it was still running".to_string(), |status| {
                status.to_string()
            });
            return Err(WaitError::TooLong {
                command: words,
                time_max: wait.time_max,
                last,
            });
        }
        while Clock::Monotonic.now() < next {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            std::thread::sleep(next.since(Clock::Monotonic.now()).min(POLL_INTERVAL));
        }
    }
}

/// A running command, which is ended when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the command once. Returns `None` if the command was ended because its time was over or `stop` was set.
fn attempt(
    words: &[String],
    until: Nanos,
    stop: &AtomicBool,
) -> Result<Option<ExitStatus>, io::Error> {
    let (program, arguments) = words.split_first().expect("an empty command was refused");
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut running = Running(child);
    loop {
        if let Some(status) = running.0.try_wait()? {
            return Ok(Some(status));
        }
        if stop.load(Ordering::Relaxed) || Clock::Monotonic.now() >= until {
            return Ok(None);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(script: &str, time_max_ms: u64) -> WaitFor {
        WaitFor {
            command: ["sh", "-c", script].map(String::from).to_vec(),
            every: Span(Duration::from_millis(10)),
            time_max: Span(Duration::from_millis(time_max_ms)),
        }
    }

    #[test]
    fn a_command_is_repeated_until_it_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("attempts");
        // The command succeeds at the third attempt.
        let script = format!("echo >>{0}; test $(wc -l <{0}) = 3", file.display());
        let stop = AtomicBool::new(false);
        assert!(wait(&waiting(&script, 60_000), &stop).unwrap());
        assert_eq!(std::fs::read_to_string(&file).unwrap().len(), 3);
    }

    #[test]
    fn a_condition_that_never_holds_ends_the_wait() {
        let check = |condition: &WaitFor, said: &str| {
            let error = wait(condition, &AtomicBool::new(false)).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
        };
        // The only attempt has enough time to end, and there is none left for another.
        let once = WaitFor {
            every: Span(Duration::from_secs(60)),
            ..waiting("exit 3", 60_000)
        };
        check(&once, "exit status: 3");
        check(&waiting("exec sleep 1000", 100), "still running");
        let missing = WaitFor {
            command: vec!["/no/such/program".into()],
            ..waiting("", 100)
        };
        let error = wait(&missing, &AtomicBool::new(false)).unwrap_err();
        assert!(matches!(error, WaitError::Command { .. }), "{error}");
    }

    /// The record of a wait has its phase, repetition, command and outcome, even if the condition was not met.
    #[test]
    fn waits_are_recorded() {
        let check = |wait_for: Option<WaitFor>, stop: bool, expected: Option<WaitOutcome>| {
            let phase = PhaseEntry {
                name: "settle".into(),
                wait_for,
                ..PhaseEntry::default()
            };
            let waited = before_phase(&phase, 2, &AtomicBool::new(stop));
            assert_eq!(waited.as_ref().map(|(wait, _)| wait.outcome), expected);
            let Some((wait, result)) = waited else { return };
            assert_eq!((wait.phase.as_str(), wait.repetition), ("settle", 2));
            assert_eq!(result.ok() == Some(true), wait.outcome == WaitOutcome::Met);
            if wait.outcome == WaitOutcome::TimedOut {
                assert_eq!(wait.command, "sh -c exit 3");
                assert!(wait.waited_s >= 0.05, "{wait:?}");
            }
        };
        let missing = WaitFor {
            command: vec!["/no/such/program".into()],
            ..waiting("", 100)
        };
        check(None, false, None);
        check(
            Some(waiting("exit 0", 60_000)),
            false,
            Some(WaitOutcome::Met),
        );
        check(
            Some(waiting("exit 3", 100)),
            false,
            Some(WaitOutcome::TimedOut),
        );
        check(
            Some(waiting("exit 1", 60_000)),
            true,
            Some(WaitOutcome::Interrupted),
        );
        check(Some(missing), false, Some(WaitOutcome::NotRun));
    }

    #[test]
    fn an_interruption_ends_the_wait() {
        for script in ["exec sleep 1000", "exit 1"] {
            assert!(!wait(&waiting(script, 600_000), &AtomicBool::new(true)).unwrap());
        }
    }
}
