//! Faults on a host: what its controller requests, and how its agent proves them.
//!
//! The rule: a fault is injected and removed by its number, each once; if the connection ends in between, the agent
//! removes the fault.

use std::time::Duration;

use brunt_core::Nanos;
use serde::{Deserialize, Serialize};

/// A process on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum HostProcess {
    /// The only process whose program has this name.
    Named(String),
    /// The process with this id.
    Numbered(u32),
}

/// The fault to inject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum HostFault {
    /// A share of processors is taken away.
    Cpu {
        /// Of each core, 0.01 to 1.
        share: f64,
        /// Which cores; if empty, all.
        cores: Vec<usize>,
    },
    /// Memory is locked.
    Memory {
        /// How many bytes.
        bytes: u64,
    },
    /// A process is stopped.
    Freeze {
        /// Which.
        process: HostProcess,
    },
    /// A process is killed.
    Kill {
        /// Which.
        process: HostProcess,
        /// Whether a supervisor on the host restarts it: the fault is over when a new process runs.
        comes_back: bool,
    },
    /// The kernel's own emulator is attached to an interface.
    Netem {
        /// The interface that packets leave by.
        interface: String,
        /// The settings of a link, as experiments have them.
        settings: serde_json::Value,
    },
    /// Two interfaces are bridged, and packets pass unchanged: the base for [`HostFault::Impair`], not an impairment
    /// itself. There is one at a time.
    Bridge {
        /// The two interfaces.
        interfaces: [String; 2],
        /// Seed of the random numbers.
        seed: u64,
        /// A file on that host, by its absolute path, to which received packets are saved.
        capture: Option<String>,
    },
    /// The bridge delays or drops packets, and more.
    Impair {
        /// The settings of a link, as experiments have them: from the first interface to the second, and back.
        settings: Box<[serde_json::Value; 2]>,
    },
}

/// Evidence that a fault is in effect, or gone; in a message, with times on the host's clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// When the change was made, on the run's clock: the start or the end of the fault.
    pub at: Nanos,
    /// When the change was observed.
    pub seen: Nanos,
    /// The observation, with its figures, for a report: `97.8% of core 1 taken over 250ms`.
    pub what: String,
    /// The figure in it that distinguishes presence from absence, if there is one, in the unit stated in `what`.
    pub value: Option<f64>,
}

impl Proof {
    /// The time from the change until it was observed.
    pub fn took(&self) -> Duration {
        self.seen.since(self.at)
    }

    /// The same proof with its times converted by `date`.
    #[must_use]
    pub fn dated(self, date: impl Fn(Nanos) -> Nanos) -> Proof {
        Proof {
            at: date(self.at),
            seen: date(self.seen),
            ..self
        }
    }
}

/// Why a fault is not in effect, or not gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostFaultFailure {
    /// The agent doesn't allow it.
    NotAllowed,
    /// The object of the fault doesn't exist, or the machine refuses.
    Refused,
    /// It was injected, but had no observable effect.
    NotShown,
    /// It was removed, but is still observable.
    NotGone,
}
