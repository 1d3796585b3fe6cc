//! Faults on a host, as its controller asks for them and its agent proves them.
//!
//! The rule: a fault is put in and removed by its number, each once; whatever ends the conversation in between removes it.

use std::time::Duration;

use brunt_core::Nanos;
use serde::{Deserialize, Serialize};

/// A process on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum HostProcess {
    /// The only one whose program has this name.
    Named(String),
    /// The one of this number.
    Numbered(u32),
}

/// What is to be broken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum HostFault {
    /// A share of processors is taken away.
    Cpu {
        /// Of each core, 0.01 to 1.
        share: f64,
        /// Which; none named: all.
        cores: Vec<usize>,
    },
    /// Memory is locked.
    Memory {
        /// How much.
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
        /// Somebody there starts it again: the fault is over when another one runs.
        comes_back: bool,
    },
    /// The kernel's own emulator stands before an interface.
    Netem {
        /// The interface that packets leave by.
        interface: String,
        /// The settings of a link, as experiments have them.
        settings: serde_json::Value,
    },
    /// Two interfaces are bridged, and nothing is done to what passes: the stage for [`HostFault::Impair`], no trouble by
    /// itself. There is one at a time.
    Bridge {
        /// Which.
        interfaces: [String; 2],
        /// Of chance.
        seed: u64,
        /// A file of that host, by its absolute path, to which the packets that come are saved.
        capture: Option<String>,
    },
    /// The bridge delays, loses and more.
    Impair {
        /// The settings of a link, as experiments have them: from the first interface to the second, and back.
        settings: Box<[serde_json::Value; 2]>,
    },
}

/// That a fault is there, or gone; in a message, with times of the host's clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// When the change was made, on the run's clock: the start or the end of the fault.
    pub at: Nanos,
    /// When it had been seen.
    pub seen: Nanos,
    /// What was seen, with its figures, for a report: `97.8% of core 1 taken over 250ms`.
    pub what: String,
    /// The figure in it that tells presence from absence, if there is one, in the unit that `what` says.
    pub value: Option<f64>,
}

impl Proof {
    /// How long it took from the change until it was seen.
    pub fn took(&self) -> Duration {
        self.seen.since(self.at)
    }

    /// The same with other times: `date` puts each on another clock.
    #[must_use]
    pub fn dated(self, date: impl Fn(Nanos) -> Nanos) -> Proof {
        Proof {
            at: date(self.at),
            seen: date(self.seen),
            ..self
        }
    }
}

/// Why a fault is not there, or not gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostFaultFailure {
    /// The agent may not do that.
    NotAllowed,
    /// What it is about is not there, or the machine says no.
    Refused,
    /// It was put in and did not show.
    NotShown,
    /// It was removed and is still to be seen.
    NotGone,
}
