//! Measured choices as plain data: the engine, the ring mode, the queue depth, the influence of the page cache. A load
//! measures them; summaries store them.

use brunt_core::IoEngine;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a worker's io_uring is driven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RingMode {
    /// Requests are submitted by system call; completions arrive by interrupt.
    #[default]
    Interrupt,
    /// A kernel thread polls for requests (SQPOLL): no system calls, but it occupies a core.
    Sqpoll,
    /// The device is polled for completions (IOPOLL): only for block devices with poll queues.
    Poll,
    /// The fastest of these, measured before the first run of each point (about two seconds).
    Auto,
}

impl RingMode {
    /// The modes that a ring can have: all except `Auto`.
    pub const ALL: [RingMode; 3] = [RingMode::Interrupt, RingMode::Sqpoll, RingMode::Poll];

    /// Name in files.
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
    /// The mode of the point's runs.
    pub mode: RingMode,
    /// Reason for the choice, in words.
    pub why: String,
    /// Measurements behind the choice: the median of each mode.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<RingTrial>,
}

/// A ring mode that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RingTrial {
    /// The ring mode.
    pub mode: RingMode,
    /// Reads per second, median of three measurements; `null` if the mode does not work here.
    pub requests_per_second: Option<f64>,
    /// Error, if the mode does not work here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl RingChoice {
    /// The choice for a workload that specifies its mode.
    pub fn stated(mode: RingMode) -> RingChoice {
        RingChoice {
            mode,
            why: "as set in the workload".into(),
            trials: Vec::new(),
        }
    }
}

/// A workload's setting of its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EngineSetting {
    /// The faster engine, measured before the first run of each point (about two seconds).
    #[serde(rename = "auto")]
    Auto,
    /// io_uring: one system call submits many requests.
    #[serde(rename = "io_uring")]
    IoUring,
    /// preadv2 and pwritev2, by as many threads as there are requests in flight.
    #[serde(rename = "threads")]
    Threads,
}

impl EngineSetting {
    /// Name in files.
    pub fn name(self) -> &'static str {
        match self {
            EngineSetting::Auto => "auto",
            EngineSetting::IoUring => IoEngine::IoUring.name(),
            EngineSetting::Threads => IoEngine::Threads.name(),
        }
    }
}

impl From<IoEngine> for EngineSetting {
    fn from(engine: IoEngine) -> EngineSetting {
        match engine {
            IoEngine::IoUring => EngineSetting::IoUring,
            IoEngine::Threads => EngineSetting::Threads,
        }
    }
}

/// The engine of a point, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EngineChoice {
    /// The engine of the point's runs.
    pub engine: IoEngine,
    /// Reason for the choice, in words.
    pub why: String,
    /// Measurements behind the choice: the median of each engine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<EngineTrial>,
}

impl EngineChoice {
    /// A choice made without measurements.
    pub fn unmeasured(engine: IoEngine, why: impl Into<String>) -> EngineChoice {
        EngineChoice {
            engine,
            why: why.into(),
            trials: Vec::new(),
        }
    }
}

/// An engine that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EngineTrial {
    /// The engine.
    pub engine: IoEngine,
    /// Reads per second, median of three measurements; `null` if the engine does not work here.
    pub requests_per_second: Option<f64>,
    /// Error, if the engine does not work here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Result of a queue depth search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DepthChoice {
    /// Smallest queue depth that reaches 97 % of the best throughput; for a search with a limit, the largest depth that
    /// stayed within it (or the smallest depth tried, if none did).
    pub queue_depth: u32,
    /// All trials, in order.
    pub trials: Vec<DepthTrial>,
}

/// A queue depth that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DepthTrial {
    /// Outstanding requests per worker.
    pub queue_depth: u32,
    /// Throughput in bytes per second.
    pub bytes_per_second: f64,
    /// Whether the response times stayed within the search's limit, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<bool>,
}

impl DepthChoice {
    /// Formats the choice for display: `16, measured: 1: 2.1 MB/s, 2: 4.2 MB/s, …`.
    pub fn describe(&self) -> String {
        let told: Vec<String> = self
            .trials
            .iter()
            .map(|trial| {
                let over = if trial.kept == Some(false) {
                    " (over the limit)"
                } else {
                    ""
                };
                format!(
                    "{}: {:.1} MB/s{over}",
                    trial.queue_depth,
                    trial.bytes_per_second / 1e6
                )
            })
            .collect();
        let none =
            !self.trials.is_empty() && self.trials.iter().all(|trial| trial.kept == Some(false));
        let none = if none {
            " (no depth stays within the limit)"
        } else {
            ""
        };
        format!("{}{none}, measured: {}", self.queue_depth, told.join(", "))
    }
}

/// Influence of the page cache on a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PageCache {
    /// Share of bytes read from the page cache, 0 to 1; `null` if the phase reads nothing or the kernel does not
    /// report it.
    pub read_share: Option<f64>,
    /// Seconds spent in the final fsync, included in the phase's time.
    pub flush_s: f64,
}
