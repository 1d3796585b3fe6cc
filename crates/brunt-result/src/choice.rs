//! What was found out before or beside a run, as plain data: how a ring should work, how deep a queue should be,
//! what the page cache had in it. A load measures it, summaries keep it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a worker's ring works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RingMode {
    /// A system call hands requests over, and interrupts tell that they are done.
    #[default]
    Interrupt,
    /// A thread of the kernel takes requests over (SQPOLL): no system calls, and a core gone.
    Sqpoll,
    /// The device is asked until requests are done (IOPOLL): block devices with poll queues only.
    Poll,
    /// The fastest of these, measured before the first run of each point: some two seconds.
    Auto,
}

impl RingMode {
    /// Those that a ring can have.
    pub const ALL: [RingMode; 3] = [RingMode::Interrupt, RingMode::Sqpoll, RingMode::Poll];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            RingMode::Interrupt => "interrupt",
            RingMode::Sqpoll => "sqpoll",
            RingMode::Poll => "poll",
            RingMode::Auto => "auto",
        }
    }
}

/// The mode of a point, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RingChoice {
    /// The mode that its runs have.
    pub mode: RingMode,
    /// In words.
    pub why: String,
    /// What was measured for it: the median of each mode.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<RingTrial>,
}

/// One mode, tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RingTrial {
    /// Which.
    pub mode: RingMode,
    /// Reads a second, the median of three; `None` when it does not work here.
    pub requests_per_second: Option<f64>,
    /// Why it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl RingChoice {
    /// Of a workload that names its mode.
    pub fn stated(mode: RingMode) -> RingChoice {
        RingChoice { mode, why: "as the workload says".into(), trials: Vec::new() }
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DepthChoice {
    /// The smallest depth that reaches 97 % of the best throughput.
    pub queue_depth: u32,
    /// All that was tried, in this order.
    pub trials: Vec<DepthTrial>,
}

/// One depth, tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DepthTrial {
    /// Requests outstanding for each worker.
    pub queue_depth: u32,
    /// What it brought.
    pub bytes_per_second: f64,
}

impl DepthChoice {
    /// For people: `16, measured: 1: 2.1 MB/s, 2: 4.2 MB/s, …`.
    pub fn said(&self) -> String {
        let told: Vec<String> = self
            .trials
            .iter()
            .map(|trial| format!("{}: {:.1} MB/s", trial.queue_depth, trial.bytes_per_second / 1e6))
            .collect();
        format!("{}, measured: {}", self.queue_depth, told.join(", "))
    }
}

/// The page cache's part in a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PageCache {
    /// Share of the bytes read that came from the page cache, 0 to 1; `None` for a phase that reads none, or
    /// where the kernel does not tell.
    pub read_share: Option<f64>,
    /// Seconds that the fsync at the end took, which are part of the phase's time.
    pub flush_s: f64,
}
