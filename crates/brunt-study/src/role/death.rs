//! Advice for a run whose role exited unexpectedly: a shorter run, fewer rounds, a kill fault, or less memory. Called
//! by the hook that knows the run's details.
//!
//! The rule: advice is based only on measurements: when the role's output ended, and what the kernel counts.

use std::os::unix::process::ExitStatusExt;

use brunt_core::Nanos;
use brunt_host::RoleDeath;

use crate::rounded::rounded;

/// Share of the available memory that a LUN in memory may take; the process that serves it needs the rest.
const MEMORY_SHARE: f64 = 0.9;
const SIGKILL: i32 = 9;

/// Settings that would have avoided the death, for a run that began measuring at `start`, after `rounds` complete
/// rounds of all points.
pub(crate) fn advice(death: &RoleDeath, start: Option<Nanos>, rounds: u32) -> Option<String> {
    let killed = death.status.signal() == Some(SIGKILL);
    if let Some(bytes) = death.starved.filter(|_| killed) {
        let mib = ((bytes as f64 * MEMORY_SHARE) as u64 >> 20).max(1);
        return Some(format!(
            "the kernel killed processes because memory ran out; write serve = \"memory:{mib}MiB\" or less for a LUN \
             in memory"
        ));
    }
    let lived = start
        .zip(death.at)
        .filter(|(start, at)| at > start)
        .map(|(start, at)| at.since(start));
    let meant = lived.filter(|_| killed).map(|lived| {
        format!(
            "; if the experiment should kill it, write a fault with kill = true and at = \"{}\"",
            rounded(lived)
        )
    });
    let kept = match (lived, rounds) {
        (Some(lived), _) => format!(
            "it ran for {} of the run; a run with stop = {{ time = \"{}\" }} would have ended before that",
            rounded(lived),
            rounded(lived / 2)
        ),
        (None, 1..) => {
            format!("with repetitions = {rounds} the experiment would have ended before that")
        }
        (None, 0) => return None,
    };
    Some(kept + &meant.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use brunt_result::void::VoidReason;

    use super::*;

    /// The advice depends on how and when the role died.
    #[test]
    fn advice_follows_from_the_death() {
        let check =
            |raw: i32, at: Option<u64>, starved: Option<u64>, rounds: u32, said: Option<&str>| {
                let death = RoleDeath {
                    status: ExitStatus::from_raw(raw),
                    at: at.map(Nanos),
                    starved,
                };
                let advice = advice(&death, Some(Nanos(1_000_000_000)), rounds);
                match said {
                    None => assert_eq!(advice, None),
                    Some(said) => {
                        let advice = advice.unwrap();
                        assert!(
                            advice.contains(said) && VoidReason::RoleDied.is_named_in(&advice),
                            "{advice}"
                        );
                    }
                }
            };
        let (killed, exited) = (SIGKILL, 1 << 8);
        check(
            exited,
            Some(3_000_000_000),
            None,
            0,
            Some("it ran for 2s of the run; a run with stop = { time = \"1s\" }"),
        );
        check(
            killed,
            Some(3_000_000_000),
            None,
            0,
            Some("kill = true and at = \"2s\""),
        );
        check(
            killed,
            Some(3_000_000_000),
            Some(100 << 20),
            0,
            Some("write serve = \"memory:90MiB\" or less"),
        );
        // The kernel killed other processes; this one exited.
        check(
            exited,
            Some(3_000_000_000),
            Some(100 << 20),
            0,
            Some("stop = { time = \"1s\" }"),
        );
        check(exited, Some(500_000_000), None, 3, Some("repetitions = 3"));
        check(exited, None, None, 0, None);
    }
}
