//! Faults on a host: the controller's requests, and the proofs that the host's agent returns.
//!
//! The rule: a fault is injected once and removed once, by its number; if the connection ends in between, the agent
//! removes it.

use core::net::IpAddr;
use std::time::Duration;

use brunt_core::Nanos;
use serde::{Deserialize, Serialize};

/// How a process on the host is identified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum HostProcess {
    /// The only process whose program has this name.
    Named(String),
    /// The process with this PID.
    Numbered(u32),
}

/// The fault to inject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum HostFault {
    /// Take away a share of the CPU time.
    Cpu {
        /// Share of each core's time, 0.01 to 1.
        share: f64,
        /// The affected cores; empty for all of them.
        cores: Vec<usize>,
    },
    /// Lock memory.
    Memory {
        /// Amount in bytes.
        bytes: u64,
    },
    /// Stop a process.
    Freeze {
        /// The process.
        process: HostProcess,
    },
    /// Kill a process.
    Kill {
        /// The process.
        process: HostProcess,
        /// Whether a supervisor on the host restarts the process; if so, the fault ends when the new process runs.
        comes_back: bool,
    },
    /// Attach netem, the kernel's network emulator, to an interface.
    Netem {
        /// The interface through which packets leave.
        interface: String,
        /// The link's settings, in the experiment's format.
        settings: serde_json::Value,
    },
    /// Bridge two interfaces and pass packets unchanged: the basis for [`HostFault::Impair`], not an impairment
    /// itself. An agent has only one bridge at a time.
    Bridge {
        /// The two interfaces.
        interfaces: [String; 2],
        /// Seed of the random numbers.
        seed: u64,
        /// Absolute path of a file on the host to save received packets to.
        capture: Option<String>,
    },
    /// Make the bridge delay or drop packets, among other impairments.
    Impair {
        /// The link's settings, in the experiment's format: from the first interface to the second, and back.
        settings: Box<[serde_json::Value; 2]>,
    },
    /// Measure the path to another host with ICMP echo requests; the proof contains the measured value. Not an
    /// impairment itself: it proves other faults' impairments, and leaves nothing to remove.
    ProbePath {
        /// The other host's address; agents only probe IPv4.
        address: IpAddr,
        /// The property to measure.
        figure: PathFigure,
        /// Number of requests.
        requests: u32,
        /// Microseconds between consecutive requests; 0 sends all of them at once.
        interval_us: u64,
        /// Bytes of data in each request.
        payload_bytes: u32,
    },
}

/// Properties of a path that can be measured with echo requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathFigure {
    /// The shortest round trip, in seconds.
    RoundTrip,
    /// The share of requests without a reply, 0 to 1.
    Loss,
    /// The rate at which replies arrived, in bits per second on the wire, including all Ethernet overhead.
    Rate,
}

/// Evidence that a fault is in effect or has been removed; in a message, its times are on the host's clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// When the change was made, on the run's clock: the start or the end of the fault.
    pub at: Nanos,
    /// When the change was observed.
    pub seen: Nanos,
    /// The observation, with its figures, for a report: `97.8% of core 1 taken over 250ms`.
    pub what: String,
    /// The number in `what`, if any, that shows whether the fault is in effect, in the unit stated there.
    pub value: Option<f64>,
}

impl Proof {
    /// The time from the change to its observation.
    pub fn took(&self) -> Duration {
        self.seen.since(self.at)
    }

    /// The same proof, with its times converted by `date`.
    #[must_use]
    pub fn dated(self, date: impl Fn(Nanos) -> Nanos) -> Proof {
        Proof {
            at: date(self.at),
            seen: date(self.seen),
            ..self
        }
    }
}

/// Why a fault is not in effect, or has not been removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostFaultFailure {
    /// The agent doesn't allow it.
    NotAllowed,
    /// The target of the fault doesn't exist, or the system refused the request.
    Refused,
    /// The fault was injected, but had no observable effect.
    NotShown,
    /// The fault was removed, but is still observable.
    NotGone,
}
