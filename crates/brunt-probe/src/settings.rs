//! `[probes]` of an experiment file.

use std::time::Duration;

use brunt_core::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Entry, PROBES};

/// Shortest interval: the kernel counts CPU time in ticks of 10 ms.
pub const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Longest interval.
pub const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Maximum number of program names.
const NAMES_MAX: usize = 64;

/// Host counters to record during runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Probes {
    /// Sampling interval, 10 ms to 1 h; 0: no probes. Default: a twentieth of the shortest run, 50 ms to 1 s, or
    /// shorter so that faults start and end at its multiples.
    pub interval: Span,
    /// Probes to run, from cpu, activity, memory, network, tcp, disk, pressure, cgroup, temperature, process
    /// and device; default: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// Programs whose processes to record on every host, by name (`/proc/PID/comm`): `["tgtd"]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<String>,
    /// Other hosts to record, from `[hosts]`; default: all that have ssh or agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
}

/// A mistake in the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct ProbesError {
    /// The invalid key.
    pub key: &'static str,
    /// What is wrong, and how to correct it.
    pub what: String,
}

impl Default for Probes {
    fn default() -> Probes {
        Probes {
            interval: Span(Duration::from_secs(1)),
            only: Vec::new(),
            processes: Vec::new(),
            hosts: None,
        }
    }
}

impl Probes {
    /// Returns true if anything is recorded.
    pub fn is_on(&self) -> bool {
        !self.interval.0.is_zero()
    }

    /// Returns the chosen probes, in the table's order.
    pub fn chosen(&self) -> Vec<&'static Entry> {
        let chosen = |entry: &&Entry| {
            self.only.is_empty() || self.only.iter().any(|name| name == entry.name)
        };
        PROBES.iter().filter(chosen).collect()
    }

    /// Returns true if parts of devices are recorded ([`super::DEVICE`]).
    pub fn has_devices(&self) -> bool {
        self.is_on()
            && (self.only.is_empty() || self.only.iter().any(|name| name == super::DEVICE.name))
    }

    /// Finds the first mistake.
    ///
    /// # Errors
    /// A key has an invalid value.
    pub fn check(&self) -> Result<(), ProbesError> {
        if self.is_on() && !(INTERVAL_MIN..=INTERVAL_MAX).contains(&self.interval.0) {
            let what = format!(
                "{}: write 10ms to 1h, or 0s to switch probes off",
                self.interval
            );
            return Err(ProbesError {
                key: "interval",
                what,
            });
        }
        for name in &self.only {
            if !super::names().any(|known| known == name) {
                let known: Vec<&str> = super::names().collect();
                let what = format!("unknown probe {name}; the probes are {}", known.join(", "));
                return Err(ProbesError { key: "only", what });
            }
        }
        if self.processes.len() > NAMES_MAX {
            let what = format!(
                "{} program names; write at most {NAMES_MAX}",
                self.processes.len()
            );
            return Err(ProbesError {
                key: "processes",
                what,
            });
        }
        let wrong = |name: &&String| name.is_empty() || name.contains(['/', '\n', '\0']);
        if let Some(name) = self.processes.iter().find(wrong) {
            let what = format!(
                "'{name}' is not a program name; write it as in /proc/PID/comm, without a folder"
            );
            return Err(ProbesError {
                key: "processes",
                what,
            });
        }
        if let Some(name) = self
            .processes
            .iter()
            .enumerate()
            .find_map(|(index, name)| self.processes[..index].contains(name).then_some(name))
        {
            return Err(ProbesError {
                key: "processes",
                what: format!("'{name}' is listed twice"),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message for an invalid value lists valid ones.
    #[test]
    fn a_mistake_lists_valid_values() {
        let check = |interval: &str, only: &[&str], expected: &str| {
            let interval = interval.parse().unwrap();
            let only = only.iter().map(|name| (*name).into()).collect();
            let probes = Probes {
                interval,
                only,
                ..Probes::default()
            };
            let said = probes
                .check()
                .map_or_else(|error| error.to_string(), |()| "good".into());
            assert!(said.contains(expected), "{said}");
        };
        check("1s", &[], "good");
        check("0s", &["cpu"], "good");
        check("1ms", &[], "interval: 1ms: write 10ms");
        check("2h", &[], "to 1h");
        check(
            "1s",
            &["cpu", "gpu"],
            "only: unknown probe gpu; the probes are cpu, activity",
        );
    }

    #[test]
    fn names_of_programs_are_checked() {
        let check = |names: &[&str], expected: &str| {
            let processes = names.iter().map(|name| (*name).into()).collect();
            let probes = Probes {
                processes,
                ..Probes::default()
            };
            let said = probes
                .check()
                .map_or_else(|error| error.to_string(), |()| "good".into());
            assert!(said.contains(expected), "{said}");
        };
        check(&["tgtd", "kworker"], "good");
        check(&["/usr/sbin/tgtd"], "without a folder");
        check(&[""], "not a program name");
        check(&["a", "b", "a"], "'a' is listed twice");
        check(&["x"; 65], "at most 64");
    }

    /// The help of `only` names all probes.
    #[test]
    fn the_help_of_only_names_all_probes() {
        let schema = serde_json::to_string(&schemars::schema_for!(Probes)).unwrap();
        for name in crate::names() {
            assert!(schema.contains(name), "{name}");
        }
    }
}
